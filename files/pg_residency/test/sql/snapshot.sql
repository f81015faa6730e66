-- taking, listing and dropping snapshots, of a table that has just been read
SELECT count(filler) FROM two_segments;
SELECT name, generation, in_recovery, system_identifier = (SELECT system_identifier FROM pg_control_system()) AS of_this_cluster,
       timeline = (SELECT timeline_id FROM pg_control_checkpoint()) AS of_this_timeline,
       server_version_num = current_setting('server_version_num')::int AS of_this_version,
       wanted > 140000 AS wanted_much, wanted <= blocks AS not_more_than_there_is, file_bytes < 100000 AS small,
       length(digest) AS digest_length, problem, now() - taken_at < interval '1 minute' AS just_now
FROM residency_snapshot('warm');

-- it has the blocks of both caches: those of one only, and those of both
SELECT in_page_cache + in_shared_buffers - in_both = wanted AS adds_up, in_shared_buffers > 0 AS buffers, in_page_cache > 140000 AS page_cache
FROM residency_snapshots();
SELECT sum(g.wanted) = max(s.wanted) AS segments_add_up, sum(g.in_shared_buffers) = max(s.in_shared_buffers) AS buffers_add_up
FROM residency_snapshots() s, residency_snapshot_segments('warm') g;
-- a block that only shared buffers hold is wanted as well
SELECT count(*) FROM "Needs ""quoting";
SELECT resident_after AS in_page_cache FROM residency_evict('"Needs ""quoting"');
SELECT count(*) AS snapshots FROM residency_snapshot('buffers');
SELECT wanted >= 40 AND wanted = in_shared_buffers AS only_in_buffers, resident = wanted AS resident
FROM residency_snapshot_segments('buffers') s, pg_database d
WHERE relfilenumber = pg_relation_filenode('"Needs ""quoting"') AND fork = 'main' AND s.database = d.oid AND d.datname = current_database();
SELECT residency_drop_snapshot('buffers');

-- a segment that is cached as a whole takes some tens of bytes
SELECT s.file_bytes::float / s.segments < 100 AS tens_of_bytes_a_segment FROM residency_snapshots() s;

-- generations: two are kept by default
SELECT generation FROM residency_snapshot('warm');
SELECT generation FROM residency_snapshot('warm');
SELECT name, generation FROM residency_snapshots();
SELECT generation, current, thin, measure FROM residency_snapshot('warm', 1, force => true);
SELECT generation FROM residency_snapshot('other.one-2');
SELECT name, generation, problem FROM residency_snapshots();

-- the file has the mode of the cluster's files, no temporary name, and the digest of its content
SELECT s.name, encode(sha256(pg_read_binary_file('pg_residency/' || s.name || '@' || s.generation || '.snapshot')), 'hex') = digest AS digest_is_right
FROM residency_snapshots() s;
SELECT count(*) AS unfinished FROM pg_ls_dir('pg_residency') f WHERE f LIKE 'pgsql_tmp.snapshot%';

-- the wanted blocks of the table of two segments, by segment
SELECT segment, blocks, wanted >= blocks * 0.9 AS wanted, resident >= wanted * 0.9 AS resident, gone
FROM residency_snapshot_segments('warm')
WHERE relfilenumber = pg_relation_filenode('two_segments') AND fork = 'main'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY segment;
SELECT min(segment_no) = 1 AND max(segment_no) = count(*) AS numbered FROM residency_snapshot_segments('other.one-2');

-- a generation of its own
SELECT count(*) > 0 AS found FROM residency_snapshot_segments('warm@4');
SELECT * FROM residency_snapshot_segments('warm@3');

-- errors
SELECT * FROM residency_snapshot(NULL);
SELECT * FROM residency_snapshot('');
SELECT * FROM residency_snapshot('../escape');
SELECT * FROM residency_snapshot('.hidden');
SELECT * FROM residency_snapshot('warm@1');
SELECT * FROM residency_snapshot('a23456789012345678901234567890123456789012345678901234567890abcd');
SELECT * FROM residency_snapshot('warm', 0);
SELECT * FROM residency_snapshot_segments('nothing');
SELECT * FROM residency_snapshot_segments('warm@0');
SELECT * FROM residency_snapshot_segments(NULL);
SELECT residency_drop_snapshot('nothing');
SELECT residency_drop_snapshot('warm@3');
SELECT residency_drop_snapshot('warm@x');

-- the names of its relations are stored with it, quoted as in SQL, with their owners
SELECT kind, name, owner_name, relation = to_regclass(name) AS relation, owner = to_regclass(owner_name) AS owner,
       relfilenumber = pg_relation_filenode(to_regclass(name)) AS relfilenumber, tablespace, partition_of, problem
