# Shared by the scripts in this directory; sourced, never run.
# shellcheck shell=bash

set -euo pipefail

# The collection's root: every script works from there.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build=$root/build
# shellcheck disable=SC2034  # used by the scripts that source this
tree=$build/ansible_collections/pgfleet/cache   # what is linted and tested
# As in a clone below /root: what other users run in a test has to be elsewhere.
mkdir -p "$build"
[ "$(id -u)" -ne 0 ] || chmod 0700 "$build"

say() { printf '==> %s\n' "$*"; }

# die "what is wrong" "what to do about it"
die() {
    printf 'ERROR: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf '       %s\n' "$2" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" -eq 0 ] ||
        die "$1 needs root." "Run it again as root: sudo make ${2:-}"
}

on_debian() { [ -r /etc/debian_version ] && command -v apt-get >/dev/null; }

# install_packages "why" package...: what is missing, by apt, said beforehand.
install_packages() {
    local why=$1 package
    local -a missing=()
    shift
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    on_debian ||
        die "This machine has no apt, and needs: ${missing[*]} ($why)." \
            "Use Debian 12, a virtual machine will do."
    [ "$(id -u)" -eq 0 ] ||
        die "These Debian packages are missing: ${missing[*]} ($why)." \
            "Run this again as root, or first: sudo apt-get install ${missing[*]}"

    say "Installing with apt ($why): ${missing[*]}"
    # Another apt may be at work (unattended-upgrades on a fresh machine), or another part of these tests.
    local -a apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
    mkdir -p "$build"
    (
        flock 9
        # A third-party source that cannot be reached must not stop us.
        "${apt[@]}" update || say "apt-get update had errors (above); going on with the lists there are"
        without_main_cluster env DEBIAN_FRONTEND=noninteractive \
            "${apt[@]}" -y --no-install-recommends install "${missing[@]}" >/dev/null
    ) 9>"$build/apt.lock"
}

# Debian's postgresql-15 creates and starts a cluster "main" when it is first
# installed. Nobody asked for one on this machine.
without_main_cluster() (
    directory=/etc/postgresql-common/createcluster.d
    file=$directory/zz-pgfleet-no-main-cluster.conf
    trap 'rm -f "$file"' EXIT
    mkdir -p "$directory"
    echo "create_main_cluster = false" >"$file"
    "$@"
)

# checksum file...: one word for the content of all of them
checksum() { cat "$@" | sha256sum | cut -c 1-16; }

# find_python 3.12: the one of this machine that really runs, and nothing else of that
# name: a version manager has shims for versions that it does not run.
find_python() {
    local python
    for python in "/usr/bin/python$1" "/usr/local/bin/python$1" \
        "${PYENV_ROOT:-${user_home:-$HOME}/.pyenv}"/versions/*/bin/"python$1"; do
        if [ -x "$python" ] && "$python" -c 'import venv' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

# count_extension_tests LOG STATUS: "N passed, N failed" of what tests/extension/run.sh
# printed. cmocka, pg_regress and prove each count in their own words.
count_extension_tests() {
    awk -v status="$2" '
        { sub(/^# /, "") }   # pg_regress from 16 on
        /^\[  PASSED  \] [0-9]+ test/           { passed += $4 }
        /^\[  FAILED  \] [0-9]+ test.*listed/   { failed += $4 }
        /All [0-9]+ tests passed/               { passed += $2 }
        /[0-9]+ of [0-9]+ tests failed/         { failed += $1; passed += $3 - $1 }
        /^fuzzed without a finding/             { passed += 1 }
        /^(stress|users): [0-9]+ passed, [0-9]+ failed/ { passed += $2; failed += $4 }
        /^Files=[0-9]+, Tests=[0-9]+/           { split($2, tests, /[=,]/); passed += tests[2] }
        /Failed [0-9]+\/[0-9]+ subtests/        { split($2, tests, "/"); failed += tests[1]; passed -= tests[1] }
        END {
            if (status != 0 && failed == 0)
                failed = 1
            printf "%d passed, %d failed\n", passed, failed
        }' "$1"
}

# unpacked PACKAGE: Debian's, in build/PACKAGE
unpacked() {
    local folder=$build/$1
    if [ ! -d "$folder/usr" ]; then
        say "Unpacking Debian's $1 into build/$1"
        mkdir -p "$folder"
        (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$1" && dpkg-deb --extract "$1"_*.deb .)
    fi
}
