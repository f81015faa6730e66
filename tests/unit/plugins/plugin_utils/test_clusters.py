# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several clusters in one rolling restart. a1 is the primary of the first one, b1 of the second one."""

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.plugin_utils import _clusters, _roll, _variables

HOSTS = ["a1", "b1", "a2", "b2", "b3"]
A, B = "7", "8"
STARTED = 1763700000000000
DEBT = {
    "for": "roll", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": STARTED - 1, "system_identifier": A, "standby": True, "by": "alice",
    "since": "2026-11-21T06:00:00Z",
}


def answer(host, **changed):
    return dict({
        "in_recovery": host[1] != "1", "system_identifier": A if host[0] == "a" else B, "version_num": 150004, "cluster_name": "15/main",
        "data_directory": "/data", "started": STARTED, "pid": 5, "extension": "1.0.0", "schema": None, "lsn": 1 << 30, "paused": False,
        "receiver": "none" if host[1] == "1" else "streaming", "lease": None, "kept": {}}, **changed)


def answers(**changed):
    return {host: answer(host, **changed.get(host, {})) for host in HOSTS}


def silent(**kept):
    return {"problem": "Cannot connect.", "kept": kept, "lease": None}


def checked(**variables):
    """Of hosts, or as ``every`` of all."""
    every = {"cache_restart_" + name: value for name, value in variables.pop("every", {}).items()}
    own = {host: {"cache_restart_" + name: value for name, value in variables.get(host, {}).items()} for host in [*HOSTS, "c1"]}
    return {"given": {host: dict(every, **own[host]) for host in own}, "defaults": _variables.defaults()}


def plan(found=None, limited=None, waive=(), **variables):
    found = answers() if found is None else found
    return _clusters.plan(list(found), found, list(found) if limited is None else limited, 100000.7, checked(**variables), waive)


def test_each_has_a_plan():
    found = plan()
    assert [one["name"] for one in found["clusters"]] == ["a1", "b1"], "in the order of the inventory"
    first, second = found["clusters"]
    assert (first["hosts"], first["primary"], first["standbys"], first["batches"], first["last"]) == (["a1", "a2"], "a1", ["a2"], [["a2"]], "a1")
    assert (second["hosts"], second["primary"], second["batches"], second["last"]) == (["b1", "b2", "b3"], "b1", [["b2"], ["b3"]], "b1")
    assert (found["hosts"], found["problem"], found["abort"], found["done"], found["side_by_side"]) == (HOSTS, "", False, [], False)


def test_one_after_the_other_and_side_by_side():
    assert plan()["steps"] == [["a2"], ["a1"], ["b2"], ["b3"], ["b1"]]
    for text in (True, "true", "yes"):
        assert plan(every={"side_by_side": text})["steps"] == [["a2", "b2"], ["b3"], ["a1"], ["b1"]]
    assert plan(every={"side_by_side": True, "serial": 2, "min_standbys": 0})["steps"] == [["a2", "b2", "b3"], ["a1"], ["b1"]]
    assert plan(every={"primary": "skip"})["steps"] == [["a2"], ["b2"], ["b3"]]


def test_limit():
    """A cluster beyond --limit has no batches, and nothing is wrong with it."""
    found = answers(b1={"in_recovery": True})
    assert "Cluster b1 (b1, b2, b3): No primary found among b1, b2, b3" in plan(found)["problem"]
    found = plan(found, limited=["a1", "a2"])
    assert (found["steps"], found["problem"], len(found["clusters"])) == ([["a2"], ["a1"]], "", 2)
    assert plan(limited=["b3"])["steps"] == [["b3"]]


def test_each_has_variables_of_its_own():
    found = plan(**{host: {"serial": "2", "min_standbys": "0"} for host in ("b1", "b2", "b3")})
    assert found["steps"] == [["a2"], ["a1"], ["b2", "b3"], ["b1"]]
    switchover = {"primary": "switchover", "switchover_tasks": __file__}
    assert plan(every=switchover, **{host: {"candidate": "a2" if host[0] == "a" else "b3"} for host in HOSTS})["problem"] == ""
    assert plan(every=dict(switchover, candidate="a2"))["problem"] == (
        "Cluster b1 (b1, b2, b3): cache_restart_candidate is a2, which is not a standby; there are b2, b3.")


