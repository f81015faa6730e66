# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan, _rolling_restart

HOSTS = ["db1", "db2", "db3", "db4"]
STARTED = 1763700000000000
# What a server says of itself, and what its host has kept
ANSWER = {
    "in_recovery": True, "system_identifier": "7", "version_num": 150004, "cluster_name": "15/main", "data_directory": "/data", "started": STARTED,
    "pid": 5, "extension": "1.0.0", "schema": None, "lsn": 1 << 30, "paused": False, "delay": None, "receiver": "streaming",
}
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": STARTED - 1, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}


def fleet(**kept):
    """db1 is the primary; what each host has kept."""
    return {host: dict(ANSWER, in_recovery=host != "db1", receiver="none" if host == "db1" else "streaming", lease=None, kept=kept.get(host, {}))
            for host in HOSTS}


def plan(found=None, what=None, **options):
    what = {**dict.fromkeys(HOSTS, "postgresql"), **(what or {})}
    return _plan.plan_of(HOSTS, fleet() if found is None else found, 100000.7, _plan.Options(**options), what)


def test_a_new_one():
    restart = {"save": True, "restart": True, "restore": True, "again": False}
    assert plan() == {
        "hosts": HOSTS, "only": HOSTS, "primary": "db1", "standbys": ["db2", "db3", "db4"], "rolling_restart": "100000", "resumed": False, "done": [],
        "batches": [["db2"], ["db3"], ["db4"]], "last": "db1", "problem": "", "abort": False,
        "commits_may_wait": False, "skipped": "", "check": HOSTS, "ways": dict.fromkeys(HOSTS, restart),
    }


@pytest.mark.parametrize(
    ("serial", "batches"),
    [
        ([2], [["db2", "db3"], ["db4"]]),
        (["2"], [["db2", "db3"], ["db4"]]),
        (["70%"], [["db2", "db3"], ["db4"]]),
        (["1%"], [["db2"], ["db3"], ["db4"]]),
        ([1, "100%"], [["db2"], ["db3", "db4"]]),
    ],
)
def test_batches(serial, batches):
    assert plan(serial=serial, min_standbys=0)["batches"] == batches


def test_only():
    found = plan(only=["db3"])
    assert (found["batches"], found["last"], found["primary"], found["problem"]) == ([["db3"]], "", "db1", "")


def test_it_goes_on():
    """Those out of traffic first, those that are done not at all, and one that is finished or too old is none."""
    kept = {
        "db2": {"rolling_restart": "90000", "state": "done", "finished": False, "what": "postgresql"},
        "db4": {"rolling_restart": "90000", "state": "restarted", "out": True, "finished": False},
        "db3": {"rolling_restart": "95000", "state": "done", "finished": True},
        "db1": {"rolling_restart": "10000", "state": "done", "finished": False},
    }
    found = plan(fleet(**kept))
    assert (found["rolling_restart"], found["resumed"], found["done"], found["batches"], found["last"]) == ("90000", True, ["db2"], [["db4"], ["db3"]], "db1")
    assert plan(fleet(**kept), max_age=9000)["resumed"] is False
    found = plan(fleet(**kept), resume=False)
    assert (found["rolling_restart"], found["done"], found["batches"]) == ("100000", [], [["db4"], ["db2"], ["db3"]])
    kept["db3"] = {"rolling_restart": ["no"], "finished": True}
    assert plan(fleet(**kept))["rolling_restart"] == "90000"
    kept["db3"] = {"rolling_restart": "101000", "state": "done"}
    assert plan(fleet(**kept))["rolling_restart"] == "90000", "one of the future is none"


def test_what_is_owed_comes_first():
    """Who is not as warm as it was is not done, whatever its state says; nor who is paused, or in the middle of something."""
    for open_end in ({"pending": PENDING}, {"intent": "going in"}, {"paused": [{"host": "lb1"}]}):
        found = plan(fleet(db4=dict(open_end, rolling_restart="90000", state="done")))
        assert (found["done"], found["batches"][0]) == ([], ["db4"]), open_end
    found = plan(fleet(db4={"rolling_restart": "90000", "state": "done", "pending": dict(PENDING, started=STARTED)}))
    assert found["done"] == ["db4"], "nothing was lost"


def test_a_roll_that_a_host_knows_whose_server_is_down():
    found = fleet(db4={"rolling_restart": "90000", "state": "restarting"})
    found["db4"] = {"problem": "Cannot connect.", "kept": found["db4"]["kept"], "lease": None}
    assert plan(found)["rolling_restart"] == "90000"


