# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a host as a state machine: what is begun there, and which restore is pending. docs/restarts.md has the diagram.

An event is written down before what it is about is done (going_out, pausing, stopping, going_in), and another one when it is done. So a record
that nobody goes on with says what may have happened. The pending restore is the host's: what was resident before its restart has to be so again
before it serves, whichever rolling restart, cold test, play or operator comes next; it ends when the gate is passed and the host is in traffic, or is
waived by name.
"""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

Record = Dict[str, Any]

# what left a restore pending: PLAY is a user's own play with the handler of cache_warmup
ROLLING_RESTART, COLD_TEST, PLAY = "rolling_restart", "cold_test", "play"
# planned: nothing has happened. saved: there is a snapshot. restarting: it may be down. restarted: another process runs. warm: the gate is
# passed. done: and it is in traffic.
STATES = ("planned", "saved", "restarting", "restarted", "warm", "done")
INTENTS = ("", "going out", "stopping", "going in")

_TEXT, _FLAG, _NUMBER, _LIST, _OBJECT = (str,), (bool,), (int, float), (list,), (dict,)
_FORM: Dict[str, Tuple[type, ...]] = {
    "rolling_restart": _TEXT, "system_identifier": _TEXT, "what": _TEXT, "snapshot": _TEXT, "state": _TEXT, "intent": _TEXT, "finished": _FLAG, "out": _FLAG,
    "traffic": _LIST, "paused": _LIST,
    "before": (int,), "after": (int,), "pending": _OBJECT, "server": _OBJECT, "residency": (int, float, type(None)), "seconds": _OBJECT, "remarks": _LIST,
    "at": (int, float),
}
_PENDING: Dict[str, Tuple[type, ...]] = {
    "for": _TEXT, "snapshot": _TEXT, "digest": _TEXT, "wanted": (int,), "started": (int,), "until": (int,), "system_identifier": _TEXT,
    "standby": _FLAG, "by": _TEXT, "since": _TEXT,
}
_ALSO = ("until",)  # of a pending restore, what need not be there


def fault(record: Any) -> str:
    """The first fault of a record, as a part of a sentence; empty if there is none."""
    if not isinstance(record, Mapping):
        return "it is not a JSON object"
    if record.get("debt"):
        return "an earlier version of the collection has written it, and has to finish what it began"
    for name, value in record.items():
        if name in _FORM and not _is(value, _FORM[name]):
            return "%s is '%s'" % (name, printable(value, 60))
    for name, choices in (("state", STATES), ("intent", INTENTS)):
        if record.get(name, choices[0]) not in choices:
            return "%s is '%s'" % (name, printable(record[name], 60))
    pending = record.get("pending") or {}
    for name, kinds in _PENDING.items():
        if pending and not _is(pending.get(name), kinds) and not (name in _ALSO and name not in pending):
            return "%s of its pending restore is '%s'" % (name, printable(pending.get(name), 60))
    if pending and pending["for"] not in (ROLLING_RESTART, COLD_TEST, PLAY):
        return "for of its pending restore is '%s'" % printable(pending["for"], 60)
    server = dict({"version_num": 0, "cluster_name": "", "unit": "", "standby": False}, **(record.get("server") or {}))
    if not _is(server["version_num"], (int,)) or not isinstance(server["cluster_name"], str) or not isinstance(server["unit"], str) \
            or not isinstance(server["standby"], bool):
        return "server is '%s'" % printable(server, 60)
    if not all(isinstance(place, Mapping) for name in ("traffic", "paused") for place in record.get(name) or []):
        return "where it is out of traffic is not a list of places"
    return ""


def _is(value: Any, kinds: Tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and (not isinstance(value, (int, float)) or is_bounded(value))


def is_bounded(value: float) -> bool:
    """Whether a host's number can be a count, a position or a time; others could overflow later."""
    return math.isfinite(value) and 0 <= value < 1 << 63 if isinstance(value, float) else 0 <= value < 1 << 63


