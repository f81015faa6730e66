# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a rolling restart decide: whether they go on, what they say, and how they are recorded."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters

Seen = Mapping[str, Sequence[Mapping[str, Any]]]


def thin(snapshot: Mapping[str, Any]) -> List[str]:
    """The remark on a snapshot that has far less than those before."""
    if not snapshot["thin"]:
        return []
    return ["The snapshot before the restart is thin: only %s were cached." % bytes_to_human(snapshot["wanted"] * 8192)]


def waiting(host: str, waits: Sequence[Mapping[str, Any]], seconds: Any) -> str:
    """The line before the clients of a host are held: what waits, until when, and what to type if nobody can."""
    places = ", ".join(
        "%s on %s:%s%s" % (way["kind"], place["host"], place.get("port", ""), " (%s)" % place["database"] if place.get("database") else "")
        for way in waits for place in way["places"])
    return (
        "%s: its clients wait at %s from now on, until it serves again or for %s s at most, also if this run dies. To end that earlier, run the playbook"
        " again, or RESUME in the console." % (host, places, seconds))


def leaving(host: str) -> str:
    """The line before a host goes out of traffic."""
    return "%s: goes out of traffic. If this run dies, it stays out until the playbook runs again (-e cache_restart_abort=true restarts nothing)." % host


def gate_fails(gate: str, residency: Optional[float], tried: Any, attempts: Any) -> bool:
    """Whether a host whose gate was missed stops there; ``residency`` is None if nothing was measured, ``gate`` is cache_restart_gate."""
    return gate == "fail" or residency is None or (gate == "wait" and int(tried) >= int(attempts))


def taken_out_again(ways: Sequence[Mapping[str, Any]], seen: Seen) -> List[str]:
    """A remark on those that had put a host back into traffic, which is taken out again."""
    who = _adapters.in_traffic(ways, seen)
    return ["%s had put it back into traffic%s: it was taken out again." % (who, _adapters.forgets(ways, seen))] if who else []
