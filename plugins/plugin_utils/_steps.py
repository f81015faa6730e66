# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a rolling restart decide: whether they go on, what they say, and how they are recorded."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _states

MARGIN = 600  # seconds for what has no limit of its own: the snapshot, the checkpoint, Ansible itself

Seen = Mapping[str, Sequence[Mapping[str, Any]]]


def entry_point(host: str, primary: str, of_the_primary: str, abort: bool) -> str:
    """The entry point of the role for a host; ``of_the_primary`` is cache_restart_primary."""
    return "switchover" if host == primary and of_the_primary == "switchover" and not abort else "main"


def silent(
    timeout: Any, replay_timeout: Any, drain_timeout: Any, pause_timeout: Any, wait_timeout: Any, gate: str, attempts: Any
) -> int:
    """Seconds without a renewal of the lease: the longest that one host takes between two."""
    restores = int(attempts) if gate == "wait" else 1
    return MARGIN + int(timeout) + 2 * int(replay_timeout) + int(drain_timeout) + int(pause_timeout) + int(wait_timeout) * restores


def paused_beyond(found: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> List[str]:
    """The hosts beyond those of this run whose clients an earlier run has paused; ``found`` are the answers of all."""
    return [host for host, answer in found.items() if host not in hosts and (answer.get("kept") or {}).get("paused")]


def cannot_begin(answer: Mapping[str, Any], ways: Sequence[Mapping[str, Any]], host: str, waived: Sequence[str]) -> str:
    """Why the rolling restart does not continue on this host, by its last ``answer``."""
    return str(answer.get("problem") or ("" if host in waived else _states.forgotten(answer["kept"], ways, host)))


def gone_on_with(record: Mapping[str, Any], *remarks: str) -> Dict[str, Any]:
    """The record with which this run goes on, and its remarks that are not empty."""
    return dict(record, remarks=[*record.get("remarks", []), *filter(None, remarks)])


def waived_remark(record: Mapping[str, Any], host: str, waived: Sequence[str]) -> str:
    """What the table says of a pending restore that was waived, the last of the record's remarks; empty if none was."""
    remarks = record.get("remarks") or [""]
    return str(remarks[-1]) if host in waived else ""


def thin(snapshot: Mapping[str, Any]) -> List[str]:
    """The remark on a snapshot that has far less than those before."""
    if not snapshot["thin"]:
        return []
    return ["The snapshot before the restart is thin: only %s were cached." % bytes_to_human(snapshot["wanted"] * 8192)]


def not_restarted(result: Mapping[str, Any], before: Any, host: str, seconds: Any) -> str:
    """Why this is not another process than the one started at ``before``; empty if it is. ``result`` is what it has answered last."""
    rows = result.get("query_result")
    row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], Mapping) else {}
    if _whole(row.get("started", before)) != _whole(before):
        return ""
    if result.get("rowcount") == 1:
        return "PostgreSQL on %s was not restarted: the same process still runs. Check its log." % host
    return "PostgreSQL on %s does not accept connections %s s after its restart: %s. Check its log." % (
        host, seconds, printable(" ".join(str(result.get("msg") or "").split())))


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def replayed(result: Mapping[str, Any]) -> bool:
    """Whether a standby has replayed what the primary had written, by the ``result`` of asking it."""
    return result.get("rowcount") == 1 and bool(result["query_result"][0]["caught_up"])


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


def recorded_as(
    record: Mapping[str, Any], event: str, facts: Mapping[str, Any], remarks: Sequence[str], phase: str, seconds: float
) -> Dict[str, Any]:
    """The record after an event, with ``remarks`` added; it ends a ``phase`` that took ``seconds``, or none."""
    taken = {phase: round(seconds, 1)} if phase else {}
    return _states.note(record, event, facts, remarks=[*record.get("remarks", []), *remarks], seconds=taken)


def taken_out_again(record: Mapping[str, Any], ways: Sequence[Mapping[str, Any]], seen: Seen) -> Dict[str, Any]:
    """The record of a host that is taken out of traffic again, with a remark on those that had put it back."""
    who = _adapters.in_traffic(ways, seen)
    return _remarked(record, "%s had put it back into traffic%s: it was taken out again." % (who, _adapters.forgets(ways, seen)) if who else "")


def closing(record: Mapping[str, Any], ways: Sequence[Mapping[str, Any]], seen: Seen) -> Dict[str, Any]:
    """The record of a host at the end of a run, with a remark if it is to be out of traffic and is not."""
    who = _adapters.in_traffic(ways, seen) if record.get("out") else ""
    return _remarked(record, "Should be out of traffic, but %s sends it traffic again%s." % (who, _adapters.forgets(ways, seen)) if who else "")


def _remarked(record: Mapping[str, Any], remark: str) -> Dict[str, Any]:
    return dict(record, remarks=[*record.get("remarks", []), remark]) if remark else dict(record)
