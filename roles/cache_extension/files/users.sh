# shellcheck shell=sh
# Prints who else needs the files of an installation of PostgreSQL, one a line: running servers of it, and Debian's clusters, running or not.
# Arguments: the directory of its programs, the data directory and the name of this server, the directory of Debian's clusters.
programs=$1 data=$(stat --dereference --format=%d:%i -- "$2") name=$3 clusters=$4
for process in /proc/[0-9]*; do
    case $(readlink "$process/exe") in "$programs/postgres" | "$programs/postgres (deleted)") ;; *) continue ;; esac
    [ "$(stat --dereference --format=%d:%i "$process/cwd")" = "$data" ] || echo "the server in $(readlink "$process/cwd")"
done | sort -u
for cluster in "$clusters"/*/; do
    other=$(basename "$clusters")/$(basename "$cluster")
    [ ! -d "$cluster" ] || [ "$other" = "$name" ] || echo "the cluster $other"
done
exit 0
