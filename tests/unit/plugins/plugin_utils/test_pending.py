# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is pending on a host or kept from it, for those who want to do something there."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _pending

NOW, BEFORE = 200, 100
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": BEFORE, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}
POOLER = {"kind": "pgbouncer", "host": "lb1", "port": 6432, "database": "shop"}
OWN = {"kind": "/t.yml", "host": "db1"}
WAY = {"kind": "pgbouncer", "moment": "wait", "places": [POOLER]}


def test_a_record_names_nobody_whom_the_inventory_does_not():
    configured = [dict(POOLER, socket="/run", become_user="postgres"), dict(POOLER, host="lb2")]
    way = dict(WAY, places=configured)
    known, strange = _pending.recorded({"paused": [configured[0], {"kind": "pgbouncer", "host": "evil", "port": 22}]}, "paused", [way])
    assert known == [dict(way, places=configured[:1])] and strange == ["pgbouncer on evil 22"]
    assert _pending.recorded({}, "paused", [way]) == ([], [])
    assert _pending.recorded({"paused": configured, "traffic": configured[:1]}, "paused", [way]) == ([way], [])


def test_by_whom_it_was_taken_out():
    record = {"out": True, "traffic": [{"kind": "haproxy", "host": "lb1", "backend": "read"}, OWN]}
    assert "was taken out of traffic by haproxy on lb1 read, /t.yml, which" in _pending.forgotten(record, [], "db1")
    assert _pending.forgotten(dict(record, out=False), [], "db1") == ""
    ways = [{"kind": one["kind"], "moment": "away", "places": [dict(one, sessions=5)]} for one in record["traffic"]]
    assert _pending.forgotten(record, ways, "db1") == ""
    assert "by /t.yml, which" in _pending.forgotten(record, ways[:1], "db1")


PLAY = dict(PENDING, **{"for": "play"})


@pytest.mark.parametrize(
    ("result", "test", "play"),
    [
        ({}, "", ""), ({"record": None}, "", ""), ({"record": {"pending": PLAY}}, "", ""),
        ({"record": {"pending": dict(PENDING, **{"for": "cold_test"})}}, "",
         "A cold test of db1 was not finished: run pgfleet.cache.cold_test again first, which restores restart@3, or waive that by running it with -e"
         " pgfleet_waive=db1."),
        ({"fault": "/s is damaged"}, *2 * ["/s is damaged: check what was begun on db1, then remove the file."]),
        ({"record": [1]},
         *2 * ["The record of db1 in pgfleet_state_directory is damaged (it is not a JSON object): check what was begun there, then remove the file."]),
        ({"record": {"out": True}},
         *2 * ["A rolling restart of db1 was not finished: run pgfleet.cache.rolling_restart again first, or end it by running it with"
               " -e cache_restart_abort=true."]),
        ({"record": {"pending": PENDING}},
         *2 * ["A rolling restart of db1 was not finished, and the host still has to be restored from restart@3: run pgfleet.cache.rolling_restart again"
               " first, or end it by running it with -e cache_restart_abort=true."]),
    ],
    ids=str,
)
def test_unfinished(result, test, play):
    assert (_pending.unfinished(result, "db1", "cold_test"), _pending.unfinished(result, "db1", "play")) == (test, play)


@pytest.mark.parametrize(
    ("pending", "started", "said"),
    [
        ({}, NOW, ""), (dict(PENDING, **{"for": "cold_test"}), NOW, ""), (PLAY, PLAY["started"], ""), (dict(PLAY, until=NOW - 1), NOW, ""),
        (dict(PLAY, until=NOW), NOW,
         "db1 was restarted by a play that saved restart@3, and is not as warm as before: run that play again, which restores it first, or waive that"
         " with -e pgfleet_waive=db1."),
        (dict(PLAY, system_identifier="8"), BEFORE,
         "The pending restore of db1 belongs to another cluster (system identifier 8). If that cluster is gone, waive it with -e pgfleet_waive=db1."),
    ],
    ids=str,
)
def test_not_to_be_measured(pending, started, said):
    server = {"system_identifier": "7", "started": started}
    assert _pending.not_to_be_measured({"pending": pending}, server, "db1", []) == said
    assert _pending.not_to_be_measured({"pending": pending}, server, "db1", ["db1"]) == "" == _pending.not_to_be_measured(None, server, "db1", [])


def test_a_place_is_known_by_all_that_its_kind_has(monkeypatch):
    """Also by the keys of an adapter to come."""
    monkeypatch.setattr(_adapters, "kinds", lambda contract: ["pgpool"])
    monkeypatch.setattr(_adapters, "described", lambda kind: {"name": "pgpool", "moment": "away", "required": ["host", "node"], "place": {"port": 9898}})
    place = {"kind": "pgpool", "host": "lb1", "node": 1, "port": 9898}
    record = {"out": True, "traffic": [dict(place, out=True, sessions=5)]}
    ways = [{"kind": "pgpool", "moment": "away", "places": [place, dict(place, node=2)]}]
    assert [way["places"] for way in _pending.recorded(record, "traffic", ways)[0]] == [[place]]
    assert _pending.forgotten(record, ways, "db1") == ""
    assert "pgpool on lb1" in _pending.forgotten(record, [dict(ways[0], places=[dict(place, node=2)])], "db1")


@pytest.mark.parametrize(
    ("thin", "saved"),
    [
        (False, {"snapshot": "auto@7", "digest": "ab", "wanted": 12}),
        # it has a generation of its own, which the name does not mean
        (True, {"snapshot": "auto", "digest": "", "wanted": 12}),
    ],
)
def test_saved_as(thin, saved):
    snapshot = {"name": "auto", "generation": 7, "thin": thin, "digest": "ab", "wanted": 12}
    assert _pending.saved_as(snapshot) == saved and _pending.saved_before(snapshot) == saved["snapshot"]


def test_nothing_was_saved_before():
    with pytest.raises(AnsibleFilterError, match="has saved: include that before the restart"):
        _pending.saved_before({})
