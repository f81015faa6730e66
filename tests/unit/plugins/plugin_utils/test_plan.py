# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan with the variables of all hosts; test_roll.py has the order of the hosts."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.modules import restart_plan
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan, _roll

HOSTS = ["db1", "db2", "db3"]
GIVEN = {
    "cache_restart_abort": "false", "cache_restart_resume": True, "cache_restart_primary": "in_place", "cache_restart_candidate": "",
    "cache_restart_switchover_tasks": "", "cache_restart_serial": "1", "cache_restart_min_standbys": "1", "cache_restart_max_age": 86400,
    "cache_restart_what": "postgresql", "cache_restart_commits_may_wait": "no", "pgfleet_login_port": 5433,
}


def answers(**changed):
    return {
        host: {"in_recovery": host != "db1", "system_identifier": "7", "started": 1, "kept": {}, "lease": None, **changed.get(host, {})} for host in HOSTS
    }


def variables(**changed):
    return {host: {"cache_restart_given": dict(GIVEN, **changed.get(host, {}))} for host in HOSTS}


def registered(found):
    """As a loop registers the answers of hosts."""
    return {"results": [{"answer": one, "__cache_restart_each": host, "failed": False} for host, one in found.items()], "changed": False}


def plan(found=None, given=None, limited=None, **options):
    given = given or variables()
    limited = limited or HOSTS
    for host in limited:
        given[host]["cache_restart_fleet"] = {"answers": found or answers()}
    return _plan.planned(HOSTS, limited, 100000.7, given, **options)


def test_gathered():
    """Each of this run knows itself best, and of the others what it was told."""
    given = {
        "db1": {"cache_restart_answers": registered({"db1": {"started": 2, "kept": {}}, "db3": {"started": 3, "kept": {"paused": [{"host": "lb1"}]}}})},
        "db2": {"cache_restart_answers": registered({"db2": {"started": 4, "kept": {}}, "db1": {"started": 1, "kept": {}}})},
        "db3": {},
    }
    found = _plan.gathered(HOSTS, ["db1", "db2"], given, [])
    assert found == {
        "answers": {host: dict(found["answers"][host], started=started) for host, started in zip(HOSTS, (2, 4, 3))},
        "reached": HOSTS, "half_done": [], "paused": ["db3"],
    }
    assert "failed" not in found["answers"]["db1"] and found["answers"]["db3"]["kept"] == {"paused": [{"host": "lb1"}]}
    # it has asked again since
    later = dict(given, db1={"cache_restart_fleet": found, "cache_restart_answers": registered({"db1": {"started": 5, "kept": {}}})})
    assert [one["started"] for one in _plan.gathered(HOSTS, ["db1", "db2"], later, [])["answers"].values()] == [5, 4, 3]
    # who has not answered may be a primary: it is in the plan, and has no lease
    nobody = _plan.gathered(HOSTS, ["db1"], {host: {} for host in HOSTS}, [])
    assert [one["problem"] for one in nobody["answers"].values()] == ["unreachable: it was not read"] * 3 and nobody["reached"] == []


def test_what_cannot_wait():
    """Of hosts of this run; of the others it is only resumed what is paused."""
    paused, down = {"kept": {"paused": [{"host": "lb1"}]}}, {"problem": "Cannot connect.", "kept": {"intent": "stopping", "state": "restarting"}}
    given = variables()
    given["db1"]["cache_restart_answers"] = registered(answers(db1={"kept": {"state": "saved"}}, db2=paused, db3=down))
    for host in ("db2", "db3"):
        given[host]["cache_restart_answers"] = registered({host: answers(db2=paused, db3=down)[host]})

    def cannot_wait(limited, waived=()):
        found = _plan.gathered(HOSTS, limited, given, waived)
        return found["half_done"], found["paused"]

    assert cannot_wait(HOSTS) == (["db2", "db3"], []) and cannot_wait(HOSTS, ["db1"]) == (HOSTS, [])
    assert cannot_wait(["db1"]) == ([], ["db2"])


def test_a_host_that_is_not_reached():
    """It gets no lease and no record; one whose server is down does."""
    found = plan(answers(db2={"problem": "unreachable: no route"}, db3={"problem": "Cannot connect."}))
    assert found["reached"] == ["db1", "db3"] and set(found["answers"]) == set(HOSTS)


def test_a_primary_has_a_step_for_itself():
    found = plan()
    assert (found["steps"], found["problem"], found["abort"]) == ([["db2"], ["db3"], ["db1"]], "", False)
    assert plan(limited=["db3"])["steps"] == [["db3"]]
    assert found["answers"] == answers()


