# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The storage below temporary tables: what it is, and how far reads and writes of a session's own files get.

fdatasync() and posix_fadvise() are called here for files of temporary relations alone. PostgreSQL never syncs these, so no error of a write is
taken from the checkpointer, and no page of another file is written or evicted.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _io_reading, _page_cache, _proc
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

MEMORY, NETWORK, NVME, ROTATIONAL, SOLID, VIRTUAL, UNKNOWN = "memory", "network", "nvme", "rotational", "solid state", "virtual", "unknown"
PASSES = 20  # of the advice to evict: pages that are written at the moment go afterwards
PAUSE = 0.05  # seconds between two of these
_NETWORK_BLOCK = re.compile(r"(nbd|rbd|drbd)\d")
_VIRTUAL = re.compile(r"(vd|xvd|ubd)[a-z]")  # their flag "rotational" is the hypervisor's default, and no fact
_IN_MEMORY = re.compile(r"(ram|zram|pmem)\d")
_LIMITS = {"read_bps": "rbps", "write_bps": "wbps", "read_iops": "riops", "write_iops": "wiops"}  # of cgroups: version 1 and 2


class Written(NamedTuple):
    """Bytes of files that no device has yet, and bytes that the volumes have written so far, for whomever. None: unknown."""

    unwritten: Optional[int]
    volumes: Optional[int]


def describe(path: str, postmaster: int) -> Dict[str, Any]:
    """``path`` is the directory of the tablespace, links resolved."""
    mounts = _proc.mounts()
    below = _devices.beneath(path, _devices.number_of(path), mounts)
    bottom = _bottom(below.disks, mounts)
    return {
        "path": path,
        "mount": below.mount,
        "filesystem": below.filesystem,
        "kind": kind_of(below, bottom),
        "volumes": list(below.volumes),
        "layers": [layer.kind for layer in below.layers],
        "disks": [
            {"name": name, "rotational": _flag(name, "queue/rotational"), "scheduler": _scheduler(name)} for name in bottom
        ],
        "limits": _limits(postmaster, {*below.volumes, *(_devices.whole(name) for name in [*below.volumes, *bottom])}),
        "reason": below.reason,
    }


def kind_of(below: _devices.Beneath, bottom: Sequence[str]) -> str:
    """One word; with several disks of different kinds one for each."""
    if not bottom:
        reason = below.reason or ""
        return MEMORY if "is in memory" in reason else NETWORK if "network file system" in reason else UNKNOWN
    return " and ".join(sorted({_kind_of_disk(name) for name in bottom}))


def _kind_of_disk(name: str) -> str:
    for pattern, kind in ((_IN_MEMORY, MEMORY), (_NETWORK_BLOCK, NETWORK), (_VIRTUAL, VIRTUAL), (re.compile("nvme"), NVME)):
        if pattern.match(name):
            return kind
    turning = _flag(name, "queue/rotational")
    return UNKNOWN if turning is None else ROTATIONAL if turning else SOLID


def _bottom(disks: Sequence[str], mounts: Sequence[_proc.Mount]) -> List[str]:
    """The disks, and in place of a loop device those of its file."""
    found: List[str] = []
    for name in disks:
        deeper = _devices.below(name, mounts) if _devices.kind_of(name) == "loop" else []
        found += _bottom(_devices.disks_of(deeper), mounts) if deeper and name not in deeper else [name]
    return sorted(set(found))


def _flag(name: str, file: str) -> Optional[bool]:
    text = _proc.text("/sys/class/block/%s/%s" % (name, file))
    return None if text not in ("0", "1") else text == "1"


def _scheduler(name: str) -> Optional[str]:
    text = _proc.text("/sys/class/block/%s/queue/scheduler" % name)
    chosen = re.search(r"\[(.+)\]", text or "")
    return chosen.group(1) if chosen else text


