# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _roll

HOSTS = ["db1", "db2", "db3", "db4"]
DEFAULTS = {
    "what": {"db1": "postgresql", "db2": "postgresql", "db3": "postgresql"},
    "primary": "in_place", "candidate": "", "switchover_tasks": "", "serial": 1, "min_standbys": 1, "resume": True,
    "max_age": 86400,
}


def fleet(**kept):
    """db1 is the primary; what each host has kept."""
    return {
        host: {"in_recovery": host != "db1", "system_identifier": "7", "started": "then", "kept": kept.get(host, {})} for host in HOSTS
    }


def plan(found=None, limited=None, **options):
    return _roll.plan(HOSTS, fleet() if found is None else found, HOSTS if limited is None else limited, 100000.7, **dict(DEFAULTS, **options))


def test_a_new_one():
    assert plan() == {
        "hosts": HOSTS, "primary": "db1", "standbys": ["db2", "db3", "db4"], "roll": "100000", "resumed": False, "done": [],
        "batches": [["db2"], ["db3"], ["db4"]], "last": "db1", "problem": "",
    }


@pytest.mark.parametrize(
    ("serial", "batches"),
    [
        (2, [["db2", "db3"], ["db4"]]),
        ("2", [["db2", "db3"], ["db4"]]),
        ("70%", [["db2", "db3"], ["db4"]]),
        ("1%", [["db2"], ["db3"], ["db4"]]),
        ([1, "100%"], [["db2"], ["db3", "db4"]]),
        ("1, 2", [["db2"], ["db3", "db4"]]),
    ],
)
def test_batches(serial, batches):
    assert plan(serial=serial, min_standbys=0)["batches"] == batches


def test_limit():
    found = plan(limited=["db3"])
    assert (found["batches"], found["last"], found["primary"], found["problem"]) == ([["db3"]], "", "db1", "")


def test_it_goes_on():
    """Those out of traffic first, those that are done not at all, and a roll that is finished or too old is none."""
    kept = {
        "db2": {"roll": "90000", "state": "done", "finished": False, "what": "postgresql"},
        "db4": {"roll": "90000", "state": "restarted", "out": True, "finished": False},
        "db3": {"roll": "95000", "state": "done", "finished": True},
        "db1": {"roll": "10000", "state": "done", "finished": False},
    }
    found = plan(fleet(**kept))
    assert (found["roll"], found["resumed"], found["done"], found["batches"], found["last"]) == ("90000", True, ["db2"], [["db4"], ["db3"]], "db1")
    assert plan(fleet(**kept), max_age=9000)["resumed"] is False
    found = plan(fleet(**kept), resume=False)
    assert (found["roll"], found["done"], found["batches"]) == ("100000", [], [["db4"], ["db2"], ["db3"]])
    kept["db3"] = {"roll": ["no"], "finished": True}
    assert plan(fleet(**kept))["roll"] == "90000"
    kept["db3"] = {"roll": "101000", "state": "done"}
    assert plan(fleet(**kept))["roll"] == "90000", "one of the future is none"


def test_the_primary_is_left_alone():
    assert plan(primary="skip")["last"] == ""
    assert plan(fleet(db1={"roll": "90000", "state": "done"}))["last"] == ""


@pytest.mark.parametrize(
    ("hosts", "options", "problem"),
    [
        ({"db3": {"system_identifier": "8"}}, {},
         "db3 does not belong to this fleet: the system identifier is another. Leave it out of target."),
        ({"db1": {"in_recovery": True}}, {},
         "There is no primary among db1, db2, db3, db4: name the whole fleet with target, and choose hosts of it with --limit."),
        ({"db1": {"problem": "unreachable: no."}}, {},
         "There is no primary among db2, db3, db4. db1 does not answer: unreachable: no."),
        ({"db4": {"in_recovery": False}}, {},
         "db1 and db4 are primaries, of the same cluster: somebody has promoted a standby. Find out which one the clients use, and make the"
         " other its standby again (pg_rewind)."),
        ({}, {"serial": 3},
         "A batch of db2, db3, db4 would take all standbys out of traffic: 0 of 3 would stay, and cache_restart_min_standbys is 1."
         " Make cache_restart_serial smaller."),
        ({}, {"serial": 2, "min_standbys": "2"},
         "A batch of db2, db3 would take too many standbys out of traffic: 1 of 3 would stay, and cache_restart_min_standbys is 2."
         " Make cache_restart_serial smaller."),
        ({"db2": {"kept": {"roll": "90000", "state": "done", "what": "host"}}}, {},
         "The rolling restart that was begun has cache_restart_what=host (on db2), and this run has postgresql. Finish it with"
         " -e cache_restart_what=host, or begin a new one with -e cache_restart_resume=false."),
        ({"db2": {"kept": {"roll": "90000", "state": "done", "what": "host"}}}, {"resume": False}, ""),
        ({"db2": {"kept": {"roll": "90000", "state": "done", "what": "host"}}}, {"what": {"db1": "postgresql", "db2": "host"}}, ""),
        ({"db2": {"kept": {"roll": "90000", "state": "done", "what": "host"}}}, {"what": {"db1": "postgresql"}}, ""),
        ({}, {"primary": "switchover", "candidate": "db9"},
         "cache_restart_candidate is db9, which is no standby; there are db2, db3, db4."),
        ({}, {"primary": "switchover"},
         "cache_restart_primary is switchover: name the task file that makes cache_restart_candidate the primary with"
         " cache_restart_switchover_tasks."),
        ({}, {"primary": "switchover", "switchover_tasks": "/nowhere"},
         "There is no task file /nowhere on the controller: correct cache_restart_switchover_tasks."),
        ({}, {"primary": "switchover", "switchover_tasks": __file__}, ""),
    ],
)
def test_problems(hosts, options, problem):
    found = fleet()
    for host, changed in hosts.items():
        found[host].update(changed)
    assert plan(found, **options)["problem"] == problem


