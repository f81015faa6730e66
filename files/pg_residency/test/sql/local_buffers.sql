-- the local buffers of a session: counted, written, read, dirtied and evicted
\set VERBOSITY default
\c

-- before a temporary relation is used, there are none
SELECT pg_allocated_local_buffers(), pg_dirtied_local_buffers(), pg_flush_local_buffers();
SET temp_buffers = '8MB';

-- what EXPLAIN counts of a call, beside its result
CREATE FUNCTION pg_temp.local(call text, OUT result bigint, OUT hit bigint, OUT read bigint, OUT dirtied bigint, OUT written bigint)
LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb;
BEGIN
    EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT set_config(''test.result'', (%s)::text, false)', call) INTO plan;
    plan := plan -> 0 -> 'Plan';
    SELECT current_setting('test.result'), plan -> 'Local Hit Blocks', plan -> 'Local Read Blocks', plan -> 'Local Dirtied Blocks',
           plan -> 'Local Written Blocks'
    INTO result, hit, read, dirtied, written;
END
$$;
CREATE FUNCTION pg_temp.blocks(relation regclass) RETURNS bigint LANGUAGE sql AS $$
    SELECT pg_relation_size(relation) / current_setting('block_size')::bigint
$$;
CREATE FUNCTION pg_temp.in_file(relation regclass, marker text) RETURNS boolean LANGUAGE sql AS $$
    SELECT pg_relation_filepath(relation) ~ '/t\d+_\d+$'
           AND position(convert_to(marker, 'UTF8') IN pg_read_binary_file(pg_relation_filepath(relation))) > 0
$$;

-- --- written once, and counted ---

-- a row in each block; the marker is in two parts here so that it is in no other file
CREATE TEMPORARY TABLE t (a int, b text) WITH (fillfactor = 10);
ALTER TABLE t ALTER b SET STORAGE PLAIN;
INSERT INTO t SELECT i, repeat('x', 700) FROM generate_series(1, 300) i;
SELECT pg_temp.blocks('t') >= 300 AS blocks, pg_dirtied_local_buffers() BETWEEN 300 AND pg_allocated_local_buffers() AS dirty;
SELECT pg_flush_local_buffers() >= 300 AS written;
UPDATE t SET b = 'marker-' || 'one' WHERE a = 300;
SELECT pg_temp.in_file('t', 'marker-' || 'one');
SELECT pg_dirtied_local_buffers() AS dirty;
SELECT * FROM pg_temp.local('pg_flush_local_buffers()');
SELECT pg_temp.in_file('t', 'marker-' || 'one');
SELECT * FROM pg_temp.local('pg_flush_local_buffers()');
SELECT pg_dirtied_local_buffers() AS dirty;

-- --- all blocks of the relation: the numbers below are those of its file ---

SELECT l.result = n AS result, hit = n AS hit, read, dirtied = n AS dirtied, written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_temp_buffers_dirty(''t'')') l;
SELECT pg_dirtied_local_buffers() = pg_temp.blocks('t') AS all_dirty;
SELECT l.result = n AS result, hit, read, dirtied, written = n AS written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_flush_local_buffers()') l;
-- evicting writes what is dirty
SELECT pg_temp_buffers_dirty('t') = pg_temp.blocks('t') AS all_dirty;
SELECT l.result >= n AS result, hit, read, dirtied, written = n AS written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_evict_local_buffers(''t'')') l;
SELECT * FROM pg_temp.local('pg_evict_local_buffers(''t'')');
-- each block is read once, in either order, and is then there
SELECT l.result = n AS result, hit, read = n AS read, dirtied, written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_read_temp_relation(''t'', false)') l;
SELECT l.result = n AS result, hit = n AS hit, read
FROM pg_temp.blocks('t') n, pg_temp.local('pg_read_temp_relation(''t'', true)') l;
SELECT pg_evict_local_buffers('t') = pg_temp.blocks('t') AS evicted;
SELECT l.result = n AS result, hit, read = n AS read, dirtied, written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_read_temp_relation(''t'', true, 7)') l;
SELECT l.result = n AS result, hit = n AS hit, read
FROM pg_temp.blocks('t') n, pg_temp.local('pg_read_temp_relation(''t'', false, NULL, false)') l;
SELECT pg_evict_local_buffers('t') = pg_temp.blocks('t') AS evicted;
SELECT l.result = n AS result, hit, read = n AS read, dirtied = n AS dirtied, written
FROM pg_temp.blocks('t') n, pg_temp.local('pg_temp_buffers_dirty(''t'')') l;
SELECT count(*), sum(a), count(DISTINCT b) FROM t;