def known(record: Mapping[str, Any]) -> Record:
    """A faultless record, reduced to the values that are used."""
    found = {name: value for name, value in record.items() if name in _FORM}
    if "server" in found:
        found["server"] = {name: found["server"][name] for name in ("version_num", "cluster_name", "unit", "standby") if name in found["server"]}
    if found.get("pending"):
        found["pending"] = {name: value for name, value in found["pending"].items() if name in _PENDING}
    return found


# --- what a record means ---


def is_pending(record: Mapping[str, Any], started: Optional[int]) -> bool:
    """Whether what was resident has yet to be restored, on the server that has ``started`` then (microseconds since 1970; None: it is down).

    With the process of before, nothing was lost: a rolling restart evicts nothing else. A cold test does. A play may have restarted nothing: a process
    that has started later than ``until`` is another's doing.
    """
    pending = record.get("pending") or {}
    if not pending or pending["for"] == COLD_TEST:
        return bool(pending)
    return bool(pending["started"] != started and (started is None or started <= pending.get("until", started)))


def open_ends(record: Mapping[str, Any], started: Optional[int]) -> bool:
    """Whether a run has to continue on this host: it is out of traffic, paused, perhaps down, or not as warm as before."""
    return bool(record.get("out") or record.get("paused") or record.get("intent") or record.get("state") == "restarting" or is_pending(record, started))


def is_stopped(record: Mapping[str, Any]) -> bool:
    """Whether any run was about to stop it and has not seen it since: if it does not answer, that is why."""
    return record.get("intent") == "stopping"


def is_restarted(record: Mapping[str, Any], started: int, rolling_restart: str) -> bool:
    """Whether this rolling restart, or anything else since it was about to stop the server, has restarted it."""
    return record.get("rolling_restart") == rolling_restart and record.get("state") in STATES[STATES.index("restarting"):] and record.get("before") != started


def identifier(record: Mapping[str, Any]) -> str:
    """The system identifier of this host's cluster, as far as the record has it."""
    return str(record.get("system_identifier") or (record.get("pending") or {}).get("system_identifier") or "")


def way(record: Mapping[str, Any], started: int, rolling_restart: str, abort: bool) -> Dict[str, bool]:
    """The steps for this host: ``save``, ``restart``, ``restore``. A host with a pending restore gets no new snapshot."""
    pending = is_pending(record, started)
    again = is_restarted(record, started, rolling_restart)
    return {
        "save": not abort and not pending and not again,
        "restart": not abort and not again,
        "restore": pending or not abort,
        "again": again or (abort and pending),
    }


# --- what happens to it ---


def begin(record: Record, rolling_restart: str, what: str = "", system_identifier: str = "", waive: bool = False, by: str = "") -> None:
    """Another rolling restart takes over what is out, paused and pending, and nothing else. A host that does not answer stays in its cluster."""
    if record.get("rolling_restart") != rolling_restart:
        kept = {name: record[name] for name in ("intent", "out", "traffic", "paused", "pending", "server", "system_identifier") if name in record}
        record.clear()
        record.update({"rolling_restart": rolling_restart, "state": "planned", "finished": False, "seconds": {}, "out": False, "pending": {}}, **kept)
    record.update(what=what or str(record.get("what") or "postgresql"))
    if system_identifier:
        record.update(system_identifier=system_identifier)
    if record.get("state") != "done":
        record.update(remarks=[])
    if waive:  # here it was not yet, as the host is not restarted or does not answer
        waived(record, by)


def save(record: Record, server: Optional[Mapping[str, Any]] = None, **pending: Any) -> None:
    """Before anything is changed. ``wanted`` is in 8 KiB blocks, ``started`` in microseconds since 1970; ``server`` as with stopping."""
    if server:
        record.update(server=dict(server))
    if pending.get("for", ROLLING_RESTART) == ROLLING_RESTART:  # others are no step of a rolling restart
        record.update(state="saved", snapshot=pending["snapshot"])
    record.update(pending=dict(pending, **{"for": pending.get("for", ROLLING_RESTART)}))


