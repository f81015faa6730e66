#!/bin/sh
# Builds and tests the extension: unit tests, then the SQL and replication tests against throwaway clusters.
#
#   tests/extension/run.sh [major]      the PostgreSQL to test, 15 by default; its packages are installed
#
# Needs root, to run the servers as the user postgres; see server.sh. Everything at once follows (stress.py) for
# STRESS_SECONDS, 60 by default, 0 for not at all, with STRESS_SEED.
# Beside them the reader of snapshots is fuzzed for FUZZ_SECONDS, 60 by default, 0 for not at all.
# With PGFINCORE=, the directory of pgfincore's source, its own regression test runs too, with our functions.
# With EXPECT=1 the results of the SQL tests replace the expected ones: check the difference before you commit it.
set -eu

major=${1:-15}
# shellcheck source=tests/extension/server.sh
. "$(dirname "$0")/server.sh"

build_extension

echo "== unit tests"
make -s PG_CONFIG="$bin/pg_config" check-unit

make_device
make_throttle
find "$work" -mindepth 1 -maxdepth 1 ! -name cgroup -exec chown -R postgres: {} +
chown postgres: "$work"
seconds=${FUZZ_SECONDS:-60}
if [ "$seconds" -gt 0 ]; then
	echo "== fuzzing the reader of snapshots beside what follows, for $seconds s"
	as_postgres make -s PG_CONFIG="$bin/pg_config" FUZZ_SECONDS="$seconds" fuzz >"$work/fuzz.log" 2>&1 &
	fuzzer=$!
fi

echo "== SQL tests"
as_postgres "$bin/initdb" -D "$work/data" -k -A trust >"$work/initdb.log"
cat >>"$work/data/postgresql.conf" <<-CONF
	listen_addresses = ''
	unix_socket_directories = '$work'
	shared_buffers = 16MB
	max_wal_size = 4GB
CONF
as_postgres "$bin/pg_ctl" -D "$work/data" -l "$work/server.log" -s -w start
failed=
for kind in ISOLATION REGRESS; do
	# without the tests of the other kind
	as_postgres make -s PG_CONFIG="$bin/pg_config" PGHOST="$work" TAP_TESTS= "$kind=" installcheck || failed=1
done
if [ -n "$failed" ]; then
	[ "${EXPECT:-0}" = 0 ] || {
		find results output_iso/results -name '*.out' -exec cp -t "$source/test/expected" {} +
		chown --reference="$source" "$source"/test/expected/*
	}
	find . -name regression.diffs -exec cat {} +
	exit 1
fi
if [ -e "${PGFINCORE:-}/sql/pgfincore.sql" ]; then
	echo "== pgfincore's own test: $(sed -n 's/^default_version *= *//p' "$PGFINCORE/pgfincore.control")"
	# it begins with CREATE EXTENSION pgfincore: here an empty extension that requires pg_residency
	extensions=$("$bin/pg_config" --sharedir)/extension
	mkdir "$work/installed"
	find "$extensions" -name 'pgfincore*' -exec mv -t "$work/installed" {} +
	printf "default_version = '0'\nrequires = 'pg_residency'\n" >"$extensions/pgfincore.control"
	: >"$extensions/pgfincore--0.sql"
	# pgfincore's function is in SQL, ours in C, whose errors have no context
	as_postgres mkdir "$work/pgfincore"
	as_postgres cp -r "$PGFINCORE/sql" "$PGFINCORE/expected" "$work/pgfincore"
	as_postgres sed -i '/^CONTEXT:  SQL function "pgfadvise_loader"/d' "$work/pgfincore/expected/pgfincore.out"
	as_postgres "$(dirname "$("$bin/pg_config" --pgxs)")/../test/regress/pg_regress" --bindir="$bin" --host="$work" \
		--inputdir="$work/pgfincore" --outputdir="$work" --dbname=pgfincore --load-extension=pg_residency pgfincore || {
		cat "$work/regression.diffs"
		exit 1
	}
	rm "$extensions"/pgfincore*
	find "$work/installed" -type f -exec mv -t "$extensions" {} +
fi
as_postgres "$bin/pg_ctl" -D "$work/data" -m fast -s stop

echo "== replication tests"
(
	# shellcheck disable=SC2016  # its parent, this subshell
	[ -z "${PG_RESIDENCY_THROTTLE:-}" ] || sh -c 'echo $PPID >"$1"' sh "$group/cgroup.procs"
	as_postgres make -s PG_CONFIG="$bin/pg_config" REGRESS= ISOLATION= installcheck
) || {
	tail -n 30 tmp_check/log/*.log
	exit 1
}
users
if [ "${STRESS_SECONDS:-60}" -gt 0 ]; then
	stress "${STRESS_SECONDS:-60}"
fi
if [ -n "${fuzzer:-}" ]; then
	wait "$fuzzer" || {
		echo "The fuzzer found something, or did not run:"
		tail -n 40 "$work/fuzz.log"
		exit 1
	}
	echo "== fuzzed without a finding: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/fuzz.log") runs"
fi
echo "== the extension passes on $("$bin/postgres" --version)"
