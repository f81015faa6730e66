-- complain if the script is sourced in psql
\echo Use "ALTER EXTENSION pg_residency UPDATE" to load this file. \quit

-- Other roles may have created functions, operators and casts in the target schema, and PostgreSQL prefers those whose types fit
-- better. So every name is qualified, and every comparison is an operator of pg_catalog; pgspot checks this (build-tools/lint).

DO $do$
DECLARE
    library pg_catalog.text;
BEGIN
    EXECUTE pg_catalog.format('SELECT %I.residency_version()', pg_catalog.current_schema()) INTO library;
    IF pg_catalog.string_to_array(library, '.')::pg_catalog.int4[] OPERATOR(pg_catalog.<) '{0,3,0}'::pg_catalog.int4[] THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = pg_catalog.format('the pg_residency library of this session has version %s, but extension version 0.3.0 requires the same version', library),
            HINT = 'Reconnect, or restart the server if it preloads the library. If the error persists, reinstall the extension''s files.';
    END IF;
END
$do$;

-- --- functions with other columns or arguments, and dropped ones ---

-- A function that a user's view calls cannot be dropped. PostgreSQL's own error would have the temporary name given below.
DO $do$
DECLARE
    dependent record;
BEGIN
    FOR dependent IN
        SELECT f.name, pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS object
        FROM (VALUES ('residency_job_list()'),
                     ('residency_snapshots()'),
                     ('residency_snapshot_segments(text)'),
                     ('residency_snapshot(text, int)'),
                     ('residency_set_names(text, text)'),
                     ('residency_names(text)')) f (name)
             JOIN pg_catalog.pg_depend d
             ON d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
                AND d.refobjid OPERATOR(pg_catalog.=)
                    pg_catalog.format('%I.%s', pg_catalog.current_schema(), f.name)::pg_catalog.regprocedure::pg_catalog.oid
             LEFT JOIN pg_catalog.pg_rewrite r
             ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid
                AND r.oid OPERATOR(pg_catalog.=) d.objid
        -- except the extension's own view
        WHERE r.ev_class IS NULL
              OR r.ev_class OPERATOR(pg_catalog.<>)
                 pg_catalog.format('%I.residency_jobs', pg_catalog.current_schema())::pg_catalog.regclass::pg_catalog.oid
    LOOP
        RAISE EXCEPTION USING
            ERRCODE = 'dependent_objects_still_exist',
            MESSAGE = pg_catalog.format('%s depends on function %s, which version 0.3.0 changes', dependent.object, dependent.name),
            HINT = 'Drop the dependent object, update the extension, then create the object again.';
    END LOOP;
END
$do$;

ALTER FUNCTION residency_job_list() RENAME TO residency_job_list_before;
ALTER FUNCTION residency_snapshots() RENAME TO residency_snapshots_before;
ALTER FUNCTION residency_snapshot_segments(text) RENAME TO residency_snapshot_segments_before;