def test_hosts_that_are_planned_together_agree():
    """The plan would be made of one's value, and the others would act by their own."""
    assert plan(b3={"primary": "skip"})["problem"] == (
        "cache_restart_primary is 'in_place' on b1, but 'skip' on b3: set the same for all hosts of this cluster.")
    assert plan(a2={"abort": "yes"})["problem"] == (
        "cache_restart_abort is 'False' on a1, but 'True' on a2: set the same for all hosts of this run, such as with -e.")
    assert plan(a2={"abort": "no", "serial": "1"}, a1={"resume": "true", "serial": 1}, b1={"max_age": 5})["problem"].startswith("cache_restart_max_age ")
    assert plan(limited=["a1", "a2"], b3={"primary": "skip"})["problem"] == ""


def test_what_a_record_has():
    check = checked(a1={"what": "host"})
    check["given"].pop("b1")
    assert [_clusters.what({"what": "cluster"}, host, check) for host in ("a1", "a2", "b1")] == ["host", "postgresql", "cluster"]
    assert _clusters.what({}, "b1", check) == "postgresql"


def test_problems_name_the_cluster():
    found = plan(every={"min_standbys": 2, "serial": 2})
    assert found["problem"] == (
        "Cluster b1 (b1, b2, b3): A batch of b2, b3 would take all standbys out of traffic: 0 of 2 would stay, but cache_restart_min_standbys is 2."
        " Reduce cache_restart_serial.")
    found = plan(answers(a2={"in_recovery": False}, b1={"in_recovery": True}))["problem"]
    assert found.startswith("Cluster a1 (a1, a2): a1 and a2 are primaries of the same cluster:") and "Cluster b1 (b1, b2, b3): No primary found" in found


def test_of_a_single_cluster_nobody_has_to_say_which():
    found = {host: answer(host) for host in ("a1", "a2")}
    assert plan(found, every={"min_standbys": 0})["steps"] == [["a2"], ["a1"]]
    found["a2"]["in_recovery"] = False
    assert plan(found)["problem"].startswith("a1 and a2 are primaries")


def test_a_host_that_was_not_meant():
    """A cluster of its own has no standby, or no primary."""
    found = dict(answers(), c1=answer("c1", system_identifier="9"))
    assert plan(found)["problem"].startswith("Cluster c1 (c1): c1 has no standby, so no host would serve")
    found["c1"]["in_recovery"] = True
    assert plan(found)["problem"].startswith("Cluster c1 (c1): No primary found among c1")


def test_who_does_not_answer():
    """It belongs to the cluster of its record, by its last roll or what is owed to it. Without either it could be any cluster's."""
    limited = ["a1", "a2", "b1", "b2"]
    for kept in ({"roll": "9", "system_identifier": A}, {"debt": DEBT}):
        assert _clusters.apart(HOSTS, dict(answers(), b3=silent(**kept))) == [["a1", "a2", "b3"], ["b1", "b2"]]
    found = dict(answers(), b3=silent())
    assert _clusters.apart(HOSTS, found) == [["a1", "a2", "b3"], ["b1", "b2", "b3"]]
    said = plan(found, limited)["problem"]
    for primary, other in (("a1", "a2"), ("b1", "b2")):
        assert "Cluster %s (%s, %s, b3): While %s restarts, 0 of 2 standbys would serve" % (primary, primary, other, other) in said
    assert plan(dict(answers(), b3=silent(system_identifier=B)), limited, every={"min_standbys": 0})["problem"] == ""
    assert plan(dict(answers(), b3=silent(system_identifier=B)), ["a1", "a2"])["problem"] == "", "it is not of this cluster"
    assert _clusters.apart(HOSTS, {host: silent() for host in HOSTS}) == [HOSTS]


def test_what_is_damaged_or_owed_is_in_its_cluster():
    row = {name: value for name, value in answer("b1").items() if name not in ("lease", "kept")}
    servers, records = {"results": [{"query_result": [row]}]}, {"results": [{"record": None, "lease": None, "fault": "/s/b1.json is damaged"}]}
    [found] = _roll.answers(servers, records, ["b1"]).values()
    assert _roll.identifier(found) == B and found["in_recovery"] is False
    records["results"][0].update(fault="", record={"debt": DEBT})
    [found] = _roll.answers(servers, records, ["b1"]).values()
    assert "another cluster" in found["problem"] and _roll.identifier(found) == B


