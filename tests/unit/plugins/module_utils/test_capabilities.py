# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On this machine for the shape and the self-tests; on made-up trees of proc and sys for what a machine may have."""

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _data_directory, _page_cache, _proc
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import give, sleeper
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.machines import Machine


@pytest.fixture
def cluster(tmp_path):
    data = tmp_path / "data"
    elsewhere = tmp_path / "elsewhere"
    for path, content in {
        data / "PG_VERSION": b"15\n",
        data / "base" / "5" / "16384": os.urandom(8 * 1024 * 1024),
        elsewhere / "PG_15_202209061" / "5" / "PG_VERSION": b"15\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (data / "pg_tblspc").mkdir()
    (data / "pg_tblspc" / "16385").symlink_to(elsewhere)
    give(tmp_path)
    return str(data)


def test_this_machine(cluster):
    found = _capabilities.collect(cluster)
    assert found["kernel"] == os.uname().release
    assert found["page_size"] == os.sysconf("SC_PAGE_SIZE")
    assert found["memory_bytes"] > 0
    assert [place["tablespace"] for place in found["locations"]] == [None, 16385]
    for place in found["locations"]:
        assert place["mount"] and place["filesystem"]
        assert place["willneed_bytes"] >= 128 * 1024
        assert place["cachestat"] in (True, False)
    assert found["cgroup"]["pid"] is None


def test_nothing_there_is_no_error(tmp_path, system):
    found = _capabilities.collect(str(tmp_path / "nothing"))
    assert found["memory_bytes"] is None
    assert found["swap"] == {"total_bytes": None, "free_bytes": None}
    assert found["cgroup"]["version"] is None
    assert found["proactive_reclaim"] == {"kdamonds": None, "memory_high_bytes": None}
    [place] = found["locations"]
    assert place["mount"] is None
    assert place["cachestat"] is None
    assert place["willneed_bytes"] is None


def test_disks_of_a_location(tmp_path, monkeypatch):
    machine = Machine(str(tmp_path / "system"))
    monkeypatch.setattr(_proc, "_SYSTEM", machine.root)
    machine.disk("sda", "8:0")
    machine.partition("sda1", "8:1", "sda")
    machine.mapped("dm-0", "253:0", ["sda1"], "LVM-x", "vg-data")
    machine.mount("253:0", "/data", "ext4", "/dev/mapper/vg-data")
    place = _capabilities._location(_capabilities.Place("/data/main", None, "253:0"), _proc.mounts(), None)
    assert (place["device"], place["disks"]) == ("dm-0", ["sda"])
    place = _capabilities._location(_capabilities.Place("/data/main", None, None), _proc.mounts(), None)
    assert (place["device"], place["disks"]) == (None, []), "root has not looked where it leads"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"queue/read_ahead_kb": "128", "queue/max_sectors_kb": "1280"}, 1280),
        ({"queue/read_ahead_kb": "8192", "queue/max_sectors_kb": "4096"}, 8192),
        ({"queue/read_ahead_kb": "0", "queue/max_sectors_kb": "0"}, 128),
        ({"queue/read_ahead_kb": "9999999"}, 1024 * 1024),
        ({}, 128),
    ],
)
def test_cap_of_one_call(system, files, expected):
    for name, text in files.items():
        system("sys/dev/block/254:0/" + name, text)
    assert _capabilities._willneed_bytes("254:0") == expected * 1024


def test_scheduler_is_the_chosen_one(system):
    system("sys/dev/block/254:0/queue/scheduler", "none [mq-deadline] kyber")
    system("sys/dev/block/254:1/queue/scheduler", "none")
    assert _capabilities._scheduler("254:0") == "mq-deadline"
    assert _capabilities._scheduler("254:1") == "none"
    assert _capabilities._scheduler("254:2") is None