def test_who_serves_meanwhile():
    """Beyond --limit one is out of traffic, and one is down."""
    found = fleet(db4={"roll": "90000", "out": True})
    assert plan(found, limited=["db1", "db2", "db3", "db4"])["problem"] == ""
    assert plan(found, limited=["db2"])["problem"] == "", "db3 serves"
    found["db3"]["problem"] = "Cannot connect."
    assert plan(found, limited=["db2"])["problem"] == (
        "While db2 restarts, 0 of 3 standbys would serve, and cache_restart_min_standbys is 1. db4 is out of traffic since an earlier run: take it"
        " into --limit. db3 does not answer: Cannot connect. Or accept that with a smaller number."
    )
    assert plan(found, limited=["db2", "db4"])["problem"] == "", "db4 comes back first"
    assert plan(found, limited=["db2"], min_standbys=0)["problem"] == ""
    found["db4"]["problem"] = "timed out"
    assert plan(found, limited=["db1"])["problem"] == "", "db2 serves"
    assert plan(found, limited=["db1"], min_standbys=2)["problem"].startswith("While db1 restarts, 1 of 3 standbys would serve,")


def test_a_primary_alone():
    found = {"db1": fleet()["db1"]}
    assert plan(found)["problem"].startswith("There is no standby of db1: nobody would serve while it restarts.")
    assert plan(found, min_standbys=0)["problem"] == ""


def results(*some):
    return {"results": [dict(one, __cache_restart_each=host) for host, one in some]}


def text(value):
    return base64.b64encode(value.encode()).decode()


def test_answers():
    answer = {"in_recovery": True, "system_identifier": "7", "version_num": 150004, "cluster_name": "15/main", "data_directory": "/data",
              "started": "then", "pid": 5, "extension": "0.3.0", "schema": None}
    row = {"query_result": [answer]}
    none = {"msg": "file not found: /var/lib/pgfleet/db1.json"}
    servers = results(
        ("db1", row), ("db2", row), ("db3", {"unreachable": True, "msg": "timed\nout"}), ("db4", {"msg": "sudo: not found", "query_result": []}),
        ("db5", row), ("db6", row), ("db7", row), ("db8", row), ("db9", row),
    )
    states = results(
        ("db1", none), ("db2", {"content": text(json.dumps({"roll": "9", "another": 5}))}), ("db3", none), ("db4", none),
        ("db5", {"content": text("[1"), "source": "/s"}),
        ("db6", {"unreachable": True, "msg": "gone"}), ("db7", {"msg": "file is not readable: /s"}),
        ("db8", {"msg": "Unable to slurp file: {source}"}), ("db9", {"msg": "unable to slurp file: [Errno 20] Not a directory: '/s/db9.json'"}),
    )
    # from ansible-core 2.21 a host can return the item of another
    states["results"][1]["__cache_restart_each"] = servers["results"][1]["__cache_restart_each"] = "db1"
    servers["results"][1]["query_result"] = [dict(answer, problem="x", more=[1])]
    found = _roll.answers(servers, states, ["db%d" % number for number in range(1, 10)])
    assert found["db1"] == dict(answer, kept={})
    assert found["db2"] == dict(answer, kept={"roll": "9"})
    assert found["db3"] == {"problem": "unreachable: timed out"}
    assert found["db4"]["problem"].startswith("sudo: not found Install sudo")
    assert found["db5"] == {"problem": "/s is damaged: see when the host was restarted, and remove the file."}
    assert found["db6"] == {"problem": "unreachable: gone"}
    assert found["db7"] == {"problem": "file is not readable: /s"}
    assert found["db8"] == {
        "problem": "Cannot read how far this host came (Unable to slurp file): check that cache_restart_state_directory is a directory."
    }
    assert "(unable to slurp file: [Errno 20] Not a directory: '/s/db9.json'): check that" in found["db9"]["problem"]


