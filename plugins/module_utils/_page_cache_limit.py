# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leave only so much memory to the page cache, for a test, and give the rest back.

What was there before is written down before anything is changed, and outlives the play: a later one, or one after a
reboot, can still give it back. Everything that is set here is gone by itself with the next boot.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _data_directory,
    _drop_caches,
    _page_cache,
    _proc,
    _processes,
    _service,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, parse_bytes

STATE_FILE = "/var/lib/pgfleet/page_cache_limit.json"
_HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
_COMPACT = "/proc/sys/vm/compact_memory"
_BOOT = "/proc/sys/kernel/random/boot_id"

LEAST_ON_HOST = 256 << 20  # bytes that a host keeps, whatever is asked for
LEAST_IN_CGROUP = 64 << 20
TOLERANCE = 0.1  # of what was asked for
_ATTEMPTS = 5
_SMALL = 1 << 20  # bytes that are not worth another attempt
_UNLIMITED = 1 << 62  # version 1 says so with a very large number

Entry = Dict[str, Any]


@dataclass(frozen=True)
class Options:
    state: str
    size: Optional[str]
    method: str
    data_directory: Optional[str]
    service: Optional[str]


def apply(options: Options, check_mode: bool) -> Dict[str, Any]:
    """The whole of the module page_cache_limit."""
    present = options.state == "present"
    if present and options.size is None:
        raise ResidencyError("state present needs size, the page cache's limit, such as 4GB.")
    if options.method == "cgroup" and options.data_directory is None:
        raise ResidencyError("method cgroup needs data_directory, to find the cluster whose memory is limited.")
    if os.geteuid() != 0:
        raise ResidencyError("Only root can limit memory: become root.")
    limit: _Limit = _HugePages() if options.method == "huge_pages" else _Cgroup(options.data_directory or "", options.service)
    result = empty_result()
    result.update(method=options.method, state=options.state)
    if present:
        size = parse_bytes("size", options.size or "")
        if size < limit.least():
            raise ResidencyError(
                "size is %s: less than %s would push %s out of memory." % (options.size, human_bytes(limit.least()), limit.whose)
            )
        _set(limit, size, check_mode, result)
    else:
        _give_back(limit, check_mode, result)
    result["warnings"] += limit.warnings
    return result


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "method": None, "state": None, "size_bytes": None, "page_cache_bytes": None, "reached": None, "before": None, "after": None,
        "state_file": STATE_FILE, "warnings": [],
    }


class _Limit(ABC):
    """A value that can be set, and what the page cache can have under one."""

    key: str  # in the state file
    whose: str
    warnings: List[str]
    because = ""

    @abstractmethod
    def least(self) -> int:
        """The smallest size that does no harm."""

    @abstractmethod
    def get(self) -> int:
        """The value now."""

    @abstractmethod
    def value_for(self, size: int, before: int) -> int:
        """The value that leaves so much; ``before`` when what there is leaves no more than that."""

    @abstractmethod
    def put(self, value: int, size: Optional[int], entry: Entry) -> None:
        """``size`` is None for giving back."""

    @abstractmethod
    def page_cache_bytes(self) -> int:
        """Bytes that the page cache can use now."""

    @abstractmethod
    def describe(self, value: int) -> str:
        """The value in words."""

    def remember(self) -> Entry:
        """The data that is needed to remove the limit if the cluster no longer exists."""
        return {}

    def gone(self, entry: Entry) -> bool:
        """True if the limited process no longer exists."""
        return False


