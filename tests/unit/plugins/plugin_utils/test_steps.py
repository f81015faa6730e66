# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the steps of a rolling restart decide, and what they say, word for word."""

from __future__ import annotations

import glob
import os
import re

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _pending, _steps
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import ROLES

PROXY = {"kind": "haproxy", "host": "lb1", "backend": "read"}
WAYS = _adapters.ways({"cache_restart_traffic": ["haproxy", "pgbouncer", "/t.yml"], "cache_restart_haproxy": [PROXY]}, "db1", "away")
LOST = " (a reload of HAProxy loses the state without server-state-file)"


def test_who_waits_and_who_stays_out():
    """Said before it happens, with what to type."""
    way = {"kind": "pgbouncer", "moment": "wait", "places": [{"host": "lb1", "port": 6432, "database": "shop"}, {"host": "lb2", "port": 6432, "database": ""}]}
    said = _steps.waiting("db1", [way], 300)
    assert said.startswith("db1: its clients wait at pgbouncer on lb1:6432 (shop), pgbouncer on lb2:6432 from now on, until it serves again or for 300 s")
    assert "cache_restart_abort=true" in _steps.leaving("db2")


def test_thin():
    assert _steps.thin({"thin": False, "wanted": 5}) == []
    assert _steps.thin({"thin": True, "wanted": 1280}) == ["The snapshot before the restart is thin: only 10.00 MB were cached."]


@pytest.mark.parametrize(("gate", "residency", "tried", "fails"), [
    ("fail", 50.0, 1, True), ("warn", 50.0, 9, False), ("warn", None, 1, True), ("wait", 50.0, "2", False), ("wait", 50.0, 3, True), ("wait", None, 1, True),
    ("warn", 0.0, 1, False),
])
def test_gate_fails(gate, residency, tried, fails):
    assert _steps.gate_fails(gate, residency, tried, "3") is fails


@pytest.mark.parametrize(("restore", "state", "found"), [
    (False, "warm", {"event": "left", "facts": {"started": 7}, "phase": ""}),
    (True, "warm", {"event": "done", "facts": {}, "phase": ""}),
    (True, "restarted", {"event": "ended", "facts": {"residency": 99.5}, "phase": "restore"}),
])
def test_end(restore, state, found):
    assert _steps.end({"state": state}, {"restore": restore}, {"started": 7}, {"residency": 99.5}) == found
    assert found["event"] in _states.EVENTS


def test_the_end_of_a_host_that_does_not_answer():
    """Its answer matters to nothing but what is left as it was."""
    assert _steps.end({"state": "warm"}, {"restore": True}, {"problem": "down"}, {})["event"] == "done"


def test_closing():
    seen = {"haproxy": [dict(PROXY, out=False)]}
    assert _steps.closing({"out": True}, WAYS, seen) == "Should be out of traffic, but HAProxy on lb1 sends it traffic again%s." % LOST
    assert _steps.closing({"out": False}, WAYS, seen) == _steps.closing({"out": True}, WAYS, {"haproxy": [dict(PROXY, out=True)]}) == ""
    assert _steps.closing({}, WAYS, seen) == "", "a host that was not reached has no record"


def test_taken_out_again():
    assert _steps.taken_out_again(WAYS, {"haproxy": [dict(PROXY, out=False), dict(PROXY, host="lb2", out=False)]}) == [
        "HAProxy on lb1, lb2 had put it back into traffic%s: it was taken out again." % LOST]
    assert _steps.taken_out_again(WAYS, {"haproxy": [dict(PROXY, out=None)]}) == [], "it is not known who has"


def test_an_adapter_that_is_no_haproxy(monkeypatch):
    """The remarks name its kind; one that cannot forget has nothing in parentheses."""
    other = dict(_adapters.described("haproxy"), name="Relayd")
    other.pop("forgets")
    monkeypatch.setattr(_adapters, "described", lambda kind: other)
    seen = {"haproxy": [dict(PROXY, out=False)]}
    assert _steps.closing({"out": True}, WAYS, seen) == "Should be out of traffic, but Relayd on lb1 sends it traffic again."
    assert _steps.taken_out_again(WAYS, seen) == ["Relayd on lb1 had put it back into traffic: it was taken out again."]


