# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each event of a record by itself; what they are together, test_restarts.py tries."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _states

NOW, BEFORE = 200, 100
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": BEFORE, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}
PAID = dict(PENDING, started=NOW)
PLAY = dict(PENDING, **{"for": "play"})
POOLER = {"kind": "pgbouncer", "host": "lb1", "port": 6432, "database": "shop"}
OWN = {"kind": "/t.yml", "host": "db1"}
SERVER = {"version_num": 150004, "cluster_name": "15/main"}
WHOLE = {
    "rolling_restart": "90000", "what": "postgresql", "snapshot": "restart@3", "state": "restarting", "intent": "stopping", "finished": False, "out": True,
    "traffic": [{"kind": "haproxy", "host": "lb1", "backend": "read"}, OWN], "paused": [POOLER], "before": BEFORE, "after": NOW, "pending": PENDING,
    "server": SERVER, "residency": 99.5, "seconds": {"out": 1.5}, "remarks": ["thin"], "at": 5.5,
}
ODD = [None, True, 5, -1.5, float("nan"), float("inf"), "", "x", "\x1b[2J", [], ["x"], [[1]], [None], {}, {"x": 1}, {"host": []}, "y" * 10000, 1 << 70]


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(_states.time, "time", lambda: 9.25)


def note(record, event, **facts):
    """As the role has it: nothing but JSON, and the old record is left as it was."""
    before = copy.deepcopy(record)
    found = _states.note(record, event, facts)
    assert record == before and json.loads(json.dumps(found)) == found and found["at"] == 9.25
    return found


# --- what a host has kept can be anything ---


def test_nothing_is_wrong():
    for record in (WHOLE, {}, {"pending": {}}, {"server": {}}, dict(WHOLE, residency=None), dict(WHOLE, another=float("nan")), dict(WHOLE, intent="")):
        assert _states.fault(record) == "", record


def test_a_record_of_an_earlier_version():
    """Which had another name for it: nothing is pending that is not seen."""
    assert _states.fault({"debt": {}}) == ""
    assert _states.fault({"debt": PENDING}) == "an earlier version of the collection has written it, and has to finish what it began"


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", sorted(WHOLE))
def test_an_odd_value(name, value):
    """It is named, or can be worked with: nothing that reads a record raises anything but what it raises for its own faults."""
    record = dict(WHOLE, **{name: value})
    said = _states.fault(record)
    assert len(said) < 200 and "\x1b" not in said
    if said:
        assert name in said or name in ("paused", "traffic")
        return
    worked_with(record)


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", sorted(PENDING))
def test_an_odd_debt(name, value):
    record = dict(WHOLE, pending=dict(PENDING, **{name: value}))
    said = _states.fault(record)
    assert len(said) < 200 and "\x1b" not in said
    if not said:
        worked_with(record)
    missing = {one: PENDING[one] for one in PENDING if one != name}
    assert "%s of its pending restore is 'None'" % name == _states.fault(dict(WHOLE, pending=missing))


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", sorted(SERVER))
def test_an_odd_server(name, value):
    record = dict(WHOLE, server=dict(SERVER, **{name: value}))
    if not _states.fault(record):
        assert isinstance(value, int if name == "version_num" else str)


@pytest.mark.parametrize("record", [None, 5, "x", [], [WHOLE], True])
def test_what_is_no_object(record):
    assert _states.fault(record) == "it is not a JSON object"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "gone"}, "state is 'gone'"), ({"state": ""}, "state is ''"), ({"intent": "eating"}, "intent is 'eating'"),
        ({"before": True}, "before is 'True'"), ({"after": 1.5}, "after is '1.5'"), ({"out": 1}, "out is '1'"),
        ({"rolling_restart": 5}, "rolling_restart is '5'"),
        ({"residency": float("nan")}, "residency is 'nan'"), ({"residency": True}, "residency is 'True'"),
        ({"pending": dict(PENDING, started=True)}, "started of its pending restore is 'True'"),
        ({"pending": dict(PENDING, standby=1)}, "standby of its pending restore is '1'"),
        ({"pending": dict(PENDING, **{"for": "fun"})}, "for of its pending restore is 'fun'"), ({"pending": {"x": 1}}, "for of its pending restore is 'None'"),
        ({"paused": [5]}, "where it is out of traffic is not a list of places"),
        ({"traffic": [POOLER, "lb1"]}, "where it is out of traffic is not a list of places"),
    ],
    ids=str,
)
def test_what_is_wrong(changed, said):
    assert _states.fault(dict(WHOLE, **changed)) == said