def test_what_is_left():
    variables = {host: {"cache_restart_fleet": {"primary": "db1", "done": ["db2"]}, "cache_restart_result": {}} for host in HOSTS}
    variables["db3"]["cache_restart_result"] = {"state": "done"}
    variables["db4"] = {}  # beyond --limit
    assert _roll.restarted(HOSTS, variables) == ["db2", "db3"]
    assert _roll.left(HOSTS, variables) == ["db1", "db4"]
    variables["db1"]["cache_restart_primary"] = "skip"
    assert _roll.left(HOSTS, variables) == ["db4"]
    assert _roll.left(HOSTS, {host: {} for host in HOSTS}) == HOSTS


NOTHING = {"cache_warmup_snapshot": "", "cache_warmup_min_residency": "", "cache_warmup_max_age": ""}
PROCESSES = "4026531836 root  ps -e -o pidns=,user:64=,args=\n4026531836 %s  %s\n"
TOTAL = {"total": {"in_page_cache": 1000, "in_shared_buffers": 500, "in_both": 300}}


@pytest.mark.parametrize(
    ("changed", "begins"),
    [
        ({}, ""),
        ({"processes": PROCESSES % ("postgres", "/usr/bin/python3 /usr/bin/patroni /etc/p.yml")}, "Patroni runs on db1, and would take a restart"),
        ({"processes": PROCESSES % ("root", "repmgrd -f x")}, "repmgr runs on db1"),
        ({"processes": "- root pacemakerd\n"}, "Pacemaker runs on db1"),
        ({"processes": PROCESSES % ("nobody", "patroni")}, ""),
        ({"processes": (PROCESSES % ("root", "patroni")).replace("6 root  patroni", "7 root  patroni")}, ""),
        ({"memory": 8000000}, "9.38 MB are resident, and there is memory for 7.63 MB of page cache: cache_restart_min_residency of 90 %"),
        ({"memory": 8000000, "min_residency": "50"}, ""),
        ({"room": ["1000", "900"]}, "The file system of /data or its pg_wal has 900.00 Bytes left, less than cache_restart_min_free of 1MB"),
        ({"room": ["1048576", "1048576"]}, ""),
        ({"replaced": dict(NOTHING, cache_warmup_snapshot="warm")}, "cache_warmup_snapshot is given with -e and would replace"),
        ({"replaced": dict(NOTHING, cache_warmup_min_residency=50)}, "cache_warmup_min_residency is given with -e and would replace"),
    ],
)
def test_in_the_way(changed, begins):
    given = dict(
        {"me": {"data_directory": "/data"}, "processes": PROCESSES % ("root", "cron"), "user": "postgres", "info": TOTAL, "memory": 1 << 30,
         "room": ["2000000", "2000000"], "min_residency": 90, "min_free": "1MB", "replaced": NOTHING}, **changed)
    said = _roll.in_the_way("db1", **given)
    assert said.startswith(begins) and bool(said) is bool(begins), said


def test_preview():
    saved = {"msg": "Would save 12 MB that are cached now as 'restart'."}
    planned = {"primary": "db1", "last": "db1", "done": ["db3"]}
    variables = {"cache_restart_answers": {"db2": {"started": "then"}}, "__cache_restart_saved": saved, "cache_restart_result": {}}
    assert _roll.preview("db2", variables, planned) == saved["msg"]
    variables["cache_restart_result"] = {"before": "then"}
    assert _roll.preview("db2", variables, planned) == saved["msg"]
    variables["cache_restart_result"] = {"before": "once", "snapshot": "restart@3"}
    assert _roll.preview("db2", variables, planned) == "Is restarted already: would not be restarted again, but restored from restart@3."
    assert _roll.preview("db3", {}, planned) == "Is restarted and warm already: would not be restarted again."
    assert _roll.preview("db1", variables, dict(planned, last="")) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"db2": {"in_recovery": False}},
         "db1 was the primary and db2 a standby when this roll looked; now the primary is db1 and db2: somebody else is at work."
         " Nothing was restarted on db2. Run the playbook again when it is settled."),
        ({"db1": {"in_recovery": True}}, "db1 was the primary and db2 a standby when this roll looked; now the primary is none of them:"),
        ({"db1": {"problem": "unreachable: no route"}}, "db1 does not answer any more: unreachable: no route Nothing was restarted on db2."),
    ],
)
def test_roles_changed(changed, said):
    found = fleet()
    for host, one in changed.items():
        found[host].update(one)
    assert _roll.roles_changed(found, "db2", "db1").startswith(said)
    assert bool(_roll.roles_changed(found, "db2", "db1")) is bool(said)


