-- complain if the script is sourced in psql
\echo Use "CREATE EXTENSION pg_residency" to load this file. \quit

-- Counts are in blocks of the server's block size (8 KiB) unless a name says otherwise.
-- Nothing is for PUBLIC: reading is for pg_monitor; what changes a cache or a file is granted by the administrator.

-- --- reading ---

CREATE FUNCTION residency_version() RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION residency_version() IS 'version of the library';

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

CREATE VIEW residency_relations AS
WITH storage AS (
    SELECT c.oid, c.relkind, pg_catalog.pg_relation_filenode(c.oid) AS relfilenumber,
           CASE WHEN c.relisshared THEN 0::oid ELSE d.oid END AS database,
           CASE c.reltablespace WHEN 0 THEN d.dattablespace ELSE c.reltablespace END AS tablespace
    FROM pg_catalog.pg_class c, pg_catalog.pg_database d
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND c.relpersistence OPERATOR(pg_catalog.<>) 't'
      AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,i,t,m,S}')
), owners AS (
    -- an index belongs to its table, a TOAST table to the table whose values it holds
    SELECT i.indexrelid AS oid, i.indrelid AS owner FROM pg_catalog.pg_index i
    UNION ALL
    SELECT t.reltoastrelid, t.oid FROM pg_catalog.pg_class t WHERE t.reltoastrelid OPERATOR(pg_catalog.<>) 0
), page_cache AS (
    SELECT tablespace, database, relfilenumber,
           pg_catalog.sum(blocks)::bigint AS blocks, pg_catalog.sum(resident)::bigint AS resident
    FROM residency_segments((SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))
    GROUP BY tablespace, database, relfilenumber
), buffers AS (
    SELECT tablespace, database, relfilenumber,
           pg_catalog.sum(blocks)::bigint AS blocks, pg_catalog.sum(in_page_cache)::bigint AS in_page_cache
    FROM residency_shared_buffers(true)
    GROUP BY tablespace, database, relfilenumber
)
SELECT s.oid::pg_catalog.regclass AS relation,
       CASE s.relkind WHEN 'r' THEN 'table' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 't' THEN 'toast'
            ELSE CASE WHEN t.relkind OPERATOR(pg_catalog.=) 't' THEN 'toast index' ELSE 'index' END END AS kind,
       COALESCE(o2.owner, o.owner)::pg_catalog.regclass AS belongs_to,
       COALESCE(p.blocks, 0) AS blocks,
       COALESCE(p.resident, 0) AS blocks_in_page_cache,
       COALESCE(b.blocks, 0) AS blocks_in_shared_buffers,
       COALESCE(b.in_page_cache, 0) AS blocks_in_both
FROM storage s
     LEFT JOIN owners o ON o.oid OPERATOR(pg_catalog.=) s.oid
     LEFT JOIN pg_catalog.pg_class t ON t.oid OPERATOR(pg_catalog.=) o.owner
     LEFT JOIN owners o2 ON t.relkind OPERATOR(pg_catalog.=) 't' AND o2.oid OPERATOR(pg_catalog.=) o.owner
     LEFT JOIN page_cache p ON (p.tablespace, p.database, p.relfilenumber) OPERATOR(pg_catalog.=) (s.tablespace, s.database, s.relfilenumber)
     LEFT JOIN buffers b ON (b.tablespace, b.database, b.relfilenumber) OPERATOR(pg_catalog.=) (s.tablespace, s.database, s.relfilenumber);
COMMENT ON VIEW residency_relations IS 'what both caches hold of each relation of this database, shared catalogs included';

CREATE FUNCTION residency_snapshots(
    OUT name text, OUT generation int, OUT taken_at timestamptz, OUT origin text, OUT in_recovery boolean,
    OUT system_identifier bigint, OUT timeline int, OUT server_version_num int, OUT segments int,
    OUT blocks bigint, OUT wanted bigint, OUT in_page_cache bigint, OUT in_shared_buffers bigint, OUT in_both bigint,
    OUT file_bytes bigint, OUT digest text, OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION residency_snapshots() IS 'the snapshots in this data directory; problem says why one cannot be used here';

CREATE FUNCTION residency_snapshot_segments(
    name text,
    OUT segment_no int, OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int,
    OUT blocks bigint, OUT wanted bigint, OUT in_shared_buffers bigint, OUT resident bigint, OUT gone bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_snapshot_segments(text) IS 'what a snapshot wants of each segment, and how much of it is resident or gone now';

CREATE FUNCTION residency_names(name text) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION residency_names(text) IS 'what residency_set_names() left with a snapshot; NULL when it did not';

CREATE FUNCTION residency_job_list(
    OUT job int, OUT snapshot text, OUT generation int, OUT state text, OUT pid int,
    OUT started_at timestamptz, OUT finished_at timestamptz, OUT segments int, OUT segments_done int,
    OUT planned bigint, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint, OUT over_budget bigint,
    OUT gone bigint, OUT failed bigint, OUT budget_bytes bigint, OUT rate_bytes bigint, OUT message text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;

CREATE VIEW residency_jobs AS SELECT * FROM residency_job_list();
COMMENT ON VIEW residency_jobs IS 'restores, running and finished; the counts are of the segments done so far';

CREATE FUNCTION residency_job_segments(
    job int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text,
    OUT tablespace oid, OUT database oid, OUT relfilenumber oid, OUT fork text, OUT segment int)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_job_segments(int) IS 'what became of each segment that a restore has done';

-- --- changing ---

CREATE FUNCTION residency_snapshot(
    name text, keep int DEFAULT 2,
    OUT name text, OUT generation int, OUT taken_at timestamptz, OUT origin text, OUT in_recovery boolean,
    OUT system_identifier bigint, OUT timeline int, OUT server_version_num int, OUT segments int,
    OUT blocks bigint, OUT wanted bigint, OUT in_page_cache bigint, OUT in_shared_buffers bigint, OUT in_both bigint,
    OUT file_bytes bigint, OUT digest text, OUT problem text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_snapshot(text, int) IS 'saves which blocks of the whole cluster both caches hold, as a new generation';

CREATE FUNCTION residency_set_names(name text, names text) RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_set_names(text, text) IS 'leaves the names of its relations with a snapshot, in whatever form';

CREATE FUNCTION residency_drop_snapshot(name text) RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_drop_snapshot(text) IS 'removes all generations of a snapshot, or one of them (name@3)';

CREATE FUNCTION residency_restore_start(name text, options jsonb DEFAULT '{}') RETURNS int
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_restore_start(text, jsonb) IS 'starts restoring a snapshot in a background worker; the number of its job';

CREATE FUNCTION residency_cancel(job int) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_cancel(int) IS 'ends a restore; false when it was not running';

CREATE FUNCTION residency_restore(
    name text, segment_no int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_restore(text, int) IS 'restores one segment of a snapshot in this session';

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
    residency_budget(), residency_snapshots(),
    residency_snapshot_segments(text), residency_names(text), residency_job_list(), residency_job_segments(int),
    residency_snapshot(text, int), residency_set_names(text, text), residency_drop_snapshot(text),
    residency_restore_start(text, jsonb), residency_cancel(int),
    residency_restore(text, int), residency_evict(regclass)
FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
    residency_version(), residency_segments(oid), residency_shared_buffers(boolean), residency_buffers(regclass),
    residency_budget(), residency_snapshots(),
    residency_snapshot_segments(text), residency_names(text), residency_job_list(), residency_job_segments(int)
TO pg_monitor;
GRANT SELECT ON residency_relations, residency_jobs TO pg_monitor;
