# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host stores about restarts and cold tests, outside PostgreSQL: its record, and the lease of the run that works on it.

Both are JSON files of root in one directory, replaced as a whole (temporary file, fsync, rename, fsync of the directory), so that whatever ends
the machine leaves the old or the new one. Whoever changes them holds a lock (flock) on the directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

LARGEST = 1 << 20  # bytes; a record has some kilobytes
ROOM = 1 << 20  # bytes that have to be free before anything begins, for all that will be written
LOCKED = 30  # seconds to wait for another that writes
RECORD, LEASE = ".json", ".lease"
ENDINGS = {"record": RECORD, "lease": LEASE}


class Records:
    """Of one directory, on the host itself."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    # --- reading, which changes nothing ---

    def read(self, name: str, kinds: Sequence[str] = tuple(ENDINGS)) -> Dict[str, Any]:
        """``record`` and ``lease``, each None where there is none; ``fault`` is why one of those that are asked for cannot be read."""
        found: Dict[str, Any] = {"record": None, "lease": None, "fault": ""}
        for key in kinds:
            path = os.path.join(self.directory, name + ENDINGS[key])
            try:
                found[key] = self._load(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                found["fault"] = "%s cannot be read: %s" % (path, error.strerror)
            except (ValueError, RecursionError):
                found["fault"] = "%s is damaged" % path
        return found

    def leases(self) -> List[Dict[str, Any]]:
        """All leases of this directory; unreadable ones are ignored."""
        found = []
        with suppress(OSError):
            for entry in sorted(os.listdir(self.directory)):
                if entry.endswith(LEASE):
                    with suppress(OSError, ValueError, RecursionError):
                        found.append(dict(self._load(os.path.join(self.directory, entry)), name=entry[: -len(LEASE)]))
        return found

    def _load(self, path: str) -> Dict[str, Any]:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ValueError("no regular file")
            found = json.loads(stream.read(LARGEST + 1)[:LARGEST].decode("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
        return found

    # --- writing ---

    def prepare(self) -> None:
        """Ensure that the directory exists, that only root and this user can replace it, and that it has free space."""
        try:
            before = os.umask(0o022)  # the lease and the record are read as the cluster's own user
            try:
                os.makedirs(self.directory, exist_ok=True)  # the run of another cluster of this host may be making it
            finally:
                os.umask(before)
            self._check_parents()
            room = os.statvfs(self.directory)
        except FileExistsError:
            raise ResidencyError("%s is not a directory: correct pgfleet_state_directory." % self.directory) from None
        except OSError as error:
            raise ResidencyError("%s: %s. Correct pgfleet_state_directory." % (printable(error.filename or self.directory), error.strerror)) from None
        if room.f_bavail * room.f_frsize < ROOM:
            raise ResidencyError("The file system of %s is full, so this run cannot be recorded on the host. Free some space." % self.directory)

    def _check_parents(self) -> None:
        path = os.path.realpath(self.directory)
        while True:
            found = os.stat(path)
            others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
            if found.st_uid not in (0, os.geteuid()) or others:
                raise ResidencyError("%s can be replaced by users other than root: choose another pgfleet_state_directory." % path)
            if path == os.path.dirname(path):
                return
            path = os.path.dirname(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held for as long as a file takes to be written; gone with the process. Others than root cannot open it, and so not hold it."""
        path = os.path.join(self.directory, ".lock")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ResidencyError("%s: %s. Correct pgfleet_state_directory." % (path, error.strerror)) from None
        try:
            until = time.monotonic() + LOCKED
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise ResidencyError("%s has been locked by another process for more than %d s: find it with lsof." % (path, LOCKED)) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(lock)

    def _store(self, name: str, content: Mapping[str, Any]) -> None:
        path = os.path.join(self.directory, name)
        temporary = path + ".new"
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(content, indent=2) + "\n")
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            os.rename(temporary, path)
            self._sync()
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise ResidencyError("%s cannot be written: %s. Nothing is changed until it can be." % (path, error.strerror)) from None

    def _sync(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # --- the lease ---

    def take(self, name: str, wanted: Mapping[str, Any], replace: Sequence[str] = ()) -> Dict[str, Any]:
        """``held_by``: the lease of another run; else it is ours from now on, and ``taken_over`` is the one that it has replaced.

        ``replace`` are the ids of leases whose run has ended, or that an operator takes over. The same server can have another name in another
        inventory: its data directory tells.
        """
        ours = self.holder(name, wanted, replace)
        if ours["held_by"]:
            return ours
        if ours["taken_over"] and ours["taken_over"]["name"] != name:
            self._remove(ours["taken_over"]["name"] + LEASE)
        self._store(name + LEASE, wanted)
        return ours

    def holder(self, name: str, wanted: Mapping[str, Any], replace: Sequence[str] = ()) -> Dict[str, Any]:
        """Like take(), but without taking the lease."""
        ours: Dict[str, Any] = {"held_by": None, "taken_over": None}
        for lease in self.leases():
            same = lease["name"] == name or (wanted.get("data_directory") and lease.get("data_directory") == wanted["data_directory"])
            if not same or lease.get("id") == wanted["id"]:
                continue
            if lease.get("id") not in replace:
                return {"held_by": lease, "taken_over": None}
            ours["taken_over"] = lease
        return ours

    def event(self, name: str, lease: str, event: str, facts: Mapping[str, Any], remarks: Sequence[str] = (), phase: str = "") -> Dict[str, Any]:
        """The record after an event (see _states.py), written."""
        found = self.read(name)
        if found["fault"]:
            raise ResidencyError("%s: check what was begun on the host, then remove the file." % found["fault"])
        self.require(found["lease"], lease)
        wrong = _states.fault(found["record"] or {})
        if wrong:
            raise ResidencyError("%s is damaged (%s): check what was begun on the host, then remove the file." % (
                os.path.join(self.directory, name + RECORD), wrong))
        record = _states.note(found["record"] or {}, event, facts, remarks, phase)
        self._store(name + RECORD, record)
        return record

    @staticmethod
    def require(found: Optional[Mapping[str, Any]], lease: str) -> None:
        """Fail unless the lease of the host is ``lease``: going on would change the host beside another run."""
        if not found:
            raise ResidencyError("The lease of this host was removed. Run the playbook again.")
        if found.get("id") != lease:
            raise ResidencyError("The lease of this host is now held by %s: that run has to finish what was begun." % owner(found))

    def release(self, name: str, lease: str) -> bool:
        """Return whether the lease existed and was ours."""
        mine = self.read(name)["lease"]
        if mine is None or mine.get("id") != lease:
            return False
        self._remove(name + LEASE)
        return True

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.directory, name))
        self._sync()


def owner(lease: Mapping[str, Any]) -> str:
    """Such as ``alice on ctl1 (rolling_restart, process 4711, since ...)``."""
    return printable("%s on %s (%s, process %s, since %s)" % tuple(lease.get(key, "?") for key in ("owner", "controller", "what", "pid", "since")), 300)


def way_out(lease: Mapping[str, Any]) -> str:
    """The remedy. The id is a host's text, and the command is pasted into a shell: only a plain one becomes part of it."""
    name = str(lease.get("id"))
    if re.fullmatch("[A-Za-z0-9-]{1,60}", name):
        return "Wait until it ends. If that run no longer exists, take it over with -e pgfleet_take_over=%s." % name
    return "Wait until it ends. If that run no longer exists, remove its file in pgfleet_state_directory."
