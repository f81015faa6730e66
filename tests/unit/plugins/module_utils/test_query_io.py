# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a query may be, and what follows from counts. The counts themselves are the integration tests'."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _processes, _query_io, _server_io
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Disk, Reads, Sample, Server

MIB = 1 << 20
SERVER = Server(100, "/data")


def options(**changed):
    values = {"query": None, "queries": None, "settings": {}, "repeat": 1, "timeout": 600, "plan": True, "lock": None, "trusted_roles": []}
    return _query_io.Options(**dict(values, **changed))


def test_queries(tmp_path):
    path = tmp_path / "q.sql"
    path.write_text("SELECT 2;\n")
    changed = {
        "queries": [{"query": "SELECT 1", "settings": {"jit": False}}, {"name": "two", "path": str(path), "query": None}],
        "settings": {"work_mem": "1MB", "jit": True, "random_page_cost": 1.1},
    }
    assert _query_io.queries_of(options(**changed)) == [
        ("query 1", "SELECT 1", {"work_mem": "1MB", "jit": "off", "random_page_cost": "1.1"}),
        ("two", "SELECT 2;", {"work_mem": "1MB", "jit": "on", "random_page_cost": "1.1"}),
    ]


def test_no_character_that_postgresql_has_not():
    with pytest.raises(ResidencyError, match="query 1 holds a NUL character"):
        _query_io.queries_of(options(query="SELECT '\0'"))


def process(pid, title="postgres: user db [local] SELECT"):
    return Process(pid, 1, 100, "postgres", title)


POSTMASTER, BACKEND = process(100, "/usr/lib/postgresql/18/bin/postgres -D /data"), process(101)
IO_WORKER, CHECKPOINTER = process(102, "postgres: 18/main: io worker 0"), process(103, "postgres: checkpointer")


def sample(read, disk=0, torn=False):
    return Sample(read, {"sda": Disk(disk >> 12, disk)}, None, torn)


def test_whose_reads_they_are():
    ended = process(104)
    before = sample({POSTMASTER: 10, BACKEND: 20, IO_WORKER: 30, CHECKPOINTER: 40, ended: 50}, 1000)
    born = process(105)
    after = sample({POSTMASTER: 10 + 50 + 7, BACKEND: 21, IO_WORKER: 33, CHECKPOINTER: 44, born: 5}, 1000 + 20)
    reads = _server_io.compare(before, after, SERVER, BACKEND.pid)
    assert (reads.backend, reads.io_workers, reads.others, reads.ended) == (1, 3, 4 + 5, 7)
    assert reads.gone == {ended}
    assert reads.disk_bytes == 20
    assert reads.of_query(0) == 4, "no worker of its own: what has ended was another's"
    assert reads.of_query(2) == 11


def plan(read, **more):
    explained = {"Execution Time": 12.5, "Planning Time": 0.5, "Plan": {"Shared Read Blocks": read, "Shared Hit Blocks": 3}}
    explained["Plan"].update(more)
    return explained


def test_the_page_cache_has_a_lower_bound_of_nothing():
    warm = _query_io._figures(plan(1000), Reads(disk={"sda": Disk(0, 0)}), 0, 8192)
    assert (warm["page_cache_bytes"], warm["page_cache_percent"], warm["over_read_bytes"]) == (8192000, 100.0, 0)
    half = _query_io._figures(plan(1000), Reads(backend=4096000, disk={"sda": Disk(9, 4096000)}), 0, 8192)
    assert (half["page_cache_percent"], half["over_read_bytes"], half["certainty"], half["remarks"]) == (50.0, 0, "exact", [])
    over = _query_io._figures(plan(1000), Reads(backend=9000000, disk={"sda": Disk(9, 9000000)}), 0, 8192)
    assert (over["page_cache_bytes"], over["over_read_bytes"]) == (0, 808000)
    nothing = _query_io._figures(plan(0), Reads(disk={"sda": Disk(0, 0)}), 0, 8192)
    assert nothing["page_cache_percent"] is None


