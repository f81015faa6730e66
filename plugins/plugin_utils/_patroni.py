# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module patroni_traffic has answered: who is in the traffic of load balancers that ask Patroni."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence


def patroni(answer: Mapping[str, Any], places: Sequence[Mapping[str, Any]], stays: bool) -> List[Dict[str, Any]]:
    """The state of the host. None for a primary that stays one, as /replica sends it nobody, nor for a host that has the tag by its user."""
    if stays or answer.get("out") is None:
        return []
    others = list(map(str, answer.get("others") or []))
    return [
        dict(place, member=str(answer.get("member")), out=bool(answer["out"]), others=others, problem=str(answer.get("problem") or "")) for place in places]


def patroni_unfit(seen: Sequence[Mapping[str, Any]], begun: bool, alone: bool, leaving: Sequence[str] = ()) -> str:
    """The reason why a host cannot be taken out of traffic; once a rolling restart has ``begun``, those that it has out come back before.

    ``leaving`` are the members that leave at the same time, or lead then: none of them serves meanwhile.
    """
    problem = next((place["problem"] for place in seen if place["problem"]), "")
    if problem:
        return problem
    if all(begun or alone or place["out"] or not set(leaving).issuperset(place["others"]) for place in seen):
        return ""
    return (
        "No other standby is in the traffic that Patroni's /replica sends: it was neither taken out nor restarted. Bring the others back first (patronictl"
        " list), or set cache_restart_min_standbys to 0, if the primary serves meanwhile.")


def patroni_cut(sessions: Any, primary: bool, seconds: Any) -> str:
    """The report's remark on sessions that the restart will end; a primary is not drained, so it has none."""
    if primary or not sessions:
        return ""
    return "%d sessions did not end within cache_restart_drain_timeout (%s s); a restart cuts them." % (int(sessions), seconds)