def test_only_what_is_recorded_is_served():
    """What an earlier run has taken the host out of, and nothing that was configured since: nowhere else would it be put back."""
    proxies = [PROXY, dict(PROXY, host="lb2"), dict(PROXY, backend="write")]
    ways = _adapters.ways({"cache_restart_traffic": ["haproxy", "/t.yml"], "cache_restart_haproxy": proxies}, "db1", "away")
    seen = {"haproxy": [dict(ways[0]["places"][1], out=False, up=True)]}
    record = _states.note({"state": "saved"}, "going_out", {"traffic": _adapters.places(ways[:1], seen)})
    assert _pending.recorded(record, "traffic", ways) == ([dict(ways[0], places=[ways[0]["places"][1]])], [])


@pytest.mark.parametrize(("record", "way", "standby", "goes_out", "files"), [
    ({}, "save restart restore", True, True, "snapshot may_go_out out stop server restarted replay gate back"),
    ({}, "save restart restore", True, False, "snapshot stop server restarted replay gate"),
    ({}, "save restart restore", False, True, "snapshot may_go_out out stop paused restarted may_go_in in gate"),
    ({}, "save restart restore", False, False, "snapshot stop paused restarted may_go_in gate"),
    ({"out": True, "debt": {"for": "roll"}}, "restart restore", True, True, "may_go_out still_out out stop server restarted replay gate back"),
    ({"out": True, "debt": {"for": "roll"}}, "restore again", True, True, "still_out out restarted replay gate back"),
    ({"out": True, "debt": {"for": "roll"}}, "restore again", False, False, "restarted may_go_in in gate"),
    ({"out": False, "debt": {"for": "play"}}, "restore", True, True, "restore_only"),
    ({"out": True}, "", True, False, "back"),
    ({}, "", True, False, ""),
])
def test_files(record, way, standby, goes_out, files):
    steps = {name: name in way.split() for name in ("save", "restart", "restore", "again")}
    assert _steps.files(record, steps, standby, goes_out, pooled=not standby) == files.split()
    assert _steps.in_order([[], files.split()]) == files.split(), "the order that all hosts of a batch have"


# Which variable has the places of each step that changes traffic
CHANGED = {
    "out.yml": ("out", "__cache_restart_back"), "out_again.yml": ("out", "__cache_restart_back_in"), "in.yml": ("in", "__cache_restart_back"),
    "paused.yml": ("out", "__cache_restart_waits"), "resume.yml": ("in", "__cache_restart_waits"),
}


def included(tasks):
    """The tasks of a file, with those of its blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from included(task.get(part, []))


def test_the_steps_serve_what_is_recorded():
    """Each, and no other, of the role's files; pausing is recorded as a whole immediately before, and resume.yml is given what was."""
    found, variables = {}, {}
    for path in glob.glob(os.path.join(ROLES, "cache_restart/tasks/*.yml")):
        with open(path, encoding="utf-8") as file:
            for task in included(yaml.safe_load(file)):
                variables.update(task.get("vars") or {})
                step = re.search(r"adapters\('file', 'traffic', '(out|in)'\)", str(task.get("ansible.builtin.include_tasks")))
                if step:
                    found[os.path.basename(path)] = (step.group(1), re.fullmatch(r"{{ (\w+) }}", task["loop"]).group(1))
    assert found == CHANGED
    with open(os.path.join(ROLES, "cache_restart/vars/main.yml"), encoding="utf-8") as file:
        variables.update(yaml.safe_load(file))
    assert "roll('recorded', 'traffic', " in variables["__cache_restart_back"] and "roll('recorded', 'paused', " in variables["__cache_restart_paused"]
    assert variables["__cache_restart_back_in"].startswith("{{ __cache_restart_back | pgfleet.cache.adapters('back_in', ")
