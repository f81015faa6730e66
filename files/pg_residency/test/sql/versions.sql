-- a library that does not fit the SQL of a database raises an error, and does not read foreign memory
SET client_min_messages = warning;
CREATE SCHEMA "Else Where";
CREATE EXTENSION pg_residency SCHEMA "Else Where";
CREATE FUNCTION another_segments(oid, OUT a oid, OUT b oid) RETURNS SETOF record AS '$libdir/pg_residency', 'residency_segments' LANGUAGE C;
SELECT * FROM another_segments(NULL);
CREATE FUNCTION another_snapshot(text, int, OUT a text, OUT b int) RETURNS record AS '$libdir/pg_residency', 'residency_snapshot' LANGUAGE C;
SELECT * FROM another_snapshot('of_another_version', 1);
SELECT count(*) AS taken FROM "Else Where".residency_snapshots() WHERE name ~ 'version';

DROP FUNCTION another_segments(oid), another_snapshot(text, int);
DROP EXTENSION pg_residency;
DROP SCHEMA "Else Where";
