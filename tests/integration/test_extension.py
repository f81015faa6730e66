# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""residency_extension and server_query: what an operator met in the first hour with them."""

from __future__ import annotations

import pytest
from conftest import PASSWORD
from playbook import task

EXTENSION, QUERY = "residency_extension", "server_query"


@pytest.fixture
def other(cluster):
    cluster.sql("CREATE DATABASE other")
    yield "other"
    cluster.sql("DROP DATABASE other WITH (FORCE)")


def test_a_schema_without_usage(cluster, as_postgres, login, by_password, other):
    """Where a superuser has made it, the roles that use the extension get in, and nobody else."""
    cluster.sql("CREATE SCHEMA closed", other)
    first, again, used = as_postgres(
        *2 * [task(EXTENSION, databases=[other], schema="closed", **login)],
        task("residency_info", **by_password("monitor", login_db=other)),
    )
    assert "GRANT USAGE ON SCHEMA closed TO pg_monitor, residency_admin" in first["queries"]
    assert (first["changed"], again["changed"], again["queries"]) == (True, False, [])
    assert not used.get("failed"), used["msg"]
    assert cluster.sql("SELECT has_schema_privilege('app', 'closed', 'USAGE')", other) == "f"


def test_purge_takes_back_what_install_gave(machine, cluster, as_postgres):
    """In a schema that was there before, and with rights that others have granted."""
    one = machine("purged")
    login = {"login_port": one.port, "login_unix_socket": one.socket}
    one.sql("CREATE SCHEMA ours; CREATE DATABASE shop")
    one.sql("CREATE SCHEMA ours", "shop")
    installed = task(EXTENSION, databases=["postgres", "shop"], schema="ours", **login)
    purged = task(EXTENSION, databases=["postgres", "shop"], state="absent", purge=True, **login)
    try:
        dummy, removed, again = as_postgres(installed, purged, purged)
        assert removed["changed"] and not removed.get("failed") and not removed.get("warnings"), removed
        assert not again["changed"] and one.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'residency_admin'") == "0", again
        as_postgres(installed)
        one.sql("CREATE TABLE own (); ALTER TABLE own OWNER TO residency_admin", "shop")
        [removed] = as_postgres(purged)
        assert removed["changed"] and not removed.get("failed") and "The role residency_admin stays: PostgreSQL says: role" in removed["warnings"][0], removed
        assert one.sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_residency'", "shop") == "0"
    finally:
        one.stop()


def test_an_event_trigger_whose_function_names_no_schema(cluster, as_postgres, login, other):
    """It fails with our search path: the message has where, and a way round."""
    cluster.sql("""
        CREATE TABLE ddl_log (tag text);
        CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ddl_log VALUES (tg_tag); END $$;
        CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl()""", other)
    [failed] = as_postgres(task(EXTENSION, databases=[other], **login))
    assert 'relation "ddl_log" does not exist (' in failed["msg"] and "PL/pgSQL function log_ddl() line 1" in failed["msg"], failed["msg"]
    assert failed["msg"].endswith("or run ALTER FUNCTION ... SET search_path.") and not failed["changed"], failed["msg"]
    cluster.sql("ALTER FUNCTION log_ddl() SET search_path = public", other)
    [done] = as_postgres(task(EXTENSION, databases=[other], **login))
    assert done["changed"] and not done.get("failed"), done["msg"]


def test_a_database_that_is_left_over(cluster, as_postgres, login, other):
    """An interrupted DROP DATABASE leaves one that takes no connections. All databases are those that do."""
    cluster.sql("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'other'")
    [result] = as_postgres(task(EXTENSION, databases=["all"], check=True, **login))
    assert not result.get("failed"), result["msg"]
    assert "other" not in [row["database"] for row in result["databases"]]


def test_a_name_that_is_taken(cluster, as_postgres, login, other):
    """Nothing is changed, and nothing is called changed."""
    cluster.sql("CREATE VIEW residency_relations AS SELECT 1", other)
    failed, moved = as_postgres(
        task(EXTENSION, databases=[other], **login), task(EXTENSION, databases=[other], schema="residency", **login)
    )
    assert failed["msg"] == (
        'In 1 of 1 databases: other: PostgreSQL says: relation "residency_relations" already exists. Set schema to one without such names,'
        " such as residency."
    )
    assert (failed["changed"], failed["queries"], failed["databases"][0]["changed"], failed.get("warnings", [])) == (False, [], False, [])
    assert moved["changed"] and not moved.get("failed"), moved["msg"]


def test_somebody_who_is_no_superuser(cluster, as_postgres, by_password, other):
    cluster.sql("CREATE EXTENSION pg_residency", other)
    [failed] = as_postgres(task(EXTENSION, databases=[other], state="absent", **by_password("operator")))
    assert failed["msg"].endswith("must be owner of extension pg_residency. Log in as the owner, or as a superuser.")
    assert (failed["changed"], failed["queries"]) == (False, [])


def test_values_and_parameters_of_a_query(as_postgres, login):
    named, percent, late, fine = as_postgres(
        task(QUERY, query="SELECT %(a)s", named_args={"b": 1}, **login),
        task(QUERY, query="SELECT 'x' LIKE 'a%', %(a)s", named_args={"a": 1}, **login),
        task(QUERY, query="SELECT '99999-01-01'::date", **login),
        task(QUERY, query="SELECT 'x'::bytea AS a, 'nan'::float8 AS b, 'infinity'::float8 AS c", **login),
    )
    for failed in (named, percent, late):
        assert failed["failed"] and "The statement cannot be sent, or a value of its result has no type in Python: " in failed["msg"], failed["msg"]
    assert fine["query_result"] == [{"a": "\\x78", "b": "nan", "c": "inf"}]


def test_libpqs_environment_of_root(cluster, ansible):
    """Root works as the owner of the data directory, and logs in with what it was given."""
    cluster.sql("CREATE ROLE boss SUPERUSER LOGIN PASSWORD '%s'" % PASSWORD)
    try:
        login = {"login_host": "127.0.0.1", "login_port": cluster.port, "login_user": "boss", "data_directory": cluster.data}
        for password, failed in ((PASSWORD, False), ("wrong", True)):
            [result] = ansible.tasks([task("cache_evict", scope="cluster", **login)], environment={"PGPASSWORD": password})
            assert bool(result.get("failed")) is failed, result["msg"]
    finally:
        cluster.sql("DROP ROLE boss")
