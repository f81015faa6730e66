# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start or find a restore job, wait for it, and judge what is resident afterwards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, cast

from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _deadline, _hold, _remarks, _residency, _residency_snapshot, _selection
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session, sqlstate
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Patterns
from ansible_collections.pgfleet.cache.plugins.module_utils._remarks import Budget, Facts, Lost, Wait
from ansible_collections.pgfleet.cache.plugins.module_utils._selection import Selection, Wish
from ansible_collections.pgfleet.cache.plugins.module_utils._units import (
    BLOCK_BYTES,
    human_blocks,
    human_bytes,
    human_percent,
    human_seconds,
    parse_bytes,
    parse_seconds,
    percent,
)

# waiting: another cluster of this host restores just now
RUNNING = ("starting", "waiting", "running")
WAIT_TIMEOUT = 3600
STOPPING = 5  # seconds that a job may take to notice its own time limit
DEADLINE_SLACK = 5  # seconds by which a job that was started for a deadline may seem to miss it
NOT_FINISHED = "Not finished within wait_timeout of %s: %s"
WAITS = "waiting for another restore on this host"
BEGINNING = 1  # seconds that a job may take to begin before it is left alone
LOST_JOB = "Job %d was restoring %s: see its progress in the view residency_jobs."
LONGEST_WAIT = 2147483647  # seconds
# Both ends are allowed. The variables of the role cache_warmup have these ranges and forms too.
PERCENTS: Dict[str, Tuple[int, int]] = {"min_residency": (0, 100), "max_gone": (0, 100), "max_io_pressure": (1, 100)}
MUCH = 0.05  # of what is loaded: what is read beyond that is a remark
RANGES: Dict[str, Tuple[int, int]] = dict(PERCENTS, wait_timeout=(1, LONGEST_WAIT), hold_interval=_hold.INTERVAL)
FORMS: Dict[str, Callable[[str, str], float]] = {"budget": parse_bytes, "rate": parse_bytes, "max_age": parse_seconds}
OBJECT_IN_USE = "55006"  # SQLSTATE
NAMED = 5  # relations named in a message
TELLING = 2048  # blocks that a job must have loaded to tell a rate: of fewer, starting and small files are most of its time

# columns of a job that have the same name in the result
_SAME = (
    "job", "state", "wanted", "loaded", "extra", "buffers_wanted", "buffers_resident", "buffers_loaded", "over_budget", "budget_bytes", "io_class",
    "scheduler", "window_bytes",
)
_JOBS = """
SELECT job, snapshot, generation, state, wanted, settled, loaded, extra, over_budget, failed, budget_bytes, rate_bytes, time_limit,
       buffers_wanted, buffers_resident, buffers_loaded, message, io_class, scheduler, window_bytes,
       extract(epoch FROM started_at)::float8 AS started,
       coalesce(extract(epoch FROM coalesce(held_since, finished_at, clock_timestamp()) - started_at), 0)::float8 AS seconds,
       coalesce(extract(epoch FROM clock_timestamp() - started_at), 0)::float8 AS elapsed,
       extract(epoch FROM hold_until)::float8 AS hold_until, extract(epoch FROM held_since)::float8 AS held_since,
       reclaimed, brought_back, reclaim_rate, mapped_bytes, unattended
FROM @extschema@.residency_jobs
"""
_BUDGET = """
SELECT memory_available_bytes AS available, cgroup_headroom_bytes AS cgroup_headroom, dirty_bytes AS dirty, reserve_bytes AS reserve,
       hot_bytes AS hot, restored_elsewhere_bytes AS restored_elsewhere
FROM @extschema@.residency_budget()
"""
_START = "SELECT @extschema@.residency_restore_start(%s::text, %s::jsonb) AS job"
# of the newest ones; a job with a rate of its own tells that rate, not the host's
_SPEED = """
SELECT array_agg(job ORDER BY job) AS jobs, sum(loaded)::bigint AS loaded, sum(seconds)::float8 AS seconds
FROM (SELECT job, loaded, extract(epoch FROM coalesce(held_since, finished_at) - started_at) AS seconds
      FROM @extschema@.residency_jobs
      WHERE state IN ('holding', 'done') AND rate_bytes IS NULL AND loaded >= %s AND coalesce(held_since, finished_at) > started_at
      ORDER BY job DESC LIMIT 3) AS newest
HAVING count(*) > 0
"""