def worked_with(record):
    found = _states.known(record)
    _states.is_pending(found, NOW), _states.open_ends(found, None), _states.way(found, NOW, "90000", False)
    for event, facts in (("begin", {"rolling_restart": "9", "what": "host"}), ("resumed", {}), ("waived", {"by": "bob"}), ("finished", {}), ("go_on", {})):
        _states.note(found, event, facts)
    if not _states.is_pending(found, NOW):
        _states.note(found, "left", {"started": NOW})


def test_no_more_is_known_than_is_read():
    more = dict(WHOLE, another=1, server=dict(SERVER, ansible_host="evil"), pending=dict(PENDING, another=1))
    assert _states.known(more) == WHOLE
    assert _states.known({}) == {} and _states.known({"pending": {}, "server": {}}) == {"pending": {}, "server": {}}


# --- what it means ---


def test_owes():
    assert not _states.is_pending({}, NOW) and not _states.is_pending({"pending": {}}, None)
    assert _states.is_pending({"pending": PENDING}, NOW) and _states.is_pending({"pending": PENDING}, None), "nobody knows what comes up"
    assert not _states.is_pending({"pending": PAID}, NOW), "with the process of before nothing was lost"
    assert _states.is_pending({"pending": dict(PAID, **{"for": "cold_test"})}, NOW), "but a cold test evicts"
    assert _states.is_pending({"pending": dict(PENDING, until=NOW)}, NOW) and _states.is_pending({"pending": dict(PENDING, until=NOW)}, None)
    assert not _states.is_pending({"pending": dict(PENDING, until=NOW - 1)}, NOW), "somebody else has restarted it, later"


@pytest.mark.parametrize(
    "record",
    [{"out": True}, {"paused": [POOLER]}, {"intent": "going in"}, {"state": "restarting"}, {"pending": PENDING}, {"pending": PENDING, "state": "done"}],
    ids=str)
def test_open_ends(record):
    assert _states.open_ends(record, NOW)


@pytest.mark.parametrize("record", [{}, {"state": "done"}, {"state": "saved", "pending": PAID}, {"out": False, "paused": [], "intent": ""}], ids=str)
def test_no_open_ends(record):
    assert not _states.open_ends(record, NOW)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "save restart restore"),
        ({"rolling_restart": "9", "state": "saved", "pending": PAID}, "save restart restore"),
        ({"rolling_restart": "9", "state": "restarting", "before": NOW, "pending": PAID}, "save restart restore"),  # it was to be stopped, and was not
        ({"rolling_restart": "9", "state": "restarting", "before": BEFORE, "pending": PENDING}, "restore again"),
        ({"rolling_restart": "9", "state": "restarted", "before": BEFORE, "pending": PENDING}, "restore again"),
        ({"rolling_restart": "9", "state": "warm", "before": BEFORE, "pending": PENDING}, "restore again"),
        ({"rolling_restart": "8", "state": "restarted", "before": BEFORE, "pending": PENDING}, "restart restore"),  # another one's: nothing is saved
        ({"rolling_restart": "9", "state": "saved", "pending": PENDING}, "restart restore"),  # restarted by others
        ({"rolling_restart": "8", "state": "done", "before": BEFORE}, "save restart restore"),
    ],
    ids=str,
)
def test_way(record, words):
    found = _states.way(record, NOW, "9", False)
    assert sorted(name for name in found if found[name]) == sorted(words.split()) and set(found) == {"save", "restart", "restore", "again"}
    # given up, nobody is restarted, and what is pending is restored all the same
    found = _states.way(record, NOW, "9", True)
    assert not found["save"] and not found["restart"] and found["restore"] == _states.is_pending(record, NOW)