def test_cgroup_2_tightest_limit_of_the_ancestors(system):
    system("proc/self/mountinfo", "31 1 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    system("proc/42/cgroup", "0::/system.slice/postgresql.service")
    system("sys/fs/cgroup/system.slice/memory.max", "1073741824")
    system("sys/fs/cgroup/system.slice/memory.high", "max")
    system("sys/fs/cgroup/system.slice/postgresql.service/memory.max", "max")
    system("sys/fs/cgroup/system.slice/postgresql.service/memory.high", "536870912")
    system("sys/fs/cgroup/system.slice/postgresql.service/memory.current", "4096")
    assert _capabilities._cgroup(42, _proc.mounts()) == {
        "version": 2,
        "pid": 42,
        "path": "/system.slice/postgresql.service",
        "limit_bytes": 1 << 30,
        "limited_by": "/sys/fs/cgroup/system.slice",
        "high_bytes": 1 << 29,
        "high_set_by": "/sys/fs/cgroup/system.slice/postgresql.service",
        "high_used_bytes": 4096,
        "used_bytes": 4096,
    }


@pytest.mark.parametrize(("used", "near"), [(400 << 20, False), (500 << 20, True)])
def test_reclaim_at_memory_high(system, used, near):
    folder = "/sys/fs/cgroup/system.slice/postgresql.service"
    system("proc/self/mountinfo", "31 1 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    system("proc/42/cgroup", "0::/system.slice/postgresql.service")
    system(folder[1:] + "/memory.high", str(512 << 20))
    system(folder[1:] + "/memory.current", str(used))
    assert _capabilities.reclaim(42) == (_capabilities.Reclaim(False, folder, 512 << 20) if near else _capabilities.Reclaim())


def test_reclaim_by_damon(system):
    system("proc/2/comm", "kthreadd")
    assert _capabilities.reclaim(42) == _capabilities.Reclaim()
    system("proc/9/comm", "kdamond.0")
    assert _capabilities.reclaim(42) == _capabilities.Reclaim(True)


def test_cgroup_1_in_a_container_that_sees_its_part(system):
    system(
        "proc/self/mountinfo",
        "31 1 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "32 1 0:41 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    )
    system("proc/42/cgroup", "9:memory:/docker/1/pg\n0::/")
    system("sys/fs/cgroup/memory/pg/memory.limit_in_bytes", "9223372036854771712")
    system("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576")
    system("sys/fs/cgroup/memory/pg/memory.usage_in_bytes", "4096")
    found = _capabilities._cgroup(42, _proc.mounts())
    assert (found["version"], found["path"]) == (1, "/docker/1/pg")
    assert (found["limit_bytes"], found["limited_by"]) == (1048576, "/sys/fs/cgroup/memory")
    assert (found["high_bytes"], found["used_bytes"]) == (None, 4096)


def test_kdamonds(system):
    assert _capabilities._kdamonds() is None
    system("proc/2/comm", "kthreadd")
    assert _capabilities._kdamonds() == 0
    system("proc/77/comm", "kdamond.0")
    assert _capabilities._kdamonds() == 1
    system("sys/kernel/mm/damon/admin/kdamonds/0/state", "off")
    assert _capabilities._kdamonds() == 0


def test_no_huge_pages_no_large_folios(cluster, system):
    assert _capabilities._large_folios(_data_directory.opened(cluster), "") is False


def test_running_cluster_is_charged(tmp_path):
    process = sleeper(str(tmp_path), give(tmp_path))
    try:
        (tmp_path / "postmaster.pid").write_text("%d\n" % process.pid)
        give(tmp_path)
        found = _capabilities.collect(str(tmp_path))["cgroup"]
    finally:
        process.kill()
        process.wait()
    assert found["pid"] == process.pid
    if found["version"]:
        assert found["path"].startswith("/")


def test_large_folios_are_not_looked_for_in_what_is_cold(cluster):
    name = "base/5/16384"
    with open(os.path.join(cluster, name), "rb") as file:
        os.fsync(file.fileno())
    _page_cache.evict(cluster, [name])
    assert _capabilities._large_folios(_data_directory.opened(cluster), "") is None
    assert _page_cache.count_files(cluster, [name])[0].resident_bytes == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone is choosy")
def test_why_a_data_directory_is_not_entered(tmp_path):
    """Without the warning, what is missing would look like what the host does not have."""
    (tmp_path / "PG_VERSION").write_text("15\n")
    found = _capabilities.collect(str(tmp_path))
    assert [warning.partition(", and PostgreSQL")[0] for warning in found["warnings"]] == [
        "Of the locations only the path is known: %s belongs to root: root does not trust it" % tmp_path
    ]
    assert [(one["path"], one["device"]) for one in found["locations"]] == [(str(tmp_path), None)]
