#!/bin/sh
# Builds and tests the extension: unit tests, then the SQL and replication tests against throwaway clusters.
#
#   tests/extension/run.sh [major]      the PostgreSQL to test, 15 by default; its packages are installed
#
# Needs root, to run the servers as the user postgres; see server.sh. What fails is named in a line "failed: STAGE" at the end, after the
# other stages; with ONLY="STAGE..." these alone run: unit, sql, pgfincore, tap or single files such as t/001_replication.pl, users, stress.
# stress is everything at once (stress.py) for STRESS_SECONDS, 60 by default, 0 for not at all, with STRESS_SEED.
# Beside them the reader of snapshots is fuzzed for FUZZ_SECONDS, 60 by default, 0 for not at all.
# With PGFINCORE=, the directory of pgfincore's source, its own regression test runs too, with our functions.
# With EXPECT=1 the results of the SQL tests replace the expected ones: check the difference before you commit it.
set -eu

major=${1:-15}
# shellcheck source=tests/extension/server.sh
. "$(dirname "$0")/server.sh"

failed='' ran=''
# stage NAME COMMAND...: if it is wanted; the others follow also when it has failed
stage() {
	case " ${ONLY:-$1} " in
	*" $1 "*) ;;
	*) return 0 ;;
	esac
	echo "== $1"
	name=$1
	ran="$ran $1"
	shift
	"$@" || failed="$failed $name"
}

unit_tests() { make -s PG_CONFIG="$bin/pg_config" check-unit; }

# the server of the SQL tests
sql_server() {
	[ ! -e "$work/data" ] || return 0
	as_postgres "$bin/initdb" -D "$work/data" -k -A trust >"$work/initdb.log" || return 1
	cat >>"$work/data/postgresql.conf" <<-CONF
		listen_addresses = ''
		unix_socket_directories = '$work'
		shared_buffers = 16MB
		max_wal_size = 4GB
	CONF
	as_postgres "$bin/pg_ctl" -D "$work/data" -l "$work/server.log" -s -w start
}

sql_tests() {
	wrong=
	sql_server || return 1
	for kind in ISOLATION REGRESS; do
		# without the tests of the other kind
		as_postgres make -s PG_CONFIG="$bin/pg_config" PGHOST="$work" TAP_TESTS= "$kind=" installcheck || wrong=1
	done
	[ -n "$wrong" ] || return 0
	[ "${EXPECT:-0}" = 0 ] || {
		find results output_iso/results -name '*.out' -exec cp -t "$source/test/expected" {} +
		chown --reference="$source" "$source"/test/expected/*
	}
	find . -name regression.diffs -exec cat {} +
	return 1
}

# pgfincore's own test, which begins with CREATE EXTENSION pgfincore: here an empty extension that requires pg_residency
pgfincore_test() {
	[ -e "${PGFINCORE:-}/sql/pgfincore.sql" ] || return 0
	sed -n 's/^default_version *= */pgfincore /p' "$PGFINCORE/pgfincore.control"
	sql_server || return 1
	extensions=$("$bin/pg_config" --sharedir)/extension
	mkdir "$work/installed"
	find "$extensions" -name 'pgfincore*' -exec mv -t "$work/installed" {} +
	printf "default_version = '0'\nrequires = 'pg_residency'\n" >"$extensions/pgfincore.control"
	: >"$extensions/pgfincore--0.sql"
	# pgfincore's function is in SQL, ours in C, whose errors have no context
	as_postgres mkdir "$work/pgfincore"
	as_postgres cp -r "$PGFINCORE/sql" "$PGFINCORE/expected" "$work/pgfincore"
	as_postgres sed -i '/^CONTEXT:  SQL function "pgfadvise_loader"/d' "$work/pgfincore/expected/pgfincore.out"
	wrong=
	as_postgres "$(dirname "$("$bin/pg_config" --pgxs)")/../test/regress/pg_regress" --bindir="$bin" --host="$work" \
		--inputdir="$work/pgfincore" --outputdir="$work" --dbname=pgfincore --load-extension=pg_residency pgfincore || {
		cat "$work/regression.diffs"
		wrong=1
	}
	rm "$extensions"/pgfincore*
	find "$work/installed" -type f -exec mv -t "$extensions" {} +
	[ -z "$wrong" ]
}

# tap [FILE]: the tests that need servers of their own; the files that failed are named one by one
tap() (
	# shellcheck disable=SC2016  # its parent, this subshell
	[ -z "${PG_RESIDENCY_THROTTLE:-}" ] || sh -c 'echo $PPID >"$1"' sh "$group/cgroup.procs" || return 1
	{
		as_postgres make -s PG_CONFIG="$bin/pg_config" REGRESS= ISOLATION= PROVE_FLAGS=--timer ${1:+PROVE_TESTS="test/$1"} installcheck 2>&1 && wrong=0 || wrong=1
		echo "$wrong" >"$work/tap.status"
	} | tee "$work/tap.log"
	read -r wrong <"$work/tap.status"
	[ "$wrong" = 0 ] || sed -n 's/^\(test\/t\/[^ ]*\) *(Wstat.*/\1/p' "$work/tap.log" | while read -r file; do
		printf '\n== %s, the end of what it said\n' "$file"
		tail -n 30 "tmp_check/log/regress_log_$(basename "$file" .pl)"
		tail -n 15 tmp_check/log/"$(basename "$file" .pl)"_*.log
	done
	return "$wrong"
)

fuzzed() {
	wait "$fuzzer" || {
		echo "The fuzzer found something, or did not run:"
		tail -n 40 "$work/fuzz.log"
		return 1
	}
	echo "fuzzed without a finding: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/fuzz.log") runs"
}

build_extension
stage unit unit_tests
make_device
make_throttle
find "$work" -mindepth 1 -maxdepth 1 ! -name cgroup -exec chown -R postgres: {} +
chown postgres: "$work"
seconds=${FUZZ_SECONDS:-60}
if [ "$seconds" -gt 0 ] && [ -z "${ONLY:-}" ]; then
	echo "== fuzzing the reader of snapshots beside what follows, for $seconds s"
	as_postgres make -s PG_CONFIG="$bin/pg_config" FUZZ_SECONDS="$seconds" fuzz >"$work/fuzz.log" 2>&1 &
	fuzzer=$!
fi
stage sql sql_tests
stage pgfincore pgfincore_test
[ ! -e "$work/data" ] || as_postgres "$bin/pg_ctl" -D "$work/data" -m fast -s stop
stage tap tap
for file in ${ONLY:-}; do
	[ "${file#t/}" = "$file" ] || stage "$file" tap "$file"
done
stage users users
[ "${STRESS_SECONDS:-60}" = 0 ] || stage stress stress "${STRESS_SECONDS:-60}"
[ -z "${fuzzer:-}" ] || stage fuzz fuzzed

for name in $failed; do
	if [ "$name" = tap ] && [ -s "$work/tap.log" ] && grep -q '(Wstat' "$work/tap.log"; then
		# with the first line of each that is not ok
		sed -n 's/^test\/\(t\/[^ ]*\) *(Wstat.*/\1/p' "$work/tap.log" | while read -r file; do
			printf 'failed: %s\t%s\n' "$file" "$(grep -m 1 -oE 'not ok .*|Died at .*|[Tt]imed out.*' "tmp_check/log/regress_log_$(basename "$file" .pl)" || true)"
		done
	else
		printf 'failed: %s\n' "$name"
	fi
done
[ -z "$failed" ] || exit 1
[ -n "$ran" ] || { echo "There is no such stage: $ONLY" && exit 2; }
echo "== the extension passes on $("$bin/postgres" --version)"
