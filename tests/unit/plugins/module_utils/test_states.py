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
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

NOW, BEFORE = 200, 100
DEBT = {
    "for": "roll", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": BEFORE, "system_identifier": "7", "standby": True, "by": "alice",
    "since": "2026-11-21T06:00:00Z",
}
PAID = dict(DEBT, started=NOW)
PLAY = dict(DEBT, **{"for": "play"})
POOLER = {"kind": "pgbouncer", "host": "lb1", "port": 6432, "database": "shop"}
OWN = {"kind": "/t.yml", "host": "db1"}
SERVER = {"version_num": 150004, "cluster_name": "15/main"}
WHOLE = {
    "roll": "90000", "what": "postgresql", "snapshot": "restart@3", "state": "restarting", "intent": "stopping", "finished": False, "out": True,
    "traffic": [{"kind": "haproxy", "host": "lb1", "backend": "read"}, OWN], "paused": [POOLER], "before": BEFORE, "after": NOW, "debt": DEBT,
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


def refuses(record, event, **facts):
    with pytest.raises(ResidencyError, match=r"does not allow '.*' now: this is a bug in the collection"):
        _states.note(record, event, facts)


# --- what a host has kept can be anything ---


def test_nothing_is_wrong():
    for record in (WHOLE, {}, {"debt": {}}, {"server": {}}, dict(WHOLE, residency=None), dict(WHOLE, another=float("nan")), dict(WHOLE, intent="")):
        assert _states.fault(record) == "", record


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
@pytest.mark.parametrize("name", sorted(DEBT))
def test_an_odd_debt(name, value):
    record = dict(WHOLE, debt=dict(DEBT, **{name: value}))
    said = _states.fault(record)
    assert len(said) < 200 and "\x1b" not in said
    if not said:
        worked_with(record)
    missing = {one: DEBT[one] for one in DEBT if one != name}
    assert "%s of its debt is 'None'" % name == _states.fault(dict(WHOLE, debt=missing))


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
        ({"before": True}, "before is 'True'"), ({"after": 1.5}, "after is '1.5'"), ({"out": 1}, "out is '1'"), ({"roll": 5}, "roll is '5'"),
        ({"residency": float("nan")}, "residency is 'nan'"), ({"residency": True}, "residency is 'True'"),
        ({"debt": dict(DEBT, started=True)}, "started of its debt is 'True'"), ({"debt": dict(DEBT, standby=1)}, "standby of its debt is '1'"),
        ({"debt": dict(DEBT, **{"for": "fun"})}, "for of its debt is 'fun'"), ({"debt": {"x": 1}}, "for of its debt is 'None'"),
        ({"paused": [5]}, "where it is out of traffic is not a list of places"),
        ({"traffic": [POOLER, "lb1"]}, "where it is out of traffic is not a list of places"),
    ],
    ids=str,
)
def test_what_is_wrong(changed, said):
    assert _states.fault(dict(WHOLE, **changed)) == said


def worked_with(record):
    found = _states.known(record)
    _states.owes(found, NOW), _states.open_ends(found, None), _states.way(found, NOW, "90000", False)
    for event, facts in (("begin", {"roll": "9", "what": "host"}), ("resumed", {}), ("waived", {"by": "bob"}), ("finished", {}), ("go_on", {})):
        _states.note(found, event, facts)
    if not _states.owes(found, NOW):
        _states.note(found, "left", {"started": NOW})


def test_no_more_is_known_than_is_read():
    more = dict(WHOLE, another=1, server=dict(SERVER, ansible_host="evil"), debt=dict(DEBT, another=1))
    assert _states.known(more) == WHOLE
    assert _states.known({}) == {} and _states.known({"debt": {}, "server": {}}) == {"debt": {}, "server": {}}


# --- what it means ---


def test_owes():
    assert not _states.owes({}, NOW) and not _states.owes({"debt": {}}, None)
    assert _states.owes({"debt": DEBT}, NOW) and _states.owes({"debt": DEBT}, None), "nobody knows what comes up"
    assert not _states.owes({"debt": PAID}, NOW), "with the process of before nothing was lost"
    assert _states.owes({"debt": dict(PAID, **{"for": "cold_test"})}, NOW), "but a cold test evicts"
    assert _states.owes({"debt": dict(DEBT, until=NOW)}, NOW) and _states.owes({"debt": dict(DEBT, until=NOW)}, None)
    assert not _states.owes({"debt": dict(DEBT, until=NOW - 1)}, NOW), "somebody else has restarted it, later"


@pytest.mark.parametrize(
    "record", [{"out": True}, {"paused": [POOLER]}, {"intent": "going in"}, {"state": "restarting"}, {"debt": DEBT}, {"debt": DEBT, "state": "done"}], ids=str)
def test_open_ends(record):
    assert _states.open_ends(record, NOW)


