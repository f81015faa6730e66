# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The owner of a database, and who may create objects in public, against every module: nothing of theirs runs with
other rights than their own, and nothing that they have set changes a result.
"""

from __future__ import annotations

import os

import hostile
import pytest
from cluster import MAJOR, heart, run, thorough
from conftest import PASSWORD
from playbook import documented, environments, keys, task

ENVIRONMENTS = environments("host-%s-*" % os.environ.get("PGFLEET_HOST_PYTHON", "3.11"))


def login(shop, database="postgres"):
    return {"login_port": shop.port, "login_unix_socket": shop.socket, "login_db": database}


def tasks(shop, database):
    """Every module that logs in, in check mode and really."""
    there = login(shop, database)
    everything = ["databases", "relations", "segments", "snapshots", "jobs", "capabilities"]
    both = [
        ("residency_extension", {"databases": ["postgres", "shop"]}),
        ("residency_snapshot", {"name": "trap"}),
        ("residency_restore", {"name": "trap", "min_residency": 0}),
        ("residency_restore", {"name": "trap", "relations": ["*goods*"], "shared_buffers": True, "min_residency": 0}),
        ("residency_restore", {"name": "whole", "fallback_relations": ["*goods*"], "min_residency": 0}),
        ("residency_info", {"subset": everything}),
        ("residency_info", {"subset": ["relations"], "databases": ["sh*"], "relations": ["goods"]}),
        ("residency_info", {"subset": ["buffers"], "relation": "goods", "databases": ["shop"]}),
        ("residency_info", {"snapshot": "trap", "min_residency": 0, "wait": True}),
        ("host_status", {"directory": "/tmp", "name": "db1"}),
        ("restart_info", {"directory": "/tmp", "name": "db1", "starts": True, "more": {"check": {
            "snapshot": "trap", "min_residency": 0, "min_free": "1MB", "max_lag": "64MB"}}}),
        ("cache_evict", {}),
        ("cache_evict", {"scope": "relation", "relations": ["goods"]}),
        ("query_io", {"query": "SELECT count(*) FROM goods WHERE good = 1"}),
        ("physical_io_info", {"duration": "1s", "settle": 0}),
        ("server_preload", {"parameters": {"autosave": "1min"}}),
        ("server_preload", {"state": "absent"}),
        ("server_query", {"query": "SELECT count(*) FROM pg_class WHERE oid = 1 AND relname LIKE 'x%'", "checkpoint": True}),
        # temp_tablespaces of the database are the tenant's word
        ("temp_buffer_cost", {"sizes": [128], "iterations": 1, "dependents": True, "tablespace": "pg_default"}),
        ("residency_snapshot", {"name": "trap", "state": "absent"}),
    ]
    return [task(module, check=check, diff=True, **dict(there, **arguments)) for module, arguments in both for check in (False, True)]


def test_the_trap_springs(shop):
    """A superuser's plain statements, with the search path that there is by default and the one that the tenant sets."""
    assert shop.sql("SELECT count(*) FROM pg_class WHERE oid = 1::int4", "shop") != ""
    assert any("operator (pg_catalog.oid, pg_catalog.int4) runs as postgres" in one for one in shop.trap.sprung())
    assert hostile.is_superuser(shop)
    shop.sql("ALTER ROLE tenant NOSUPERUSER")
    shop.sql("SET search_path = evil, pg_catalog; SELECT current_database(), sum(1), (SELECT count(*) FROM pg_extension)", "shop")
    found = " ".join(shop.trap.sprung())
    for name in ("function current_database()", "view pg_extension"):
        assert name in found
    assert hostile.is_superuser(shop)
    shop.sql("ALTER ROLE tenant NOSUPERUSER")
    assert shop.trap.sprung() == []


def info(results):
    """What does not change by itself."""
    for result in results:
        assert not result.get("failed"), result["msg"]
    return [
        (sorted(str(row["database"]) for row in result["databases"]), sorted({str(row["relation"]) for row in result["relations"]}),
         [(row["name"], row["generation"], row["taken_at"], row["wanted"]) for row in result["snapshots"]])
        for result in results
    ]


