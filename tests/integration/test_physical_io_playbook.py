# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook physical_io: counted against served, with the page cache as it is and with a limited one."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from cluster import free_port, quick, thorough
from playbook import Ansible, recap
from test_memory import MemoryCgroup
from test_page_cache_limit import STATE

RUNNING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgfleet.cache io_workload' AND query LIKE '%BETWEEN%'"
SCALE = "48M"  # of each of two tables: three times of what the limited page cache holds


@pytest.fixture(scope="module")
def driven(machine, cluster):
    """A server in a cgroup of its own, so that its page cache can be limited."""
    one = machine("driven")
    one.sql("ALTER SYSTEM SET shared_buffers = '8MB'")
    one.sql("CREATE EXTENSION pg_residency")
    one.stop()
    one.cgroup = MemoryCgroup("io")
    one.cgroup.start(one)
    yield one
    one.stop("fast")
    one.cgroup.remove()
    if os.path.exists(STATE):  # of a limit that a test which failed has left
        os.unlink(STATE)


@pytest.fixture
def fleet(driven, machine, tmp_path, state_directory):
    ansible = Ansible(machine.directory, {})
    ansible.variables = {
        "pgfleet_login_port": driven.port, "pgfleet_login_unix_socket": driven.socket, "pgfleet_results": str(tmp_path / "results"),
        "pgfleet_state_directory": state_directory, "cache_io_workload_schemas": 2, "cache_io_workload_scale": SCALE,
        "cache_io_workload_run_time": "6s", "cache_io_workload_work_unit": 64, "cache_io_workload_limit": "64MB",
    }
    ansible.set_hosts({"db1": {}}, **ansible.variables)
    ansible.results = tmp_path / "results"
    return ansible


def run(fleet, *arguments, **environment):
    return fleet.command("pgfleet.cache.physical_io", *arguments, **environment)


def results(fleet):
    [path] = sorted(fleet.results.glob("*.json"))
    found = json.loads(path.read_text())
    path.unlink()
    return found["hosts"]


def result(fleet):
    return results(fleet)["db1"]


def limit_of(driven):
    """None where there is none."""
    with open(os.path.join(driven.cgroup.folder, "memory.limit_in_bytes" if driven.cgroup.v1 else "memory.max")) as file:
        found = file.read().strip()
    return None if found in ("max", "9223372036854771712") else int(found)


@quick
def test_counted_and_served(fleet, driven):
    """What nothing limits is read once and then served by the page cache; with less page cache than tables, the devices serve it again and again."""
    output, status = run(fleet, "--check")
    assert status == 0 and "Would load 2 schemas of 48.0 MB each" in output, output
    assert driven.sql("SELECT to_regnamespace('pgfleet_io') IS NULL") == "t" and not list(fleet.results.glob("*"))
    output, status = run(fleet)
    assert status == 0, output
    free, limited = result(fleet)["result"]["runs"]
    assert (free["limit"], limited["limit"]) == ("", "64MB")
    for one in (free, limited):
        reads = one["io"]["reads"]
        # the blocks that the sessions touched are hits or reads of the server
        assert reads["counted"] + reads["hits"] >= one["load"]["select_blocks"] > 0
        assert reads["counted"] <= 1.1 * one["load"]["select_blocks"] + 1000
    # served to the server's processes, whatever else this machine reads
    assert free["io"]["reads"]["page_cache_percent"] > limited["io"]["reads"]["page_cache_percent"] + 10
    assert "page cache" in output and "RPIOPS" in output and "counted" in output
    assert limit_of(driven) is None
    # again: the tables are there
    output, status = run(fleet, "-e", "cache_io_workload_limit=")
    assert status == 0 and "2 schemas of 48.0 MB each are there." in result(fleet)["result"]["load"]["msg"], output
    output, status = run(fleet, "-e", "cache_io_workload_state=absent")
    assert status == 0 and recap(output)["db1"]["failed"] == 0, output
    assert driven.sql("SELECT to_regnamespace('pgfleet_io') IS NULL") == "t"