FROM residency_snapshot_names('warm')
WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (name LIKE 'public.%' OR owner_name LIKE 'public.%')
  AND kind NOT LIKE 'toast%'
ORDER BY name COLLATE "C";
SELECT DISTINCT kind, owner_name, name LIKE 'pg\_toast.pg\_toast\_%' AS toast
FROM residency_snapshot_names('warm')
WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND kind LIKE 'toast%' AND owner_name = 'public.toasted'
ORDER BY 1, 2;
SELECT database, tablespace, name FROM residency_snapshot_names('warm') WHERE database = 0 AND name = 'pg_catalog.pg_database';
SELECT name, problem FROM residency_snapshot_names('warm') WHERE kind = 'database' AND name LIKE 'template%' ORDER BY 1;
-- each relation once, and each that has a segment in it
SELECT count(*) = count(DISTINCT (database, tablespace, relfilenumber)) AS once FROM residency_snapshot_names('warm') WHERE kind <> 'database';
SELECT count(*) AS unnamed
FROM residency_snapshot_relations('warm') r JOIN pg_database d ON d.oid = r.database AND d.datallowconn
WHERE r.name IS NULL;
SELECT r.name, r.blocks = g.blocks AS blocks, r.wanted = g.wanted AS wanted, r.resident >= g.wanted * 0.9 AS resident, r.gone, r.heat > 0 AS heat
FROM residency_snapshot_relations('warm') r,
     (SELECT database, tablespace, relfilenumber, sum(blocks) AS blocks, sum(wanted) AS wanted
      FROM residency_snapshot_segments('warm') GROUP BY 1, 2, 3) g
WHERE (r.database, r.tablespace, r.relfilenumber) = (g.database, g.tablespace, g.relfilenumber) AND r.name = 'public.two_segments';
-- the current names, of selected databases
SELECT DISTINCT kind FROM residency_current_names(ARRAY[0]::oid[]) ORDER BY 1;
SELECT count(*) FROM residency_current_names(ARRAY[]::oid[]);
SELECT name FROM residency_current_names(ARRAY[(SELECT oid FROM pg_database WHERE datname = current_database())])
WHERE name = 'public.two_segments';
SELECT residency_current_names(ARRAY[4294967294]::oid[]);
SELECT count(*) AS once FROM residency_current_names(array_fill((SELECT oid FROM pg_database WHERE datname = 'template1'), ARRAY[1000]))
WHERE kind = 'database';
SELECT residency_current_names(ARRAY[NULL]::oid[]);
SELECT residency_snapshot_names('nothing');
SELECT residency_snapshot_names(NULL);
SELECT residency_snapshot_relations(NULL);
SELECT count(*) AS left_behind FROM pg_ls_dir('pg_residency') f WHERE f LIKE 'pgsql_tmp.names%';

-- a dropped generation's number is not used again
SELECT residency_drop_snapshot('other.one-2');
SELECT count(*) AS left_behind FROM pg_ls_dir('pg_residency') f WHERE f LIKE 'other%';
SELECT generation FROM residency_snapshot('other.one-2');
SELECT residency_drop_snapshot('other.one-2@2');
SELECT generation FROM residency_snapshot('other.one-2');
SELECT residency_drop_snapshot('other.one-2');
SELECT name, generation FROM residency_snapshots();

-- damaged files are listed with the reason, and refused
SELECT current_setting('data_directory') || '/pg_residency/warm@4.snapshot' AS file \gset
\setenv SNAPSHOT :file
\! head -c 100 "$SNAPSHOT" > "${SNAPSHOT%/*}/cut@1.snapshot"
\! cp "$SNAPSHOT" "${SNAPSHOT%/*}/body@1.snapshot" && printf 'X' | dd of="${SNAPSHOT%/*}/body@1.snapshot" bs=1 seek=700 conv=notrunc status=none
\! cp "$SNAPSHOT" "${SNAPSHOT%/*}/head@1.snapshot" && printf '\377' | dd of="${SNAPSHOT%/*}/head@1.snapshot" bs=1 seek=23 conv=notrunc status=none
\! : > "${SNAPSHOT%/*}/empty@1.snapshot"
SELECT name, generation, problem FROM residency_snapshots();
SELECT * FROM residency_snapshot_segments('body');
SELECT residency_restore_start('head');
SELECT residency_restore_segment('empty', 1);
SELECT residency_drop_snapshot(name) FROM residency_snapshots() WHERE problem IS NOT NULL;
