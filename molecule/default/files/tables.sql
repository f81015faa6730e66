-- Two tables: one that is read whole before the snapshot, one of which half is.
DROP TABLE IF EXISTS passenger, boarding_pass;

CREATE TABLE passenger (passenger_id integer, last_name text, remark text);
INSERT INTO passenger
SELECT i, 'name ' || i, repeat('x', 100)
FROM generate_series(1, 300000) AS i;
ALTER TABLE passenger ADD PRIMARY KEY (passenger_id);

CREATE TABLE boarding_pass (pass_id integer, passenger_id integer, seat text, remark text);
INSERT INTO boarding_pass
SELECT i, i % 300000 + 1, i % 30 + 1 || substr('ABCDEF', i % 6 + 1, 1), repeat('y', 100)
FROM generate_series(1, 500000) AS i;

-- Nothing rewrites a page behind the tests' back.
VACUUM (FREEZE, ANALYZE) passenger, boarding_pass;
CHECKPOINT;
