-- no rights for PUBLIC, reading for pg_monitor, changing for grantees
CREATE ROLE regress_residency_nobody;
CREATE ROLE regress_residency_monitor IN ROLE pg_monitor;
CREATE ROLE regress_residency_admin;

SELECT proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND d.classid = 'pg_proc'::regclass AND has_function_privilege('regress_residency_nobody', p.oid, 'EXECUTE');
SELECT proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND d.classid = 'pg_proc'::regclass AND has_function_privilege('regress_residency_monitor', p.oid, 'EXECUTE') ORDER BY 1;

SET ROLE regress_residency_nobody;
SELECT * FROM residency_segments();
SELECT * FROM residency_relations;
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
