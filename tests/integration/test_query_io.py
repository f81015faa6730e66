# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What query_io says of a table of 32 MB, against its size, /proc/diskstats and what fincore(1) sees."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from cluster import quick, run, thorough
from playbook import documented, environments, keys, task
from residency import held, is_there

IO, EVICT = "query_io", "cache_evict"
MIB = 1 << 20
ALONE = {"max_parallel_workers_per_gather": 0, "jit": "off"}
TOGETHER = {
    "parallel_setup_cost": 0, "parallel_tuple_cost": 0, "min_parallel_table_scan_size": 0, "max_parallel_workers_per_gather": 2,
    "parallel_leader_participation": False, "jit": "off",
}
NO_QUERY = "query 1 is not a query that only reads: it must be one SELECT, VALUES, TABLE or WITH. PostgreSQL says: "
LOCK = "/dev/shm/pgfleet.cold_test"
PROGRAMS = "program files were read too, such as the library for JIT, and the devices cannot tell them from the data"


@pytest.fixture(scope="module")
def wide(cluster):
    """Larger than shared buffers, so that it is read again each time."""
    cluster.sql(
        "CREATE TABLE wide AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 28000) AS i; VACUUM (FREEZE, ANALYZE) wide"
    )
    cluster.sql("CHECKPOINT")
    run("sync", "--file-system", cluster.data)
    cluster.size = int(cluster.sql("SELECT pg_relation_size('wide')"))
    assert cluster.size > 30 * MIB
    yield cluster
    cluster.sql("DROP TABLE wide; DROP TABLE IF EXISTS victim")


def cold(cluster):
    path = cluster.file_of("wide")
    cluster.stop()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cluster.resident(path) < MIB
    cluster.start()


def one_run(result):
    assert not result.get("failed"), result["msg"]
    assert keys(result) == documented(IO)
    [found] = result["runs"]
    return found


@quick
@pytest.mark.parametrize("settings", [ALONE, TOGETHER], ids=["alone", "with parallel workers"])
def test_the_device_and_the_page_cache(wide, as_postgres, login, settings):
    """The backend's own account, which is what everybody looks at, has nothing of what its workers read."""
    cold(wide)
    query = {"query": "SELECT count(filler) FROM wide", "settings": settings, **login}
    path = wide.file_of("wide")
    first = one_run(*as_postgres(task(IO, **query)))
    assert is_there(path)
    with held(path):
        second = one_run(*as_postgres(task(IO, **query)))
    assert 0.95 * wide.size <= first["device_bytes"] <= 1.2 * wide.size
    assert first["page_cache_bytes"] <= 0.05 * wide.size
    assert first["read_bytes"] >= 0.95 * wide.size
    assert sum(disk["bytes"] for disk in first["disks"]) >= 0.95 * first["device_bytes"]
    assert first["read_milliseconds"] > 0
    if settings is TOGETHER:
        assert first["workers_launched"] == 2
        assert first["backend_bytes"] < 0.1 * wide.size < 0.9 * wide.size < first["ended_bytes"]
    else:
        assert first["backend_bytes"] >= 0.95 * wide.size
    assert second["device_bytes"] <= 0.05 * wide.size
    assert second["page_cache_percent"] >= 95
    for found in (first, second):
        assert found["certainty"] == "exact" or found["remarks"][0] == PROGRAMS, "whose pages the kernel may take back on the data's own disk"