def test_abort():
    """Whoever has an open end, and nobody else; also the primary that is to be skipped, of one that was not to be gone on with, and alone."""
    kept = {
        "db1": {"rolling_restart": "90000", "out": True}, "db3": {"rolling_restart": "90000", "state": "restarted", "pending": PENDING},
        "db4": {"rolling_restart": "90000", "state": "saved"}}
    found = plan(fleet(**kept), abort=True, resume=False, primary="skip", min_standbys=9)
    assert (found["batches"], found["last"], found["done"], found["rolling_restart"], found["problem"]) == ([["db3"]], "db1", ["db2", "db4"], "90000", "")
    assert found["abort"] is True
    assert plan(abort=True)["batches"] == [] and plan(abort=True)["last"] == ""


def test_a_cold_test_that_was_not_finished():
    found = fleet(db3={"pending": dict(PENDING, **{"for": "cold_test", "snapshot": "cold@1"})})
    assert plan(found)["problem"].startswith("A cold test of db3 was not finished; cold@1 has what its caches held before.")
    assert plan(found, only=["db2"])["problem"] == "" or "cold" not in plan(found, only=["db2"])["problem"]
    assert plan(found, abort=True)["problem"].startswith("A cold test of db3")


def test_the_primary_is_left_alone():
    assert plan(primary="skip")["last"] == ""
    assert plan(fleet(db1={"rolling_restart": "90000", "state": "done"}))["last"] == ""


@pytest.mark.parametrize(
    ("hosts", "options", "problem"),
    [
        ({"db1": {"in_recovery": True}}, {},
         "No primary found among db1, db2, db3, db4: name the whole fleet with target, and the hosts to restart with cache_restart_only."),
        ({"db1": {"problem": "unreachable: no."}}, {},
         "No primary found among db2, db3, db4. db1 does not answer: unreachable: no."),
        ({"db4": {"in_recovery": False}}, {},
         "db1 and db4 are primaries of the same cluster: a standby was promoted. Find out which one the clients use, and make the other its standby"
         " again (pg_rewind)."),
        ({}, {"serial": [3]},
         "A batch of db2, db3, db4 would take all standbys out of traffic: 0 of 3 would stay, but cache_restart_min_standbys is 1. Reduce"
         " cache_restart_serial."),
        ({}, {"serial": [2], "min_standbys": 2},
         "A batch of db2, db3 would take too many standbys out of traffic: 1 of 3 would stay, but cache_restart_min_standbys is 2. Reduce"
         " cache_restart_serial."),
        ({"db2": {"kept": {"rolling_restart": "90000", "state": "done", "what": "host"}}}, {},
         "The unfinished rolling restart has cache_restart_what=host (on db2), but this run has postgresql. Finish it with -e"
         " cache_restart_what=host, or start a new one with -e cache_restart_resume=false."),
        ({"db2": {"kept": {"rolling_restart": "90000", "state": "done", "what": "host"}}}, {"resume": False}, ""),
        ({"db2": {"kept": {"rolling_restart": "90000", "state": "done", "what": "host"}}}, {"what": {"db1": "postgresql", "db2": "host"}}, ""),
        ({"db2": {"kept": {"rolling_restart": "90000", "state": "done", "what": "host"}}}, {"only": ["db1", "db3", "db4"]}, ""),
        ({}, {"primary": "switchover", "candidate": "db9"},
         "cache_restart_candidate is db9, which is not a standby; there are db2, db3, db4."),
        ({}, {"primary": "switchover"},
         "cache_restart_primary is switchover: set cache_restart_switchover_tasks to the task file that makes cache_restart_candidate the primary."),
        ({}, {"primary": "switchover", "switchover_tasks": "/nowhere"},
         "Task file /nowhere does not exist on the controller: correct cache_restart_switchover_tasks."),
        ({}, {"primary": "switchover", "switchover_tasks": __file__}, ""),
    ],
)
def test_problems(hosts, options, problem):
    found = fleet()
    for host, changed in hosts.items():
        found[host].update(changed)
    assert plan(found, **options)["problem"] == problem


