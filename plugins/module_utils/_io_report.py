# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a window: what PostgreSQL counted, what devices served, and what of that was others'."""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _io_window
from ansible_collections.pgfleet.cache.plugins.module_utils._devices import Beneath
from ansible_collections.pgfleet.cache.plugins.module_utils._io_reading import Counters, Served
from ansible_collections.pgfleet.cache.plugins.module_utils._io_window import Reading, Window
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, human_percent, human_seconds, percent

NOISE = 1 << 20  # bytes that others may read without a word
MOST_DATABASES = 20
BEGUN = "The window has begun: give reading to state end."
_SHORT = 100  # seconds: in a longer window, what PostgreSQL learns 1 s later is less than 1 %
_LARGE = 1.5  # blocks: from here on, a request of a device is no single block

Figures = Dict[str, Any]


class Location(NamedTuple):
    """The location of files of the cluster."""

    kind: str  # data, wal, tablespace
    path: str
    tablespace: Optional[int]
    beneath: Beneath


def nothing() -> Figures:
    """The keys of report(), without figures."""
    return {
        "window": None, "reads": None, "writes": None, "others": None, "disks": [], "volumes": [], "total": None, "cgroup": None,
        "pg_stat_io": None, "databases": [], "memory": None, "pressure": None, "certainty": None, "gaps": [], "remarks": [],
    }


def location(place: Location) -> Figures:
    found = place.beneath
    return {
        "kind": place.kind, "path": place.path, "tablespace": place.tablespace, "mount": found.mount, "filesystem": found.filesystem,
        "source": found.source, "volumes": list(found.volumes), "disks": list(found.disks),
        "layers": [{"device": layer.name, "kind": layer.kind, "alias": layer.alias} for layer in found.layers],
        "unmeasurable": found.reason,
    }


def report(begun: Reading, ended: Reading, places: Sequence[Location], foreign: Optional[int]) -> Figures:
    window = _io_window.between(begun, ended)
    # what held data at either edge: without one of them a sum is none
    disks, volumes = (sorted({*getattr(begun, name), *getattr(ended, name)}) for name in ("disks", "volumes"))
    gaps = window.gaps + unmeasurable(places)
    whole = not [place for place in places if place.beneath.reason]
    total = window.total(disks)
    on_volumes = window.total(volumes)
    reads = _reads(window, total, ended.block_size)
    others = _others(window, total, on_volumes, whole)
    result = nothing()
    result.update(
        window={"begin": _moment(begun.clock), "end": _moment(ended.clock), "seconds": window.seconds if window.seconds is None else round(window.seconds, 3)},
        reads=reads,
        writes=_writes(window, total, ended.block_size),
        others=others,
        disks=[dict(_named(name), **_device(window.devices.get(name), window, [name])) for name in disks],
        volumes=[dict(_named(name), **_device(window.devices.get(name), window, [name])) for name in volumes],
        total=_device(total, window, disks, [window.devices.get(name) for name in disks]) if disks else None,
        cgroup=_cgroup(window, foreign),
        pg_stat_io=None if window.objects is None else [dict(object=name, **one._asdict()) for name, one in sorted(window.objects.items())],
        databases=window.databases[:MOST_DATABASES],
        memory=window.memory or None,
        pressure={name + "_percent": value for name, value in window.pressure.items()} or None,
        certainty=certainty(reads, others, gaps),
        gaps=gaps,
        remarks=_remarks(begun, ended, window, reads, others, total, disks),
    )
    result["msg"] = _message(result)
    return result


def unmeasurable(places: Sequence[Location]) -> List[str]:
    return ["%s is on no disk that can be measured: %s" % (place.path, place.beneath.reason) for place in places if place.beneath.reason]


