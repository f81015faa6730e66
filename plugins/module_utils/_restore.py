# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start or find a restore job, wait for it, and judge what is resident afterwards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

from ansible_collections.pgfleet.cache.plugins.module_utils import _residency, _snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._residency import Measurement
from ansible_collections.pgfleet.cache.plugins.module_utils._units import (
    BLOCK_BYTES,
    human_blocks,
    human_bytes,
    human_percent,
    human_seconds,
    percent,
)

# waiting: another cluster of this machine restores just now
RUNNING = ("starting", "waiting", "running")
WAIT_TIMEOUT = 3600
STOPPING = 5  # seconds that a job may take to notice its own time limit
NAMED = 5  # relations named in a message

# A running job counts what it loads at once, and everything else when a segment is done: what it loads of the segment
# at hand is the difference to the segments' own counts.
_JOBS = """
SELECT job, snapshot, generation, state, planned, loaded, extra, over_budget, failed, budget_bytes, message,
       extract(epoch FROM coalesce(finished_at, clock_timestamp()) - started_at)::float8 AS seconds,
       resident + over_budget + gone + failed
         + CASE WHEN state = 'running'
                THEN greatest(0, loaded - (SELECT coalesce(sum(s.loaded), 0) FROM residency_job_segments(job) AS s))
                ELSE 0 END::bigint AS settled
FROM residency_jobs
"""
_START = "SELECT residency_restore_start(%s, %s::jsonb) AS job"


@dataclass(frozen=True)
class Options:
    name: Optional[str]
    job: Optional[int]
    min_residency: float
    max_gone: float
    budget: Optional[int]
    rate: Optional[int]
    wait: bool
    wait_timeout: int
    wait_sleep: float


def check_options(options: Options) -> None:
    for option in ("min_residency", "max_gone"):
        value = getattr(options, option)
        if not 0 <= value <= 100:
            raise ResidencyError("%s is %g: it is a percent, from 0 to 100." % (option, value))
    for option in ("budget", "rate", "wait_timeout", "wait_sleep", "job"):
        value = getattr(options, option)
        if value is not None and value <= 0:
            raise ResidencyError("%s is %g: it has to be more than 0." % (option, value))
    if options.name is not None:
        _snapshot.check_name(options.name, generation_allowed=True)


