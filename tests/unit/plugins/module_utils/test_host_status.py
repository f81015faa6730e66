# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _host_status
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, snapshot_row

NOW, BEFORE = 200, 100
DATABASE = {
    "what": "database", "database": 5, "blocks": 1000, "in_page_cache": 900, "in_shared_buffers": 100, "in_both": 50, "dirty_in_page_cache": 0,
    "dirty_in_shared_buffers": 3,
}
RESTORE = {"snapshot": "warm@3", "state": "done", "ended": 600.0}
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": BEFORE, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}
COLD = "restart@3 is not restored (pending since 2026-11-21T06:00:00Z)"
AGAIN = "Run pgfleet.cache.rolling_restart again: it was not finished, and %s."
DOWN = NotRunningError("Cannot connect to PostgreSQL: no. Start PostgreSQL.")
LEASE = {"id": "run-0a1b2c3d", "owner": "bob"}


@pytest.fixture
def status(tmp_path, monkeypatch):
    def read(record=None, snapshots=None, error=None, attached=None, lease=None, **answers):
        """Of a host with this record: ``error`` of the login, ``attached`` of the search for the extension."""
        def attach(session):
            if attached:
                raise attached

        def log_in():
            if error:
                raise error
            return Session(**dict({
                "pg_control_system": [{"in_recovery": True, "system_identifier": "7", "started": NOW}],
                "FROM relations": [DATABASE], "residency_jobs": [RESTORE],
                "residency_snapshots()": [snapshot_row(age=7200.5)] if snapshots is None else snapshots,
                "residency_snapshot_segments": [{"wanted": 400, "resident": 285, "gone": 100}],
                "residency_worker": [{"state": "not preloaded", "failures": 0, "message": None}],
            }, **answers))

        monkeypatch.setattr(_host_status, "attach_extension", attach)
        for ending, content in ((".json", record), (".lease", lease)):
            if content is not None:
                (tmp_path / ("db2" + ending)).write_text(json.dumps(content))
        return _host_status.status(log_in, str(tmp_path), "db2")

    return read


def test_all_is_well(status):
    found = status(lease=LEASE)
    assert set(found) == {*_host_status.empty_result(), "msg"} and found["msg"] == "Nothing is to be done on db2."
    assert (found["standby"], found["restore"], found["lease"], found["left"], found["to_do"], found["remarks"]) == (True, RESTORE, LEASE, [], "", [])
    assert found["snapshot"] == {"name": "warm@3", "age": 7200.5, "thin": False, "residency": 95.0}
    assert (found["total"]["blocks"], found["total"]["in_page_cache"], found["total"]["in_shared_buffers"]) == (1000, 900, 100)


def test_the_newest_snapshot_that_can_be_used(status):
    later = datetime(2026, 11, 21, tzinfo=timezone.utc)
    found = status(snapshots=[
        snapshot_row("restart", 1, taken_at=later, thin=True, age=90000.0), snapshot_row("warm", 3),
        snapshot_row("x", problem="damaged", taken_at=None, age=None)])
    assert found["snapshot"]["name"] == "restart@1" and found["to_do"] == ""
    assert found["remarks"] == ["restart@1 is older than a day.", "restart@1 is thin: it holds less than half of the fullest generation."]


@pytest.mark.parametrize(("options", "to_do"), [
    ({"snapshots": []}, "Run pgfleet.cache.snapshot when the caches are warm: there is no snapshot."),
    ({"residency_worker": [{"state": "waiting", "failures": 0, "message": None}]}, ""),
    ({"residency_worker": [{"state": "stopped", "failures": 3, "message": "no space"}]},
     "Correct what keeps PostgreSQL from saving its caches: no space (3 times in a row)."),
    ({"residency_worker": [{"state": "stopped", "failures": 0, "message": None}]}, _host_status._STOPPED),
    ({"attached": NotInstalledError("Run pgfleet.cache.install.")}, "Run pgfleet.cache.install."),
    ({"error": DOWN}, str(DOWN)),
    ({"record": {"pending": PENDING}}, AGAIN % COLD),
    ({"record": {"pending": dict(PENDING, started=NOW)}}, ""),
    ({"record": {"out": True, "paused": [{"kind": "pgbouncer"}]}}, AGAIN % "db2 is out of traffic and its clients may be paused"),
    ({"record": {"out": True, "intent": "going in"}}, AGAIN % "db2 may be out of traffic"),
    ({"record": {"state": "restarting", "intent": "stopping"}}, AGAIN % "the restart of db2 is not recorded"),
    ({"record": {"state": "restarting", "intent": "stopping"}, "error": DOWN}, AGAIN % "PostgreSQL is stopped"),
    ({"record": {"pending": PENDING}, "error": DOWN}, "%s %s" % (DOWN, AGAIN % COLD)),
    ({"record": {"pending": dict(PENDING, **{"for": "cold_test"})}, "error": DOWN},
     "Run pgfleet.cache.cold_test -e target=db2 again: it was not finished, and PostgreSQL is stopped and %s." % COLD),
    ({"record": {"pending": dict(PENDING, **{"for": "play"})}},
     "Run the play that restarted db2 again: %s. Or waive that with -e pgfleet_waive=db2." % COLD),
    ({"record": {"rolling_restart": str(int(time.time())), "state": "planned"}}, AGAIN % "db2 is not restarted yet"),
    ({"record": {"rolling_restart": str(int(time.time())), "state": "planned", "finished": True}}, ""),
    ({"record": {"rolling_restart": str(int(time.time()) - 90000), "state": "planned"}}, ""),
    ({"record": {"rolling_restart": "9" * 400, "state": "planned"}}, ""),
    ({"record": {"rolling_restart": str(int(time.time())), "state": "done"}}, ""),
])
def test_what_is_to_be_done(status, options, to_do):
    found = status(**options)
    assert found["to_do"] == to_do and (found["msg"] == to_do or not to_do)
    assert all(one in to_do for one in found["left"])


@pytest.mark.parametrize(("record", "error", "said"), [
    ({"state": "warmer"}, None, "is damaged (state is 'warmer')"), ({"state": "warmer"}, DOWN, "is damaged (state is 'warmer')"),
    ([], None, "db2.json is damaged"), ({"pending": dict(PENDING, system_identifier="8")}, None, "The pending restore belongs to another cluster"),
])
def test_a_record_that_cannot_be_used(status, record, error, said):
    found = status(record=record, error=error)
    assert said in found["to_do"] and (found["total"] is None) == bool(error)


def test_a_server_that_cannot_be_queried_is_an_error_with_what_is_known(status):
    with pytest.raises(ResidencyError, match="starting up") as caught:
        status(record={"out": True}, error=ResidencyError("The database system is starting up."))
    assert caught.value.result["left"] == ["db2 is out of traffic"] and caught.value.result["to_do"] == ""


def test_text_of_the_record_is_printable(status):
    assert status(record={"pending": dict(PENDING, snapshot="\x1b[2J" * 100)})["to_do"].isprintable()
