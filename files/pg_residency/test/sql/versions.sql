-- An update from each version gives the same objects as a new installation; a library that does not fit raises an error.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_residency_reader;
CREATE VIEW members AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'pg_residency' AND d.deptype = 'e';
-- all catalog contents of the extension, except numbers
CREATE VIEW facts AS
SELECT name, 'comment' AS what, obj_description(objid, classid::regclass::name) AS value FROM members
UNION ALL
SELECT name, 'definition', CASE classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(objid) ELSE pg_get_viewdef(objid) END FROM members
UNION ALL
SELECT m.name, 'right', a::text FROM members m, LATERAL unnest((SELECT proacl FROM pg_proc WHERE oid = m.objid AND m.classid = 'pg_proc'::regclass
                                                            UNION ALL SELECT relacl FROM pg_class WHERE oid = m.objid AND m.classid = 'pg_class'::regclass)) a
UNION ALL
SELECT m.name, 'right at first', a::text FROM members m JOIN pg_init_privs i ON i.classoid = m.classid AND i.objoid = m.objid, LATERAL unnest(i.initprivs) a
UNION ALL
SELECT m.name, 'column', concat_ws(' ', a.attnum, a.attname, format_type(a.atttypid, a.atttypmod))
FROM members m JOIN pg_attribute a ON a.attrelid = m.objid AND m.classid = 'pg_class'::regclass AND a.attnum > 0
UNION ALL
SELECT extname, 'extension', concat_ws(' ', extversion, extrelocatable, extnamespace::regnamespace, extconfig) FROM pg_extension WHERE extname = 'pg_residency';

CREATE EXTENSION pg_residency;
CREATE TABLE made_anew AS SELECT * FROM facts;
SELECT count(*) > 100 AS many, count(DISTINCT what) AS kinds, count(DISTINCT name) = (SELECT count(*) + 1 FROM members) AS of_each FROM made_anew;
DROP EXTENSION pg_residency;

CREATE TABLE updated (since text, LIKE made_anew);
DO $$
DECLARE
    older text;
BEGIN
    FOR older IN SELECT v.version FROM pg_available_extension_versions v JOIN pg_available_extensions e USING (name)
                 WHERE name = 'pg_residency' AND v.version <> e.default_version
    LOOP
        EXECUTE format('CREATE EXTENSION pg_residency VERSION %L', older);
        ALTER EXTENSION pg_residency UPDATE;
        INSERT INTO updated SELECT older, * FROM facts;
        DROP EXTENSION pg_residency;
    END LOOP;
END
$$;
SELECT DISTINCT since FROM updated ORDER BY since;
SELECT since, name, what, value FROM updated
EXCEPT ALL SELECT since, m.name, m.what, m.value FROM made_anew m, (SELECT DISTINCT since FROM updated) u;
SELECT since, m.name, m.what, m.value FROM made_anew m, (SELECT DISTINCT since FROM updated) u
EXCEPT ALL SELECT since, name, what, value FROM updated;

-- the SQL of former versions with this library: compatible functions work, others raise an error
CREATE SCHEMA "Else Where";
CREATE EXTENSION pg_residency SCHEMA "Else Where" VERSION '0.1.0';
\set VERBOSITY default
SELECT count(*) FROM "Else Where".residency_jobs;
SELECT * FROM "Else Where".residency_snapshot('of_a_former_version', 1);
SELECT "Else Where".residency_names('of_a_former_version');
SELECT count(*) > 0 AS sees FROM "Else Where".residency_segments();

-- the new SQL with a former library, which a session may still use (the context differs from 18 on)
\set SHOW_CONTEXT never
CREATE OR REPLACE FUNCTION "Else Where".residency_version() RETURNS text LANGUAGE SQL AS $$SELECT '0.1.0'$$;
ALTER EXTENSION pg_residency UPDATE;
CREATE OR REPLACE FUNCTION "Else Where".residency_version() RETURNS text AS '$libdir/pg_residency' LANGUAGE C STABLE PARALLEL SAFE;

-- a dependent object is named
CREATE VIEW mine AS SELECT name FROM "Else Where".residency_snapshots();
ALTER EXTENSION pg_residency UPDATE;
DROP VIEW mine;
ALTER EXTENSION pg_residency UPDATE;
DROP EXTENSION pg_residency;

-- Users' changes are kept: rights, which pg_dump still dumps, and views.
GRANT USAGE ON SCHEMA "Else Where" TO regress_residency_reader;
CREATE TABLE kept (since text, object text, monitor boolean, reader boolean, may_grant boolean, nobody boolean, at_first boolean);
CREATE TABLE sees (since text, jobs bigint, snapshots boolean);
GRANT INSERT ON sees TO regress_residency_reader;
CREATE ROLE regress_residency_nobody;
SET search_path = "Else Where", public;
DO $$
DECLARE
    since text;
