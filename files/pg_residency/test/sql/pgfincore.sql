-- the functions of pgfincore; the numbers in brackets are those of its faults in README.md
CREATE SCHEMA postgres_air;
CREATE TABLE postgres_air.boarding_pass (a int, filler text) WITH (fillfactor = 10, autovacuum_enabled = off);
ALTER TABLE postgres_air.boarding_pass ALTER filler SET STORAGE PLAIN;
INSERT INTO postgres_air.boarding_pass SELECT i, repeat('x', 700) FROM generate_series(1, 8192) i;
CREATE INDEX boarding_pass_a ON postgres_air.boarding_pass (a);
CHECKPOINT;

-- the same names, arguments and columns
SELECT p.oid::regprocedure AS function, pg_get_function_result(p.oid) AS result
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_residency' AND (proname LIKE 'pgf%' OR proname LIKE 'pgs%' OR proname LIKE 'vm%' OR proname ~ '^pg_(page|segment)')
ORDER BY p.oid::regprocedure::text COLLATE "C";
SELECT (SELECT array_agg(attname ORDER BY attnum) FROM unnest(proargnames) WITH ORDINALITY a (attname, attnum)) AS columns
FROM pg_proc WHERE oid = 'pgfincore(regclass, bool)'::regprocedure;

-- the memory of the host
SELECT os_page_size >= 4096 AS page_size, os_pages_free BETWEEN 1 AND os_total_pages AS free,
       os_total_pages * os_page_size = (SELECT (regexp_match(pg_read_file('/proc/meminfo'), 'MemTotal: +(\d+) kB'))[1]::bigint * 1024) AS total
FROM pgsysconf();
SELECT os_page_size ~ '^\d+ (bytes|kB)$' AS page_size, os_pages_free ~ '^\d+ [kMGT]?B$' AS free, os_total_pages ~ '^\d+ [kMGT]?B$' AS total FROM pgsysconf_pretty();
SELECT pg_page_size() = current_setting('block_size')::int AS page_size,
       pg_segment_size() = (SELECT setting::bigint FROM pg_settings WHERE name = 'segment_size') AS segment_size,
       vm_page_size() = os_page_size AS os_page_size, vm_physical_pages() = os_total_pages AS total, vm_available_pages() > 0 AS available
FROM pgsysconf();

-- the usual statements: a table keeps the map of the cached pages ...
SELECT count(*) FROM pgfadvise_dontneed('postgres_air.boarding_pass');
SELECT pages_loaded = 32, pages_unloaded = 0 FROM pgfadvise_loader('postgres_air.boarding_pass', 0, true, false, repeat('11000011', 8)::varbit);
create table pgfincore_snapshot as select 'postgres_air.boarding_pass'::text as relname,*,now() as date_snapshot from pgfincore('postgres_air.boarding_pass',true);
SELECT segment, rel_os_pages * os_page_size = pg_relation_size('postgres_air.boarding_pass') AS same_size, length(databit) = rel_os_pages AS a_bit_for_each_page,
       pages_mem, group_mem, relpath = pg_relation_filepath('postgres_air.boarding_pass') AS path
FROM pgfincore_snapshot;
SELECT rtrim(pgfincore_drawer(databit)::text) FROM pgfincore_snapshot;
-- ... the cache changes ...
SELECT count(*) AS segments FROM pgfadvise_willneed('postgres_air.boarding_pass');
SELECT pages_mem = rel_os_pages AS all_there, group_mem FROM pgfincore('postgres_air.boarding_pass');
-- ... and the map restores it: (3) the claimed pages are those that were evicted
select pages_loaded, pages_unloaded + 32 = (SELECT rel_os_pages FROM pgfincore_snapshot) AS all_others_went
from pgfadvise_loader('postgres_air.boarding_pass', 0, true, true,(select databit from pgfincore_snapshot where relname='postgres_air.boarding_pass' and segment = 0));
SELECT databit = (SELECT databit FROM pgfincore_snapshot) AS same_map FROM pgfincore('postgres_air.boarding_pass', true);

