# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a whole server has read from its devices, as the kernel charges its processes.

A backend's own count is not enough: what its parallel workers read is the postmaster's once they have ended, and from
PostgreSQL 18 on I/O workers may do all the reading. The sum over the server only ever grows, so that two sums tell what was
read in between, whoever did it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _io_reading, _page_cache, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes

ATTEMPTS = 20  # to find the same processes before and after a count
_IO_WORKER = re.compile(r"\bio worker \d+")
NOISE = 1 << 20  # bytes that others may read without a word: a log, a configuration file


class Disk(NamedTuple):
    reads: int
    bytes: int


@dataclass(frozen=True)
class Server:
    postmaster: int
    data_directory: str


@dataclass(frozen=True)
class Sample:
    read: Dict[Process, int]  # bytes, by process
    disks: Dict[str, Disk]
    cgroup_bytes: Optional[int]
    torn: bool  # processes came and went all the time


@dataclass
class Reads:
    """Bytes that the devices delivered between two samples."""

    backend: int = 0
    io_workers: int = 0
    ended: int = 0  # what the postmaster has inherited
    others: int = 0
    disk: Dict[str, Disk] = field(default_factory=dict)
    cgroup: Optional[int] = None
    gone: FrozenSet[Process] = frozenset()
    torn: bool = False

    def of_query(self, workers_launched: int) -> int:
        """Without workers of its own, none of the ended processes was the query's."""
        return self.backend + self.io_workers + (self.ended if workers_launched else 0)

    @property
    def disk_bytes(self) -> Optional[int]:
        return sum(disk.bytes for disk in self.disk.values()) if self.disk else None


def server_of(backend: int, listening: Optional[int] = None) -> Server:
    """The server of a backend of this host, found through /proc alone. ``listening`` is the process at the other end of the Unix socket.

    A superuser can replace pg_backend_pid(): which process is the session's is the server's word.
    """
    process = _processes.look(backend)
    if process is None or not _processes.title(backend).startswith("postgres"):
        raise ResidencyError("The server's process %d is not on this host: this module must run on PostgreSQL's host." % backend)
    if listening is not None and process.parent != listening:
        raise ResidencyError(
            "The server that listens at this Unix socket is process %d, and names process %d as this session's, which is a child of process %d:"
            " nothing is measured." % (listening, backend, process.parent)
        )
    try:
        data_directory = os.readlink("/proc/%d/cwd" % process.parent)
        _read_bytes(process.parent)
    except PermissionError:
        raise ResidencyError(
            "Process %d's /proc/%d/io is closed to user id %d: become the cluster's operating system user (become_user: postgres)."
            % (process.parent, process.parent, os.geteuid())
        ) from None
    if _page_cache.postmaster_pid(data_directory) != process.parent:
        raise ResidencyError("%s has no postmaster.pid of process %d: is this another host's server?" % (data_directory, process.parent))
    return Server(process.parent, data_directory)


def sample(server: Server) -> Sample:
    """Bytes read so far, by process. A process that ends meanwhile would count twice or never: then once more."""
    torn = True
    read: Dict[Process, int] = {}
    for _attempt in range(ATTEMPTS):
        processes = _server_processes(server)
        try:
            read = {process: _read_bytes(process.pid) for process in processes}
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError as error:
            raise ResidencyError(
                "%s is closed to user id %d: a process of another user's is a child of PostgreSQL in %s."
                % (error.filename, os.geteuid(), server.data_directory)
            ) from None
        if _server_processes(server) == processes:
            torn = False
            break
    volumes = _capabilities.data_devices(server.data_directory)
    return Sample(read, _disks(volumes), _cgroup_bytes(server.postmaster, volumes), torn)


