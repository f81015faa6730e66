#!/bin/sh
# What a test wants to know of the extension on this host, asked of dpkg, the file system and the server: a word and an answer.
libraries=$(echo /usr/lib/postgresql/*/lib)
scripts=$(echo /usr/share/postgresql/*/extension)
package=$(basename "$(dirname "$libraries")")
package=postgresql-$package-pg-residency

sql() { runuser -u postgres -- psql --no-psqlrc --no-align --tuples-only --command "$1" 2>&1; }

echo "owner $(dpkg-query --search "$libraries/pg_residency.so" 2>/dev/null | cut -d : -f 1)"
echo "version $(dpkg-query --show --showformat='${db:Status-Status} ${Version}' "$package" 2>/dev/null)"
echo "changed $(dpkg --verify "$package" 2>/dev/null)"
echo "files $(for folder in "$libraries" "$scripts"; do
    find "$folder" -maxdepth 1 -name '*pg_residency*' -printf '%f\n' | sort
done | tr '\n' ' ')"
echo "calls $(sql 'SELECT residency_version()' | head -n 1)"
echo "extension $(sql "SELECT extversion FROM pg_extension WHERE extname = 'pg_residency'")"
echo "role $(sql "SELECT count(*) FROM pg_roles WHERE rolname = 'residency_admin'")"
echo "snapshots $(find /var/lib/postgresql/*/main/pg_residency -name '*snapshot*' 2>/dev/null | wc -l)"
echo "repository $(find /etc/apt -name pgfleet.pref -o -name pgfleet.sources | sort | paste -sd ' ')"
echo "preloads $(sql 'SHOW shared_preload_libraries')"
echo "started $(sql 'SELECT pg_postmaster_start_time()')"
