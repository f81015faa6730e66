-- A role that may create objects in the extension's schema gains no rights by that. A role plants operators, functions, aggregates,
-- casts, types and views for every name that the scripts use; each one that runs as superuser writes its name to a file.
\set VERBOSITY terse
SET client_min_messages = error;
SELECT current_database() AS regression \gset
CREATE ROLE regress_residency_tenant;
CREATE ROLE regress_residency_intruder;
CREATE DATABASE regress_residency_shop OWNER regress_residency_tenant;
\c regress_residency_shop
SET client_min_messages = error;

-- --- the trap ---

CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
CREATE FUNCTION trap.path() RETURNS text LANGUAGE sql
RETURN pg_catalog.concat(pg_catalog.current_setting('data_directory'), '/pg_stat_tmp/regress_residency_trap');
-- by a file, so that read-only and rolled back transactions leave it too
CREATE FUNCTION trap.spring(what pg_catalog.text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('trap.armed', true) OPERATOR(pg_catalog.=) 'on'
       AND (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) CURRENT_USER) THEN
        EXECUTE pg_catalog.format('COPY (SELECT %L) TO %L',
                                  pg_catalog.concat(pg_catalog.rtrim(pg_catalog.pg_read_file(trap.path()), pg_catalog.chr(10)), '{', what, '}'),
                                  trap.path());
    END IF;
END
$$;
-- returns the names of the objects that ran, and resets the trap
CREATE FUNCTION trap.sprung() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    names text := pg_read_file(trap.path());
BEGIN
    EXECUTE format('COPY (SELECT %L) TO %L', '', trap.path());
    RETURN QUERY SELECT DISTINCT m[1] FROM regexp_matches(names, '{([^}]*)}', 'g') m ORDER BY 1;
END
$$ SET search_path = pg_catalog, pg_temp;
DO $$ BEGIN EXECUTE format('COPY (SELECT %L) TO %L', '', trap.path()); END $$;

-- --- every name in use ---

CREATE VIEW trap.scripts AS
SELECT pg_read_file(c.setting || '/extension/' || f) AS script FROM pg_config c, pg_ls_dir(c.setting || '/extension') f
WHERE c.name = 'SHAREDIR' AND f ~ '^pg_residency--.*\.sql$';
CREATE VIEW trap.words AS
SELECT DISTINCT m[1] AS word FROM trap.scripts, regexp_matches(script, '\w+', 'g') m;
CREATE TABLE trap.own AS
SELECT DISTINCT m[1] AS name FROM trap.scripts, regexp_matches(script, 'CREATE FUNCTION (\w+)', 'g') m
-- with these functions, CREATE EXTENSION fails because of pgfincore
WHERE m[1] NOT IN ('pgfincore', 'pgfadvise', 'pgfadvise_loader', 'pgsysconf');
CREATE TABLE trap.functions AS
SELECT DISTINCT proname::text AS name, prokind = 'a' AS aggregate FROM pg_proc JOIN trap.words ON word = proname
WHERE pronamespace = 'pg_catalog'::regnamespace;
CREATE TABLE trap.relations AS
SELECT relname::text AS name FROM pg_class JOIN trap.words ON word = relname
WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND has_table_privilege('regress_residency_intruder', oid, 'SELECT');
-- argument types too
CREATE TABLE trap.types AS
SELECT typname::text AS name, format('pg_catalog.%I', typname) AS type FROM pg_type JOIN trap.words ON word = typname
WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b'
UNION
SELECT typname, format('pg_catalog.%I', typname) FROM pg_type
WHERE typname IN ('oid', 'int2', 'int4', 'int8', 'text', 'name', 'char', 'bpchar', 'varchar', 'bool', 'numeric', 'float8', 'regclass', 'regrole', 'regprocedure');
CREATE TABLE trap.arguments AS
SELECT type FROM trap.types UNION SELECT type || '[]' FROM trap.types WHERE name IN ('text', 'int4', 'oid', 'name', 'char')
UNION VALUES ('pg_catalog.anyelement'), ('pg_catalog.anyarray'), ('pg_catalog.aclitem[]');
-- also the operators behind SQL keywords
CREATE TABLE trap.operators AS
SELECT DISTINCT oprname::text AS name FROM pg_operator
WHERE oprkind = 'b' AND oprname IN (SELECT m[1] FROM trap.scripts, regexp_matches(script, '[-+*/<>=~!@#%^&|]+', 'g') m
                                    UNION VALUES ('='), ('<>'), ('<'), ('<='), ('>'), ('>='), ('~~'), ('||'));
GRANT SELECT ON ALL TABLES IN SCHEMA trap TO PUBLIC;
SELECT count(*) > 40 AS own FROM trap.own;
SELECT name FROM trap.operators ORDER BY name COLLATE "C";
SELECT (SELECT count(*) > 15 FROM trap.functions) AS functions, (SELECT count(*) > 5 FROM trap.relations) AS relations,
       (SELECT count(*) > 15 FROM trap.types) AS types;

-- --- planting ---

-- creates the objects in that schema, as the calling role
CREATE PROCEDURE trap.plant(schema text) LANGUAGE plpgsql AS $$
DECLARE
    command text;