-- the statements of its README
select segment, rel_os_pages > 0 AS pages, databit, pages_dirty >= group_dirty AS dirty from pgfincore('postgres_air.boarding_pass');
select * from pgfadvise_loader('postgres_air.boarding_pass', 0, true, true, B'111000') \gset
SELECT :pages_loaded AS pages_loaded, :pages_unloaded AS pages_unloaded;
SELECT substring(databit FROM 1 FOR 6) FROM pgfincore('postgres_air.boarding_pass', true);
select * from pgfadvise_loader('postgres_air.boarding_pass', 0, true, false, B'111000') \gset
SELECT :pages_loaded AS pages_loaded, :pages_unloaded AS pages_unloaded;
select * from pgfadvise_loader('postgres_air.boarding_pass', 0, false, true, B'011000') \gset
SELECT :pages_loaded AS pages_loaded, :pages_unloaded AS pages_unloaded;
select * from pgfadvise_loader('postgres_air.boarding_pass', 0, false, false, B'000111') \gset
SELECT :pages_loaded AS pages_loaded, :pages_unloaded AS pages_unloaded;
SELECT substring(databit FROM 1 FOR 6) FROM pgfincore('postgres_air.boarding_pass', true);
SELECT pgfincore_drawer(B'111000') || '|', pgfincore_drawer(B'') || '|', pgfincore_drawer(NULL) IS NULL;

-- an index, a fork, several segments
SELECT relpath = pg_relation_filepath('postgres_air.boarding_pass_a') AS path, rel_os_pages > 0 AS pages FROM pgfadvise('postgres_air.boarding_pass_a', 'main', 10);
SELECT pages_mem = rel_os_pages AS all_there FROM pgfincore('postgres_air.boarding_pass_a');
SELECT relpath ~ '_fsm$' AS path FROM pgfincore('postgres_air.boarding_pass', 'fsm', false);
SELECT * FROM pgfincore('postgres_air.boarding_pass', 'init', false);
SELECT * FROM pgfincore('postgres_air.boarding_pass', 'no such', false);
SELECT segment, right(relpath, 2) = '.1' AS second, rel_os_pages * os_page_size <= 1073741824 AS size FROM pgfincore('two_segments') ORDER BY 1;
SELECT sum(rel_os_pages * os_page_size) = pg_relation_size('two_segments') AS size FROM pgfadvise_normal('two_segments');
SELECT pages_loaded FROM pgfadvise_loader('two_segments', 1, false, false, B'1');
SELECT count(*) FROM pgfadvise_sequential('two_segments');
SELECT count(*) FROM pgfadvise_random('two_segments');
SELECT * FROM pgfadvise('two_segments', 'main', 60);

-- (1) NULL arguments
SELECT * FROM pgfincore(NULL);
SELECT * FROM pgfincore('two_segments', NULL);
SELECT * FROM pgfincore('two_segments', NULL, true);
SELECT * FROM pgfadvise(NULL, 'main', 10);
SELECT * FROM pgfadvise('two_segments', NULL, 10);
SELECT * FROM pgfadvise('two_segments', 'main', NULL);
SELECT * FROM pgfadvise_willneed(NULL);
SELECT * FROM pgfadvise_loader('two_segments', NULL, 0, true, true, B'1');
SELECT * FROM pgfadvise_loader('two_segments', 'main', NULL, true, true, B'1');
SELECT * FROM pgfadvise_loader('two_segments', 'main', 0, NULL, true, B'1');
SELECT * FROM pgfadvise_loader('two_segments', 'main', 0, true, NULL, B'1');
SELECT * FROM pgfadvise_loader('two_segments', 0, true, true, NULL);
SELECT * FROM pgfadvise_loader('two_segments', 2, true, true, B'1');
SELECT * FROM pgfadvise_loader('two_segments', -1, true, true, B'1');