@thorough
def test_counted_is_served(fleet):
    """Within 3 % when what is left to the page cache is a sixtieth of the tables. A range of 255 keys reads few blocks of the index."""
    more = ("scale=2G", "work_unit=255", "run_time=20s", "start=as_found")
    output, status = run(fleet, *(word for one in more for word in ("-e", "cache_io_workload_" + one)), timeout=900)
    assert status == 0, output
    free, limited = (one["io"]["reads"] for one in result(fleet)["result"]["runs"])
    assert abs(limited["counted_bytes"] - limited["server_bytes"]) < 0.03 * limited["counted_bytes"]
    assert free["counted_bytes"] > 1.5 * free["server_bytes"]
    output, status = run(fleet, "-e", "cache_io_workload_state=absent")
    assert status == 0, output


@thorough
def test_a_pgio_conf(fleet, driven, tmp_path):
    """As it is."""
    conf = tmp_path / "pgio.conf"
    conf.write_text(
        "UPDATE_PCT=60\nRUN_TIME=4\nNUM_SCHEMAS=1\nNUM_THREADS=2\nWORK_UNIT=32\nUPDATE_WORK_UNIT=8\nSCALE=1024\n\nDBNAME=postgres\n"
        "CONNECT_STRING=\"postgres\"\nCREATE_BASE_TABLE=TRUE\n"
    )
    output, status = run(fleet, "-e", "cache_io_workload_conf=%s" % conf, "-e", "cache_io_workload_limit=", "-e", "cache_io_workload_start=warm")
    assert status == 0, output
    found = result(fleet)["result"]
    [one] = found["runs"]
    assert (found["load"]["blocks"], found["load"]["schemas"], len(one["load"]["sessions"])) == (1024, 1, 2)
    assert one["load"]["updates"] > one["load"]["selects"] / 3 and one["load"]["updates"] * 8 == one["load"]["update_blocks"]
    conf.write_text("NUM_SCHEMAS=1; reboot\n")
    output, status = run(fleet, "-e", "cache_io_workload_conf=%s" % conf)
    assert status != 0 and "is no assignment of a value, such as SCALE=1G." in " ".join(output.split())
    result(fleet)


@thorough
def test_wrong_variables(fleet):
    for variable, message in (
        ("cache_io_workload_scale=1P", "scale is '1P': it must be a number of blocks of 8 kB"),
        ("cache_io_workload_update_pct=101", "update_pct is 101: it must be from 0 to 100."),
        ("cache_io_workload_conf=/nowhere", "cache_io_workload_conf is '/nowhere': there is no such file on the controller."),
        ("cache_io_workload_start=hot", "value of cache_io_workload_start must be one of: cold, warm, as_found, got: hot"),
        ("cache_io_workload_limit=1X", "cache_io_workload_limit is '1X': it must be a size such as 200MB"),
        ("cache_io_workload_scael=1G", "did you mean cache_io_workload_scale?"),
    ):
        output, status = run(fleet, "-e", variable)
        assert status != 0 and message in " ".join(output.split()), output
        assert "Load the tables" not in output


@thorough
def test_all_is_checked_before_the_load(fleet, driven):
    """Which may take hours."""
    driven.sql("DROP SCHEMA IF EXISTS pgfleet_io CASCADE; DROP EXTENSION pg_residency")
    try:
        for arguments in (["--check"], []):
            output, status = run(fleet, *arguments)
            assert status != 0 and "Extension pg_residency is not in database postgres: " in output, output
    finally:
        driven.sql("CREATE EXTENSION pg_residency")
    for variable, message in (("limit=1MB", "size is 1MB: less than 64.0 MB would push"), ("sessions=200", "sessions for each of")):
        output, status = run(fleet, "-e", "cache_io_workload_" + variable)
        assert status != 0 and message in output, output
    for path in fleet.results.glob("*"):
        path.unlink()
    assert driven.sql("SELECT to_regnamespace('pgfleet_io') IS NULL") == "t"