def _set(limit: _Limit, size: int, check_mode: bool, result: Dict[str, Any]) -> None:
    entries = _load()
    entry = entries.get(limit.key)
    if entry is not None and entry["boot"] != _boot():
        entry = None  # what it would give back was before the boot
    now = limit.get()
    before = now if entry is None else int(entry["before"])
    result.update(size_bytes=size, before=before)
    if entry is not None and entry["size"] == size and entry["set"] == now:
        result["msg"] = "%s is limited already: %s." % (limit.whose, limit.describe(now))
    else:
        value = limit.value_for(size, before)
        if value == now and entry is None:
            result["msg"] = "No more than %s is left to the page cache as it is." % human_bytes(limit.page_cache_bytes())
        else:
            result["changed"] = True
            if not check_mode:
                entry = dict(limit.remember(), before=before, size=size, set=value)
                # first, so that whatever happens next there is a way back
                _save(dict(entries, **{limit.key: entry}))
                limit.put(value, size, entry)
                entry["set"] = value = limit.get()
                _save(dict(entries, **{limit.key: entry}))
            result["msg"] = "%s %s to leave %s to the page cache: %s, before it was %s." % (
                "Would limit" if check_mode else "Limited", limit.whose, human_bytes(size), limit.describe(value), limit.describe(before)
            )
    if check_mode and result["changed"]:
        return
    got = limit.page_cache_bytes()
    result.update(after=limit.get(), page_cache_bytes=got, reached=got <= size * (1 + TOLERANCE))
    result["msg"] += " It can have %s now." % human_bytes(got)
    if not result["reached"]:
        limit.warnings.append("The page cache can have %s, more than the %s asked for%s." % (human_bytes(got), human_bytes(size), limit.because))


def _give_back(limit: _Limit, check_mode: bool, result: Dict[str, Any]) -> None:
    entries = _load()
    entry = entries.pop(limit.key, None)
    if entry is None:
        result["msg"] = "Nothing limits %s that was set here." % limit.whose
        return
    result.update(changed=True, before=entry["before"], size_bytes=entry["size"])
    if entry["boot"] != _boot() or limit.gone(entry):
        result["msg"] = "What limited %s went with %s." % (
            limit.whose, "the boot before this" if entry["boot"] != _boot() else "its cgroup"
        )
        if not check_mode:
            _save(entries)
        return
    result["msg"] = "%s what was set before the limit: %s." % (
        "Would set" if check_mode else "Set", limit.describe(int(entry["before"]))
    )
    if check_mode:
        return
    limit.put(int(entry["before"]), None, entry)
    result.update(after=limit.get(), page_cache_bytes=limit.page_cache_bytes())
    _save(entries)


# --- the state file ---


def _load() -> Dict[str, Entry]:
    try:
        with open(STATE_FILE, encoding="utf-8") as file:
            entries: Dict[str, Entry] = json.load(file)
            return entries
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ResidencyError("Cannot read %s, which has what was set before: %s." % (STATE_FILE, error)) from None


def _save(entries: Dict[str, Entry]) -> None:
    if not entries:
        if os.path.exists(STATE_FILE):
            os.unlink(STATE_FILE)
        return
    for entry in entries.values():
        entry.setdefault("boot", _boot())
    os.makedirs(os.path.dirname(STATE_FILE), mode=0o755, exist_ok=True)
    new = STATE_FILE + ".new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(entries, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, STATE_FILE)


def _boot() -> Optional[str]:
    return _proc.text(_BOOT)


# --- reserved huge pages: only processes that request them can use them ---


