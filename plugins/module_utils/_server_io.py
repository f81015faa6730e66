# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reads of a whole server from its devices, as the kernel charges its processes.

A backend's own count is not enough: what its parallel workers read is the postmaster's once they have ended, and from
PostgreSQL 18 on I/O workers may do all the reading. The sum over the server only ever grows, so that two sums tell what was
read in between, whoever did it.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Collection, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _devices, _io_reading, _page_cache, _privileges, _proc, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._others import Others
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES, human_bytes

PAUSE = 0.01  # seconds between two looks at the devices
LONGEST_READ_AHEAD = 1.0  # seconds that are given to the devices to serve it
_IO_WORKER = re.compile(r"\bio worker \d+")
LARGEST_PAGE = 1 << 16  # bytes of a page of memory, which one fault reads at least
NOISE = 1 << 20  # bytes that others may read without a word: a log, a configuration file


class Disk(NamedTuple):
    reads: int
    bytes: int


@dataclass(frozen=True)
class Server:
    postmaster: int
    data_directory: str


class Faults(NamedTuple):
    """Pages of mapped files, such as a program's, that had to be read when they were touched."""

    own: int = 0
    ended: int = 0  # of children that have ended
    any_ended: int = 0  # those of the children's faults that needed no read: no process lives without


@dataclass(frozen=True)
class Sample:
    read: Dict[Process, int]  # bytes, by process
    disks: Dict[str, Disk]  # of the data
    cgroup: Optional[Dict[str, int]]  # bytes, by device
    torn: bool  # processes came and went all the time
    faults: Dict[int, Faults] = field(default_factory=dict)  # by process id
    elsewhere: Dict[str, Disk] = field(default_factory=dict)  # all other devices
    dead: bool = False  # a place of the data is on no device that counts its reads


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
    born: FrozenSet[Process] = frozenset()
    torn: bool = False
    faults: int = 0  # of the backend
    faults_ended: int = 0  # of processes that have ended
    children_ended: bool = False
    elsewhere: Dict[str, Disk] = field(default_factory=dict)
    dead: bool = False  # as in Sample
    ahead: Optional[int] = None  # bytes that one fault may read; None if unknown
    programs: Optional[FrozenSet[str]] = None  # devices of the files that the backend has mapped; None if unknown

    def charged(self, workers_launched: int) -> int:
        """Without workers of its own, none of the ended processes was the query's."""
        return self.backend + self.io_workers + (self.ended if workers_launched else 0)

    def of_query(self, workers_launched: int) -> int:
        """Bytes that the data's devices delivered. Processes are charged with the reads of all devices, such as those of a library for JIT."""
        charged = self.charged(workers_launched)
        return charged if self.disk_bytes is None or self.dead else min(charged, self.disk_bytes)

    def least(self, workers_launched: int) -> int:
        """As of_query(), less all that may have been programs': no read of a relation makes such a fault."""
        found, charged = self.of_query(workers_launched), self.charged(workers_launched)
        faults = self.faults + (self.faults_ended if workers_launched else 0)
        limits = [charged]  # of what programs may have read
        if faults == 0:
            return found
        if self.ahead is not None:
            limits.append(faults * self.ahead)
        if self.programs is not None and not self.programs & set(self.disk) and not self.dead:
            limits.append(sum(disk.bytes for name, disk in self.elsewhere.items() if name in self.programs))
        return min(found, charged - min(limits))

    @property
    def disk_bytes(self) -> Optional[int]:
        return sum(disk.bytes for disk in self.disk.values()) if self.disk else None