def certainty(reads: Figures, others: Optional[Figures], gaps: Sequence[str]) -> str:
    """The certainty that the reads which the disks served are the server's."""
    if reads["served"] is None or others is None or gaps:
        return "unknown"
    return "upper_bound" if others["read_bytes"] > max(NOISE, reads["served_bytes"] // 100) else "exact"


# --- figures ---


def _reads(window: Window, total: Optional[Counters], block_size: int) -> Figures:
    counted, hits = window.blocks_read, window.blocks_hit
    server = None if window.charged is None else window.charged.read_bytes
    size = None if counted is None else counted * block_size
    page_cache = None if size is None or server is None else max(0, size - server)
    return {
        "counted": counted,
        "counted_bytes": size,
        "riops": _rate(counted, window),
        "hits": hits,
        "hit_percent": percent(hits, hits + counted) if counted is not None and hits is not None and hits + counted else None,
        "served": total.reads if total else None,
        "served_bytes": total.read_bytes if total else None,
        "rpiops": _rate(total.reads if total else None, window),
        "ratio": _ratio(counted, total.reads if total else None),
        "server_bytes": server,
        "page_cache_bytes": page_cache,
        "page_cache_percent": percent(page_cache, size) if page_cache is not None and size else None,
        "over_read_bytes": None if size is None or server is None else max(0, server - size),
        "temp_bytes": window.temp_bytes,
    }


def _writes(window: Window, total: Optional[Counters], block_size: int) -> Figures:
    counted = window.blocks_written
    return {
        "counted": counted,
        "counted_bytes": None if counted is None else counted * block_size,
        "wiops": _rate(counted, window),
        "wal_bytes": window.wal_bytes,
        "served": total.writes if total else None,
        "served_bytes": total.write_bytes if total else None,
        "wpiops": _rate(total.writes if total else None, window),
        "ratio": _ratio(counted, total.writes if total else None),
        "server_bytes": None if window.charged is None else window.charged.write_bytes - window.charged.cancelled_bytes,
    }


def _others(window: Window, total: Optional[Counters], volumes: Optional[Counters], whole: bool) -> Optional[Figures]:
    """The reads of others, from three counts, each a part of the one before: disks, the file systems' devices, the server's processes.

    Only if all files are on these disks: else the processes may have read elsewhere.
    """
    if total is None or volumes is None or window.charged is None or not whole:
        return None
    read = max(0, total.read_bytes - window.charged.read_bytes)
    elsewhere = min(read, max(0, total.read_bytes - volumes.read_bytes))
    return {
        "read_bytes": read,
        "read_percent": percent(read, total.read_bytes) if total.read_bytes else None,
        "elsewhere_bytes": elsewhere,
        "same_filesystems_bytes": read - elsewhere,
    }


def _named(name: str) -> Figures:
    """Name, kind and alias of a device. If it went away, only the name is known."""
    there = _devices.number_of_name(name) is not None
    return {"device": name, "kind": _devices.kind_of(name) if there else None, "alias": _devices.alias_of(name)}


def _device(counters: Optional[Counters], window: Window, names: Sequence[str], each: Sequence[Optional[Counters]] = ()) -> Figures:
    """``each`` are those of which this is the sum: it is as busy as the busiest."""
    timed = counters is not None and not set(names) & set(window.wrapped)
    figures: Figures = {}
    for word, one in (("read", "reads"), ("write", "writes")):
        count = getattr(counters, one) if counters else None
        size = getattr(counters, word + "_bytes") if counters else None
        figures[one] = count
        figures[one + "_per_second"] = _rate(count, window)
        figures[one + "_merged"] = getattr(counters, one + "_merged") if counters else None
        figures[word + "_bytes"] = size
        figures[word + "_bytes_per_second"] = _rate(size, window)
        figures[word + "_request_bytes"] = size // count if count and size is not None else None
        figures[word + "_milliseconds"] = round(getattr(counters, word + "_ms") / count, 3) if timed and count else None
    elapsed = window.seconds * 1000 if window.seconds else None
    busy = [one.busy_ms for one in (each or [counters]) if one is not None]
    figures["queue"] = round(counters.queue_ms / elapsed, 2) if timed and counters is not None and elapsed else None
    figures["utilisation_percent"] = min(100.0, round(100 * max(busy) / elapsed, 2)) if timed and busy and elapsed else None
    return figures


def _cgroup(window: Window, foreign: Optional[int]) -> Optional[Figures]:
    if window.cgroup is None:
        return None
    total = Served(*map(sum, zip(*window.cgroup.values()))) if window.cgroup else Served(0, 0, 0, 0)
    return dict(total._asdict(), foreign_processes=foreign)


# --- words ---


def _remarks(
    begun: Reading, ended: Reading, window: Window, reads: Figures, others: Optional[Figures], total: Optional[Counters], disks: Sequence[str]
) -> List[str]:
    found = []
    for reading, when in ((begun, "beginning"), (ended, "end")):
        found += _unsettled(reading, when)
    if (begun.sessions.working or ended.sessions.working) and window.seconds is not None and window.seconds < _SHORT:
        found.append("other sessions were at work, which report at most once per second: what PostgreSQL counted may be of 1 s more or less than this window")
    if window.charged is not None and window.charged.torn:
        found.append("processes of this server came and went faster than they could be counted: server_bytes may be too large or too small")
    found += _of_objects(window, ended.block_size)
    if window.temp_bytes:
        found.append("%s of temporary files were written, of which no read is counted" % human_bytes(window.temp_bytes))
    if others is not None and others["read_bytes"] > max(NOISE, reads["served_bytes"] // 100):
        found.append(_of_others(others))
    if total is not None and window.charged is not None and window.charged.read_bytes - total.read_bytes > max(NOISE, total.read_bytes // 10):
        found.append(
            "the disks count %s less than the kernel charges to the processes: their data is elsewhere, or stored in less space"
            % human_bytes(window.charged.read_bytes - total.read_bytes)
        )
    if total is not None and total.read_bytes > max(NOISE, _LARGE * ended.block_size * total.reads):
        found.append(
            "a read of the disks is of %s on average, and one that PostgreSQL counts of %s: compare bytes, the ratio is not the page cache's share"
            % (human_bytes(total.read_bytes / max(1, total.reads)), human_bytes(ended.block_size))
        )
    for name in disks:
        file = _devices.cached_file(name)
        if file is not None:
            found.append("%s is the file %s, which it reads through the page cache: not all that it served came from a disk" % (name, file))
    if reads["counted"] == 0:
        found.append("PostgreSQL read nothing inside the window")
    return found


def _unsettled(reading: Reading, when: str) -> List[str]:
    sessions = reading.sessions
    side = "before the window" if when == "beginning" else "in the window"
    verb = "is counted" if when == "beginning" else "is not counted"
    found = []
    if sessions.open:
        found.append(
            "at the %s %d other session%s in a transaction, the oldest for %s: what %s read in it %s %s"
            % (when, sessions.open, _were(sessions.open), human_seconds(sessions.oldest or 0), "it" if sessions.open == 1 else "they", side, verb)
        )
    if sessions.pending:
        found.append(
            "at the %s %d other session%s idle for less than 10 s: what %s read last %s may be %s"
            % (when, sessions.pending, _were(sessions.pending), "it" if sessions.pending == 1 else "they", side,
               "counted" if when == "beginning" else "missing")
        )
    if sessions.unknown:
        found.append("at the %s %d other session%s without track_activities, and may not have reported all" % (
            when, sessions.unknown, _were(sessions.unknown)))
    return found


def _of_objects(window: Window, block_size: int) -> List[str]:
    """Recovery and CREATE DATABASE read blocks that belong to no relation for them."""
    if window.objects is None or window.blocks_read is None:
        return []
    blocks = sum(counts.read_bytes for name, counts in window.objects.items() if name != "wal") // block_size
    if blocks <= window.blocks_read * 1.05 + 100:
        return []
    return ["pg_stat_io counts %d blocks more than pg_stat_database, which has none of recovery and of copied databases" % (blocks - window.blocks_read)]


def _of_others(others: Figures) -> str:
    parts = ["%s %s" % (human_bytes(others[key]), where) for key, where in (
        ("elsewhere_bytes", "for other file systems"), ("same_filesystems_bytes", "in the cluster's own")) if others[key]]
    return "others read %s from these disks meanwhile (%s): served, rpiops and ratio include them" % (
        human_bytes(others["read_bytes"]), ", ".join(parts))


def _message(result: Figures) -> str:
    reads, seconds = result["reads"], result["window"]["seconds"]
    if seconds is None:
        return "Nothing is known of this window: %s." % result["gaps"][0]
    parts = []
    if reads["riops"] is not None:
        parts.append("PostgreSQL counted %s reads/s" % _count(reads["riops"]))
    if reads["rpiops"] is not None:
        parts.append("the disks served %s/s%s" % (_count(reads["rpiops"]), ", others' included" if result["certainty"] == "upper_bound" else ""))
    text = "In %s, %s" % (human_seconds(seconds), " and ".join(parts) or "nothing could be counted")
    if reads["page_cache_percent"] is not None:
        text += "; at least %s of its bytes came from the page cache" % human_percent(reads["page_cache_percent"])
    return text + (". Unknown: %s." % "; ".join(result["gaps"]) if result["gaps"] else ".")


def _count(value: float) -> str:
    return "%.0f" % value if value >= 10 else "%g" % value


def _were(count: int) -> str:
    return " was" if count == 1 else "s were"


def _rate(count: Optional[int], window: Window) -> Optional[float]:
    return round(count / window.seconds, 1) if count is not None and window.seconds else None


def _ratio(counted: Optional[int], served: Optional[int]) -> Optional[float]:
    return round(counted / served, 3) if counted is not None and served else None


def _moment(clock: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(clock))
