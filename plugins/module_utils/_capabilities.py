# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capabilities and limits of this host, and the mechanisms that work against a warm cache.

Reads only. What cannot be read, or not by this user, is None: never an error, and never a guess.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory, _devices, _page_cache, _proc
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session
from ansible_collections.pgfleet.cache.plugins.module_utils._data_directory import DataDirectory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._remarks import Reclaim

_MADV_POPULATE_READ = 22
_PAGEMAP_PRESENT = 1 << 63
_PAGEMAP_FRAME = (1 << 55) - 1
_KPAGE_COMPOUND_TAIL = 1 << 16

_ALWAYS_HONOURED_KIB = 128
_LARGEST_CALL_KIB = 1024 * 1024
_SAMPLED_FILES = 1000
_SAMPLED_BYTES = 4 * 1024 * 1024

_NEAR = 0.9  # of memory.high, from where on it is what limits the page cache

_PAGE = os.sysconf("SC_PAGE_SIZE")

# whether the server runs in the network namespace of this process, so that the kernel is the same
_HERE = "SELECT pg_catalog.inet_server_addr() = pg_catalog.inet_client_addr() AS here, pg_catalog.pg_backend_pid() AS pid"


class Place(NamedTuple):
    path: str
    tablespace: Optional[int]  # None for the data directory itself
    device: Optional[str]  # major:minor


def collect(data_directory: str) -> Dict[str, Any]:
    """Everything of the subset ``capabilities``."""
    mounts = _proc.mounts()
    directory, pid, problem = _look(data_directory)
    cgroup = _cgroup(pid, mounts)
    return {
        "kernel": os.uname().release,
        "page_size": _PAGE,
        "memory_bytes": _proc.meminfo_or_none("MemTotal"),
        "swap": {
            "total_bytes": _proc.meminfo_or_none("SwapTotal"),
            "free_bytes": _proc.meminfo_or_none("SwapFree"),
        },
        "locations": [_location(place, mounts, directory) for place in _places(data_directory, directory)],
        "cgroup": cgroup,
        "proactive_reclaim": {
            "kdamonds": _kdamonds(),
            "memory_high_bytes": cgroup["high_bytes"],
        },
        "warnings": (["Of the locations only the path is known: %s" % problem] if problem else []) + (directory.warnings() if directory else []),
    }


def reclaim(pid: int) -> Reclaim:
    """The mechanisms that reclaim pages of this process before memory is short. Cheap enough for every restore."""
    cgroup = _cgroup(pid, _proc.mounts())
    near = cgroup["high_bytes"] is not None and cgroup["high_used_bytes"] is not None and cgroup["high_used_bytes"] >= _NEAR * cgroup["high_bytes"]
    return Reclaim(bool(_kdamonds()), cgroup["high_set_by"] if near else None, cgroup["high_bytes"] if near else 0)


def server_reclaim(session: Session) -> Reclaim:
    """The mechanisms that reclaim pages of the server, if this is its host."""
    peer = session.peer()
    if peer is not None:
        return reclaim(peer.pid)
    found = session.only_row(_HERE)
    return reclaim(found["pid"]) if found["here"] else Reclaim()


def memory_limit(pid: int) -> Optional[int]:
    """Bytes, of the tightest memory cgroup around a process; None without a limit."""
    limit: Optional[int] = _cgroup(pid, _proc.mounts())["limit_bytes"]
    return limit


def data_devices(data_directory: str) -> List[str]:
    """The block devices right below the data directory and its tablespaces, as /sys calls them."""
    return sorted({name for names in _data_devices(data_directory) for name in names})


def all_data_on_devices(data_directory: str) -> bool:
    """True if every location is on a known device: a file system in memory, over others or over the network has none."""
    return all(_data_devices(data_directory))


def _data_devices(data_directory: str) -> List[List[str]]:
    mounts = _proc.mounts()
    return [_devices.volumes_of(place.device, place.path, mounts) for place in places(data_directory)]


# --- where the relations are ---


def places(data_directory: str) -> List[Place]:
    """The data directory and each tablespace outside it, as far as this user is let in."""
    return _places(data_directory, _look(data_directory)[0])


def _look(data_directory: str) -> Tuple[Optional[DataDirectory], Optional[int], Optional[str]]:
    """The directory and its postmaster, as far as this user is let in; else why not."""
    try:
        return _data_directory.opened(data_directory), _page_cache.postmaster_pid(data_directory), None
    except ResidencyError as error:
        return None, None, str(error)


