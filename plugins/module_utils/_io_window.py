# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two readings of PostgreSQL's and the kernel's counters, and what happened in between.

A counter that began anew has no difference: the figure is None, and so is every sum that would need it. A sentence says why.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._io_reading import Charged, Counters, Served

FORMAT = 1  # of a reading that a play keeps
Figures = Dict[str, Any]


class Database(NamedTuple):
    name: str
    read: int  # blocks
    hit: int
    temp_bytes: int
    reset: Optional[str]  # when its statistics were


class Object(NamedTuple):
    """The counts of pg_stat_io for a kind of relation, or for WAL. Writes include the extensions."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int


class Sessions(NamedTuple):
    """Other sessions at an edge of the window that have not reported all their counts yet."""

    working: int  # run a statement
    pending: int  # idle for less than 10 seconds: may have counted what they have not reported
    open: int  # in a transaction, whose counts are reported at its end
    oldest: Optional[float]  # seconds since the first of these began
    unknown: int  # have track_activities off


@dataclass(frozen=True)
class Statistics:
    """PostgreSQL's."""

    databases: Dict[str, Database]  # by OID, 0 for what all databases share
    objects: Optional[Dict[str, Object]]  # None before PostgreSQL 16
    objects_reset: Optional[str]
    written: Optional[int]  # blocks, before PostgreSQL 16
    written_reset: Optional[str]
    wal_bytes: int
    wal_reset: Optional[str]


@dataclass(frozen=True)
class Reading:
    host: str
    boot: Optional[str]
    clock: float  # seconds since 1970
    seconds: float  # since the host's start
    data_directory: str
    postmaster: Tuple[int, int]  # its process and start
    recovered: Optional[str]  # when the server's processes last began
    block_size: int
    statistics: Statistics
    sessions: Sessions
    charged: Charged
    volumes: Tuple[str, ...]
    disks: Tuple[str, ...]
    counters: Dict[str, Counters]
    cgroup: Optional[Dict[str, Served]]
    memory: Dict[str, int]
    pressure: Dict[str, int]


def plain(reading: Reading) -> Dict[str, Any]:
    return dict(dataclasses.asdict(reading), format=FORMAT)


def parsed(given: Mapping[str, Any]) -> Reading:
    """The reading that plain() has written, after it was in a variable of a play."""
    try:
        if int(given["format"]) != FORMAT:
            raise ValueError("format")
        values = {key: value for key, value in given.items() if key != "format"}
        statistics = dict(values["statistics"])
        statistics.update(databases=_each(Database, statistics["databases"]), objects=_each(Object, statistics["objects"]))
        values.update(
            seconds=float(values["seconds"]),
            postmaster=tuple(map(int, values["postmaster"])),
            statistics=Statistics(**statistics),
            sessions=Sessions(*values["sessions"]),
            charged=Charged(*values["charged"]),
            volumes=tuple(values["volumes"]),
            disks=tuple(values["disks"]),
            counters=_each(Counters, values["counters"]),
            cgroup=_each(Served, values["cgroup"]),
        )
        return Reading(**values)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ResidencyError(
            "reading is not what state begin has returned: register the result of that task, and give its key reading, with the same version of"
            " this collection."
        ) from None


@dataclass
class Window:
    """The difference of two readings. ``gaps`` are the reasons why something is unknown."""

    seconds: Optional[float] = None
    blocks_read: Optional[int] = None
    blocks_hit: Optional[int] = None
    temp_bytes: Optional[int] = None
    databases: List[Figures] = field(default_factory=list)
    objects: Optional[Dict[str, Object]] = None
    blocks_written: Optional[int] = None
    wal_bytes: Optional[int] = None
    charged: Optional[Charged] = None
    devices: Dict[str, Optional[Counters]] = field(default_factory=dict)
    wrapped: List[str] = field(default_factory=list)  # devices of which the times are unknown
    cgroup: Optional[Dict[str, Served]] = None
    memory: Dict[str, Optional[int]] = field(default_factory=dict)
    pressure: Dict[str, Optional[float]] = field(default_factory=dict)
    gaps: List[str] = field(default_factory=list)

    def total(self, names: Sequence[str]) -> Optional[Counters]:
        """The sum over devices; None if one of them is unknown, or there is none."""
        found = [self.devices.get(name) for name in names]
        known = [one for one in found if one is not None]
        return Counters(*map(sum, zip(*known))) if known and len(known) == len(found) else None


def between(before: Reading, after: Reading) -> Window:
    window = Window()
    if before.boot != after.boot:
        window.gaps.append("the host was rebooted inside the window, and every counter began anew")
        return window
    window.seconds = after.seconds - before.seconds
    _of_server(window, before, after)
    for name in sorted({*before.disks, *before.volumes, *after.disks, *after.volumes}):
        window.devices[name] = _of_device(window, name, before, after)
    window.memory = {name: _grown(before.memory.get(name), after.memory.get(name)) for name in ("refaulted_pages", "major_faults")}
    for name in ("io_some", "io_full", "memory_some", "memory_full"):
        waited = _grown(before.pressure.get(name), after.pressure.get(name))
        window.pressure[name] = None if waited is None or not window.seconds else min(100.0, round(waited / window.seconds / 10000, 2))
    return window


def _of_server(window: Window, before: Reading, after: Reading) -> None:
    if before.postmaster != after.postmaster:
        window.gaps.append("PostgreSQL was restarted inside the window: what it read and wrote before and after cannot be added up")
        return
    window.charged = _since_charged(window, before.charged, after.charged)
    if before.cgroup is not None and after.cgroup is not None:
        window.cgroup = _since_served(window, before.cgroup, after.cgroup)
    if before.recovered != after.recovered:
        window.gaps.append("a process of PostgreSQL crashed inside the window: after the recovery its statistics began anew")
        return
    _of_databases(window, before.statistics, after.statistics)
    _of_objects(window, before.statistics, after.statistics)
    _of_writes(window, before, after)


