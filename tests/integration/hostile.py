# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the owner of a database can plant in it, for every name that the collection's statements use.

Each planted object leaves a line in the server's log when it runs with other rights than its owner's, also in a transaction that is
read-only or rolled back, and makes its owner a superuser where it can.
"""

from __future__ import annotations

import glob
import os
import re

ROOT = os.path.join(os.path.dirname(__file__), "../..")
TENANT = "tenant"
SPRUNG = re.compile(r"LOG:  trap of tenant: (.*)")
REFUSED = (
    "In database %s, objects belong to %s or can be created by them, and a query can run such objects with the rights of the login role:"
    " log in as a role that has no more rights than the query needs, or name those whom you trust with all of them in trusted_roles (of the role"
    " cache_cold_test: cache_cold_test_trusted_roles)."
)

TRAP = """
CREATE FUNCTION %(schema)s.spring(what pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_user = 'tenant' THEN
        RETURN true;
    END IF;
    RAISE LOG 'trap of tenant: %% runs as %%', what, current_user;
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        ALTER ROLE tenant SUPERUSER;
    END IF;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN true;
END
$$;
CREATE TYPE %(schema)s.own AS ENUM ('own');
"""

PLANT = """
SET check_function_bodies = off;
SET search_path = pg_catalog, pg_temp;
CREATE TEMP TABLE words AS SELECT unnest(string_to_array('%(words)s', ' ')) AS word;
CREATE TEMP TABLE types AS SELECT name, 'pg_catalog.' || name AS type
FROM unnest('{oid,int2,int4,int8,text,name,bpchar,varchar,bool,numeric,float8,timestamptz,regclass,jsonb,pg_lsn}'::text[]) AS name;
CREATE TEMP TABLE arguments AS
SELECT type FROM types UNION SELECT 'pg_catalog.' || name || '[]' FROM unnest('{text,int4,int8,oid,name}'::text[]) AS name
UNION VALUES ('pg_catalog.anyelement'), ('pg_catalog.anyarray'), ('%(schema)s.own');
CREATE TEMP TABLE commands AS
WITH functions AS (
    SELECT DISTINCT proname::text AS name, prokind = 'a' AS aggregate FROM pg_proc JOIN words ON word = proname WHERE pronamespace = 'pg_catalog'::regnamespace
), operators AS (
    SELECT unnest('{=,<>,<,<=,>,>=,~,!~,~~,||,+,-,*,/,@>,->>}'::text[]) AS name
)
SELECT 1 AS step, format('CREATE FUNCTION %(schema)s.%%s(%%s, %%s) RETURNS %%s LANGUAGE plpgsql AS %%L', r.f, a.type, b.type, r.type,
              format('BEGIN PERFORM %(schema)s.spring(%%L); RETURN NULL; END', format('operator (%%s, %%s)', a.type, b.type))) AS command
FROM arguments a, arguments b, (VALUES ('compare', 'pg_catalog.bool'), ('combine', 'pg_catalog.text')) r (f, type)
UNION ALL
SELECT 2, format('CREATE OPERATOR %(schema)s.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = %(schema)s.%%s)', o.name, a.type, b.type,
              CASE WHEN o.name ~ '[<=>~@]' AND o.name <> '->>' THEN 'compare' ELSE 'combine' END)
FROM operators o, arguments a, arguments b
UNION ALL
SELECT 3, format('CREATE FUNCTION %(schema)s.%%I(%%s) RETURNS pg_catalog.text LANGUAGE plpgsql AS %%L', f.name, l.list,
              format('BEGIN PERFORM %(schema)s.spring(%%L); RETURN NULL; END', format('function %%s(%%s)', f.name, l.list)))
FROM functions f, (
    SELECT '' AS list UNION ALL SELECT type FROM arguments WHERE type !~ 'anyarray' UNION ALL SELECT 'VARIADIC pg_catalog.anyarray'
    UNION ALL SELECT 'pg_catalog.text, VARIADIC pg_catalog.anyarray' UNION ALL SELECT 'pg_catalog.text, VARIADIC pg_catalog.text[]'
    UNION ALL SELECT 'pg_catalog.text, pg_catalog.text, pg_catalog.bool' UNION ALL SELECT 'pg_catalog.text, pg_catalog.bool, pg_catalog.bool, pg_catalog.text'
    UNION ALL SELECT a.type || ', ' || b.type FROM types a, types b WHERE 'text' IN (a.name, b.name) OR 'name' IN (a.name, b.name) OR 'oid' IN (a.name, b.name)
) l WHERE NOT f.aggregate
UNION ALL
SELECT 3, format('CREATE AGGREGATE %(schema)s.%%I(%%s) (SFUNC = %(schema)s.combine, STYPE = pg_catalog.text)', f.name, a.type)
FROM functions f, arguments a WHERE f.aggregate AND a.type !~ 'any'
UNION ALL
-- the extension's, with arguments that fit a literal or a small number better; the same would only keep the extension from being created
SELECT 3, format('CREATE FUNCTION %(schema)s.%%I(%%s) RETURNS pg_catalog.text LANGUAGE plpgsql AS %%L', word, l.list,
              format('BEGIN PERFORM %(schema)s.spring(%%L); RETURN NULL; END', format('function %%s(%%s)', word, l.list)))
FROM words, (SELECT type AS list FROM types WHERE name IN ('int2', 'int8', 'name', 'varchar', 'numeric')
             UNION VALUES ('VARIADIC pg_catalog.anyarray'), ('pg_catalog.anyelement'), ('pg_catalog.text, pg_catalog.int2, pg_catalog.bool'),
                          ('pg_catalog.varchar, pg_catalog.int4, pg_catalog.bool'), ('pg_catalog.text, pg_catalog.text')) l
WHERE word ~ '^residency_' AND word NOT IN ('residency_admin', 'residency_extension', 'residency_info')
UNION ALL
SELECT 4, format('CREATE VIEW %(schema)s.%%1$I AS SELECT * FROM pg_catalog.%%1$I WHERE %(schema)s.spring(%%2$L)', relname, 'view ' || relname)
FROM pg_class JOIN words ON word = relname WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
UNION ALL
SELECT 5, format('CREATE DOMAIN %(schema)s.%%I AS %%s CHECK (%(schema)s.spring(%%L))', name, type, 'type ' || name) FROM types
UNION ALL
SELECT 5, format('CREATE FUNCTION %(schema)s.to_own(%%s) RETURNS %(schema)s.own LANGUAGE plpgsql AS %%L', type,
              format('BEGIN PERFORM %(schema)s.spring(%%L); RETURN NULL; END', 'cast from ' || type)) FROM types
UNION ALL
SELECT 6, format('CREATE CAST (%%s AS %(schema)s.own) WITH FUNCTION %(schema)s.to_own(%%s) AS IMPLICIT', type, type) FROM types
WHERE '%(casts)s' = 'yes';
DO $$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT command FROM commands ORDER BY step LOOP
        BEGIN
            EXECUTE one;
        EXCEPTION WHEN duplicate_function THEN
            NULL; -- an aggregate and a function of the same name
        END;
    END LOOP;
END
$$;
DROP TABLE words, types, arguments, commands;
"""

# Up to PostgreSQL 18 only superusers create event triggers; where he may, each command that changes the schema springs his.
EVENT_TRIGGER = """
CREATE FUNCTION %(schema)s.event() RETURNS pg_catalog.event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM %(schema)s.spring('event trigger'); END $$;
DO $$
BEGIN
    CREATE EVENT TRIGGER "tenant's, in %(schema)s" ON ddl_command_start EXECUTE FUNCTION %(schema)s.event();
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;
"""

# Tables and views of the tenant's own, which a superuser's query may name
TABLES = """
CREATE TABLE public.goods AS SELECT i AS good, repeat('x', 1000) AS name FROM generate_series(1, 4000) AS i;
CREATE TABLE public.residency AS SELECT 1 AS one;
ALTER TABLE public.goods ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.goods FORCE ROW LEVEL SECURITY;
CREATE POLICY trap ON public.goods USING (evil.spring('policy'));
CREATE FUNCTION public.known(pg_catalog.int4) RETURNS pg_catalog.int4 LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil.spring('index'); RETURN $1; END $$;
CREATE INDEX expensive ON public.goods (good) WHERE public.known(1) OPERATOR(pg_catalog.=) 1;
"""

# What ALTER DATABASE, and of his own role ALTER ROLE, let him set
SETTINGS = {
    "search_path": "evil, public, pg_catalog",
    "role": "tenant",
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "exit_on_error": "on",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "client_encoding": "SQL_ASCII",
    "client_min_messages": "debug1",
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "TimeZone": "X+30",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "row_security": "off",
    "local_preload_libraries": "nothing",
    "default_table_access_method": "nothing",
    "default_tablespace": "nothing",
    "temp_tablespaces": "nothing",
    "check_function_bodies": "off",
    "synchronous_commit": "remote_apply",
}
LATER = {"transaction_timeout": (17, "1ms"), "restrict_nonsystem_relation_kind": (17, "view, foreign-table")}


def words():
    """Whatever could be a name in a statement of the collection."""
    found = {"smgr"}
    for pattern in ("plugins/module_utils/*.py", "roles/*/tasks/**/*.yml", "files/pg_residency/sql/*.sql"):
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                found.update(re.findall(r"\w+", file.read()))
    return " ".join(sorted(word for word in found if re.fullmatch(r"[a-z_][a-z_0-9]*", word)))


def plant(cluster, database, schema, casts=False):
    values = {"schema": schema, "words": words(), "casts": "yes" if casts else "no"}
    cluster.sql("SET SESSION AUTHORIZATION tenant;" + TRAP % values + PLANT % values + EVENT_TRIGGER % values, database)


def settings(major):
    return dict(SETTINGS, **{name: value for name, (since, value) in LATER.items() if major >= since})


def configure(cluster, target, major):
    for name, value in settings(major).items():
        by = "tenant" if target.startswith("DATABASE") else "postgres"
        # a list for a setting that is one
        text = value if name == "search_path" else "'%s'" % value
        cluster.sql("SET SESSION AUTHORIZATION %s; ALTER %s SET %s = %s" % (by, target, name, text))


def is_superuser(cluster):
    return cluster.sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'tenant'") == "t"


class Log:
    """What has run with other rights than its owner's since the last look."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.offset = 0
        self.sprung()

    def sprung(self):
        with open(self.cluster.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.offset)
            text = file.read()
            self.offset = file.tell()
        return sorted(set(SPRUNG.findall(text)))
