# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes of this host, the PostgreSQL clusters among them and who is connected to those, from /proc alone."""

from __future__ import annotations

import os
import pwd
import re
import stat
from dataclasses import dataclass, field
from typing import Iterator, List, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _privileges, _proc
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

SERVERS = ("postgres", "postmaster")
_LARGEST = 1 << 24  # characters of a file in /proc
# "postgres: 15/main: alice sales [local] idle", "postgres: walsender replica 10.0.0.7(54321) streaming 0/5000060"
_CLIENT = re.compile(r"postgres: .* (\[local\]|\S+\(\d+\))( |$)")


@dataclass(frozen=True)
class Process:
    pid: int
    started: int  # clock ticks since the start of the system: a number is used again, but not with this
    parent: int = field(compare=False)
    name: str = field(compare=False)  # of the program
    title: str = field(compare=False)


class Pinned:
    """A process by its directory in /proc, opened: what is read there is never another's that has got its number."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor = os.open("/proc/%d" % pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, name: str) -> str:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor)
        with os.fdopen(descriptor, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_LARGEST)

    def user(self) -> Optional[int]:
        """None when it has ended, or has more than one."""
        try:
            found = re.search(r"^Uid:\t(\d+)\t\1\t\1\t\1$", self.read("status"), re.MULTILINE)
        except OSError:
            return None
        return int(found.group(1)) if found else None

    def working_directory(self) -> Tuple[int, int]:
        status = os.stat("cwd", dir_fd=self.descriptor)
        return status.st_dev, status.st_ino

    def pid_file_names_it(self, user: int) -> bool:
        """PermissionError where this user may not look."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open("cwd/postmaster.pid", flags, dir_fd=self.descriptor)
        except PermissionError:
            raise
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != user:
                return False
            named = os.read(descriptor, 32).split(b"\n", 1)[0]
        finally:
            os.close(descriptor)
        # of a container's server, the number there; negative: a single-user backend
        numbers = re.search(r"^NSpid:(.*)$", self.read("status"), re.MULTILINE)
        if not re.fullmatch(rb"-?[0-9]+", named):
            return False
        return abs(int(named)) in ({int(number) for number in numbers.group(1).split()} if numbers else {self.pid})

    def error_log(self) -> str:
        """The file of its standard error."""
        return os.readlink("fd/2", dir_fd=self.descriptor)


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


def ended(pid: int) -> bool:
    """True if the process has ended or is ending: once it has released its memory, /proc/<pid>/io is closed to its own user."""
    text = _proc.text("/proc/%d/status" % pid)
    return text is None or "\nVmSize:" not in text


def title(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as file:
            return printable(file.read(_LARGEST).replace("\0", " ").strip())
    except OSError:
        return ""


def printable(text: str) -> str:
    """Any user may give a process any title: in a message, none of it acts on a terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", text)


def clusters() -> List[Cluster]:
    """Servers running here, also those whose directories are not accessible, as to root in a container."""
    processes = {process.pid: process for process in everyone()}
    servers = {pid for pid, process in processes.items() if process.name in SERVERS}
    found = []
    for pid in servers:
        process = processes[pid]
        # one of a server's own, one that has ended, or one that has only the name
        if process.parent in servers or not process.title or not _is_postmaster(pid):
            continue
        children = [one for one in processes.values() if one.parent == pid]
        found.append(Cluster(process, _directory(process), [one for one in children if is_client(one.title)]))
    return sorted(found, key=lambda one: one.data_directory)


def _is_postmaster(pid: int) -> bool:
    """Any user may call a process postgres. Where it runs, a postmaster has a file of its user's that names it."""
    try:
        process = Pinned(pid)
        user = process.user()
        if user is None:
            return False
        try:
            return process.pid_file_names_it(user)
        except PermissionError:  # root in a container may not look, the user may
            if os.geteuid() != 0 or user == 0:
                return True
        return _privileges.run_as(pwd.getpwuid(user), [process.descriptor], lambda dummy: process.pid_file_names_it(user), {}) is True
    except OSError:
        return False
    except (KeyError, RuntimeError, ResidencyError):  # not accessible here: rather report one too many
        return True


def _directory(postmaster: Process) -> str:
    try:
        return printable(os.readlink("/proc/%d/cwd" % postmaster.pid))
    except OSError:
        named = re.search(r" -D ?(\S+)", postmaster.title)
        return os.path.realpath(named.group(1)) if named else "an unknown directory, as process %d" % postmaster.pid


def maps(pid: int) -> str:
    """The variables of a process, empty if they cannot be read. Root in a container may not always; the process's user may."""
    try:
        process = Pinned(pid)
        try:
            return process.read("maps")
        except PermissionError:
            user = process.user()
            if os.geteuid() != 0 or not user:
                return ""
            return str(_privileges.run_as(pwd.getpwuid(user), [process.descriptor], lambda dummy: process.read("maps"), {}))
    except (OSError, KeyError, RuntimeError):
        return ""


def is_client(process_title: str) -> bool:
    """A session, or a standby that streams: only they say from where."""
    return bool(_CLIENT.match(process_title))