def test_each_goes_on_with_its_own_roll():
    kept = {"roll": "90000", "state": "done", "what": "postgresql"}
    begun = plan(answers(b1={"kept": {"roll": "90000"}}, b2={"kept": kept}, b3={"kept": {"roll": "90000"}}))
    assert [(one["roll"], one["resumed"]) for one in begun["clusters"]] == [("100000", False), ("90000", True)]
    assert (begun["done"], begun["steps"]) == (["b2"], [["a2"], ["a1"], ["b3"], ["b1"]])
    assert [one["roll"] for one in plan(answers(b2={"kept": kept}), every={"resume": "false"})["clusters"]] == ["100000"] * 2
    found = plan(answers(a2={"kept": dict(kept, state="planned", out=True)}, b2={"kept": kept}), every={"abort": "true"})
    assert found["steps"] == [["a2"]] and found["abort"] is True and "b2" in found["done"]


def test_waive_and_what_cannot_be_read():
    """Of all clusters, also beyond --limit: such a record would be written over."""
    assert plan(waive=["b2"])["problem"] == ""
    assert plan(waive=["db9", "b2"])["problem"] == "pgfleet_waive names hosts that are not in target: db9."
    found = dict(answers(), b3=dict(silent(), unread=True))
    assert plan(found, limited=["a1", "a2"])["problem"] == "b3: Cannot connect."


def test_cluster():
    found = plan()
    assert _clusters.cluster(found, "b3")["primary"] == "b1" and _clusters.cluster(found, "db9") == {} == _clusters.cluster({}, "b3")


def test_records_of_a_cluster_that_is_not_restarted_stay():
    """Even with cache_restart_resume=false: its own rolling restart goes on later."""
    fleet = plan(limited=["a1", "a2"], every={"resume": False})
    assert _clusters.concerned(["a2", "b1", "b2"], fleet) == ["a2"]
    assert _clusters.concerned(HOSTS, plan(limited=["a1", "b3"])) == HOSTS


# --- a moment before: of the same cluster only ---


def go_out(found, host, batch, **options):
    planned = _clusters.cluster(plan(), host)
    return _roll.may_go_out(found, host, planned, batch, planned["primary"], options.get("min_standbys", 1), "64MB")


def test_another_cluster_neither_serves_nor_changes_roles():
    assert go_out(answers(), "a2", ["a2", "b2"]) == "" == go_out(answers(), "b2", ["a2", "b2"])
    said = go_out(answers(b3={"paused": True}), "b2", ["b2"])
    assert "0 of 2 standbys would serve" in said and "b3 has replay paused" in said and "a2" not in said
    assert go_out(answers(a2={"lsn": 0}, b2={"lsn": 0}), "b3", ["b3"]).count("behind") == 1
    assert "0 of 1 standbys would serve" in go_out(answers(a2={"kept": {"out": True}}), "a1", ["a1"])
    assert go_out(answers(b2={"in_recovery": False}), "a2", ["a2"]) == "", "somebody else's second primary"
    assert "now the primary is b1 and b2" in go_out(answers(b2={"in_recovery": False}), "b3", ["b3"])
    assert _roll.may_go_in(answers(b2={"in_recovery": False}), "a2", "a1", {}) == ""
    assert "stays out of traffic" in _roll.may_go_in(answers(b2={"in_recovery": False}), "b2", "b1", {})


def test_who_could_be_of_any_cluster_counts_until_it_answers():
    planned = _clusters.plan(HOSTS, dict(answers(), b3=silent()), HOSTS[:4], 100000.7, checked(every={"min_standbys": 0}))
    first = _clusters.cluster(planned, "a2")
    assert first["hosts"] == ["a1", "a2", "b3"]
    assert "b3 does not answer" in _roll.may_go_out(dict(answers(), b3=silent()), "a2", first, ["a2"], "a1", 1, "64MB")
    assert _roll.may_go_out(answers(), "a2", first, ["a2"], "a1", 1, "64MB") == "", "it is of the other cluster"


def test_a_primary_is_started_beside_that_of_another_cluster():
    stopped = {"state": "restarting", "intent": "stopping", "server": {"version_num": 150004, "cluster_name": "", "standby": False}}
    found = dict(answers(), a1=silent(system_identifier=A, **stopped))
    assert _roll.may_start(found, "a1") == ""
    assert "now a2 is" in _roll.may_start(dict(found, a2=answer("a2", in_recovery=False)), "a1")
    assert _roll.may_start(dict(found, b1=silent(system_identifier=B)), "a1") == ""
    assert "b1 may have been promoted" in _roll.may_start(dict(found, b1=silent()), "a1")
    assert "now b1 is" in _roll.may_start(dict(answers(), a1=silent(**stopped)), "a1"), "of a record without a cluster nobody knows"
