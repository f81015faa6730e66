-- the module, its version, and the residency of the cluster
CREATE EXTENSION pg_residency;
SELECT residency_version() = extversion AS library_matches_sql FROM pg_extension WHERE extname = 'pg_residency';

CREATE SCHEMA elsewhere;
ALTER EXTENSION pg_residency SET SCHEMA elsewhere;
SELECT count(*) > 0 AS works_in_another_schema FROM elsewhere.residency_relations;
ALTER EXTENSION pg_residency SET SCHEMA public;
DROP SCHEMA elsewhere;

-- One row of 700 bytes a block and more than 131,072 blocks: a relation of two segments, little WAL.
CREATE TABLE two_segments (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE two_segments ALTER filler SET STORAGE PLAIN;
INSERT INTO two_segments SELECT i, repeat('x', 700) FROM generate_series(1, 140000) i;
CREATE INDEX two_segments_a ON two_segments (a);
CREATE TABLE toasted (a int, b text);
ALTER TABLE toasted ALTER b SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT i, repeat('y', 10000) FROM generate_series(1, 200) i;
CREATE TABLE parted (a int) PARTITION BY RANGE (a);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100000);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100000) TO (200000);
INSERT INTO parted SELECT generate_series(0, 199999);
CREATE TABLE "Needs ""quoting" (a int);
INSERT INTO "Needs ""quoting" SELECT generate_series(1, 10000);
CREATE TEMPORARY TABLE temporary_one AS SELECT generate_series(1, 10000) AS a;
VACUUM ANALYZE;
CHECKPOINT;

-- every file of the table, in the order of its segments, just written and so all resident (all but a tenth at least:
-- the kernel may reclaim pages at any time)
SELECT fork, segment, blocks, resident >= blocks * 0.9 AS resident, dirty IS NULL OR dirty >= 0 AS dirty_known
FROM residency_segments()
WHERE relfilenumber = pg_relation_filenode('two_segments')
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND fork = 'main'
ORDER BY segment;

-- the scan finds the blocks that PostgreSQL reports
SELECT sum(blocks) * current_setting('block_size')::int = pg_relation_size('two_segments') AS same_size
FROM residency_segments()
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- one database means its relations and the shared catalogs
SELECT DISTINCT CASE database WHEN 0 THEN 'shared' WHEN d.oid THEN 'this' ELSE 'another' END AS database
FROM pg_database d, residency_segments(d.oid) WHERE d.datname = current_database() ORDER BY 1;

-- temporary relations are left out
SELECT count(*) AS temporary FROM residency_segments() s WHERE relfilenumber = pg_relation_filenode('temporary_one');

-- read once more, because the kernel may have reclaimed pages
SELECT count(length(pg_read_binary_file(pg_relation_filepath(relation)))) >= 5 AS read_again
FROM residency_relations
WHERE (relation IN ('two_segments'::regclass, 'parted_1'::regclass) OR belongs_to IN ('two_segments'::regclass, 'toasted'::regclass)
       OR belongs_to = (SELECT reltoastrelid FROM pg_class WHERE oid = 'toasted'::regclass) OR relation = '"Needs ""quoting"'::regclass)
      AND blocks BETWEEN 1 AND 10000;

-- indexes and TOAST tables name the table they belong to
SELECT regexp_replace(relation::text, '\d+', 'N') AS relation, kind, belongs_to, blocks > 0 AS has_blocks,
       blocks_in_page_cache BETWEEN blocks * 0.5 AND blocks AS in_page_cache
FROM residency_relations
WHERE relation IN ('two_segments'::regclass, 'parted_1'::regclass) OR belongs_to IN ('two_segments'::regclass, 'toasted'::regclass)
   OR belongs_to = (SELECT reltoastrelid FROM pg_class WHERE oid = 'toasted'::regclass) OR relation = '"Needs ""quoting"'::regclass
ORDER BY 1, belongs_to::text;
SELECT relation, blocks_in_shared_buffers > 0 AS in_shared_buffers FROM residency_relations WHERE relation = 'pg_class'::regclass;
SELECT b.blocks > 0 AS buffers_agree
FROM residency_shared_buffers() b
WHERE b.relfilenumber = pg_relation_filenode('pg_class') AND b.fork = 'main'
  AND b.database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- a block in both caches counts in each, and in blocks_in_both
SELECT relation, blocks_in_both BETWEEN 1 AND least(blocks_in_page_cache, blocks_in_shared_buffers) AS in_both
FROM residency_relations WHERE relation = '"Needs ""quoting"'::regclass;
SELECT bool_and(in_page_cache IS NULL) AS not_asked_for FROM residency_shared_buffers();
SELECT bool_and(in_page_cache BETWEEN 0 AND blocks) AS not_more_than_buffers FROM residency_shared_buffers(true);

-- the buffers of one relation; a block just written is dirty
UPDATE "Needs ""quoting" SET a = a WHERE a = 1;
SELECT count(*) FILTER (WHERE dirty) >= 1 AS some_dirty, bool_and(usage_count BETWEEN 0 AND 5) AS usage_count,
       count(DISTINCT (fork, block)) = count(*) AS once_each, max(block) FILTER (WHERE fork = 'main') < 100 AS block
FROM residency_buffers('"Needs ""quoting"');
SELECT count(*) FROM residency_buffers(NULL);
CREATE VIEW nothing_stored AS SELECT 1;
SELECT count(*) FROM residency_buffers('nothing_stored');
DROP VIEW nothing_stored;

-- the budget is smaller than the available memory
SELECT budget_bytes > 0 AND budget_bytes < memory_available_bytes AS budget_is_less, reserve_bytes > 0 AS something_is_reserved
FROM residency_budget();
