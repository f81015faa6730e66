# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a rolling restart decide: whether they go on, what they say, and how they are recorded."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters

Seen = Mapping[str, Sequence[Mapping[str, Any]]]


def thin(snapshot: Mapping[str, Any]) -> List[str]:
    """The remark on a snapshot that has far less than those before."""
    if not snapshot["thin"]:
        return []
    return ["The snapshot before the restart is thin: only %s were cached." % bytes_to_human(snapshot["wanted"] * 8192)]


ORDER = (
    "snapshot", "may_go_out", "still_out", "out", "stop", "paused", "server", "restarted", "restore_only", "replay", "may_go_in", "in", "gate", "back")


def in_order(lists: Sequence[Sequence[str]]) -> List[str]:
    """What any of several hosts has left (files()), in the order that each of them needs."""
    return [name for name in ORDER if any(name in files for files in lists)]


def files(record: Mapping[str, Any], way: Mapping[str, bool], standby: bool, goes_out: bool, pooled: bool) -> List[str]:
    """The task files that are left for a host, in their order, without ``.yml``.

    ``way`` is _states.way()'s, ``goes_out`` says whether it leaves traffic, and ``pooled`` whether its clients are paused meanwhile.
    """
    restart, out = way["restart"], bool(record.get("out"))
    if goes_out and not restart and not out:
        return [*(["restarted"] if way["again"] else []), "restore_only"]
    leaves = [*(["may_go_out"] if restart else []), *(["still_out"] if out else []), "out"] if goes_out else []
    steps = [*(["snapshot"] if way["save"] else []), *leaves]
    if restart:
        steps += ["stop", "paused" if pooled else "server"]
    if restart or way["again"]:
        steps.append("restarted")
    if standby and way["restore"]:
        steps.append("replay")
    if not standby:  # its clients wait: it goes back before it is warm
        steps += [*(["may_go_in"] if restart or way["again"] else []), *(["in"] if out or goes_out else [])]
    if way["restore"] and (way["save"] or record.get("debt")):
        steps.append("gate")
    return [*steps, *(["back"] if standby and (out or goes_out) else [])]


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


def end(record: Mapping[str, Any], way: Mapping[str, Any], answer: Mapping[str, Any], measured: Mapping[str, Any]) -> Dict[str, Any]:
    """How the end of a host's part is recorded: the event, its facts, and the phase whose seconds it ends."""
    if not way["restore"]:
        return {"event": "left", "facts": {"started": answer["started"]}, "phase": ""}
    if record["state"] == "warm":
        return {"event": "done", "facts": {}, "phase": ""}
    return {"event": "ended", "facts": dict(measured), "phase": "restore"}


def taken_out_again(ways: Sequence[Mapping[str, Any]], seen: Seen) -> List[str]:
    """A remark on those that had put a host back into traffic, which is taken out again."""
    who = _adapters.in_traffic(ways, seen)
    return ["%s had put it back into traffic%s: it was taken out again." % (who, _adapters.forgets(ways, seen))] if who else []


def closing(record: Mapping[str, Any], ways: Sequence[Mapping[str, Any]], seen: Seen) -> str:
    """A remark at the end of a run on a host that is to be out of traffic and is not."""
    who = _adapters.in_traffic(ways, seen) if record.get("out") else ""
    return "Should be out of traffic, but %s sends it traffic again%s." % (who, _adapters.forgets(ways, seen)) if who else ""
