-- no rights for PUBLIC, reading for pg_monitor, changing for grantees
CREATE ROLE regress_residency_nobody;
CREATE ROLE regress_residency_monitor IN ROLE pg_monitor;
CREATE ROLE regress_residency_admin;

-- PUBLIC: the session's own local buffers, and nothing else
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND d.classid = 'pg_proc'::regclass AND has_function_privilege('regress_residency_nobody', p.oid, 'EXECUTE')
ORDER BY p.oid::regprocedure::text COLLATE "C";
SELECT proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND d.classid = 'pg_proc'::regclass AND has_function_privilege('regress_residency_monitor', p.oid, 'EXECUTE')
      AND NOT has_function_privilege('regress_residency_nobody', p.oid, 'EXECUTE') ORDER BY 1;
SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND has_any_column_privilege('regress_residency_nobody', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES');

-- a superuser's temporary tables in the same session, of which one may be read
CREATE TEMPORARY TABLE not_readable (a int PRIMARY KEY, b text);
CREATE TEMPORARY TABLE readable (a int PRIMARY KEY, b text);
CREATE TEMPORARY TABLE parent (a int) PARTITION BY RANGE (a);
CREATE TEMPORARY TABLE partition PARTITION OF parent FOR VALUES FROM (0) TO (10);
INSERT INTO not_readable VALUES (1);
INSERT INTO readable VALUES (1);
INSERT INTO partition VALUES (1);
GRANT SELECT ON readable, parent TO regress_residency_nobody;
GRANT INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON not_readable TO regress_residency_nobody;
GRANT SELECT (a) ON not_readable TO regress_residency_nobody;
SELECT reltoastrelid AS toast FROM pg_class WHERE relname = 'not_readable' \gset

SET ROLE regress_residency_nobody;
SELECT pg_allocated_local_buffers() > 0 AS allocated, pg_dirtied_local_buffers() > 0 AS dirty, pg_flush_local_buffers() > 0 AS flushed;
SELECT pg_read_temp_relation('readable', true), pg_temp_buffers_dirty('readable_pkey'), pg_evict_local_buffers('readable', true) > 0 AS evicted;
SELECT pg_read_temp_relation('parent', true), pg_temp_buffers_dirty('parent'), pg_evict_local_buffers('parent');
SELECT pg_read_temp_relation('partition', true);
SELECT pg_read_temp_relation('not_readable', true);
SELECT pg_temp_buffers_dirty('not_readable');
SELECT pg_evict_local_buffers('not_readable');
SELECT pg_read_temp_relation('not_readable_pkey', true);
SELECT pg_temp_buffers_dirty('not_readable_pkey');
SELECT pg_evict_local_buffers('not_readable_pkey');
\set VERBOSITY sqlstate
SELECT pg_read_temp_relation(:toast, true);
SELECT pg_temp_buffers_dirty(:toast);
SELECT pg_evict_local_buffers(:toast);
\set VERBOSITY terse
SELECT pg_read_temp_relation('two_segments', true);
SELECT pg_temp_buffers_dirty('two_segments_a');
SELECT pg_evict_local_buffers('toasted', true);
SELECT pg_read_temp_relation('pg_authid', true);
SELECT pg_temp_buffers_dirty('pg_class');
\set VERBOSITY default

SELECT * FROM residency_segments();
SELECT * FROM residency_relations;
SELECT * FROM residency_server;
SELECT * FROM residency_jobs;
SELECT * FROM residency_snapshots();
SELECT residency_snapshot('mine');
SELECT residency_restore_start('restore');
SELECT residency_evict('two_segments');
SELECT residency_cancel(1);
SELECT residency_drop_snapshot('restore');

SET ROLE regress_residency_monitor;
SELECT count(*) > 0 AS sees FROM residency_segments();
SELECT count(*) > 0 AS sees FROM residency_relations;
SELECT count(*) > 0 AS sees, bool_or(database <> current_database() AND relation IS NOT NULL) AS names FROM residency_server;
SELECT count(*) > 0 AS sees FROM residency_jobs;
SELECT count(*) > 0 AS sees FROM residency_snapshots();
SELECT residency_snapshot('mine');
SELECT residency_evict('two_segments');

RESET ROLE;
GRANT EXECUTE ON FUNCTION residency_snapshot(text, int, boolean), residency_drop_snapshot(text) TO regress_residency_admin;
SET ROLE regress_residency_admin;
SELECT name, generation FROM residency_snapshot('granted');
SELECT residency_drop_snapshot('granted');
SELECT residency_restore_start('restore');
RESET ROLE;

DROP OWNED BY regress_residency_admin, regress_residency_monitor, regress_residency_nobody;
DROP ROLE regress_residency_admin, regress_residency_monitor, regress_residency_nobody;
SELECT residency_drop_snapshot(name) IS NOT NULL AS dropped FROM (SELECT DISTINCT name FROM residency_snapshots()) s;
DROP EXTENSION pg_residency;
