-- A million rows in 20,409 blocks, as in the article
CREATE TABLE million (id integer, filler text);
INSERT INTO million SELECT i, repeat('x', 126) FROM generate_series(1, 1000000) AS i;
CREATE EXTENSION IF NOT EXISTS pg_buffercache;
VACUUM (FREEZE, ANALYZE) million;
CHECKPOINT;
