# shellcheck shell=sh
# Installs what differs from stage/, and records what is installed. A file is renamed into place: a server keeps the library that it has loaded, and
# several clusters of one host, each an inventory host, can do this at the same time.
# Arguments: the server's two directories, the digest of the sources.
set -eu
export LC_ALL=C
umask 022
libraries=$1 extension=$2 sources=$3
for staged in "stage$libraries/pg_residency.so" "stage$extension"/pg_residency*; do
    file=${staged#stage}
    if cmp --quiet "$staged" "$file" && [ -n "$(find "$file" -type f -user "$(id -un)" -perm -444 ! -perm /022)" ]; then
        continue
    fi
    cp "$staged" "$file.$$"
    mv "$file.$$" "$file"
done
# The server would still offer the version of a script that an earlier build has left.
for file in "$extension"/pg_residency--*.sql; do
    [ -e "stage$file" ] || rm -f -- "$file"
done
record=$libraries/pg_residency.sources
echo "$sources" >"$record.$$"
sha256sum "$libraries/pg_residency.so" "$extension/pg_residency.control" "$extension"/pg_residency--*.sql >>"$record.$$"
mv "$record.$$" "$record"