def _limits(pid: int, names: Any) -> List[Dict[str, Any]]:
    """The tightest limit per device of the server's cgroup and those above it. The limit of a cloud volume is known only to the cloud."""
    place = _proc.cgroup_of(pid, "blkio") or _proc.cgroup_of(pid, "")
    if place is None:
        return []
    numbers = {_devices.number_of_name(name): name for name in sorted(names)}
    found: Dict[str, Dict[str, Any]] = {}
    folder = place.folder
    for _depth in range(place.path.strip("/").count("/") + 2):
        for number, what, value in _limits_of(folder, place.version):
            if number in numbers:
                one = found.setdefault(numbers[number], {"device": numbers[number], **dict.fromkeys(_LIMITS)})
                one[what] = value if one[what] is None else min(one[what], value)
        folder = os.path.dirname(folder)
    return [found[name] for name in sorted(found)]


def _limits_of(folder: str, version: int) -> Iterator[Any]:
    for what, word in _LIMITS.items():
        if version == 1:
            for line in _proc.lines("%s/blkio.throttle.%s_device" % (folder, what)):
                number, dummy, value = line.partition(" ")
                if value.isdigit():
                    yield number, what, int(value)
        else:
            for line in _proc.lines(folder + "/io.max"):
                given = re.search(r"\b%s=(\d+)" % word, line)
                if given:
                    yield line.split()[0], what, int(given.group(1))


# --- files of a temporary relation ---


def files_of(paths: Sequence[str]) -> List[str]:
    """Every fork and segment: ``paths`` are those of the first segments of main forks."""
    found = []
    for path in paths:
        folder, name = os.path.split(path)
        own = re.compile(re.escape(name) + r"(_(fsm|vm))?(\.\d+)?")
        found += [os.path.join(folder, one) for one in sorted(os.listdir(folder)) if own.fullmatch(one)]
    return found


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def sync(files: Sequence[str]) -> None:
    """Write the files to the device, and wait for it."""
    for path in files:
        descriptor = _opened(path)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def evict(files: Sequence[str]) -> None:
    """Take the files out of the page cache, or raise an error."""
    left = 0
    for attempt in range(PASSES):
        if attempt:
            time.sleep(PAUSE)
        left = sum(_evict(path) for path in files)
        if left == 0:
            return
    raise ResidencyError("%d bytes of the temporary table stay in the page cache: reads would not come from the device." % left)


def _evict(path: str) -> int:
    descriptor = _opened(path)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        return _page_cache.resident_bytes(descriptor, size) if size else 0
    finally:
        os.close(descriptor)


def look(files: Sequence[str], volumes: Sequence[str]) -> Written:
    """Counts of the files and of the devices, at one moment."""
    counters = _io_reading.disks(volumes)
    complete = bool(volumes) and len(counters) == len(volumes)
    return Written(
        _unwritten(files),
        sum(one.write_bytes for one in counters.values()) if complete else None,
    )


def read_by(pid: int) -> int:
    """Bytes that the kernel has fetched from devices, or from a server, for this process so far."""
    try:
        return _io_reading.of_process(pid)["read_bytes"]
    except (OSError, KeyError):
        raise ResidencyError(
            "/proc/%d/io is closed to user id %d: become the cluster's operating system user (become_user: postgres)." % (pid, os.geteuid())
        ) from None


def _unwritten(files: Sequence[str]) -> Optional[int]:
    """By cachestat(2), which needs Linux 6.5."""
    pages = 0
    for path in files:
        descriptor = _opened(path)
        try:
            counts = _page_cache.cachestat(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        pages += counts.dirty + counts.writeback
    return pages * os.sysconf("SC_PAGE_SIZE")


def swapped() -> int:
    """Pages that this host has swapped in and out since its start."""
    counts = dict(line.split()[:2] for line in _proc.lines("/proc/vmstat") if len(line.split()) > 1)
    return int(counts.get("pswpin", 0)) + int(counts.get("pswpout", 0))


def queued(pid: int) -> Optional[float]:
    """Seconds that a process has waited for a processor so far, while it could have run; None if this kernel does not count them."""
    words = (_proc.text("/proc/%d/schedstat" % pid) or "").split()
    return int(words[1]) / 1e9 if len(words) == 3 else None