def _places(data_directory: str, directory: Optional[DataDirectory]) -> List[Place]:
    """The data directory and each tablespace outside it. What is no place of the owner's, root does not even look up by its path."""
    if directory is None:
        path = data_directory
        if os.geteuid() != 0:
            with suppress(OSError):  # exchanged at just this time
                path = os.path.realpath(data_directory)
        return [Place(path, None, _devices.number_of(path) if os.geteuid() != 0 else None)]
    found = [Place(directory.real, None, _devices.number(os.fstat(directory.descriptor).st_dev))]
    with suppress(ResidencyError):  # a pg_tblspc that is closed to this user
        found += [Place(tablespace.path, int(tablespace.number), _devices.number(tablespace.device)) for tablespace in directory.tablespaces()]
    return found


def _location(place: Place, mounts: List[_proc.Mount], directory: Optional[DataDirectory]) -> Dict[str, Any]:
    mount = _proc.mount_of(place.path, mounts)
    device = place.device
    below = "" if place.tablespace is None else "pg_tblspc/%d" % place.tablespace
    exists, honest = (None, None) if directory is None else _cachestat(directory, below)
    return {
        "path": place.path,
        "tablespace": place.tablespace,
        "mount": mount.point if mount else None,
        "filesystem": mount.type if mount else None,
        "source": mount.source if mount else None,
        "device": _devices.name_of(device),
        "disks": [] if device is None else _devices.disks_of(_devices.volumes_of(device, place.path, mounts)),
        "scheduler": _scheduler(device),
        "read_ahead_bytes": _read_ahead_bytes(device),
        "willneed_bytes": _willneed_bytes(device),
        "cachestat": exists,
        "cachestat_honest": honest,
        "large_folios": None if directory is None else _large_folios(directory, below),
    }


def _scheduler(device: Optional[str]) -> Optional[str]:
    text = _first_of(device, "queue/scheduler")
    chosen = re.search(r"\[(.+)\]", text or "")
    return chosen.group(1) if chosen else text


def _read_ahead_bytes(device: Optional[str]) -> Optional[int]:
    text = _first_of(device, "queue/read_ahead_kb")
    if text is None and device is not None:
        text = _proc.text("/sys/class/bdi/%s/read_ahead_kb" % device)
    return None if text is None else _proc.number(text, 1024)


def _willneed_bytes(device: Optional[str]) -> Optional[int]:
    """Bytes that one call of posix_fadvise(WILLNEED) loads at most. It ignores the rest without an error."""
    if device is None:
        return None
    known = [_read_ahead_bytes(device)]
    # a partition has no queue of its own
    known += [_proc.number(_proc.text("/sys/dev/block/%s/%squeue/max_sectors_kb" % (device, up)), 1024) for up in ("", "../")]
    largest = max((size for size in known if size), default=_ALWAYS_HONOURED_KIB * 1024)
    return min(largest, _LARGEST_CALL_KIB * 1024)


def _first_of(device: Optional[str], name: str) -> Optional[str]:
    if device is None:
        return None
    text = _proc.text("/sys/dev/block/%s/%s" % (device, name))
    return text if text is not None else _proc.text("/sys/dev/block/%s/../%s" % (device, name))


# --- what the kernel tells of a file, and how it keeps it ---


def _cachestat(directory: DataDirectory, below: str) -> Tuple[Optional[bool], Optional[bool]]:
    """Two answers: the system call exists, and it counts a page that was read just now.

    On some file systems (overlay) it asks an inode that has no pages.
    """
    try:
        descriptor = directory.open(_small_file(directory, below))
    except (OSError, ResidencyError):
        return None, None
    try:
        if not os.pread(descriptor, 1, 0):
            return None, None
        return True, _page_cache.cachestat(descriptor, 1).cached > 0
    except OSError as error:
        return (False, False) if error.errno == errno.ENOSYS else (None, None)
    finally:
        os.close(descriptor)


def _small_file(directory: DataDirectory, below: str) -> str:
    """PG_VERSION of the data directory, or of a tablespace's first database."""
    if below:
        for version in directory.listed(below):
            for database in directory.listed("%s/%s" % (below, version)):
                folder = "%s/%s/%s" % (below, version, database)
                if "PG_VERSION" in directory.listed(folder):
                    return folder + "/PG_VERSION"
    return "PG_VERSION"


