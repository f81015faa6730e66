# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading /proc and /sys of this host.

A file that does not exist, or that this user may not read, is never an error: each function returns None, 0 or an empty list.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional

_SYSTEM = "/"  # where proc and sys are


def where(path: str) -> str:
    """A path such as ``/proc/meminfo``, below another root in a test."""
    return os.path.join(_SYSTEM, path.lstrip("/"))


def text(path: str) -> Optional[str]:
    """The content of a file; None if it cannot be read."""
    try:
        with open(where(path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def lines(path: str) -> List[str]:
    """Empty if the file cannot be read."""
    return (text(path) or "").splitlines()


def listed(path: str) -> List[str]:
    """The names in a directory; empty if it cannot be read."""
    try:
        return sorted(os.listdir(where(path)))
    except OSError:
        return []


def number(value: Optional[str], unit: int = 1) -> Optional[int]:
    return int(value) * unit if value is not None and value.isdigit() else None


def meminfo(word: str) -> int:
    """Bytes, or a number of pages where /proc/meminfo has no unit; 0 if this kernel does not report it."""
    return meminfo_or_none(word) or 0


def meminfo_or_none(word: str) -> Optional[int]:
    found = re.search(r"^%s:\s+(\d+)( kB)?$" % word, text("/proc/meminfo") or "", re.MULTILINE)
    return int(found.group(1)) * (1024 if found.group(2) else 1) if found else None


class Mount(NamedTuple):
    device: str  # major:minor
    root: str
    point: str
    type: str
    source: str
    options: str


def mounts() -> List[Mount]:
    """id parent major:minor root mount-point options... - type source super-options"""
    found = []
    for line in lines("/proc/self/mountinfo"):
        head, dummy, tail = line.partition(" - ")
        left, right = head.split(), tail.split()
        if len(left) >= 5 and len(right) >= 2:
            found.append(Mount(left[2], _unescape(left[3]), _unescape(left[4]), right[0], _unescape(right[1]), " ".join(right[2:])))
    return found


def mount_of(path: str, among: List[Mount]) -> Optional[Mount]:
    """The last of the longest: a later mount covers an earlier one on the same point."""
    best: Optional[Mount] = None
    for mount in among:
        below = mount.point.rstrip("/") + "/"
        if (path + "/").startswith(below) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


class Cgroup(NamedTuple):
    version: int
    path: str  # as /proc/<pid>/cgroup has it
    folder: str  # where this host sees it


def cgroup_of(pid: int, controller: str) -> Optional[Cgroup]:
    """The cgroup of a process for a controller of version 1, or, with an empty name, in the tree of version 2."""
    version = 1 if controller else 2
    for mount in mounts():
        if mount.type != ("cgroup" if controller else "cgroup2") or (controller and controller not in mount.options.split(",")):
            continue
        path = cgroup_path(pid, version, controller)
        if path is not None:
            return Cgroup(version, path, cgroup_folder(path, mount))
    return None


def inside(path: str, mount: Mount) -> str:
    """The path below the mount: in a container the mount may show only a part of the tree."""
    if mount.root != "/" and (path + "/").startswith(mount.root + "/"):
        return path[len(mount.root) :]
    return path


def cgroup_folder(path: str, mount: Mount) -> str:
    return os.path.join(mount.point, inside(path, mount).strip("/")).rstrip("/")


def cgroup_path(pid: Optional[int], version: int, controller: str = "memory") -> Optional[str]:
    """ "9:memory:/path", or "0::/path" for version 2"""
    if pid is None:
        return None
    for line in lines("/proc/%d/cgroup" % pid):
        hierarchy, controllers, path = [*line.split(":", 2), "", ""][:3]
        if (hierarchy == "0" and not controllers) if version == 2 else controller in controllers.split(","):
            return path
    return None


def _unescape(word: str) -> str:
    """mountinfo writes a blank as \\040"""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)
