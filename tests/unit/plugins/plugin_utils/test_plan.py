# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan with the variables of all hosts; test_roll.py has the order of the hosts."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.modules import restart_plan
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan, _rolling_restart

HOSTS = ["db1", "db2", "db3"]


def answers(**changed):
    return {
        host: {"in_recovery": host != "db1", "system_identifier": "7", "started": 1, "kept": {}, "lease": None, **changed.get(host, {})} for host in HOSTS
    }


def variables(found):
    return {host: {"cache_restart_host": {"what": "postgresql"}, "cache_restart_answers": registered({host: found[host]})} for host in HOSTS}


def registered(found):
    """As a loop registers the answers of hosts."""
    return {"results": [{"answer": one, "__cache_restart_each": host, "failed": False} for host, one in found.items()], "changed": False}


def plan(found=None, waived=(), foretold=False, **options):
    return _plan.planned(HOSTS, 100000.7, variables(found or answers()), _plan.Options(**options), waived, foretold)


def test_gathered():
    """Each knows itself best. Who has not answered may be a primary: it is in the plan, and has no lease."""
    given = dict(variables(answers(db2={"kept": {"paused": [{"host": "lb1"}]}})), db3={})
    given["db1"]["cache_restart_answers"] = registered(answers())
    found = _plan.gathered(HOSTS, given, [])
    assert found["answers"]["db2"]["kept"] == {"paused": [{"host": "lb1"}]} and "failed" not in found["answers"]["db1"]
    assert (found["answers"]["db3"]["problem"], found["reached"]) == ("unreachable: it was not read", ["db1", "db2"])


def test_what_cannot_wait():
    paused, down = {"kept": {"paused": [{"host": "lb1"}]}}, {"problem": "Cannot connect.", "kept": {"intent": "stopping", "state": "restarting"}}
    given = variables(answers(db1={"kept": {"state": "saved"}}, db2=paused, db3=down))
    assert _plan.gathered(HOSTS, given, [])["half_done"] == ["db2", "db3"] and _plan.gathered(HOSTS, given, ["db1"])["half_done"] == HOSTS


def test_a_host_that_is_not_reached():
    """It gets no lease and no record; one whose server is down does."""
    found = plan(answers(db2={"problem": "unreachable: no route"}, db3={"problem": "Cannot connect."}))
    assert found["reached"] == ["db1", "db3"] and set(found["answers"]) == set(HOSTS)


def test_the_primary_comes_last():
    found = plan()
    assert (found["batches"], found["last"], found["problem"], found["abort"]) == ([["db2"], ["db3"]], "db1", "", False)
    only = plan(only=["db3"])
    assert (only["batches"], only["last"], only["check"]) == ([["db3"]], "", ["db3"])
    assert found["answers"] == answers() and found["check"] == HOSTS


def test_the_result_is_documented():
    assert set(plan()) == set(yaml.safe_load(restart_plan.RETURN))
    assert set(_plan.Options._fields) < set(yaml.safe_load(restart_plan.DOCUMENTATION)["options"])


def test_two_clusters_are_refused_with_what_to_run():
    found = plan(answers(db2={"system_identifier": "8"}))
    assert found["problem"] == (
        "target has 2 clusters, and a rolling restart has one. Run the playbook once for each: -e target=db1:db3, -e target=db2.")
    silent = {"problem": "Cannot connect.", "system_identifier": None}
    assert "clusters" not in plan(answers(db2=silent))["problem"], "it could belong to this one"
    assert "2 clusters" in plan(answers(db2=dict(silent, kept={"system_identifier": "8"})))["problem"], "its record says which it is"


def test_what_cannot_be_planned():
    unread = answers(db3={"problem": "damaged", "unread": True})
    assert plan(unread)["problem"] == "db3: damaged"
    assert plan(waived=["db9"])["problem"] == "pgfleet_waive names hosts that are not in target: db9."
    strange = plan(only=["db2", "db*"])
    assert (strange["problem"], strange["batches"], strange["last"]) == ("cache_restart_only names hosts that are not in target: db*.", [], "")


STOPPED = {
    "rolling_restart": "90000", "state": "restarting", "intent": "stopping", "before": 1, "system_identifier": "7",
    "server": {"version_num": 150004, "cluster_name": "15/main", "standby": True},
}
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": 1, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}


def down(**kept):
    return {"problem": "Cannot connect.", "msg": "Cannot connect.", "in_recovery": None, "system_identifier": None, "kept": dict(STOPPED, **kept)}


def test_check_mode_foretells_what_a_run_would_start():
    found = plan(answers(db2=down(pending=PENDING)), foretold=True)
    one = found["answers"]["db2"]
    assert (one["stopped"], one["in_recovery"], one["system_identifier"], one["version_num"]) == (True, True, "7", 150004)
    assert "problem" not in one and "msg" not in one
    assert (found["problem"], found["standbys"], found["batches"], found["check"]) == ("", ["db2", "db3"], [["db2"], ["db3"]], ["db1", "db3"])
    assert _rolling_restart.preview("db2", {}, found) == (
        "PostgreSQL is stopped since an interrupted run and would be started first. Already restarted: would only be restored from restart@3.")
    assert "stopped" not in plan(answers(db2=down()))["answers"]["db2"], "a run has started it before it plans"
    assert "stopped" not in plan(answers(db2=down()), foretold=True, only=["db1", "db3"])["answers"]["db2"], "nobody would start it"


@pytest.mark.parametrize("changed", [
    dict(down(), unread=True),
    dict(down(), kept={"state": "saved"}),  # no run has stopped it
    down(server={"version_num": 150004, "cluster_name": "15/main", "standby": False}),  # beside the primary that there is
], ids=str)
def test_check_mode_foretells_no_more(changed):
    found = plan(answers(db2=changed), foretold=True)
    assert "stopped" not in found["answers"]["db2"] and found["answers"]["db2"]["problem"] == "Cannot connect."


def test_check_mode_foretells_a_primary():
    primary = down(server={"version_num": 150004, "cluster_name": "15/main", "standby": False})
    found = plan(answers(db1=primary), foretold=True)
    assert (found["problem"], found["primary"], found["last"]) == ("", "db1", "db1")


def test_nobody_takes_over_from_a_primary_that_only_has_to_be_restored():
    switchover = {"primary": "switchover", "switchover_tasks": __file__}
    assert plan(**switchover)["switchover"] == "db1"
    pending = dict(PENDING, started=0)
    kept = {"rolling_restart": "100000", "state": "restarted", "before": 0, "after": 1, "pending": pending}
    found = plan(answers(db1={"kept": kept}), **switchover)
    assert (found["last"], found["switchover"], found["problem"]) == ("db1", "", "")
