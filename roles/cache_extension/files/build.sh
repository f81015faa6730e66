# shellcheck shell=sh
# Compiles the sources that were copied to this directory. What is to be installed is in stage/ then. Argument: pg_config.
set -eu
umask 022
mkdir source stage
base64 --decode sources | tar --extract --gzip --no-same-owner --directory=source
# Without debugging information, which has the name of this directory, the same sources give the same bytes.
make --silent --directory=source PG_CONFIG="$1" PG_LDFLAGS=-Wl,--strip-debug DESTDIR=../stage install