class Forecast(NamedTuple):
    """The warnings before a job has run."""

    seconds: Optional[float]
    sentence: str
    warnings: List[str]  # that the deadline will be missed, or that this is unknown
    blocks: int  # that will be loaded by then


@dataclass(frozen=True)
class Options:
    name: Optional[str]
    job: Optional[int]
    relations: List[str]
    databases: List[str]
    order: str
    rewritten: str
    fallback_relations: List[str]
    min_residency: float
    max_gone: float
    max_age: Optional[float]
    budget: Optional[int]
    rate: Optional[int]
    deadline: Optional[str]
    shared_buffers: bool
    aggressive: bool
    max_io_pressure: Optional[int]
    hold_until: Optional[str]
    hold_interval: int
    wait: bool
    wait_timeout: int
    wait_sleep: float
    waited: Optional[Dict[str, Any]] = None
    digest: Optional[str] = None

    def wish(self) -> Wish:
        return Wish(
            relations=Patterns("relations", self.relations),
            databases=Patterns("databases", self.databases),
            fallback_relations=Patterns("fallback_relations", self.fallback_relations),
            order=self.order,
            load_rewritten=self.rewritten == "load",
        )

    def time_limit(self) -> int:
        """Seconds until wait_timeout or the deadline, whichever is first. Raises an error if the deadline is over."""
        if self.deadline is None:
            return self.wait_timeout
        return min(self.wait_timeout, int(_deadline.seconds_left(_deadline.parse(self.deadline))))

    def held_until(self) -> Optional[datetime]:
        return None if self.hold_until is None else _deadline.parse(self.hold_until, "hold_until")


def check_options(options: Options) -> None:
    for option, (least, most) in PERCENTS.items():
        value = getattr(options, option)
        if value is not None and not least <= value <= most:
            raise ResidencyError("%s is %g: it must be a percentage from %d to %d." % (option, value, least, most))
    for option in ("wait_timeout", "wait_sleep", "job"):
        value = getattr(options, option)
        if value is not None and value <= 0:
            raise ResidencyError("%s is %g: it must be more than 0." % (option, value))
    for option in ("wait_timeout", "job"):
        value = getattr(options, option)
        if value is not None and value > LONGEST_WAIT:
            raise ResidencyError("%s is %d: it must be at most %d." % (option, value, LONGEST_WAIT))
    if options.name is not None:
        _residency_snapshot.check_name(options.name, generation_allowed=True)
    options.wish()
    if options.deadline is not None:
        _deadline.parse(options.deadline)
    least, most = _hold.INTERVAL
    if not least <= options.hold_interval <= most:
        raise ResidencyError("hold_interval is %d: it must be from %d to %d seconds." % (options.hold_interval, least, most))
    until = options.held_until()
    if until is not None and _deadline.seconds_left(until, option="hold_until") > _hold.LONGEST:
        raise ResidencyError("hold_until is '%s': it must be within the next 7 days." % options.hold_until)


