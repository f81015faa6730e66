# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook status: its figures, what is to be done after runs that were not finished, its exit status, and that it changes nothing."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
import test_records
from cluster import quick, thorough
from conftest import PASSWORD
from playbook import documented, four, keys
from test_records import background, lease, wait_for
from test_rolling_restart import fresh, primary_and_standbys, row, says, warm

STATUS = "pgfleet.cache.status"
failed = test_records.failed  # the fixture
ALICE = {"id": "run-x", "owner": "alice", "controller": "ctl9", "pid": 1, "what": "rolling_restart", "since": "2026-11-22T00:00:00Z"}


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    found = primary_and_standbys(machine, "st")
    found["db1"].sql("CREATE ROLE watcher LOGIN PASSWORD '%s' IN ROLE pg_monitor; CREATE DATABASE without" % PASSWORD)
    return found


@pytest.fixture
def fleet(ansible, clusters, machine):
    for fleet in fresh(ansible, clusters, machine):
        for one in clusters.values():
            warm(one)
            one.sql("SELECT FROM residency_snapshot('warm', 1, true)")
        fleet.run("--list-hosts")  # leaves the inventory
        yield fleet


def content(fleet):
    """What the hosts have that status could change."""
    state = os.path.join(fleet.directory, "state")
    files = {}
    for name in os.listdir(state) if os.path.isdir(state) else ():
        with open(os.path.join(state, name), "rb") as file:
            files[name] = (file.read(), os.stat(file.fileno()).st_mtime_ns)
    servers = {name: (one.folder(), one.processes(), one.sql("SELECT pg_postmaster_start_time()")) for name, one in fleet.clusters.items()}
    return files, servers


def write(fleet, name, value):
    os.makedirs(os.path.join(fleet.directory, "state"), exist_ok=True)
    with open(os.path.join(fleet.directory, "state", name), "w") as file:
        json.dump(value, file)


@quick
def test_all_is_well(fleet, clusters, as_postgres):
    """Also as a role of pg_monitor alone, over TCP; the figures are those of residency_info."""
    before = content(fleet)
    watcher = ["-e", "pgfleet_login_user=watcher", "-e", "pgfleet_login_password=" + PASSWORD, "-e", "pgfleet_login_host=127.0.0.1"]
    for arguments in ([], ["--check"], watcher):
        output, status = fleet.ansible.command(STATUS, *arguments)
        assert status == 0 and "changed=1" not in output and "Something is to be done" not in output, output
    assert content(fleet) == before and "The results are in" not in output
    for name, one in clusters.items():
        login = {"login_port": one.port, "login_unix_socket": one.socket}
        info, *results = as_postgres(
            {"pgfleet.cache.residency_info": dict(login, subset=["databases"], snapshot="warm"), "name": "info"},
            *four("host_status", directory="/nowhere", name=name, **login))
        for found in results:
            assert keys(found) == documented("host_status") and not found["changed"] and found["to_do"] == "", found
            assert found["total"]["blocks"] == info["total"]["blocks"] and found["snapshot"]["name"] == info["residency"]["snapshot"]
            assert abs(found["total"]["in_page_cache"] - info["total"]["in_page_cache"]) <= info["total"]["blocks"] / 50
            assert abs(found["snapshot"]["residency"] - info["residency"]["residency"]) <= 2
        role = "primary" if name == "db1" else "standby"
        cells = r" +%s +[\d.]+ .?B +\d+ %% +[\d.]+ .?B +\d+ %% +%s +\d+ s +[\d.]+ %%  -$" % (role, info["residency"]["snapshot"])
        assert re.match(name + cells, row(output, name)), row(output, name)


def test_what_is_to_be_done(fleet, clusters):
    """Without a server, an extension or a snapshot, and with a damaged record; the other hosts have their rows."""
    output, status = fleet.ansible.command(STATUS, "-e", "pgfleet_login_db=without")
    assert status != 0 and "run the playbook pgfleet.cache.install first" in row(output, "db3"), output
    clusters["db2"].sql("SELECT residency_drop_snapshot('warm')")
    write(fleet, "db1.json", {"state": "warmer"})
    clusters["db3"].stop()
    try:
        output, status = fleet.ansible.command(STATUS)
    finally:
        clusters["db3"].start()
    assert status != 0 and "Traceback" not in output, output
    assert "is damaged (state is 'warmer')" in row(output, "db1") and " primary " in row(output, "db1")
    assert row(output, "db2").endswith("Run pgfleet.cache.snapshot when the caches are warm: there is no snapshot.")
    assert "Cannot connect to PostgreSQL" in row(output, "db3") and "Start PostgreSQL" in row(output, "db3")
    says(output, "Something is to be done on 3 of 3 hosts: db1, db2, db3.")


def test_a_host_that_cannot_be_reached_or_asked(fleet, clusters):
    lost = {"ansible_connection": "{{ 'ssh' if inventory_hostname == 'db2' else 'local' }}", "ansible_port": 1, "ansible_host": "127.0.0.1"}
    output, status = fleet.ansible.command(STATUS, "-e", json.dumps(lost))
    assert status != 0 and "unreachable" in row(output, "db2") and " standby " in row(output, "db3"), output
    says(output, "1 of 3 hosts failed: db2. The table shows why.")
    output, status = fleet.ansible.command(STATUS, "-e", "pgfleet_login_user=nobody", "--limit", "db1")
    assert status != 0 and "Peer authentication failed" in row(output, "db1"), output


@thorough
def test_after_a_rolling_restart_that_was_not_finished(fleet, clusters, failed):
    """db2 is not as warm as before, db3 and db1 are not begun. Another run at work is no task for the operator, who is shown it."""
    fleet.clusters["db2"].sql("SELECT FROM residency_snapshot('warm', 1, true)")
    before = content(fleet)
    output, status = fleet.ansible.command(STATUS)
    assert status != 0 and content(fleet) == before, output
    assert "Run pgfleet.cache.rolling_restart again: it was not finished, and %s is not restored (pending since %s)." % (
        failed["snapshot"], failed["since"]) in row(output, "db2"), output
    assert "Run pgfleet.cache.rolling_restart again: it was not finished, and db3 is not restarted yet." in row(output, "db3"), output
    says(output, "Something is to be done on 3 of 3 hosts: db1, db2, db3.")
    for name in clusters:
        write(fleet, name + ".lease", ALICE)
    output, status = fleet.ansible.command(STATUS)
    assert status == 0 and "Something is to be done" not in output, output
    says(output, "Another run is at work: alice on ctl9 (rolling_restart, process 1, since 2026-11-22T00:00:00Z).")
    assert "Not finished: %s is not restored" % failed["snapshot"] in row(output, "db2"), output


@thorough
def test_after_the_controller_was_killed(fleet):
    """Its lease is still there, and its process has ended."""
    run = background(fleet)
    wait_for(lambda: os.path.exists(lease(fleet, "db3")))
    output, status = fleet.ansible.command(STATUS)
    says(output, "Another run is at work: root on ")
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    output, status = fleet.ansible.command(STATUS)
    assert status != 0 and "Another run is at work" not in output, output
    for name in fleet.clusters:
        assert "Run pgfleet.cache.rolling_restart again: it was " in row(output, name), output
