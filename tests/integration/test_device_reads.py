# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""query_io against a device that has nothing but the data directory: what is called exact is what that device has delivered."""

from __future__ import annotations

import glob
import os
import re
import shutil
import threading
import time

import pytest
from cluster import MAJOR, OWNER, Cluster, heart, quick, run, thorough
from devices import device
from playbook import task
from test_memory import BLKIO, make_cgroup, remove_cgroup

IO = "query_io"
MIB = 1 << 20
SLACK = MIB // 2  # of catalogs, which the module's own statements read too
ALONE = {"max_parallel_workers_per_gather": 0, "jit": "off"}
TOGETHER = {
    "parallel_setup_cost": 0, "parallel_tuple_cost": 0, "min_parallel_table_scan_size": 0, "max_parallel_workers_per_gather": 2, "jit": "off",
}
PART = "SELECT count(filler) FROM part"
# how PostgreSQL reads
METHODS = ["sync"] if MAJOR < 18 else ["worker", *(pytest.param(method, marks=thorough) for method in ("sync", "io_uring"))]
TABLES = """
CREATE TABLE part AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 28000) AS i;
CREATE TABLE other AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 56000) AS i;
CREATE TABLE toasty (i int, value text, j int);
ALTER TABLE toasty ALTER value SET STORAGE EXTERNAL;
INSERT INTO toasty SELECT i, repeat('y', 20000), 7 FROM generate_series(1, 1500) AS i;
CREATE ROLE app LOGIN PASSWORD 'app';
GRANT SELECT ON part TO app;
VACUUM (FREEZE, ANALYZE);
"""


@pytest.fixture(scope="module")
def disk(machine):
    with device(os.path.join(machine.directory, "disk"), 1 << 30) as found:
        os.chmod(found.mount, 0o755)
        home = os.path.join(found.mount, "home")
        os.mkdir(home)
        shutil.chown(home, OWNER, OWNER)
        cluster = Cluster(machine.bin, home, "data")
        cluster.disk = found
        try:
            cluster.create()
            cluster.sql(TABLES)
            yield cluster
        finally:
            cluster.stop("immediate")


@pytest.fixture
def login(disk):
    return {"login_port": disk.port, "login_unix_socket": disk.socket, "plan": False}


def cold(disk, method=METHODS[0], environment=()):
    disk.sql("CHECKPOINT")
    if MAJOR >= 18:
        disk.sql("ALTER SYSTEM SET io_method = '%s'" % method)
    disk.stop()
    run("sync", "--file-system", disk.data)
    for directory, dummy, names in os.walk(disk.data):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    run("env", *environment, disk.bin + "/pg_ctl", "start", "--wait", "--silent", "-D", disk.data, "-l", disk.log, user=OWNER)


@pytest.fixture
def measured(disk, as_postgres, login):
    """Runs a query, and beside it another one in a session that comes and goes while the first one sleeps."""

    def measure(query, settings, beside=None, **changed):
        arguments = dict(login, query=query, settings=settings, **changed)
        [planned] = as_postgres(task(IO, check=True, **arguments))  # reads the catalogs
        assert not planned.get("failed"), planned["msg"]
        before = disk.disk.count()
        thread = threading.Thread(target=while_it_runs, args=(disk, beside))
        if beside is not None:
            thread.start()
        try:
            [result] = as_postgres(task(IO, **arguments))
        finally:
            if beside is not None:
                thread.join()
        delivered = disk.disk.count() - before
        assert not result.get("failed"), result["msg"]
        [found] = result["runs"]
        assert found["disks"][0]["device"] == disk.disk.name
        found["msg"] = result["msg"]
        return found, delivered

    return measure


def while_it_runs(disk, statement):
    for _attempt in range(600):
        if re.search("^postgres: .* EXPLAIN$", run("ps", "-ww", "-e", "-o", "args="), re.MULTILINE):
            time.sleep(0.5)
            disk.sql(statement)
            return
        time.sleep(0.05)


def size(disk, relation):
    return int(disk.sql("SELECT pg_table_size('%s')" % relation))


QUERIES = {
    "alone": (PART, ALONE, "part"),
    "parallel": (PART, TOGETHER, "part"),
    "values stored apart": ("SELECT * FROM toasty", ALONE, "toasty"),
    "values stored apart, parallel, a comment": ("SELECT * FROM toasty WHERE j = 7 ORDER BY i; -- all; of it", TOGETHER, "toasty"),
    "no values stored apart": ("SELECT i, j FROM toasty", ALONE, None),
    "spill": ("SELECT filler FROM part ORDER BY filler DESC, i", dict(ALONE, work_mem="1MB"), "part"),
}