def _large_folios(directory: DataDirectory, below: str) -> Optional[bool]:
    """True when a cached file was found in pieces larger than a page. Only root is told the frames."""
    if not os.path.isdir(_proc.where("/sys/kernel/mm/transparent_hugepage")):
        return False  # the page cache has them only in kernels built with huge pages
    try:
        largest = _largest_file(directory, below)
        if largest is None:
            return None
        with ExitStack() as stack:
            file = stack.enter_context(os.fdopen(directory.open(largest), "rb", buffering=0))
            pagemap, flags = (
                stack.enter_context(open(path, "rb", buffering=0)) for path in (_proc.where("/proc/self/pagemap"), _proc.where("/proc/kpageflags"))
            )
            length = min(os.fstat(file.fileno()).st_size, _SAMPLED_BYTES) // _PAGE * _PAGE
            # nothing is to be read in by looking
            if not length or _page_cache.resident_bytes(file.fileno(), length) < length:
                return None
            for frame in _frames(file.fileno(), length, pagemap.fileno()):
                entry = os.pread(flags.fileno(), 8, frame * 8)
                if int.from_bytes(entry, "little") & _KPAGE_COMPOUND_TAIL:
                    return True
    except (OSError, ResidencyError):
        pass
    return None


def _frames(descriptor: int, length: int, pagemap: int) -> List[int]:
    # private and writable only because Python shows no other mapping's address; nothing is written
    with mmap.mmap(descriptor, length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as pages:
        # unlike a touch, this is an error and no signal when the file has become shorter
        pages.madvise(_MADV_POPULATE_READ)
        first = ctypes.c_char.from_buffer(pages)
        address = ctypes.addressof(first)
        del first
        entries = os.pread(pagemap, length // _PAGE * 8, address // _PAGE * 8)
    numbers = [int.from_bytes(entries[at : at + 8], "little") for at in range(0, len(entries), 8)]
    return [number & _PAGEMAP_FRAME for number in numbers if number & _PAGEMAP_PRESENT and number & _PAGEMAP_FRAME]


def _largest_file(directory: DataDirectory, below: str) -> Optional[str]:
    """The name of the largest of the first relation files below a directory; None if there is none."""
    prefix = below or "base"
    largest, size = None, 0
    names = (name for name in _page_cache.relation_files(directory.path, None) if name.startswith(prefix + "/"))
    for name in islice(names, _SAMPLED_FILES):
        try:
            length = directory.status(name).st_size
        except OSError:
            continue
        if length > size:
            largest, size = name, length
    return largest


# --- who is charged, and what takes pages away ---


def _cgroup(pid: Optional[int], mounts: List[_proc.Mount]) -> Dict[str, Any]:
    """The memory cgroup of the postmaster, which what its processes load is charged to, and its tightest limits."""
    result: Dict[str, Any] = {
        "version": None, "pid": pid, "path": None, "limit_bytes": None, "limited_by": None, "high_bytes": None, "high_set_by": None,
        "high_used_bytes": None, "used_bytes": None,
    }
    first = [mount for mount in mounts if mount.type == "cgroup" and "memory" in mount.options.split(",")]
    second = [mount for mount in mounts if mount.type == "cgroup2"]
    if not first and not second:
        return result
    version = 1 if first else 2
    mount = (first or second)[0]
    result["version"] = version
    path = _proc.cgroup_path(pid, version)
    if path is None:
        return result
    result["path"] = path
    parts = [part for part in _proc.inside(path, mount).split("/") if part]
    limit_name, used_name = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    for depth in range(len(parts), -1, -1):
        folder = os.path.join(mount.point, *parts[:depth])
        limit = _limit(folder, limit_name)
        high = _limit(folder, "memory.high") if version == 2 else None
        if limit is not None and (result["limit_bytes"] is None or limit < result["limit_bytes"]):
            result.update(limit_bytes=limit, limited_by=folder)
        if high is not None and (result["high_bytes"] is None or high < result["high_bytes"]):
            result.update(high_bytes=high, high_set_by=folder, high_used_bytes=_limit(folder, used_name))
        if depth == len(parts):
            result["used_bytes"] = _limit(folder, used_name)
    return result


def _limit(folder: str, name: str) -> Optional[int]:
    """ "max" is no number and so no limit; neither is version 1's largest number of pages."""
    value = _proc.number(_proc.text(os.path.join(folder, name)))
    return value if value is not None and value < 1 << 62 else None


def _kdamonds() -> Optional[int]:
    """Kernel threads of DAMON that run now: with such a scheme the cache of an idle server drains by itself."""
    directory = "/sys/kernel/mm/damon/admin/kdamonds"
    names = [name for name in _proc.listed(directory) if name.isdigit()]
    states = [_proc.text("%s/%s/state" % (directory, name)) for name in names]
    if names and None not in states:
        return states.count("on")
    # the files are root's; the threads are everyone's to see, except in a container
    commands = [_proc.text("/proc/%s/comm" % name) for name in _proc.listed("/proc") if name.isdigit()]
    if "kthreadd" not in commands:
        return None
    return sum(1 for command in commands if command and command.startswith("kdamond"))
