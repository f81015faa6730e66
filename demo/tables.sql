-- Tables after postgres_air's. boarding_pass is larger than 1 GiB: two segments.
BEGIN;

CREATE TABLE passenger (
    passenger_id integer NOT NULL,
    booking_id bigint NOT NULL,
    passenger_no integer,
    first_name text NOT NULL,
    last_name text NOT NULL,
    account_id integer,
    update_ts timestamptz,
    age integer
);
INSERT INTO passenger
SELECT i, i / 2, i % 2 + 1, 'First' || i % 5000, 'Last' || i % 40000, i / 3,
       timestamptz '2024-01-01' + i * interval '1 second', i % 90
FROM generate_series(1, 2500000) AS i;

CREATE TABLE boarding_pass (
    pass_id integer NOT NULL,
    passenger_id bigint NOT NULL,
    booking_leg_id bigint NOT NULL,
    seat text,
    boarding_time timestamptz,
    precheck boolean,
    update_ts timestamptz
);
INSERT INTO boarding_pass
SELECT i, i::bigint * 7919 % 2500000 + 1, i / 2, (i % 30 + 1)::text || substr('ABCDEF', i / 30 % 6 + 1, 1),
       timestamptz '2024-01-01' + i * interval '2 seconds', i % 4 = 0, timestamptz '2024-01-01'
FROM generate_series(1, 16500000) AS i;

ALTER TABLE passenger ADD PRIMARY KEY (passenger_id);
COMMIT;

-- Hint bits and the visibility map now, so that the queries measured later only read.
VACUUM (FREEZE, ANALYZE) passenger, boarding_pass;
CHECKPOINT;

SELECT relname, pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class WHERE relname IN ('passenger', 'boarding_pass');
