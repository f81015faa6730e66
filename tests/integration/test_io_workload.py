# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The load: what is in its tables, what its sessions did against what PostgreSQL counted, and what is left of an interrupted one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

import pytest
from cluster import MAJOR, METHODS, quick, thorough
from playbook import documented, keys, task

LOAD = "io_workload"
SMALL = {"schemas": 2, "scale": "8M"}
# percentage of updates, and how PostgreSQL reads
WAYS = [pytest.param(0, None, marks=thorough), (60, None), pytest.param(100, None, marks=thorough)] if MAJOR < 18 else [(60, method) for method in METHODS]


def sizes(**changed):
    return {**SMALL, **changed}


@pytest.fixture
def empty(cluster):
    cluster.sql("DROP SCHEMA IF EXISTS pgfleet_io CASCADE")
    yield cluster
    cluster.sql("DROP SCHEMA IF EXISTS pgfleet_io CASCADE")


def well(results):
    for result in results:
        assert not result.get("failed"), result["msg"]
        assert keys(result) == documented(LOAD)
    return results


def tables(cluster):
    return cluster.sql("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('pgfleet_io') AND relkind = 'r' ORDER BY 1").split()


@quick
def test_a_row_in_each_block(empty, as_postgres, login):
    """In an order that is not that of the keys; a second load finds them, one of another scale replaces them."""
    check, real, again, other, gone, absent = well(as_postgres(
        task(LOAD, check=True, **SMALL, **login), task(LOAD, **SMALL, **login), task(LOAD, **SMALL, **login),
        task(LOAD, **sizes(scale="9M", schemas=1), **login),
        task(LOAD, check=True, state="absent", **login), task(LOAD, check=True, state="run", **sizes(scale="9M", schemas=1), **login),
    ))
    assert [one["changed"] for one in (check, real, again, other, gone, absent)] == [True, True, False, True, True, False]
    assert (check["loaded"], real["loaded"], again["loaded"], other["loaded"]) == (0, 2, 0, 1)
    assert check["msg"].startswith("Would load 2 schemas of 8.00 MB each, ") and other["msg"].startswith("Loaded 1 schema of 9.00 MB each in ")
    assert tables(empty) == ["pgio1", "pgio2", "pgio_set"]
    for name, blocks in (("pgio1", 1152), ("pgio2", 1024)):
        found = empty.sql(
            "SELECT count(*), min(mykey), max(mykey), count(DISTINCT (ctid::text::point)[0]), pg_relation_size('pgfleet_io.%s') / 8192,"
            " round(abs(corr((ctid::text::point)[0], mykey))::numeric, 1) FROM pgfleet_io.%s" % (name, name)
        )
        assert found == "%d|1|%d|%d|%d|0.0" % (4 * (blocks,))
    removed, nothing = well(as_postgres(*2 * [task(LOAD, state="absent", **login)]))
    assert (removed["changed"], nothing["changed"], nothing["msg"]) == (True, False, "There is no schema pgfleet_io.")
    assert empty.sql("SELECT to_regnamespace('pgfleet_io') IS NULL") == "t"


@pytest.fixture
def reader(empty, request):
    """The cluster, with an io_method as parameter."""
    empty.read_by(request.param)
    yield empty
    if request.param is not None:
        empty.sql("ALTER SYSTEM RESET io_method")


