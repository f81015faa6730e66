# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of one host, and what to do next there: both caches, the last snapshot and restore, and what an unfinished run left."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import Any, Callable, Dict, List, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _caches, _residency_info, _residency_snapshot, _restart_info, _states
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session, attach_extension
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

RESUMED = 86400  # seconds in which a rolling restart is continued, the default of cache_restart_max_age

_SERVER = """
SELECT pg_is_in_recovery() AS in_recovery, system_identifier::text AS system_identifier,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started
FROM pg_control_system()"""
_RESTORE = """
SELECT snapshot || '@' || generation AS snapshot, state,
       CASE WHEN state <> 'holding' THEN greatest(0, extract(epoch FROM statement_timestamp() - finished_at)) END::float8 AS ended
FROM @extschema@.residency_jobs ORDER BY job DESC LIMIT 1"""

_STOPPED = "PostgreSQL's worker of pg_residency does not run: see its log, raise max_worker_processes if no worker is left, and restart PostgreSQL."
_WORKER = "SELECT state, failures, message FROM @extschema@.residency_worker"


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "standby": None, "total": None, "snapshot": None, "restore": None, "lease": None, "left": [], "to_do": "", "remarks": [],
    }


def status(log_in: Callable[[], Session], directory: str, name: str) -> Dict[str, Any]:
    """A server that does not run is a state; one that cannot be queried is an error, which carries what is known."""
    result, server, missing = empty_result(), None, ""
    error: Optional[ResidencyError] = None
    try:
        with closing(log_in()) as session:
            server = session.only_row(_SERVER)
            result["standby"] = server["in_recovery"]
            missing = _measure(session, result)
    except ResidencyError as caught:
        error = caught

    def look() -> Row:
        if server is None:
            raise error or ResidencyError("")
        return server

    found = _restart_info.answer(Records(directory).read(name), look, name, False)
    kept, started = found["kept"], server["started"] if server else None
    result.update(lease=found["lease"], left=_left(name, kept, started))
    if error and not isinstance(error, NotRunningError):
        raise ResidencyError(str(error), result)
    if "problem" in found and (server or found["unread"]):  # of the record
        result["to_do"] = found["problem"]
    else:
        down = str(error) if error and not _starts(kept) else ""
        result["to_do"] = " ".join(filter(None, [down, _unfinished(name, kept, result["left"])])) or missing
    result["msg"] = result["to_do"] or "Nothing is to be done on %s." % name
    return result


def _measure(session: Session, result: Dict[str, Any]) -> str:
    """Add what the server returns; return what is missing there and how to get it."""
    try:
        attach_extension(session)
    except ResidencyError as error:
        return str(error)
    result["total"] = _caches.total(_caches.by_relation(session, limit=0)[0])
    restores = session.rows(_RESTORE)
    result["restore"] = restores[0] if restores else None
    snapshots = [one for one in _residency_snapshot.list_all(session) if not one["problem"]]
    if not snapshots:
        return _worker(session) or "Run pgfleet.cache.snapshot when the caches are warm: there is no snapshot."
    last = max(snapshots, key=lambda one: one["taken_at"])
    label = _residency_snapshot.full_name(last)
    result["snapshot"] = {"name": label, "age": last["age"], "thin": last["thin"], "residency": _residency_info.amount(session, label).residency}
    if last["age"] > _residency_snapshot.DAY:
        result["remarks"].append("%s is older than a day." % label)
    if last["thin"]:
        result["remarks"].append("%s is thin: it holds less than half of the fullest generation." % label)
    return _worker(session)


def _worker(session: Session) -> str:
    """What keeps a server that preloads the library from saving by itself; empty if nothing does."""
    worker = session.only_row(_WORKER)
    if worker["failures"]:
        return "Correct what keeps PostgreSQL from saving its caches: %s (%d times in a row)." % (printable(worker["message"]), worker["failures"])
    return _STOPPED if worker["state"] == "stopped" else ""


def _starts(kept: Mapping[str, Any]) -> bool:
    """Whether the unfinished run may have stopped the server, and starts it when it is repeated."""
    return _states.is_stopped(kept) or (kept.get("pending") or {}).get("for") == _states.COLD_TEST


def _left(name: str, kept: Mapping[str, Any], started: Optional[int]) -> List[str]:
    """What a run left unfinished, each a clause. ``started`` is the process that runs, None if the server is down."""
    left, intent, pending = [], kept.get("intent") or "", kept.get("pending") or {}
    if started is None and _starts(kept):
        left.append("PostgreSQL is stopped")
    elif _states.is_stopped(kept):
        left.append("the restart of %s is not recorded" % name)
    if kept.get("out") or intent.startswith("going"):
        left.append("%s %s out of traffic" % (name, "may be" if intent.startswith("going") else "is"))
    if kept.get("paused"):
        left.append("its clients may be paused")
    if _states.is_pending(kept, started):
        left.append("%s is not restored (pending since %s)" % (printable(pending["snapshot"], 80), printable(pending["since"], 30)))
    begun = str(kept.get("rolling_restart"))
    resumed = re.fullmatch("[0-9]{1,12}", begun) and time.time() - int(begun) < RESUMED and not kept.get("finished")
    if not left and resumed and kept.get("state") in ("planned", "saved"):
        left.append("%s is not restarted yet" % name)
    return left


def _unfinished(name: str, kept: Mapping[str, Any], left: List[str]) -> str:
    """Which run has to be repeated, and why; empty if none."""
    pending = kept.get("pending") or {}
    if not left:
        return ""
    if pending.get("for") == _states.PLAY and not (kept.get("out") or kept.get("paused") or kept.get("intent")):
        return "Run the play that restarted %s again: %s. Or waive that with -e pgfleet_waive=%s." % (name, " and ".join(left), name)
    cold_test = "cold_test -e target=%s" % name if pending.get("for") == _states.COLD_TEST else "rolling_restart"
    return "Run pgfleet.cache.%s again: it was not finished, and %s." % (cold_test, " and ".join(left))
