-- restoring a snapshot: by job, and by segment
SELECT count(*) AS snapshots FROM residency_snapshot('restore');

CREATE FUNCTION here() RETURNS oid LANGUAGE sql AS 'SELECT oid FROM pg_database WHERE datname = current_database()';
-- percent of the wanted blocks of a relation's main fork that are resident, rounded to tens: the kernel is not exact
CREATE FUNCTION percent(rel regclass, snapshot text) RETURNS int LANGUAGE sql AS $$
    SELECT (round(10.0 * sum(resident) / sum(wanted)) * 10)::int FROM residency_snapshot_segments(snapshot)
    WHERE relfilenumber = pg_relation_filenode(rel) AND fork = 'main' AND database = here()
$$;
CREATE PROCEDURE wait_for(number int) LANGUAGE plpgsql AS $$
DECLARE
    patience timestamptz := clock_timestamp() + interval '180 s';
BEGIN
    WHILE (SELECT state IN ('starting', 'waiting', 'running') FROM residency_jobs WHERE job = number) LOOP
        IF clock_timestamp() > patience THEN RAISE EXCEPTION 'job % does not end', number; END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
END
$$;

SELECT relation, segments >= 4 AS segments, resident_after < blocks * 0.1 AS evicted, blocks > 140000 AS blocks
FROM residency_evict('two_segments');
SELECT percent('two_segments', 'restore');

SELECT residency_restore_start('restore') AS job \gset
CALL wait_for(:job);
SELECT snapshot, generation, state, segments = segments_done AS all_done, loaded > 130000 AS loaded,
       wanted = resident + over_budget + gone + failed AS adds_up, gone, over_budget, finished_at > started_at AS took_time, message
FROM residency_jobs WHERE job = :job;
SELECT percent('two_segments', 'restore');
SELECT count(*) = (SELECT segments FROM residency_jobs WHERE job = :job) AS a_row_each,
       sum(loaded) = (SELECT loaded FROM residency_jobs WHERE job = :job) AS adds_up
FROM residency_job_segments(:job);
-- by relation, and as progress: the same sums
SELECT sum(r.wanted) = max(j.wanted) AS wanted, sum(r.settled) = max(j.settled) AS settled, sum(r.resident) = max(j.resident) AS resident,
       sum(r.loaded) = max(j.loaded) AS loaded, max(j.settled) = max(j.wanted) AS all_settled
FROM residency_job_relations(:job) r, residency_jobs j WHERE j.job = :job;
SELECT name, kind, loaded > 130000 AS loaded FROM residency_job_relations(:job) WHERE relation = 'two_segments'::regclass AND database = here();

-- a second restore: everything is resident, nothing to load
SELECT residency_restore_start('restore') AS job \gset
CALL wait_for(:job);
SELECT state, loaded < wanted * 0.3 AS hardly_anything_loaded FROM residency_jobs WHERE job = :job;

-- one segment alone
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT segment_no AS no FROM residency_snapshot_segments('restore')
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main' AND segment = 1 AND database = here() \gset
SELECT segment_no = :no AS no, wanted > 8000 AS wanted, resident >= wanted * 0.9 AS resident, loaded > 5000 AS loaded, extra <= wanted * 0.05 AS hardly_extra, over_budget, gone, reason
FROM residency_restore_segment('restore', :no);
SELECT segment, (round(10.0 * resident / wanted) * 10)::int AS percent
FROM residency_snapshot_segments('restore')
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main' AND database = here() ORDER BY segment;

-- scattered blocks: these are restored, and few others
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_drop_snapshot('restore');
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(filler) FROM two_segments WHERE a = ANY (ARRAY(SELECT generate_series(1, 40000, 20)));
COMMIT;
SELECT count(*) AS snapshots FROM residency_snapshot('sparse');
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_restore_start('sparse') AS job \gset
CALL wait_for(:job);
SELECT state, over_budget, gone, resident >= wanted * 0.9 AS resident FROM residency_jobs WHERE job = :job;
SELECT sum(s.resident) < 20000 AS little_else FROM residency_segments() s
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main' AND database = here();

-- a budget: fitting blocks are restored, the others are over budget
SELECT count(filler) FROM two_segments;
SELECT count(*) AS snapshots FROM residency_snapshot('restore');
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_restore_start('restore', '{"budget": 83886080}') AS job \gset
CALL wait_for(:job);
SELECT state, budget_bytes, loaded + extra <= 83886080 / 8192 AS within, loaded > 9000 AS used, over_budget > 100000 AS over_budget,
       wanted = resident + over_budget + gone + failed AS adds_up
FROM residency_jobs WHERE job = :job;
SELECT DISTINCT reason FROM residency_job_segments(:job) WHERE over_budget > 0;

-- a rate makes it slow enough to be canceled; a second job is refused meanwhile
SELECT residency_restore_start('restore', '{"rate": 1048576}') AS job \gset
SELECT state, pid > 0 AS has_pid, rate_bytes FROM residency_jobs WHERE job = :job;
DO $$ BEGIN PERFORM residency_restore_start('restore'); EXCEPTION WHEN object_in_use THEN RAISE NOTICE '%', regexp_replace(SQLERRM, '\d+', 'N'); END $$;
SELECT clock_timestamp() AS canceled_at \gset
SELECT residency_cancel(:job);
CALL wait_for(:job);
SELECT state, message, finished_at - :'canceled_at' < interval '1 s' AS soon FROM residency_jobs WHERE job = :job;
SELECT residency_cancel(:job);