@pytest.mark.parametrize(("percent", "reader"), WAYS, indirect=["reader"])
def test_what_the_sessions_did(reader, as_postgres, login, percent):
    """As PostgreSQL counted it: the rows that were fetched and updated, and who was connected."""
    empty = reader
    run = sizes(state="run", sessions=2, run_time="4s", work_unit=64, update_pct=percent, update_work_unit=4, **login)

    def counted():
        return [int(one) for one in empty.sql(
            "SELECT sum(idx_tup_fetch), sum(n_tup_upd) FROM pg_stat_user_tables WHERE schemaname = 'pgfleet_io'").split("|")]

    def settled():
        while True:
            before = counted()
            time.sleep(1.5)
            if counted() == before:
                return before

    well(as_postgres(task(LOAD, **SMALL, **login)))
    before = settled()
    first, result = well(as_postgres(task(LOAD, check=True, **run), task(LOAD, **run)))
    fetched, updated = (now - then for now, then in zip(settled(), before))
    assert first["msg"] == "Would run 4 sessions on 2 schemas of 8.00 MB each for 4.0 s." and first["changed"] is (percent > 0)
    assert result["changed"] is (percent > 0)
    assert [(one["schema"], one["session"]) for one in result["sessions"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for name in ("selects", "updates", "select_blocks", "update_blocks"):
        assert result[name] == sum(one[name] for one in result["sessions"])
    assert (result["select_blocks"], result["update_blocks"]) == (64 * result["selects"], 4 * result["updates"])
    # the transactions that end with the run time are in the log, and each did all of its work
    assert updated == result["update_blocks"]
    # the planner looks a key up by itself where the statistics end
    assert 0 <= fetched - result["select_blocks"] - result["update_blocks"] <= 2 + fetched // 1000
    done = result["selects"] + result["updates"]
    assert abs(result["updates"] / done - percent / 100) < 0.15 and done > 20
    assert 3 < result["seconds"] < 100 and result["blocks_per_second"] == pytest.approx(fetched / result["seconds"], rel=0.02)
    assert (result["slowest_select_ms"] is None) is (percent == 100) and (result["slowest_update_ms"] is None) is (percent == 0)


@thorough
def test_progress_is_shown(empty, ansible, login):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as sent:
        os.chmod(sent, 0o1777)
        output, status = ansible.command(ansible.write(
            [task(LOAD, **SMALL, **login), task(LOAD, state="run", run_time="6s", **SMALL, **login)], become=True, become_user="postgres",
        ), ANSIBLE_PIPELINING="False", ANSIBLE_SYSTEM_TMPDIRS=sent)
        assert status == 0, output
        assert "db1: running, " in output and " s of 6.0 s" in output
        # what the host was sent has the login in it
        assert os.listdir(sent) == [], output


# of processes that this test has started: others may run the same module on this host
MARK = "PGFLEET_TEST_OF", "io_workload %d" % os.getpid()
CUT = {"ANSIBLE_PIPELINING": "False", MARK[0]: MARK[1]}


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def kill_when(cluster, there):
    """Kill the module, as soon as SQL says yes."""
    def wait():
        until = time.monotonic() + 120
        while cluster.sql("SELECT (%s)::int" % there) != "1":
            if time.monotonic() > until:
                return
        for pid in filter(str.isdigit, os.listdir("/proc")):
            ours = "=".join(MARK).encode() in read("/proc/%s/environ" % pid).split(b"\0")
            if ours and re.search(rb"AnsiballZ_io_workload|io_workload.*zip|__main__.*io_workload", read("/proc/%s/cmdline" % pid)):
                os.kill(int(pid), signal.SIGKILL)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_interrupted_load_is_repaired(empty, as_postgres, login):
    """Its tables are not taken for whole ones, and the next load leaves none of its rests."""
    large = sizes(scale="64M", load_sessions=1)
    begun = "SELECT to_regclass('pgfleet_io.pgio2') IS NOT NULL"
    thread = kill_when(empty, begun)
    [cut] = as_postgres(task(LOAD, **large, **login), environment=CUT)
    thread.join()
    if not cut.get("failed"):
        empty.sql("DELETE FROM pgfleet_io.pgio_set WHERE number = 2; CREATE TABLE pgfleet_io.pgio_base ()")  # it was faster
    run, again = as_postgres(task(LOAD, state="run", run_time="2s", **large, **login), task(LOAD, **large, **login))
    assert run["failed"] and "1 of 2 schemas of 64.0 MB each are not loaded: load them first (state: present)." in run["msg"]
    assert not again.get("failed"), again["msg"]
    assert again["changed"] and again["loaded"] == 1
    assert tables(empty) == ["pgio1", "pgio2", "pgio_set"] and empty.sql("SELECT count(*) FROM pgfleet_io.pgio2") == "8192"


@thorough
def test_a_load_that_takes_too_long(empty, as_postgres, login):
    """It ends by itself; what is whole stays."""
    [late] = as_postgres(task(LOAD, load_timeout="0.001s", **SMALL, **login))
    assert late["failed"] and "was not done within load_timeout" in late["msg"]
    [again] = well(as_postgres(task(LOAD, **SMALL, **login)))
    assert again["loaded"] == 2 - late["loaded"]


@thorough
def test_one_at_a_time(empty, as_postgres, login):
    well(as_postgres(task(LOAD, **SMALL, **login)))
    with subprocess.Popen(
        (empty.bin + "/psql", "-h", empty.socket, "-p", str(empty.port), "-d", "postgres"), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, user="postgres", cwd="/", text=True,
    ) as other:
        other.stdin.write("SELECT pg_advisory_lock(%d);\n" % 0x7067696F)
        other.stdin.flush()
        until = time.monotonic() + 60
        while empty.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0":
            assert time.monotonic() < until
        [refused] = as_postgres(task(LOAD, state="run", run_time="2s", **SMALL, **login))
        other.kill()
    assert refused["failed"] and refused["msg"].startswith("Another load or run works on these tables (process ")


@thorough
@pytest.mark.parametrize("harm", [
    "CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
    "CREATE TRIGGER trap BEFORE UPDATE ON pgfleet_io.pgio1 FOR EACH ROW EXECUTE FUNCTION public.trap()",
    "ALTER TABLE pgfleet_io.pgio1 OWNER TO app",
    "DROP TABLE pgfleet_io.pgio1; CREATE VIEW pgfleet_io.pgio1 AS SELECT 1 AS mykey",
    "ALTER SCHEMA pgfleet_io OWNER TO app",
], ids=["trigger", "owner", "view", "schema"])
def test_what_others_have_changed_is_not_used(empty, as_postgres, login, harm):
    """A superuser's statements run what a trigger or a view of another role says."""
    well(as_postgres(task(LOAD, **sizes(schemas=1), **login)))
    empty.sql(harm)
    for result in as_postgres(*(task(LOAD, state=state, **sizes(schemas=1), **login) for state in ("present", "run", "absent"))):
        assert result["failed"] and ("somebody has changed it" in result["msg"] or "belongs to app" in result["msg"]), result["msg"]
    empty.sql("DROP FUNCTION IF EXISTS public.trap CASCADE")


@thorough
def test_a_right_of_another_role(empty, as_postgres, login):
    """Which it has by default privileges, and adds a trigger with, between the look and the statement."""
    empty.sql("ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app")
    small = sizes(schemas=1)
    try:
        first, again = as_postgres(task(LOAD, **small, **login), task(LOAD, **small, **login))
        assert first["failed"] and first["changed"] and tables(empty) == ["pgio_set"]
        for one in (first, again):
            assert "Others have rights in schema pgfleet_io: take them away with REVOKE ALL ON SCHEMA" in one["msg"] and " FROM app," in one["msg"]
        empty.sql('REVOKE ALL ON SCHEMA "pgfleet_io" FROM app')
        [loaded] = well(as_postgres(task(LOAD, **small, **login)))
        assert loaded["loaded"] == 1
    finally:
        empty.sql("ALTER DEFAULT PRIVILEGES REVOKE ALL ON SCHEMAS FROM app; ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM app")


@thorough
def test_the_database_has_no_say_in_the_plan(empty, as_postgres, login):
    """Its owner may turn off every use of an index: then a statement would read all of the table, and be reported to read its range."""
    names = ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan")
    small = sizes(schemas=1)
    well(as_postgres(task(LOAD, **small, **login)))
    for name in names:
        empty.sql("ALTER DATABASE postgres SET %s = off" % name)
    try:
        empty.sql("SELECT pg_stat_reset()")
        [ran] = well(as_postgres(task(LOAD, state="run", run_time="2s", work_unit=64, **small, **login)))
    finally:
        for name in names:
            empty.sql("ALTER DATABASE postgres RESET %s" % name)
    until = time.monotonic() + 60
    while True:  # statistics of sessions that ended come a little later
        scans, rows, indexed = (int(one) for one in empty.sql(
            "SELECT seq_scan, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE schemaname = 'pgfleet_io' AND relname = 'pgio1'").split("|"))
        if rows + indexed >= ran["select_blocks"] or time.monotonic() > until:
            break
    assert (scans, rows, indexed) == (0, 0, ran["select_blocks"])


@thorough
def test_an_emptied_table_is_no_whole_one(empty, as_postgres, login):
    """Nor one without its index: a run on it would report blocks that nobody reads."""
    well(as_postgres(task(LOAD, **sizes(schemas=3), **login)))
    empty.sql("TRUNCATE pgfleet_io.pgio1; DROP INDEX pgfleet_io.pgio2_mykey_idx")
    run, load, again = as_postgres(
        task(LOAD, state="run", run_time="2s", **sizes(schemas=3), **login), task(LOAD, **sizes(schemas=3), **login),
        task(LOAD, **sizes(schemas=3), **login),
    )
    assert run["failed"] and "2 of 3 schemas of 8.00 MB each are not loaded" in run["msg"]
    assert load["loaded"] == 2 and not again["changed"], (load["msg"], again["msg"])


@thorough
def test_tables_of_others_with_these_names(empty, as_postgres, login):
    """pgio's own are called so too. They stay, and so does a schema that has nothing of ours."""
    empty.sql("CREATE SCHEMA pgfleet_io; CREATE TABLE pgfleet_io.pgio1 (mykey bigint)")
    for state in ("present", "run", "absent"):
        [refused] = as_postgres(task(LOAD, state=state, **SMALL, **login))
        assert refused["failed"] and "has a table pgio1 that this module has not made" in refused["msg"] and not refused["changed"]
    empty.sql("ALTER TABLE pgfleet_io.pgio1 RENAME TO mine")
    [nothing] = well(as_postgres(task(LOAD, state="absent", **login)))
    assert not nothing["changed"] and nothing["msg"] == "Schema pgfleet_io has no tables of a load." and tables(empty) == ["mine"]


@thorough
def test_only_rests_of_a_load(empty, as_postgres, login):
    """Nothing is loaded to remove them."""
    well(as_postgres(task(LOAD, **SMALL, **login)))
    empty.sql("CREATE TABLE pgfleet_io.pgio3 (mykey integer); CREATE TABLE pgfleet_io.pgio_base ()")
    check, real = well(as_postgres(task(LOAD, check=True, **SMALL, **login), task(LOAD, **SMALL, **login)))
    assert check["msg"] == "2 schemas of 8.00 MB each are there. Would remove what a load left that was interrupted."
    assert (real["changed"], real["loaded"]) == (True, 0) and "Removed what a load left" in real["msg"]
    assert tables(empty) == ["pgio1", "pgio2", "pgio_set"]


@thorough
def test_what_was_done_until_a_failure(empty, as_postgres, login):
    """Is a change: tables are gone, rows are other ones."""
    well(as_postgres(task(LOAD, **SMALL, **login)))
    empty.sql("CREATE TABLE pgfleet_io.mine ()")
    [ran] = as_postgres(task(LOAD, state="run", run_time="2s", update_pct=50, pgbench="/bin/false", **SMALL, **login))
    assert ran["failed"] and ran["changed"] and ran["msg"] == "pgbench failed: it said nothing."
    [absent] = as_postgres(task(LOAD, state="absent", **login))
    assert absent["failed"] and absent["changed"] and any("DROP TABLE" in one for one in absent["queries"])


@thorough
def test_nothing_is_left_of_a_killed_run(empty, as_postgres, login):
    """Neither its sessions, beside which the next one would run, nor its log in memory."""
    well(as_postgres(task(LOAD, **SMALL, **login)))
    thread = kill_when(empty, "SELECT count(*) > 1 FROM pg_stat_activity WHERE application_name = 'pgfleet.cache io_workload'")
    [killed] = as_postgres(task(LOAD, state="run", run_time="300s", **SMALL, **login), environment=CUT)
    thread.join()
    assert killed["failed"]
    until = time.monotonic() + 60
    while empty.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgfleet.cache io_workload'") != "0":
        assert time.monotonic() < until
        time.sleep(0.2)
    well(as_postgres(task(LOAD, state="run", run_time="2s", **SMALL, **login)))


@thorough
def test_what_others_have_put_there_stays(empty, as_postgres, login):
    well(as_postgres(task(LOAD, **SMALL, **login)))
    empty.sql("CREATE TABLE pgfleet_io.mine ()")
    [result] = as_postgres(task(LOAD, state="absent", **login))
    assert result["failed"] and "cannot drop schema pgfleet_io because other objects depend on it" in result["msg"]
    assert tables(empty) == ["mine"]


@thorough
def test_a_standby_reads(empty, machine, as_postgres, login):
    """And neither loads nor updates."""
    well(as_postgres(task(LOAD, **SMALL, **login)))
    standby = machine("reader", empty)
    there = dict(login, login_port=standby.port)
    until = time.monotonic() + 120
    while "pgio_set" not in tables(standby):
        assert time.monotonic() < until
    load, update, read = as_postgres(
        task(LOAD, **sizes(schemas=3), **there), task(LOAD, state="run", update_pct=1, run_time="2s", **SMALL, **there),
        task(LOAD, state="run", run_time="2s", **SMALL, **there),
    )
    standby.stop()
    assert load["failed"] and load["msg"].startswith("This is a standby, where nothing can be loaded: ")
    assert update["failed"] and update["msg"].startswith("This is a standby, where nothing can be updated: ")
    assert not read.get("failed") and read["selects"] > 0 and not read["changed"], json.dumps(read)


@thorough
def test_a_login_by_password(empty, ansible, as_postgres, login, by_password):
    """Which nobody sees in the list of processes; a role that may not read the tables is told so."""
    empty.sql("GRANT CREATE ON DATABASE postgres TO operator")
    try:
        loaded, ran = ansible.tasks([
            task(LOAD, **SMALL, **by_password("operator")), task(LOAD, state="run", run_time="2s", **SMALL, **by_password("operator")),
        ])
    finally:
        empty.sql("REVOKE CREATE ON DATABASE postgres FROM operator")
    assert not loaded.get("failed") and not ran.get("failed"), (loaded["msg"], ran["msg"])
    assert any("may not run CHECKPOINT" in one for one in loaded.get("warnings", []))
    assert ran["selects"] > 0
    [refused] = ansible.tasks([task(LOAD, schema="other_io", **SMALL, **by_password("app"))])
    assert refused["failed"] and "permission denied for database postgres" in refused["msg"]
