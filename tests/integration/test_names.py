# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names come from the server: of all databases, by one login, on a standby too, whoever has taken the snapshot."""

from __future__ import annotations

import glob
import os
import time

import pytest
from cluster import LOOSE
from playbook import task

TABLES = """
CREATE SCHEMA "Odd Schema";
CREATE TABLE "Odd Schema"."T, ""x"" y" AS SELECT repeat('x', 1000) AS filler FROM generate_series(1, 8000);
CREATE TABLE doc (id int PRIMARY KEY, body text);
ALTER TABLE doc ALTER body SET STORAGE EXTERNAL;
INSERT INTO doc SELECT i, repeat('x', 10000) FROM generate_series(1, 500) AS i;
CREATE TABLE part (i int, filler text) PARTITION BY RANGE (i);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10000);
INSERT INTO part SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) AS i;
CREATE TABLE rewritten AS SELECT repeat('x', 1000) AS filler FROM generate_series(1, 4000);
VACUUM;
CHECKPOINT;
"""
FILES = ('"Odd Schema"."T, ""x"" y"', "doc", "part_1", "rewritten")


@pytest.fixture(scope="module")
def cold(cluster):
    """A database that the modules' login never sees: who tries to connect to it is refused."""
    cluster.sql('CREATE DATABASE "Odd DB"')
    cluster.sql(TABLES, "Odd DB")
    cluster.sql('REVOKE CONNECT ON DATABASE "Odd DB" FROM PUBLIC')
    cluster.sql("CREATE DATABASE closed ALLOW_CONNECTIONS false")
    yield cluster
    cluster.sql('DROP DATABASE closed; DROP DATABASE "Odd DB"')


@pytest.fixture
def elsewhere(cold):
    """Warm again for each test: the kernel takes back what nobody touches."""
    for relation in FILES:
        cold.warm(cold.file_of(relation, "Odd DB"))
    return cold


def relations(result):
    return {row["relation"]: row for row in result["relations"] if row["database"] == "Odd DB"}


def tables(result):
    """And their indexes; TOAST comes along."""
    assert all(row["relation"] for row in result["relations"])
    return {name for name, row in relations(result).items() if not row["kind"].startswith("toast")}


def test_of_all_databases_by_one_login(elsewhere, ansible, by_password):
    saved, info = ansible.tasks([
        task("residency_snapshot", name="named", **by_password("operator")),
        task("residency_info", subset=["relations"], databases=["Odd*"], limit=1000, **by_password("monitor")),
    ])
    for result in (saved, info):
        assert not result.get("failed"), result["msg"]
        assert '"Odd Schema"."T, ""x"" y"' in relations(result), result["relations"]
    assert saved["warnings"] == ["The relations of these databases are not named: closed (the database does not accept connections)."]
    found = relations(info)
    assert {"public.doc", "public.part_1", "public.doc_pkey"} <= set(found)
    assert found["public.doc_pkey"]["belongs_to"] == "public.doc"
    toast = [row for row in info["relations"] if row["belongs_to"] == "public.doc" and row["kind"] == "toast"]
    assert len(toast) == 1


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Odd Schema.T, \"x\" y", ['"Odd Schema"."T, ""x"" y"']),
        ("part", ["public.part_1"]),
        ("public.doc", ["public.doc", "public.doc_pkey"]),
    ],
)
def test_a_snapshot_by_sql_has_names(elsewhere, as_postgres, login, pattern, expected):
    elsewhere.sql("SELECT FROM residency_snapshot('by_sql')")
    [result] = as_postgres(task("residency_restore", name="by_sql", relations=[pattern], databases=["Odd*"], min_residency=LOOSE, **login))
    assert not result.get("failed"), result["msg"]
    assert "warnings" not in result
    assert tables(result) == set(expected)