-- --- other forks, indexes, TOAST ---

CREATE TEMPORARY TABLE wide (a int PRIMARY KEY, b text);
ALTER TABLE wide ALTER b SET STORAGE EXTERNAL;
INSERT INTO wide SELECT i, repeat(chr(64 + i % 26), 5000) FROM generate_series(1, 200) i;
VACUUM wide;
INSERT INTO wide SELECT i, repeat(chr(64 + i % 26), 5000) FROM generate_series(201, 300) i;
SELECT reltoastrelid AS toast FROM pg_class WHERE oid = 'wide'::regclass \gset
SELECT indexrelid AS toast_index FROM pg_index WHERE indrelid = :toast \gset
SELECT pg_temp.blocks(:toast) > 200 AS toast, pg_temp.blocks(:toast_index) > 0 AS toast_index, pg_relation_size('wide', 'vm') > 0 AS vm;
CREATE FUNCTION pg_temp.blocks_of_all() RETURNS bigint LANGUAGE sql AS $$
    SELECT sum(pg_temp.blocks(r))::bigint FROM pg_class c, pg_index i,
           LATERAL (VALUES (c.oid), (c.reltoastrelid), (i.indexrelid), ('wide_pkey'::regclass)) v (r)
    WHERE c.oid = 'wide'::regclass AND i.indrelid = c.reltoastrelid
$$;
SELECT pg_flush_local_buffers() > 0 AS flushed;
-- visibility and free space maps are evicted too
SELECT pg_evict_local_buffers('wide') > pg_temp.blocks('wide') AS with_other_forks, pg_evict_local_buffers('wide') AS again;
SELECT pg_evict_local_buffers('wide', true) >= pg_temp.blocks(:toast) + pg_temp.blocks(:toast_index) AS dependents;
SELECT l.result = n AS result, read = n AS read, hit FROM pg_temp.blocks('wide') n, pg_temp.local('pg_read_temp_relation(''wide'', true)') l;
SELECT l.result = n AS result, hit = m AS hit, read = n - m AS read
FROM pg_temp.blocks_of_all() n, pg_temp.blocks('wide') m, pg_temp.local('pg_read_temp_relation(''wide'', true, 1, true)') l;
SELECT l.result = n AS result, hit = n AS hit, dirtied = n AS dirtied
FROM pg_temp.blocks_of_all() n, pg_temp.local('pg_temp_buffers_dirty(''wide'', true)') l;
SELECT l.written = n AS written FROM pg_temp.blocks_of_all() n, pg_temp.local('pg_evict_local_buffers(''wide'', true)') l;
-- one of them alone
SELECT l.result = n AS result, read = n AS read FROM pg_temp.blocks('wide_pkey') n, pg_temp.local('pg_read_temp_relation(''wide_pkey'', false)') l;
SELECT l.result = n AS result, read = n AS read
FROM pg_temp.blocks(:toast) n, pg_temp.local(format('pg_read_temp_relation(%s::regclass, false)', :toast)) l;
SET enable_seqscan = off;
SELECT count(*), count(DISTINCT b), sum(length(b)) FROM wide WHERE a > 0;
RESET enable_seqscan;

-- a partitioned table or index means its partitions; a sequence has a block, an empty table none
CREATE TEMPORARY TABLE parted_temp (a int) PARTITION BY RANGE (a);
SELECT pg_read_temp_relation('parted_temp', true), pg_temp_buffers_dirty('parted_temp', true), pg_evict_local_buffers('parted_temp', true);
CREATE TEMPORARY TABLE parted_temp_1 PARTITION OF parted_temp FOR VALUES FROM (0) TO (1000);
CREATE TEMPORARY TABLE parted_temp_2 PARTITION OF parted_temp FOR VALUES FROM (1000) TO (2000);
CREATE INDEX parted_temp_a ON parted_temp (a);
INSERT INTO parted_temp SELECT generate_series(0, 1999);
SELECT pg_read_temp_relation('parted_temp', false) = pg_temp.blocks('parted_temp_1') + pg_temp.blocks('parted_temp_2') AS partitions,
       pg_read_temp_relation('parted_temp_a', true) = pg_temp.blocks('parted_temp_1_a_idx') + pg_temp.blocks('parted_temp_2_a_idx') AS indexes;