-- (4) rights: EXECUTE on the function, and SELECT on the relation
CREATE ROLE regress_residency_reader;
GRANT USAGE ON SCHEMA postgres_air TO regress_residency_reader;
SET ROLE regress_residency_reader;
SELECT * FROM pgsysconf();
SELECT * FROM pgfincore('postgres_air.boarding_pass');
SELECT * FROM pgfadvise_dontneed('postgres_air.boarding_pass');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pgfincore(regclass), pgfincore(regclass, text, bool), pgfadvise_dontneed(regclass), pgfadvise(regclass, text, int),
    pgfadvise_loader(regclass, text, int, bool, bool, varbit) TO regress_residency_reader;
SET ROLE regress_residency_reader;
SELECT * FROM pgfincore('pg_authid');
SELECT * FROM pgfincore('postgres_air.boarding_pass');
SELECT * FROM pgfincore('postgres_air.boarding_pass_a');
SELECT * FROM pgfadvise_dontneed('postgres_air.boarding_pass');
SELECT * FROM pgfadvise_loader('postgres_air.boarding_pass', 'main', 0, true, true, B'1');
RESET ROLE;
GRANT SELECT ON postgres_air.boarding_pass TO regress_residency_reader;
SET ROLE regress_residency_reader;
SELECT count(*) FROM pgfincore('postgres_air.boarding_pass');
SELECT count(*) FROM pgfincore('postgres_air.boarding_pass_a');
SELECT count(*) FROM pgfadvise_dontneed('postgres_air.boarding_pass');
RESET ROLE;

-- (7) an empty segment has an empty map, and its restore does not fail, with an empty map or NULL
CREATE TABLE empty (a int);
SELECT rel_os_pages, pages_mem, group_mem, databit IS NOT NULL AS has_map, length(databit), pages_dirty FROM pgfincore('empty', true);
INSERT INTO pgfincore_snapshot SELECT 'empty', *, now() FROM pgfincore('empty', true);
INSERT INTO pgfincore_snapshot (relname, segment) VALUES ('empty', 0);
SELECT relname, count(*), sum(pages_loaded) > 0 AS loaded
FROM pgfincore_snapshot s, pgfadvise_loader(s.relname::regclass, s.segment, true, true, s.databit) GROUP BY 1 ORDER BY 1;

-- (10) a map of another file: a warning if it is too long; relpath shows whether the file is the same
DELETE FROM postgres_air.boarding_pass WHERE a > 4096;
VACUUM (FREEZE, TRUNCATE) postgres_air.boarding_pass;
-- (the message contains a file name that differs in each run)
\set VERBOSITY sqlstate
SELECT pages_loaded FROM pgfincore_snapshot s, pgfadvise_loader(s.relname::regclass, s.segment, true, true, s.databit) WHERE relname <> 'empty';
\set VERBOSITY default
SELECT pages_mem FROM pgfincore('postgres_air.boarding_pass');
VACUUM FULL postgres_air.boarding_pass;
SELECT count(*) AS restored FROM pgfincore_snapshot s, pgfadvise_loader(s.relname::regclass, s.segment, true, true, s.databit)
WHERE relname <> 'empty' AND split_part(s.relpath, '.', 1) = pg_relation_filepath(s.relname::regclass);

-- (11) a relation without files is an error, a partitioned table means its partitions
CREATE VIEW seen AS SELECT 1;
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nothing FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE elsewhere (a int) SERVER nothing;
CREATE TYPE composite AS (a int);
SELECT * FROM pgfincore('seen');
SELECT * FROM pgfadvise_willneed('elsewhere');
SELECT * FROM pgfadvise_loader('composite', 0, true, true, B'1');
SELECT * FROM pgfincore(4294967295);
CREATE TABLE measured (a int) PARTITION BY RANGE (a);
CREATE TABLE measured_1 PARTITION OF measured FOR VALUES FROM (0) TO (1000);
CREATE TABLE measured_2 PARTITION OF measured FOR VALUES FROM (1000) TO (2000) PARTITION BY RANGE (a);
CREATE TABLE measured_2a PARTITION OF measured_2 FOR VALUES FROM (1000) TO (1500);
CREATE FOREIGN TABLE measured_2b PARTITION OF measured_2 FOR VALUES FROM (1500) TO (2000) SERVER nothing;
CREATE INDEX measured_a ON ONLY measured (a);
INSERT INTO measured SELECT generate_series(0, 1499);
SELECT array_agg(relpath ORDER BY relpath) = (SELECT array_agg(pg_relation_filepath(o) ORDER BY pg_relation_filepath(o)) FROM unnest('{measured_1,measured_2a}'::regclass[]) o) AS partitions
FROM pgfincore('measured');
SELECT count(*) FROM pgfadvise_willneed('measured');
SELECT count(*) FROM pgfincore('measured_a');
SELECT * FROM pgfadvise_loader('measured', 0, true, true, B'1');
SELECT count(*) FROM pgfincore((SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'toasted'::regclass));
SELECT count(*) FROM pgfincore('pg_class');

