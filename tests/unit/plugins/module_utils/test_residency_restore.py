# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_restore
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._residency_restore import Options
from ansible_collections.pgfleet.cache.plugins.modules import residency_restore
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import (
    Session,
    database_row,
    job_row,
    outcome_row,
    relation_row,
    segment_row,
    snapshot_row,
)


def options(**changed):
    """The options of the engine when the module has only a name."""
    values = {option: one.get("default") for option, one in residency_restore.OPTIONS.items() if option not in residency_restore.LEASE}
    values.update(name="warm", wait_timeout=60, wait_sleep=0.01)
    values.update(changed)
    return Options(**values)


BUDGET = {
    "available": 4 * 1024**3, "cgroup_headroom": None, "dirty": 0, "reserve": 1024**2, "hot": 0, "restored_elsewhere": 0,
}


def server(jobs, segments, **more):
    """A session with answers to the engine's statements, in the order in which the keys are looked for."""
    return Session(
        residency_snapshot_segments=segments,
        residency_snapshot_names=more.get("names", []),
        residency_restore_start=[{"job": 7}],
        residency_cancel=more.get("canceled", []),
        residency_budget=[dict(BUDGET, budget_bytes=more.get("budget", 1024**4))],
        inet_server_addr=[{"here": None, "pid": 1}],
        **{
            "rate_bytes IS NULL": more.get("former", []),
            "FROM residency_jobs": jobs,
            "residency_job_segments": more.get("outcome", []),
            "residency_job_relations": more.get("outcome", []),
            "residency_shared_buffers": [],
            "residency_segments": more.get("whole", []),
            "residency_snapshots": more.get("snapshots", [snapshot_row(generation=2), snapshot_row(generation=3)]),
            "residency_current_names": [*more.get("relations", []), database_row(5, "postgres_air")],
        },
    )


def restore(session, check_mode=False, **changed):
    return _residency_restore.restore(session, options(**changed), check_mode)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_residency", 100.5),
        ("min_residency", -1),
        ("max_gone", 101),
        ("wait_timeout", 0),
        ("wait_sleep", -1),
        ("job", 0),
        ("hold_interval", 0),
        ("hold_interval", 3601),
    ],
)
def test_values_out_of_range(option, value):
    with pytest.raises(ResidencyError, match="^%s is " % option):
        _residency_restore.check_options(options(**{option: value}))


def test_starts_waits_and_judges():
    session = server(
        jobs=[[], [job_row(state="running", settled=300)], [job_row()]],
        segments=[[segment_row(1, 400, resident=300)], [segment_row(1, 400, resident=400)]],
    )
    result = restore(session)
    assert result["changed"] and result["reached"]
    assert (result["job"], result["state"], result["residency"], result["missing"]) == (7, "done", 100.0, 0)
    assert result["bytes_per_second"] == 100 * 8192 / 2
    assert len(result["queries"]) == 1 and '"time_limit": 60' in result["queries"][0] and "warm@3" in result["queries"][0]


def soon(seconds):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def holding(seconds, **changed):
    """A job that holds, for so long."""
    return job_row(state="holding", hold_until=time.time() + seconds, held_since=1002.0, **changed)


def test_what_is_restored_is_held():
    session = server(
        jobs=[[], [job_row(state="running", settled=300)], [holding(600, reclaimed=3, brought_back=3, reclaim_rate=24576, mapped_bytes=3276800)]],
        segments=[[segment_row(1, 400, resident=300)], [segment_row(1, 400, resident=400)]],
    )
    until = soon(600)
    result = restore(session, hold_until=until, hold_interval=5)
    assert '"hold_until": "%s", "hold_interval": 5' % until in result["queries"][0]
    assert (result["state"], result["changed"], result["reached"]) == ("holding", True, True)
    assert result["hold"]["since"] == "1970-01-01T00:16:42Z" and result["hold"]["reclaim_rate"] == 24576
    assert result["remarks"] == ["Held until %s; SELECT residency_cancel(7) ends that." % result["hold"]["until"]]
    assert result["msg"].endswith(" ".join(result["remarks"]))


