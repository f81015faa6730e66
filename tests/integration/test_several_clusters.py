# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three clusters of one machine as three inventory hosts, through the playbooks."""

from __future__ import annotations

import json
import re
import time

import pytest
from cluster import LEFT
from conftest import TABLES
from playbook import task

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def fleet(machine, cluster):
    clusters = {}
    for name in NAMES:
        clusters[name] = machine(name)
        clusters[name].sql(TABLES)
        clusters[name].sql("CHECKPOINT")
    return clusters


@pytest.fixture
def hosts(ansible, fleet):
    binaries = next(iter(fleet.values())).bin
    ansible.set_hosts(
        {
            name: {"pgfleet_login_port": one.port, "pgfleet_login_unix_socket": one.socket, "pgfleet_data_directory": one.data}
            for name, one in fleet.items()
        },
        cache_extension_pg_config=binaries + "/pg_config",
    )
    return ansible


def test_main_job(hosts, fleet, tmp_path):
    """All start at once: the machine's lock makes one wait for the other, and all get there. Who has waited says so: for whom and how long."""
    output, status = hosts.command("pgfleet.cache.install")
    assert status == 0, output
    for one in fleet.values():
        one.warm(one.file_of("passenger"))
    output, status = hosts.command("pgfleet.cache.snapshot")
    assert status == 0, output
    for one in fleet.values():
        one.cool(one.file_of("passenger"))
    output, status = hosts.command("pgfleet.cache.warmup", "-e", "cache_warmup_rate=20MB", "-e", "pgfleet_results=%s" % tmp_path)
    assert status == 0, output
    [path] = tmp_path.glob("*.json")
    waited = {}
    for name, one in json.loads(path.read_text())["hosts"].items():
        if one["result"]["waited"]:
            [ahead] = [other.data for other in fleet.values() if '"%s"' % other.data in one["result"]["waited"]["reason"]]
            assert ahead != fleet[name].data
            assert re.search(r'^%s: warm@\d+ waits for the restore of "' % name, output, re.MULTILINE), "at once"
            assert any(re.fullmatch(r'Job \d+ waited for the restore of "%s" \(pid \d+\), for .*s\.' % ahead, text) for text in one["result"]["remarks"])
            waited[name] = one["result"]["waited"]["seconds"]
    assert len(waited) == 2 and min(waited.values()) > 0.5, output
    jobs = []
    for one in fleet.values():
        path = one.file_of("passenger")
        # the kernel takes pages back, before the snapshot too
        assert one.resident(path) >= LEFT * int(one.sql("SELECT pg_relation_size('passenger')"))
        jobs.append([float(word) for word in one.sql(
            "SELECT extract(epoch FROM started_at), extract(epoch FROM finished_at) FROM residency_jobs ORDER BY job DESC LIMIT 1"
        ).split("|")])
    # each of 27 MB at 20 MB/s takes more than a second; none began to load before the one before had ended
    ends = sorted(finished for dummy, finished in jobs)
    assert all(later - earlier > 1 for earlier, later in zip(ends, ends[1:])), jobs


def test_who_is_waited_for(hosts, fleet, as_postgres):
    """The message of a job that waits has the other cluster."""
    one, two = fleet["one"], fleet["two"]
    logins = [{"login_port": each.port, "login_unix_socket": each.socket} for each in (one, two)]
    for each in (one, two):
        each.cool(each.file_of("passenger"))
    hosts.set_hosts({"db1": {}})
    first, second = as_postgres(*(task("residency_restore", name="warm", rate="1MB", wait=False, **login) for login in logins))
    try:
        assert (first["changed"], second["changed"]) == (True, True), (first["msg"], second["msg"])
        time.sleep(2)
        [waiting] = as_postgres(task("residency_restore", job=second["job"], wait=False, **logins[1]))
        assert waiting["state"] == "waiting" and one.data in waiting["msg"], waiting["msg"]
    finally:
        for each, job in ((one, first["job"]), (two, second["job"])):
            each.sql("SELECT residency_cancel(%d)" % job)


def test_one_fails_and_stops_no_other(hosts, fleet):
    fleet["two"].stop()
    try:
        for name in ("one", "three"):
            fleet[name].cool(fleet[name].file_of("passenger"))
        output, status = hosts.command("pgfleet.cache.warmup")
    finally:
        fleet["two"].start()
    assert status != 0
    assert "1 of 3 hosts failed: two. The table says why." in output
    for name in ("one", "three"):
        assert fleet[name].resident(fleet[name].file_of("passenger")) > LEFT * (27 << 20)
    assert fleet["two"].sql("SELECT count(*) FROM residency_jobs") == "2"