-- selected segments, in the given order; each row identifies its file
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT array_agg(segment_no ORDER BY segment DESC) AS numbers FROM residency_snapshot_segments('restore')
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main' AND database = here() \gset
SELECT residency_restore_start('restore', jsonb_build_object('segments', to_jsonb(:'numbers'::int[]))) AS job \gset
CALL wait_for(:job);
SELECT state, segments, segments_done, resident >= wanted * 0.9 AS resident FROM residency_jobs WHERE job = :job;
SELECT segment_no = ANY (:'numbers'::int[]) AS asked_for, relfilenumber = pg_relation_filenode('two_segments') AS relation, fork, segment, wanted > 8000 AS wanted
FROM residency_job_segments(:job);

-- whole relations, with a snapshot or without one
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_restore_start(NULL, jsonb_build_object('whole', jsonb_build_array(
    jsonb_build_array(1663, here()::bigint, pg_relation_filenode('two_segments')::bigint)))) AS job \gset
CALL wait_for(:job);
SELECT snapshot, state, segments, resident >= 140000 * 0.9 AS resident, over_budget, gone FROM residency_jobs WHERE job = :job;
SELECT segment_no, segment, wanted FROM residency_job_segments(:job);

-- with each option, the relation is restored
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_restore_start('restore', '{"aggressive": true, "gap_blocks": 0}') AS job \gset
CALL wait_for(:job);
SELECT state, resident >= wanted * 0.9 AS resident, extra <= 1000 AS no_extra FROM residency_jobs WHERE job = :job;
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
-- a busy disk slows the restore down, so only the small segment
SELECT residency_restore_start('restore', jsonb_build_object('max_io_pressure', 1, 'gap_blocks', 16, 'segments',
    (SELECT jsonb_agg(segment_no) FROM residency_snapshot_segments('restore')
     WHERE relfilenumber = pg_relation_filenode('two_segments') AND segment = 1))) AS job \gset
CALL wait_for(:job);
SELECT state, resident >= wanted * 0.9 AS resident FROM residency_jobs WHERE job = :job;

-- a time limit ends it too
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT residency_restore_start('restore', '{"rate": 1048576, "time_limit": 1}') AS job \gset
CALL wait_for(:job);
SELECT state, message FROM residency_jobs WHERE job = :job;

-- a statement's own timeout ends the restore of a segment
SELECT resident_after < 1000 AS evicted FROM residency_evict('two_segments');
SELECT segment_no FROM residency_snapshot_segments('restore')
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main' AND segment = 0 AND database = here() \gset
SET statement_timeout = '20ms';
SELECT residency_restore_segment('restore', :segment_no);
RESET statement_timeout;

-- rewritten, truncated and dropped relations: their blocks are gone, the others are restored
SELECT count(*) AS snapshots FROM residency_snapshot('old');
SELECT pg_relation_filenode('"Needs ""quoting"') AS quoted_was, pg_relation_filenode('parted_2') AS parted_was \gset
VACUUM FULL "Needs ""quoting";
TRUNCATE parted_2;
CHECKPOINT;
SELECT relfilenumber = :quoted_was AS rewritten, wanted > 0 AND gone = wanted AS all_gone, resident
FROM residency_snapshot_segments('old')
WHERE relfilenumber IN (:quoted_was, :parted_was) AND fork = 'main' AND database = here() ORDER BY 1;
SELECT residency_restore_start('old') AS job \gset
CALL wait_for(:job);
SELECT state, gone > 0 AS some_gone, wanted = resident + over_budget + gone + failed AS adds_up FROM residency_jobs WHERE job = :job;
SELECT DISTINCT reason FROM residency_job_segments(:job) WHERE gone > 0;

-- errors
SELECT residency_restore_start('nothing');
SELECT residency_restore_start(NULL);
SELECT residency_restore_start('restore', '[1]');
SELECT residency_restore_start('restore', '{"speed": 1}');
SELECT residency_restore_start('restore', '{"segments": 1}');
SELECT residency_restore_start('restore', '{"segments": [1, "x"]}');
SELECT residency_restore_start('restore', '{"segments": [[1]]}');
SELECT residency_restore_start('restore', '{"whole": [1, 2, 3]}');
SELECT residency_restore_start('restore', '{"whole": [[1663, 2]]}');
SELECT residency_restore_start(NULL, '{"whole": [[1663, 1, 4294967295]]}');
SELECT residency_restore_start(NULL, '{"whole": [[1664, 1, 1262]]}');
SELECT residency_restore_start(NULL, '{"whole": [[1663, 0, 1262]]}');
\set VERBOSITY terse
SELECT residency_restore_start('restore', '{"segments": [1000000]}');
\set VERBOSITY default
SELECT residency_restore_start('restore', '{"rate": "fast"}');
SELECT residency_restore_start('restore', '{"rate": 0}');
SELECT residency_restore_start('restore', '{"budget": -1}');
SELECT residency_restore_start('restore', '{"time_limit": 1e20}');
\set VERBOSITY terse
SELECT residency_restore_start('restore', '{"aggressive": 1}');
SELECT residency_restore_start('restore', '{"max_io_pressure": 101}');
SELECT residency_restore_start('restore', '{"gap_blocks": -1}');
SELECT residency_restore_segment('restore', 0);
SELECT residency_restore_start('restore', '{"turn_wait": -1}');
\set VERBOSITY default
SELECT residency_cancel(NULL);
SELECT residency_cancel(999999);
SELECT * FROM residency_job_segments(999999);
SELECT * FROM residency_job_segments(NULL);
SELECT * FROM residency_job_relations(999999);
SELECT * FROM residency_job_relations(NULL);
