-- complain if the script is sourced in psql
\echo Use "ALTER EXTENSION pg_residency UPDATE" to load this file. \quit

DO $$
BEGIN
    IF pg_catalog.string_to_array(residency_version(), '.')::int[] OPERATOR(pg_catalog.<) '{0,2,0}' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the library of pg_residency that this session uses has version ' || residency_version() || ', and its SQL is to be 0.2.0',
            HINT = 'Reconnect; where the library is preloaded, restart the server. If that is not enough, install its files again.';
    END IF;
END
$$;

-- --- what a job tells of its time limit and of shared buffers, and a segment whether it is done ---

-- the view stays, with what depends on it; its new columns are its last ones
ALTER FUNCTION residency_job_list() RENAME TO residency_job_list_before;
ALTER FUNCTION residency_job_segments(int) RENAME TO residency_job_segments_before;

CREATE FUNCTION residency_job_list(
    OUT job int, OUT snapshot text, OUT generation int, OUT state text, OUT pid int,
    OUT started_at timestamptz, OUT finished_at timestamptz, OUT segments int, OUT segments_done int,
    OUT planned bigint, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint, OUT over_budget bigint,
    OUT gone bigint, OUT failed bigint, OUT budget_bytes bigint, OUT rate_bytes bigint, OUT time_limit int,
    OUT buffers_wanted bigint, OUT buffers_resident bigint, OUT buffers_loaded bigint, OUT message text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;

CREATE OR REPLACE VIEW residency_jobs AS
SELECT job, snapshot, generation, state, pid, started_at, finished_at, segments, segments_done, planned, wanted, resident, loaded, extra,
       over_budget, gone, failed, budget_bytes, rate_bytes, message, time_limit, buffers_wanted, buffers_resident, buffers_loaded
FROM residency_job_list();

CREATE FUNCTION residency_job_segments(
    job int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text,
    OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int, OUT done boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_job_segments(int) IS 'the segments of a restore, in its order, and what became of each that is done';

-- both belong to whom they belonged to
DO $$
DECLARE
    change text;
BEGIN
    FOR change IN
        SELECT pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.new)
        FROM (VALUES ('residency_job_list()'), ('residency_job_segments(int)')) f (new)
        UNION ALL
        SELECT pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s', f.new,
                                 CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END)
               || CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
        FROM (VALUES ('residency_job_list()', 'residency_job_list_before()'),
                     ('residency_job_segments(int)', 'residency_job_segments_before(int)')) f (new, old)
             JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.old::pg_catalog.regprocedure,
             LATERAL pg_catalog.aclexplode(p.proacl) a
        WHERE a.grantee OPERATOR(pg_catalog.<>) p.proowner
    LOOP
        EXECUTE change;
    END LOOP;
END
$$;

DROP FUNCTION residency_job_list_before(), residency_job_segments_before(int);

-- --- the functions of pgfincore, with its names, arguments and columns; counts are in the kernel's pages ---

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
               WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema()
                 AND p.proname OPERATOR(pg_catalog.=) ANY ('{pgfincore,pgfadvise,pgfadvise_loader,pgsysconf}')) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_function',
            MESSAGE = 'schema "' || pg_catalog.current_schema() || '" has the functions of pgfincore already, which are part of pg_residency too',
            HINT = 'DROP EXTENSION pgfincore, whose scripts go on working with pg_residency, or CREATE EXTENSION pg_residency SCHEMA another; one that is there moves by ALTER EXTENSION pg_residency SET SCHEMA another.';
    END IF;
END
$$;

