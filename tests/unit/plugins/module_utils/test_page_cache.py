# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On real files: they are read, evicted and counted by the kernel. Needs a file system with a page cache of its own."""

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _page_cache
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import give, sleeper

SIZE = 8 * 1024 * 1024


@pytest.fixture
def cluster(tmp_path):
    """The folders of a data directory, with a file of each sort."""
    location = tmp_path / "elsewhere"
    files = {
        "PG_VERSION": b"15\n", "global/1262": b"g" * 8192, "global/pg_control": b"c", "global/pg_filenode.map": b"m", "base/5/1259": b"b" * SIZE,
        "base/5/1259_fsm": b"f" * 8192, "base/5/1259_vm": b"v" * 8192, "base/5/16384.1": b"s" * 8192, "base/5/16390_init": b"",
        "base/5/t3_16400": b"t" * 8192, "base/5/PG_VERSION": b"15\n", "base/5/16384.1x": b"x", "base/pgsql_tmp/pgsql_tmp1.0": b"p",
    }
    for name, content in files.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for major in ("14", "15"):
        path = location / ("PG_%s_202209061" % major) / "5" / "16500"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"y" * 8192)
    (tmp_path / "data" / "pg_tblspc").mkdir()
    (tmp_path / "data" / "pg_tblspc" / "16385").symlink_to(location)
    give(tmp_path)
    return tmp_path / "data"


def count(folder):
    """Counts of the file 1259 in a directory."""
    give(folder)
    return _page_cache.add_up(_page_cache.count_files(str(folder), ["1259"]))


def evict(folder):
    give(folder)
    _page_cache.evict(str(folder), ["1259"])


def test_only_relation_files_of_this_major(cluster):
    assert sorted(_page_cache.relation_files(str(cluster), 15)) == [
        "base/5/1259",
        "base/5/1259_fsm",
        "base/5/1259_vm",
        "base/5/16384.1",
        "base/5/16390_init",
        "global/1262",
        "pg_tblspc/16385/PG_15_202209061/5/16500",
    ]


def test_paths_tell_the_relation(cluster):
    identified = {name: _page_cache.identify(name) for name in _page_cache.relation_files(str(cluster), 15)}
    assert identified["global/1262"] == ((0, 1664, 1262), "main", 0)
    assert identified["base/5/1259_vm"] == ((5, 1663, 1259), "vm", 0)
    assert identified["base/5/16384.1"] == ((5, 1663, 16384), "main", 1)
    assert identified["pg_tblspc/16385/PG_15_202209061/5/16500"] == ((5, 16385, 16500), "main", 0)


def test_counts_what_was_read_and_evicts_it(tmp_path):
    path = str(tmp_path / "1259")
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
        # the test's own file: without this its pages stay dirty, and dirty pages stay
        os.fsync(file.fileno())
    assert count(tmp_path) == _page_cache.Count(1, SIZE, SIZE)
    evict(tmp_path)
    assert count(tmp_path).resident_bytes == 0
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: exactly what is read
        file.seek(SIZE // 2)
        file.read(64 * 1024)
    assert count(tmp_path).resident_bytes == 64 * 1024


def test_dirty_pages_go_without_a_sync(tmp_path):
    path = str(tmp_path / "1259")
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
    evict(tmp_path)
    assert count(tmp_path).resident_bytes < SIZE


def test_dropped_file_is_no_error(tmp_path):
    evict(tmp_path)
    assert count(tmp_path) == _page_cache.Count(0, 0, 0)


def test_empty_file(tmp_path):
    (tmp_path / "1259").write_bytes(b"")
    assert count(tmp_path) == _page_cache.Count(1, 0, 0)


def test_last_page_is_not_counted_beyond_the_file(tmp_path):
    (tmp_path / "1259").write_bytes(b"x" * 5000)
    assert count(tmp_path) == _page_cache.Count(1, 5000, 5000)


@pytest.mark.parametrize("somebody", ["owner", "root"])
def test_owner_and_root_are_told(tmp_path, monkeypatch, somebody):
    give(tmp_path)
    user = os.stat(str(tmp_path)).st_uid if somebody == "owner" else 0
    monkeypatch.setattr(os, "geteuid", lambda: user)
    _page_cache.require_owner(str(tmp_path))


def test_postmaster(tmp_path):
    data = str(tmp_path)
    give(tmp_path)
    assert _page_cache.postmaster_pid(data) is None
    process = sleeper(data, give(tmp_path))
    try:
        (tmp_path / "postmaster.pid").write_text("%d\n%s\n" % (process.pid, data))
        give(tmp_path)
        assert _page_cache.postmaster_pid(data) == process.pid
    finally:
        process.kill()
        process.wait()
    assert _page_cache.postmaster_pid(data) is None


def test_crashed_servers_number_is_another_process_now(tmp_path):
    (tmp_path / "postmaster.pid").write_text("%d\n" % os.getpid())
    give(tmp_path)
    assert _page_cache.postmaster_pid(str(tmp_path)) is None