def run_as_server_user(session: Session, work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """The result of ``work``. Root does it as the user who listens at the Unix socket, since the kernel shows counters of a process to its user only."""
    if os.geteuid() != 0:
        return work()
    listening = session.peer()
    if listening is None:
        raise ResidencyError(
            "Over TCP, only the server itself tells its processes, which root does not trust: set login_unix_socket and no login_host, or become the"
            " cluster's operating system user."
        )
    try:
        owner = pwd.getpwuid(listening.uid)
    except KeyError:
        raise ResidencyError(
            "The server belongs to user id %d, which has no name on this host: run the module where it has." % listening.uid
        ) from None
    # the session goes on in the child; the parent does not touch it before the child has ended
    result: Dict[str, Any] = _privileges.run_as(owner, [session.descriptor], lambda dummy: work(), {})
    return result


def processes_of(session: Session) -> Tuple[int, Server]:
    """The process id of the session's backend, and its server."""
    backend: int = session.only_row("SELECT pg_catalog.pg_backend_pid() AS pid")["pid"]
    listening = session.peer()
    return backend, server_of(backend, None if listening is None else listening.pid)


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
    except FileNotFoundError:
        raise ResidencyError(
            "There is no /proc/%d/io: either PostgreSQL has ended meanwhile, or this kernel keeps no account of I/O by process"
            " (CONFIG_TASK_IO_ACCOUNTING)." % process.parent
        ) from None
    if _page_cache.postmaster_pid(data_directory) != process.parent:
        raise ResidencyError("%s has no postmaster.pid of process %d: is this another host's server?" % (data_directory, process.parent))
    return Server(process.parent, data_directory)


def sample(server: Server) -> Sample:
    """Bytes read so far, by process."""
    counts, torn = _io_reading.by_process(server.postmaster, lambda pid: (_read_bytes(pid), _faults(pid)))
    disks, names = _disks(), _capabilities.data_devices(server.data_directory)
    return Sample(
        {process: read for process, (read, dummy) in counts.items()},
        _only(disks, names),
        _of_cgroup(server.postmaster, names),
        torn,
        {process.pid: faults for process, (dummy, faults) in counts.items()},
        {name: disk for name, disk in disks.items() if name not in names},
        # some kinds of devices never count their reads
        not _capabilities.all_data_on_devices(server.data_directory) or not all(name in disks and disks[name].reads > 0 for name in names),
    )


def sample_served(server: Server, before: Sample) -> Sample:
    """As sample(), when the devices have served what they were asked for: a process is charged when it asks, and a query does not wait for read-ahead."""
    after = sample(server)
    charged = sum(after.read.values()) - sum(before.read.values())
    until = time.monotonic() + LONGEST_READ_AHEAD
    while sum(disk.bytes for disk in _grown(before.disks, after.disks).values()) < charged and time.monotonic() < until:
        time.sleep(PAUSE)
        disks = _disks()
        after = replace(after, disks=_only(disks, after.disks), elsewhere=_only(disks, after.elsewhere))
    return after


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
    reads.born = frozenset(process for process in after.read if process not in before.read)
    # what these had read by then is the postmaster's now, and was counted before
    reads.ended -= sum(before.read[process] for process in reads.gone)
    reads.disk = _grown(before.disks, after.disks)
    reads.elsewhere = _grown(before.elsewhere, after.elsewhere)
    reads.dead = before.dead or after.dead or before.disks.keys() != after.disks.keys()
    reads.faults = after.faults.get(backend, Faults()).own - before.faults.get(backend, Faults()).own
    former, now = (one.faults.get(server.postmaster, Faults()) for one in (before, after))
    reads.faults_ended = now.ended - former.ended
    reads.children_ended = now.any_ended != former.any_ended
    if before.cgroup is not None and after.cgroup is not None:
        # by device: what a layer below has counted so far stands for one that has not counted yet
        reads.cgroup = sum(count - before.cgroup.get(name, 0) for name, count in after.cgroup.items())
    return reads


def more_than_its_own(reads: Reads, workers_launched: int, others: Others, read_by_workers: int) -> List[str]:
    """Remarks about reads of others that may be charged to the query."""
    found = []
    shared = reads.io_workers > NOISE
    if shared:
        if others.active is None:
            found.append("the I/O workers read for every session, and without pg_monitor the others cannot be seen")
        elif others.active:
            found.append("the I/O workers read for every session, and %d other%s active" % (others.active, _were(others.active)))
    ended = workers_launched > 0 and reads.ended > NOISE
    if ended and reads.gone:
        found.append("%d other process%s of this server ended: what it had read counts with the parallel workers'"
                     % (len(reads.gone), _es(len(reads.gone))))
    elif shared and reads.gone:
        found.append("%d other process%s of this server ended, for which the I/O workers may have read" % (len(reads.gone), _es(len(reads.gone))))
    elif ended and others.active is None:
        found.append("without pg_monitor other sessions cannot be seen, whose parallel workers could not be told from the query's")
    elif workers_launched and others.active:
        found.append("%d other session%s active, whose parallel workers could not be told from the query's" % (others.active, _were(others.active)))
    if ended or shared:
        unseen = shared and not workers_launched and reads.children_ended and not reads.gone
        found += _came_and_went(others, read_by_workers, unseen or (not found and len(reads.born) > 0))
    if reads.of_query(workers_launched) - reads.least(workers_launched) > NOISE:
        found.append("program files were read too, such as the library for JIT, and the devices cannot tell them from the data")
    return found


def _came_and_went(others: Others, read_by_workers: int, some: bool) -> List[str]:
    """Others that began after the first sample of the processes, and may have ended before the second one. ``some``: there is one of any kind."""
    if others.came is None or others.blocks is None:
        return ["the server does not tell which sessions came and went meanwhile"]
    # beginning to work, a parallel worker reads a few blocks of catalogs
    foreign = (others.blocks - read_by_workers) * BLOCK_BYTES
    if others.came:
        return ["%d session%s began meanwhile, whose reads could not be told from the query's%s" % (
            others.came, "" if others.came == 1 else "s", ": PostgreSQL counts %s" % human_bytes(foreign) if foreign > NOISE else ""
        )]
    if foreign > NOISE:
        return ["other processes of this server read %s and ended meanwhile" % human_bytes(foreign)]
    return ["another process of this server began or ended meanwhile"] if some else []


def neither_more_nor_less(reads: Reads) -> List[str]:
    """Remarks about counts that are lost."""
    if reads.disk_bytes is None:
        return ["the data is on no block device of this host, whose reads the kernel would charge to processes"]
    if reads.torn:
        return ["processes of this server came and went faster than they could be counted"]
    if any(_IO_WORKER.search(process.title) for process in reads.gone):
        return ["an I/O worker ended, and what it had read is no longer told from other processes' reads"]
    return []


def cross_check(reads: Reads, workers_launched: int) -> List[str]:
    """Remarks that follow from the devices' own counters."""
    found: List[str] = []
    if reads.disk_bytes is None:
        return found
    query_bytes = reads.of_query(workers_launched)
    rest = reads.disk_bytes - query_bytes - reads.others
    if rest > max(NOISE * 16, query_bytes // 10):
        found.append("others read %s from the same device meanwhile, which may have cost time" % human_bytes(rest))
    elsewhere = reads.charged(workers_launched) - query_bytes
    if elsewhere > max(NOISE, query_bytes // 10):
        found.append("%s came from other devices than the data's, such as program files: they are not counted" % human_bytes(elsewhere))
    if reads.dead:
        found.append("a part of the data is on no device that counts its reads")
    if reads.others > max(NOISE * 16, query_bytes // 10):
        found.append("other processes of this server read %s meanwhile" % human_bytes(reads.others))
    return found


def as_result(reads: Reads, workers_launched: int) -> Dict[str, Any]:
    return {
        "backend_bytes": reads.backend,
        "io_worker_bytes": reads.io_workers,
        "ended_bytes": reads.ended,
        "other_bytes": reads.others,
        "elsewhere_bytes": reads.charged(workers_launched) - reads.of_query(workers_launched),
        "disks": [{"device": name, "reads": disk.reads, "bytes": disk.bytes} for name, disk in sorted(reads.disk.items())],
        "cgroup_bytes": reads.cgroup,
    }


def _were(count: int) -> str:
    return " was" if count == 1 else "s were"


def _es(count: int) -> str:
    return "" if count == 1 else "es"


def _read_bytes(pid: int) -> int:
    return _io_reading.of_process(pid)["read_bytes"]


def _faults(pid: int) -> Faults:
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return Faults(int(fields[9]), int(fields[10]), int(fields[8]))


def _disks() -> Dict[str, Disk]:
    return {name: Disk(one.reads, one.read_bytes) for name, one in _io_reading.disks(_devices.names()).items()}


def _only(disks: Dict[str, Disk], names: Collection[str]) -> Dict[str, Disk]:
    return {name: disk for name, disk in disks.items() if name in names}


def _setting(name: str, setting: str) -> Optional[str]:
    """A setting of a device's queue; a partition has that of its disk."""
    return next((text for text in (_proc.text("/sys/class/block/%s%s/queue/%s" % (name, above, setting)) for above in ("", "/..")) if text), None)


def _grown(before: Dict[str, Disk], after: Dict[str, Disk]) -> Dict[str, Disk]:
    return {
        name: Disk(disk.reads - before[name].reads, disk.bytes - before[name].bytes) for name, disk in after.items() if name in before
    }


def read_ahead(names: Optional[FrozenSet[str]]) -> Optional[int]:
    """Bytes that the kernel reads at most around a page of a mapped file. None if unknown."""
    found = [_proc.number(_setting(name, "read_ahead_kb"), 1024) for name in names or ()]
    known = [max(one, LARGEST_PAGE) for one in found if one is not None]
    return max(known) if found and len(known) == len(found) else None


def program_devices(pid: int) -> Optional[FrozenSet[str]]:
    """The devices of the programs and libraries that a process has mapped, as /sys calls them. None if one has no such device."""
    found: Set[Optional[str]] = set()
    for line in _proc.lines("/proc/%d/maps" % pid):
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            major, dummy, minor = fields[3].partition(":")
            found.add(_devices.name_of("%d:%d" % (int(major, 16), int(minor, 16))))
    return None if not found or None in found else frozenset(name for name in found if name is not None)


def _of_cgroup(pid: int, volumes: List[str]) -> Optional[Dict[str, int]]:
    """None if the kernel keeps no count for this cgroup alone."""
    served = _io_reading.cgroup(pid, volumes)
    return None if served is None else {name: one.read_bytes for name, one in served.items()}
