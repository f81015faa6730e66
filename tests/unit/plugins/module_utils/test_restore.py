# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _restore
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._restore import Options
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, job_row, segment_row, snapshot_row


def options(**changed):
    values = {
        "name": "warm",
        "job": None,
        "min_residency": 90.0,
        "max_gone": 20.0,
        "budget": None,
        "rate": None,
        "wait": True,
        "wait_timeout": 60,
        "wait_sleep": 0.01,
    }
    values.update(changed)
    return Options(**values)


def server(jobs, segments, **more):
    """What the engine asks, in the order in which the keys are looked for."""
    return Session(
        residency_snapshot_segments=segments,
        residency_restore_start=[{"job": 7}],
        residency_budget=[{"budget_bytes": more.get("budget", 1024**4)}],
        # the jobs before residency_job_segments: their statement names it too
        **{"FROM residency_jobs": jobs, "residency_job_segments": more.get("outcome", [])},
        residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)],
        pg_database=[],
    )


def restore(session, check_mode=False, **changed):
    return _restore.restore(session, options(**changed), check_mode, lambda database: session)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_residency", 100.5),
        ("min_residency", -1),
        ("max_gone", 101),
        ("budget", 0),
        ("rate", 0),
        ("wait_timeout", 0),
        ("wait_sleep", -1),
        ("job", 0),
    ],
)
def test_values_out_of_range(option, value):
    with pytest.raises(ResidencyError, match="^%s is " % option):
        _restore.check_options(options(**{option: value}))


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


def test_everything_resident_starts_no_job():
    session = server(jobs=[], segments=[segment_row(1, 400, resident=390, gone=10)])
    result = restore(session)
    assert not result["changed"] and result["reached"]
    assert (result["job"], result["state"], result["queries"]) == (None, "done", [])


def test_below_min_residency_names_the_coldest():
    session = server(jobs=[job_row()], segments=[segment_row(1, 400, resident=300)])
    with pytest.raises(ResidencyError) as caught:
        restore(session)
    message = str(caught.value)
    assert message.startswith("warm@3: 75 % of what still exists is resident, less than min_residency of 90 % (800 kB missing).")
    assert "Coldest: relfilenumber 16001 in a dropped database (2.34 MB of 3.12 MB resident)." in message
    assert caught.value.result["reached"] is False and caught.value.result["changed"]


def test_the_gate_is_inclusive():
    session = server(jobs=[job_row()], segments=[segment_row(1, 400, resident=360)])
    assert restore(session)["residency"] == 90.0


def test_too_much_is_gone():
    session = server(jobs=[job_row()], segments=[segment_row(1, 400, resident=300, gone=100)])
    with pytest.raises(ResidencyError, match=r"25 % of the snapshot is gone, more than max_gone of 20 %"):
        restore(session)


def test_what_did_not_fit_is_said_even_if_the_gate_holds():
    session = server(
        jobs=[job_row(over_budget=20)],
        segments=[segment_row(1, 400, resident=380)],
        outcome=[{"segment_no": 1, "over_budget": 20, "reason": "over the memory budget"}],
    )
    result = restore(session)
    assert "160 kB did not fit the memory budget of 1.00 GB." in result["msg"]
    assert result["segments"][0]["reason"] == "over the memory budget"
    assert result["relations"][0]["over_budget"] == 20


def test_failed_job_fails_whatever_is_resident():
    session = server(jobs=[job_row(state="failed", message="disk on fire")], segments=[segment_row(1, 400, resident=400)])
    with pytest.raises(ResidencyError, match=r"job 7 failed\. Job 7, failed: disk on fire\."):
        restore(session)


def test_job_of_another_snapshot():
    session = server(jobs=[job_row(state="running", snapshot="batch")], segments=[])
    with pytest.raises(ResidencyError, match="Job 7 restores batch@3 just now"):
        restore(session)


def test_older_generation_is_another_snapshot():
    session = server(jobs=[job_row(state="running", generation=2)], segments=[])
    with pytest.raises(ResidencyError, match="Job 7 restores warm@2 just now"):
        restore(session)


def test_named_job_brings_its_own_generation():
    session = server(jobs=[job_row(generation=2)], segments=[segment_row(1, 400, resident=400)])
    assert restore(session, job=7)["snapshot"] == "warm@2"


def test_named_job_of_another_snapshot():
    session = server(jobs=[job_row()], segments=[])
    with pytest.raises(ResidencyError, match=r"Job 7 restores warm@3, not batch\."):
        restore(session, job=7, name="batch")


def test_unknown_job():
    session = server(jobs=[[], [{"job": 1}, {"job": 2}]], segments=[])
    with pytest.raises(ResidencyError, match=r"no job 9 here; there is 1, 2\."):
        restore(session, job=9)


def test_no_wait_reports_progress():
    session = server(
        jobs=[[], [job_row(state="starting", loaded=0, settled=0, seconds=0.0)]],
        segments=[segment_row(1, 400, resident=300)],
    )
    result = restore(session, wait=False)
    assert result["changed"] and result["state"] == "starting"
    assert (result["reached"], result["residency"], result["progress"]) == (None, None, 0.0)


def test_wait_ends_with_its_timeout():
    session = server(jobs=[job_row(state="running", settled=100)], segments=[])
    with pytest.raises(ResidencyError, match=r"Not finished within wait_timeout of 1\.0 s: Job 7 restores warm@3: 25 % of") as caught:
        restore(session, wait_timeout=1)
    assert caught.value.result["state"] == "running"


def test_waiting_for_another_cluster_is_running():
    session = server(jobs=[[job_row(state="waiting", settled=0)], [job_row()]], segments=[segment_row(1, 400, resident=400)])
    assert restore(session)["state"] == "done"
    session = server(jobs=[job_row(state="waiting", settled=0)], segments=[])
    assert "Job 7 waits for another restore on this machine before warm@3" in restore(session, wait=False)["msg"]


def test_check_mode_starts_nothing():
    session = server(jobs=[], segments=[segment_row(1, 400, resident=100, gone=50)], budget=200 * 8192)
    result = restore(session, check_mode=True)
    assert result["changed"] and result["job"] is None and result["reached"] is None
    assert (result["missing"], result["over_budget"]) == (250, 50)
    assert result["msg"].startswith("Would load 1.95 MB of 3.12 MB")
    assert len(result["queries"]) == 1


def test_check_mode_with_everything_resident():
    session = server(jobs=[], segments=[segment_row(1, 400, resident=400)])
    assert not restore(session, check_mode=True)["changed"]


def test_check_mode_does_not_wait_for_a_running_job():
    session = server(jobs=[job_row(state="running", settled=100)], segments=[])
    assert restore(session, check_mode=True)["state"] == "running"


def test_every_path_has_the_same_keys():
    keys = set(_restore.empty_result()) | {"msg"}
    assert set(restore(server(jobs=[job_row()], segments=[segment_row(1, 400, resident=400)]))) == keys
    assert set(restore(server(jobs=[], segments=[segment_row(1, 400)]), check_mode=True)) == keys
    assert set(restore(server(jobs=[job_row(state="running")], segments=[]), wait=False)) == keys