@thorough
def test_whoever_is_connected_is_not_disturbed(fleet, driven):
    with driven.session("shop"):
        output, status = run(fleet)
    assert status != 0 and (
        "Sessions of others are connected (1), such as postgres at postgres (shop): the load takes their disks and their page cache, and they falsify its"
        " figures. Choose another host or time, or let it happen with -e cache_io_workload_with_clients=true." in " ".join(output.split())), output
    assert driven.sql("SELECT to_regnamespace('pgfleet_io') IS NULL") == "t"


def test_the_limit_goes_also_after_a_failure(fleet, driven):
    """A run that fails in between, here for lack of connections that are left."""
    output, status = run(fleet, "-e", "cache_io_workload_limit=64MB", "-e", "cache_io_workload_sessions=200")
    assert status != 0 and "sessions for each of" in output
    result(fleet)
    output, status = run(fleet, "-e", "cache_io_workload_limit=1MB")
    assert status != 0 and "Traceback" not in output, output
    result(fleet)
    assert limit_of(driven) is None


@thorough
def test_a_limit_that_an_interrupted_run_has_left(fleet, driven):
    """Goes before the first run, which is reported as one without. As if the controller had been killed in the second run."""
    limit = {"pgfleet.cache.page_cache_limit": {"method": "cgroup", "size": "64MB", "data_directory": driven.data}}
    output, status = fleet.command(fleet.write([limit], become=True))
    assert status == 0, output
    assert limit_of(driven) < 2**32
    output, status = run(fleet)
    assert status == 0, output
    free, limited = result(fleet)["result"]["runs"]
    assert free["io"]["reads"]["page_cache_percent"] > limited["io"]["reads"]["page_cache_percent"] + 10
    assert limit_of(driven) is None


@thorough
@pytest.mark.parametrize(("when", "side_by_side"), [
    ("in the limited run", False), pytest.param("before", False, marks=thorough), pytest.param("in the limited run", True, marks=thorough),
])
def test_one_of_two_hosts_fails(fleet, driven, cluster, when, side_by_side):
    """The first one, whose server dies in the middle. The second one goes on, and the limit of the first one goes."""
    port = free_port() if when == "before" else driven.port
    other = {"pgfleet_login_port": cluster.port, "cache_io_workload_limit": "", "cache_io_workload_scale": "8M"}
    fleet.set_hosts({"db1": {"pgfleet_login_port": port}, "db2": other}, **fleet.variables)
    limited = []

    def stop():
        until = time.monotonic() + 300
        while limit_of(driven) is None or driven.sql(RUNNING) == "0":
            if time.monotonic() > until:
                return
            time.sleep(0.2)
        limited.append(limit_of(driven))
        driven.stop("immediate")

    thread = threading.Thread(target=stop)
    if when != "before":
        thread.start()
    try:
        output, status = run(fleet, "-e", "physical_io_serial=%d" % (2 if side_by_side else 1))
    finally:
        if when != "before":
            thread.join()
            driven.cgroup.start(driven)
        cluster.sql("DROP SCHEMA IF EXISTS pgfleet_io CASCADE")
    found = results(fleet)
    assert status != 0 and "Traceback" not in output, output
    assert bool(limited) is (when != "before") and limit_of(driven) is None
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == {"db1": 1, "db2": 0}, output
    assert (found["db1"]["verdict"], found["db2"]["verdict"]) == ("failed", "done"), found
    [one] = found["db2"]["result"]["runs"]
    assert one["load"]["select_blocks"] > 0 and one["io"]["reads"]["counted"] is not None
    report = output[output.index("TASK [Write the report]"):]
    assert [name for name in ("db1", "db2") if name in report.split("PLAY [")[0]] == ["db1", "db2"], report
