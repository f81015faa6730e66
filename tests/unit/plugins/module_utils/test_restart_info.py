# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _restart_info
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

NOW, BEFORE = 200, 100
ROW = {
    "application_name": "walreceiver", "synchronous": None,
    "in_recovery": True, "system_identifier": "7", "version_num": 150004, "cluster_name": "15/main", "data_directory": "/data", "started": NOW,
    "pid": 5, "extension": "1.0.0", "schema": None, "lsn": 1 << 30, "paused": False, "delay": None, "receiver": "streaming",
    "log": [],
}
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": BEFORE, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}
LEASE = {"id": "run-0a1b2c3d", "owner": "bob"}


def silent():
    raise ResidencyError("Cannot connect.")


def answer(record=None, fault="", look=None, waived=False, lease=None, **options):
    found = {"record": record, "lease": lease, "fault": fault}
    return _restart_info.answer(found, look or (lambda: dict(ROW)), "db1", waived, **options)


def test_answer():
    steps = {"save": True, "restart": True, "restore": True, "again": False}
    assert answer() == dict(ROW, kept={}, lease=None, steps=steps)
    assert answer({"rolling_restart": "9", "another": 5}, lease=LEASE) == dict(ROW, kept={"rolling_restart": "9"}, lease=LEASE, steps=steps)


def test_the_steps_are_those_of_the_roll():
    record = {"rolling_restart": "9", "state": "restarted", "before": BEFORE, "pending": PENDING}
    assert answer(record, rolling_restart="9")["steps"] == {"save": False, "restart": False, "restore": True, "again": True}
    assert answer(record, rolling_restart="8")["steps"] == {"save": False, "restart": True, "restore": True, "again": False}
    assert answer({"state": "saved"}, rolling_restart="8", abort=True)["steps"] == {"save": False, "restart": False, "restore": False, "again": False}


def test_it_is_down_and_what_is_begun_there_is_known():
    record = {"rolling_restart": "9", "state": "restarting", "intent": "stopping"}
    assert answer(record, look=silent, lease=LEASE) == {"problem": "Cannot connect.", "unread": False, "kept": record, "lease": LEASE}


@pytest.mark.parametrize(("record", "fault", "said"), [
    (None, "/s/db1.json is damaged", "/s/db1.json is damaged: check when the host was restarted and what is in traffic, then remove the file."),
    (None, "/s/db1.json cannot be read: Not a directory", "Not a directory: check that pgfleet_state_directory is a directory."),
    ({"pending": dict(PENDING, wanted=10 ** 400)}, "", "in pgfleet_state_directory is damaged (wanted of its pending restore is '"),
    ({"state": "gone"}, "", "is damaged (state is 'gone'): check when the host was restarted, then remove the file."),
])
def test_a_record_that_cannot_be_used(record, fault, said):
    """Whether the server answers or not; a primary is one all the same."""
    found = answer(record, fault, waived=True)
    assert said in found["problem"] and found["unread"] is True and found["kept"] == {}
    assert (found["in_recovery"], found["system_identifier"]) == (True, "7") and "started" not in found and "steps" not in found
    found = answer(record, fault, look=silent)
    assert said in found["problem"] and found["unread"] is True and "in_recovery" not in found


def test_what_is_owed_to_another_cluster():
    found = answer({"pending": dict(PENDING, system_identifier="8")})
    assert found["problem"] == (
        "The pending restore belongs to another cluster (system identifier 8; this one is 7). If that cluster is gone, waive it with"
        " -e pgfleet_waive=db1.")
    assert found["unread"] is False and found["system_identifier"] == "7" and "steps" not in found
    assert "problem" not in answer({"pending": dict(PENDING, system_identifier="8")}, waived=True)


@pytest.mark.parametrize("look", [None, silent])
def test_waived(look):
    """Nothing is written yet: it is still the record that the host had a moment ago."""
    found = answer({"state": "restarting", "pending": PENDING, "at": 5.5}, look=look, waived=True)["kept"]
    assert (found["pending"], found["state"], found["at"]) == ({}, "restarting", 5.5)
    assert found["remarks"] == ["This run waived the restore that was pending since 2026-11-21T06:00:00Z: restart@3."]
    assert answer({"rolling_restart": "9"}, waived=True)["kept"] == {"rolling_restart": "9"}, "there is nothing to waive"
    assert answer({"pending": PENDING}, look=look)["kept"] == {"pending": PENDING}


def test_read(tmp_path):
    """The files of the host, and the server."""
    class Session:
        def command(self, statement):
            assert "timeout" in statement

        def rows(self, statement, parameters):
            return [dict(ROW, lsn="5", pid="6", names=None, standbys=None, others=None, conninfo=None)]

        def close(self):
            self.closed = True

    session = Session()
    (tmp_path / "db1.json").write_text('{"rolling_restart": "9"}')
    (tmp_path / "db1.lease").write_text('{"id": "run-0a1b2c3d"}')
    found = _restart_info.read(lambda: session, str(tmp_path), "db1", False, "9")
    assert (found["kept"], found["lease"], found["lsn"], found["pid"]) == ({"rolling_restart": "9"}, {"id": "run-0a1b2c3d"}, 5, 6) and session.closed
    (tmp_path / "db1.json").write_text("{")
    assert _restart_info.read(lambda: session, str(tmp_path), "db1", False)["unread"] is True


