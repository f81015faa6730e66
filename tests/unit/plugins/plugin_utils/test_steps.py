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
    assert _steps.taken_out_again(WAYS, seen) == ["Relayd on lb1 had put it back into traffic: it was taken out again."]


def test_only_what_is_recorded_is_served():
    """What an earlier run has taken the host out of, and nothing that was configured since: nowhere else would it be put back."""
    proxies = [PROXY, dict(PROXY, host="lb2"), dict(PROXY, backend="write")]
    ways = _adapters.ways({"cache_restart_traffic": ["haproxy", "/t.yml"], "cache_restart_haproxy": proxies}, "db1", "away")
    seen = {"haproxy": [dict(ways[0]["places"][1], out=False, up=True)]}
    record = _states.note({"state": "saved"}, "going_out", {"traffic": _adapters.places(ways[:1], seen)})
    assert _pending.recorded(record, "traffic", ways) == ([dict(ways[0], places=[ways[0]["places"][1]])], [])


# Which variable has the places of each step that changes traffic
CHANGED = {
    "out_of_traffic.yml": ("out", "__cache_restart_back"), "still_out.yml": ("out", "__cache_restart_back_in"),
    "into_traffic.yml": ("in", "__cache_restart_back"), "pause.yml": ("out", "__cache_restart_waits"),
    "resume.yml": ("in", "__cache_restart_waits"),
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
                    found[os.path.basename(path)] = (step.group(1), re.fullmatch(r"{{ (.+) }}", task["loop"]).group(1))
    assert found == CHANGED
    with open(os.path.join(ROLES, "cache_restart/vars/main.yml"), encoding="utf-8") as file:
        variables.update(yaml.safe_load(file))
    for name, places in (("back", "traffic"), ("paused", "paused")):
        assert "rolling_restart('recorded', '%s', " % places in variables["__cache_restart_" + name]
    assert variables["__cache_restart_back_in"].startswith("{{ __cache_restart_back | pgfleet.cache.adapters('back_in', ")


def test_no_task_file_has_a_name_of_the_users():
    """In a role, Ansible looks for what a user's task file includes by a relative name among the role's own files first."""
    including = ("cache_restart", "cache_extension", "cache_cold_test")
    names = {os.path.basename(path) for role in including for path in glob.glob(os.path.join(ROLES, role, "tasks/*.yml"))}
    assert not names & {one + ".yml" for one in (
        "check", "disable", "drain", "enable", "in", "out", "promote", "release", "reload", "restart", "smoke", "snapshot", "start", "stop", "switchover")}
