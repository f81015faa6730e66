"""cold.py PGDATA RESULT: each time that the server ends, and when the host boots, take its files out of the page cache, and count what is left.

Patroni has no moment between the stop and the start of a restart. What a new server reads meanwhile is evicted with the rest. As long as the server
runs, what is in the page cache is read again and again: the kernel takes what is idle for a minute.
"""

from __future__ import annotations

import glob
import json
import mmap
import os
import select
import sys
import time
from contextlib import suppress

import page_cache


def touch(data):
    for path in glob.glob(data + "/base/*/*"):
        with suppress(OSError):  # dropped meanwhile
            if os.path.getsize(path) >= 1 << 20:
                _pages, resident, _reclaimed = page_cache.runs(path)
                with open(path, "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
                    for first, count in resident:
                        os.pread(file.fileno(), count * mmap.PAGESIZE, first * mmap.PAGESIZE)


def evict(data, result):
    """Count each file at once: where the library is preloaded, its worker restores as soon as the next server starts."""
    counted = {}
    for path in glob.glob(data + "/base/*/*"):
        with suppress(OSError), open(path, "rb") as file:  # dropped meanwhile
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            _pages, resident, reclaimed = page_cache.runs(path)
            counted[os.path.relpath(path, data)] = {"resident": resident, "reclaimed": reclaimed}
    with open(result, "w", encoding="ascii") as file:
        json.dump(counted, file)


def main(data, result):
    while True:
        evict(data, result)
        server = None
        while server is None:
            with suppress(OSError, ValueError), open(os.path.join(data, "postmaster.pid"), encoding="ascii") as file:
                server = os.pidfd_open(int(file.readline()))
            time.sleep(0.1)
        while not select.select([server], [], [], 5)[0]:
            touch(data)
        os.close(server)


main(*sys.argv[1:])