def compare(before: Sample, after: Sample, server: Server, backend: int) -> Reads:
    reads = Reads(torn=before.torn or after.torn)
    for process, count in after.read.items():
        delta = count - before.read.get(process, 0)
        if process.pid == backend:
            reads.backend += delta
        elif process.pid == server.postmaster:
            reads.ended += delta
        elif _IO_WORKER.search(process.title):
            reads.io_workers += delta
        else:
            reads.others += delta
    reads.gone = frozenset(process for process in before.read if process not in after.read)
    # what these had read by then is the postmaster's now, and was counted before
    reads.ended -= sum(before.read[process] for process in reads.gone)
    for name, disk in after.disks.items():
        if name in before.disks:
            reads.disk[name] = Disk(disk.reads - before.disks[name].reads, disk.bytes - before.disks[name].bytes)
    if before.cgroup_bytes is not None and after.cgroup_bytes is not None:
        reads.cgroup = after.cgroup_bytes - before.cgroup_bytes
    return reads


def doubts(reads: Reads, workers_launched: int, active_sessions: Optional[int]) -> List[str]:
    """Why more may be charged to the query than it has read; none where its figure is exact."""
    found = []
    if reads.torn:
        found.append("processes of this server came and went faster than they could be counted")
    if reads.io_workers > NOISE:
        if active_sessions is None:
            found.append("the I/O workers read for every session, and without pg_monitor the others cannot be seen")
        elif active_sessions:
            found.append("the I/O workers read for every session, and %d other%s active" % (active_sessions, _were(active_sessions)))
    if workers_launched and reads.ended > NOISE and reads.gone:
        found.append("%d other process%s of this server ended: what it had read counts with the parallel workers'"
                     % (len(reads.gone), "" if len(reads.gone) == 1 else "es"))
    elif workers_launched and active_sessions:
        found.append("%d other session%s active, whose parallel workers could not be told from the query's"
                     % (active_sessions, _were(active_sessions)))
    return found


def cross_check(reads: Reads, query_bytes: int) -> List[str]:
    """What the devices themselves say about the figures."""
    found = []
    if reads.disk_bytes is None:
        return ["the data is on no block device of this host, whose reads the kernel would charge to processes"]
    rest = reads.disk_bytes - query_bytes - reads.others
    if rest > max(NOISE * 16, query_bytes // 10):
        found.append("others read %s from the same device meanwhile, which may have cost time" % human_bytes(rest))
    elif -rest > max(NOISE, query_bytes // 10):
        found.append("the device counts %s less than the processes are charged with" % human_bytes(-rest))
    if reads.others > max(NOISE * 16, query_bytes // 10):
        found.append("other processes of this server read %s meanwhile" % human_bytes(reads.others))
    return found


def as_result(reads: Reads) -> Dict[str, Any]:
    return {
        "backend_bytes": reads.backend,
        "io_worker_bytes": reads.io_workers,
        "ended_bytes": reads.ended,
        "other_bytes": reads.others,
        "disks": [{"device": name, "reads": disk.reads, "bytes": disk.bytes} for name, disk in sorted(reads.disk.items())],
        "cgroup_bytes": reads.cgroup,
    }


def _were(count: int) -> str:
    return " was" if count == 1 else "s were"


def _server_processes(server: Server) -> FrozenSet[Process]:
    found = {process for process in _processes.everyone() if server.postmaster in (process.pid, process.parent)}
    if not any(process.pid == server.postmaster for process in found):
        raise ResidencyError("PostgreSQL in %s has ended meanwhile." % server.data_directory)
    return frozenset(found)


def _read_bytes(pid: int) -> int:
    with open("/proc/%d/io" % pid, encoding="utf-8") as file:
        for line in file:
            name, dummy, value = line.partition(": ")
            if name == "read_bytes":
                return int(value)
    raise ResidencyError("This kernel keeps no account of I/O by process (CONFIG_TASK_IO_ACCOUNTING).")


def _disks(names: List[str]) -> Dict[str, Disk]:
    return {name: Disk(one.reads, one.read_bytes) for name, one in _io_reading.disks(names).items()}


def _cgroup_bytes(pid: int, volumes: List[str]) -> Optional[int]:
    """None if the kernel keeps no count for this cgroup alone."""
    served = _io_reading.cgroup(pid, volumes)
    return None if served is None else sum(one.read_bytes for one in served.values())