@quick
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", heart(QUERIES, {"parallel"}.__contains__))
def test_exact_is_what_the_device_delivered(disk, measured, name, method):
    query, settings, relation = QUERIES[name]
    for _attempt in range(3):
        cold(disk, method)
        found, delivered = measured(query, settings)
        # a kernel short of memory may have taken the server's own program away, and this says so
        if not any(one.startswith("program files were read too") for one in found["remarks"]):
            break
    wanted = MIB if relation is None else size(disk, relation)
    assert found["certainty"] == "exact", found["remarks"]
    assert abs(found["device_bytes"] - delivered) <= SLACK, found
    assert found["device_bytes"] <= 1.05 * wanted + MIB and found["page_cache_bytes"] <= 0.05 * wanted
    if relation is not None:
        assert 0.95 * wanted <= found["read_bytes"] <= 1.05 * wanted
        assert found["device_bytes"] >= 0.95 * wanted
    assert (found["serialization_milliseconds"] is None) == (MAJOR < 17)
    spills = name == "spill"
    assert (found["temp_written"] * 8192 >= 0.9 * wanted) == spills == (found["temp_read"] > 0)
    assert bool([one for one in found["remarks"] if "to temporary files" in one]) == spills


@thorough
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("settings", [ALONE, TOGETHER], ids=["alone", "parallel"])
def test_a_session_that_comes_and_goes(disk, measured, settings, method):
    """In no sample of the server's processes: before, it was not there, and afterwards it is gone."""
    cold(disk, method)
    found, delivered = measured("SELECT count(filler), (SELECT pg_sleep(8)) FROM part", settings, "SELECT count(filler) FROM other")
    other = size(disk, "other")
    assert delivered >= 0.95 * (size(disk, "part") + other)
    if settings is ALONE and method != "worker":
        assert found["certainty"] == "exact"
        assert abs(found["device_bytes"] + other - delivered) <= SLACK + 0.05 * other
        return
    assert found["certainty"] == "upper_bound", found
    [remark] = [one for one in found["remarks"] if "began meanwhile" in one]
    assert re.fullmatch(r"1 session began meanwhile, whose reads could not be told from the query's: PostgreSQL counts \d\d\.\d MB", remark)
    assert found["device_bytes"] >= 0.95 * size(disk, "part")
    assert "of which at most " in found["msg"]


@thorough
def test_a_role_that_sees_no_other_session(disk, as_postgres):
    cold(disk, "sync")
    login = {"login_port": disk.port, "login_host": "127.0.0.1", "login_user": "app", "login_password": "app"}
    [result] = as_postgres(task(IO, query=PART, settings=TOGETHER, **login))
    assert not result.get("failed"), result["msg"]
    [found] = result["runs"]
    assert found["certainty"] == "upper_bound"
    assert "without pg_monitor other sessions cannot be seen, whose parallel workers could not be told from the query's" in found["remarks"]


@pytest.fixture
def slow(disk):
    """A device of 32 MB a second, that reads ahead as far as large arrays do."""
    folder = make_cgroup(BLKIO, "slow")
    setting = "/sys/block/%s/queue/read_ahead_kb" % disk.disk.name
    with open(setting) as file:
        former = file.read()
    cold(disk, "sync")
    disk.stop()
    with open("/sys/block/%s/dev" % disk.disk.name) as file, open(folder + "/blkio.throttle.read_bps_device", "w") as limit:
        limit.write("%s %d" % (file.read().strip(), 32 * MIB))
    with open(setting, "w") as file:
        file.write("8192")
    start = "echo $$ >%s/cgroup.procs && exec setpriv --reuid %s --regid %s --init-groups %s/pg_ctl start --wait --silent -D %s -l %s"
    run("sh", "-c", start % (folder, OWNER, OWNER, disk.bin, disk.data, disk.log))
    yield disk
    with open(setting, "w") as file:
        file.write(former)
    disk.stop()
    remove_cgroup(folder)
    disk.start()


@thorough
@pytest.mark.skipif(not os.path.isdir(BLKIO), reason="version 2 of cgroups has no hierarchy of its own for I/O")
def test_read_ahead_that_is_under_way(slow, measured):
    """Which the query does not wait for."""
    found, delivered = measured("SELECT count(filler) FROM (SELECT filler FROM part LIMIT 8000) AS few", ALONE)
    time.sleep(1)
    assert found["over_read_bytes"] > 2 * MIB, "it read ahead"
    assert found["certainty"] == "exact", found["remarks"]
    assert found["elsewhere_bytes"] == 0 and not [one for one in found["remarks"] if "other devices" in one], found
    assert abs(found["device_bytes"] - delivered) <= SLACK, found