CREATE FUNCTION pgsysconf(OUT os_page_size bigint, OUT os_pages_free bigint, OUT os_total_pages bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'residency_pgsysconf' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION pgsysconf() IS 'the kernel''s page size, its free and all its pages';

CREATE FUNCTION pgsysconf_pretty(OUT os_page_size text, OUT os_pages_free text, OUT os_total_pages text)
RETURNS record LANGUAGE SQL VOLATILE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_size_pretty(os_page_size), pg_size_pretty(os_pages_free * os_page_size), pg_size_pretty(os_total_pages * os_page_size)
    FROM pgsysconf();
END;
COMMENT ON FUNCTION pgsysconf_pretty() IS 'the same for people';

CREATE FUNCTION pg_page_size() RETURNS bigint LANGUAGE SQL STABLE PARALLEL SAFE
BEGIN ATOMIC SELECT current_setting('block_size')::bigint; END;
COMMENT ON FUNCTION pg_page_size() IS 'bytes of one of PostgreSQL''s blocks';

CREATE FUNCTION pg_segment_size() RETURNS bigint LANGUAGE SQL STABLE PARALLEL SAFE
BEGIN ATOMIC SELECT pg_size_bytes(current_setting('segment_size')) / current_setting('block_size')::bigint; END;
COMMENT ON FUNCTION pg_segment_size() IS 'blocks of one of PostgreSQL''s segments';

CREATE FUNCTION vm_page_size() RETURNS bigint LANGUAGE SQL VOLATILE PARALLEL SAFE
BEGIN ATOMIC SELECT os_page_size FROM pgsysconf(); END;
COMMENT ON FUNCTION vm_page_size() IS 'bytes of one of the kernel''s pages';

CREATE FUNCTION vm_available_pages() RETURNS bigint LANGUAGE SQL VOLATILE PARALLEL SAFE
BEGIN ATOMIC SELECT os_pages_free FROM pgsysconf(); END;
COMMENT ON FUNCTION vm_available_pages() IS 'the kernel''s free pages';

CREATE FUNCTION vm_physical_pages() RETURNS bigint LANGUAGE SQL VOLATILE PARALLEL SAFE
BEGIN ATOMIC SELECT os_total_pages FROM pgsysconf(); END;
COMMENT ON FUNCTION vm_physical_pages() IS 'all of the kernel''s pages';

CREATE FUNCTION pgfincore(
    regclass, text, bool,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfincore' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION pgfincore(regclass, text, bool) IS 'what the page cache holds of each segment of a fork, if asked with its map';

CREATE FUNCTION pgfincore(
    regclass, bool,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC SELECT * FROM pgfincore($1, 'main', $2); END;
COMMENT ON FUNCTION pgfincore(regclass, bool) IS 'what the page cache holds of each segment, if asked with its map';

CREATE FUNCTION pgfincore(
    regclass,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC SELECT * FROM pgfincore($1, 'main', false); END;
COMMENT ON FUNCTION pgfincore(regclass) IS 'what the page cache holds of each segment';

CREATE FUNCTION pgfincore_drawer(varbit, OUT drawer cstring) RETURNS cstring
AS 'MODULE_PATHNAME', 'residency_pgfincore_drawer' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION pgfincore_drawer(varbit) IS 'a map to look at: a dot for each resident page, a blank for each other';

CREATE FUNCTION pgfadvise(
    regclass, text, int,
    OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgfadvise(regclass, text, int) IS '10 loads all segments of a fork and returns when they are in the page cache; 20 takes them out; 30, 40 and 50 do nothing on Linux';

CREATE FUNCTION pgfadvise_willneed(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC SELECT * FROM pgfadvise($1, 'main', 10); END;
COMMENT ON FUNCTION pgfadvise_willneed(regclass) IS 'loads a relation into the page cache, and returns when it is there';

CREATE FUNCTION pgfadvise_dontneed(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC SELECT * FROM pgfadvise($1, 'main', 20); END;
COMMENT ON FUNCTION pgfadvise_dontneed(regclass) IS 'takes a relation out of the page cache';

CREATE FUNCTION pgfadvise_normal(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC SELECT * FROM pgfadvise($1, 'main', 30); END;
COMMENT ON FUNCTION pgfadvise_normal(regclass) IS 'does nothing: on Linux this advice ends when the file is closed';

CREATE FUNCTION pgfadvise_sequential(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC SELECT * FROM pgfadvise($1, 'main', 40); END;
COMMENT ON FUNCTION pgfadvise_sequential(regclass) IS 'does nothing: on Linux this advice ends when the file is closed';

CREATE FUNCTION pgfadvise_random(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 10
BEGIN ATOMIC SELECT * FROM pgfadvise($1, 'main', 50); END;
COMMENT ON FUNCTION pgfadvise_random(regclass) IS 'does nothing: on Linux this advice ends when the file is closed';

CREATE FUNCTION pgfadvise_loader(
    regclass, text, int, bool, bool, varbit,
    OUT relpath text, OUT os_page_size bigint, OUT os_pages_free bigint, OUT pages_loaded bigint, OUT pages_unloaded bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_loader' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgfadvise_loader(regclass, text, int, bool, bool, varbit) IS 'brings the pages of a segment in that have a 1 in the map, takes those out that have a 0, and counts what came and went';

CREATE FUNCTION pgfadvise_loader(
    regclass, int, bool, bool, varbit,
    OUT relpath text, OUT os_page_size bigint, OUT os_pages_free bigint, OUT pages_loaded bigint, OUT pages_unloaded bigint)
RETURNS SETOF record LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 1
BEGIN ATOMIC SELECT * FROM pgfadvise_loader($1, 'main', $2, $3, $4, $5); END;
COMMENT ON FUNCTION pgfadvise_loader(regclass, int, bool, bool, varbit) IS 'the same for the main fork';

REVOKE ALL ON FUNCTION
    pgsysconf(), pgsysconf_pretty(), pg_page_size(), pg_segment_size(), vm_page_size(), vm_available_pages(), vm_physical_pages(),
    pgfincore(regclass, text, bool), pgfincore(regclass, bool), pgfincore(regclass), pgfincore_drawer(varbit),
    pgfadvise(regclass, text, int), pgfadvise_willneed(regclass), pgfadvise_dontneed(regclass), pgfadvise_normal(regclass),
    pgfadvise_sequential(regclass), pgfadvise_random(regclass),
    pgfadvise_loader(regclass, text, int, bool, bool, varbit), pgfadvise_loader(regclass, int, bool, bool, varbit)
FROM PUBLIC;

-- of these pgfincore() asks for SELECT on the relation, too
GRANT EXECUTE ON FUNCTION
    pgsysconf(), pgsysconf_pretty(), pg_page_size(), pg_segment_size(), vm_page_size(), vm_available_pages(), vm_physical_pages(),
    pgfincore(regclass, text, bool), pgfincore(regclass, bool), pgfincore(regclass), pgfincore_drawer(varbit)
TO pg_monitor;