def test_half_of_it(wide, as_postgres, login):
    cold(wide)
    path = wide.file_of("wide")
    with held(path, length=wide.size // 2):
        cached = wide.resident(path)
        [result] = as_postgres(task(IO, query="SELECT count(filler) FROM wide", settings=ALONE, **login))
    found = one_run(result)
    assert abs(found["device_bytes"] - (wide.size - cached)) <= 0.1 * wide.size
    assert abs(found["page_cache_bytes"] - cached) <= 0.1 * wide.size


@thorough
def test_several_queries_and_files(wide, as_postgres, login, machine):
    path = os.path.join(machine.directory, "query.sql")
    with open(path, "w") as file:
        file.write("-- a comment;\nSELECT count(*) FROM wide WHERE filler LIKE '%x;%';\n")
    [result] = as_postgres(
        task(IO, queries=[{"name": "one", "query": "SELECT 1"}, {"name": "file", "path": path}], repeat=2, plan=False, **login)
    )
    assert [(one["name"], one["repetition"]) for one in result["runs"]] == [("one", 1), ("file", 1), ("one", 2), ("file", 2)]
    assert [one["plan"] for one in result["runs"]] == [None] * 4
    assert result["changed"] is False


def test_no_row_is_in_a_result(wide, as_postgres, login):
    wide.sql("CREATE TABLE IF NOT EXISTS secret AS SELECT 'xyzzy' AS word")
    tasks = [task(IO, query=query, **login) for query in (
        "SELECT word FROM secret", "SELECT word::int FROM secret",
        "SELECT 1 / (length(word) - 5) FROM secret", "SELECT query_to_xml('SELECT word FROM secret', false, false, '')",
    )]
    results = as_postgres(*tasks)
    assert "xyzzy" not in str(results)
    assert [bool(one.get("failed")) for one in results] == [False, True, True, False]
    assert results[1]["msg"] == (
        "query 1 failed with SQLSTATE 22P02 (InvalidTextRepresentation): its message may hold values of rows; see the server's log."
    )


def test_check_mode_runs_nothing(wide, as_postgres, login):
    cold(wide)
    [result] = as_postgres(task(IO, check=True, query="SELECT count(filler) FROM wide", **login))
    assert result["msg"] == "Would run query 1."
    assert one_run(result)["plan"]["Node Type"]
    assert wide.resident(wide.file_of("wide")) < MIB


def test_nothing_is_written(wide, as_postgres, login):
    queries = {
        "INSERT INTO wide VALUES (0, '')": NO_QUERY + "cannot open INSERT query as cursor.",
        "WITH x AS (DELETE FROM wide RETURNING i) SELECT i FROM x": NO_QUERY + "SELECT is not allowed in a non-volatile function.",
        "CREATE TABLE wider AS SELECT * FROM wide": NO_QUERY + "cannot open CREATE TABLE AS query as cursor.",
        "SELECT * INTO wider FROM wide": NO_QUERY + "cannot open SELECT INTO query as cursor.",
        "SELECT nextval('counter')": NO_QUERY + "cannot execute nextval() in a read-only transaction.",
        "SELECT 1; COMMIT; DROP TABLE wide": "query 1 holds more than one statement: make each a separate query.",
        "SELECT pg_sleep(30)": "query 1 did not end within timeout of 1.0 s.",
        "SELECT nothing FROM wide": "query 1: PostgreSQL says: column \"nothing\" does not exist.",
    }
    wide.sql("CREATE SEQUENCE counter")
    before = wide.sql("SELECT count(*) FROM wide")
    results = as_postgres(*(task(IO, query=query, timeout=1, **login) for query in queries))
    assert [one["msg"] for one in results] == list(queries.values())
    assert [keys(one) for one in results] == [documented(IO)] * len(queries)
    assert wide.sql("SELECT count(*) FROM wide") == before


# What a client takes for one statement is several for the server.
SMUGGLED = (
    "SELECT 1 AS é$a$; COMMIT; DROP TABLE victim; COMMIT; BEGIN; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT 1 AS é$a$",
    "SELECT 1 AS \U00010400$a$; COMMIT; DROP TABLE victim; BEGIN; SELECT 1 AS \U00010400$a$",
    "SELECT $é$ $é$; COMMIT; DROP TABLE victim; BEGIN; SELECT $é$ $é$",
    "SELECT U&'\\'; COMMIT; DROP TABLE victim; BEGIN; SELECT ''",
    "SELECT '\\'; COMMIT; DROP TABLE victim; BEGIN; SELECT ''",
    "SELECT 1--\r; COMMIT; DROP TABLE victim; BEGIN; SELECT 1",
    "COMMIT; DROP TABLE victim",
    "SELECT pg_catalog.query_to_xml('DROP TABLE victim', true, true, '')",
)


@thorough
@pytest.mark.parametrize("environment", environments("host-3.11-*"), ids=os.path.basename)
def test_several_statements_in_one(wide, as_postgres, login, environment):
    wide.sql("CREATE TABLE IF NOT EXISTS victim ()")
    for settings in ({}, {"standard_conforming_strings": "off"}):
        for check in (True, False):
            results = as_postgres(
                *(task(IO, check=check, query=query, settings=settings, **login) for query in SMUGGLED),
                vars={"ansible_python_interpreter": environment + "/bin/python"},
            )
            assert "victim" in wide.sql("SELECT relname FROM pg_class WHERE relname = 'victim'")
            for query, result in zip(SMUGGLED[:-1], results):
                assert result["failed"], query


@thorough
def test_others_at_work_are_noticed(wide, as_postgres, login):
    """Another session reads all the time: the query's own workers cannot be told from that one's."""
    other = subprocess.Popen(
        ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "env", "HOME=/var/empty", wide.bin + "/psql", "-XAtq",
         "-h", wide.socket, "-p", str(wide.port), "-d", "postgres", "-c", "SELECT pg_sleep(60)"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )
    try:
        for _attempt in range(100):
            if wide.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND state = 'active'") != "0":
                break
            time.sleep(0.1)
        [result] = as_postgres(task(IO, query="SELECT count(filler) FROM wide", settings=TOGETHER, **login))
    finally:
        wide.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()")
        other.wait()
    found = one_run(result)
    assert found["certainty"] == "upper_bound"
    assert "1 other session was active, whose parallel workers could not be told from the query's" in found["remarks"]


@thorough
def test_one_at_a_time(wide, as_postgres, login):
    held = "play cold_test of alice, since today"
    os.symlink(held, LOCK)
    try:
        refused, within, other = as_postgres(
            task(IO, query="SELECT 1", **login), task(IO, query="SELECT 1", lock=held, **login), task(IO, query="SELECT 1", lock="bob", **login)
        )
    finally:
        os.unlink(LOCK)
    assert refused["msg"] == (
        "Another run is in progress on this host: %s. Wait until it is done; if that run no longer exists, remove %s, owned by user root."
        % (held, LOCK)
    )
    assert not within.get("failed"), within["msg"]
    assert other["msg"] == "%s is not held as 'bob', but by '%s'." % (LOCK, held)
    os.symlink("query_io of user x, process 999999999, since long ago", LOCK)
    run("chown", "--no-dereference", "postgres", LOCK)
    [after] = as_postgres(task(IO, query="SELECT 1", **login))
    assert not after.get("failed"), "whoever was killed holds nothing"
    assert not os.path.lexists(LOCK)


@thorough
def test_who_may_not_see_the_processes(wide, ansible, by_password):
    [result] = ansible.tasks(
        [task(IO, query="SELECT 1", **by_password("app"))], become=True, become_user="nobody", vars={"ansible_become_flags": "-s /bin/sh"},
    )
    with open(os.path.join(wide.data, "postmaster.pid")) as file:
        postmaster = file.readline().strip()
    assert result["msg"].startswith("Process %s's /proc/%s/io is closed to user id " % (postmaster, postmaster)), result["msg"]
    assert result["msg"].endswith(": become the cluster's operating system user (become_user: postgres).")


def test_a_role_without_any_right_but_its_own(wide, as_postgres, by_password):
    """It may not set track_io_timing, and sees no other session."""
    wide.sql("GRANT SELECT ON wide TO app")
    [result] = as_postgres(task(IO, query="SELECT count(filler) FROM wide", settings=ALONE, **by_password("app")))
    found = one_run(result)
    assert found["read_milliseconds"] is None and found["shared_read"] > 0