def test_who_serves_meanwhile():
    """Beside the hosts that are restarted one is out of traffic, and one is down."""
    found = fleet(db4={"rolling_restart": "90000", "out": True})
    assert plan(found, only=["db1", "db2", "db3", "db4"])["problem"] == ""
    assert plan(found, only=["db2"])["problem"] == "", "db3 serves"
    found["db3"]["problem"] = "Cannot connect."
    assert plan(found, only=["db2"])["problem"] == (
        "While db2 restarts, 0 of 3 standbys would serve, but cache_restart_min_standbys is 1. db4 has been out of traffic, or not as warm as before,"
        " since an earlier run: name it in cache_restart_only, too. db3 does not answer: Cannot connect. Or reduce that number."
    )
    assert plan(found, only=["db2", "db4"])["problem"] == "", "db4 comes back first"
    assert plan(found, only=["db2"], min_standbys=0)["problem"] == ""
    found["db4"]["problem"] = "timed out"
    assert plan(found, only=["db1"])["problem"] == "", "db2 serves"
    assert plan(found, only=["db1"], min_standbys=2)["problem"].startswith("While db1 restarts, 1 of 3 standbys would serve,")


def test_a_primary_alone():
    found = {"db1": fleet()["db1"]}
    assert plan(found)["problem"].startswith("db1 has no standby, so no host would serve while it restarts.")
    assert plan(found, min_standbys=0)["problem"] == ""


def test_record_of():
    planned = {"rolling_restart": "9", "answers": {
        "db1": {"kept": {"rolling_restart": "9", "state": "saved"}}, "db2": {"kept": {"rolling_restart": "8", "state": "done"}}}}
    variables = {"db1": {"cache_restart_result": {"record": {"rolling_restart": "9", "state": "done"}}}, "db2": {}, "db3": {}}
    assert _rolling_restart.record_of("db1", variables, planned)["state"] == "done", "what was written last"
    for result in ({"cache_restart_result": {"failed": True, "record": None}}, {"cache_restart_result": {}}, {}):
        assert _rolling_restart.record_of("db1", {"db1": result}, planned)["state"] == "saved"
    for host, known, fleet_plan in (("db2", variables, planned), ("db3", variables, planned), ("db1", {"db1": {}}, {})):
        assert _rolling_restart.record_of(host, known, fleet_plan) == {}


def test_what_is_left():
    planned = {"primary": "db1", "hosts": HOSTS, "done": ["db2"], "rolling_restart": "9"}
    variables = {host: {"cache_restart_fleet": planned} for host in HOSTS}
    variables["db3"]["cache_restart_result"] = {"record": {"rolling_restart": "9", "state": "done"}}
    variables["db4"] = {}
    assert _rolling_restart.restarted(HOSTS, variables) == ["db2", "db3"]
    assert _rolling_restart.left(HOSTS, variables) == ["db1", "db4"]
    planned["skipped"] = "db1"
    assert _rolling_restart.left(HOSTS, variables) == ["db4"]
    assert _rolling_restart.left(HOSTS, {host: {} for host in HOSTS}) == HOSTS


def test_what_was_done_in_another_roll_is_left():
    """A run writes the record of a host also before its plan: when it resumes its clients, or waives what is pending."""
    variables = {
        "db2": {
            "cache_restart_fleet": {"primary": "db1", "rolling_restart": "9"}, "cache_restart_result": {"record": {"rolling_restart": "8", "state": "done"}}}}
    assert _rolling_restart.left(["db2"], variables) == ["db2"]


def test_preview():
    saved = {"msg": "Would save 12 MB that are cached now as 'restart'."}
    planned = {"primary": "db1", "last": "db1", "done": ["db3"], "rolling_restart": "9", "abort": False}

    def preview(host="db2", plan=None, **kept):
        return _rolling_restart.preview(host, {"cache_restart_saved": saved["msg"]}, dict(plan or planned, answers=fleet(**{host: kept})))

    assert preview() == saved["msg"]
    assert preview(rolling_restart="9", state="restarting", before=STARTED) == saved["msg"]
    assert preview(rolling_restart="8", state="restarted", before=5) == saved["msg"], "another one"
    assert preview(rolling_restart="9", state="restarted", before=5, pending=PENDING) == (
        "Already restarted: would only be restored from restart@3.")
    assert preview(rolling_restart="8", pending=PENDING) == "Not as warm as before: would be restarted and then restored from restart@3."
    assert preview(plan=dict(planned, abort=True), rolling_restart="9", out=True) == "Would be put back into traffic."
    assert preview(plan=dict(planned, abort=True), rolling_restart="9", pending=PENDING).endswith("would only be restored from restart@3.")
    assert _rolling_restart.preview("db3", {}, planned) == "Already restarted and warm: would not be restarted again."
    assert preview("db1", plan=dict(planned, last="")) == ""
    for answers in ({}, {"db2": {"problem": "no", "kept": {}}}):
        assert _rolling_restart.preview("db2", {"cache_restart_saved": saved["msg"]}, dict(planned, answers=answers)) == saved["msg"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"db2": {"in_recovery": False}},
         "db1 was the primary and db2 a standby when this run began; now the primary is db1 and db2: the roles have changed. db2 was not restarted."
         " Run the playbook again when the roles are stable."),
        ({"db3": {"in_recovery": False}}, "db1 was the primary and db2 a standby when this run began; now the primary is db1 and db3:"),
        ({"db1": {"in_recovery": True}}, "db1 was the primary and db2 a standby when this run began; now the primary is none of them:"),
        ({"db1": {"problem": "unreachable: no route"}}, "db1 no longer answers: unreachable: no route db2 was not restarted."),
    ],
)
def test_roles_changed(changed, said):
    found = fleet()
    for host, one in changed.items():
        found[host].update(one)
    assert _rolling_restart.roles_changed(found, "db2", "db1").startswith(said)
    assert bool(_rolling_restart.roles_changed(found, "db2", "db1")) is bool(said)


