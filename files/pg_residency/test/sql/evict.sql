-- evicting relations from the page cache
CREATE UNLOGGED TABLE unlogged_one AS SELECT i AS a FROM generate_series(1, 100000) i;
CREATE INDEX ON unlogged_one (a);

-- dirty pages are evicted after a checkpoint
INSERT INTO toasted SELECT i, repeat('z', 10000) FROM generate_series(1, 2000) i;
SELECT relation, segments >= 2 AS with_toast, blocks > 2000 AS has_blocks, resident_after <= blocks * 0.1 AS evicted, coalesce(dirty_after, 0) AS dirty
FROM residency_evict('toasted');
SELECT relation, resident_after <= blocks * 0.1 AS evicted FROM residency_evict('unlogged_one');

-- a partitioned table means its partitions, a partitioned index its indexes
SELECT relation, segments >= 2 AS partitions, blocks > 400 AS has_blocks FROM residency_evict('parted');
CREATE INDEX parted_a ON parted (a);
SELECT relation, segments >= 2 AS partitions, blocks > 200 AS has_blocks FROM residency_evict('parted_a');

-- an index alone
SELECT relation, segments >= 1 AS segments, resident_after <= blocks * 0.1 AS evicted FROM residency_evict('two_segments_a');

-- its blocks only, not those of other relations
SELECT count(*) FROM "Needs ""quoting";
SELECT blocks_in_page_cache + blocks_in_shared_buffers >= blocks AS neighbour_still_cached FROM residency_relations WHERE relation = '"Needs ""quoting"'::regclass;

-- errors for relations without files, and temporary ones
CREATE VIEW a_view AS SELECT 1;
SELECT * FROM residency_evict('a_view');
SELECT * FROM residency_evict(NULL);
SELECT * FROM residency_evict(4294967295);
CREATE TEMPORARY TABLE temporary_two (a int);
SELECT * FROM residency_evict('temporary_two');
