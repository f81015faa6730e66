# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count and evict a cluster's relation files in the page cache, without an extension.

Nothing here syncs a file: a write error that our fsync swallowed would never reach the checkpointer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from dataclasses import dataclass
from typing import Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory
from ansible_collections.pgfleet.cache.plugins.module_utils._data_directory import DataDirectory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import SHARED, Place

PASSES = 5  # dirty pages go when their writeback, which the advice starts, is done
PAUSE = 0.3  # seconds between two passes
LARGEST = 1 << 40  # bytes of a segment: 1 GiB as packages build PostgreSQL; what is larger is no relation's file
_WINDOW = 1 << 30  # bytes that are mapped at a time

# <relfilenumber>[_<fork>][.<segment>]; temporary relations begin with t and are their session's own
_RELATION_FILE = re.compile(r"([0-9]+)(?:_(fsm|vm|init))?(?:\.([0-9]+))?")
_NUMBER = re.compile(r"[0-9]+")

_DEFAULT_TABLESPACE = 1663
_GLOBAL_TABLESPACE = 1664

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAP_FAILED = ctypes.c_void_p(-1).value
_PROT_NONE = 0
_MAP_SHARED = 1
_CACHESTAT = 451  # the number is the same on every architecture PostgreSQL is packaged for
# mincore(2) defines only the lowest bit of each byte
_LOWEST_BIT = bytes(value & 1 for value in range(256))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class Cachestat(NamedTuple):
    """Pages, by cachestat(2)."""

    cached: int
    dirty: int
    writeback: int


@dataclass(frozen=True)
class File:
    """A segment file and what of it is in the page cache."""

    path: str  # in the data directory
    bytes: int
    resident_bytes: int


@dataclass(frozen=True)
class Count:
    files: int
    bytes: int
    resident_bytes: int


def major_version(data_directory: str) -> int:
    """The cluster's major version; also the proof that this is a data directory."""
    try:
        return int(_data_directory.opened(data_directory).read("PG_VERSION"))
    except FileNotFoundError:
        raise ResidencyError("%s is not a PostgreSQL data directory: it has no PG_VERSION." % data_directory) from None
    except ValueError:
        raise ResidencyError("%s/PG_VERSION does not hold a major version." % data_directory) from None


def require_owner(data_directory: str) -> None:
    """Raise an error for all users but the owner and root: mincore(2) reports every page as resident to them."""
    owner = _data_directory.opened(data_directory).uid
    if os.geteuid() not in (0, owner):
        raise ResidencyError(
            "%s belongs to user id %d, but this is %d: become the owner, since the kernel tells only the owner which pages are resident."
            % (data_directory, owner, os.geteuid())
        )


def postmaster_pid(data_directory: str) -> Optional[int]:
    """The process id of the server that runs on this data directory."""
    try:
        process = _data_directory.opened(data_directory).postmaster()
    except _data_directory.NoDirectoryError:
        return None
    return None if process is None else process.pid


def relation_files(data_directory: str, major: Optional[int]) -> Iterator[str]:
    """Every file of a permanent relation, by its name in the data directory: databases, shared catalogs, tablespaces.

    Without ``major``, those of all versions that share a tablespace.
    """
    directory = _data_directory.opened(data_directory)
    yield from _files_of(directory, "global")
    yield from _files_of_databases(directory, "base")
    for tablespace in directory.tablespaces():
        for version in directory.listed("pg_tblspc/" + tablespace.number):
            if version.startswith("PG_" if major is None else "PG_%d_" % major):
                yield from _files_of_databases(directory, "pg_tblspc/%s/%s" % (tablespace.number, version))


def count_files(data_directory: str, names: Iterable[str]) -> List[File]:
    directory = _data_directory.opened(data_directory)
    files = []
    for name in names:
        descriptor = _open(directory, name)
        if descriptor is None:
            continue
        try:
            length = os.fstat(descriptor).st_size
            files.append(File(name, length, resident_bytes(descriptor, length)))
        finally:
            os.close(descriptor)
    return files


def add_up(files: Iterable[File]) -> Count:
    size = resident = number = 0
    for file in files:
        number += 1
        size += file.bytes
        resident += file.resident_bytes
    return Count(number, size, resident)