class _HugePages(_Limit):
    key = "huge_pages"
    whose = "the host"

    def __init__(self) -> None:
        self.warnings = []
        if not os.path.exists(_HUGE_PAGES):
            raise ResidencyError("This kernel has no huge pages: use method cgroup.")
        try:
            os.close(os.open(_HUGE_PAGES, os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            remedy = " It is a container's: run it on the machine itself, or use method cgroup." if _drop_caches.in_container() else ""
            raise ResidencyError("Cannot write to %s: %s.%s" % (_HUGE_PAGES, error.strerror, remedy)) from None
        if _drop_caches.in_container():
            self.warnings.append("This host is a container: huge pages are reserved on the whole machine.")
        self._page = _proc.meminfo("Hugepagesize")

    def least(self) -> int:
        """The minimum, and the shared memory that PostgreSQL has reserved and not touched yet."""
        promised = sum(_shared_memory(one.postmaster.pid) for one in _processes.clusters())
        return LEAST_ON_HOST + max(0, promised - _proc.meminfo("Shmem"))

    def get(self) -> int:
        return int(_read(_HUGE_PAGES))

    def value_for(self, size: int, before: int) -> int:
        """The number of huge pages, never less than before: a server with huge_pages = on may need those."""
        ours = max(0, self.get() - before)
        more = (_proc.meminfo("MemAvailable") + ours * self._page - size) // self._page
        if more <= 0 and not ours:
            return before
        # of those that go with their users, the kernel counts none in what it is told
        return max(_proc.meminfo("HugePages_Total") - ours + max(0, more), self._used())

    def put(self, value: int, size: Optional[int], entry: Entry) -> None:
        if size is None:
            if self._used() > value:
                self.warnings.append(
                    "%d huge pages are in use, and there were %d: the kernel frees the rest when the processes that use them end."
                    % (self._used(), value)
                )
            _service.write(_HUGE_PAGES, value)
            return
        for attempt in range(_ATTEMPTS):
            if attempt:
                _service.write(_COMPACT, 1)  # returns when it is done
            _service.write(_HUGE_PAGES, value)
            # what others took meanwhile is missing now
            lacking = size - _proc.meminfo("MemAvailable")
            if lacking > size * TOLERANCE:
                value = max(int(entry["before"]), self._used(), self.get() - lacking // self._page)
                _service.write(_HUGE_PAGES, value)
            if self.get() >= value:
                break

    def page_cache_bytes(self) -> int:
        return _proc.meminfo("MemAvailable")

    def describe(self, value: int) -> str:
        return "%d huge pages of %s" % (value, human_bytes(self._page))

    def _used(self) -> int:
        free = _proc.meminfo("HugePages_Free") - _proc.meminfo("HugePages_Rsvd")
        return _proc.meminfo("HugePages_Total") - free


# --- a limit on PostgreSQL's cgroup, which its page cache is charged to ---


class _Cgroup(_Limit):
    because = ", as long as PostgreSQL has not touched all of its shared buffers"

    def __init__(self, data_directory: str, unit: Optional[str]) -> None:
        self.warnings = []
        self._directory = _data_directory.opened(data_directory)
        self.key = self._directory.real
        self.whose = "PostgreSQL in %s" % data_directory
        _page_cache.major_version(data_directory)
        self._postmaster = self._directory.postmaster()
        self._pid = pid = None if self._postmaster is None else self._postmaster.pid
        self._entry: Entry = _load().get(self.key, {})
        if self._postmaster is None or pid is None:
            self._unit, self._folder, self._v1 = self._entry.get("unit"), self._entry.get("folder", ""), self._entry.get("v1", False)
            return
        self._unit = unit or _service.unit_of(self._postmaster)
        cgroup = _proc.cgroup_of(pid, "memory")
        self._v1 = cgroup is not None
        if cgroup is None:
            cgroup = _proc.cgroup_of(pid, "")
        if cgroup is None or not os.path.isdir(cgroup.folder):
            raise ResidencyError("%s is in no cgroup that is visible here: it cannot be limited." % self.whose)
        self._folder = cgroup.folder
        self._cgroup = cgroup
        self._require_own()
        if self._unit is None and not os.path.exists(self._file):
            raise ResidencyError("The cgroup %s has no %s: memory is not among its controllers." % (cgroup.path, os.path.basename(self._file)))

    def _require_own(self) -> None:
        """Raise an error unless the cgroup is this server's alone. Called again right before the limit is set: the server may have been restarted."""
        if self._postmaster is None:
            return
        if self._unit is not None:
            _service.require_main_process(self._unit, self._postmaster, self._directory)
            return
        if not self._directory.is_postmaster(self._postmaster):
            raise ResidencyError("%s has ended, or was restarted, meanwhile: run the module again." % self.whose)
        pid, cgroup, others = self._postmaster.pid, self._cgroup, []
        words = [] if cgroup.path == "/" else [
            word for folder, dummy, dummy2 in os.walk(cgroup.folder) for word in (_proc.text(folder + "/cgroup.procs") or "").split()
        ]
        for word in words:
            process = _processes.look(int(word))
            if process is not None and pid not in (process.pid, process.parent):
                others.append("%s (%d)" % (process.title.split(" ")[0] or "a kernel thread", process.pid))
        if cgroup.path == "/" or others:
            raise ResidencyError(
                "%s runs in the cgroup %s together with others%s: it cannot be limited alone. Start it as a unit of systemd,"
                " or in a cgroup of its own." % (self.whose, cgroup.path, ", such as " + others[0] if others else "")
            )

    @property
    def _file(self) -> str:
        return os.path.join(self._folder, "memory.limit_in_bytes" if self._v1 else "memory.max")

    def least(self) -> int:
        if self._pid is None:
            raise ResidencyError("PostgreSQL is stopped in %s: start it first." % self.key)
        return LEAST_IN_CGROUP

    def get(self) -> int:
        text = _proc.text(self._file)
        value = int(text) if text is not None and text.isdigit() else _UNLIMITED
        return min(value, _UNLIMITED)

    def value_for(self, size: int, before: int) -> int:
        page = os.sysconf("SC_PAGE_SIZE")
        return min(before, (size + self._held(promised=True)) // page * page)

    def put(self, value: int, size: Optional[int], entry: Entry) -> None:
        if size is not None:
            self._require_own()
        self._write(value, entry)
        for _attempt in range(0 if size is None else _ATTEMPTS):
            # With the pages goes what the kernel held for them, which version 1 does not tell from what stays: 3 % of a full page cache.
            less = self.value_for(size or 0, value)
            if less > value - _SMALL:
                break
            value = less
            self._write(value, entry)
        if self._pid is not None and self.get() != value:
            raise ResidencyError("%s was to have %s, and %s says %s." % (self._file, self.describe(value), self._file, self.describe(self.get())))

    def _write(self, value: int, entry: Entry) -> None:
        if entry.get("unit"):
            _service.systemctl(
                "set-property", "--runtime", "--", entry["unit"], "MemoryMax=%s" % ("infinity" if value >= _UNLIMITED else value)
            )
        elif value >= _UNLIMITED:
            _service.write(self._file, "-1" if self._v1 else "max")
        else:
            # the kernel reclaims first; on version 2 it would kill if that were not enough, which size and what is held forestall
            _service.write(self._file, value)

    def page_cache_bytes(self) -> int:
        """Bytes that the page cache can use now: more than requested, as long as shared buffers are not touched."""
        return max(0, self.get() - self._held(promised=False)) if self._pid is not None else 0

    def describe(self, value: int) -> str:
        return "no limit" if value >= _UNLIMITED else "a limit of %s" % human_bytes(value)

    def remember(self) -> Entry:
        return {"unit": self._unit, "folder": self._folder, "v1": self._v1}

    def gone(self, entry: Entry) -> bool:
        # systemd keeps a unit's limit; its cgroup comes and goes with the server
        return not entry.get("unit") and not os.path.isdir(entry["folder"])

    def _held(self, promised: bool) -> int:
        """Memory that is not page cache; ``promised`` includes all shared buffers, so that they fit when they are touched."""
        counts = {}
        for line in _proc.lines(self._folder + "/memory.stat"):
            name, dummy, value = line.partition(" ")
            counts[name] = int(value)
        if self._v1:
            anonymous, shared = counts.get("total_rss", 0), counts.get("total_shmem", 0)
            kernel = int(_proc.text(self._folder + "/memory.kmem.usage_in_bytes") or 0)
        else:
            anonymous, shared = counts.get("anon", 0), counts.get("shmem", 0)
            kernel = sum(counts.get(name, 0) for name in ("kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable"))
        if promised:
            shared = max(shared, _shared_memory(self._pid or 0))
        return anonymous + shared + kernel


def _shared_memory(pid: int) -> int:
    """Bytes of a postmaster's shared memory outside huge pages, touched or not."""
    size = 0
    for line in _processes.maps(pid).splitlines():
        if line.endswith("/dev/zero (deleted)"):
            first, last = (int(word, 16) for word in line.split(" ", 1)[0].split("-"))
            size += last - first
    return size


def _read(path: str) -> str:
    text = _proc.text(path)
    if text is None:
        raise ResidencyError("Cannot read %s." % path)
    return text
