# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server in a cgroup of its own, and some huge pages of this machine, reserved and given back."""

from __future__ import annotations

import json
import os
import re

import pytest
from cluster import run, thorough
from playbook import documented, four, keys, task
from test_memory import MIB, TABLE, MemoryCgroup

LIMIT = "page_cache_limit"
STATE = "/var/lib/pgfleet/page_cache_limit.json"


@pytest.fixture(scope="module")
def apart(machine, cluster):
    one = machine("apart")
    one.sql(TABLE % ("large", "large", "large", 256 * 128, "large"))
    one.sql("CHECKPOINT")
    one.stop()
    run("sync", "--file-system", one.data)
    one.cgroup = MemoryCgroup("limit")
    one.cgroup.start(one)
    yield one
    one.stop("fast")
    one.cgroup.remove()


@pytest.fixture(autouse=True)
def given_back(apart):
    """The next test finds neither a limit nor a state file."""
    yield
    apart.cgroup.limit(-1 if apart.cgroup.v1 else "max")
    if os.path.exists(STATE):
        os.unlink(STATE)


def evict(one):
    with open(one.file_of("large"), "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def limit_of(one):
    with open(os.path.join(one.cgroup.folder, "memory.limit_in_bytes" if one.cgroup.v1 else "memory.max")) as file:
        return file.read().strip()


def test_a_cgroup(apart, ansible):
    """What the server reads no longer stays, and does again when the limit is gone."""
    before = limit_of(apart)
    arguments = {"method": "cgroup", "data_directory": apart.data}
    results = ansible.tasks(four(LIMIT, size="64MB", **arguments))
    for result in results:
        assert not result.get("failed"), result["msg"]
        assert keys(result) == documented(LIMIT)
    assert [one["changed"] for one in results] == [True, True, False, False]
    real = results[1]
    assert limit_of(apart) == str(real["after"]) != before
    # and up to 16 MB of shared buffers, with what else is shared, that may not be touched yet
    assert 60 * MIB <= real["page_cache_bytes"] <= 92 * MIB
    assert real["reached"] == (real["page_cache_bytes"] <= 1.1 * 64 * MIB) == (not [one for one in real["warnings"] if "asked for" in one])
    assert os.path.exists(STATE)
    evict(apart)
    apart.sql("SELECT count(*) FROM large")
    apart.sql("SELECT count(*) FROM large")
    # the sessions' own memory is charged too
    assert 16 * MIB <= apart.resident(apart.file_of("large")) <= 96 * MIB
    results = ansible.tasks(four(LIMIT, state="absent", **arguments))
    for result in results:
        assert not result.get("failed"), result["msg"]
        assert keys(result) == documented(LIMIT)
    assert [one["changed"] for one in results] == [True, True, False, False]
    assert limit_of(apart) == before
    assert not os.path.exists(STATE)
    evict(apart)
    apart.sql("SELECT count(*) FROM large")
    assert apart.resident(apart.file_of("large")) >= 128 * MIB


@thorough
def test_after_a_reboot_nothing_is_set_again(apart, ansible):
    """The state file is of another boot: what it tells of is gone with that one."""
    arguments = {"method": "cgroup", "data_directory": apart.data}
    [done] = ansible.tasks([task(LIMIT, size="64MB", **arguments)])
    assert done["changed"]
    with open(STATE) as file:
        entries = json.load(file)
    assert os.stat(STATE).st_mode & 0o777 == 0o600
    for entry in entries.values():
        entry["boot"] = "another"
        entry["before"] = 12345
    with open(STATE, "w") as file:
        json.dump(entries, file)
    set_now = limit_of(apart)
    [gone] = ansible.tasks([task(LIMIT, state="absent", **arguments)])
    assert gone["changed"] and gone["msg"] == "What limited PostgreSQL in %s went with the boot before this." % apart.data
    assert limit_of(apart) == set_now, "which a reboot would have taken away"
    assert not os.path.exists(STATE)


@thorough
def test_what_another_boot_had_is_not_given_back(apart, ansible):
    """A limit of now is what was set before the next one, whatever a file from before the reboot says."""
    arguments = {"method": "cgroup", "data_directory": apart.data}
    ansible.tasks([task(LIMIT, size="96MB", **arguments)])
    with open(STATE) as file:
        entries = json.load(file)
    for entry in entries.values():
        entry["boot"] = "another"
        entry["before"] = 12345
    with open(STATE, "w") as file:
        json.dump(entries, file)
    set_now = int(limit_of(apart))
    done, back = ansible.tasks([task(LIMIT, size="64MB", **arguments), task(LIMIT, state="absent", **arguments)])
    assert done["changed"] and done["before"] == set_now > done["after"]
    assert back["changed"] and int(limit_of(apart)) == set_now


@thorough
def test_given_back_with_the_server_stopped(apart, ansible):
    """As after a play that failed in between."""
    before = limit_of(apart)
    arguments = {"method": "cgroup", "data_directory": apart.data}
    [done] = ansible.tasks([task(LIMIT, size="64MB", **arguments)])
    assert done["changed"]
    apart.stop()
    try:
        stopped, back = ansible.tasks([task(LIMIT, size="64MB", **arguments), task(LIMIT, state="absent", **arguments)])
    finally:
        apart.cgroup.start(apart)
    assert stopped["msg"] == "PostgreSQL is stopped in %s: start it first." % apart.data
    assert back["changed"], back["msg"]
    assert limit_of(apart) == before


def huge_pages():
    """Without those that only wait for the end of who uses them."""
    with open("/proc/sys/vm/nr_hugepages") as file:
        return int(file.read())


def meminfo(word):
    with open("/proc/meminfo") as file:
        return int(re.search(r"^%s:\s+(\d+)" % word, file.read(), re.MULTILINE).group(1))


@thorough
def test_huge_pages(ansible, cluster):
    """Few of them: the machine is not this test's alone, and others may need or free some hundred MB before they are reserved."""
    before = huge_pages()
    size = "%dkB" % (meminfo("MemAvailable") - 1024 * 1024)
    try:
        check, real, again = ansible.tasks([task(LIMIT, check=check, size=size) for check in (True, False, False)])
        for result in (check, real, again):
            assert not result.get("failed"), result["msg"]
            assert keys(result) == documented(LIMIT)
        assert [one["changed"] for one in (check, real, again)] == [True, True, False]
        assert before + 64 <= huge_pages() == real["after"] <= before + 1024
        assert real["before"] == before
    finally:
        [back, again] = ansible.tasks([task(LIMIT, state="absent"), task(LIMIT, state="absent")])
    assert back["changed"] and not again["changed"], back["msg"]
    # a server that was started meanwhile, with huge_pages = try, may have taken some: they go with it
    assert huge_pages() == before


def test_refusals(cluster, ansible, as_postgres):
    arguments = {"method": "cgroup", "data_directory": cluster.data}
    none, tiny, small, which, shared = ansible.tasks([
        task(LIMIT), task(LIMIT, size="1MB"), task(LIMIT, size="lots"), task(LIMIT, method="cgroup", size="1GB"),
        task(LIMIT, size="1GB", **arguments),
    ])
    assert none["msg"] == "state present needs size, the page cache's limit, such as 4GB."
    assert re.fullmatch(r"size is 1MB: less than [\d.]+ [MG]B would push the host out of memory\.", tiny["msg"]), tiny["msg"]
    assert small["msg"] == "size is 'lots': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."
    assert which["msg"] == "method cgroup needs data_directory, to find the cluster whose memory is limited."
    assert re.fullmatch(
        r"PostgreSQL in %s runs in the cgroup \S+ together with others(, such as .*)?: it cannot be limited alone\. Start it as a unit of"
        r" systemd, or in a cgroup of its own\." % re.escape(cluster.data), shared["msg"]
    ), shared["msg"]
    [no_root] = as_postgres(task(LIMIT, size="1GB"))
    assert no_root["msg"] == "Only root can limit memory: become root."
    for result in (none, tiny, small, which, shared, no_root):
        assert keys(result) == documented(LIMIT)
    assert not os.path.exists(STATE)


def test_a_restart_leaves_it_in_its_cgroup(apart, ansible):
    """Where there is no unit of systemd that would see to it."""
    [result] = ansible.tasks([
        task("cache_evict", layers=["page_cache", "shared_buffers"], method="restart", data_directory=apart.data)
    ])
    assert not result.get("failed") and result["restarted"], result["msg"]
    with open(os.path.join(apart.data, "postmaster.pid")) as file:
        postmaster = file.readline().strip()
    with open(os.path.join(apart.cgroup.folder, "cgroup.procs")) as file:
        assert postmaster in file.read().split()