def _of_databases(window: Window, before: Statistics, after: Statistics) -> None:
    known = True
    read = hit = temporary = 0
    for oid, old in before.databases.items():
        if oid not in after.databases:
            window.gaps.append("database %s was dropped inside the window, and its statistics with it" % old.name)
            known = False
    for oid, new in after.databases.items():
        old = before.databases.get(oid, Database(new.name, 0, 0, 0, new.reset))
        counts = [later - earlier for earlier, later in zip(old[1:4], new[1:4])]
        if old.reset != new.reset or min(counts) < 0:
            window.gaps.append("the statistics of %s were reset inside the window" % ("database " + new.name if oid != "0" else "the shared relations"))
            known = False
            continue
        read, hit, temporary = read + counts[0], hit + counts[1], temporary + counts[2]
        if oid != "0" and any(counts):
            window.databases.append({"name": new.name, "counted": counts[0], "hits": counts[1], "temp_bytes": counts[2]})
    if known:
        window.blocks_read, window.blocks_hit, window.temp_bytes = read, hit, temporary
    window.databases.sort(key=lambda database: (-database["counted"], -database["hits"], database["name"]))


def _of_objects(window: Window, before: Statistics, after: Statistics) -> None:
    if before.objects is None or after.objects is None:
        return
    nothing = Object(0, 0, 0, 0)
    found = {name: _minus(one, before.objects.get(name, nothing)) for name, one in after.objects.items()}
    if before.objects_reset != after.objects_reset or any(min(one) < 0 for one in found.values()):
        window.gaps.append("pg_stat_io was reset inside the window")
        return
    window.objects = {name: Object(*one) for name, one in found.items()}


def _of_writes(window: Window, before: Reading, after: Reading) -> None:
    old, new = before.statistics, after.statistics
    if window.objects is not None:
        written = sum(one.write_bytes for name, one in window.objects.items() if name != "wal")
        window.blocks_written = written // after.block_size
    elif old.written is not None and new.written is not None:
        if old.written_reset != new.written_reset or new.written < old.written:
            window.gaps.append("pg_stat_bgwriter was reset inside the window")
        else:
            window.blocks_written = new.written - old.written
    if old.wal_reset != new.wal_reset or new.wal_bytes < old.wal_bytes:
        window.gaps.append("pg_stat_wal was reset inside the window")
    else:
        window.wal_bytes = new.wal_bytes - old.wal_bytes


def _of_device(window: Window, name: str, before: Reading, after: Reading) -> Optional[Counters]:
    held, holds = (name in {*one.disks, *one.volumes} for one in (before, after))
    old, new = before.counters.get(name), after.counters.get(name)
    if new is None and old is not None:
        window.gaps.append("%s went away inside the window, or is no longer counted" % name)
    elif old is not None and new is not None and old.sequence != new.sequence:
        window.gaps.append("%s was exchanged inside the window" % name)
    elif not held:
        window.gaps.append("%s holds data only since some time inside the window" % name)
    elif not holds:
        window.gaps.append("%s no longer holds data since some time inside the window" % name)
    elif old is None or new is None:
        window.gaps.append("the kernel does not count the I/O of %s (its queue/iostats is 0, or it is not in /proc/diskstats)" % name)
    else:
        return _since(window, name, old, new)
    return None


def _since(window: Window, name: str, old: Counters, new: Counters) -> Optional[Counters]:
    found = Counters(*_minus(new[:-1], old[:-1]))
    if min(found.reads, found.read_bytes, found.writes, found.write_bytes, found.reads_merged, found.writes_merged) < 0:
        window.gaps.append("the counters of %s wrapped or began anew inside the window" % name)
        return None
    # the kernel keeps these in 32 bits: 50 days of a request under way
    if min(found.read_ms, found.write_ms, found.busy_ms, found.queue_ms) < 0:
        window.gaps.append("the times of %s wrapped inside the window: its latency, queue and utilisation are unknown" % name)
        window.wrapped.append(name)
    return found


def _since_charged(window: Window, old: Charged, new: Charged) -> Optional[Charged]:
    found = Charged(new.read_bytes - old.read_bytes, new.write_bytes - old.write_bytes, new.cancelled_bytes - old.cancelled_bytes, old.torn or new.torn)
    if min(found[:3]) < 0:
        window.gaps.append("what the kernel charges to PostgreSQL's processes went back: one of them was counted before it had ended, and not after")
        return None
    return found


def _since_served(window: Window, old: Dict[str, Served], new: Dict[str, Served]) -> Optional[Dict[str, Served]]:
    nothing = Served(0, 0, 0, 0)
    found = {name: Served(*_minus(one, old.get(name, nothing))) for name, one in new.items()}
    if any(min(one) < 0 for one in found.values()):
        window.gaps.append("the counters of the cgroup began anew inside the window")
        return None
    return found


def _minus(new: Sequence[int], old: Sequence[int]) -> List[int]:
    return [later - earlier for later, earlier in zip(new, old)]


def _grown(old: Optional[int], new: Optional[int]) -> Optional[int]:
    return new - old if old is not None and new is not None and new >= old else None


def _each(kind: Callable[..., Any], rows: Optional[Mapping[str, Sequence[Any]]]) -> Any:
    return None if rows is None else {name: kind(*row) for name, row in rows.items()}