@thorough
def test_a_foreign_table(disk, measured):
    """The other server, here the same one, reads for it."""
    disk.sql(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw; DROP SERVER IF EXISTS far CASCADE;"
        "CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%d', dbname 'postgres');"
        "CREATE USER MAPPING FOR postgres SERVER far; CREATE FOREIGN TABLE far_part (i int, filler text) SERVER far OPTIONS (table_name 'part')"
        % (disk.socket, disk.port)
    )
    cold(disk, "sync")
    found, delivered = measured("SELECT count(filler || 'x') FROM far_part", ALONE)
    assert delivered >= 0.95 * size(disk, "part")
    assert found["certainty"] == "lower_bound" and found["device_bytes"] <= MIB
    assert "what a foreign server reads for the foreign tables is not counted" in found["remarks"]
    assert "of which at least " in found["msg"]


JIT = glob.glob("/usr/lib/postgresql/%d/lib/llvmjit.so" % MAJOR)


@thorough
@pytest.mark.skipif(not JIT, reason="this PostgreSQL has no JIT")
def test_the_library_for_jit_is_no_data(disk, measured, machine):
    """From another device, a little of it at a time, as far as the query needs it."""
    [library] = set(re.findall(r"=> (\S*libLLVM\S*)", run("ldd", *JIT)))
    compiled = dict(ALONE, jit="on", jit_above_cost=0, jit_inline_above_cost=0, jit_optimize_above_cost=0)
    with device(os.path.join(machine.directory, "programs"), 1 << 28, read_ahead_kb=64) as programs:
        os.chmod(programs.mount, 0o755)
        copy = shutil.copy(library, programs.mount)
        run("sync", "--file-system", programs.mount)
        cold(disk, environment=["LD_LIBRARY_PATH=" + programs.mount])
        try:
            with open(copy, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            arguments = "SELECT count(filler), sum(i * 2 + length(filler)) FROM part WHERE i % 7 <> 3 AND filler LIKE '%x%'"
            before = programs.count()
            found, delivered = measured(arguments, compiled)
            loaded = programs.count() - before
        finally:
            disk.stop()
    disk.start()
    assert loaded > MIB, "the test's own library was read"
    assert found["jit"]["functions"] > 0 and found["jit"]["milliseconds"] > 0
    assert found["settings"]["jit_above_cost"] == "0"
    assert any(remark.startswith("JIT compiled ") for remark in found["remarks"])
    assert abs(found["device_bytes"] - delivered) <= SLACK
    assert found["elsewhere_bytes"] > MIB, found
    # the disk below both devices has the server's programs too, and counts both
    assert found["certainty"] == "upper_bound"
    assert "program files were read too, such as the library for JIT, and the devices cannot tell them from the data" in found["remarks"]
    assert found["page_cache_bytes"] <= SLACK


@thorough
def test_whose_timeout_it_was(disk, as_postgres, login):
    cancel = threading.Thread(target=while_it_runs, args=(
        disk, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'EXPLAIN%pg_sleep%' AND pid <> pg_backend_pid()"))
    cancel.start()
    try:
        [canceled] = as_postgres(task(IO, query="SELECT pg_sleep(60)", **login))
    finally:
        cancel.join()
    own, ours = as_postgres(
        task(IO, query="SELECT pg_sleep(60)", settings={"statement_timeout": "1s"}, **login), task(IO, query="SELECT pg_sleep(60)", timeout=1, **login)
    )
    assert [one["msg"] for one in (canceled, own, ours)] == [
        "query 1: PostgreSQL says: canceling statement due to user request.",
        "query 1: PostgreSQL says: canceling statement due to statement timeout.",
        "query 1 did not end within timeout of 1.0 s.",
    ]


@thorough
def test_nothing_else_is_run(disk, as_postgres, login):
    """Nothing runs of what is refused: no transaction gets a number, and no log is written."""
    refused = "query 1 is not a query that only reads: it must be one SELECT, VALUES, TABLE or WITH."
    disk.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS seen AS SELECT count(*) FROM part; CHECKPOINT")
    where = "SELECT pg_snapshot_xmax(pg_current_snapshot())"
    before = disk.sql(where), disk.disk.count()
    texts = [
        "CREATE TABLE new AS SELECT * FROM part", "SELECT * INTO new FROM part", "REFRESH MATERIALIZED VIEW seen", "DECLARE c CURSOR FOR SELECT * FROM part",
        "EXPLAIN ANALYZE CREATE TABLE new AS SELECT * FROM part", "SHOW work_mem", "EXECUTE new", "COPY part TO STDOUT", "SELECT * FROM part FOR UPDATE",
    ]
    results = as_postgres(*(task(IO, query=text, **login) for text in texts))
    assert [one["msg"][:len(refused)] for one in results] == [refused] * len(texts), results
    assert disk.sql(where) == before[0] and disk.disk.count() - before[1] <= SLACK