@pytest.mark.parametrize(("conninfo", "name"), [
    ("", ""), ("user=x host=/tmp fallback_application_name=walreceiver sslmode=prefer", "walreceiver"),
    ("user=x application_name=db 2 fallback_application_name=walreceiver", "db 2"), ("user=x fallback_application_name=17/main", "17/main"),
])
def test_the_name_of_a_standby(conninfo, name):
    assert _restart_info._application_name(conninfo) == name


@pytest.mark.parametrize(("names", "number"), [
    ("db2", 1), ("*", 1), ("db2, db3", 1), ("2 (db2, db3)", 2), ("FIRST 3 (*)", 3), ("any 2(db2, db3)", 2), (" 'first', db2", 1), ('"2db"', 1),
])
def test_how_many_a_commit_waits_for(names, number):
    assert _restart_info._needed(names) == number


def test_last_words(tmp_path):
    """Of what was written last, in a file or in the collector's directory."""
    assert _restart_info.last_words([]) == _restart_info.last_words([str(tmp_path / "none")]) == ""
    old, new, start = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "start"
    old.write_text("FATAL:  old\nLOG:  database system is shut down\nLOG:  new\n")
    new.write_text("LOG:  starting\nFATAL:  could not map anonymous shared memory\nLOG:  database system is shut down\n")
    os.utime(old, (1, 1))
    assert _restart_info.last_words([str(tmp_path)]) == "Its log %s ends with: FATAL:  could not map anonymous shared memory" % new
    assert _restart_info.last_words([str(old)]) == "Its log %s ends with: LOG:  new" % old
    start.write_text("".join("line %d\n" % number for number in range(9)))
    os.utime(new, (2, 2))
    assert _restart_info.last_words([str(tmp_path), str(old)]) == "Its log %s ends with: line 6 / line 7 / line 8" % start


# --- waiting ---


@pytest.fixture
def looks(monkeypatch):
    """What the server is like at each look, None if it does not answer; it stays as at the last one."""
    left = []

    def server(dummy):
        row = left.pop(0) if len(left) > 1 else left[0]
        if row is None:
            raise ResidencyError("Cannot connect.")
        return dict(ROW, **row)

    monkeypatch.setattr(_restart_info, "server", server)
    monkeypatch.setattr(_restart_info, "EVERY", 0)
    return left


def test_wait_restarted(looks):
    looks[:] = [{"started": BEFORE}, None, {"started": NOW}, None]
    assert _restart_info.wait_restarted(None, "db2", BEFORE, 60) == "" and looks == [None], "the first look that sees it is the last one"
    looks[:] = [None, {"started": 1}]
    assert _restart_info.wait_restarted(None, "db2", 0, 60) == "", "of a start any process will do"


def test_it_does_not_come_back(looks):
    looks[:] = [None]
    assert _restart_info.wait_restarted(None, "db2", BEFORE, -1) == (
        "PostgreSQL on db2 does not accept connections -1 s after its restart: Cannot connect. Check its log.")
    looks[:] = [{"started": BEFORE}]
    assert _restart_info.wait_restarted(None, "db2", BEFORE, -1) == "PostgreSQL on db2 was not restarted: the same process still runs. Check its log."


def test_wait_replayed(looks):
    looks[:] = [{"lsn": 1000}, None, {"lsn": 3000, "receiver": "none"}, {"lsn": 3000, "receiver": "archive"}, None]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", 60) == "" and looks == [None]
    looks[:] = [{"in_recovery": False, "lsn": 0}, None]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", 60) == "", "what was promoted has nothing to wait for"


@pytest.mark.parametrize(("row", "said"), [
    (None, "Cannot connect."),
    ({"lsn": 1024},
     "db2 has not caught up with db1: after -1 s it is 1.00 KB behind. It receives WAL but replays it slowly: wait, or raise"
     " cache_restart_replay_timeout."),
    ({"lsn": 1024, "receiver": "none"},
     "db2 has not caught up with db1: after -1 s it is 1.00 KB behind. It receives no WAL: check its primary_conninfo and its log."),
    ({"lsn": 4096, "receiver": "none"},
     "db2 has not caught up with db1: after -1 s it is 0.00 Bytes behind. It receives no WAL: check its primary_conninfo and its log."),
])
def test_it_does_not_catch_up(looks, row, said):
    looks[:] = [row]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", -1) == said


def test_replay_that_is_paused_ends_the_wait_at_once(looks):
    looks[:] = [{"lsn": 1024, "paused": True}, {"lsn": 4096}]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", 60) == (
        "db2 has not caught up with db1: it is 1.00 KB behind. Replay is paused: run SELECT pg_wal_replay_resume().")
    looks[:] = [{"lsn": 1024, "delay": "1h"}, {"lsn": 4096}]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", 60) == (
        "db2 has not caught up with db1: it is 1.00 KB behind. It replays WAL 1h late by design (recovery_min_apply_delay): leave it out of target, or"
        " set that to 0.")
    looks[:] = [{"lsn": 4096, "paused": True}]
    assert _restart_info.wait_replayed(None, "db2", 2048, "db1", 60) == "", "it is far enough"


def test_a_server_of_another_host(tmp_path):
    """Its process is not here, or is another one."""
    here = {"pid": os.getpid(), "data_directory": os.getcwd()}
    assert _restart_info.elsewhere(here) == ""
    for other in (dict(here, data_directory=str(tmp_path)), dict(here, pid=4194304), dict(here, data_directory="/nowhere")):
        assert _restart_info.elsewhere(other).startswith("The server that answers (process %d in %s) does not run on this host:" % (
            other["pid"], other["data_directory"]))