-- (12) any schema
CREATE SCHEMA "Else Where";
ALTER EXTENSION pg_residency SET SCHEMA "Else Where";
SELECT count(*) FROM "Else Where".pgfincore('measured_1');
SELECT count(*) FROM "Else Where".pgfincore('measured_1', true);
SELECT count(*) FROM "Else Where".pgfadvise_willneed('measured_1');
CHECKPOINT;
SELECT count(*) FROM "Else Where".pgfadvise_dontneed('measured');
SELECT count(*) FROM "Else Where".pgfadvise_normal('measured_1');
SELECT count(*) FROM "Else Where".pgfadvise_sequential('measured_1');
SELECT count(*) FROM "Else Where".pgfadvise_random('measured_1');
SELECT pages_loaded FROM "Else Where".pgfadvise_loader('measured_1', 0, false, false, B'1');
SELECT count(*) FROM "Else Where".pgsysconf_pretty();
SELECT "Else Where".pg_page_size() > 0, "Else Where".pg_segment_size() > 0, "Else Where".vm_page_size() > 0, "Else Where".vm_available_pages() > 0, "Else Where".vm_physical_pages() > 0;
ALTER EXTENSION pg_residency SET SCHEMA public;

-- (13) a set that is not fetched completely leaks nothing
SELECT pgfadvise('measured', 'main', 30) IS NOT NULL AS one LIMIT 1;
SELECT pgfincore('measured') IS NOT NULL AS one LIMIT 1;
SELECT pgfadvise_willneed('measured') IS NOT NULL AS one LIMIT 1;
SELECT (pgfadvise_loader('measured_1', 0, false, true, B'0')).pages_loaded LIMIT 1;

-- pgfincore's own test, with a temporary table
CREATE TEMPORARY TABLE passing AS SELECT generate_series(1, 256) AS a;
SELECT FROM pgfadvise_loader('passing', 0, true, true, B'1010');
SELECT FROM pgfadvise_loader('passing', 0, true, false, B'1010');
SELECT FROM pgfadvise_loader('passing', 0, false, true, B'1010');
SELECT FROM pgfadvise_loader('passing', 0, false, false, B'1010');
SELECT FROM pgfadvise_loader('passing', 0, false, false, B'');
SELECT FROM pgfadvise_loader('passing', 0, false, false, NULL);
-- (15) relpath is the path of the relation
SELECT segment, relpath = pg_relation_filepath('passing') AS path, databit IS NOT NULL AS map FROM pgfincore('passing', true);
SELECT FROM pgfincore('passing');
SELECT FROM pgfadvise_willneed('passing');
SELECT FROM pgfadvise_dontneed('passing');
SELECT FROM pgfadvise_sequential('passing');
SELECT FROM pgfadvise_random('passing');
SELECT FROM pgfadvise_normal('passing');
SELECT NULL || pgfincore_drawer(databit) FROM pgfincore('passing', 'main', true);

DROP OWNED BY regress_residency_reader;
DROP ROLE regress_residency_reader;
DROP SCHEMA postgres_air CASCADE;
DROP TABLE measured, empty, pgfincore_snapshot, passing;
DROP FOREIGN DATA WRAPPER nothing CASCADE;
DROP VIEW seen;
DROP TYPE composite;
DROP SCHEMA "Else Where";
