-- the whole server: every file, with the names of all databases
SELECT current_database() AS regression \gset
CREATE DATABASE regress_residency_open;
CREATE DATABASE regress_residency_closed;
CREATE DATABASE regress_residency_left;
\c regress_residency_open
CREATE SCHEMA "Odd.one";
CREATE TABLE "Odd.one"."a ""table""" (a int PRIMARY KEY, b text);
INSERT INTO "Odd.one"."a ""table""" SELECT i, repeat('z', 500) FROM generate_series(1, 10000) i;
CREATE TEMPORARY TABLE temporary_one AS SELECT 1;
CHECKPOINT;
SELECT pg_table_size('"Odd.one"."a ""table"""') - pg_total_relation_size(reltoastrelid) AS size FROM pg_class WHERE relname = 'a "table"' \gset
\c :regression
ALTER DATABASE regress_residency_closed ALLOW_CONNECTIONS false;
-- as an interrupted DROP DATABASE leaves it
UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'regress_residency_left';

SELECT schema, regexp_replace(relation, '\d+', 'N') AS relation, belongs_to, kind, size_bytes > 0 AS size, problem
FROM residency_server
WHERE database = 'regress_residency_open' AND (schema = 'Odd.one' OR belongs_to LIKE '"Odd.one"%') ORDER BY kind;
SELECT size_bytes = :size AS size, page_cache_bytes BETWEEN size_bytes / 2 AND size_bytes AS cached, page_cache_percent BETWEEN 50 AND 100 AS percent,
       shared_buffers_bytes BETWEEN 0 AND size_bytes AS buffers, shared_buffers_percent BETWEEN 0 AND 100 AS buffers_percent,
       database_oid = (SELECT oid FROM pg_database WHERE datname = 'regress_residency_open') AS database_oid, tablespace_oid, relfilenumber > 0 AS file
FROM residency_server WHERE database = 'regress_residency_open' AND relation = 'a "table"';
SELECT count(*) AS temporary FROM residency_server WHERE relation = 'temporary_one';

-- without connections: their files, without names
SELECT database, count(*) > 200 AS files, count(relation) AS names, sum(size_bytes) > 5000000 AS size, problem
FROM residency_server WHERE database LIKE 'regress_residency_%' AND problem IS NOT NULL GROUP BY database, problem ORDER BY 1;

-- the shared catalogs, and this database
SELECT database, schema, relation, kind FROM residency_server
WHERE (schema, relation) = ('pg_catalog', 'pg_database') OR (database = current_database() AND (schema, relation) = ('public', 'two_segments'))
ORDER BY relation;
SELECT r.size_bytes = s.size AS size
FROM residency_server r,
     (SELECT sum(blocks) * current_setting('block_size')::int AS size FROM residency_segments()
      WHERE relfilenumber = pg_relation_filenode('two_segments') AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) s
WHERE r.database = current_database() AND r.relation = 'two_segments';

SELECT shared_buffers_bytes > 0 AS buffers FROM residency_server WHERE relation = 'pg_database';

-- no file is left out, and none is there twice
SELECT count(*) FILTER (WHERE r.relfilenumber IS NULL) AS missing
FROM (SELECT DISTINCT tablespace, database, relfilenumber FROM residency_segments()) s
     LEFT JOIN residency_server r ON (r.tablespace_oid, r.database_oid, r.relfilenumber) = (s.tablespace, s.database, s.relfilenumber);
SELECT count(*) - count(DISTINCT (tablespace_oid, database_oid, relfilenumber)) AS twice FROM residency_server;

-- every column is explained
SELECT attname FROM pg_attribute
WHERE attrelid = 'residency_server'::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;

UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'regress_residency_left';
DROP DATABASE regress_residency_open;
DROP DATABASE regress_residency_closed;
DROP DATABASE regress_residency_left;