def go_out(found, host="db2", batch=("db2",), min_standbys=1, max_lag="64MB", hosts=tuple(HOSTS)):
    return _rolling_restart.may_go_out(found, host, {"hosts": hosts}, batch, "db1", min_standbys, max_lag)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"problem": "timed out."}, "db3 does not answer: timed out."),
        ({"kept": {"out": True}}, "db3 is out of traffic."),
        ({"kept": {"pending": PENDING}}, "db3 is not as warm as it was before its restart."),
        ({"paused": True}, "db3 has replay paused: run SELECT pg_wal_replay_resume()."),
        ({"delay": "1h"}, "db3 replays WAL 1h late by design (recovery_min_apply_delay)."),
        ({"receiver": "none"}, "db3 receives no WAL."),
        ({"lsn": (1 << 30) - (65 << 20)}, "db3 is 65.00 MB behind, more than cache_restart_max_lag (64.00 MB)."),
        ({"kept": {"pending": dict(PENDING, started=STARTED)}}, ""),
        ({"receiver": "archive"}, ""),
        ({"lsn": (1 << 30) - (64 << 20)}, ""),
        ({"lsn": 2 << 30}, ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_who_serves_a_moment_before(changed, why):
    found = fleet(db4={"out": True})
    found["db3"].update(changed)
    said = go_out(found)
    if not why:
        assert said == ""
        return
    assert said == (
        "db2 was neither taken out of traffic nor restarted: 0 of 3 standbys would serve meanwhile, but cache_restart_min_standbys is 1. "
        + why + " db4 is out of traffic. Or reduce that number.")
    assert go_out(found, min_standbys=0) == ""
    del found["db4"]["kept"]["out"]
    assert go_out(found) == "", "db4 serves"


def test_the_batch_itself_does_not_serve():
    assert go_out(fleet(), batch=["db2", "db3"]) == ""
    assert go_out(fleet(), batch=["db2", "db3", "db4"]).endswith(
        "db3 restarts at the same time. db4 restarts at the same time. Or reduce that number.")
    assert go_out(fleet(), batch=["db2", "db3"], min_standbys=2).endswith("is 2. db3 restarts at the same time. Or reduce that number.")


def test_more_than_there_are_cannot_serve():
    """Of a single standby none can, and of the primary's all."""
    assert go_out({host: fleet()[host] for host in ("db1", "db2")}, hosts=["db1", "db2"]) == ""
    assert go_out(fleet(), min_standbys="9") == "", "two of three"
    assert go_out(fleet(), "db1", ["db1"], 9) == ""
    assert "2 of 3 standbys would serve" in go_out(fleet(db3={"out": True}), "db1", ["db1"], 9)


def test_somebody_who_was_not_asked_does_not_serve():
    found = {host: fleet()[host] for host in ("db1", "db2")}
    assert "db3 does not answer: it was not queried." in go_out(found)


def test_the_roles_are_asked_again_as_well():
    found = fleet()
    found["db1"]["problem"] = "unreachable: no"
    assert go_out(found) == "db1 no longer answers: unreachable: no db2 was not restarted." == go_out(found, min_standbys=0)


@pytest.mark.parametrize(
    ("changed", "record", "said"),
    [
        ({}, {}, ""),
        ({}, {"pending": PENDING, "after": STARTED}, ""),
        ({}, {"pending": PENDING, "after": STARTED - 1},
         "db2 was restarted again during its restore: it is cold, and stays out of traffic. Run the playbook again."),
        ({}, {"pending": dict(PENDING, started=STARTED)}, ""),  # it was never restarted: nothing was lost
        ({"paused": True}, {}, "db2 has replay paused and stays out of traffic. Run SELECT pg_wal_replay_resume()."),
        ({"problem": "Cannot connect."}, {}, "db2 no longer answers: Cannot connect. db2 stays out of traffic."),
    ],
)
def test_may_go_in(changed, record, said):
    found = fleet()
    found["db2"].update(changed)
    assert _rolling_restart.may_go_in(found, "db2", "db1", record) == said


def test_a_new_primary_does_not_go_in_as_a_standby():
    found = fleet()
    found["db2"]["in_recovery"] = False
    said = _rolling_restart.may_go_in(found, "db2", "db1", {})
    assert said.startswith("db1 was the primary and db2 a standby when this run began; now the primary is db1 and db2") and "db2 stays out" in said


STOPPED = {"state": "restarting", "intent": "stopping"}


def down(found, host, **kept):
    found[host] = {"problem": "Cannot connect.", "kept": dict(STOPPED, **kept), "lease": None}
    return found


def test_a_standby_is_started():
    found = down(fleet(), "db2", pending=PENDING, server={"version_num": 150004, "cluster_name": "", "standby": True})
    assert _rolling_restart.may_start(found, "db2") == ""


def test_a_primary_is_started_where_there_is_no_other():
    found = down(fleet(), "db1", pending=dict(PENDING, standby=False), server={"version_num": 150004, "cluster_name": "", "standby": False})
    assert _rolling_restart.may_start(found, "db1") == ""
    found["db3"]["in_recovery"] = False
    assert _rolling_restart.may_start(found, "db1") == (
        "db1 was the primary when it was stopped, but now db3 is: it was not started, because there would be two primaries. Make it a standby"
        " (pg_rewind), and"
        " run the playbook again.")


def test_a_primary_is_not_started_beside_one_whose_record_is_damaged():
    found = down(fleet(), "db1", pending=dict(PENDING, standby=False))
    found["db3"] = {"problem": "/s is damaged", "unread": True, "in_recovery": False, "system_identifier": "7", "kept": {}, "lease": None}
    assert "now db3 is" in _rolling_restart.may_start(found, "db1")


def test_a_primary_is_not_started_where_another_cannot_be_asked():
    found = down(fleet(), "db1", pending=dict(PENDING, standby=False))
    found["db3"] = {"problem": "unreachable: no route", "kept": {}, "lease": None}
    assert _rolling_restart.may_start(found, "db1") == (
        "db1 was the primary when it was stopped, but db3 may have been promoted and does not answer: it was not started, because there could be two"
        " primaries. Start the one that was promoted last, or remove db3 from target, and run the playbook again.")
    found = down(found, "db3", server={"version_num": 150004, "cluster_name": "", "standby": True})
    assert _rolling_restart.may_start(found, "db1") == "", "a standby that the rolling restart has stopped is none"


def test_of_two_former_primaries_none_is_started():
    """One of them was stopped as the successor of the other."""
    found = down(down(fleet(), "db1", pending=dict(PENDING, standby=False)), "db2", pending=dict(PENDING, standby=False))
    assert _rolling_restart.may_start(found, "db1") and _rolling_restart.may_start(found, "db2")


def test_what_it_was_when_it_was_stopped():
    """Not what it was when its pending began: it may have been promoted in between. And a pending that is waived says nothing."""
    found = down(fleet(), "db2", pending=PENDING, server={"version_num": 150004, "cluster_name": "", "standby": False})
    assert "db2 was the primary when it was stopped" in _rolling_restart.may_start(found, "db2")
    found = down(fleet(), "db2", pending={}, server={"version_num": 150004, "cluster_name": "", "standby": True})
    assert _rolling_restart.may_start(found, "db2") == ""


@pytest.mark.parametrize(
    ("found", "waived", "half"),
    [
        ({"kept": {}}, False, False),
        ({"problem": "timed out", "kept": {}}, True, False),
        ({"problem": "timed out", "kept": STOPPED}, False, True),
        ({"kept": STOPPED}, False, False),
        ({"problem": "timed out", "kept": {"state": "saved"}}, False, False),
        ({"kept": {"paused": [{"host": "lb1"}]}}, False, True),
        ({"problem": "timed out", "kept": {"paused": [{"host": "lb1"}]}}, False, True),
        ({"kept": {"paused": []}}, False, False),
        ({"kept": {"state": "saved"}}, True, True),
        ({"kept": {"state": "saved"}}, False, False),
        ({"problem": "timed out", "kept": {"state": "saved"}}, True, False),
    ],
)
def test_half_done(found, waived, half):
    assert _rolling_restart.half_done(found, waived) is half


def test_what_an_abort_has_left():
    of_this_run = {"cache_restart_fleet": {"abort": True, "done": ["db1"], "answers": fleet(db2={"out": True})}}
    variables = {"db1": of_this_run, "db2": {}, "db3": {}}
    assert _rolling_restart.left(["db1", "db2", "db3"], variables) == ["db2"]
    variables["db2"] = {"cache_restart_result": {"record": {"out": True}}}  # its clients were resumed, and no more
    assert _rolling_restart.left(["db1", "db2", "db3"], variables) == ["db2"]
    variables["db2"] = {"cache_restart_result": {"record": {"out": False}}}
    assert _rolling_restart.left(["db1", "db2", "db3"], variables) == []


SYNCHRONOUS = {"needed": 1, "standbys": ["db2", "walreceiver", "elsewhere"], "others": ["other"]}


def replicating(synchronous, **kept):
    names = {"db1": "", "db2": "db2", "db3": "walreceiver", "db4": "other"}
    return {host: dict(one, application_name=names[host], synchronous=synchronous if host == "db1" else None) for host, one in fleet(**kept).items()}


@pytest.mark.parametrize(("synchronous", "batch", "message"), [
    (None, ["db2", "db3"], ""), (SYNCHRONOUS, ["db2", "db3"], ""), (dict(SYNCHRONOUS, needed=3), ["db4"], ""),
    (dict(SYNCHRONOUS, needed=2), ["db2", "db3"], "While db2, db3 restart, all commits on db1 would wait: synchronous_standby_names needs 2, and 1 would be"),
    (dict(SYNCHRONOUS, needed=3), ["db2"], "While db2 restarts, all commits on db1 would wait: synchronous_standby_names needs 3, and 2 would be connected."),
])
def test_whose_commits_would_wait(synchronous, batch, message):
    found = replicating(synchronous)
    said = plan(found, serial=[2], min_standbys=0, only=["db1", *batch])["problem"]
    assert said.startswith(message) and bool(said) == bool(message), said
    assert plan(found, serial=[2], min_standbys=0, only=["db1", *batch], commits_may_wait=True)["problem"] == ""
    assert _rolling_restart.may_go_out(found, batch[0], {"hosts": tuple(HOSTS)}, batch, "db1", 0, "64MB") == said
    assert _rolling_restart.may_go_out(found, batch[0], {"hosts": tuple(HOSTS), "commits_may_wait": True}, batch, "db1", 0, "64MB") == ""


def test_a_standby_that_was_down_counts_when_it_is_there_again():
    """The plan does not know it yet, but the check before the next restart does. One that is not waited for does not count."""
    found = replicating({"needed": 1, "standbys": ["walreceiver"], "others": ["other"]})
    assert plan(found, only=["db3"])["problem"] == "" and plan(found, only=["db2"])["problem"] == ""
    said = _rolling_restart.may_go_out(found, "db3", {"hosts": tuple(HOSTS)}, ["db3"], "db1", 0, "64MB")
    assert said.startswith("While db3 restarts, all commits on db1 would wait: synchronous_standby_names needs 1, and 0 would be connected.")
    alone = replicating({"needed": 1, "standbys": ["db2"], "others": ["walreceiver", "other"]})
    assert plan(alone, only=["db2"])["problem"].startswith("While db2 restarts, all commits on db1 would wait")


def test_a_standby_that_is_only_restored_keeps_nobody_waiting():
    name = "99000"
    kept = {"rolling_restart": name, "state": "restarted", "before": STARTED - 1, "after": STARTED, "pending": PENDING}
    found = replicating({"needed": 1, "standbys": ["db2"], "others": []}, db2=kept)
    planned = plan(found, only=["db2"])
    assert (planned["rolling_restart"], planned["batches"], planned["problem"]) == (name, [["db2"]], "")
    assert _rolling_restart.may_go_out(found, "db2", {"hosts": tuple(HOSTS), "rolling_restart": name}, ["db2"], "db1", 0, "64MB") == ""