def identify(path: str) -> Tuple[Place, str, int]:
    """The relation, fork and segment of a relation's file, from its path alone."""
    directory, name = os.path.split(path)
    found = _RELATION_FILE.fullmatch(name)
    if not found:
        raise ValueError(path)
    parts = directory.split(os.sep)
    if parts[-1] == "global":
        database, tablespace = SHARED, _GLOBAL_TABLESPACE
    elif parts[-2] == "base":
        database, tablespace = int(parts[-1]), _DEFAULT_TABLESPACE
    else:  # pg_tblspc/<tablespace>/PG_<version>/<database>
        database, tablespace = int(parts[-1]), int(parts[-3])
    return Place(database, tablespace, int(found.group(1))), found.group(2) or "main", int(found.group(3) or 0)


def evict(data_directory: str, names: List[str]) -> None:
    """Advise the kernel to drop the files' pages, and some times again for those that kept some."""
    directory = _data_directory.opened(data_directory)
    for attempt in range(PASSES):
        if attempt:
            time.sleep(PAUSE)
        names = [name for name in names if _evict(directory, name)]
        if not names:
            break


def resident_bytes(descriptor: int, length: int) -> int:
    return sum(_resident_bytes(descriptor, start, min(_WINDOW, length - start)) for start in range(0, length, _WINDOW))


def _resident_bytes(descriptor: int, start: int, length: int) -> int:
    # ctypes, because Python's mmap asks for readable pages and hides their address
    address = _libc.mmap(None, length, _PROT_NONE, _MAP_SHARED, descriptor, start)
    if address == _MAP_FAILED:
        raise _system_error("mmap")
    try:
        pages = (length + _PAGE - 1) // _PAGE
        vector = ctypes.create_string_buffer(pages)
        if _libc.mincore(address, length, vector) != 0:
            raise _system_error("mincore")
        # a mapped page would survive the eviction, so the mapping never outlives the count
        return min(length, vector.raw.translate(_LOWEST_BIT).count(1) * _PAGE)
    finally:
        _libc.munmap(address, length)


def dirty(data_directory: str, name: str) -> Optional[bool]:
    """True if the kernel has still to write pages of this file; None if it does not report that."""
    descriptor = _open(_data_directory.opened(data_directory), name)
    if descriptor is None:
        return False
    try:
        counts = cachestat(descriptor)
        return counts.dirty + counts.writeback > 0
    except OSError:
        return None
    finally:
        os.close(descriptor)


def cachestat(descriptor: int, length: int = 0) -> Cachestat:
    """The kernel's counts for the first bytes of a file, 0 for all of it. OSError with ENOSYS before Linux 6.5."""
    span = (ctypes.c_uint64 * 2)(0, length)
    answer = (ctypes.c_uint64 * 5)()
    number, flags = ctypes.c_long(_CACHESTAT), ctypes.c_uint(0)
    if _libc.syscall(number, ctypes.c_int(descriptor), ctypes.byref(span), ctypes.byref(answer), flags) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return Cachestat(*answer[:3])


def _evict(directory: DataDirectory, name: str) -> bool:
    """Returns whether pages stayed."""
    descriptor = _open(directory, name)
    if descriptor is None:
        return False
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return resident_bytes(descriptor, os.fstat(descriptor).st_size) > 0
    finally:
        os.close(descriptor)


def _open(directory: DataDirectory, name: str) -> Optional[int]:
    """None for what is no relation's file: dropped since it was listed, or of a name like one."""
    try:
        descriptor = directory.open(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EPERM, errno.ENXIO):
            directory.skipped.add(name)
            return None
        raise ResidencyError("Cannot open %s/%s: %s." % (directory.path, name, error.strerror)) from None
    if os.fstat(descriptor).st_size <= LARGEST:
        return descriptor
    os.close(descriptor)
    directory.skipped.add(name)
    return None


def _files_of_databases(directory: DataDirectory, name: str) -> Iterator[str]:
    for database in directory.listed(name):
        if _NUMBER.fullmatch(database):
            yield from _files_of(directory, "%s/%s" % (name, database))


def _files_of(directory: DataDirectory, name: str) -> Iterator[str]:
    for file in directory.listed(name):
        if _RELATION_FILE.fullmatch(file):
            yield "%s/%s" % (name, file)


def _system_error(call: str) -> ResidencyError:
    return ResidencyError("%s: %s." % (call, os.strerror(ctypes.get_errno())))