@pytest.mark.parametrize("record", [{}, {"state": "done"}, {"state": "saved", "debt": PAID}, {"out": False, "paused": [], "intent": ""}], ids=str)
def test_no_open_ends(record):
    assert not _states.open_ends(record, NOW)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "save restart restore"),
        ({"roll": "9", "state": "saved", "debt": PAID}, "save restart restore"),
        ({"roll": "9", "state": "restarting", "before": NOW, "debt": PAID}, "save restart restore"),  # it was to be stopped, and was not
        ({"roll": "9", "state": "restarting", "before": BEFORE, "debt": DEBT}, "restore again"),
        ({"roll": "9", "state": "restarted", "before": BEFORE, "debt": DEBT}, "restore again"),
        ({"roll": "9", "state": "warm", "before": BEFORE, "debt": DEBT}, "restore again"),
        ({"roll": "8", "state": "restarted", "before": BEFORE, "debt": DEBT}, "restart restore"),  # another roll's: no snapshot of what is cold
        ({"roll": "9", "state": "saved", "debt": DEBT}, "restart restore"),  # restarted by others
        ({"roll": "8", "state": "done", "before": BEFORE}, "save restart restore"),
    ],
    ids=str,
)
def test_way(record, words):
    found = _states.way(record, NOW, "9", False)
    assert sorted(name for name in found if found[name]) == sorted(words.split()) and set(found) == {"save", "restart", "restore", "again"}
    # given up, nobody is restarted, and what is owed is restored all the same
    found = _states.way(record, NOW, "9", True)
    assert not found["save"] and not found["restart"] and found["restore"] == _states.owes(record, NOW)


# --- what happens to it ---


def test_another_roll_takes_over_what_is_begun():
    found = note(WHOLE, "begin", roll="95000", what="host")
    for name in ("intent", "out", "traffic", "paused", "debt"):
        assert found[name] == WHOLE[name]
    assert (found["roll"], found["what"], found["state"], found["remarks"], found["seconds"]) == ("95000", "host", "planned", [], {})
    assert not {"before", "after", "residency"} & set(found)


def test_what_another_roll_needs_to_start_it():
    """Beyond --limit it is still down when another roll begins."""
    assert note(WHOLE, "begin", roll="95000", what="host")["server"] == SERVER


def test_which_cluster_it_belongs_to():
    """As it was written down, while it does not answer."""
    found = note(WHOLE, "begin", roll="95000", what="host", system_identifier="9")
    assert found["system_identifier"] == "9" == _states.identifier(found) and _states.known(found) == found
    assert note(found, "begin", roll="96000", what="host")["system_identifier"] == "9"
    assert _states.identifier({"debt": DEBT}) == DEBT["system_identifier"] and _states.identifier({}) == "" == _states.identifier({"debt": {}})
    assert _states.fault({"system_identifier": 9}) == "system_identifier is '9'"


def test_the_same_roll_goes_on():
    found = note(WHOLE, "begin", roll="90000", what="host")
    assert found == dict(WHOLE, what="host", remarks=[], at=9.25)
    assert note(dict(WHOLE, state="done"), "begin", roll="90000", what="host")["remarks"] == ["thin"]
    assert note({}, "begin", roll="9", what="host")["state"] == "planned"


FACTS = {name: DEBT[name] for name in DEBT if name != "for"}


def test_save():
    found = note({"state": "planned"}, "save", **dict(FACTS, started=NOW))
    assert (found["state"], found["debt"]) == ("saved", PAID)
    assert note({}, "save", **dict(FACTS, **{"for": "cold_test"}))["debt"]["for"] == "cold_test"
    assert note({"debt": PAID}, "save", **dict(FACTS, started=NOW, snapshot="restart@4"))["debt"]["snapshot"] == "restart@4"
    refuses({"debt": DEBT}, "save", **dict(FACTS, started=NOW))


def test_out_and_in():
    refuses({}, "out")
    refuses({"intent": "going in"}, "out")
    found = note({"debt": PAID}, "going_out", traffic=[POOLER, OWN])
    assert (found["intent"], found["out"], found["traffic"]) == ("going out", True, [POOLER, OWN])
    found = note(found, "out")
    assert (found["intent"], found["out"]) == ("", True)
    again = note(found, "going_out", traffic=[])
    assert (again["out"], again["traffic"]) == (True, [POOLER, OWN]), "where it was taken out before it has to be put back"
    assert note(found, "going_out", traffic=[OWN])["traffic"] == [OWN, POOLER]
    refuses(dict(found, paused=[POOLER]), "going_in")
    found = note(found, "going_in")
    assert (found["intent"], found["out"]) == ("going in", True)
    found = note(found, "in", started=NOW)
    assert (found["intent"], found["out"], found["traffic"], found["debt"]) == ("", False, [], {}), "it was never cold"


