# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes of this host, the PostgreSQL clusters among them and who is connected to those, from /proc alone."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from typing import Iterator, List, Optional

SERVERS = ("postgres", "postmaster")
# "postgres: 15/main: alice sales [local] idle", "postgres: walsender replica 10.0.0.7(54321) streaming 0/5000060"
_CLIENT = re.compile(r"postgres: .* (\[local\]|\S+\(\d+\))( |$)")


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # clock ticks since the start of the system: a number is used again, but not with this
    parent: int = field(compare=False)
    name: str = field(compare=False)  # of the program
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
            # the name, in brackets, may hold brackets and blanks itself
            head, dummy, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return Process(pid, int(fields[19]), int(fields[1]), head.partition("(")[2], title(pid))


def title(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return ""


def clusters() -> List[Cluster]:
    """Those that run here, whoever may look into their folders: root in a container may not."""
    processes = {process.pid: process for process in everyone()}
    servers = {pid for pid, process in processes.items() if process.name in SERVERS}
    found = []
    for pid in servers:
        process = processes[pid]
        if process.parent in servers or not process.title:  # one of a server's own, or one that has ended
            continue
        children = [one for one in processes.values() if one.parent == pid]
        found.append(Cluster(process, _directory(process), [one for one in children if is_client(one.title)]))
    return sorted(found, key=lambda one: one.data_directory)


def _directory(postmaster: Process) -> str:
    try:
        return os.readlink("/proc/%d/cwd" % postmaster.pid)
    except OSError:
        named = re.search(r" -D ?(\S+)", postmaster.title)
        return os.path.realpath(named.group(1)) if named else "a folder unknown, as process %d" % postmaster.pid


def ask_as_owner(pid: int, *command: str) -> Optional[str]:
    """What a command says that its owner may run about a process; root in a container may not always."""
    try:
        owner = os.stat("/proc/%d" % pid)
        if os.geteuid() == 0:
            command = ("setpriv", "--reuid", str(owner.st_uid), "--regid", str(owner.st_gid), "--clear-groups", "--", *command)
        # an engine has no AnsibleModule, whose run_command() is meant
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def is_client(process_title: str) -> bool:
    """A session, or a standby that streams: only they say from where."""
    return bool(_CLIENT.match(process_title))