def restore(session: Session, options: Options, check_mode: bool) -> Dict[str, Any]:
    """The whole of the module residency_restore, from a session with the extension attached."""
    snapshot, job = _find(session, options)
    holding = None
    if job is not None and job["state"] == _hold.HOLDING and options.job is None:
        holding, job = job, None
    loaded_before, awaited = 0, True
    if job is None:
        before = _select(session, snapshot, None, options)
        if check_mode:
            return _plan(session, snapshot, before, options, holding)
        to_load = before.measurement.total.missing or (options.shared_buffers and _selection.wanted_buffers(before))
        if not to_load and not _to_hold(snapshot, options, holding):
            return dict(_judge(session, snapshot, None, before, options, None), hold=_holds(holding))
        if holding is not None:
            _hold.end(session, holding["job"])
        try:
            job = _job(session, session.change(_START, _start_call(snapshot, before, options))[0]["job"])
        except ResidencyError as error:
            if error.__cause__ is None or sqlstate(error.__cause__) != OBJECT_IN_USE:
                raise
            return restore(session, options, check_mode)  # another run has started one since this one looked: wait for it
        forecast: Optional[Forecast] = _forecast(
            session, min(before.measurement.total.missing, job["budget_bytes"] // BLOCK_BYTES), options
        )
        if not options.wait:
            job = _begun(session, job, options)
    else:
        forecast = None
        loaded_before, awaited = job["loaded"], job["state"] in RUNNING
        if options.job is None and job["state"] in RUNNING:
            _require_same(session, job, _select(session, snapshot, None, options), options)

    try:
        seen = _seen(options.waited, job)
        if options.wait and not check_mode:
            job, seen = _wait(session, job, options, forecast is not None, seen)
        job["waited"] = _waited(seen, job)
        job.update(loaded_before=loaded_before, awaited=awaited, to_hold=forecast is not None and options.hold_until is not None)
        if job["state"] in RUNNING:
            result = _progress(session, snapshot, job, forecast)
            if not options.wait or check_mode:
                return result
            raise ResidencyError(NOT_FINISHED % (human_seconds(options.wait_timeout), result["msg"]), result)
        after = _select(session, snapshot, job, options)
        return _judge(session, snapshot, job, after, options, forecast)
    except ResidencyError as error:
        if not error.result:  # the way to the server was lost
            error.result.update(_result(session, snapshot, job, None), changed=forecast is not None)
            error.args = ("%s %s" % (error, LOST_JOB % (job["job"], _label(snapshot))),)
        raise


def _to_hold(snapshot: Optional[Row], options: Options, holding: Optional[Row]) -> bool:
    """True if the snapshot is to be held for longer than it is already."""
    until = options.held_until()
    if until is None:
        return False
    return holding is None or _job_label(holding) != _label(snapshot) or holding["hold_until"] < until.timestamp() - 1


def _holds(job: Optional[Row]) -> Optional[Dict[str, Any]]:
    if job is None or job["held_since"] is None:
        return None
    found: Dict[str, Any] = {name: job[name] for name in ("job", "state", "reclaimed", "brought_back", "reclaim_rate", "mapped_bytes")}
    return dict(found, until=_moment(job["hold_until"]), since=_moment(job["held_since"]))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _require_same(session: Session, job: Row, selection: Selection, options: Options) -> None:
    """Raise an error unless the running job does what these options request."""
    planned = set(_residency.job_outcome(session, job["job"]))
    wanted = {(_residency.place_of(row), row["fork"], row["segment"]) for row in selection.rows}
    different = []
    if not wanted <= planned:
        different.append("restores another part of %s" % _job_label(job))
    if options.rate is not None and options.rate != job["rate_bytes"]:
        different.append("has %s rate" % ("no" if job["rate_bytes"] is None else "another"))
    if options.budget is not None and job["budget_bytes"] > options.budget:
        different.append("has a larger budget")
    if options.shared_buffers and job["buffers_wanted"] is None:
        different.append("leaves shared buffers alone")
    if options.deadline is not None:
        limit = job["time_limit"]
        if limit is None or limit - job["seconds"] > _deadline.seconds_left(_deadline.parse(options.deadline)) + DEADLINE_SLACK:
            different.append("may run past the deadline")
    if different:
        raise ResidencyError(
            "Job %d is already running, and it %s: wait for it with job, or stop it with SELECT residency_cancel(%d)."
            % (job["job"], ", ".join(different), job["job"])
        )


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails before anything is known."""
    unknown = (
        "snapshot", "snapshot_age", "snapshot_thin", "job", "state", "reached", "progress", "wanted", "resident", "missing", "buffers_wanted",
        "buffers_resident", "buffers_loaded", "gone", "rewritten", "reclaimed", "not_reached", "waited", "residency", "gone_percent", "budget_bytes",
        "io_class", "scheduler", "window_bytes", "hold", "expected_seconds",
    )
    return {
        "changed": False, **dict.fromkeys(unknown), "loaded": 0, "extra": 0, "over_budget": 0, "failed_blocks": 0, "seconds": 0.0, "bytes_per_second": 0,
        "remarks": [], "relations": [], "segments": [], "queries": [], "warnings": [], "diff": {"before": "", "after": ""},
    }


def _find(session: Session, options: Options) -> Tuple[Optional[Row], Optional[Row]]:
    """The snapshot (None: there is none yet, or the job has none), and the job that was named, or runs or holds just now."""
    if options.job is not None:
        job = _job(session, options.job)
        label = _job_label(job)
        if options.name not in (None, job["snapshot"], label) and not (job["snapshot"] is None and options.fallback_relations):
            raise ResidencyError("Job %d restores %s, not %s." % (options.job, label, options.name))
        return (None if job["snapshot"] is None else _residency_snapshot.find(session, label, options.name)), job
    name = cast(str, options.name)  # the module requires a name or a job
    snapshot = None
    if not options.fallback_relations or _residency_snapshot.select(_residency_snapshot.list_all(session), name.partition("@")[0]):
        snapshot = _residency_snapshot.find(session, name)
        if options.digest not in (None, snapshot["digest"]):
            raise ResidencyError("Snapshot %s is not the one that was saved on this host: its digest differs." % _label(snapshot))
        if options.max_age is not None:
            _residency_snapshot.require_newer(snapshot, options.max_age)
    running = session.row(_JOBS + " WHERE state = ANY (%s)", ([*RUNNING, _hold.HOLDING],))
    if running is not None and running["state"] != _hold.HOLDING and _job_label(running) != _label(snapshot):
        if running["unattended"]:
            return snapshot, None  # the server ends its own for one that somebody asks for
        raise ResidencyError(
            "Job %d is restoring %s, and a cluster runs one job at a time: wait for it, or stop it with"
            " SELECT residency_cancel(%d)." % (running["job"], _job_label(running), running["job"])
        )
    return snapshot, running


def _job(session: Session, number: int) -> Row:
    job = session.row(_JOBS + " WHERE job = %s", (number,))
    if job is None:
        known = session.rows("SELECT job FROM @extschema@.residency_jobs ORDER BY job")
        raise ResidencyError(
            "Job %d does not exist here; %s."
            % (number, "there is " + ", ".join(str(row["job"]) for row in known) if known else "there is none at all")
        )
    return job


def _job_label(job: Row) -> str:
    return _label(None) if job["snapshot"] is None else "%s@%d" % (job["snapshot"], job["generation"])


def _label(snapshot: Optional[Row]) -> str:
    return "relations without a snapshot" if snapshot is None else _residency_snapshot.full_name(snapshot)


def _select(session: Session, snapshot: Optional[Row], job: Optional[Row], options: Options) -> Selection:
    number = job["job"] if job is not None else None
    if snapshot is not None:
        # a job that was named is judged by what it was started for, unless patterns choose
        plan = number if options.job is not None and not (options.relations or options.databases) else None
        return _selection.of_snapshot(session, snapshot, options.wish(), number, plan)
    if options.fallback_relations or job is None:
        selection = _selection.of_relations(session, options.wish(), number)
        selection.warnings.insert(
            0, "%s fallback_relations are loaded whole instead." % _residency_snapshot.none_called(_residency_snapshot.list_all(session), options.name)
        )
        return selection
    return _selection.of_job(session, job)


def _start_call(snapshot: Optional[Row], selection: Selection, options: Options) -> Tuple[Optional[str], str]:
    limits = {"budget": options.budget, "rate": options.rate, "max_io_pressure": options.max_io_pressure, "time_limit": options.time_limit()}
    given: Dict[str, Any] = {key: value for key, value in limits.items() if value is not None}
    for option in ("shared_buffers", "aggressive"):
        if getattr(options, option):
            given[option] = True
    until = options.held_until()
    if until is not None:
        given.update(hold_until=until.isoformat(), hold_interval=options.hold_interval)
    given.update(_selection.start_options(selection))
    if snapshot is None:
        given.pop("segments", None)  # the server refuses them without one, an empty list too
    return (None if snapshot is None else _residency_snapshot.full_name(snapshot)), json.dumps(given)


def _begun(session: Session, job: Row, options: Options) -> Row:
    """The job, once its worker has begun, which then knows if the job has to wait for another."""
    end = time.monotonic() + BEGINNING
    while job["state"] == "starting" and time.monotonic() < end:
        time.sleep(min(options.wait_sleep, 0.05))
        job = _job(session, job["job"])
    return job


def _wait(session: Session, job: Row, options: Options, started: bool, seen: Optional[Dict[str, Any]]) -> Tuple[Row, Optional[Dict[str, Any]]]:
    """Wait until the job ends, or until wait_timeout. A job that was started here ends by itself at its limit, and gets the time to."""
    end = time.monotonic() + options.wait_timeout + (STOPPING if started else 0)
    while job["state"] in RUNNING:
        left = end - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(options.wait_sleep, left))
        job = _job(session, job["job"])
        seen = _seen(seen, job)
    return job, seen


def _seen(earlier: Optional[Dict[str, Any]], job: Row) -> Optional[Dict[str, Any]]:
    """Reason and start of the job's wait. A job that has its turn no longer reports them, so that earlier ones are kept."""
    if job["state"] != "waiting":
        return earlier
    return {"reason": (job["message"] or WAITS).partition(" since ")[0], "since": job["started"]}


def _waited(seen: Optional[Dict[str, Any]], job: Row) -> Optional[Dict[str, Any]]:
    """The wait with its seconds: when its turn has come, a job starts anew."""
    if seen is None or seen.get("reason") is None or seen.get("since") is None or job["started"] is None:
        return None
    began = job["started"] - seen["since"]
    return {"reason": seen["reason"], "since": seen["since"], "seconds": round(began if began > 0 else job["seconds"], 3)}


def _speed(session: Session, options: Options) -> Optional[_deadline.Speed]:
    """The expected rate: that of the newest jobs without a rate of their own, and at most options.rate."""
    newest = session.row(_SPEED, (TELLING,))
    if newest is None:
        # it will not be faster than that
        return None if options.rate is None else _deadline.Speed(options.rate, "the rate asked for")
    measured = newest["loaded"] * BLOCK_BYTES / newest["seconds"]
    if options.rate is not None and options.rate < measured:
        return _deadline.Speed(options.rate, "the rate asked for")
    jobs = ", ".join(str(job) for job in newest["jobs"])
    return _deadline.Speed(measured, "the rate of %s %s" % ("jobs" if len(newest["jobs"]) > 1 else "job", jobs))


def _result(session: Session, snapshot: Optional[Row], job: Optional[Row], selection: Optional[Selection]) -> Dict[str, Any]:
    result = empty_result()
    result["queries"] = session.queries
    if snapshot is not None:
        result.update(
            snapshot=_residency_snapshot.full_name(snapshot),
            snapshot_age=None if snapshot["age"] is None else round(snapshot["age"], 3),
            snapshot_thin=snapshot["thin"],
            warnings=snapshot["warnings"],
        )
    if job is not None:
        result.update(
            {name: job[name] for name in _SAME},
            progress=percent(job["settled"], job["wanted"]),
            failed_blocks=job["failed"],
            hold=_holds(job),
            seconds=round(job["seconds"], 3),
            bytes_per_second=int(job["loaded"] * BLOCK_BYTES / job["seconds"]) if job["seconds"] > 0 else 0,
            waited=job.get("waited"),
            changed=job["loaded"] > job.get("loaded_before", 0) or bool(job["buffers_loaded"] and job.get("awaited", False)) or job.get("to_hold", False),
        )
    if selection is not None:
        total = selection.measurement.total
        result.update(
            {name: getattr(total, name) for name in ("wanted", "resident", "missing", "gone", "residency", "gone_percent")},
            rewritten=selection.rewritten_blocks,
            reclaimed=selection.measurement.missing.reclaimed,
            not_reached=selection.measurement.missing.not_reached,
            warnings=result["warnings"] + selection.warnings,
        )
    return result


def _with_rows(
    result: Dict[str, Any], session: Session, selection: Selection, expected: Optional[Dict[_residency.Place, int]] = None
) -> Dict[str, Any]:
    """Add the rows of relations and segments, and the diff: residency before and after what a job has loaded, or is expected to load."""
    measured = selection.measurement
    names = _residency.name_places(_residency.listed_places(measured), session, selection.former)
    result.update(_residency.describe(measured, names))
    changes = []
    for row, (place, amount) in zip(result["relations"], measured.relations):
        if expected is None:
            before, after = max(0, amount.resident - amount.loaded), amount.resident
        else:
            before, after = amount.resident, amount.resident + expected.get(place, 0)
        changes.append(_residency.Change(_residency.label(row), amount.wanted - amount.gone, before, after))
    result["diff"] = _residency.diff("resident of %s" % (result["snapshot"] or "the relations"), changes)
    return result


def _progress(session: Session, snapshot: Optional[Row], job: Row, forecast: Optional[Forecast]) -> Dict[str, Any]:
    result = _result(session, snapshot, job, None)
    result["msg"] = "Job %d %s %s: %s of %s done, %s loaded in %s." % (
        job["job"],
        "is %s before" % (job["message"] or WAITS) if job["state"] == "waiting" else "restores",
        _label(snapshot),
        human_percent(result["progress"]),
        human_blocks(result["wanted"]),
        human_blocks(job["loaded"]),
        human_seconds(job["seconds"]),
    )
    if forecast is not None:
        result["changed"] = True
        result["msg"] += " " + forecast.sentence
        _add_forecast(result, forecast)
    return result


def _forecast(session: Session, blocks: int, options: Options) -> Forecast:
    """Estimate whether the job meets its deadline."""
    speed = _speed(session, options)
    count = blocks * BLOCK_BYTES
    seconds = _deadline.expected_seconds(count, speed)
    left = None if options.deadline is None else _deadline.seconds_left(_deadline.parse(options.deadline))
    limit = "the deadline in"
    if seconds is not None and seconds > options.wait_timeout and (left is None or options.wait_timeout < left):
        left, limit = float(options.wait_timeout), "wait_timeout of"
    sentence = _deadline.forecast(count, speed, left, limit)
    if left is None or (seconds is not None and seconds <= left):
        return Forecast(seconds, sentence, [], blocks)
    done = blocks if speed is None else int(min(count, left * speed.bytes_per_second) / BLOCK_BYTES)
    return Forecast(seconds, sentence, [sentence], done)


def _add_forecast(result: Dict[str, Any], forecast: Forecast) -> None:
    result["expected_seconds"] = forecast.seconds
    result["warnings"] = result["warnings"] + forecast.warnings


def _plan(session: Session, snapshot: Optional[Row], selection: Selection, options: Options, holding: Optional[Row]) -> Dict[str, Any]:
    """The result in check mode: the blocks that a job would load, the part that fits its budget, and the time."""
    result = _result(session, snapshot, None, selection)
    budget: int = session.only_row("SELECT budget_bytes FROM @extschema@.residency_budget()")["budget_bytes"]
    if options.budget is not None:
        budget = min(budget, options.budget)
    total = selection.measurement.total
    fits = min(total.missing, max(0, budget) // BLOCK_BYTES)
    absent, room = _selection.buffers_not_there(session, selection) if options.shared_buffers else (0, 0)
    buffers = min(absent, room)
    hold = _to_hold(snapshot, options, holding)
    result.update(changed=fits > 0 or buffers > 0 or hold, budget_bytes=budget, over_budget=total.missing - fits, hold=_holds(holding))
    if options.shared_buffers:
        wanted = _selection.wanted_buffers(selection)
        result.update(buffers_wanted=wanted, buffers_resident=wanted - absent)
    if holding is not None and (total.missing or buffers or hold):
        session.record(_hold.CANCEL, (holding["job"],))
    if total.missing or buffers or hold:
        session.require_execute("residency_restore_start(text, jsonb)")
        session.record(_START, _start_call(snapshot, selection, options))
        result["msg"] = "Would load %s of %s: %s is resident, the memory budget is %s%s." % (
            human_blocks(fits),
            human_blocks(total.wanted),
            human_percent(result["residency"]),
            human_bytes(budget),
            ", %s more would not fit" % human_blocks(result["over_budget"]) if result["over_budget"] else "",
        )
        if options.shared_buffers:
            result["msg"] += " Would fill shared buffers with %s." % human_blocks(buffers)
        if hold:
            result["msg"] += " Would hold it until %s." % options.hold_until
        forecast = _forecast(session, fits, options)
        expected = percent(total.resident + forecast.blocks, total.wanted - total.gone)
        if expected < options.min_residency:
            result["warnings"].append(
                "%s of what still exists would be resident then, less than min_residency of %s: the real run would fail."
                % (human_percent(expected), human_percent(options.min_residency))
            )
        result["msg"] += " " + forecast.sentence
        _add_forecast(result, forecast)
    else:
        result.update(expected_seconds=0.0, msg=_resident_already(snapshot, selection))
    result = _with_rows(result, session, selection, _selection.expect(selection, fits))
    result["remarks"] = _remarks.remarks(_facts(session, result, None, selection, options))
    result["msg"] = " ".join([result["msg"], *result["remarks"]])
    if result["gone_percent"] > options.max_gone:
        result["warnings"].append("%s: the real run would fail." % _too_much_gone(result, options))
    return result


def _judge(
    session: Session, snapshot: Optional[Row], job: Optional[Row], selection: Selection, options: Options, forecast: Optional[Forecast]
) -> Dict[str, Any]:
    """Compare a count after the job, not the job's own report, with min_residency and max_gone. Raises an error if a limit is missed."""
    result = _with_rows(_result(session, snapshot, job, selection), session, selection)
    if forecast is not None:
        _add_forecast(result, forecast)
    if job is None:
        result.update(state="done", progress=100.0, expected_seconds=0.0)
    result["remarks"] = [*_own_remarks(result), *_remarks.remarks(_facts(session, result, job, selection, options))]
    shortcomings = _shortcomings(result, options)
    result["reached"] = not shortcomings
    if shortcomings:
        # Ansible prints the result of a failed task, for every host: what is complete has no place in it
        for rows in ("relations", "segments"):
            result[rows] = [row for row in result[rows] if row["resident"] < row["wanted"]]
        raise ResidencyError(_failure(result, shortcomings, snapshot), result)
    result["msg"] = _success(snapshot, job, selection, result)
    return result


def _shortcomings(result: Dict[str, Any], options: Options) -> List[str]:
    found = []
    if result["state"] == "failed":
        found.append("job %d failed" % result["job"])
    if result["residency"] < options.min_residency:
        found.append(
            "%s of what still exists is resident, less than min_residency of %s (%s missing)"
            % (human_percent(result["residency"]), human_percent(options.min_residency), human_blocks(result["missing"]))
        )
    if result["gone_percent"] > options.max_gone:
        found.append(_too_much_gone(result, options))
    return found


def _too_much_gone(result: Dict[str, Any], options: Options) -> str:
    return "%s of the snapshot is gone, more than max_gone of %s%s" % (
        human_percent(result["gone_percent"]),
        human_percent(options.max_gone),
        ", %s of it because relations were rewritten (rewritten: load would load them whole)" % human_blocks(result["rewritten"])
        if result["rewritten"] and options.rewritten == "skip"
        else " (a new snapshot, taken when the caches are warm again, has what exists now)",
    )


def _failure(result: Dict[str, Any], shortcomings: List[str], snapshot: Optional[Row]) -> str:
    sentences = ["%s: %s." % (_subject(snapshot), "; ".join(shortcomings)), *result["remarks"]]
    coldest = [
        "%s (%s of %s resident)" % (_residency.label(row), human_blocks(row["resident"]), human_blocks(row["wanted"]))
        for row in result["relations"][:NAMED]
        if row["resident"] < row["wanted"] - row["gone"]
    ]
    if coldest:
        sentences.append("Coldest: %s." % ", ".join(coldest))
    return " ".join(sentences)


def _success(snapshot: Optional[Row], job: Optional[Row], selection: Selection, result: Dict[str, Any]) -> str:
    if job is None:
        return " ".join([_resident_already(snapshot, selection), *result["remarks"]])
    total = selection.measurement.total
    sentences = [
        "%s: %s of %s is resident; loaded %s in %s, %s/s%s."
        % (
            _subject(snapshot),
            human_percent(result["residency"]),
            human_blocks(total.wanted - total.gone),
            human_blocks(result["loaded"]),
            human_seconds(result["seconds"]),
            human_bytes(result["bytes_per_second"]),
            ", %s I/O class (%s)" % (result["io_class"], result["scheduler"] or "unknown scheduler") if result["io_class"] else "",
        )
    ]
    return " ".join(sentences + result["remarks"])


def _subject(snapshot: Optional[Row]) -> str:
    label = _label(snapshot)
    return label if snapshot else label[0].upper() + label[1:]


def _own_remarks(result: Dict[str, Any]) -> List[str]:
    """What the residency does not tell: how much of shared buffers is back, until when it is held, and what else was read."""
    found = []
    if result["buffers_wanted"]:
        found.append("Of %s that were in shared buffers %s are." % (human_blocks(result["buffers_wanted"]), human_blocks(result["buffers_resident"])))
    if result["state"] == _hold.HOLDING:
        found.append("Held until %s; SELECT residency_cancel(%d) ends that." % (result["hold"]["until"], result["job"]))
    if result["extra"] and result["extra"] > MUCH * result["loaded"]:
        found.append("%s between the wanted blocks was read, too." % human_blocks(result["extra"]))
    return found


def _facts(session: Session, result: Dict[str, Any], job: Optional[Row], selection: Selection, options: Options) -> Facts:
    measured = selection.measurement
    lost = [
        Lost(_residency.label(row), row["gone"], place in selection.rewritten)
        for row, (place, dummy) in zip(result["relations"], measured.relations)
        if row["gone"]
    ]
    facts: Dict[str, Any] = {
        "gone": measured.total.gone,
        "gone_percent": measured.total.gone_percent,
        "lost": sorted(lost, key=lambda loss: -loss.blocks),
        "reclaim": _capabilities.server_reclaim(session),
    }
    if job is None:
        return Facts(**facts)
    if measured.missing.over_budget:
        row = session.only_row(_BUDGET)
        facts["budget"] = Budget(**{name: row[name] for name in Budget.__dataclass_fields__})
    if result["waited"] is not None:
        facts["wait"] = Wait(result["waited"]["reason"], result["waited"]["seconds"])
    return Facts(
        missing=measured.missing,
        job=job["job"],
        state=job["state"],
        elapsed=job["elapsed"],
        message=job["message"],
        limit=_limit(options) if job["state"] == "canceled" else None,
        failures=measured.failed,
        budget_bytes=result["budget_bytes"],
        budget_option=options.budget,
        **facts
    )


def _limit(options: Options) -> Optional[str]:
    """The deadline, if it is over; else the job had another end."""
    if options.deadline is None:
        return None
    left = (_deadline.parse(options.deadline) - datetime.now(timezone.utc)).total_seconds()
    return "the deadline %s" % options.deadline if left <= DEADLINE_SLACK else None


def _resident_already(snapshot: Optional[Row], selection: Selection) -> str:
    total = selection.measurement.total
    return "%s: all %s that still exists is resident already." % (_subject(snapshot), human_blocks(total.wanted - total.gone))