SELECT pg_temp_buffers_dirty('parted_temp', true) = sum(pg_temp.blocks(r)) AS all_of_it
FROM unnest('{parted_temp_1, parted_temp_2, parted_temp_1_a_idx, parted_temp_2_a_idx}'::regclass[]) r;
SELECT pg_evict_local_buffers('parted_temp', true) >= pg_temp.blocks('parted_temp_1') + pg_temp.blocks('parted_temp_2') AS evicted,
       (SELECT sum(a) FROM parted_temp);
CREATE TEMPORARY SEQUENCE s;
SELECT nextval('s'), pg_read_temp_relation('s', false), pg_temp_buffers_dirty('s'), pg_evict_local_buffers('s'), nextval('s');
CREATE TEMPORARY TABLE nothing (a text);
SELECT pg_read_temp_relation('nothing', true), pg_read_temp_relation('nothing', false, NULL, true), pg_temp_buffers_dirty('nothing'), pg_evict_local_buffers('nothing');
DROP TABLE wide, parted_temp, nothing;
SELECT pg_flush_local_buffers() >= 0 AS flushed;

-- --- cursors and running queries ---

BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t ORDER BY ctid;
DECLARE d CURSOR FOR SELECT a FROM t;
FETCH d;
UPDATE t SET a = a WHERE a = 1;
SELECT pg_dirtied_local_buffers() AS dirty \gset
SELECT pg_flush_local_buffers() = :dirty AS flushed, :dirty > 0 AS some, pg_flush_local_buffers() AS again;
SAVEPOINT pinned;
SELECT pg_evict_local_buffers('t');
ROLLBACK TO pinned;
SELECT pg_temp_buffers_dirty('t') = pg_temp.blocks('t') AS dirtied;
FETCH d;
CLOSE d;
SELECT pg_evict_local_buffers('t') >= pg_temp.blocks('t') AS evicted;
FETCH c;
COMMIT;
SELECT pg_evict_local_buffers('t') FROM t;
SELECT pg_temp_buffers_dirty('t') = pg_temp.blocks('t') AS dirtied FROM t LIMIT 1;
-- one relation is pinned: none is evicted
BEGIN;
CREATE INDEX t_a ON t (a);
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH c;
SELECT pg_read_temp_relation('t_a', false) = pg_temp.blocks('t_a') AS read;
SAVEPOINT pinned;
SELECT pg_evict_local_buffers('t', true);
ROLLBACK TO pinned;
SELECT hit = pg_temp.blocks('t_a') AS still_there FROM pg_temp.local('pg_read_temp_relation(''t_a'', false)');
SELECT pg_evict_local_buffers('t_a') = pg_temp.blocks('t_a') AS index_alone;
ROLLBACK;

-- --- savepoints, aborted subtransactions, dropped and truncated tables ---

BEGIN;
UPDATE t SET a = -a;
SAVEPOINT one;
UPDATE t SET a = a * 1000;
SELECT pg_flush_local_buffers() > 0 AS flushed, pg_evict_local_buffers('t') > 0 AS evicted;
CREATE TEMPORARY TABLE aborted AS SELECT generate_series(1, 10000) AS a;
SELECT pg_temp_buffers_dirty('aborted') > 0 AS dirtied;
ROLLBACK TO one;
SELECT pg_flush_local_buffers(), sum(a) FROM t;
CREATE TEMPORARY TABLE dropped AS SELECT generate_series(1, 10000) AS a;
SELECT pg_temp_buffers_dirty('dropped') > 0 AS dirtied;
DROP TABLE dropped;
SELECT pg_flush_local_buffers() > 0 AS flushed;
TRUNCATE t;
SELECT pg_read_temp_relation('t', true), pg_temp_buffers_dirty('t'), pg_evict_local_buffers('t'), count(*) FROM t;
INSERT INTO t VALUES (1, 'a new file');
SELECT pg_flush_local_buffers(), pg_evict_local_buffers('t'), pg_read_temp_relation('t', true), sum(a) FROM t;
ROLLBACK TO one;
SELECT pg_evict_local_buffers('t') > 0 AS evicted, sum(a) FROM t;
ROLLBACK;
SELECT pg_evict_local_buffers('t') > 0 AS evicted, count(*), sum(a) FROM t;
SELECT pg_flush_local_buffers() >= 0 AS flushed, pg_dirtied_local_buffers();
BEGIN;
CREATE TEMPORARY TABLE passing (a int) ON COMMIT DELETE ROWS;
INSERT INTO passing SELECT generate_series(1, 10000);
SELECT pg_evict_local_buffers('passing') > 0 AS evicted;
COMMIT;
SELECT pg_read_temp_relation('passing', true), pg_dirtied_local_buffers();
TRUNCATE t;
SELECT pg_read_temp_relation('t', true), pg_evict_local_buffers('t');
-- memory is kept
SELECT pg_allocated_local_buffers() >= 300 AS allocated;

