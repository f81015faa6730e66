-- complain if the script is sourced in psql
\echo Use "CREATE EXTENSION pg_residency" to load this file. \quit

-- Counts are in blocks of the server's block size (8 KiB) unless a name says otherwise.
-- PUBLIC has no rights but to its own local buffers: pg_monitor may read, and the administrator grants the functions that change a cache or a file.
--
-- Other roles may have created functions, operators and casts in the target schema, and PostgreSQL prefers those whose types fit
-- better. So every name is qualified, and every comparison is an operator of pg_catalog; pgspot checks this (build-tools/lint).

CREATE FUNCTION residency_version() RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION residency_version() IS 'version of the library';

-- --- reading ---

CREATE FUNCTION residency_segments(
    database oid DEFAULT NULL,
    OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int,
    OUT blocks bigint, OUT resident bigint, OUT dirty bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_segments(oid) IS 'what the page cache holds of each segment file of the cluster, or of one database and the shared catalogs';

CREATE FUNCTION residency_shared_buffers(
    with_page_cache boolean DEFAULT false,
    OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text,
    OUT blocks bigint, OUT dirty bigint, OUT in_page_cache bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_shared_buffers(boolean) IS 'what shared buffers hold by relation and fork; if asked, how much of it the page cache holds too';

CREATE FUNCTION residency_buffers(relation regclass, OUT fork text, OUT block bigint, OUT dirty boolean, OUT usage_count int)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1000;
COMMENT ON FUNCTION residency_buffers(regclass) IS 'the buffers that hold a relation';

CREATE FUNCTION residency_budget(
    OUT memory_available_bytes bigint, OUT cgroup_headroom_bytes bigint, OUT dirty_bytes bigint,
    OUT reserve_bytes bigint, OUT hot_bytes bigint, OUT restored_elsewhere_bytes bigint, OUT budget_bytes bigint)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION residency_budget() IS 'what a restore started now may add to the page cache';

CREATE FUNCTION residency_snapshots(
    OUT name text, OUT generation int, OUT taken_at timestamptz, OUT origin text, OUT in_recovery boolean,
    OUT system_identifier bigint, OUT timeline int, OUT server_version_num int, OUT segments int,
    OUT blocks bigint, OUT wanted bigint, OUT in_page_cache bigint, OUT in_shared_buffers bigint, OUT in_both bigint,
    OUT file_bytes bigint, OUT digest text, OUT problem text, OUT thin boolean, OUT current boolean, OUT measure bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION residency_snapshots() IS 'the snapshots in this data directory; problem: why it cannot be used here; thin: it holds less than half of measure, the existing blocks of the fullest earlier generation; current: the bare name means it';

CREATE FUNCTION residency_snapshot_segments(
    name text,
    OUT segment_no int, OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int,
    OUT blocks bigint, OUT wanted bigint, OUT in_shared_buffers bigint, OUT resident bigint, OUT gone bigint, OUT heat float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_snapshot_segments(text) IS 'the wanted blocks of each segment of a snapshot, how many are resident or gone now, and heat, which determines the order of a restore';

CREATE FUNCTION residency_snapshot_names(
    name text,
    OUT database oid, OUT tablespace oid, OUT relfilenumber oid, OUT relation oid, OUT kind text, OUT name text,
    OUT owner oid, OUT owner_name text, OUT pages bigint, OUT partition_of text[], OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_snapshot_names(text) IS 'the names of the relations of a snapshot when it was taken, and for each database the reason why its relations have no names';

CREATE FUNCTION residency_snapshot_relations(
    name text,
    OUT database oid, OUT tablespace oid, OUT relfilenumber oid, OUT relation oid, OUT kind text, OUT name text,
    OUT owner oid, OUT owner_name text, OUT blocks bigint, OUT wanted bigint, OUT in_shared_buffers bigint, OUT resident bigint,
    OUT gone bigint, OUT heat float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_snapshot_relations(text) IS 'the wanted blocks of each relation of a snapshot, and how many are resident or gone now';

CREATE FUNCTION residency_current_names(
    databases oid[] DEFAULT NULL,
    OUT database oid, OUT tablespace oid, OUT relfilenumber oid, OUT relation oid, OUT kind text, OUT name text,
    OUT owner oid, OUT owner_name text, OUT pages bigint, OUT partition_of text[], OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_current_names(oid[]) IS 'the current names of the relations of all databases, or of these (0: the shared catalogs)';

CREATE FUNCTION residency_job_list(
    OUT job int, OUT snapshot text, OUT generation int, OUT state text, OUT pid int,
    OUT started_at timestamptz, OUT finished_at timestamptz, OUT segments int, OUT segments_done int,
    OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint, OUT over_budget bigint,
    OUT gone bigint, OUT failed bigint, OUT budget_bytes bigint, OUT rate_bytes bigint, OUT time_limit int,
    OUT buffers_wanted bigint, OUT buffers_resident bigint, OUT buffers_loaded bigint, OUT message text, OUT settled bigint,
    OUT io_class text, OUT scheduler text, OUT window_bytes bigint, OUT hold_until timestamptz, OUT held_since timestamptz,
    OUT counted_at timestamptz, OUT reclaimed bigint, OUT brought_back bigint, OUT reclaim_rate bigint, OUT mapped_bytes bigint,
    OUT unattended boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION residency_job_list() IS 'the rows of view residency_jobs';

CREATE FUNCTION residency_job_segments(
    job int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text,
    OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int, OUT done boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_job_segments(int) IS 'the segments of a restore, in its order, and what became of each that is done';

CREATE FUNCTION residency_job_relations(
    job int,
    OUT database oid, OUT tablespace oid, OUT relfilenumber oid, OUT relation oid, OUT kind text, OUT name text,
    OUT owner oid, OUT owner_name text, OUT wanted bigint, OUT settled bigint, OUT resident bigint, OUT loaded bigint,
    OUT extra bigint, OUT over_budget bigint, OUT gone bigint, OUT failed bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_job_relations(int) IS 'the relations of a restore, and the outcome of each so far';

CREATE FUNCTION residency_worker_state(
    OUT state text, OUT pid int, OUT restore_job int, OUT next_save_at timestamptz, OUT snapshot text, OUT generation int, OUT saved_at timestamptz,
    OUT save_ms bigint, OUT save_cpu_ms bigint, OUT wanted bigint, OUT thin boolean, OUT failures int, OUT message text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION residency_worker_state() IS 'the row of view residency_worker';

-- The extension is relocatable, so the server does not replace @extschema@ here.
DO $do$
DECLARE
    schema pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    EXECUTE pg_catalog.replace($view$
CREATE VIEW @extschema@.residency_relations AS
WITH storage AS (
    SELECT c.oid, c.relkind, pg_catalog.pg_relation_filenode(c.oid) AS relfilenumber,
           CASE WHEN c.relisshared THEN 0::pg_catalog.oid ELSE d.oid END AS database,
           CASE WHEN c.reltablespace OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN d.dattablespace ELSE c.reltablespace END AS tablespace
    FROM pg_catalog.pg_class c, pg_catalog.pg_database d
    -- current_database() crashes a standby that has just replayed the drop of this database
    WHERE d.oid OPERATOR(pg_catalog.=) (SELECT a.datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a)
      AND c.relpersistence OPERATOR(pg_catalog.<>) 't'::pg_catalog."char"
      AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,i,t,m,S}'::pg_catalog."char"[])
), owners AS (
    -- an index belongs to its table, a TOAST table to the table whose values it holds
    SELECT i.indexrelid AS oid, i.indrelid AS owner FROM pg_catalog.pg_index i
    UNION ALL
    SELECT t.reltoastrelid, t.oid FROM pg_catalog.pg_class t WHERE t.reltoastrelid OPERATOR(pg_catalog.<>) 0::pg_catalog.oid
), page_cache AS (
    SELECT f.tablespace, f.database, f.relfilenumber,
           pg_catalog.sum(f.blocks)::pg_catalog.int8 AS blocks, pg_catalog.sum(f.resident)::pg_catalog.int8 AS resident
    FROM @extschema@.residency_segments((SELECT a.datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a)) f
    GROUP BY f.tablespace, f.database, f.relfilenumber
), buffers AS (
    SELECT f.tablespace, f.database, f.relfilenumber,
           pg_catalog.sum(f.blocks)::pg_catalog.int8 AS blocks, pg_catalog.sum(f.in_page_cache)::pg_catalog.int8 AS in_page_cache
    FROM @extschema@.residency_shared_buffers(true) f
    GROUP BY f.tablespace, f.database, f.relfilenumber
)
SELECT s.oid::pg_catalog.regclass AS relation,
       CASE WHEN s.relkind OPERATOR(pg_catalog.=) 'r'::pg_catalog."char" THEN 'table'::pg_catalog.text
            WHEN s.relkind OPERATOR(pg_catalog.=) 'm'::pg_catalog."char" THEN 'materialized view'::pg_catalog.text
            WHEN s.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog."char" THEN 'sequence'::pg_catalog.text
            WHEN s.relkind OPERATOR(pg_catalog.=) 't'::pg_catalog."char" THEN 'toast'::pg_catalog.text
            WHEN t.relkind OPERATOR(pg_catalog.=) 't'::pg_catalog."char" THEN 'toast index'::pg_catalog.text
            ELSE 'index'::pg_catalog.text END AS kind,
       COALESCE(o2.owner, o.owner)::pg_catalog.regclass AS belongs_to,
       COALESCE(p.blocks, 0::pg_catalog.int8) AS blocks,
       COALESCE(p.resident, 0::pg_catalog.int8) AS blocks_in_page_cache,
       COALESCE(b.blocks, 0::pg_catalog.int8) AS blocks_in_shared_buffers,
       COALESCE(b.in_page_cache, 0::pg_catalog.int8) AS blocks_in_both
FROM storage s
     LEFT JOIN owners o ON o.oid OPERATOR(pg_catalog.=) s.oid
     LEFT JOIN pg_catalog.pg_class t ON t.oid OPERATOR(pg_catalog.=) o.owner
     LEFT JOIN owners o2 ON t.relkind OPERATOR(pg_catalog.=) 't'::pg_catalog."char" AND o2.oid OPERATOR(pg_catalog.=) o.owner
     LEFT JOIN page_cache p ON p.tablespace OPERATOR(pg_catalog.=) s.tablespace AND p.database OPERATOR(pg_catalog.=) s.database
                               AND p.relfilenumber OPERATOR(pg_catalog.=) s.relfilenumber
     LEFT JOIN buffers b ON b.tablespace OPERATOR(pg_catalog.=) s.tablespace AND b.database OPERATOR(pg_catalog.=) s.database
                            AND b.relfilenumber OPERATOR(pg_catalog.=) s.relfilenumber
$view$, '@extschema@', schema);
    EXECUTE pg_catalog.replace($view$
CREATE VIEW @extschema@.residency_server AS
WITH page_cache AS (
    SELECT s.tablespace, s.database, s.relfilenumber,
           pg_catalog.sum(s.blocks)::pg_catalog.int8 AS blocks, pg_catalog.sum(s.resident)::pg_catalog.int8 AS resident
    FROM @extschema@.residency_segments() s
    GROUP BY s.tablespace, s.database, s.relfilenumber
), buffers AS (
    SELECT s.tablespace, s.database, s.relfilenumber, pg_catalog.sum(s.blocks)::pg_catalog.int8 AS blocks
    FROM @extschema@.residency_shared_buffers() s
    GROUP BY s.tablespace, s.database, s.relfilenumber
), files AS (
    SELECT COALESCE(p.tablespace, b.tablespace) AS tablespace, COALESCE(p.database, b.database) AS database,
           COALESCE(p.relfilenumber, b.relfilenumber) AS relfilenumber, COALESCE(p.blocks, 0::pg_catalog.int8) AS blocks,
           COALESCE(p.resident, 0::pg_catalog.int8) AS resident, COALESCE(b.blocks, 0::pg_catalog.int8) AS buffers,
           pg_catalog.current_setting('block_size'::pg_catalog.text)::pg_catalog.int8 AS size
    FROM page_cache p
         FULL JOIN buffers b ON b.tablespace OPERATOR(pg_catalog.=) p.tablespace AND b.database OPERATOR(pg_catalog.=) p.database AND b.relfilenumber OPERATOR(pg_catalog.=) p.relfilenumber
), names AS MATERIALIZED (
    SELECT n.database, n.tablespace, n.relfilenumber, n.kind, n.name, n.owner_name, n.problem
    FROM @extschema@.residency_current_names() n
)
SELECT d.datname AS database,
       (pg_catalog.parse_ident(n.name))[1] AS schema,
       (pg_catalog.parse_ident(n.name))[2] AS relation,
       n.owner_name AS belongs_to,
       n.kind,
       f.blocks OPERATOR(pg_catalog.*) f.size AS size_bytes,
       f.resident OPERATOR(pg_catalog.*) f.size AS page_cache_bytes,
       CASE WHEN f.blocks OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN pg_catalog.round(100::pg_catalog.numeric OPERATOR(pg_catalog.*) f.resident::pg_catalog.numeric OPERATOR(pg_catalog./) f.blocks::pg_catalog.numeric, 2) END AS page_cache_percent,
       f.buffers OPERATOR(pg_catalog.*) f.size AS shared_buffers_bytes,
       CASE WHEN f.blocks OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN pg_catalog.round(100::pg_catalog.numeric OPERATOR(pg_catalog.*) f.buffers::pg_catalog.numeric OPERATOR(pg_catalog./) f.blocks::pg_catalog.numeric, 2) END AS shared_buffers_percent,
       f.database AS database_oid, f.tablespace AS tablespace_oid, f.relfilenumber,
       p.problem
FROM files f
     LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) f.database
     LEFT JOIN names n ON n.database OPERATOR(pg_catalog.=) f.database AND n.tablespace OPERATOR(pg_catalog.=) f.tablespace AND n.relfilenumber OPERATOR(pg_catalog.=) f.relfilenumber
                          AND n.kind OPERATOR(pg_catalog.<>) 'database'::pg_catalog.text
     LEFT JOIN names p ON p.database OPERATOR(pg_catalog.=) f.database AND p.kind OPERATOR(pg_catalog.=) 'database'::pg_catalog.text
$view$, '@extschema@', schema);
    EXECUTE pg_catalog.replace($view$
CREATE VIEW @extschema@.residency_jobs AS
SELECT j.job, j.snapshot, j.generation, j.state, j.pid, j.started_at, j.finished_at, j.segments, j.segments_done, j.wanted,
       j.resident, j.loaded, j.extra, j.over_budget, j.gone, j.failed, j.budget_bytes, j.rate_bytes, j.message, j.time_limit,
       j.buffers_wanted, j.buffers_resident, j.buffers_loaded, j.settled, j.io_class, j.scheduler, j.window_bytes,
       j.hold_until, j.held_since, j.counted_at, j.reclaimed, j.brought_back, j.reclaim_rate, j.mapped_bytes,
       j.unattended
FROM @extschema@.residency_job_list() j
$view$, '@extschema@', schema);
    EXECUTE pg_catalog.replace($view$
CREATE VIEW @extschema@.residency_worker AS
SELECT w.state, w.pid, w.restore_job, w.next_save_at, w.snapshot, w.generation, w.saved_at, w.save_ms, w.save_cpu_ms, w.wanted, w.thin, w.failures, w.message
FROM @extschema@.residency_worker_state() w
$view$, '@extschema@', schema);
    EXECUTE pg_catalog.format('GRANT SELECT ON %1$s.residency_relations, %1$s.residency_server, %1$s.residency_jobs, %1$s.residency_worker TO pg_monitor', schema);
END
$do$;
COMMENT ON VIEW residency_relations IS 'what both caches hold of each relation of this database, shared catalogs included';
COMMENT ON VIEW residency_server IS 'what both caches hold of each relation of all databases, all forks together. A query counts the pages of all files, and a worker reads the names in each other database: milliseconds for each, up to a quarter of max_worker_processes at a time';
COMMENT ON COLUMN residency_server.database IS 'NULL for the shared catalogs, and for files of a database that was dropped';
COMMENT ON COLUMN residency_server.schema IS 'NULL where the name is not known';
COMMENT ON COLUMN residency_server.relation IS 'NULL where the name is not known: see problem; without one the file belongs to a transaction that has not committed, or to none after a crash';
COMMENT ON COLUMN residency_server.belongs_to IS 'the table of an index or TOAST table, quoted as in SQL';
COMMENT ON COLUMN residency_server.kind IS 'table, index, toast, toast index, materialized view or sequence';
COMMENT ON COLUMN residency_server.size_bytes IS 'of its files';
COMMENT ON COLUMN residency_server.page_cache_bytes IS 'of its files, resident in the page cache';
COMMENT ON COLUMN residency_server.page_cache_percent IS 'of its files, resident in the page cache; NULL for an empty one';
COMMENT ON COLUMN residency_server.shared_buffers_bytes IS 'in shared_buffers; the page cache may hold the same blocks';
COMMENT ON COLUMN residency_server.shared_buffers_percent IS 'of its files, in shared_buffers; over 100 if it was extended and not written yet; NULL for an empty one';
COMMENT ON COLUMN residency_server.database_oid IS '0 for the shared catalogs';
COMMENT ON COLUMN residency_server.tablespace_oid IS 'the tablespace of its files';
COMMENT ON COLUMN residency_server.relfilenumber IS 'the name of its file';
COMMENT ON COLUMN residency_server.problem IS 'why the relations of this database have no names; NULL when they have';
COMMENT ON VIEW residency_jobs IS 'running and finished restores: the wanted blocks of each, those settled so far, and how many of these are resident';
COMMENT ON VIEW residency_worker IS 'the worker of a server that preloads the library, and its last save: always one row';
COMMENT ON COLUMN residency_worker.state IS 'not preloaded, stopped, restoring, recovering, waiting, saving or off (pg_residency.autosave is -1)';
COMMENT ON COLUMN residency_worker.restore_job IS 'the job of the restore at the server''s start: see residency_jobs; NULL if nothing was restored';
COMMENT ON COLUMN residency_worker.next_save_at IS 'NULL if none is planned before the server shuts down';
COMMENT ON COLUMN residency_worker.generation IS 'of the last save since the server started; NULL before the first';
COMMENT ON COLUMN residency_worker.save_ms IS 'milliseconds that it took';
COMMENT ON COLUMN residency_worker.save_cpu_ms IS 'milliseconds of CPU time that it took';
COMMENT ON COLUMN residency_worker.wanted IS 'blocks that any cache held';
COMMENT ON COLUMN residency_worker.thin IS 'whether it has less than half of what an earlier one has';
COMMENT ON COLUMN residency_worker.failures IS 'saves in a row that have failed since; each makes the time to the next attempt longer';
COMMENT ON COLUMN residency_worker.message IS 'of the last failure; NULL if the last save succeeded';

-- --- changing ---

CREATE FUNCTION residency_snapshot(
    name text, keep int DEFAULT 2, force boolean DEFAULT false,
    OUT name text, OUT generation int, OUT taken_at timestamptz, OUT origin text, OUT in_recovery boolean,
    OUT system_identifier bigint, OUT timeline int, OUT server_version_num int, OUT segments int,
    OUT blocks bigint, OUT wanted bigint, OUT in_page_cache bigint, OUT in_shared_buffers bigint, OUT in_both bigint,
    OUT file_bytes bigint, OUT digest text, OUT problem text, OUT thin boolean, OUT current boolean, OUT measure bigint)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_snapshot(text, int, boolean) IS 'saves which blocks of the whole cluster both caches hold, as a new generation; with force it becomes current even if it holds far fewer blocks than earlier ones';

CREATE FUNCTION residency_drop_snapshot(name text) RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_drop_snapshot(text) IS 'removes all generations of a snapshot, or one of them (name@3)';

CREATE FUNCTION residency_restore_start(name text, options jsonb DEFAULT '{}') RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_restore_start(text, jsonb) IS 'starts restoring a snapshot in a background worker; the number of its job';

CREATE FUNCTION residency_cancel(job int) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_cancel(int) IS 'ends a restore; false when it was not running';

CREATE FUNCTION residency_restore_segment(
    name text, segment_no int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_restore_segment(text, int) IS 'restores one segment of a snapshot in this session';

CREATE FUNCTION residency_evict(
    relation regclass,
    OUT relation regclass, OUT segments int, OUT blocks bigint, OUT resident_before bigint, OUT resident_after bigint,
    OUT dirty_after bigint)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_evict(regclass) IS 'takes a relation with its indexes, TOAST and partitions out of the page cache';

-- --- rights ---

REVOKE ALL ON FUNCTION
    residency_version(), residency_segments(oid), residency_shared_buffers(boolean), residency_buffers(regclass),
    residency_budget(), residency_snapshots(), residency_snapshot_segments(text), residency_snapshot_names(text),
    residency_snapshot_relations(text), residency_current_names(oid[]), residency_job_list(), residency_job_segments(int),
    residency_job_relations(int), residency_worker_state(), residency_snapshot(text, int, boolean), residency_drop_snapshot(text),
    residency_restore_start(text, jsonb), residency_cancel(int), residency_restore_segment(text, int),
    residency_evict(regclass)
FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
    residency_version(), residency_segments(oid), residency_shared_buffers(boolean), residency_buffers(regclass),
    residency_budget(), residency_snapshots(), residency_snapshot_segments(text), residency_snapshot_names(text),
    residency_snapshot_relations(text), residency_current_names(oid[]), residency_job_list(), residency_job_segments(int),
    residency_job_relations(int), residency_worker_state()
TO pg_monitor;

-- --- the session's own local buffers, which hold its temporary relations ---

-- PUBLIC may call these six, and no other: they reach nothing but the local buffers of the calling session, and those with a relation
-- also require SELECT on it.
CREATE FUNCTION pg_allocated_local_buffers() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_allocated_local_buffers' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_allocated_local_buffers() IS 'local buffers of this session that have memory';

CREATE FUNCTION pg_dirtied_local_buffers() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_dirtied_local_buffers' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_dirtied_local_buffers() IS 'local buffers of this session that are dirty';

CREATE FUNCTION pg_flush_local_buffers() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_flush_local_buffers' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_flush_local_buffers() IS 'writes all dirty local buffers of this session to their files, and returns how many';

CREATE FUNCTION pg_read_temp_relation(relation regclass, randomize boolean, seed bigint DEFAULT NULL, dependents boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_read_temp_relation' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_read_temp_relation(regclass, boolean, bigint, boolean) IS 'reads each block of a temporary relation once, in order or in a random order that the seed determines, and returns how many; with dependents also of its indexes, its TOAST table and the index of that';

CREATE FUNCTION pg_temp_buffers_dirty(relation regclass, dependents boolean DEFAULT false) RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_temp_buffers_dirty' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_temp_buffers_dirty(regclass, boolean) IS 'reads each block of a temporary relation, marks it dirty, and returns how many';

CREATE FUNCTION pg_evict_local_buffers(relation regclass, dependents boolean DEFAULT false) RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_evict_local_buffers' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_evict_local_buffers(regclass, boolean) IS 'writes the dirty local buffers of a temporary relation, empties all that it has, and returns how many; an error if one is pinned';

-- --- the functions of pgfincore, with its names, arguments and columns; counts are in the kernel's pages ---

DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
               WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema()
                 AND p.proname OPERATOR(pg_catalog.=) ANY ('{pgfincore,pgfadvise,pgfadvise_loader,pgsysconf}'::pg_catalog.name[])) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_function',
            MESSAGE = pg_catalog.format('schema "%s" already contains functions of pgfincore, which pg_residency provides too', pg_catalog.current_schema()),
            HINT = 'Run DROP EXTENSION pgfincore, whose scripts work with pg_residency. Or use another schema: CREATE EXTENSION pg_residency SCHEMA another, or ALTER EXTENSION pg_residency SET SCHEMA another.';
    END IF;
END
$do$;

CREATE FUNCTION pgsysconf(OUT os_page_size bigint, OUT os_pages_free bigint, OUT os_total_pages bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'residency_pgsysconf' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION pgsysconf() IS 'the kernel''s page size, its free and all its pages';

CREATE FUNCTION pgsysconf_pretty(OUT os_page_size text, OUT os_pages_free text, OUT os_total_pages text)
RETURNS record
AS 'MODULE_PATHNAME', 'residency_pgsysconf_pretty' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION pgsysconf_pretty() IS 'the same for people';

CREATE FUNCTION pg_page_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_pg_page_size' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pg_page_size() IS 'bytes of one of PostgreSQL''s blocks';

CREATE FUNCTION pg_segment_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_pg_segment_size' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pg_segment_size() IS 'blocks of one of PostgreSQL''s segments';

CREATE FUNCTION vm_page_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_page_size' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION vm_page_size() IS 'bytes of one of the kernel''s pages';

CREATE FUNCTION vm_available_pages() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_available_pages' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION vm_available_pages() IS 'the kernel''s free pages';

CREATE FUNCTION vm_physical_pages() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_physical_pages' LANGUAGE C VOLATILE PARALLEL SAFE;
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
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfincore' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION pgfincore(regclass, bool) IS 'what the page cache holds of each segment, if asked with its map';

CREATE FUNCTION pgfincore(
    regclass,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfincore' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
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
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_willneed' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgfadvise_willneed(regclass) IS 'loads a relation into the page cache, and returns when it is there';

CREATE FUNCTION pgfadvise_dontneed(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_dontneed' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgfadvise_dontneed(regclass) IS 'takes a relation out of the page cache';

CREATE FUNCTION pgfadvise_normal(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_normal' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgfadvise_normal(regclass) IS 'does nothing: on Linux this advice ends when the file is closed';

CREATE FUNCTION pgfadvise_sequential(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_sequential' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION pgfadvise_sequential(regclass) IS 'does nothing: on Linux this advice ends when the file is closed';

CREATE FUNCTION pgfadvise_random(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_random' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
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
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_loader' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION pgfadvise_loader(regclass, int, bool, bool, varbit) IS 'the same for the main fork';

REVOKE ALL ON FUNCTION
    pgsysconf(), pgsysconf_pretty(), pg_page_size(), pg_segment_size(), vm_page_size(), vm_available_pages(), vm_physical_pages(),
    pgfincore(regclass, text, bool), pgfincore(regclass, bool), pgfincore(regclass), pgfincore_drawer(varbit),
    pgfadvise(regclass, text, int), pgfadvise_willneed(regclass), pgfadvise_dontneed(regclass), pgfadvise_normal(regclass),
    pgfadvise_sequential(regclass), pgfadvise_random(regclass),
    pgfadvise_loader(regclass, text, int, bool, bool, varbit), pgfadvise_loader(regclass, int, bool, bool, varbit)
FROM PUBLIC;

-- pgfincore() also requires SELECT on the relation
GRANT EXECUTE ON FUNCTION
    pgsysconf(), pgsysconf_pretty(), pg_page_size(), pg_segment_size(), vm_page_size(), vm_available_pages(), vm_physical_pages(),
    pgfincore(regclass, text, bool), pgfincore(regclass, bool), pgfincore(regclass), pgfincore_drawer(varbit)
TO pg_monitor;