BEGIN
    FOREACH since IN ARRAY '{0.1.0,0.2.0}'::text[]
    LOOP
        EXECUTE format('CREATE EXTENSION pg_residency SCHEMA "Else Where" VERSION %L', since);
        GRANT EXECUTE ON FUNCTION residency_job_list(), residency_snapshot(text, int), residency_snapshots() TO regress_residency_reader;
        GRANT EXECUTE ON FUNCTION residency_job_segments(int), residency_snapshot_segments(text) TO regress_residency_reader WITH GRANT OPTION;
        REVOKE EXECUTE ON FUNCTION residency_job_segments(int), residency_snapshots() FROM pg_monitor;
        GRANT EXECUTE ON FUNCTION residency_snapshot_segments(text) TO PUBLIC;
        GRANT SELECT ON residency_jobs, residency_relations TO regress_residency_reader;
        REVOKE SELECT ON residency_relations FROM pg_monitor;
        CREATE VIEW running AS SELECT job FROM residency_jobs WHERE state = 'running';
        CREATE VIEW large AS SELECT relation FROM residency_relations WHERE blocks > 0;
        IF since <> '0.1.0' THEN
            GRANT EXECUTE ON FUNCTION pgfadvise_willneed(regclass) TO regress_residency_reader;
            CREATE VIEW cached AS SELECT segment, pages_mem FROM pgfincore('pg_class', true);
        END IF;

        ALTER EXTENSION pg_residency UPDATE;
        INSERT INTO kept
        SELECT since, p.oid::regprocedure::text, has_function_privilege('pg_monitor', p.oid, 'EXECUTE'),
               has_function_privilege('regress_residency_reader', p.oid, 'EXECUTE'),
               has_function_privilege('regress_residency_reader', p.oid, 'EXECUTE WITH GRANT OPTION'),
               has_function_privilege('regress_residency_nobody', p.oid, 'EXECUTE'),
               i.initprivs::text ~ 'reader' OR EXISTS (SELECT FROM pg_shdepend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'i'
                                                       AND d.refobjid = 'regress_residency_reader'::regrole)
        FROM pg_proc p LEFT JOIN pg_init_privs i ON i.classoid = 'pg_proc'::regclass AND i.objoid = p.oid
        WHERE p.proname IN ('residency_job_list', 'residency_job_segments', 'residency_snapshot', 'residency_snapshots', 'residency_snapshot_segments',
                            'residency_segments', 'pgfadvise_willneed')
        UNION ALL
        SELECT since, v.name, has_table_privilege('pg_monitor', v.name, 'SELECT'), has_table_privilege('regress_residency_reader', v.name, 'SELECT'),
               NULL, NULL, NULL
        FROM (VALUES ('residency_jobs'), ('residency_relations')) v (name);
        SET LOCAL ROLE regress_residency_reader;
        INSERT INTO sees SELECT since, (SELECT count(*) - count(DISTINCT job) FROM residency_jobs),
                                (SELECT count(*) >= 0 FROM residency_snapshots());
        RESET ROLE;
        PERFORM FROM running, large;
        DROP VIEW running, large;
        DROP VIEW IF EXISTS cached;
        DROP EXTENSION pg_residency;
    END LOOP;
END
$$;
RESET search_path;
SELECT * FROM kept ORDER BY since, object COLLATE "C";
SELECT * FROM sees ORDER BY since;

-- the SQL of a later version must not make the library read foreign memory
CREATE EXTENSION pg_residency SCHEMA "Else Where";
CREATE FUNCTION another_segments(oid, OUT a oid, OUT b oid) RETURNS SETOF record AS '$libdir/pg_residency', 'residency_segments' LANGUAGE C;
SELECT * FROM another_segments(NULL);
ALTER EXTENSION pg_residency ADD FUNCTION another_segments(oid);
UPDATE pg_extension SET extversion = '0.10.0' WHERE extname = 'pg_residency';
SELECT * FROM another_segments(NULL);
CREATE FUNCTION another_snapshot(text, int, OUT a text, OUT b int) RETURNS record AS '$libdir/pg_residency', 'residency_snapshot' LANGUAGE C;
SELECT * FROM another_snapshot('of_another_version', 1);
SELECT count(*) AS taken FROM "Else Where".residency_snapshots() WHERE name ~ 'version';

DROP OWNED BY regress_residency_reader;
DROP ROLE regress_residency_reader, regress_residency_nobody;
DROP FUNCTION another_snapshot(text, int);
DROP VIEW facts, members;
DROP TABLE made_anew, updated, kept, sees;
DROP EXTENSION pg_residency;
DROP SCHEMA "Else Where";
