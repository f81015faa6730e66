# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the limits, on made-up trees of proc and sys. The integration tests set real limits."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _page_cache_limit, _proc, _service
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import give, sleeper

MIB = 1 << 20
MEMINFO = """MemAvailable:   {available} kB
Shmem:            102400 kB
HugePages_Total:     {total}
HugePages_Free:      {free}
HugePages_Rsvd:      {reserved}
Hugepagesize:       2048 kB
"""


@pytest.fixture
def system(tmp_path, monkeypatch):
    """write(path, text): a file below another root."""
    monkeypatch.setattr(_proc, "_SYSTEM", str(tmp_path))

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def huge_pages(system, available_mib, total=0, free=0, reserved=0):
    system("proc/meminfo", MEMINFO.format(available=available_mib * 1024, total=total, free=free, reserved=reserved))
    system("proc/sys/vm/nr_hugepages", "%d\n" % total)
    limit = _page_cache_limit._HugePages.__new__(_page_cache_limit._HugePages)
    limit._page = 2 * MIB
    return limit


def test_huge_pages_leave_what_is_asked_for(system):
    assert huge_pages(system, 8192).value_for(2048 * MIB, 0) == 3072


def test_a_limit_that_is_there_is_changed_and_not_added_to(system):
    """3072 pages are reserved, 2 GB are left; 4 GB are to be."""
    assert huge_pages(system, 2048, total=3072, free=3072).value_for(4096 * MIB, 0) == 2048


def test_never_fewer_than_there_were_or_are_in_use(system):
    """A pool of 1000 pages, half of it used by a server with huge_pages = on."""
    pool = huge_pages(system, 8192, total=1000, free=500, reserved=100)
    assert pool.value_for(9000 * MIB, 1000) == 1000
    assert pool.value_for(8192 * MIB, 1000) == 1000
    assert pool.value_for(8190 * MIB, 1000) == 1001
    used = huge_pages(system, 100, total=1000, free=0)
    assert used.value_for(9000 * MIB, 200) == 1000


def cgroup(system, **files):
    for name, text in files.items():
        system("sys/fs/cgroup/pg/" + name.replace("__", "."), text)
    limit = _page_cache_limit._Cgroup.__new__(_page_cache_limit._Cgroup)
    limit._pid, limit._folder, limit._v1 = 0, "/sys/fs/cgroup/pg", "memory__limit_in_bytes" in files
    return limit


def test_a_cgroup_of_version_2(system):
    limit = cgroup(
        system, memory__max="max\n",
        memory__stat="anon 1048576\nfile 99\nshmem 2097152\nkernel_stack 4096\npagetables 4096\nslab_unreclaimable 8192\nslab 99\n",
    )
    assert limit.describe(limit.get()) == "no limit"
    held = 3 * MIB + 16384
    assert limit.value_for(64 * MIB, limit.get()) == 64 * MIB + held
    assert cgroup(system, memory__max="%d\n" % (64 * MIB + held)).page_cache_bytes() == 64 * MIB


def test_a_cgroup_of_version_1(system):
    limit = cgroup(
        system, memory__limit_in_bytes="9223372036854771712\n", memory__kmem__usage_in_bytes="8192\n",
        memory__stat="cache 99\nrss 1\ntotal_cache 99\ntotal_rss 1048576\ntotal_shmem 2097152\n",
    )
    assert limit.describe(limit.get()) == "no limit"
    assert limit.value_for(64 * MIB, limit.get()) == 67 * MIB + 8192
    assert limit.value_for(64 * MIB, 32 * MIB) == 32 * MIB, "never more than there was"


def test_what_the_kernel_held_for_the_pages_goes_with_them(system, monkeypatch):
    """Version 1 counts this memory with the rest: the limit would leave so much more to the page cache."""
    files = {"memory__limit_in_bytes": "9223372036854771712\n", "memory__kmem__usage_in_bytes": "%d\n" % (130 * MIB), "memory__stat": "total_rss 1048576\n"}
    limit = cgroup(system, **files)
    limit._postmaster = None
    written = []

    def write(path, value):
        written.append(value)
        system("sys/fs/cgroup/pg/memory.limit_in_bytes", "%d\n" % value)
        system("sys/fs/cgroup/pg/memory.kmem.usage_in_bytes", "%d\n" % (40 * MIB if len(written) == 1 else 10 * MIB))

    monkeypatch.setattr(_page_cache_limit._service, "write", write)
    limit.put(limit.value_for(64 * MIB, limit.get()), 64 * MIB, {})
    assert written == [195 * MIB, 105 * MIB, 75 * MIB] and limit.page_cache_bytes() == 64 * MIB


def test_a_unit_keeps_its_limit_when_its_cgroup_is_gone(tmp_path):
    limit = _page_cache_limit._Cgroup.__new__(_page_cache_limit._Cgroup)
    folder = str(tmp_path / "postgresql@15-main.service")
    assert limit.gone({"unit": None, "folder": folder})
    assert not limit.gone({"unit": "postgresql@15-main.service", "folder": folder})
    assert not limit.gone({"unit": None, "folder": str(tmp_path)})


@pytest.mark.parametrize("answers", [["1"], ["%d", "1"]], ids=["from the start", "when the limit is set"])
def test_a_unit_that_is_not_this_servers(tmp_path, monkeypatch, answers):
    """Refused at any time before the limit is set. A real process, and made-up answers of systemd."""
    process = sleeper(str(tmp_path), give(tmp_path))
    calls = []

    def systemctl(*arguments):
        calls.append(arguments[0])
        return answers.pop(0).replace("%d", str(process.pid)) + "\n"

    monkeypatch.setattr(_service, "systemctl", systemctl)
    monkeypatch.setattr(_proc, "cgroup_of", lambda pid, controller: _proc.Cgroup(2, "/a", str(tmp_path)))
    (tmp_path / "PG_VERSION").write_text("15\n")
    (tmp_path / "postmaster.pid").write_text("%d\n" % process.pid)
    give(tmp_path)
    try:
        with pytest.raises(ResidencyError, match="Unit ssh.service is not PostgreSQL's own .its main process is 1, not %d" % process.pid):
            _page_cache_limit._Cgroup(str(tmp_path), "ssh.service").put(1 << 30, 1 << 30, {"unit": "ssh.service"})
    finally:
        process.kill()
        process.wait()
    assert set(calls) == {"show"}