def test_read_timing_of_every_version():
    assert _query_io._figures(plan(1, **{"I/O Read Time": 2.5}), Reads(), 0, 8192)["read_milliseconds"] == 2.5
    newer = {"Shared I/O Read Time": 2.5, "Local I/O Read Time": 1.0, "Temp I/O Read Time": 0.25}
    assert _query_io._figures(plan(1, **newer), Reads(), 0, 8192)["read_milliseconds"] == 3.75
    assert _query_io._figures(plan(1), Reads(), 0, 8192)["read_milliseconds"] is None


@pytest.mark.parametrize(
    ("reads", "workers", "active", "certainty", "remark"),
    [
        (Reads(disk={"a": Disk(0, 0)}), 0, 5, "exact", None),
        (Reads(io_workers=9 * MIB, disk={"a": Disk(9, 9 * MIB)}), 0, 0, "exact", None),
        (Reads(io_workers=9 * MIB, disk={"a": Disk(9, 9 * MIB)}), 0, 1, "upper_bound",
         "the I/O workers read for every session, and 1 other was active"),
        (Reads(io_workers=9 * MIB, disk={"a": Disk(9, 9 * MIB)}), 0, None, "upper_bound",
         "the I/O workers read for every session, and without pg_monitor the others cannot be seen"),
        (Reads(ended=9 * MIB, disk={"a": Disk(9, 9 * MIB)}), 2, 0, "exact", None),
        (Reads(ended=9 * MIB, gone=frozenset([BACKEND]), disk={"a": Disk(9, 9 * MIB)}), 2, 0, "upper_bound",
         "1 other process of this server ended: what it had read counts with the parallel workers'"),
        (Reads(torn=True, disk={"a": Disk(0, 0)}), 0, 0, "upper_bound",
         "processes of this server came and went faster than they could be counted"),
        (Reads(), 0, 0, "unknown", "the data is on no block device of this host, whose reads the kernel would charge to processes"),
        (Reads(backend=9 * MIB, disk={"a": Disk(9, 90 * MIB)}), 0, 0, "exact",
         "others read 81.0 MB from the same device meanwhile, which may have cost time"),
        (Reads(backend=90 * MIB, disk={"a": Disk(9, 9 * MIB)}), 0, 0, "exact",
         "the device counts 81.0 MB less than the processes are charged with"),
    ],
)
def test_how_sure_it_is(reads, workers, active, certainty, remark):
    figures = _query_io._figures(plan(1, Plans=[{"Workers Launched": workers}]), reads, active, 8192)
    assert (figures["certainty"], figures["remarks"]) == (certainty, [remark] if remark else [])


def test_clients():
    for title in (
        "postgres: 15/main: alice sales [local] idle",
        "postgres: walsender replica 10.0.0.7(54321) streaming 0/5000060",
        "postgres: alice sales ::1(5432) SELECT",
    ):
        assert _processes.is_client(title)
    for title in (
        "postgres: checkpointer", "postgres: 18/main: io worker 0", "postgres: autovacuum worker sales",
        "/usr/lib/postgresql/15/bin/postgres -D /data", "psql -h host(1) [local]",
    ):
        assert not _processes.is_client(title)


def test_the_sessions_process_is_a_child_of_who_listens(monkeypatch):
    """A superuser decides what pg_backend_pid() says."""
    monkeypatch.setattr(_processes, "look", lambda pid: BACKEND)
    monkeypatch.setattr(_processes, "title", lambda pid: BACKEND.title)
    with pytest.raises(ResidencyError, match="is process 99, and names process 101 as this session's, which is a child of process 100: nothing"):
        _server_io.server_of(BACKEND.pid, 99)


def test_a_child_of_another_user(monkeypatch):
    """Such as a program that changes its user: nobody but root could read its counters, and root does not."""
    closed = PermissionError(13, "Permission denied", "/proc/102/io")

    def refuse(pid):
        raise closed

    monkeypatch.setattr(_server_io, "_server_processes", lambda server: {POSTMASTER, IO_WORKER})
    monkeypatch.setattr(_server_io, "_read_bytes", refuse)
    monkeypatch.setattr(_processes, "ended", lambda pid: False)
    with pytest.raises(ResidencyError, match=r"/proc/102/io is closed to user id \d+: a process of another user's is a child of PostgreSQL in /data"):
        _server_io.sample(SERVER)