-- --- more blocks than buffers, and a temporary tablespace ---

SET temp_buffers = 100;
\c
SET temp_buffers = 100;
SET client_min_messages = error;
DROP TABLESPACE IF EXISTS regress_residency_temp;
RESET client_min_messages;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_residency_temp LOCATION '';
SET temp_tablespaces = regress_residency_temp;
CREATE TEMPORARY TABLE big (a int, b text) WITH (fillfactor = 10);
INSERT INTO big SELECT i, repeat('x', 700) FROM generate_series(1, 1000) i;
SELECT pg_relation_filepath('big') ~ '^pg_tblspc/\d+/PG_.*/t\d+_\d+$' AS in_tablespace, pg_allocated_local_buffers();
UPDATE big SET b = 'marker-' || 'two' WHERE a % 100 = 7;
SELECT pg_flush_local_buffers() > 0 AS flushed,
       position(convert_to('marker-' || 'two', 'UTF8') IN pg_read_binary_file(pg_relation_filepath('big'))) > 0 AS in_file;
SELECT pg_temp_buffers_dirty('big') = pg_relation_size('big') / 8192 AS dirtied, pg_dirtied_local_buffers();
SELECT pg_read_temp_relation('big', true) = pg_relation_size('big') / 8192 AS read, pg_allocated_local_buffers();
SELECT pg_evict_local_buffers('big'), pg_dirtied_local_buffers(), count(*), count(DISTINCT b) FROM big;
SET temp_buffers = 200;
DROP TABLE big;
SELECT pg_allocated_local_buffers(), pg_dirtied_local_buffers(), pg_flush_local_buffers();
DROP TABLESPACE regress_residency_temp;
RESET temp_tablespaces;

-- --- errors ---

CREATE TEMPORARY TABLE few AS SELECT 1 AS a;
CREATE TEMPORARY VIEW few_view AS SELECT * FROM few;
SELECT pg_read_temp_relation(NULL, true);
SELECT pg_read_temp_relation('few', NULL);
SELECT pg_read_temp_relation('few', true, 1, NULL);
SELECT pg_temp_buffers_dirty(NULL);
SELECT pg_temp_buffers_dirty('few', NULL);
SELECT pg_evict_local_buffers(NULL);
SELECT pg_evict_local_buffers('few', NULL);
SELECT pg_read_temp_relation('few_view', true);
SELECT pg_read_temp_relation('toasted', true);
SELECT pg_temp_buffers_dirty('two_segments_a');
SELECT pg_evict_local_buffers('parted');
SELECT pg_evict_local_buffers('pg_class', true);
SELECT pg_evict_local_buffers(4294967295);
-- in parallel mode, where only a wrong declaration leads
CREATE FUNCTION wrongly_safe(call text) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE 'SELECT ' || call INTO n;
    RETURN n;
END
$$;
CREATE FUNCTION in_parallel(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM wrongly_safe(call) FROM two_segments;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END
$$ SET parallel_setup_cost = 0 SET parallel_tuple_cost = 0 SET min_parallel_table_scan_size = 0;
SELECT call, in_parallel(call)
FROM unnest('{"1", pg_allocated_local_buffers(), pg_dirtied_local_buffers(), pg_flush_local_buffers(),
             "pg_read_temp_relation(''few'', true)", pg_temp_buffers_dirty(''few''), pg_evict_local_buffers(''few'')}'::text[]) call;
DROP FUNCTION in_parallel(text), wrongly_safe(text);
