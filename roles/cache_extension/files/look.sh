# shellcheck shell=sh
# Reads the directories of the PostgreSQL of a pg_config, who may change them, and what of the extension is in them. Prints name=value.
# Root runs and reads nothing that another user could have changed: where another user can, this user does all the work.
# Arguments: pg_config, and the command that prints the package of a file.
set -eu
export LC_ALL=C
pg_config=$1
shift

refuse() {
    echo "problem=$1"
    exit 0
}

# Sets user: who can change the file at this path, or replace it; and place, where.
find_user() {
    place=$1 above=
    while :; do
        user=$(stat --format=%U -- "$place")
        [ "$user" = root ] || return 0
        # other users may write to a directory like /tmp, but not replace what is in it
        # shellcheck disable=SC2086
        [ -n "$(find "$place" -maxdepth 0 \( ! -perm /022 $above \))" ] || user="more users than root"
        [ "$user" = root ] && [ "$place" != / ] || return 0
        place=$(dirname -- "$place") above="-o -perm -1000"
    done
}

check_path() {
    case $1 in *[!A-Za-z0-9_.+@:,=~/-]*) refuse "The path $1 has other characters than A-Z a-z 0-9 _.+@:,=~-." ;; esac
    real=$(realpath -e -- "$1" 2>/dev/null) || refuse "There is no $1."
    [ "$real" = "$1" ] || refuse "$1 is $real, by a symbolic link."
    find_user "$1"
}

check_path "$pg_config"
id -- "$user" >/dev/null 2>&1 || refuse "$place can be changed by $user."
owner=$user
as="timeout 60"
[ "$owner" = root ] || as="timeout 60 runuser -u $owner --"
libraries=$($as "$pg_config" --pkglibdir) || refuse "$pg_config does not run."
extension=$($as "$pg_config" --sharedir)/extension
for path in "$libraries" "$extension" "$($as "$pg_config" --pgxs)" "$($as "$pg_config" --includedir-server)"; do
    [ -e "$path" ] || continue # the last two are another package's
    check_path "$path"
    [ "$user" = "$owner" ] || refuse "$place can be changed by $user, but $pg_config by $owner."
done
for path in "$libraries" "$extension"; do
    $as test -w "$path" || refuse "$owner cannot write to $path."
done

record=$libraries/pg_residency.sources
installed="$libraries/pg_residency.so $extension/pg_residency.control $(echo "$extension"/pg_residency--*.sql)"
files=
for file in $installed $record; do
    case $file in *[!A-Za-z0-9_.+@:,=~/-]*) continue ;; esac
    [ ! -e "$file" ] || files="$files $file"
done

# A record names the sources, and then all that was installed of them. Only its owner may write these files, and all servers can read them.
sources='' intact='' library=''
# shellcheck disable=SC2086
if $as test -f "$record" && [ -z "$($as find $files -maxdepth 0 ! \( -type f -user "$owner" -perm -444 ! -perm /022 \))" ]; then
    sources=$($as head -n 1 "$record" | head -c 64 | tr -dc 0-9a-f)
    [ "$($as sha256sum $installed 2>/dev/null)" != "$($as tail -n +2 "$record")" ] || intact=yes
    [ "$($as sha256sum "$libraries/pg_residency.so" 2>/dev/null)" != "$($as sed -n 2p "$record")" ] || library=same
fi
package=$("$@" "$libraries/pg_residency.so" 2>/dev/null) || package=
printf '%s\n' "user=$owner" "libraries=$libraries" "extension=$extension" "record=$record" "files=$files" "sources=$sources" "intact=$intact" \
    "library=$library" "package=${package%%:*}"