def test_the_result_is_documented():
    assert set(plan()) == set(yaml.safe_load(restart_plan.RETURN))


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
    assert plan(waived=["db9"])["problem"] == "pgfleet_waive names hosts that are not in target: db9."


def test_a_proxy_that_is_no_longer_configured():
    out = answers(db2={"kept": {"out": True, "traffic": [{"kind": "haproxy", "host": "lb1", "backend": "read"}]}})
    assert plan(out)["problem"].startswith("db2 was taken out of traffic by haproxy on lb1 read, which is no longer in cache_restart_traffic")
    assert plan(out, waived=["db2"])["problem"] == ""
    assert "taken out" not in plan(out, limited=["db1", "db3"])["problem"], "nor would this run put it back"
    there = {"cache_restart_traffic": ["haproxy"], "cache_restart_haproxy": [{"host": "lb1", "backend": "read"}]}
    known = dict(out["db2"]["kept"]["traffic"][0], socket="/run/haproxy/admin.sock", server="db2")
    assert plan(answers(db2={"kept": {"out": True, "traffic": [known]}}), variables(db2=there))["problem"] == ""


STOPPED = {
    "roll": "90000", "state": "restarting", "intent": "stopping", "before": 1, "system_identifier": "7",
    "server": {"version_num": 150004, "cluster_name": "15/main", "standby": True},
}
DEBT = {
    "for": "roll", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": 1, "system_identifier": "7", "standby": True, "by": "alice",
    "since": "2026-11-21T06:00:00Z",
}


def down(**kept):
    return {"problem": "Cannot connect.", "msg": "Cannot connect.", "in_recovery": None, "system_identifier": None, "kept": dict(STOPPED, **kept)}


def test_check_mode_foretells_what_a_run_would_start():
    found = plan(answers(db2=down(debt=DEBT)), foretold=True)
    one = found["answers"]["db2"]
    assert (one["stopped"], one["in_recovery"], one["system_identifier"], one["version_num"]) == (True, True, "7", 150004)
    assert "problem" not in one and "msg" not in one
    assert (found["problem"], found["standbys"], found["steps"]) == ("", ["db2", "db3"], [["db2"], ["db3"], ["db1"]])
    assert _roll.preview("db2", {}, found) == (
        "PostgreSQL is stopped since an interrupted run and would be started first. Already restarted: would only be restored from restart@3.")
    assert "stopped" not in plan(answers(db2=down()))["answers"]["db2"], "a run has started it before it plans"


@pytest.mark.parametrize(("changed", "limited"), [
    (down(), ["db1", "db3"]),  # nobody would start it
    (dict(down(), unread=True), HOSTS),
    (dict(down(), kept={"state": "saved"}), HOSTS),  # no run has stopped it
    (down(server={"version_num": 150004, "cluster_name": "15/main", "standby": False}), HOSTS),  # beside the primary that there is
], ids=str)
def test_check_mode_foretells_no_more(changed, limited):
    found = plan(answers(db2=changed), limited=limited, foretold=True)
    assert "stopped" not in found["answers"]["db2"] and found["answers"]["db2"]["problem"] == "Cannot connect."


def test_check_mode_foretells_a_primary():
    primary = down(server={"version_num": 150004, "cluster_name": "15/main", "standby": False})
    found = plan(answers(db1=primary), foretold=True)
    assert (found["problem"], found["primary"], found["last"]) == ("", "db1", "db1")


def test_how_a_host_is_asked():
    """As it has shared its variables; beyond --limit, as the inventory has them."""
    given = {"db1": {"cache_restart_given": GIVEN, "pgfleet_login_port": 1, "pgfleet_login_password": "x"}, "db2": {"pgfleet_login_port": "6", "other": 1}}
    assert _plan.asked("db1", given) == {"pgfleet_login_port": 5433, "pgfleet_login_password": "x"}
    assert _plan.asked("db2", given) == {"pgfleet_login_port": "6"}


def test_who_has_not_shared():
    assert _plan.not_shared(["db1", "db2", "db4"], dict(variables(db2={}), db2={"cache_restart_given": {}}, db4={})) == ["db2", "db4"]


def test_nobody_takes_over_from_a_primary_that_only_has_to_be_restored():
    given = variables(**{host: {"cache_restart_primary": "switchover", "cache_restart_switchover_tasks": __file__} for host in HOSTS})
    assert plan(given=given)["switchover"] == "db1"
    debt = dict(DEBT, started=0)
    kept = {"roll": "100000", "state": "restarted", "before": 0, "after": 1, "debt": debt}
    found = plan(answers(db1={"kept": kept}), given)
    assert (found["last"], found["switchover"], found["problem"]) == ("db1", "", "")