BEGIN
    EXECUTE format('CREATE TYPE %I.own AS ENUM (''own'')', schema);
    FOR command IN
        WITH arguments AS (SELECT type FROM trap.arguments UNION ALL SELECT format('%I.own', schema))
        -- a function for each two operands, of either result, and an operator that calls it
        SELECT format('CREATE FUNCTION %1$I.%2$s(%3$s, %4$s) RETURNS %5$s LANGUAGE plpgsql AS %6$L', schema, r.f, a.type, b.type, r.type,
                      format('BEGIN PERFORM trap.spring(%L); RETURN NULL; END', format('operator (%s, %s)', a.type, b.type)))
        FROM arguments a, arguments b, (VALUES ('compare', 'pg_catalog.bool'), ('combine', 'pg_catalog.text')) r (f, type)
        UNION ALL
        SELECT format('CREATE OPERATOR %1$I.%2$s (LEFTARG = %3$s, RIGHTARG = %4$s, FUNCTION = %1$I.%5$s)', schema, o.name, a.type, b.type,
                      CASE WHEN o.name ~ '[<=>~@]' THEN 'compare' ELSE 'combine' END)
        FROM trap.operators o, arguments a, arguments b
        -- functions of the catalog, of none to two arguments and of any number
        UNION ALL
        SELECT format('CREATE FUNCTION %I.%I(%s) RETURNS pg_catalog.text LANGUAGE plpgsql AS %L', schema, f.name, l.list,
                      format('BEGIN PERFORM trap.spring(%L); RETURN NULL; END', format('function %s(%s)', f.name, l.list)))
        FROM trap.functions f,
             (SELECT '' AS list UNION ALL SELECT type FROM arguments WHERE type !~ 'anyarray' UNION ALL SELECT 'VARIADIC pg_catalog.anyarray'
              UNION ALL SELECT 'pg_catalog.text, VARIADIC pg_catalog.anyarray' UNION ALL SELECT 'pg_catalog.text, VARIADIC pg_catalog.text[]'
              UNION ALL SELECT a.type || ', ' || b.type FROM trap.types a, trap.types b
                        WHERE 'text' IN (a.name, b.name) OR 'name' IN (a.name, b.name) OR 'oid' IN (a.name, b.name)) l
        WHERE NOT f.aggregate
        UNION ALL
        SELECT format('CREATE AGGREGATE %1$I.%2$I(%3$s) (SFUNC = %1$I.combine, STYPE = pg_catalog.text)', schema, f.name, a.type)
        FROM trap.functions f, arguments a WHERE f.aggregate AND a.type !~ 'any'
        -- the extension's own functions, with other arguments; the same ones would make CREATE EXTENSION fail
        UNION ALL
        SELECT format('CREATE FUNCTION %I.%I(%s) RETURNS pg_catalog.text LANGUAGE plpgsql AS %L', schema, f.name, l.list,
                      format('BEGIN PERFORM trap.spring(%L); RETURN NULL; END', format('function %s(%s)', f.name, l.list)))
        FROM trap.own f, (SELECT type AS list FROM trap.types WHERE name NOT IN ('oid', 'bool', 'regclass', 'text', 'int4', 'varbit')
                          UNION ALL SELECT 'VARIADIC pg_catalog.anyarray' UNION ALL SELECT 'VARIADIC pg_catalog.text[]'
                          UNION ALL SELECT 'pg_catalog.anyelement') l
        -- relations of the catalog
        UNION ALL
        SELECT format('CREATE VIEW %1$I.%2$I AS SELECT * FROM pg_catalog.%2$I WHERE %1$I.compare(%3$L::pg_catalog.name, NULL::pg_catalog.name) IS NULL',
                      schema, r.name, r.name)
        FROM trap.relations r
        -- casts from and to a type of the role
        UNION ALL
        SELECT format('CREATE FUNCTION %1$I.to_own(%2$s) RETURNS %1$I.own LANGUAGE plpgsql AS %3$L', schema, t.type,
                      format('BEGIN PERFORM trap.spring(%L); RETURN NULL; END', 'cast from ' || t.type)) FROM trap.types t
        UNION ALL
        SELECT format('CREATE CAST (%2$s AS %1$I.own) WITH FUNCTION %1$I.to_own(%2$s) AS IMPLICIT', schema, t.type) FROM trap.types t
        UNION ALL
        SELECT format('CREATE CAST (%1$I.own AS %2$s) WITH INOUT AS IMPLICIT', schema, t.type) FROM trap.types t
        -- types of the catalog
        UNION ALL
        SELECT format('CREATE DOMAIN %1$I.%2$I AS %3$s CHECK (%1$I.compare(VALUE, NULL::pg_catalog.text) IS NULL)', schema, t.name, t.type)
        FROM trap.types t
    LOOP
        EXECUTE command;
    END LOOP;
END
$$ SET search_path = pg_catalog, pg_temp SET check_function_bodies = off;

