# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options, and figures from made-up counts. The integration tests have real counts."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _io_reading, _processes, _query_io, _server_io
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Disk, Faults, Sample, Server

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


def sample(read, disk=0, **changed):
    return Sample(read, {"sda": Disk(disk >> 12, disk)}, None, False, **changed)


def test_whose_reads_they_are():
    ended = process(104)
    before = sample({POSTMASTER: 10, BACKEND: 20, IO_WORKER: 30, CHECKPOINTER: 40, ended: 50}, 1000, faults={100: Faults(1, 5, 900), 101: Faults(3)})
    born = process(105)
    counts = {POSTMASTER: 10 + 50 + 7, BACKEND: 21, IO_WORKER: 33, CHECKPOINTER: 44, born: 5}
    after = sample(counts, 1000 + 20, faults={100: Faults(1, 9, 950), 101: Faults(5)})
    reads = _server_io.compare(before, after, SERVER, BACKEND.pid)
    assert (reads.backend, reads.io_workers, reads.others, reads.ended) == (1, 3, 4 + 5, 7)
    assert (reads.gone, reads.born) == ({ended}, {born})
    assert reads.disk_bytes == 20
    assert reads.of_query(0) == 4, "no worker of its own: what has ended was another's"
    assert reads.of_query(2) == 11
    assert (reads.faults, reads.faults_ended, reads.children_ended) == (2, 4, True)
    assert not _server_io.compare(before, before, SERVER, BACKEND.pid).children_ended


def test_a_layer_that_counts_from_now_on():
    """A cgroup has a count of a device from its first request on. Until then the one below stands for it, with what it has read otherwise."""
    before, after = (Sample({POSTMASTER: 0, BACKEND: 0}, {}, one, False) for one in ({"dm-1": 16 * MIB}, {"loop0": 8 * MIB}))
    assert _server_io.compare(before, after, SERVER, BACKEND.pid).cgroup == 8 * MIB


class Failed(Exception):
    """As the driver's."""

    sqlstate = "57014"


@pytest.mark.parametrize(("settings", "seconds", "expected"), [
    ({}, 1.01, "q did not end within timeout of 1.0 s."),
    # canceled by somebody, or by a timeout of the settings
    ({}, 0.9, "q: PostgreSQL says: canceling statement due to user request."),
    ({"statement_timeout": "1h"}, 900.0, "q: PostgreSQL says: canceling statement due to user request."),
])
def test_whose_timeout_it_was(settings, seconds, expected):
    error = ResidencyError("PostgreSQL says: canceling statement due to user request.")
    error.__cause__ = Failed()
    assert _query_io._failure(_query_io.Query("q", "SELECT 1", settings), error, 1, seconds) == expected


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

    monkeypatch.setattr(_io_reading, "_server", lambda postmaster: {POSTMASTER, IO_WORKER})
    monkeypatch.setattr(_io_reading, "of_process", refuse)
    monkeypatch.setattr(_processes, "ended", lambda pid: False)
    closed_to = r"/proc/102/io is closed to user id \d+: a process of another user's is a child of PostgreSQL's process 100\."
    for look in (lambda: _server_io.sample(SERVER), lambda: _io_reading.charged(100)):
        with pytest.raises(ResidencyError, match=closed_to):
            look()


def test_a_kernel_without_the_account(monkeypatch):
    monkeypatch.setattr(_processes, "look", lambda pid: BACKEND)
    monkeypatch.setattr(_processes, "title", lambda pid: BACKEND.title)
    monkeypatch.setattr(_server_io.os, "readlink", lambda path: "/data")

    def absent(pid):
        raise FileNotFoundError(2, "No such file or directory", "/proc/100/io")

    monkeypatch.setattr(_io_reading, "of_process", absent)
    with pytest.raises(ResidencyError, match="There is no /proc/100/io: either PostgreSQL has ended meanwhile, or this kernel keeps no account of I/O"):
        _server_io.server_of(BACKEND.pid)
