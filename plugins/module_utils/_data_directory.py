# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data directory of a cluster, as one who is root may read it.

Everything below it belongs to PostgreSQL's operating system user, who may replace any of it at any moment by a link, a
pipe or a device. So the directory is opened once, everything in it is opened from that descriptor, component by
component and never through a link, and only a regular file of the owner's is read, within a bound. The links in
pg_tblspc are PostgreSQL's own; where they lead has to pass the same tests as the data directory.

A link in the path to the data directory is followed for root only where root alone can have made it. A user other than
root follows every link: it gets nothing but what is its own already.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from ansible_collections.pgfleet.cache.plugins.module_utils import _privileges, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

LARGEST_TEXT = 1 << 16  # bytes of a file that is parsed, such as postmaster.opts
_MOST_LINKS = 40  # as the kernel
_NAMED = 3  # of what is left out
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoDirectoryError(ResidencyError):
    """There is no such directory on this host."""


class Tablespace(NamedTuple):
    number: str
    path: str  # without links
    device: int


class DataDirectory:
    def __init__(self, path: str) -> None:
        self.path = path
        self.skipped: Set[str] = set()  # of what has the name of a relation's file, what is none
        self._left_out: Dict[str, str] = {}  # tablespaces, and why
        try:
            self.descriptor, self.real = walk(path)
        except (FileNotFoundError, NotADirectoryError):
            raise NoDirectoryError(
                "There is no %s on this host: this module must run on PostgreSQL's host, as its owner." % path
            ) from None
        except PermissionError:
            raise _closed(path) from None
        except OSError as error:
            raise ResidencyError("Cannot open %s: %s." % (path, error.strerror)) from None
        self._parent: Tuple[str, int] = ("", -1)  # the one that was used last
        status = os.fstat(self.descriptor)
        self.uid = status.st_uid
        self.identity = (status.st_dev, status.st_ino)
        if os.geteuid() == 0:
            self._check_owner(status)

    def _check_owner(self, status: os.stat_result) -> None:
        if status.st_uid == 0 or status.st_mode & 0o022:
            try:
                os.stat("PG_VERSION", dir_fd=self.descriptor, follow_symlinks=False)
            except OSError:
                raise _not_a_data_directory(self.path) from None
            raise ResidencyError(
                "%s %s: root does not trust it, and PostgreSQL would not start in it. Set its owner and its mode 0700 again."
                % (self.path, "belongs to root" if status.st_uid == 0 else "can be written by others than its owner")
            )

    @property
    def owner(self) -> pwd.struct_passwd:
        try:
            return pwd.getpwuid(self.uid)
        except KeyError:
            raise ResidencyError(
                "%s belongs to user id %d, which has no name on this host: run the module where it has." % (self.path, self.uid)
            ) from None

    def open(self, name: str) -> int:
        """A regular file of the owner's; FileNotFoundError, or another OSError for what is none."""
        folder, dummy, last = name.rpartition("/")
        descriptor = os.open(last, _READ, dir_fd=self._folder(folder))
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == self.uid:
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EPERM, "it is not a regular file of the owner of the data directory")

    def read(self, name: str, largest: int = LARGEST_TEXT) -> bytes:
        """FileNotFoundError where there is none."""
        try:
            descriptor = self.open(name)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(largest + 1)
            if len(content) > largest:
                raise OSError(errno.EFBIG, "it is larger than %d bytes" % largest)
            return content
        except FileNotFoundError:
            raise
        except PermissionError as error:
            if error.errno == errno.EACCES:
                raise _closed(self.path) from None
            raise self._refused(name, error) from None
        except OSError as error:
            raise self._refused(name, error) from None

    def listed(self, name: str) -> List[str]:
        """The entries of a directory, none where there is no such directory (any more)."""
        try:
            descriptor = os.open(".", _LIST, dir_fd=self._folder(name))
        except FileNotFoundError:
            return []
        except OSError as error:
            if "/" in name and isinstance(error, NotADirectoryError):
                return []  # no database, and no tablespace
            raise self._refused(name, error) from None
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def tablespaces(self) -> List[Tablespace]:
        """The tablespaces that this user may enter. A warning names each other one."""
        found = []
        for number in self.listed("pg_tblspc"):
            if not re.fullmatch("[0-9]+", number):
                continue
            try:
                descriptor, path = self._tablespace(number)
            except (FileNotFoundError, NotADirectoryError):
                continue  # dropped meanwhile, or none
            except ResidencyError as error:
                self._left_out[number] = str(error)
            except OSError as error:
                self._left_out[number] = str(self._refused("pg_tblspc/" + number, error))
            else:
                found.append(Tablespace(number, path, os.fstat(descriptor).st_dev))
                os.close(descriptor)
        return found

    def warnings(self) -> List[str]:
        """Warnings about the files and tablespaces that were left out so far."""
        found = ["Tablespace %s is left out: %s" % tablespace for tablespace in sorted(self._left_out.items())]
        if self.skipped:
            names = sorted(self.skipped)
            found.append(
                "%d of the files of relations in %s are left out, since they are no regular files of the owner of the data directory: %s%s."
                % (len(names), self.path, ", ".join(names[:_NAMED]), " and others" if len(names) > _NAMED else "")
            )
        return found

    def status(self, name: str) -> os.stat_result:
        folder, dummy, last = name.rpartition("/")
        return os.stat(last, dir_fd=self._folder(folder), follow_symlinks=False)

    def is_postmaster(self, process: _processes.Pinned) -> bool:
        """True if the process runs as the owner, in this directory."""
        if process.user() != self.uid:
            return False
        try:
            return process.working_directory() == self.identity
        except PermissionError:  # root in a container may not look, the owner may
            if os.geteuid() != 0:
                return False
        except OSError:
            return False
        return self.run_as_owner(lambda dummy: process.working_directory() == self.identity, {}, process.descriptor) is True

    def postmaster(self) -> Optional[_processes.Pinned]:
        """The server that runs on this data directory."""
        try:
            pid = abs(int(self.read("postmaster.pid").split(b"\n", 1)[0]))  # negative: a single-user backend
            process = _processes.Pinned(pid)
        except (OSError, ValueError, OverflowError):
            return None
        # A crashed server leaves the file, and its number may be another process's by now.
        return process if self.is_postmaster(process) else None

    def run_as_owner(self, work: Callable[[_privileges.Ask], Any], acts: Mapping[str, _privileges.Act], *keep: int) -> Any:
        """The result of ``work``, which root does as the owner; another user does the acts itself, too. ``keep`` are descriptors that the work uses."""
        if os.geteuid() != 0:
            return work(lambda name, *arguments: acts[name](*arguments))
        self._forget()  # the child closes what it does not keep
        return _privileges.run_as(self.owner, [self.descriptor, *keep], work, acts)

    def _forget(self) -> None:
        if self._parent[1] >= 0:
            os.close(self._parent[1])
        self._parent = ("", -1)

    def _folder(self, name: str) -> int:
        """A descriptor of a directory in it, which stays open until the next is asked for."""
        if not name:
            return self.descriptor
        if self._parent[0] == name:
            return self._parent[1]
        parts = name.split("/")
        if parts[0] == "pg_tblspc" and len(parts) > 1:
            descriptor = self._tablespace(parts[1])[0]
            parts = parts[2:]
        else:
            descriptor = os.dup(self.descriptor)
        for part in parts:
            try:
                below = os.open(part, _STEP, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        self._forget()
        self._parent = (name, descriptor)
        return descriptor

    def _tablespace(self, number: str) -> Tuple[int, str]:
        links = os.open("pg_tblspc", _STEP, dir_fd=self.descriptor)
        try:
            if not stat.S_ISLNK(os.stat(number, dir_fd=links, follow_symlinks=False).st_mode):
                return os.open(number, _STEP, dir_fd=links), os.path.join(self.real, "pg_tblspc", number)
            target = os.readlink(number, dir_fd=links)
        finally:
            os.close(links)
        descriptor, path = walk(os.path.join(self.real, "pg_tblspc", target))
        if os.fstat(descriptor).st_uid == self.uid:
            return descriptor, path
        os.close(descriptor)
        raise OSError(errno.EPERM, "it does not belong to the owner of the data directory")

    def _refused(self, name: str, error: OSError) -> ResidencyError:
        text = "it is a link" if error.errno == errno.ELOOP else error.strerror
        return ResidencyError("%s/%s is not read: %s." % (self.path, name, text))


_opened: Dict[str, DataDirectory] = {}


def opened(path: str) -> DataDirectory:
    """Opened once: whatever the path leads to later, this module works on the same directory until it ends."""
    if path not in _opened:
        _opened[path] = DataDirectory(path)
    return _opened[path]


def walk(path: str) -> Tuple[int, str]:
    """A descriptor of a directory, and its path without links."""
    path = os.path.abspath(path)
    if os.geteuid() != 0:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.path.realpath(path)
    links = 0
    while True:
        found = _follow(path)
        if isinstance(found, tuple):
            return found
        path = found
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _follow(path: str) -> Union[Tuple[int, str], str]:
    """Follow the path up to its first link. Returns the path with the link's target, or, without a link, a descriptor and the path."""
    parts = [part for part in path.split("/") if part]
    descriptor = os.open("/", _STEP)
    trusted = True
    try:
        for depth, part in enumerate(parts):
            status, entry = os.fstat(descriptor), os.stat(part, dir_fd=descriptor, follow_symlinks=False)
            # in a directory such as /var/tmp, others cannot replace a directory of root's
            kept = status.st_mode & stat.S_ISVTX and stat.S_ISDIR(entry.st_mode) and entry.st_uid == 0
            trusted = trusted and status.st_uid == 0 and bool(kept or not status.st_mode & 0o022)
            if stat.S_ISLNK(entry.st_mode):
                link = "/" + "/".join(parts[: depth + 1])
                if not trusted:
                    raise ResidencyError(
                        "%s is a link that users other than root may have made, so root does not follow it: use the directory that it leads to, or"
                        " become the cluster's operating system user." % link
                    )
                target = os.path.join(os.path.dirname(link), os.readlink(part, dir_fd=descriptor))
                return os.path.normpath("/".join([target, *parts[depth + 1 :]]))
            below = os.open(part, _STEP if depth + 1 < len(parts) else _LIST, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return os.dup(descriptor), "/" + "/".join(parts)
    finally:
        os.close(descriptor)


def _closed(path: str) -> ResidencyError:
    return ResidencyError("%s is not accessible to this user: become the cluster's operating system user." % path)


def _not_a_data_directory(path: str) -> ResidencyError:
    return ResidencyError("%s is not a PostgreSQL data directory: it has no PG_VERSION." % path)