@pytest.mark.parametrize("started", [BEFORE, NOW])
def test_a_primary_is_in_traffic_before_it_is_warm(started):
    """Whatever was asked before its restart."""
    found = note({"state": "restarted", "out": True, "debt": DEBT, "before": BEFORE, "after": NOW}, "in", started=started)
    assert found["debt"] == DEBT
    found = note(found, "warm", residency=99.5)
    assert (found["state"], found["residency"], found["debt"]) == ("warm", 99.5, {})


def test_a_standby_is_owed_until_it_is_in_traffic():
    found = note({"state": "restarted", "out": True, "debt": DEBT}, "warm", residency=99.5)
    assert found["debt"] == DEBT
    refuses(found, "done")
    found = note(note(found, "going_in"), "in", started=NOW)
    assert found["debt"] == {} and note(found, "done")["state"] == "done"


def test_paused_and_stopped():
    found = note({"debt": PAID}, "pausing", traffic=[POOLER])
    assert found["paused"] == [POOLER]
    refuses({}, "stopping", before=NOW, server=SERVER)
    refuses({"debt": {}}, "stopping", before=NOW, server=SERVER)
    found = note(found, "stopping", before=NOW, server=SERVER)
    assert (found["intent"], found["state"], found["before"], found["server"]) == ("stopping", "restarting", NOW, SERVER)
    refuses(found, "restarted", after=NOW)
    restarted = note(found, "restarted", after=300)
    assert (restarted["state"], restarted["after"], restarted["intent"]) == ("restarted", 300, "")
    assert note(restarted, "resumed")["paused"] == []
    assert note(found, "resumed")["intent"] == "stopping", "that it may be down is not forgotten"


def test_restarted():
    for state in ("planned", "saved", "done"):
        refuses({"state": state, "before": BEFORE}, "restarted", after=NOW)
    for state in ("restarting", "restarted", "warm"):
        assert note({"state": state, "before": BEFORE}, "restarted", after=NOW)["state"] == "restarted"


def test_restarted_by_others():
    """While it was owed nothing yet: given up, it is restored as it is."""
    assert note({"state": "saved", "debt": DEBT}, "restarted", after=NOW)["after"] == NOW


@pytest.mark.parametrize("changed", [{"state": "restarted"}, {"out": True}, {"debt": PAID}, {"paused": [POOLER]}], ids=str)
def test_done(changed):
    refuses(dict({"state": "warm"}, **changed), "done")


def test_left():
    found = note({"state": "restarting", "intent": "stopping", "debt": PAID}, "left", started=PAID["started"])
    assert (found["state"], found["intent"]) == ("planned", "") and not _states.open_ends(found, 300), "of a restart later nobody has to know"
    refuses({"state": "saved", "debt": DEBT}, "left", started=DEBT["started"] + 1)


def test_waived():
    found = note({"debt": DEBT, "remarks": ["thin"]}, "waived", by="bob")
    assert found["debt"] == {} and found["remarks"] == ["thin", "bob waived the restore that was pending since 2026-11-21T06:00:00Z: restart@3."]
    assert note({"debt": {}}, "waived", by="bob") == {"debt": {}, "seconds": {}, "remarks": [], "at": 9.25}


def test_put_back():
    refuses({"debt": DEBT}, "put_back")
    refuses({}, "put_back")
    assert note({"debt": dict(DEBT, **{"for": "cold_test"})}, "put_back")["debt"] == {}
    assert note({"debt": PLAY}, "put_back", snapshot="restart@3")["debt"] == {}
    for record in ({"debt": PLAY}, {"debt": DEBT}, {}):  # what the handler has restored is no longer what is owed
        assert note(record, "put_back", snapshot="restart@2" if record.get("debt") == PLAY else "restart@3").get("debt") == record.get("debt")


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
    """Nothing until it has restarted; a roll goes on from it, and its own step of the roll is none."""
    found = _states.note({"state": "done", "roll": "9", "snapshot": "restart@1"}, "save", PLAY)
    assert (found["state"], found["snapshot"], found["debt"]["for"]) == ("done", "restart@1", "play")
    assert not _states.owes(found, PLAY["started"]) and _states.owes(found, PLAY["started"] + 1)
    rolled = note(found, "begin", roll="10", what="postgresql")
    assert _states.way(rolled, PLAY["started"] + 1, "10", False) == {"save": False, "restart": True, "restore": True, "again": False}
    assert note(found, "put_back")["debt"] == {}


def test_a_cold_test_is_no_step_of_a_roll():
    found = _states.note({"state": "done", "roll": "9", "snapshot": "restart@1"}, "save", dict(DEBT, **{"for": "cold_test"}))
    assert (found["state"], found["snapshot"], found["debt"]["for"]) == ("done", "restart@1", "cold_test")
