# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes of this host, the PostgreSQL clusters among them and who is connected to those, from /proc alone."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Iterator, List, Optional

# "postgres: 15/main: alice sales [local] idle", "postgres: walsender replica 10.0.0.7(54321) streaming 0/5000060"
_CLIENT = re.compile(r"postgres: .* (\[local\]|\S+\(\d+\))( |$)")


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # clock ticks since the start of the system: a number is used again, but not with this
    parent: int = field(compare=False)
    title: str = field(compare=False)


@dataclass(frozen=True)
class Cluster:
    postmaster: Process
    data_directory: str
    clients: List[Process] = field(compare=False)


def everyone() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = look(int(name))
            if process is not None:
                yield process


def look(pid: int) -> Optional[Process]:
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            # the command, in brackets, may hold brackets and blanks itself
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19]), int(fields[1]), title(pid))


def title(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return ""


def clusters() -> List[Cluster]:
    """Those that run here and whose working directories this user may see: root sees all."""
    processes = list(everyone())
    found = []
    for process in processes:
        try:
            directory = os.readlink("/proc/%d/cwd" % process.pid)
            if not os.path.exists(os.path.join(directory, "PG_VERSION")):
                continue
            with open(os.path.join(directory, "postmaster.pid"), encoding="utf-8") as file:
                if int(file.readline()) != process.pid:
                    continue
        except (OSError, ValueError):
            continue
        children = [one for one in processes if one.parent == process.pid]
        found.append(Cluster(process, directory, [one for one in children if is_client(one.title)]))
    return sorted(found, key=lambda one: one.data_directory)


def is_client(process_title: str) -> bool:
    """A session, or a standby that streams: only they say from where."""
    return bool(_CLIENT.match(process_title))