CREATE FUNCTION residency_job_list(
    OUT job int, OUT snapshot text, OUT generation int, OUT state text, OUT pid int,
    OUT started_at timestamptz, OUT finished_at timestamptz, OUT segments int, OUT segments_done int,
    OUT planned bigint, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint, OUT over_budget bigint,
    OUT gone bigint, OUT failed bigint, OUT budget_bytes bigint, OUT rate_bytes bigint, OUT time_limit int,
    OUT buffers_wanted bigint, OUT buffers_resident bigint, OUT buffers_loaded bigint, OUT message text, OUT settled bigint,
    OUT io_class text, OUT scheduler text, OUT window_bytes bigint, OUT hold_until timestamptz, OUT held_since timestamptz,
    OUT counted_at timestamptz, OUT reclaimed bigint, OUT brought_back bigint, OUT reclaim_rate bigint, OUT mapped_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION residency_job_list() IS 'the rows of view residency_jobs';

CREATE FUNCTION residency_job_relations(
    job int,
    OUT database oid, OUT tablespace oid, OUT relfilenumber oid, OUT relation oid, OUT kind text, OUT name text,
    OUT owner oid, OUT owner_name text, OUT wanted bigint, OUT settled bigint, OUT resident bigint, OUT loaded bigint,
    OUT extra bigint, OUT over_budget bigint, OUT gone bigint, OUT failed bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10000;
COMMENT ON FUNCTION residency_job_relations(int) IS 'the relations of a restore, and the outcome of each so far';

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

CREATE FUNCTION residency_snapshot(
    name text, keep int DEFAULT 2, force boolean DEFAULT false,
    OUT name text, OUT generation int, OUT taken_at timestamptz, OUT origin text, OUT in_recovery boolean,
    OUT system_identifier bigint, OUT timeline int, OUT server_version_num int, OUT segments int,
    OUT blocks bigint, OUT wanted bigint, OUT in_page_cache bigint, OUT in_shared_buffers bigint, OUT in_both bigint,
    OUT file_bytes bigint, OUT digest text, OUT problem text, OUT thin boolean, OUT current boolean, OUT measure bigint)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_snapshot(text, int, boolean) IS 'saves which blocks of the whole cluster both caches hold, as a new generation; with force it becomes current even if it holds far fewer blocks than earlier ones';

CREATE FUNCTION residency_restore_segment(
    name text, segment_no int,
    OUT segment_no int, OUT wanted bigint, OUT resident bigint, OUT loaded bigint, OUT extra bigint,
    OUT over_budget bigint, OUT gone bigint, OUT failed bigint, OUT reason text)
RETURNS record
AS 'MODULE_PATHNAME', 'residency_restore' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION residency_restore_segment(text, int) IS 'restores one segment of a snapshot in this session';
COMMENT ON FUNCTION residency_restore(text, int) IS 'the former name of residency_restore_segment()';

REVOKE ALL ON FUNCTION
    residency_job_list(), residency_snapshots(), residency_snapshot_segments(text), residency_snapshot_names(text),
    residency_snapshot_relations(text), residency_current_names(oid[]), residency_job_relations(int),
    residency_snapshot(text, int, boolean), residency_restore_segment(text, int)
FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
    residency_job_list(), residency_snapshots(), residency_snapshot_segments(text), residency_snapshot_names(text),
    residency_snapshot_relations(text), residency_current_names(oid[]), residency_job_relations(int)
TO pg_monitor;

-- The new functions inherit the rights of the old ones, as users have granted and revoked them. PostgreSQL records what a script
-- grants as the extension's initial privileges (pg_init_privs), which pg_dump omits: so these are reset afterwards.
DO $do$
DECLARE
    changed record;
    privilege record;
    at_first pg_catalog.aclitem[];
BEGIN
    FOR changed IN
        SELECT n.oid, n.proowner, n.proacl, pg_catalog.format('%I.%s', pg_catalog.current_schema(), f.new) AS name,
               COALESCE(o.proacl, pg_catalog.acldefault('f'::pg_catalog."char", o.proowner)) AS old_acl
        FROM (VALUES ('residency_job_list()', 'residency_job_list_before()'),
                     ('residency_snapshots()', 'residency_snapshots_before()'),
                     ('residency_snapshot_segments(text)', 'residency_snapshot_segments_before(text)'),
                     ('residency_snapshot(text, int, boolean)', 'residency_snapshot(text, int)')) f (new, old)
             JOIN pg_catalog.pg_proc n
             ON n.oid OPERATOR(pg_catalog.=)
                pg_catalog.format('%I.%s', pg_catalog.current_schema(), f.new)::pg_catalog.regprocedure::pg_catalog.oid
             JOIN pg_catalog.pg_proc o
             ON o.oid OPERATOR(pg_catalog.=)
                pg_catalog.format('%I.%s', pg_catalog.current_schema(), f.old)::pg_catalog.regprocedure::pg_catalog.oid
    LOOP
        SELECT i.initprivs INTO STRICT at_first FROM pg_catalog.pg_init_privs i
        WHERE i.objoid OPERATOR(pg_catalog.=) changed.oid AND i.objsubid OPERATOR(pg_catalog.=) 0::pg_catalog.int4
              AND i.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid;
        FOR privilege IN
            SELECT 'REVOKE ALL ON FUNCTION %s FROM %s' AS command, a.grantee
            FROM pg_catalog.aclexplode(changed.proacl) a
            UNION ALL
            SELECT CASE WHEN a.is_grantable THEN 'GRANT EXECUTE ON FUNCTION %s TO %s WITH GRANT OPTION'
                        ELSE 'GRANT EXECUTE ON FUNCTION %s TO %s' END, a.grantee
            FROM pg_catalog.aclexplode(changed.old_acl) a
        LOOP
            IF privilege.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN
                EXECUTE pg_catalog.format(privilege.command, changed.name, 'PUBLIC');
            ELSIF privilege.grantee OPERATOR(pg_catalog.<>) changed.proowner THEN
                EXECUTE pg_catalog.format(privilege.command, changed.name, privilege.grantee::pg_catalog.regrole);
            END IF;
        END LOOP;
        UPDATE pg_catalog.pg_init_privs SET initprivs = at_first
        WHERE objoid OPERATOR(pg_catalog.=) changed.oid AND objsubid OPERATOR(pg_catalog.=) 0::pg_catalog.int4
              AND classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid;
        -- from 17 on they also create a dependency on the role, which could not be dropped then
        DELETE FROM pg_catalog.pg_shdepend s USING pg_catalog.pg_database d
        WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND s.dbid OPERATOR(pg_catalog.=) d.oid
              AND s.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
              AND s.objid OPERATOR(pg_catalog.=) changed.oid AND s.deptype OPERATOR(pg_catalog.=) 'i'::pg_catalog."char"
              AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(at_first) a
                              WHERE a.grantee OPERATOR(pg_catalog.=) s.refobjid OR a.grantor OPERATOR(pg_catalog.=) s.refobjid);
    END LOOP;
END
$do$;

-- --- the views ---

-- Dependent objects keep the views, so new columns come last. The former residency_relations used operators without a schema: if
-- other roles could create operators in the extension's schema, the view may call those. Replacing it is safe, because PostgreSQL
-- refuses to replace an object that does not belong to the extension.
DO $do$
DECLARE
    schema pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    EXECUTE pg_catalog.replace(pg_catalog.replace($view$
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
$view$, '@extschema@', schema), 'CREATE VIEW', 'CREATE OR REPLACE VIEW');
    EXECUTE pg_catalog.replace(pg_catalog.replace($view$
CREATE VIEW @extschema@.residency_jobs AS
SELECT j.job, j.snapshot, j.generation, j.state, j.pid, j.started_at, j.finished_at, j.segments, j.segments_done, j.planned, j.wanted,
       j.resident, j.loaded, j.extra, j.over_budget, j.gone, j.failed, j.budget_bytes, j.rate_bytes, j.message, j.time_limit,
       j.buffers_wanted, j.buffers_resident, j.buffers_loaded, j.settled, j.io_class, j.scheduler, j.window_bytes,
       j.hold_until, j.held_since, j.counted_at, j.reclaimed, j.brought_back, j.reclaim_rate, j.mapped_bytes
FROM @extschema@.residency_job_list() j
$view$, '@extschema@', schema), 'CREATE VIEW', 'CREATE OR REPLACE VIEW');
END
$do$;
COMMENT ON VIEW residency_jobs IS 'running and finished restores: the wanted blocks of each, those settled so far, and how many of these are resident';

DROP FUNCTION
    residency_job_list_before(), residency_snapshots_before(), residency_snapshot_segments_before(text),
    residency_snapshot(text, int), residency_set_names(text, text), residency_names(text);

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

-- These functions were written in SQL, and are C now. Users' grants and dependent objects are kept.
DO $do$
BEGIN
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgsysconf_pretty(OUT os_page_size text, OUT os_pages_free text, OUT os_total_pages text)
RETURNS record
AS 'MODULE_PATHNAME', 'residency_pgsysconf_pretty' LANGUAGE C VOLATILE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pg_page_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_pg_page_size' LANGUAGE C STABLE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pg_segment_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_pg_segment_size' LANGUAGE C STABLE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION vm_page_size() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_page_size' LANGUAGE C VOLATILE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION vm_available_pages() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_available_pages' LANGUAGE C VOLATILE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION vm_physical_pages() RETURNS bigint
AS 'MODULE_PATHNAME', 'residency_vm_physical_pages' LANGUAGE C VOLATILE PARALLEL SAFE
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfincore(
    regclass, bool,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfincore' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfincore(
    regclass,
    OUT relpath text, OUT segment int, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT pages_mem bigint,
    OUT group_mem bigint, OUT os_pages_free bigint, OUT databit varbit, OUT pages_dirty bigint, OUT group_dirty bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfincore' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_willneed(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_willneed' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_dontneed(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_dontneed' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_normal(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_normal' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_sequential(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_sequential' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_random(
    regclass, OUT relpath text, OUT os_page_size bigint, OUT rel_os_pages bigint, OUT os_pages_free bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_random' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
    EXECUTE pg_catalog.replace($function$
CREATE FUNCTION pgfadvise_loader(
    regclass, int, bool, bool, varbit,
    OUT relpath text, OUT os_page_size bigint, OUT os_pages_free bigint, OUT pages_loaded bigint, OUT pages_unloaded bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'residency_pgfadvise_loader' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1
$function$, 'CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');
END
$do$;
