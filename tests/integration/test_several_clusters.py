# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three clusters of one machine as three inventory hosts, through the playbooks."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
import time

import pytest
from cluster import GATE, Cluster, copy_postgresql, thorough
from conftest import TABLES
from playbook import Ansible, task

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def fleet(machine, cluster):
    clusters = {}
    for name in NAMES:
        clusters[name] = machine(name)
        clusters[name].sql(TABLES)
        clusters[name].sql("CREATE EXTENSION pg_residency; CHECKPOINT")
        # A restore leaves out of the page cache what shared buffers have.
        clusters[name].stop()
        clusters[name].start()
        clusters[name].warm(clusters[name].file_of("passenger"))
        clusters[name].sql("SELECT residency_snapshot('warm', 2, false)")
    return clusters


@pytest.fixture
def hosts(ansible, fleet):
    binaries = next(iter(fleet.values())).bin
    ansible.set_hosts(
        {
            name: {"pgfleet_login_port": one.port, "pgfleet_login_unix_socket": one.socket, "data_directory": one.data}
            for name, one in fleet.items()
        },
        cache_extension_pg_config=binaries + "/pg_config",
    )
    return ansible


@thorough
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
    output, status = hosts.command("pgfleet.cache.warmup", "-e", "cache_warmup_rate=3MB", "-e", "pgfleet_results=%s" % tmp_path, *GATE)
    assert status == 0, output
    [path] = tmp_path.glob("*.json")
    waited = {}
    for name, one in json.loads(path.read_text())["hosts"].items():
        if one["result"]["waited"]:
            [ahead] = [other.data for other in fleet.values() if '"%s"' % other.data in one["result"]["waited"]["reason"]]
            assert ahead != fleet[name].data
            assert re.search(r'^%s: warm@\d+ is waiting for the restore of "' % name, output, re.MULTILINE), "at once"
            assert any(re.fullmatch(r'Job \d+ waited for the restore of "%s" \(PID \d+\), for .*s\.' % ahead, text) for text in one["result"]["remarks"])
            waited[name] = one["result"]["waited"]["seconds"]
    assert len(waited) == 2 and min(waited.values()) > 0.5, output
    jobs = []
    for one in fleet.values():
        assert one.is_restored("warm")
        jobs.append([float(word) for word in one.sql(
            "SELECT extract(epoch FROM started_at), extract(epoch FROM finished_at) FROM residency_jobs ORDER BY job DESC LIMIT 1"
        ).split("|")])
    # Each of 27 MB at 3 MB/s takes seconds, so that all are started before the first one ends. None began to load before the one before had ended.
    ends = sorted(finished for dummy, finished in jobs)
    assert all(later - earlier > 1 for earlier, later in zip(ends, ends[1:])), jobs


@thorough
def test_who_is_waited_for(hosts, fleet, as_postgres):
    """The message of a job that waits has the other cluster."""
    one, two = fleet["one"], fleet["two"]
    logins = [{"login_port": each.port, "login_unix_socket": each.socket} for each in (one, two)]
    for each in (one, two):
        each.cool(each.file_of("passenger"))
    hosts.set_hosts({"db1": {}})
    first, second = as_postgres(*(task("residency_restore", name="warm", rate="256kB", wait=False, **login) for login in logins))
    try:
        assert (first["changed"], second["changed"]) == (True, True), (first["msg"], second["msg"])
        state = "SELECT state FROM residency_jobs WHERE job = %d" % second["job"]
        until = time.monotonic() + 20
        while two.sql(state) != "waiting" and time.monotonic() < until:
            time.sleep(0.1)
        [waiting] = as_postgres(task("residency_restore", job=second["job"], wait=False, **logins[1]))
        assert waiting["state"] == "waiting" and one.data in waiting["msg"], waiting["msg"]
    finally:
        for each, job in ((one, first["job"]), (two, second["job"])):
            each.sql("SELECT residency_cancel(%d)" % job)


@thorough
def test_one_fails_and_stops_no_other(hosts, fleet):
    jobs = "SELECT count(*) FROM residency_jobs"
    before = fleet["two"].sql(jobs)
    fleet["two"].stop()
    try:
        for name in ("one", "three"):
            fleet[name].cool(fleet[name].file_of("passenger"))
        output, status = hosts.command("pgfleet.cache.warmup", *GATE)
    finally:
        fleet["two"].start()
    assert status != 0
    assert "1 of 3 hosts failed: two. The table shows why." in output
    for name in ("one", "three"):
        assert fleet[name].is_restored("warm")
    assert fleet["two"].sql(jobs) == before


@pytest.fixture
def two(cluster):
    """Two clusters of a PostgreSQL of their own, with the extension's files in it."""
    place = tempfile.mkdtemp(prefix="pgfleet_two.", dir="/var/tmp")
    os.chmod(place, 0o755)
    binaries = copy_postgresql(place)
    for path in glob.glob(cluster.bin + "/../lib/pg_residency*") + glob.glob(cluster.bin + "/../../../../share/postgresql/15/extension/pg_residency*"):
        shutil.copy(path, os.path.join(place, os.path.relpath(path, cluster.bin + "/../../../../..")))
    home = os.path.join(place, "run")
    os.mkdir(home)
    shutil.chown(home, "postgres", "postgres")
    clusters = [Cluster(binaries, home, name) for name in ("first", "second")]
    for one in clusters:
        one.create()
    yield clusters
    for one in clusters:
        one.stop("immediate")
    shutil.rmtree(place)


@thorough
def test_removal_names_who_needs_the_files(two, tmp_path):
    """And takes them away once nobody does."""
    first, second = two
    ansible = Ansible(str(tmp_path), {})
    ansible.set_hosts(
        {"first": {}}, pgfleet_login_port=first.port, pgfleet_login_unix_socket=first.socket, cache_extension_pg_config=first.bin + "/pg_config",
        cache_extension_state="absent", pgfleet_results="",
    )
    first.sql("CREATE EXTENSION pg_residency")
    library = first.bin + "/../lib/pg_residency.so"
    output, status = ansible.command("pgfleet.cache.install")
    assert status == 0 and "removed; the files stay for the server in %s" % second.data in " ".join(output.split()), output
    assert first.sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_residency'") == "0" and os.path.exists(library)
    second.stop()
    output, status = ansible.command("pgfleet.cache.install")
    assert status == 0 and "files stay for" not in output, output
    assert not os.path.exists(library) and "pg_residency" not in first.sql("SELECT string_agg(name, ' ') FROM pg_available_extensions")
