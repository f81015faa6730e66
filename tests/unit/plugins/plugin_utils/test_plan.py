# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan with the variables of all hosts; test_roll.py has the order of the hosts."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan

HOSTS = ["db1", "db2", "db3"]
GIVEN = {
    "cache_restart_abort": "false", "cache_restart_resume": True, "cache_restart_primary": "in_place", "cache_restart_candidate": "",
    "cache_restart_switchover_tasks": "", "cache_restart_serial": "1", "cache_restart_min_standbys": "1", "cache_restart_max_age": 86400,
    "cache_restart_what": "postgresql", "pgfleet_login_port": 5433,
}


def answers(**changed):
    return {
        host: {"in_recovery": host != "db1", "system_identifier": "7", "started": 1, "kept": {}, "lease": None, **changed.get(host, {})} for host in HOSTS
    }


def variables(**changed):
    return {host: {"cache_restart_given": dict(GIVEN, **changed.get(host, {}))} for host in HOSTS}


def plan(found=None, given=None, limited=None, **options):
    return _plan.plan(HOSTS, found or answers(), limited or HOSTS, 100000.7, given or variables(), **options)


def test_a_primary_has_a_step_for_itself():
    found = plan()
    assert (found["steps"], found["problem"], found["abort"]) == ([["db2"], ["db3"], ["db1"]], "", False)
    assert plan(limited=["db3"])["steps"] == [["db3"]]


def test_two_clusters_are_refused_with_what_to_run():
    found = plan(answers(db2={"system_identifier": "8"}))
    assert found["problem"] == (
        "target has 2 clusters, and a rolling restart has one. Run the playbook once for each: -e target=db1:db3, -e target=db2.")
    silent = {"problem": "Cannot connect.", "system_identifier": None}
    assert "clusters" not in plan(answers(db2=silent))["problem"], "it could belong to this one"
    assert "2 clusters" in plan(answers(db2=dict(silent, kept={"system_identifier": "8"})))["problem"], "its record says which it is"


@pytest.mark.parametrize(("name", "value"), [("serial", 2), ("abort", True), ("min_standbys", 0)])
def test_hosts_that_disagree(name, value):
    found = plan(given=variables(db2={"cache_restart_" + name: value}))
    assert found["problem"].startswith("cache_restart_%s is '" % name) and found["problem"].endswith("set the same for all hosts of the cluster.")


def test_one_truth_in_two_ways():
    assert plan(given=variables(db2={"cache_restart_abort": False}))["problem"] == ""


def test_what_cannot_be_planned():
    unread = answers(db3={"problem": "damaged", "unread": True})
    assert plan(unread)["problem"] == "db3: damaged"
    assert plan(waive=["db9"])["problem"] == "pgfleet_waive names hosts that are not in target: db9."


def test_how_a_host_is_asked():
    """As it has shared its variables; beyond --limit, as the inventory has them."""
    given = {"db1": {"cache_restart_given": GIVEN, "pgfleet_login_port": 1, "pgfleet_login_password": "x"}, "db2": {"pgfleet_login_port": "6", "other": 1}}
    assert _plan.asked("db1", given) == {"pgfleet_login_port": 5433, "pgfleet_login_password": "x"}
    assert _plan.asked("db2", given) == {"pgfleet_login_port": "6"}


def test_who_has_not_shared():
    assert _plan.not_shared(["db1", "db2", "db4"], dict(variables(db2={}), db2={"cache_restart_given": {}}, db4={})) == ["db2", "db4"]


def test_what_is_restarted():
    given = variables(db2={"cache_restart_what": "host"})
    assert [_plan.what({"what": "cluster"}, host, dict(given, db4={})) for host in ("db1", "db2", "db4")] == ["postgresql", "host", "cluster"]
    assert _plan.what({}, "db4", {"db4": {}}) == "postgresql"
