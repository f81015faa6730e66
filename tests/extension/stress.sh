#!/bin/sh
# Builds the extension and runs the stress test alone: stress.sh [major]
#
# STRESS_SEED (1) and STRESS_SECONDS (60) say which and for how long.  With STRESS_KEEP=, a directory that does not
# exist yet, the clusters and logs of a run with a find stay there. STRESS_WITHOUT names operations to leave out.
set -eu

major=${1:-15}
# shellcheck source=tests/extension/server.sh
. "$(dirname "$0")/server.sh"

build_extension
make_device
stress "${STRESS_SECONDS:-60}"
echo "== the extension withstands it on $("$bin/postgres" --version)"