def test_behind():
    row = {"caught_up": False, "paused": False, "receiver": "streaming", "replayed": "0/3000000", "behind": 2048}
    assert _roll.behind(dict(row, caught_up=True), "db2", "db1", 5) == ""
    assert _roll.behind(row, "db2", "db1", 5) == (
        "db2 does not replay what db1 writes: after 5 s it is at 0/3000000, 2.00 KB behind. It receives WAL and replays it slowly: wait, or raise"
        " cache_restart_replay_timeout."
    )
    assert _roll.behind(dict(row, receiver="none"), "db2", "db1", 5).endswith("It receives no WAL: look at its primary_conninfo, and at its log.")
    assert _roll.behind(dict(row, paused=True), "db2", "db1", 5).endswith("Replay is paused: SELECT pg_wal_replay_resume().")


def test_proxies():
    entry = {"host": "lb1", "socket": "/s", "backend": "read", "server": "db2"}
    rows = [
        {"backend": "read", "server": "db2", "status": "DRAIN", "up": True, "out": True, "sessions": 2},
        {"backend": "read", "server": "db3", "status": "UP", "up": True, "out": False, "sessions": 1},
        {"backend": "other", "server": "db4", "status": "UP", "up": True, "out": False, "sessions": 1},
    ]
    asked = [{"__cache_restart_server": dict(entry, host="localhost"), "rc": 0, "stdout": json.dumps(rows)}]
    [found] = _roll.proxies(asked, [entry], True)
    assert found == dict(
        entry, status="DRAIN", up=True, out=True, sessions=2, answered=True, error="", known=True, servers=["db2", "db3"], others=["db3"], up_there=["db3"]
    )
    rows[1]["out"] = True
    asked[0]["stdout"] = json.dumps(rows)
    assert _roll.proxies(asked, [entry], True)[0]["others"] == [] and _roll.proxies(asked, [entry], False) == []
    [found] = _roll.proxies([{"rc": 1, "stderr": "Traceback\nOSError: no", "stderr_lines": 5}], [entry], False)
    assert (found["answered"], found["error"], found["known"]) == (False, "OSError: no", False)
    [found] = _roll.proxies([{"unreachable": True, "msg": "no route"}], [entry], True)
    assert (found["answered"], found["error"]) == (False, "no route")


@pytest.mark.parametrize("said", [[5], "abc", [{"in_recovery": "yes"}], {"in_recovery": True}])
def test_a_server_that_answers_what_cannot_be(said):
    assert _roll.answers(results(("db1", {"query_result": said})), results(("db1", {"msg": "not found"})), ["db1"])["db1"]["problem"].startswith(
        "It has answered what cannot be: ")


@pytest.mark.parametrize("content", ["W1s" * 100000, 5, "%%", text(json.dumps({"roll": 5}))])
def test_what_is_kept_can_be_anything(content):
    row = {"query_result": [dict.fromkeys(["extension", "schema"], None)]}
    row["query_result"][0].update(in_recovery=True, system_identifier="7", version_num=1, cluster_name="", data_directory="/", started="x", pid=1)
    assert "is damaged" in _roll.answers(results(("db1", row)), results(("db1", {"content": content, "source": "/s"})), ["db1"])["db1"]["problem"]


ENTRY = {"host": "lb1", "socket": "/run/haproxy/admin.sock", "backend": "read", "server": "db1"}
SERVER = {"backend": "read", "server": "db1", "out": False, "up": True, "sessions": 3, "status": "UP"}


def test_a_proxy_decides_nothing_but_how_a_server_is():
    """Neither whom to ask next, nor for what."""
    rows = [dict(SERVER, host="localhost", socket="/run/docker.sock", known=False), dict(SERVER, server="db2")]
    [found] = _roll.proxies([{"rc": 0, "stdout": json.dumps(rows)}], [ENTRY], True)
    assert found == dict(ENTRY, out=False, up=True, sessions=3, status="UP", answered=True, error="", known=True, servers=["db1", "db2"], others=["db2"],
                         up_there=["db2"])


@pytest.mark.parametrize("answer", ["", "5", "[5]", "[" * 100000, json.dumps([dict(SERVER, sessions="3")]), json.dumps([dict(SERVER, backend=["read"])])])
def test_a_proxy_that_answers_what_was_not_asked(answer):
    [found] = _roll.proxies([{"rc": 0, "stdout": answer}], [ENTRY], True)
    assert (found["answered"], found["error"], found["known"], found["host"]) == (False, "its answer is not what was asked for", False, "lb1")