@thorough
def test_results_are_the_same_with_his_settings(shop, ansible, as_postgres, nothing_sprung, request):
    shop.sql("SELECT FROM residency_snapshot('same')")
    as_postgres(task("residency_extension", databases=["shop"], **login(shop)))
    by_password = {"login_host": "127.0.0.1", "login_port": shop.port, "login_user": "monitor", "login_password": PASSWORD}
    look = [
        task("residency_info", subset=["databases", "relations", "snapshots"], relations=["*goods*", "pg_class"], **there)
        for there in (login(shop), login(shop, "shop"), by_password, dict(by_password, login_db="shop"))
    ]
    before = info(as_postgres(*look))
    request.getfixturevalue("set_up")
    for environment in ENVIRONMENTS:
        after = as_postgres(*look, vars={"ansible_python_interpreter": environment + "/bin/python"})
        assert info(after) == before


@pytest.mark.parametrize("database", [pytest.param("postgres", marks=thorough), "shop"])
@pytest.mark.parametrize("environment", heart(ENVIRONMENTS, {ENVIRONMENTS[-1]}.__contains__), ids=os.path.basename)
def test_every_module(set_up, as_postgres, nothing_sprung, database, environment):
    work = tasks(set_up, database)
    set_up.warm(set_up.goods)
    results = as_postgres(*work, vars={"ansible_python_interpreter": environment + "/bin/python"})
    for one, result in zip(work, results):
        module = next(iter(one)).rpartition(".")[2]
        if module == "query_io":
            assert result["msg"] == hostile.REFUSED % (database, "tenant")
        else:
            assert not result.get("failed"), (module, result["msg"])
        assert "problem" not in result.get("answer", {}), result
        assert keys(result) == documented(module)