@pytest.mark.parametrize("check_mode", [False, True])
def test_what_is_resident_is_held_too(check_mode):
    session = server(jobs=[[], [holding(600)]], segments=[segment_row(1, 400, resident=400)])
    result = restore(session, check_mode, hold_until=soon(600))
    assert result["changed"] and "residency_restore_start" in result["queries"][0]
    assert ("Would hold it until" in result["msg"]) == check_mode


@pytest.mark.parametrize(
    ("changed", "asked", "ends"),
    [
        ({}, {"hold_until": soon(600)}, False),  # it is held that long
        ({}, {}, False),  # nothing is to be loaded
        ({}, {"hold_until": soon(900)}, True),
        ({"snapshot": "other"}, {"hold_until": soon(600)}, True),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_another_hold(changed, asked, ends, check_mode):
    session = server(
        jobs=[[holding(600, job=6, **changed)], [job_row(job=6, state="canceled")], [holding(900)]], segments=[segment_row(1, 400, resident=400)],
        canceled=[{"canceled": True}],
    )
    result = restore(session, check_mode, **asked)
    assert result["changed"] == ends and len(result["queries"]) == 2 * ends
    assert not ends or "residency_cancel(6)" in result["queries"][0]
    assert result["hold"]["job"] == (7 if ends and not check_mode else 6)


def test_hold_until_is_over():
    with pytest.raises(ResidencyError, match=r"^hold_until 2020-11-21T06:00:00\+00:00 was .* ago"):
        _residency_restore.check_options(options(hold_until="2020-11-21 06:00Z"))


def test_the_gate_is_inclusive():
    session = server(jobs=[job_row()], segments=[segment_row(1, 400, resident=360)])
    assert restore(session)["residency"] == 90.0


@pytest.mark.parametrize(
    ("job", "end"),
    [
        ({"extra": 0}, "loaded 800 kB in 2.0 s, 400 kB/s, idle I/O class (mq-deadline)."),
        ({"extra": 128}, "loaded 800 kB in 2.0 s, 400 kB/s, idle I/O class (mq-deadline). 1.00 MB between the wanted blocks was read, too."),
        ({"extra": 0, "io_class": "normal", "scheduler": None}, "loaded 800 kB in 2.0 s, 400 kB/s, normal I/O class (unknown scheduler)."),
        ({"extra": 0, "loaded": 0, "io_class": None, "scheduler": None, "window_bytes": 524288}, "loaded 0 B in 2.0 s, 0 B/s."),
    ],
)
def test_what_was_loaded_and_how(job, end):
    result = restore(server(jobs=[job_row(**job)], segments=[segment_row(1, 400, resident=400)]))
    assert result["msg"].endswith(end)
    assert (result["io_class"], result["scheduler"], result["window_bytes"]) == (
        job.get("io_class", "idle"), job.get("scheduler", "mq-deadline"), 524288)


def test_what_did_not_fit_is_said_even_if_the_gate_holds():
    session = server(
        jobs=[job_row(over_budget=20)],
        segments=[segment_row(1, 400, resident=380)],
        outcome=[outcome_row(16001, over_budget=20, loaded=30, reason="over the memory budget")],
    )
    result = restore(session)
    assert "160 kB did not fit the memory budget of 1.00 GB: the limit is the host's memory, of which 4.00 GB is available;" in result["msg"]
    assert result["segments"][0]["reason"] == "over the memory budget"
    assert result["relations"][0]["over_budget"] == 20
    # before the job, what it has loaded was not there
    assert result["diff"]["before"] == "relfilenumber 16001 in postgres_air: 2.73 MB of 3.12 MB, 87.5 %\n"
    assert result["diff"]["after"] == "relfilenumber 16001 in postgres_air: 2.97 MB of 3.12 MB, 95 %\n"


def test_older_generation_is_another_snapshot():
    session = server(jobs=[job_row(state="running", generation=2)], segments=[])
    with pytest.raises(ResidencyError, match="Job 7 is restoring warm@2"):
        restore(session)


def test_the_restore_of_a_start_ends_for_one_that_is_asked_for():
    """The server ends it: the module starts its own."""
    own = job_row(state="running", snapshot="autosave", generation=2, job=6, unattended=True)
    session = server(jobs=[[own], [job_row()]], segments=[[segment_row(1, 400)], [segment_row(1, 400, resident=400)]])
    assert restore(session)["job"] == 7
    assert started_with(session)[0] == "warm@3"


def test_named_job_brings_its_own_generation():
    session = server(jobs=[job_row(generation=2)], segments=[segment_row(1, 400, resident=400)])
    assert restore(session, job=7)["snapshot"] == "warm@2"


def test_how_the_job_is_to_go_about_it():
    session = server(jobs=[[], [job_row()]], segments=[[segment_row(1, 400)], [segment_row(1, 400, resident=400)]])
    restore(session, aggressive=True, max_io_pressure=20, shared_buffers=True)
    assert started_with(session)[1] == '{"max_io_pressure": 20, "time_limit": 60, "shared_buffers": true, "aggressive": true}'


def test_running_job_has_to_be_the_same():
    """Its part of the snapshot, its rate, its budget and its end; loading what it loads is no change of ours."""
    running = job_row(state="running", seconds=1.0, time_limit=61, rate_bytes=None, budget_bytes=1024**3)
    segments = [segment_row(1, 400), segment_row(2, 400)]
    both = [outcome_row(16001), outcome_row(16002)]
    result = restore(server(jobs=[running], segments=segments, outcome=both), wait=False, budget=1024**3)
    assert not result["changed"] and result["job"] == 7
    for outcome, changed, why in (
        (both[:1], {}, "restores another part of warm@3"),
        (both, {"rate": 1024**2}, "has no rate"),
        (both, {"budget": 1024**2}, "has a larger budget"),
        (both, {"deadline": (datetime.now(timezone.utc) + timedelta(seconds=30)).isoformat()}, "may run past the deadline"),
    ):
        with pytest.raises(ResidencyError) as caught:
            restore(server(jobs=[running], segments=segments, outcome=outcome), **changed)
        assert str(caught.value) == (
            "Job 7 is already running, and it %s: wait for it with job, or stop it with SELECT residency_cancel(7)." % why
        )


def test_a_named_job_is_judged_by_what_it_was_started_for():
    segments = [segment_row(1, 400, resident=400), segment_row(2, 400)]
    session = server(jobs=[job_row()], segments=segments, outcome=[outcome_row(16001)])
    result = restore(session, job=7)
    assert (result["wanted"], result["residency"], result["changed"]) == (400, 100.0, False)


def test_way_to_the_server_is_lost():
    class Stopped(Session):
        def rows(self, sql, params=()):
            if self.started and "residency_jobs" in sql and "IS NULL" not in sql:
                self.started += 1
                if self.started > 2:
                    raise ResidencyError("PostgreSQL ended the connection (gone): it was stopped or restarted meanwhile.")
            return super().rows(sql, params)

        started = 0

        def change(self, sql, params=()):
            self.started = 1
            return super().change(sql, params)

    lost = server(jobs=[[], [job_row(state="running")]], segments=[segment_row(1, 400)])
    lost.__class__ = Stopped
    with pytest.raises(ResidencyError) as caught:
        restore(lost)
    assert str(caught.value) == (
        "PostgreSQL ended the connection (gone): it was stopped or restarted meanwhile. Job 7 was restoring warm@3: see its progress in the view"
        " residency_jobs."
    )
    assert (caught.value.result["job"], caught.value.result["changed"]) == (7, True)


def test_no_wait_reports_progress():
    session = server(
        jobs=[[], [job_row(state="starting", loaded=0, settled=0, seconds=0.0)], [job_row(state="running", loaded=0, settled=0, seconds=0.0)]],
        segments=[segment_row(1, 400, resident=300)],
    )
    result = restore(session, wait=False)
    assert result["changed"] and result["state"] == "running"
    assert (result["reached"], result["residency"], result["progress"]) == (None, None, 0.0)


def test_waiting_for_another_cluster_is_running():
    segments = [segment_row(1, 400, resident=400)]
    session = server(jobs=[[job_row(state="waiting", settled=0)], [job_row()]], segments=segments, outcome=[outcome_row(16001)])
    assert restore(session)["state"] == "done"
    session = server(jobs=[job_row(state="waiting", settled=0)], segments=[])
    assert "Job 7 is waiting for another restore on this host before warm@3" in restore(session, wait=False)["msg"]


def test_for_whom_it_has_waited():
    """The wait is reported if it was seen while it lasted, here or by the task that started the job."""
    segments = [segment_row(1, 400, resident=400)]
    message = 'waiting for the restore of "/data" (PID 5) since 2026-11-22 03:00:00 UTC'
    waiting = job_row(state="waiting", settled=0, message=message, started=1000.0, seconds=3.0)
    now = restore(server(jobs=[waiting], segments=segments, outcome=[outcome_row(16001)]), wait=False)
    assert now["waited"] == {"reason": 'waiting for the restore of "/data" (PID 5)', "since": 1000.0, "seconds": 3.0}
    done = job_row(started=1042.0)
    for jobs, changed in (([[waiting], [done]], {}), ([done], {"job": 7, "waited": now["waited"]})):
        result = restore(server(jobs=jobs, segments=segments, outcome=[outcome_row(16001)]), **changed)
        assert result["waited"]["seconds"] == 42.0
        assert result["remarks"] == ['Job 7 waited for the restore of "/data" (PID 5), for 42 s.'] and result["remarks"][0] in result["msg"]
    assert restore(server(jobs=[done], segments=segments), job=7)["waited"] is None


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(("max_age", "refused"), [(93599, True), (93601, False), (None, False)])
def test_a_snapshot_that_is_too_old(check_mode, max_age, refused):
    """Its age is the server's word. Before anything is started, also when all is resident."""
    thin = snapshot_row(generation=4, thin=True, measure=400)
    session = server(jobs=[], segments=[segment_row(1, 400, resident=400)], snapshots=[snapshot_row(current=True), thin])
    if not refused:
        result = restore(session, check_mode, max_age=max_age)
        assert (result["snapshot_age"], result["snapshot_thin"]) == (93600.0, False)
        return
    with pytest.raises(ResidencyError) as caught:
        restore(session, check_mode, max_age=max_age)
    assert str(caught.value) == (
        "Snapshot warm@3 is from 26 h ago, and max_age is 25 h 59 min: save a new one when the caches are warm (module residency_snapshot, playbook"
        " pgfleet.cache.snapshot), or raise max_age (cache_warmup_max_age)."
        " 'warm' means warm@3, from 26 h ago: warm@4 is newer and thin (less than half as full)."
    )
    assert (caught.value.result["snapshot"], caught.value.result["snapshot_age"]) == ("warm@3", 93600.0)
    assert session.queries == [] and not [sql for sql, params in session.asked if "residency_jobs" in sql]
    message = 'waiting for the restore of "/srv/data" (PID 99) since 2026-11-20 12:00:00+00'
    session = server(jobs=[job_row(state="waiting", settled=0, message=message)], segments=[])
    assert restore(session, wait=False)["msg"].startswith("Job 7 is %s before warm@3: 0 %% of" % message)


def test_a_thin_generation_is_named():
    snapshots = [snapshot_row(current=True), snapshot_row(generation=4, thin=True, measure=400)]
    newer = "'warm' means warm@3, from 26 h ago: warm@4 is newer and thin (less than half as full)."
    for changed, warnings in (
        ({}, [newer]),
        ({"job": 7}, [newer]),  # what the playbook warmup waits for
        ({"name": "warm@3"}, []),
    ):
        session = server(jobs=[job_row()], segments=[segment_row(1, 400, resident=400)], snapshots=snapshots)
        assert restore(session, **changed)["warnings"] == warnings
    session = server(jobs=[], segments=[segment_row(1, 400)], snapshots=snapshots)
    assert restore(session, check_mode=True, name="warm@4")["warnings"][0] == (
        "warm@4 is thin: it holds 3.12 MB, while the fullest generation before it held 3.12 MB. 'warm' means warm@3, from 26 h ago."
    )


def test_progress_is_what_the_server_has_settled():
    session = server(jobs=[job_row(state="running", wanted=1000, settled=999, loaded=10)], segments=[])
    result = restore(session, wait=False)
    assert (result["progress"], result["wanted"], result["loaded"]) == (99.9, 1000, 10)
    [sql] = [sql for sql, dummy in session.asked if "FROM residency_jobs" in sql]
    assert "residency_job_segments" not in sql


def test_check_mode_starts_nothing():
    session = server(jobs=[], segments=[segment_row(1, 400, resident=100, gone=50)], budget=200 * 8192)
    result = restore(session, check_mode=True)
    assert not [sql for sql, dummy in session.asked if "residency_restore_start" in sql]
    assert result["diff"]["after"] == "relfilenumber 16001 in postgres_air: 2.34 MB of 2.73 MB, 85.71 %\n"
    assert result["changed"] and result["job"] is None and result["reached"] is None
    assert (result["missing"], result["over_budget"]) == (250, 50)
    assert result["msg"].startswith("Would load 1.56 MB of 3.12 MB: 28.57 % is resident, the memory budget is 1.56 MB, 400 kB more would not fit.")
    assert result["warnings"][0] == (
        "85.71 % of what still exists would be resident then, less than min_residency of 90 %: the real run would fail."
    )
    assert len(result["queries"]) == 1


def test_check_mode_does_not_wait_for_a_running_job():
    session = server(jobs=[job_row(state="running", settled=100)], segments=[])
    assert restore(session, check_mode=True)["state"] == "running"


NAMES = [
    database_row(5, "postgres_air"),
    relation_row("public.boarding_pass", 16001, oid=1, pages=400),
    relation_row("public.passenger", 16002, oid=2, pages=400),
    relation_row("public.passenger_pkey", 16003, oid=3, pages=100, kind="index", owner="public.passenger", owner_oid=2),
]


def started_with(session):
    return next(params for sql, params in session.asked if "residency_restore_start" in sql)


def test_relations_become_segments_in_the_operators_order():
    segments = [segment_row(1, 400), segment_row(2, 100, blocks=400), segment_row(3, 100, blocks=100), segment_row(4, 9)]
    after = [dict(row, resident=row["wanted"]) for row in segments]
    session = server(jobs=[[], [job_row()]], segments=[segments, after], names=NAMES)
    result = restore(session, relations=["public.passenger", "boarding*"])
    # the index of the first relation is hotter than the relation itself
    assert started_with(session) == ("warm@3", '{"time_limit": 60, "segments": [3, 2, 1]}')
    assert (result["wanted"], result["residency"], result["warnings"]) == (600, 100.0, [])


def test_a_pattern_that_fits_nothing_is_a_warning():
    session = server(jobs=[], segments=[segment_row(1, 400, resident=400)], names=NAMES)
    assert restore(session, relations=["boarding_pass", "passanger"])["warnings"] == ["Nothing matches 'passanger' of relations."]


def test_rewritten_relations_are_gone():
    segments = [segment_row(1, 400, resident=400), segment_row(2, 300, gone=300)]
    session = server(jobs=[], segments=segments, names=NAMES, relations=[relation_row("public.passenger", 17002, oid=2)])
    with pytest.raises(ResidencyError) as caught:
        restore(session)
    assert str(caught.value).startswith(
        "warm@3: 42.85 % of the snapshot is gone, more than max_gone of 20 %, 2.34 MB of it because relations were rewritten"
        " (rewritten: load would load them whole)."
    )
    assert caught.value.result["rewritten"] == 300
    # it keeps the name it had
    assert str(caught.value).endswith(" 2.34 MB of the snapshot is gone (42.85 %): table public.passenger in postgres_air (2.34 MB, rewritten).")


def test_rewritten_relations_are_loaded_whole():
    segments = [segment_row(1, 400, resident=400), segment_row(2, 300, gone=300, blocks=400)]
    whole = [segment_row(None, 200, blocks=200, relfilenumber=17002)]
    session = server(
        jobs=[[], [job_row()]],
        segments=segments,
        names=NAMES,
        relations=[relation_row("public.passenger", 17002, oid=2)],
        whole=[whole, [dict(whole[0], resident=200)]],
        outcome=[outcome_row(17002, loaded=200)],
    )
    result = restore(session, rewritten="load")
    assert started_with(session) == ("warm@3", '{"time_limit": 60, "whole": [[1663, 5, 17002]]}')
    assert (result["wanted"], result["resident"], result["gone"], result["rewritten"]) == (600, 600, 0, 0)
    assert result["diff"]["before"] == "table public.passenger in postgres_air: 0 B of 1.56 MB, 0 %\n"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "snapshot warm@3 has no names"),
        ([database_row(5, "postgres_air", "the database does not accept connections"), NAMES[1]],
         "snapshot warm@3 has no names of the relations of postgres_air (the database does not accept connections)"),
    ],
)
def test_rewritten_relations_that_have_no_names(names, why):
    """As of a snapshot that was taken before there were names: it was silent."""
    segments = [segment_row(1, 400, resident=400), segment_row(2, 300, gone=300)]

    def warnings(rewritten):
        session = server(jobs=[], segments=segments, names=names, relations=[])
        return restore(session, rewritten=rewritten, max_gone=100)["warnings"]

    assert warnings("skip") == []
    assert warnings("load") == [
        "rewritten: load does nothing about 2.34 MB that are gone: %s, so the new files of its relations cannot be found."
        " Take it again with residency_snapshot." % why
    ]


