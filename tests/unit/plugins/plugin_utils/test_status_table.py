# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease, _status_table, _tables, _verdicts
from ansible_collections.pgfleet.cache.tests.unit.plugins.plugin_utils.test_tables import ODD, ended

RESULT = {
    "standby": True, "total": {"blocks": 131072, "in_page_cache": 117964, "in_shared_buffers": 16384}, "lease": None, "left": [], "remarks": [], "to_do": "",
    "snapshot": {"name": "warm@3", "age": 7200.5, "thin": False, "residency": 94.61}, "restore": {"snapshot": "warm@3", "state": "done", "ended": 600.2},
}
ROW = "db1   standby    128 MB  12 %    922 MB  89 %  warm@3                2 h   94.61 %  warm@3 done 10 min ago"
ALICE = {"id": "run-1a", "owner": "alice", "controller": "ctl\x1b9", "pid": 1, "what": "rolling_restart", "since": "now"}
AT_WORK = "Another run is at work: alice on ctl\\x1b9 (rolling_restart, process 1, since now)."


def row(verdict="done", message="", **changed):
    lines, odd = _tables.table(_status_table.TABLE, {"db1": ended(dict(RESULT, **changed), verdict, message)}, False)
    assert lines[1].isprintable() and not odd
    return lines[1]


def test_row():
    assert row() == ROW
    assert row(remarks=["It is old."]) == ROW + "   It is old."
    assert row("to_do", "Run it.", left=["x"], remarks=["It is old."]) == ROW + "   Run it. It is old."
    assert "warm@3 (thin)" in row(snapshot=dict(RESULT["snapshot"], thin=True))
    assert row(restore=dict(RESULT["restore"], state="holding", ended=None)).endswith("  warm@3 holding")
    assert row("failed", "It is starting up.", left=["x"]).endswith("  It is starting up. Not finished: x.")
    nothing = row("failed", "No.", standby=None, total=None, snapshot=None, restore=None)
    assert nothing.split() == ["db1", *["-"] * 7, "No."]


def test_another_run_is_at_work():
    assert AT_WORK in row(lease=ALICE, left=["db1 is out of traffic", "its clients may be paused"])
    assert row(lease=ALICE, left=["db1 is out of traffic"]).endswith("-e pgfleet_take_over=run-1a. Not finished: db1 is out of traffic.")
    assert _lease.at_work(None) == _lease.at_work({}) == _lease.at_work("x") == ""


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("key", sorted(set(RESULT) - {"to_do"}))
def test_an_odd_value_costs_only_its_own_row(key, value):
    hosts = {"db0": ended(RESULT), "db1": ended(dict(RESULT, **{key: value})), "db2": ended(RESULT)}
    lines, odd = _tables.table(_status_table.TABLE, hosts, False)
    assert [lines[1], lines[3]] == [ROW.replace("db1", "db0"), ROW.replace("db1", "db2")]
    assert set(odd) <= {"db1"} and lines[2].isprintable()
    assert _verdicts.verdict("db1", {"cache_status_result": hosts["db1"]["result"]}, "status")["verdict"] in ("done", "to_do")


def gone(**changed):
    """The lease of a process of this controller that has ended."""
    return dict(_lease.mine("rolling_restart"), pid=4194304, **changed)


@pytest.mark.parametrize(("changed", "verdict", "message"), [
    ({}, "done", ""),
    ({"to_do": "Run\nit."}, "to_do", "Run it."),
    ({"to_do": "Run it.", "lease": ALICE}, "done", ""),
    ({"to_do": "Run it.", "lease": gone()}, "to_do", "Run it."),
    ({"lease": gone()}, "to_do", "Run pgfleet.cache.rolling_restart again: it was interrupted."),
    ({"lease": gone(what="; rm -r /")}, "done", ""),
    ({"failed": True, "msg": "No.", "to_do": "Run it."}, "failed", "No."),
])
def test_verdict(changed, verdict, message):
    found = _verdicts.verdict("db1", {"cache_status_result": dict(RESULT, **changed)}, "status")
    assert (found["verdict"], found["message"]) == (verdict, message)
    assert _verdicts.not_done({"db1": found}) == ([] if verdict == "done" else ["db1"])
