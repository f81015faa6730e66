# shellcheck shell=sh disable=SC2154
# A PostgreSQL to test in: sourced by run.sh and stress.sh with $major set.
#
# The servers run from a copy of the installed PostgreSQL, which finds its files relative to itself: the extension is
# installed there, and nothing on this host changes.  They run as the user postgres, which needs root.  POSTGRES_PREFIX names
# another PostgreSQL than Debian's, EXTENSION_CFLAGS adds flags for the extension alone.

# The clusters of a host are coordinated in /dev/shm: a private one separates those of this test from others.
if [ -z "${PG_RESIDENCY_ALONE:-}" ]; then
	# shellcheck disable=SC2016  # the inner shell's
	exec unshare --mount --propagation private sh -c 'mount -t tmpfs -o size=512M tmpfs /dev/shm && exec "$@"' sh \
		env PG_RESIDENCY_ALONE=1 "$0" "$@"
fi

here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../../files/pg_residency" && pwd)

# PostgreSQL refuses to run as root and must be able to get here; page cache tests need a real file system
work=$(mktemp -d /var/tmp/pg_residency_test.XXXXXX)
stop() {
	[ -z "${fuzzer:-}" ] || pkill -P "$fuzzer" || true
	for pidfile in "$work"/*/postmaster.pid "$work"/stress/*/postmaster.pid; do
		[ ! -e "$pidfile" ] || as_postgres "$bin/pg_ctl" -D "$(dirname "$pidfile")" -m immediate -s stop || true
	done
	[ ! -e "$work/device" ] || umount "$work/device" || true
	[ ! -e "$work/layered" ] || umount "$work/layered" || true
	[ ! -e "$work/cgroup" ] || { rmdir "$group"; umount "$work/cgroup"; } || true
	rm -rf --one-file-system "$work"
}
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups env HOME="$work" "$@"; }
trap stop EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
if [ -n "${POSTGRES_PREFIX:-}" ]; then
	cp -R "$POSTGRES_PREFIX" "$work/usr"
	bin=$work/usr/bin
else
	for part in lib share include; do
		mkdir -p "$work/usr/$part/postgresql"
		# shellcheck disable=SC2154  # its callers'
		cp -R "/usr/$part/postgresql/$major" "$work/usr/$part/postgresql/"
	done
	bin=$work/usr/lib/postgresql/$major/bin
fi

build_extension() {
	cp -R "$source" "$work/src"
	cd "$work/src" || exit
	echo "== build for PostgreSQL $major, no warning allowed"
	make -s PG_CONFIG="$bin/pg_config" COPT="-Werror ${EXTENSION_CFLAGS:-}"
	make -s PG_CONFIG="$bin/pg_config" install
}

# a tablespace on a device of its own, where this host can have one
make_device() {
	truncate -s 1G "$work/device.img"
	mkdir "$work/device"
	if command -v mkfs.ext4 >/dev/null && mkfs.ext4 -q "$work/device.img" && mount -o loop "$work/device.img" "$work/device"; then
		export PG_RESIDENCY_DEVICE="$work/device"
		# a scheduler that orders requests by priority, where the kernel has it
		loop=$(findmnt --noheadings --output SOURCE "$work/device")
		echo mq-deadline 2>/dev/null >"/sys/block/${loop##*/}/queue/scheduler" || true
		# without the page cache below it, so that its requests take time
		losetup --direct-io=on "$loop" || true
	else
		rmdir "$work/device"
	fi
	# a file system whose device has no number in /sys/dev/block
	mkdir "$work/layers" "$work/layers/lower" "$work/layers/upper" "$work/layers/work" "$work/layered"
	if mount -t overlay -o "lowerdir=$work/layers/lower,upperdir=$work/layers/upper,workdir=$work/layers/work" overlay "$work/layered"; then
		export PG_RESIDENCY_LAYERED="$work/layered"
	else
		rmdir "$work/layered"
	fi
}

# a control group for the replication tests, whose reads they can slow down
make_throttle() {
	mkdir "$work/cgroup"
	group=$work/cgroup/pg_residency_test.$$
	for version in blkio io; do
		case $version in
			blkio)
				limit=$group/blkio.throttle.read_bps_device
				mount -t cgroup -o blkio none "$work/cgroup" 2>"$work/cgroup.log" || continue
				;;
			io)
				limit=$group/io.max
				mount -t cgroup2 none "$work/cgroup" 2>"$work/cgroup.log" || break
				;;
		esac
		[ "$version" = blkio ] || echo +io 2>"$work/cgroup.log" >"$work/cgroup/cgroup.subtree_control" || true
		mkdir "$group"
		[ -e "$limit" ] && chown postgres "$limit" && export PG_RESIDENCY_THROTTLE="$limit" && break
		rmdir "$group"
		umount "$work/cgroup"
	done
	[ -n "${PG_RESIDENCY_THROTTLE:-}" ] || rmdir "$work/cgroup"
}

# Clusters of two users of the operating system.
users() {
	echo "== clusters of two users"
	mkdir "$work/users"
	/usr/bin/python3 "$here/users.py" --bindir "$bin" --work "$work/users"
}

# A primary and its standby under everything at once, for so many seconds.
stress() {
	echo "== stress: seed ${STRESS_SEED:-1}, $1 s"
	mkdir "$work/stress"
	chown postgres: "$work/stress"
	nice -n 5 /usr/bin/python3 "$here/stress.py" --bindir "$bin" --work "$work/stress" --seed "${STRESS_SEED:-1}" \
		--seconds "$1" --device "${PG_RESIDENCY_DEVICE:-}" --without "${STRESS_WITHOUT:-}" --setting "${STRESS_SETTING:-}" || {
		[ -z "${STRESS_KEEP:-}" ] || cp -a "$work/stress" "$STRESS_KEEP"
		return 1
	}
	rm -rf --one-file-system "$work/stress"
}
