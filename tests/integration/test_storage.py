# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that share storage restore by turns: one and two do, three does not."""

from __future__ import annotations

import json
import os

import pytest
from cluster import quick, thorough
from conftest import HOSTS
from playbook import banners, recap
from test_playbooks import OLDEST, common_variables, results, table, unreachable

SAN = {"pgfleet_storage_group": "san1"}
# when a module runs on a host; its user is postgres
TIMED = """#!/bin/sh
echo "$(date +%s.%N) @host@" >>@log@
/usr/bin/python3 "$@"
status=$?
echo "$(date +%s.%N) @host@" >>@log@
exit $status
"""


@pytest.fixture
def shared(fleet, cluster):
    """The fleet, of which each restore takes some seconds, and fleet.times(host): when its first module began, and when its last one ended."""
    folder = os.path.join(fleet.directory, "storage")
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    log = os.path.join(folder, "log")
    hosts = {}
    for host in HOSTS:
        path = os.path.join(folder, host)
        with open(path, "w") as file:
            file.write(TIMED.replace("@host@", host).replace("@log@", log))
        os.chmod(path, 0o755)
        hosts[host] = dict({} if host == "three" else SAN, ansible_python_interpreter=path)
    with open(log, "w"):
        os.chmod(log, 0o666)

    def times(host):
        with open(log) as file:
            moments = [float(line.split()[0]) for line in file if line.split()[1] == host]
        return moments[0], moments[-1]

    def set_hosts(**more):
        fleet.set_hosts({host: dict(one, **more.get(host, {})) for host, one in hosts.items()}, **dict(common_variables(fleet), **common))

    common = {"cache_warmup_snapshot": "storage", "cache_warmup_rate": "4MB", "cache_warmup_min_residency": 0}
    fleet.times, fleet.set_shared = times, set_hosts
    fleet.set_shared()
    path = cluster.file_of("passenger")
    cluster.warm(path)
    cluster.sql("SELECT FROM residency_snapshot('storage', 1, true)")
    cluster.cool(path)
    return fleet


@quick
def test_storage_is_shared_by_turns(shared):
    """By a single process of the controller: who waits does not hold it."""
    output, status = shared.command("pgfleet.cache.warmup", ANSIBLE_FORKS="1", timeout=120)
    assert status == 0, output
    times = {host: shared.times(host) for host in HOSTS}
    assert times["one"][1] < times["two"][0], times
    assert times["three"][0] < times["one"][1] and times["one"][1] - times["one"][0] > 1, times
    [result] = results(shared)
    turns = {host: one.get("turn") for host, one in result["hosts"].items()}
    assert turns == {"one": None, "two": {"storage": "san1", "number": 2, "behind": ["one"]}, "three": None}
    said = {host: "Waited for its turn at storage san1 behind one." in line for host, line in table(output).items()}
    assert said == {"one": False, "two": True, "three": False}, output


@thorough
def test_storage_of_three(shared):
    """On the oldest ansible-core that is supported. The second one is lost, and the third has its turn."""
    path = {"PATH": OLDEST + "/bin:" + os.environ["PATH"]}
    shared.set_shared(two={"cache_warmup_snapshot": "missing"}, three=SAN)
    output, status = shared.command("pgfleet.cache.warmup", timeout=120, **path)
    assert status != 0
    [result] = results(shared)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "done", "two": "failed", "three": "done"}, output
    moments = [moment for host in HOSTS for moment in shared.times(host)]
    assert moments == sorted(moments)
    assert result["hosts"]["three"]["turn"] == {"storage": "san1", "number": 3, "behind": ["one", "two"]}
    assert "Snapshot 'missing' does not exist here" in table(output)["two"] and "Waited for its turn at storage san1 behind one." in table(output)["two"]


@thorough
@pytest.mark.parametrize(("strategy", "verdict"), [("free", "failed"), ("host_pinned", "unreachable")])
def test_storage_of_a_host_that_is_lost(shared, tmp_path, strategy, verdict):
    """Others get their turn, and do not wait for a host that shares nothing with them."""
    shared.set_shared(one={"cache_warmup_snapshot": "missing"} if verdict == "failed" else {})
    lost = unreachable("one", tmp_path) if verdict == "unreachable" else []
    output, status = shared.command("pgfleet.cache.warmup", *lost, ANSIBLE_STRATEGY=strategy, timeout=120)
    assert status != 0
    [result] = results(shared)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": verdict, "two": "done", "three": "done"}, output
    assert {host: counted["failed"] for host, counted in recap(output).items() if host in HOSTS} == {"one": 1, "two": 0, "three": 0}
    assert result["hosts"]["two"]["turn"]["behind"] == ["one"]
    assert shared.times("two")[0] < shared.times("three")[1]
    if verdict == "failed":
        assert shared.times("one")[1] < shared.times("two")[0]


def test_storage_in_check_mode(shared):
    output, status = shared.command("pgfleet.cache.warmup", "--check")
    assert status == 0, output
    said = {host: "Would wait for its turn at storage san1 behind one." in line for host, line in table(output).items()}
    assert said == {"one": False, "two": True, "three": False}, output
    output, status = shared.command("pgfleet.cache.warmup", "--check", "--limit", "two")
    assert status == 0 and "Would load" in output and "its turn" not in output, output


@thorough
def test_storage_with_two_limits(shared):
    """Refused, and nobody else is."""
    shared.set_shared(two={"pgfleet_storage_limit": 2})
    wrong = "pgfleet_storage_limit is 1 on one and 2 on two, which share the storage san1 (pgfleet_storage_group): set the same limit for these hosts."
    output, status = shared.command("pgfleet.cache.warmup", "-e", "cache_warmup_relations=pg_database")
    assert status != 0
    [result] = results(shared)
    assert {host: one["message"] for host, one in result["hosts"].items()} == {"one": wrong, "two": wrong, "three": ""}, output
    output, status = shared.command("pgfleet.cache.warmup", "--limit", "one,two")
    assert status != 0 and len(banners(output)) == 2 and json.dumps(wrong + " Nothing was changed.") in output, output