def test_fallback_relations_when_there_is_no_snapshot():
    whole = [segment_row(None, 200, blocks=200, relfilenumber=17002)]
    session = server(
        jobs=[[], [job_row(snapshot=None, generation=None)]],
        segments=[],
        snapshots=[],
        relations=[relation_row("public.passenger", 17002), relation_row("public.booking", 17003)],
        whole=[whole, [dict(whole[0], resident=200)]],
    )
    result = restore(session, fallback_relations=["passenger"])
    assert started_with(session) == (None, '{"time_limit": 60, "whole": [[1663, 5, 17002]]}')
    assert (result["snapshot"], result["residency"], result["wanted"]) == (None, 100.0, 200)
    assert result["msg"].startswith("Relations without a snapshot: 100 % of 1.56 MB is resident;")


def test_job_without_a_snapshot_is_waited_for():
    whole = [segment_row(None, 200, resident=200, blocks=200, relfilenumber=17002)]
    session = server(
        jobs=[job_row(snapshot=None, generation=None)], segments=[], outcome=[outcome_row(17002)], whole=whole
    )
    assert restore(session, name=None, job=7)["residency"] == 100.0


def test_expected_seconds_come_from_a_former_job():
    session = server(jobs=[], segments=[segment_row(1, 400)], former=[{"jobs": [4], "loaded": 800, "seconds": 2.0}])
    result = restore(session, check_mode=True)
    assert result["expected_seconds"] == 1.0
    assert result["msg"].endswith("3.12 MB take about 1.0 s at 3.12 MB/s, the rate of job 4.")
    result = restore(session, check_mode=True, rate=1024**2)
    assert result["msg"].endswith("3.12 MB take about 3.1 s at 1.00 MB/s, the rate asked for.")


def test_deadline_is_the_jobs_time_limit_and_is_judged_beforehand():
    deadline = (datetime.now(timezone.utc) + timedelta(seconds=30.5)).isoformat()
    session = server(
        jobs=[[], [job_row()]],
        segments=[[segment_row(1, 400)], [segment_row(1, 400, resident=400)]],
        former=[{"jobs": [4, 5], "loaded": 200, "seconds": 60.0}],
    )
    result = restore(session, deadline=deadline)
    assert '"time_limit": 30' in started_with(session)[1] or '"time_limit": 29' in started_with(session)[1]
    assert result["expected_seconds"] == 120.0
    assert "the rate of jobs 4, 5" in result["warnings"][0]
    assert "too long for the deadline in 30 s" in result["warnings"][0] or "in 29 s" in result["warnings"][0]
