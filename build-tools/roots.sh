# Root file systems with other PostgreSQL majors than this host's, each in the Debian suite that has it, below
# /var/lib/pgfleet-majors (1.5 to 2 GB each; a second run is fast; remove them at will).
# Sourced by the scripts that test in them, behind lib.sh; never run.
# shellcheck shell=bash
# shellcheck disable=SC2154  # lib.sh's

roots=/var/lib/pgfleet-majors
recipe=$(checksum "${BASH_SOURCE[0]}")

# major -> the name of its root file system, and the suite that it begins as
suite_of() {
    case $1 in
        15) echo bookworm ;;
        17) echo trixie ;;
        18) echo sid ;;
        19) echo experimental ;;
        *) die "No Debian suite has PostgreSQL $1." "There are 15, 17, 18, and 19 in experimental." ;;
    esac
}

# as this machine's own sources have it
debian_mirror() {
    # shellcheck disable=SC2016  # apt fills that in
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1
}

# in_root ROOT COMMAND...: the mounts are the command's own, so they end with it, however it ends; its root is a mount
# too, because the stress test makes mount namespaces in it
in_root() {
    # shellcheck disable=SC2016  # the inner shell's
    unshare --mount --propagation private sh -euc '
        mount --bind "$1" "$1"
        mount -t proc proc "$1/proc"
        mount -t sysfs sysfs "$1/sys"
        mount -t tmpfs tmpfs "$1/dev/shm"
        exec chroot "$@"' sh "$1" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "${@:2}"
}

make_root() {
    local rootfs=$1 suite=$2 base=${2/experimental/sid} mirror
    mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
    say "Making $rootfs, Debian $base, to test on its PostgreSQL"
    rm -rf --one-file-system "$rootfs.new"
    debootstrap --variant=minbase "$base" "$rootfs.new" ${mirror:+"$mirror"} >"$build/debootstrap.log" 2>&1 ||
        die "debootstrap of $base failed." "See build/debootstrap.log; another mirror: DEBIAN_MIRROR=http://..."
    mirror=$(awk '{ print $2; exit }' "$rootfs.new/etc/apt/sources.list")
    {
        printf 'deb %s %s main\n' "$mirror" "$base"
        printf 'deb-src %s %s main\n' "$mirror" "$base"
        [ "$suite" = "$base" ] || printf 'deb %s %s main\n' "$mirror" "$suite"
    } >"$rootfs.new/etc/apt/sources.list"
    # A mirror may lag behind; as this machine reaches its packages, so does the root.
    echo 'Acquire::Check-Valid-Until "false";' >"$rootfs.new/etc/apt/apt.conf.d/90pgfleet"
    apt-config dump | grep -E '^Acquire::.*Proxy' >>"$rootfs.new/etc/apt/apt.conf.d/90pgfleet" || true
    # nothing is to be started in there
    printf '#!/bin/sh\nexit 101\n' >"$rootfs.new/usr/sbin/policy-rc.d"
    chmod 755 "$rootfs.new/usr/sbin/policy-rc.d"
    mkdir -p "$rootfs.new/etc/postgresql-common/createcluster.d" "$rootfs.new/dev/shm"
    echo "create_main_cluster = false" >"$rootfs.new/etc/postgresql-common/createcluster.d/pgfleet.conf"
    mv "$rootfs.new" "$rootfs"
}

install_major() {
    local rootfs=$1 major=$2 pin=
    local -a packages=(gcc libc6-dev libcmocka-dev libipc-run-perl make python3-psycopg2 util-linux-extra
        "postgresql-$major" "postgresql-server-dev-$major")
    [ "$(suite_of "$major")" != experimental ] || pin="libpq5/experimental libpq-dev/experimental"
    say "Installing in $rootfs (to build the extension and test it): ${packages[*]} $pin"
    in_root "$rootfs" apt-get -qq update
    # shellcheck disable=SC2086  # two words or none
    in_root "$rootfs" apt-get -qq -y --no-install-recommends install "${packages[@]}" $pin >"$build/majors-apt.log" 2>&1 ||
        die "PostgreSQL $major could not be installed in $rootfs." "See build/majors-apt.log."
    rm -rf "$rootfs/usr/src/pgfincore"
    mkdir -p "$rootfs/usr/src/pgfincore"
    # its statements are what scripts are made of; none of it comes to this machine's own folders
    in_root "$rootfs" sh -c 'cd /usr/src/pgfincore && apt-get -qq --tar-only --download-only source pgfincore &&
        tar --strip-components=1 -xf pgfincore_*.orig.tar.*' >>"$build/majors-apt.log" 2>&1 ||
        echo "skipped: pgfincore's source is not to be had, and so not its own test"
    touch "$rootfs/pgfleet-$major-$recipe"
}

# What is tested lies there meanwhile; several may test in one root file system at once.
shipped=/srv/pgfleet.$$

# prepare_major MAJOR: its root file system with everything installed, and this tree's extension in $shipped.
# In a subshell of its own: at its end that goes.
prepare_major() {
    local major=$1 rootfs
    rootfs=$roots/$(suite_of "$major")
    mkdir -p "$roots"
    [ -e "$rootfs" ] || make_root "$rootfs" "$(suite_of "$major")"
    [ -e "$rootfs/pgfleet-$major-$recipe" ] || install_major "$rootfs" "$major"
    # shellcheck disable=SC2064  # as it is now
    trap "rm -rf --one-file-system '$rootfs$shipped'" EXIT
    mkdir -p "$rootfs$shipped" || return 1
    git ls-files -z --cached --others --exclude-standard files/pg_residency tests/extension |
        tar --null --ignore-failed-read -T - -c | tar -x -C "$rootfs$shipped"
}