def restore(
    session: Session, options: Options, check_mode: bool, connect_to: Callable[[str], Session]
) -> Dict[str, Any]:
    """The whole of the module residency_restore, from a session with the extension attached."""
    snapshot, job = _find(session, options)
    name = _snapshot.full_name(snapshot)

    started = False
    if job is None:
        before = _residency.measure(session, name)
        if check_mode:
            _record_start(session, name, options)
            return _plan(session, snapshot, before, options, connect_to)
        if before.total.missing == 0:
            return _judge(session, snapshot, None, before, options, connect_to)
        job = _start(session, name, options)
        started = True

    if options.wait and not check_mode:
        job = _wait(session, job, options, options.wait_timeout + (STOPPING if started else 0))
        if job["state"] in RUNNING:
            result = _progress(session, snapshot, job, started)
            raise ResidencyError(
                "Not finished within wait_timeout of %s: %s" % (human_seconds(options.wait_timeout), result["msg"]), result
            )
    if job["state"] in RUNNING:
        return _progress(session, snapshot, job, started)
    return _judge(session, snapshot, job, _residency.measure(session, name, job["job"]), options, connect_to)


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails before anything is known."""
    return {
        "changed": False,
        "snapshot": None,
        "job": None,
        "state": None,
        "reached": None,
        "progress": None,
        "wanted": None,
        "resident": None,
        "missing": None,
        "loaded": 0,
        "extra": 0,
        "over_budget": 0,
        "gone": None,
        "failed_blocks": 0,
        "residency": None,
        "gone_percent": None,
        "budget_bytes": None,
        "seconds": 0.0,
        "bytes_per_second": 0,
        "relations": [],
        "segments": [],
        "queries": [],
    }


def _find(session: Session, options: Options) -> Tuple[Row, Optional[Row]]:
    """The snapshot, and the job that was named or that restores this snapshot just now."""
    if options.job is not None:
        job = _job(session, options.job)
        if options.name not in (None, job["snapshot"], _job_snapshot(job)):
            raise ResidencyError("Job %d restores %s, not %s." % (options.job, _job_snapshot(job), options.name))
        return _snapshot.find(session, _job_snapshot(job)), job
    snapshot = _snapshot.find(session, cast(str, options.name))  # the module requires a name or a job
    running = session.row(_JOBS + " WHERE state = ANY (%s)", (list(RUNNING),))
    if running is not None and _job_snapshot(running) != _snapshot.full_name(snapshot):
        raise ResidencyError(
            "Job %d restores %s just now, and a cluster runs one job at a time: wait for it, or end it with"
            " SELECT residency_cancel(%d)." % (running["job"], _job_snapshot(running), running["job"])
        )
    return snapshot, running


def _job(session: Session, number: int) -> Row:
    job = session.row(_JOBS + " WHERE job = %s", (number,))
    if job is None:
        known = session.rows("SELECT job FROM residency_jobs ORDER BY job")
        raise ResidencyError(
            "There is no job %d here; %s."
            % (number, "there is " + ", ".join(str(row["job"]) for row in known) if known else "there is none at all")
        )
    return job


def _job_snapshot(job: Row) -> str:
    return "%s@%d" % (job["snapshot"], job["generation"])


def _start_options(options: Options) -> str:
    given = {"budget": options.budget, "rate": options.rate, "time_limit": options.wait_timeout}
    return json.dumps({key: value for key, value in given.items() if value is not None}, sort_keys=True)


def _record_start(session: Session, name: str, options: Options) -> None:
    session.record(_START, (name, _start_options(options)))


def _start(session: Session, name: str, options: Options) -> Row:
    number: int = session.change(_START, (name, _start_options(options)))[0]["job"]
    return _job(session, number)


def _wait(session: Session, job: Row, options: Options, timeout: float) -> Row:
    deadline = time.monotonic() + timeout
    while job["state"] in RUNNING:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(options.wait_sleep, left))
        job = _job(session, job["job"])
    return job


def _result(session: Session, snapshot: Row, job: Optional[Row], measured: Optional[Measurement]) -> Dict[str, Any]:
    result = empty_result()
    result.update(snapshot=_snapshot.full_name(snapshot), wanted=snapshot["wanted"], queries=session.queries)
    if job is not None:
        result.update(
            job=job["job"],
            state=job["state"],
            progress=percent(min(job["settled"], job["planned"]), job["planned"]),
            loaded=job["loaded"],
            extra=job["extra"],
            over_budget=job["over_budget"],
            failed_blocks=job["failed"],
            budget_bytes=job["budget_bytes"],
            seconds=round(job["seconds"], 3),
            bytes_per_second=int(job["loaded"] * BLOCK_BYTES / job["seconds"]) if job["seconds"] > 0 else 0,
            changed=job["loaded"] > 0,
        )
    if measured is not None:
        total = measured.total
        result.update(
            resident=total.resident,
            missing=total.missing,
            gone=total.gone,
            residency=total.residency,
            gone_percent=total.gone_percent,
        )
    return result


def _with_rows(
    result: Dict[str, Any], session: Session, measured: Measurement, connect_to: Callable[[str], Session]
) -> Dict[str, Any]:
    names = _residency.name_places(_residency.listed_places(measured), session, connect_to)
    result.update(_residency.describe(measured, names))
    return result


def _progress(session: Session, snapshot: Row, job: Row, started: bool) -> Dict[str, Any]:
    result = _result(session, snapshot, job, None)
    if started:
        result["changed"] = True
    result["msg"] = "Job %d %s %s: %s of %s done, %s loaded in %s." % (
        job["job"],
        "waits for another restore on this machine before" if job["state"] == "waiting" else "restores",
        _snapshot.full_name(snapshot),
        human_percent(result["progress"]),
        human_blocks(snapshot["wanted"]),
        human_blocks(job["loaded"]),
        human_seconds(job["seconds"]),
    )
    return result


def _plan(
    session: Session, snapshot: Row, measured: Measurement, options: Options, connect_to: Callable[[str], Session]
) -> Dict[str, Any]:
    """Check mode: what a job would load, and what of it has room."""
    result = _result(session, snapshot, None, measured)
    budget: int = session.only_row("SELECT budget_bytes FROM residency_budget()")["budget_bytes"]
    if options.budget is not None:
        budget = min(budget, options.budget)
    missing = measured.total.missing
    fits = max(0, budget) // BLOCK_BYTES
    result.update(changed=missing > 0 and fits > 0, budget_bytes=budget, over_budget=max(0, missing - fits))
    if missing:
        result["msg"] = "Would load %s of %s: %s is resident, the memory budget is %s%s." % (
            human_blocks(missing),
            human_blocks(snapshot["wanted"]),
            human_percent(result["residency"]),
            human_bytes(budget),
            ", %s would not fit" % human_blocks(result["over_budget"]) if result["over_budget"] else "",
        )
    else:
        result["msg"] = _resident_already(snapshot, measured)
    return _with_rows(result, session, measured, connect_to)


def _judge(
    session: Session,
    snapshot: Row,
    job: Optional[Row],
    measured: Measurement,
    options: Options,
    connect_to: Callable[[str], Session],
) -> Dict[str, Any]:
    """The gate, by what is counted after the job and not by what the job says of itself."""
    result = _with_rows(_result(session, snapshot, job, measured), session, measured, connect_to)
    if job is None:
        result.update(state="done", progress=100.0)
    shortcomings = _shortcomings(result, options)
    result["reached"] = not shortcomings
    if shortcomings:
        raise ResidencyError(_failure(result, shortcomings, job), result)
    result["msg"] = _success(snapshot, job, measured, result)
    return result


def _shortcomings(result: Dict[str, Any], options: Options) -> List[str]:
    found = []
    if result["state"] == "failed":
        found.append("job %d failed" % result["job"])
    if result["residency"] < options.min_residency:
        found.append(
            "%s of what still exists is resident, less than min_residency of %s (%s missing)"
            % (
                human_percent(result["residency"]),
                human_percent(options.min_residency),
                human_blocks(result["missing"]),
            )
        )
    if result["gone_percent"] > options.max_gone:
        found.append(
            "%s of the snapshot is gone, more than max_gone of %s: dropped, shrunk or rewritten"
            % (human_percent(result["gone_percent"]), human_percent(options.max_gone))
        )
    return found


def _failure(result: Dict[str, Any], shortcomings: List[str], job: Optional[Row]) -> str:
    sentences = ["%s: %s." % (result["snapshot"], "; ".join(shortcomings))]
    sentences += _remarks(result, job)
    coldest = [
        "%s (%s of %s resident)" % (_label(row), human_blocks(row["resident"]), human_blocks(row["wanted"]))
        for row in result["relations"][:NAMED]
        if row["resident"] < row["wanted"]
    ]
    if coldest:
        sentences.append("Coldest: %s." % ", ".join(coldest))
    return " ".join(sentences)


def _success(snapshot: Row, job: Optional[Row], measured: Measurement, result: Dict[str, Any]) -> str:
    if job is None:
        return _resident_already(snapshot, measured)
    sentences = [
        "%s: %s of %s is resident; loaded %s in %s, %s/s."
        % (
            result["snapshot"],
            human_percent(result["residency"]),
            human_blocks(measured.total.wanted - measured.total.gone),
            human_blocks(result["loaded"]),
            human_seconds(result["seconds"]),
            human_bytes(result["bytes_per_second"]),
        )
    ]
    return " ".join(sentences + _remarks(result, job))


def _remarks(result: Dict[str, Any], job: Optional[Row]) -> List[str]:
    remarks = []
    if result["over_budget"]:
        remarks.append(
            "%s did not fit the memory budget of %s."
            % (human_blocks(result["over_budget"]), human_bytes(result["budget_bytes"]))
        )
    if result["failed_blocks"]:
        remarks.append("%s could not be read." % human_blocks(result["failed_blocks"]))
    if job is not None and job["message"]:
        remarks.append("Job %d, %s: %s." % (job["job"], job["state"], job["message"].rstrip(".")))
    return remarks


def _resident_already(snapshot: Row, measured: Measurement) -> str:
    return "%s: all %s that still exists is resident already." % (
        _snapshot.full_name(snapshot),
        human_blocks(measured.total.wanted - measured.total.gone),
    )


def _label(row: Dict[str, Any]) -> str:
    where = row["database"] or ("all databases" if row["database_oid"] == _residency.SHARED else "a dropped database")
    if row["relation"] is None:
        return "relfilenumber %d in %s" % (row["relfilenumber"], where)
    owner = " of %s" % row["belongs_to"] if row["belongs_to"] else ""
    return "%s %s%s in %s" % (row["kind"], row["relation"], owner, where)
