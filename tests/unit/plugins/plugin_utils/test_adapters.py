# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The choice of adapters and their places, and the names of servers."""

from __future__ import annotations

import os

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import OWN_TASKS, kinds

STEPS = {"service": ("look", "plan", "start", "stop", "restart", "reboot", "cold"), "traffic": ("check", "look", "out", "in")}
HAPROXY = {"host": "lb1", "backend": "read"}
VARIABLES = {"cache_restart_traffic": ["pgbouncer", "/t.yml", "haproxy"], "cache_restart_haproxy": [HAPROXY],
             "cache_restart_pgbouncer": [{"host": "lb2", "database": "shop"}]}


@pytest.mark.parametrize("contract", sorted(STEPS))
def test_each_does_every_step(contract):
    """Each directory has a task file for each step."""
    assert {"service": "systemd", "traffic": "haproxy"}[contract] in kinds(contract) and OWN_TASKS not in kinds(contract)
    for kind in (*kinds(contract), __file__):  # which is a file, if not of tasks
        for step in STEPS[contract]:
            assert os.path.isfile(_adapters.file(kind, contract, step)), (kind, step)
    for step in ("start", "stop", "restart", "reboot"):
        assert _adapters.file("/own/file.yml", "service", step) == "/own/file.yml"


def test_file():
    assert _adapters.file("systemd", "service", "start").endswith("/service/systemd/start.yml")
    assert _adapters.file("systemd", "service", "cold").endswith("/service/systemd/cold.yml")
    assert _adapters.file("pg_ctlcluster", "service", "reboot").endswith("/service/reboot.yml")
    assert _adapters.file("/own/file.yml", "service", "cold").endswith("/service/%s/cold.yml" % OWN_TASKS)
    with pytest.raises(AnsibleFilterError, match=r"The adapter systemd of service has no dance\.yml"):
        _adapters.file("systemd", "service", "dance")
    assert _adapters.is_own("/own/file.yml", "traffic") and not _adapters.is_own("haproxy", "traffic")


@pytest.mark.parametrize(("server", "named", "unit"), [
    ({"version_num": 150004, "cluster_name": "15/main"}, "", "postgresql@15-main"), ({"version_num": 150004, "cluster_name": ""}, "", "postgresql-15"),
    ({"version_num": 150004, "cluster_name": "15/main"}, "pg", "pg"), ({"unit": "kept.service", "version_num": 0}, "", "kept.service"),
])
def test_unit(server, named, unit):
    assert _adapters.unit(server, named) == unit


@pytest.mark.parametrize(("manager", "named", "cluster", "right"), [
    ("pg_ctlcluster", "", "15/main", True), ("pg_ctlcluster", "", "9.6/a.b-c", True), ("pg_ctlcluster", "", "prod", False), ("systemd", "", "prod", True),
    ("systemd", "", "../x", False), ("systemd", "pg", "../x", True), ("pg_ctlcluster", "", "15/..", False), ("pg_ctlcluster", "", "15/main\n", False),
    ("/own.yml", "", "../x", True),
])
def test_the_name_of_a_cluster(manager, named, cluster, right):
    assert bool(_adapters.no_cluster({"cluster_name": cluster}, manager, named)) is not right


def test_ways():
    pooler = {"kind": "pgbouncer", "host": "lb2", "port": 6432, "socket": "/var/run/postgresql", "user": "pgbouncer", "become_user": "postgres",
              "database": "shop"}
    proxy = dict(HAPROXY, kind="haproxy", socket="/run/haproxy/admin.sock", server="db1")
    own = {"kind": "/t.yml", "host": "db1"}
    found = _adapters.ways(VARIABLES, "db1")
    assert [(way["kind"], way["moment"], way["places"]) for way in found] == [
        ("pgbouncer", "wait", [pooler]), ("/t.yml", "away", [own]), ("haproxy", "away", [proxy])]
    assert _adapters.ways(VARIABLES, "db1", "wait") == found[:1] and _adapters.ways(VARIABLES, "db1", "away") == found[1:]
    assert _adapters.ways(dict(VARIABLES, cache_restart_haproxy="[]"), "db1", "away") == [found[1]]
    assert _adapters.ways({}, "db1") == _adapters.ways({"cache_restart_traffic": ""}, "db1") == []
    assert _adapters.ways(dict(VARIABLES, cache_restart_haproxy=[dict(HAPROXY, server="x", kind="y")]), "db1")[2]["places"] == [dict(proxy, server="x")]


def test_what_look_has_seen():
    ways = _adapters.ways(VARIABLES, "db1", "away")
    lb1, lb3 = dict(HAPROXY, out=True), dict(HAPROXY, host="lb3", out=False)
    silent = dict(HAPROXY, out=None)
    assert _adapters.in_traffic(ways, {"haproxy": [silent]}) == "" and _adapters.back_in(ways, {"haproxy": [silent]}) == [ways[1]], "it may send traffic"
    seen = {"haproxy": [lb1, lb3, dict(lb3, backend="reports")], "pgbouncer": [{"host": "lb2", "out": None}]}
    known = [dict(place, kind="haproxy", sessions=5) for place in seen["haproxy"]]
    assert _adapters.places(ways, {"haproxy": known}) == [{"kind": "/t.yml", "host": "db1"}, *(
        {name: place[name] for name in ("kind", "host", "backend")} for place in known)], "no more than what identifies it"
    assert _adapters.in_traffic(ways, seen) == "HAProxy on lb3" and _adapters.back_in(ways, seen) == [ways[1]]
    assert [_adapters.where(place) for place in _adapters.places(ways)] == ["/t.yml", "lb1"]
    assert _adapters.in_traffic(ways, {}) == "" and _adapters.back_in(ways, {}) == [] and _adapters.places(ways, {}) == [{"kind": "/t.yml", "host": "db1"}]
    assert _adapters.in_traffic(_adapters.ways(VARIABLES, "db1"), seen) == "HAProxy on lb3", "who does not tell is not counted"


def test_forgets():
    """Only proxies that send the host traffic are named."""
    ways = _adapters.ways(VARIABLES, "db1")
    assert _adapters.forgets(ways, {"haproxy": [dict(HAPROXY, out=False)]}) == " (a reload of HAProxy loses the state without server-state-file)"
    assert _adapters.forgets(ways, {"haproxy": [dict(HAPROXY, out=True)]}) == _adapters.forgets(ways, {}) == ""
    assert _adapters.forgets(ways, {"pgbouncer": [{"host": "lb2", "out": False}]}) == "", "which does not forget"
