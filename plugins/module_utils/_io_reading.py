# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's counters of I/O: of devices, of the processes of a server, of its cgroup, of the page cache and of pressure.

All of them only grow. What happened in a window is the difference of two readings, and a difference below 0 is none.
"""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _proc, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

ATTEMPTS = 20  # to find the same processes before and after a count
PAUSE = 0.01  # seconds until the parent of a process that has ended has taken note of it
_DEEPEST = 16  # layers
_SECTOR = 512  # in /proc/diskstats, whatever the device's own are
Count = TypeVar("Count")


class Counters(NamedTuple):
    """The counters of a device in /proc/diskstats, with bytes in place of sectors. Times are milliseconds."""

    reads: int
    reads_merged: int
    read_bytes: int
    read_ms: int
    writes: int
    writes_merged: int
    write_bytes: int
    write_ms: int
    busy_ms: int
    queue_ms: int
    sequence: int = 0  # not a counter: of the medium, 0 where the kernel does not say


class Charged(NamedTuple):
    """Bytes that the kernel has charged to the processes of a server, also to those that have ended."""

    read_bytes: int
    write_bytes: int  # when they are written to the page cache, not when to a device
    cancelled_bytes: int  # of these, what was removed before it went to a device
    torn: bool  # processes came and went all the time


class Served(NamedTuple):
    reads: int
    read_bytes: int
    writes: int
    write_bytes: int


def disks(names: Iterable[str]) -> Dict[str, Counters]:
    """The counters by names of /sys, without devices that do not exist or that the kernel does not count."""
    wanted = {_devices.counted_as(name): name for name in names}
    found = {}
    for line in _proc.lines("/proc/diskstats"):
        fields = line.split()
        if len(fields) < 14 or fields[2] not in wanted:
            continue
        name = wanted[fields[2]]
        # in flight, the ninth, is no counter
        reads, merged, sectors, spent, writes, written_merged, written, write_spent, dummy, busy, queue = (int(one) for one in fields[3:14])
        if _devices.counts(name):
            found[name] = Counters(
                reads, merged, sectors * _SECTOR, spent, writes, written_merged, written * _SECTOR, write_spent, busy, queue,
                _devices.sequence_of(name) or 0,
            )
    return found


def cgroup_folder(pid: int) -> Optional[_proc.Cgroup]:
    """That counts the I/O of this process; None where only the root cgroup does, which counts all of the host."""
    cgroup = _proc.cgroup_of(pid, "blkio") or _proc.cgroup_of(pid, "")
    return None if cgroup is None or cgroup.path == "/" else cgroup


def cgroup(pid: int, volumes: Sequence[str]) -> Optional[Dict[str, Served]]:
    """By device, what its cgroup was served; None where nothing is counted.

    The kernel counts a request again at each layer, also the one that a loop device sends for it to the disk of its file; but version 1 from
    Linux 6.10 on only at devices that once had a limit. So of each volume the uppermost layer that is counted is taken, and without
    volumes all devices that are on no other.
    """
    place = cgroup_folder(pid)
    counts = _by_number(place) if place else {}
    if not counts:
        return None
    mounts = _proc.mounts()
    named: Dict[str, str] = {}
    for volume in volumes:
        named.update(_counted_at(volume, counts, mounts))
    if not volumes:
        named = {number: name for number in counts for name in [_devices.name_of(number)] if name is not None and _is_bottom(name)}
    return {name: counts[number] for number, name in named.items()}


def foreign(pid: int, place: _proc.Cgroup) -> int:
    """Processes in its cgroup, or below, that are not of this server."""
    own = {process.pid for process in _processes.everyone() if pid in (process.pid, process.parent)}
    members = set()
    top = _proc.where(place.folder)
    for folder, dummy, files in os.walk(top):
        if "cgroup.procs" in files:
            members.update(_proc.lines(os.path.normpath(os.path.join(place.folder, os.path.relpath(folder, top), "cgroup.procs"))))
    return len({int(one) for one in members if one.isdigit()} - own)


def by_process(postmaster: int, count: Callable[[int], Count]) -> Tuple[Dict[_processes.Process, Count], bool]:
    """The result of ``count`` for each process of a server, and True if processes came and went all the time.

    A process that ends meanwhile would count twice or never: then once more. What it had is then its parent's.
    """
    found: Dict[_processes.Process, Count] = {}
    for _attempt in range(ATTEMPTS):
        processes = _server(postmaster)
        try:
            found = {process: count(process.pid) for process in processes}
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError as error:
            if any(_processes.ended(process.pid) for process in processes):
                time.sleep(PAUSE)
                continue
            raise ResidencyError(
                "%s is closed to user id %d: a process of another user's is a child of PostgreSQL's process %d."
                % (error.filename, os.geteuid(), postmaster)
            ) from None
        if _server(postmaster) == processes:
            return found, False
    return found, True


def charged(postmaster: int) -> Charged:
    counts, torn = by_process(postmaster, of_process)
    read, write, cancelled = (sum(count[name] for count in counts.values()) for name in ("read_bytes", "write_bytes", "cancelled_write_bytes"))
    return Charged(read, write, cancelled, torn)


def of_process(pid: int) -> Dict[str, int]:
    """/proc/<pid>/io, or the OSError of who may not read it."""
    with open(_proc.where("/proc/%d/io" % pid), encoding="utf-8") as file:
        return {name: int(value) for name, dummy, value in (line.partition(": ") for line in file)}


def refaults() -> Dict[str, int]:
    """Pages of files that were read again soon after the kernel had taken them back, and what was read and written in all."""
    counts = dict(line.split()[:2] for line in _proc.lines("/proc/vmstat") if len(line.split()) > 1)
    refaulted = counts.get("workingset_refault_file", counts.get("workingset_refault"))  # the latter before Linux 5.9
    found = {"refaulted_pages": refaulted, "major_faults": counts.get("pgmajfault")}
    return {name: int(count) for name, count in found.items() if count is not None}


def pressure() -> Dict[str, int]:
    """Microseconds in which some or all tasks of the host waited for a resource, such as io_some; empty before Linux 4.20."""
    found = {}
    for resource in ("io", "memory"):
        for line in _proc.lines("/proc/pressure/" + resource):
            total = re.search(r"^(some|full) .*\btotal=(\d+)", line)
            if total:
                found["%s_%s" % (resource, total.group(1))] = int(total.group(2))
    return found


def boot() -> Optional[str]:
    return _proc.text("/proc/sys/kernel/random/boot_id")


def _server(postmaster: int) -> FrozenSet[_processes.Process]:
    found = frozenset(process for process in _processes.everyone() if postmaster in (process.pid, process.parent))
    if not any(process.pid == postmaster for process in found):
        raise ResidencyError("PostgreSQL's process %d has ended meanwhile." % postmaster)
    return found


def _counted_at(name: str, counts: Mapping[str, Served], mounts: Sequence[_proc.Mount], depth: int = 0) -> Dict[str, str]:
    """The count of a device, or else those of the devices below it, by number."""
    number = _devices.number_of_name(_devices.whole(name))
    if number in counts and number is not None:
        return {number: _devices.whole(name)}
    found: Dict[str, str] = {}
    if depth < _DEEPEST:
        for below in _devices.below(name, mounts):
            found.update(_counted_at(below, counts, mounts, depth + 1))
    return found


def _is_bottom(name: str) -> bool:
    return _devices.disks_of([name]) == [name] and _devices.kind_of(name) != "loop"


def _by_number(place: _proc.Cgroup) -> Mapping[str, Served]:
    if place.version == 2:
        return {number: served for line in _proc.lines(place.folder + "/io.stat") for number, served in _of_line(line)}
    count = _of_version_1(place.folder + "/blkio.throttle.io_serviced_recursive")
    size = _of_version_1(place.folder + "/blkio.throttle.io_service_bytes_recursive")
    return {
        number: Served(count.get(number, {}).get("Read", 0), one.get("Read", 0), count.get(number, {}).get("Write", 0), one.get("Write", 0))
        for number, one in size.items()
    }


def _of_line(line: str) -> List[Tuple[str, Served]]:
    """8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6. More than one number before it is a device that has had none."""
    words = line.split()
    counts = dict(word.partition("=")[::2] for word in words if "=" in word)
    if not words or "rbytes" not in counts:
        return []
    numbers = [word for word in words if re.fullmatch(r"\d+:\d+", word)]
    return [(numbers[-1], Served(*(int(counts.get(name, 0)) for name in ("rios", "rbytes", "wios", "wbytes"))))] if numbers else []


def _of_version_1(path: str) -> Dict[str, Dict[str, int]]:
    """8:0 Read 123"""
    found: Dict[str, Dict[str, int]] = {}
    for line in _proc.lines(path):
        words = line.split()
        if len(words) == 3 and words[2].isdigit():
            found.setdefault(words[0], {})[words[1]] = int(words[2])
    return found