def going_out(record: Record, traffic: Sequence[Mapping[str, Any]]) -> None:
    """Without any place it is in traffic for all that is known. Where an earlier run has taken it out, it still has to be put back."""
    places = [dict(one) for one in traffic]
    if record.get("out"):
        places += [one for one in record.get("traffic", []) if one not in places]
    record.update(intent="going out", out=bool(places), traffic=places)


def out(record: Record) -> None:
    record.update(intent="")


def pausing(record: Record, traffic: Sequence[Mapping[str, Any]]) -> None:
    """Immediately before the stop, which has an intent of its own."""
    record.update(paused=[dict(one) for one in traffic])


def stopping(record: Record, before: int, server: Mapping[str, Any]) -> None:
    """``server`` has what is needed to start it when it does not answer."""
    record.update(intent="stopping", state="restarting", before=before, server=dict(server))


def restarted(record: Record, after: int) -> None:
    """By any means: the pending restore shows that the process is a new one."""
    record.update(state="restarted", after=after, intent="")


def resumed(record: Record) -> None:
    record.update(paused=[])


def going_in(record: Record) -> None:
    record.update(intent="going in")


def into(record: Record, started: int) -> None:
    """It is in traffic. A standby that is not warm does not get here; the process of before was never cold.

    ``started`` may be of a moment before the restart: what is recorded as restarted is cold, whatever it says.
    """
    record.update(out=False, intent="", traffic=[])
    if record.get("state") == "warm" or (record.get("state") != "restarted" and not is_pending(record, started)):
        record.update(pending={})


def warm(record: Record, residency: Optional[float]) -> None:
    """The gate is passed. Nothing is pending any more for what is in traffic already, a primary."""
    record.update(state="warm", residency=residency)
    if not record.get("out"):
        record.update(pending={})


def done(record: Record) -> None:
    record.update(state="done", intent="")


def ended(record: Record, residency: Optional[float]) -> None:
    """Warm and done at once: nothing keeps it from its clients."""
    warm(record, residency)
    done(record)


def left(record: Record, started: int) -> None:
    """Nothing is to be gone on with: it is as it was, and what may be pending later is not of this rolling restart."""
    record.update(state="planned", intent="", pending=record.get("pending") or {} if is_pending(record, started) else {})


def waived(record: Record, by: str) -> None:
    pending = record.get("pending") or {}
    if pending:
        remark = "%s waived the restore that was pending since %s: %s." % (by, pending["since"], pending["snapshot"])
        record.update(pending={}, remarks=[*record.get("remarks", []), remark])


def put_back(record: Record, snapshot: str = "") -> None:
    """By a cold test, as far as it got, or by the play that has made the restore pending, when its gate is passed.

    The handler of a play names its ``snapshot``: a restore that is pending for another reason remains.
    """
    pending = record.get("pending") or {}
    if snapshot and (pending.get("for") != PLAY or pending["snapshot"] != snapshot):
        return
    if pending.get("for") != ROLLING_RESTART:
        record.update(pending={})


def finished(record: Record) -> None:
    record.update(finished=True)


def go_on(record: Record) -> None:
    """A run begins with this host's part: its seconds count from now on."""


EVENTS: Dict[str, Callable[..., None]] = {
    "begin": begin, "save": save, "going_out": going_out, "out": out, "pausing": pausing, "stopping": stopping, "restarted": restarted,
    "resumed": resumed, "going_in": going_in, "in": into, "warm": warm, "done": done, "ended": ended, "left": left, "waived": waived, "put_back": put_back,
    "finished": finished, "go_on": go_on,
}


def note(record: Mapping[str, Any], event: str, facts: Optional[Mapping[str, Any]] = None, remarks: Sequence[str] = (), phase: str = "") -> Record:
    """The record after an event, with ``remarks`` added. The event ends a ``phase``, or several, whose seconds count from the previous event."""
    found, now = dict(record), time.time()
    EVENTS[event](found, **(facts or {}))
    seconds = dict(found.get("seconds") or {})
    for one in phase.split():
        seconds[one] = round(max(0.0, now - float(record.get("at") or now)), 1)
    found.update(at=round(now, 3), seconds=seconds, remarks=[*(found.get("remarks") or []), *filter(None, remarks)])
    return found