def test_on_a_standby(elsewhere, machine, as_postgres):
    """Where nobody can write a name down."""
    standby = machine("standby", elsewhere)
    login = {"login_port": standby.port, "login_unix_socket": standby.socket}
    path = standby.file_of("rewritten", "Odd DB")
    standby.warm(path)
    [saved] = as_postgres(task("residency_snapshot", name="there", **login))
    assert not saved.get("failed") and saved["snapshot"]["in_recovery"], saved["msg"]
    assert "public.rewritten" in relations(saved)
    elsewhere.sql("VACUUM FULL rewritten", "Odd DB")
    elsewhere.sql("CHECKPOINT")
    end = time.monotonic() + 60
    while standby.file_of("rewritten", "Odd DB") == path and time.monotonic() < end:
        time.sleep(0.1)
    [result] = as_postgres(task("residency_restore", name="there", relations=["rewritten"], rewritten="load", min_residency=LOOSE, **login))
    standby.stop()
    assert not result.get("failed"), result["msg"]
    assert (result["gone"], result["rewritten"]) == (0, 0) and result["wanted"] > 400
    assert tables(result) == {"public.rewritten"}


def test_a_snapshot_that_has_lost_its_names(elsewhere, as_postgres, login):
    elsewhere.sql("SELECT FROM residency_snapshot('nameless')")
    [path] = glob.glob(os.path.join(elsewhere.data, "pg_residency", "nameless@*.names"))
    os.unlink(path)
    [result] = as_postgres(task("residency_restore", name="nameless", relations=["part_1"], min_residency=LOOSE, **login))
    assert not result.get("failed"), result["msg"]
    assert tables(result) == {"public.part_1"}
    assert result["warnings"] == [
        "Snapshot %s has lost its names: relations are selected by their current names."
        " Left out, as their relations have no names: databases closed (the database does not accept connections)." % result["snapshot"]
    ]


def test_a_database_that_was_dropped(elsewhere, as_postgres, login):
    """It keeps the name it had, and is not asked: that would be an error in the log."""
    elsewhere.sql("CREATE DATABASE short")
    elsewhere.sql("CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 800)", "short")
    oid = elsewhere.sql("SELECT oid FROM pg_database WHERE datname = 'short'")
    elsewhere.sql("SELECT FROM residency_snapshot('dropped')")
    elsewhere.sql("DROP DATABASE short")
    [result] = as_postgres(task("residency_restore", name="dropped", databases=["short"], **login))
    assert result["failed"] and "is gone (100 %): table public.t in short (" in result["msg"] and "DAMON" not in result["msg"], result["msg"]
    with open(elsewhere.log) as file:
        assert 'database %s does not exist' % oid not in file.read()


def test_with_the_server_stopped(elsewhere, as_postgres, login):
    """From the file beside the newest snapshot."""
    elsewhere.sql("SELECT FROM residency_snapshot('last')")
    elsewhere.stop()
    try:
        [info] = as_postgres(task("residency_info", subset=["relations"], limit=1000, data_directory=elsewhere.data))
    finally:
        elsewhere.start()
    assert not info.get("failed"), info["msg"]
    found = relations(info)
    assert {'"Odd Schema"."T, ""x"" y"', "public.doc", "public.doc_pkey"} <= set(found)
    assert found["public.doc_pkey"]["belongs_to"] == "public.doc"


def test_progress_is_the_servers(elsewhere, as_postgres, login):
    """What monitoring reads in the view is what Ansible shows."""
    path = elsewhere.file_of('"Odd Schema"."T, ""x"" y"', "Odd DB")
    elsewhere.warm(path)
    elsewhere.sql("SELECT FROM residency_snapshot('progress')")
    elsewhere.cool(path)
    started, running = as_postgres(
        task("residency_restore", name="progress", relations=["T, *"], rate="2MB", wait=False, **login),
        task("residency_info", subset=["jobs"], limit=1, **login),
    )
    [job] = running["jobs"]
    assert job["job"] == started["job"]
    assert job["wanted"] == started["wanted"], "from the beginning"
    assert job["settled"] < job["wanted"]
    [done] = as_postgres(task("residency_restore", job=started["job"], min_residency=LOOSE, **login))
    assert (done["state"], done["progress"]) == ("done", 100.0)
    row = elsewhere.sql(
        "SELECT wanted, settled, resident + over_budget + gone + failed, (SELECT sum(wanted) FROM residency_job_relations(job)),"
        " (SELECT sum(settled) FROM residency_job_relations(job)) FROM residency_jobs WHERE job = %d" % started["job"]
    )
    assert row == "|".join([str(job["wanted"])] * 5)