# --- what happens to it ---


def test_another_roll_takes_over_what_is_begun():
    found = note(WHOLE, "begin", rolling_restart="95000", what="host")
    for name in ("intent", "out", "traffic", "paused", "pending"):
        assert found[name] == WHOLE[name]
    assert (found["rolling_restart"], found["what"], found["state"], found["remarks"], found["seconds"]) == ("95000", "host", "planned", [], {})
    assert not {"before", "after", "residency"} & set(found)


def test_what_another_roll_needs_to_start_it():
    """Beyond --limit it is still down when another rolling restart begins."""
    assert note(WHOLE, "begin", rolling_restart="95000", what="host")["server"] == SERVER


def test_which_cluster_it_belongs_to():
    """As it was written down, while it does not answer."""
    found = note(WHOLE, "begin", rolling_restart="95000", what="host", system_identifier="9")
    assert found["system_identifier"] == "9" == _states.identifier(found) and _states.known(found) == found
    assert note(found, "begin", rolling_restart="96000", what="host")["system_identifier"] == "9"
    assert _states.identifier({"pending": PENDING}) == PENDING["system_identifier"] and _states.identifier({}) == "" == _states.identifier({"pending": {}})
    assert _states.fault({"system_identifier": 9}) == "system_identifier is '9'"


def test_the_same_roll_goes_on():
    found = note(WHOLE, "begin", rolling_restart="90000", what="host")
    assert found == dict(WHOLE, what="host", remarks=[], at=9.25)
    assert note(dict(WHOLE, state="done"), "begin", rolling_restart="90000", what="host")["remarks"] == ["thin"]
    assert note({}, "begin", rolling_restart="9", what="host")["state"] == "planned"


FACTS = {name: PENDING[name] for name in PENDING if name != "for"}


def test_save():
    found = note({"state": "planned"}, "save", **dict(FACTS, started=NOW))
    assert (found["state"], found["pending"]) == ("saved", PAID)
    assert note({}, "save", **dict(FACTS, **{"for": "cold_test"}))["pending"]["for"] == "cold_test"
    assert note({"pending": PAID}, "save", **dict(FACTS, started=NOW, snapshot="restart@4"))["pending"]["snapshot"] == "restart@4"


def test_out_and_in():
    found = note({"pending": PAID}, "going_out", traffic=[POOLER, OWN])
    assert (found["intent"], found["out"], found["traffic"]) == ("going out", True, [POOLER, OWN])
    found = note(found, "out")
    assert (found["intent"], found["out"]) == ("", True)
    again = note(found, "going_out", traffic=[])
    assert (again["out"], again["traffic"]) == (True, [POOLER, OWN]), "where it was taken out before it has to be put back"
    assert note(found, "going_out", traffic=[OWN])["traffic"] == [OWN, POOLER]
    found = note(found, "going_in")
    assert (found["intent"], found["out"]) == ("going in", True)
    found = note(found, "in", started=NOW)
    assert (found["intent"], found["out"], found["traffic"], found["pending"]) == ("", False, [], {}), "it was never cold"


@pytest.mark.parametrize("started", [BEFORE, NOW])
def test_a_primary_is_in_traffic_before_it_is_warm(started):
    """Whatever was asked before its restart."""
    found = note({"state": "restarted", "out": True, "pending": PENDING, "before": BEFORE, "after": NOW}, "in", started=started)
    assert found["pending"] == PENDING
    found = note(found, "warm", residency=99.5)
    assert (found["state"], found["residency"], found["pending"]) == ("warm", 99.5, {})


def test_a_restore_is_pending_until_it_is_in_traffic():
    found = note({"state": "restarted", "out": True, "pending": PENDING}, "warm", residency=99.5)
    assert found["pending"] == PENDING
    found = note(note(found, "going_in"), "in", started=NOW)
    assert found["pending"] == {} and note(found, "done")["state"] == "done"