# what makes somebody a stranger, undone by the second; and whom the refusal names
STRANGERS = [
    ("GRANT CREATE ON DATABASE fair TO someone", "REVOKE CREATE ON DATABASE fair FROM someone", "someone"),
    ("GRANT CREATE ON SCHEMA public TO someone", "REVOKE CREATE ON SCHEMA public FROM someone", "someone"),
    ("GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "PUBLIC"),
    ("ALTER DATABASE fair OWNER TO someone", "ALTER DATABASE fair OWNER TO postgres", "someone"),
    # ts_rewrite() runs the text that it is given
    ("CREATE OPERATOR public.= (LEFTARG = tsquery, RIGHTARG = text, FUNCTION = pg_catalog.ts_rewrite);"
     "ALTER OPERATOR public.= (tsquery, text) OWNER TO someone", "DROP OPERATOR public.= (tsquery, text)", "someone"),
    ("CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION public.f() OWNER TO report",
     "DROP FUNCTION public.f()", "report"),
    ("CREATE TABLE public.t (); ALTER TABLE public.t OWNER TO someone", "DROP TABLE public.t", "someone"),
    ("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; GRANT USAGE ON FOREIGN DATA WRAPPER w TO someone;"
     "ALTER SERVER s OWNER TO someone", "DROP FOREIGN DATA WRAPPER w CASCADE", "someone"),
]


@pytest.fixture
def fair(shop):
    """A database in which the tenant has nothing, and two roles."""
    shop.sql("CREATE ROLE someone; CREATE ROLE report IN ROLE pg_read_all_data; CREATE DATABASE fair")
    yield
    shop.sql("DROP DATABASE fair WITH (FORCE)")
    shop.sql("DROP ROLE someone; DROP ROLE report")


@thorough
def test_who_is_a_stranger(shop, fair, as_postgres):
    """Not what is there counts, which could change during the query, but who may put it there."""
    query = dict(login(shop, "fair"), query="SELECT 1")
    [plain] = as_postgres(task("query_io", **query))
    assert not plain.get("failed"), plain["msg"]
    for make, undo, who in STRANGERS:
        shop.sql(make, "fair")
        refused, checked, trusted = as_postgres(
            task("query_io", **query), task("query_io", check=True, **query), task("query_io", check=True, trusted_roles=[who], **query)
        )
        shop.sql(undo, "fair")
        assert refused["msg"] == checked["msg"] == hostile.REFUSED % ("fair", who), make
        assert not trusted.get("failed"), trusted["msg"]
    [unknown] = as_postgres(task("query_io", trusted_roles=["Someone"], **query))
    assert unknown["msg"] == "Role Someone does not exist: correct trusted_roles."


@thorough
@pytest.mark.skipif(MAJOR < 17, reason="has neither transaction_timeout nor triggers on login")
def test_a_login_that_takes_longer_than_a_transaction_may(shop, as_postgres):
    """As each may on a busy host: the server checks the login in a transaction."""
    shop.sql("CREATE DATABASE slow OWNER tenant")
    try:
        shop.sql("CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); END $$;"
                 "CREATE EVENT TRIGGER slow ON login EXECUTE FUNCTION slow(); SET SESSION AUTHORIZATION tenant;"
                 "ALTER DATABASE slow SET transaction_timeout = '1ms'", "slow")
        for environment in ENVIRONMENTS:
            [result] = as_postgres(
                task("server_query", query="SELECT current_database() AS name", **login(shop, "slow")),
                vars={"ansible_python_interpreter": environment + "/bin/python"},
            )
            assert not result.get("failed"), result["msg"]
    finally:
        shop.sql("DROP DATABASE slow")


@thorough
def test_a_query_of_a_role_without_such_rights(set_up, as_postgres):
    """It runs what it runs each day: in the path that its database has, with its own rights."""
    set_up.trap.sprung()
    there = {"login_host": "127.0.0.1", "login_port": set_up.port, "login_user": "monitor", "login_password": PASSWORD, "login_db": "shop"}
    [result] = as_postgres(task("query_io", query="SELECT good FROM goods WHERE good = 1::int8", **there))
    assert not result.get("failed"), result["msg"]
    assert {one.rpartition(" ")[2] for one in set_up.trap.sprung()} == {"monitor"}
    assert not hostile.is_superuser(set_up)


@thorough
def test_an_encoding_that_is_none(shop, as_postgres):
    """Names that are not ASCII, for a client that would be told bytes."""
    shop.sql('CREATE DATABASE "Größe"; ALTER DATABASE "Größe" SET client_encoding = SQL_ASCII; ALTER ROLE postgres SET client_encoding = SQL_ASCII')
    try:
        shop.sql('CREATE TABLE "Länge" AS SELECT 1 AS one', "Größe")
        for environment in ENVIRONMENTS:
            made, seen = as_postgres(
                task("residency_extension", databases=["Größe"], **login(shop)),
                task("residency_info", subset=["relations"], databases=["Größe"], relations=["Länge"], **login(shop, "Größe")),
                vars={"ansible_python_interpreter": environment + "/bin/python"},
            )
            assert not made.get("failed") and not seen.get("failed"), (made["msg"], seen["msg"])
            assert [(row["database"], row["relation"]) for row in seen["relations"]] == [("Größe", 'public."Länge"')]
    finally:
        shop.sql("ALTER ROLE postgres RESET client_encoding")
        shop.sql('DROP DATABASE "Größe"')


@thorough
def test_an_extension_in_a_schema_of_his(shop, as_postgres):
    """He could drop it with the extension, and put other objects in its place while a module is at work."""
    shop.sql("CREATE DATABASE stall OWNER tenant")
    try:
        shop.sql("CREATE EXTENSION pg_residency", "stall")
        there = login(shop, "stall")
        refused, drop, would, moved, after = as_postgres(
            task("residency_info", **there),
            task("residency_extension", check=True, databases=["stall"], state="absent", **login(shop)),
            task("residency_extension", check=True, databases=["stall"], **login(shop)),
            task("residency_extension", databases=["stall"], **login(shop)),
            task("residency_info", subset=["jobs", "relations"], **there),
        )
        assert refused["msg"].startswith("In database stall the extension is in schema public, owned by tenant, ")
        assert (drop["changed"], would["changed"], moved["changed"]) == (True, True, True), moved["msg"]
        assert moved["databases"][0]["schema"] == "residency"
        assert not after.get("failed"), after["msg"]
        assert "ERROR:  must be owner of schema residency" in run(
            shop.bin + "/psql", "-XAtq", "-h", shop.socket, "-p", str(shop.port), "-d", "stall", "-c",
            "SET SESSION AUTHORIZATION tenant; DROP SCHEMA residency CASCADE", user="postgres", check=False,
        )
    finally:
        shop.sql("DROP DATABASE stall")
