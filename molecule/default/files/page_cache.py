"""Which pages of a PostgreSQL cluster's relation files are in the page cache.

The tests' own reader: it shares nothing with the collection. Prints, for each
file below <data directory>/base and global, its pages, the runs [first, count] of
those that mincore(2) calls resident, and how many pages the kernel has reclaimed by
itself, by cachestat(2). Run it as root or as the files' owner:
to anybody else the kernel says that everything is resident.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

CACHESTAT = 451  # on every architecture
PROT_NONE = 0
MAP_SHARED = 1
MAP_FAILED = ctypes.c_void_p(-1).value
# 16384, 16384.1, 16384_fsm ...; not temporary relations, not PG_VERSION
RELATION = re.compile(r"^\d+(_(fsm|vm|init))?(\.\d+)?$")


def reclaimed(descriptor: int) -> int:
    """Pages that the kernel took, not those that were evicted on request; 0 before Linux 6.5, which does not count them."""
    whole, counts = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, descriptor, whole, counts, 0):
        return 0
    return counts[3]


def runs(path: str) -> tuple[int, list[list[int]], int]:
    """Pages of the file, the runs of them that are resident, and the number of those that the kernel has reclaimed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0, [], 0
        pages = -(-size // mmap.PAGESIZE)
        address = libc.mmap(None, size, PROT_NONE, MAP_SHARED, descriptor, 0)
        if address == MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap", path)
        vector = ctypes.create_string_buffer(pages)
        gone = reclaimed(descriptor)
        failed = libc.mincore(address, size, vector)
        libc.munmap(address, size)
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", path)
    finally:
        os.close(descriptor)
    flags = bytes(byte & 1 for byte in vector.raw)
    return pages, [[run.start(), run.end() - run.start()] for run in re.finditer(b"\x01+", flags)], gone


def main() -> None:
    data_directory = sys.argv[1]
    result = {}
    for top in ("base", "global"):
        for folder, _folders, names in os.walk(os.path.join(data_directory, top)):
            for name in filter(RELATION.match, names):
                path = os.path.join(folder, name)
                pages, resident, gone = runs(path)
                result[os.path.relpath(path, data_directory)] = {"pages": pages, "resident": resident, "reclaimed": gone}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