def test_paused_and_stopped():
    found = note({"pending": PAID}, "pausing", traffic=[POOLER])
    assert found["paused"] == [POOLER]
    found = note(found, "stopping", before=NOW, server=SERVER)
    assert (found["intent"], found["state"], found["before"], found["server"]) == ("stopping", "restarting", NOW, SERVER)
    restarted = note(found, "restarted", after=300)
    assert (restarted["state"], restarted["after"], restarted["intent"]) == ("restarted", 300, "")
    assert note(restarted, "resumed")["paused"] == []
    assert note(found, "resumed")["intent"] == "stopping", "that it may be down is not forgotten"


def test_restarted():
    for state in ("restarting", "restarted", "warm"):
        assert note({"state": state, "before": BEFORE}, "restarted", after=NOW)["state"] == "restarted"


def test_restarted_by_others():
    """While nothing was pending yet: given up, it is restored as it is."""
    assert note({"state": "saved", "pending": PENDING}, "restarted", after=NOW)["after"] == NOW


def test_left():
    found = note({"state": "restarting", "intent": "stopping", "pending": PAID}, "left", started=PAID["started"])
    assert (found["state"], found["intent"]) == ("planned", "") and not _states.open_ends(found, 300), "of a restart later nobody has to know"
    assert note({"state": "saved", "pending": PENDING}, "left", started=PENDING["started"] + 1)["pending"] == PENDING, "restarted since"


def test_waived():
    found = note({"pending": PENDING, "remarks": ["thin"]}, "waived", by="bob")
    assert found["pending"] == {} and found["remarks"] == ["thin", "bob waived the restore that was pending since 2026-11-21T06:00:00Z: restart@3."]
    assert note({"pending": {}}, "waived", by="bob") == {"pending": {}, "seconds": {}, "remarks": [], "at": 9.25}


def test_put_back():
    assert note({"pending": PENDING}, "put_back")["pending"] == PENDING, "of a rolling restart"
    assert note({"pending": dict(PENDING, **{"for": "cold_test"})}, "put_back")["pending"] == {}
    assert note({"pending": PLAY}, "put_back", snapshot="restart@3")["pending"] == {}
    for record in ({"pending": PLAY}, {"pending": PENDING}, {}):  # what the handler has restored is no longer pending
        assert note(record, "put_back", snapshot="restart@2" if record.get("pending") == PLAY else "restart@3").get("pending") == record.get("pending")


def test_finished():
    assert note({}, "finished")["finished"] is True


def test_seconds_and_remarks_are_noted_beside_it():
    """Of a phase the seconds since the event before; a clock that was set back makes none of it."""
    found = _states.note({"at": 4.0, "seconds": {"out": 1.5}, "remarks": ["one"], "intent": "going out"}, "out", None, ["thin", ""], "restart")
    assert (found["seconds"], found["remarks"], found["intent"]) == ({"out": 1.5, "restart": 5.2}, ["one", "thin"], "")
    assert _states.note(dict(found, at=99), "go_on", phase="in")["seconds"] == {"out": 1.5, "restart": 5.2, "in": 0.0}
    assert _states.note({}, "go_on", phase="in")["seconds"] == {"in": 0.0}


def test_go_on():
    assert note(WHOLE, "go_on") == dict(WHOLE, at=9.25)


def test_what_a_play_owes():
    """Nothing until it has restarted; a rolling restart goes on from it, and its own step of that is none."""
    found = _states.note({"state": "done", "rolling_restart": "9", "snapshot": "restart@1"}, "save", PLAY)
    assert (found["state"], found["snapshot"], found["pending"]["for"]) == ("done", "restart@1", "play")
    assert not _states.is_pending(found, PLAY["started"]) and _states.is_pending(found, PLAY["started"] + 1)
    rolled = note(found, "begin", rolling_restart="10", what="postgresql")
    assert _states.way(rolled, PLAY["started"] + 1, "10", False) == {"save": False, "restart": True, "restore": True, "again": False}
    assert note(found, "put_back")["pending"] == {}


def test_a_cold_test_is_no_step_of_a_roll():
    found = _states.note({"state": "done", "rolling_restart": "9", "snapshot": "restart@1"}, "save", dict(PENDING, **{"for": "cold_test"}))
    assert (found["state"], found["snapshot"], found["pending"]["for"]) == ("done", "restart@1", "cold_test")