-- the owner of a database, in its schema public; and a role with CREATE on a schema
CREATE SCHEMA planted;
GRANT CREATE, USAGE ON SCHEMA planted TO regress_residency_intruder;
SET SESSION AUTHORIZATION regress_residency_tenant;
CALL trap.plant('public');
ALTER DATABASE regress_residency_shop SET search_path = public, pg_catalog;
SET SESSION AUTHORIZATION regress_residency_intruder;
CALL trap.plant('planted');
RESET SESSION AUTHORIZATION;
ALTER DATABASE regress_residency_shop SET trap.armed = 'on';
SET search_path = pg_catalog, pg_temp;
SELECT n.nspname AS schema, pg_get_userbyid(o.oprowner) AS owner, count(DISTINCT oprname) AS operators, count(*) > 5000 AS many
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE o.oid >= 16384 GROUP BY 1, 2 ORDER BY 1;

-- from here on as a superuser who connects from another database
\c
SET client_min_messages = error;
SHOW search_path;

-- --- the trap springs ---

SELECT 1::pg_catalog.oid = 1::pg_catalog.int4 AS planted;
SELECT trap.sprung();
SET search_path = planted, pg_catalog;
SELECT current_database(), sum(1::pg_catalog.int8), 'a'::text, (SELECT pg_catalog.count(*) FROM pg_class) IS NOT NULL AS classes;
SELECT 1::pg_catalog.int4::own;
SET search_path = pg_catalog, pg_temp;
SELECT trap.sprung();
-- --- creating the extension and using it run none of it ---

CREATE TABLE trap.found (schema text, moment text, name text);
CREATE TABLE trap.called (schema text, call text, error text);
-- a call of each function, in an order in which there is something to do
CREATE VIEW trap.calls AS
SELECT row_number() OVER (ORDER BY p.proname <> 'residency_snapshot', p.proname = 'residency_drop_snapshot', p.oid::regprocedure::text COLLATE "C") AS number,
       format('SELECT pg_catalog.count(*) FROM %I.%I(%s)', n.nspname, p.proname,
              (SELECT string_agg(CASE t WHEN 'regclass'::regtype THEN CASE WHEN p.proname ~ 'temp|local' THEN '''pg_temp.rows''' ELSE '''pg_catalog.pg_class''' END || '::pg_catalog.regclass'
                                        WHEN 'bigint'::regtype THEN '7::pg_catalog.int8'
                                        WHEN 'text'::regtype THEN CASE WHEN p.proname ~ '^pgf' THEN '''main''' ELSE '''hostile''' END || '::pg_catalog.text'
                                        WHEN 'varbit'::regtype THEN 'B''1''::pg_catalog.varbit'
                                        WHEN 'jsonb'::regtype THEN '''{}''::pg_catalog.jsonb'
                                        WHEN 'boolean'::regtype THEN 'true::pg_catalog.bool'
                                        WHEN 'integer'::regtype THEN CASE WHEN p.proname = 'pgfadvise' THEN '30' WHEN p.proname ~ '^pgf' THEN '0' ELSE '1' END || '::pg_catalog.int4'
                                        ELSE format('NULL::pg_catalog.%s', t::regtype) END, ', ' ORDER BY o)
               FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, o))) AS call
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
     JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'pg_residency';

CREATE PROCEDURE trap.go(schema text) LANGUAGE plpgsql AS $$
DECLARE
    calls text[];
    i int := 1;
    busy boolean;
BEGIN
    EXECUTE format('CREATE EXTENSION pg_residency SCHEMA %I', schema);
    INSERT INTO trap.found SELECT schema, 'CREATE EXTENSION', s FROM trap.sprung() s;
    calls := (SELECT array_agg(c.call ORDER BY c.number) FROM trap.calls c) || format('SELECT pg_catalog.count(*) FROM %I.residency_relations', schema) || format('SELECT pg_catalog.count(*) FROM %I.residency_server', schema) || format('SELECT pg_catalog.count(*) FROM %I.residency_jobs', schema);
    WHILE i <= cardinality(calls) LOOP
        BEGIN
            PERFORM set_config('search_path', format('%I, pg_catalog, pg_temp', schema), true);
            EXECUTE calls[i];
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            INSERT INTO trap.called VALUES (schema, calls[i], NULL);
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO trap.called VALUES (schema, calls[i], SQLSTATE);
        END;
        INSERT INTO trap.found SELECT schema, calls[i], s FROM trap.sprung() s;
        i := i + 1;
    END LOOP;
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.residency_jobs WHERE state IN (''starting'', ''waiting'', ''running''))', schema) INTO busy;
        EXIT WHEN NOT busy;
        PERFORM pg_sleep(0.05);
    END LOOP;
    DROP EXTENSION pg_residency;
END
$$;
CREATE TEMPORARY TABLE rows AS VALUES (1);
CALL trap.go('planted');
CALL trap.go('public');
SELECT schema, count(*) > 45 AS calls FROM trap.called GROUP BY 1 ORDER BY 1;
-- job 1 may not exist
SELECT call, error, count(*) FROM trap.called WHERE error <> '42704' GROUP BY 1, 2 ORDER BY 1;
SELECT * FROM trap.found;

\c :regression
DROP DATABASE regress_residency_shop;
DROP ROLE regress_residency_intruder, regress_residency_tenant;
