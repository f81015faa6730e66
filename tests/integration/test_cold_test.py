# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook cold_test: every state is what its name says, and afterwards the host is as it was."""

from __future__ import annotations

import glob
import json
import os

import pytest
from cluster import LEFT
from playbook import task

MIB = 1 << 20
LOCK = "/dev/shm/pgfleet.cold_test"
QUERY = {"name": "passengers", "query": "SELECT count(name) FROM passenger"}


@pytest.fixture
def fleet(cluster, ansible, tmp_path):
    """Half of one table is cached, and nothing of the other."""
    ansible.set_hosts(
        {"db1": {}},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_cold_test_queries=[QUERY],
        cache_cold_test_repeat=2,
        cache_cold_test_results=str(tmp_path),
    )
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    paths = [cluster.file_of(relation) for relation in ("passenger", '"Boarding Pass"')]
    for path in paths:
        cluster.cool(path)
    with open(paths[1], "rb") as file:
        file.read(4 * MIB)
    cluster.paths = paths
    return ansible


def host(cluster):
    return [cluster.resident(path) for path in cluster.paths]


def as_before(cluster, before):
    passenger, pass_ = host(cluster)
    assert passenger <= before[0] + MIB, "what only the test has read is gone again"
    assert pass_ >= LEFT * before[1] > 0
    assert not os.path.lexists(LOCK)
    assert cluster.sql("SELECT count(*) FROM residency_snapshots()") == "0"


def test_every_state(fleet, cluster, tmp_path):
    before = host(cluster)
    output, status = fleet.command("pgfleet.cache.cold_test")
    assert status == 0, output
    [path] = glob.glob(str(tmp_path / "db1-*.json"))
    with open(path) as file:
        result = json.load(file)
    size = int(cluster.sql("SELECT pg_relation_size('passenger')"))
    states = {row["state"]: row for row in result["states"]}
    assert set(states) == {"both_cold", "buffers_cold", "restored_page_cache", "restored", "both_warm"}
    assert len(result["runs"]) == 10
    for row in states.values():
        assert row["runs"] == 2
        assert row["milliseconds_min"] <= row["milliseconds_median"] <= row["milliseconds_max"]
        assert row["label"] in output
    assert 0.95 * size <= states["both_cold"]["device_bytes"] <= 1.3 * size
    assert states["both_cold"]["page_cache_bytes"] <= 0.05 * size
    for state in ("buffers_cold", "restored_page_cache", "restored", "both_warm"):
        assert states[state]["device_bytes"] <= 0.1 * size, state
    assert states["buffers_cold"]["page_cache_bytes"] >= 0.9 * size
    assert states["restored_page_cache"]["page_cache_bytes"] >= 0.9 * size
    as_before(cluster, before)


def test_check_mode(fleet, cluster):
    before, started = host(cluster), cluster.sql("SELECT pg_postmaster_start_time()")
    output, status = fleet.command("pgfleet.cache.cold_test", "--check")
    assert status == 0, output
    assert "Would run 10 times in postgres: passengers" in " ".join(output.split())
    assert cluster.sql("SELECT pg_postmaster_start_time()") == started
    as_before(cluster, before)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM passenger", "passengers: PostgreSQL says: column \"nothing\" does not exist."),
        ("SELECT 1 / (count(name) - 24000) FROM passenger", "passengers failed with SQLSTATE 22012 (DivisionByZero)"),
    ],
    ids=["before anything is done", "while it is measured"],
)
def test_a_query_that_fails(fleet, cluster, tmp_path, query, message):
    before = host(cluster)
    output, status = fleet.command(
        "pgfleet.cache.cold_test", "-e", json.dumps({"cache_cold_test_queries": [dict(QUERY, query=query)]})
    )
    assert status != 0
    assert message in " ".join(output.split()).replace('\\"', '"'), output
    assert "1 of 1 hosts failed: db1. The table says why." in output
    as_before(cluster, before)


def test_another_run_is_in_progress(fleet, cluster):
    before = host(cluster)
    os.symlink("cold test of db1 by alice, since noon", LOCK)
    try:
        output, status = fleet.command("pgfleet.cache.cold_test")
        assert os.readlink(LOCK) == "cold test of db1 by alice, since noon"
    finally:
        os.unlink(LOCK)
    assert status != 0
    assert "Another run is in progress on this host: cold test of db1 by alice, since noon." in " ".join(output.split())
    as_before(cluster, before)


def test_a_task_file_of_the_users_own(fleet, cluster, tmp_path):
    path = tmp_path / "service.yml"
    path.write_text(
        "- name: Stop or start\n"
        "  ansible.builtin.command: %s/pg_ctl {{ 'stop' if pgfleet_service_state == 'stopped' else 'start -l %s' }} --wait -D %s\n"
        "  become: true\n  become_user: postgres\n  changed_when: true\n"
        "  failed_when: false\n" % (cluster.bin, cluster.log, cluster.data)
    )
    before = host(cluster)
    output, status = fleet.command(
        "pgfleet.cache.cold_test", "-e", "pgfleet_service_manager=%s" % path, "-e", "cache_cold_test_repeat=1",
        "-e", json.dumps({"cache_cold_test_states": ["both_cold", "both_warm"]}),
    )
    assert status == 0, output
    [result] = [json.loads(one.read_text()) for one in tmp_path.glob("db1-*.json")]
    assert result["states"][0]["device_bytes"] > 20 * MIB > result["states"][1]["device_bytes"]
    as_before(cluster, before)


def test_query_io_within_it_is_not_refused(fleet, as_postgres, login):
    """And outside of it, nothing is left of the lock."""
    [result] = as_postgres(task("query_io", query="SELECT 1", **login))
    assert not result.get("failed"), result["msg"]
