# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""pgbench as the client of a load: one process for each group of sessions, and what each of its sessions did.

pgbench reports per script or in sum, so what a session did is read from its log, which has a line per transaction:
``client transaction latency_us script epoch_s epoch_us`` (https://www.postgresql.org/docs/current/pgbench.html). It is read while it is
written, in memory, and what was read is taken out of it, so that it stays small.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_seconds

LOOK = 1.0  # seconds between two looks at the logs
GRACE = 60  # seconds after the run time until a transaction that does not end is given up
_FOLDERS = ("/usr/lib/postgresql/%d/bin", "/usr/pgsql-%d/bin")  # Debian, Red Hat
_FASTER = "/dev/shm"
_PREFIX = "pgfleet_io."
_STALE = 60  # seconds, after which a folder that nobody holds is not one that is just being made
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Group:
    """Sessions that do the same: ``scripts`` are (text, weight), of which each transaction runs one."""

    scripts: Sequence[Any]
    sessions: int
    seed: int


@dataclass
class Session:
    """The transactions of a session by script, those that failed, and the slowest in ms."""

    group: int
    number: int
    done: Dict[int, int] = field(default_factory=dict)
    failed: int = 0
    slowest: Dict[int, float] = field(default_factory=dict)


@dataclass
class Run:
    """``seconds`` are from the begin of the first transaction to the end of the last one."""

    sessions: List[Session]
    seconds: float = 0.0


def find(major: int, given: Optional[str]) -> str:
    """The program of the server's major version, because an older one may not know its protocol's words."""
    if given:
        if os.access(given, os.X_OK) and os.path.isfile(given):
            return given
        raise ResidencyError("pgbench is %s, which is no program on this host: correct it." % given)
    for path in [os.path.join(folder % major, "pgbench") for folder in _FOLDERS]:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("pgbench")
    if found is None:
        raise ResidencyError(
            "There is no pgbench on this host: install it (Debian: postgresql-%d, Red Hat: postgresql%d-contrib), or set pgbench to its path."
            % (major, major)
        )
    return found


def run(
    program: str, connection: str, environment: Mapping[str, str], groups: Sequence[Group], seconds: int, progress: Callable[[Run, float], None]
) -> Run:
    """Run all groups at the same time for so many seconds. ``progress`` is called about every second with what there is so far."""
    try:
        return _run(program, connection, environment, groups, seconds, progress)
    except OSError as error:
        raise ResidencyError("pgbench cannot be run: %s." % error) from error


def _run(
    program: str, connection: str, environment: Mapping[str, str], groups: Sequence[Group], seconds: int, progress: Callable[[Run, float], None]
) -> Run:
    base = _FASTER if os.access(_FASTER, os.W_OK) else tempfile.gettempdir()
    remove_stale(base)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    processes: List[subprocess.Popen[bytes]] = []
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        ends_with_us = _ends_with_us()
        logs = _Logs(folder, [one.sessions for one in groups])
        for number, group in enumerate(groups):
            with open(os.path.join(folder, "%d.said" % number), "wb") as said:
                processes.append(subprocess.Popen(  # pylint: disable=ansible-bad-function
                    command(program, connection, group, number, folder, seconds), env=dict(os.environ, LC_ALL="C", **environment), cwd=folder,
                    stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, preexec_fn=ends_with_us,
                ))
        begun = time.monotonic()
        while any(one.poll() is None for one in processes):
            time.sleep(LOOK)
            logs.read()
            elapsed = time.monotonic() - begun
            progress(logs.run(), elapsed)
            broken = [number for number, one in enumerate(processes) if one.poll() not in (None, 0)]
            if broken:
                raise ResidencyError(complaint(_said(folder, broken[0])))
            if elapsed > seconds + GRACE:
                raise ResidencyError(
                    "A transaction has not ended %s after the run time of %s: look for what blocks it in pg_stat_activity."
                    % (human_seconds(GRACE), human_seconds(seconds))
                )
        for number, one in enumerate(processes):
            if one.returncode:
                raise ResidencyError(complaint(_said(folder, number)))
        logs.read()
        for number in range(len(groups)):
            require_whole(_said(folder, number), logs.transactions(number), base)
        return logs.run()
    finally:
        for one in processes:
            if one.poll() is None:
                one.kill()
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _ends_with_us() -> Callable[[], None]:
    """Have the kernel end this child with its parent. Else the load of a module that was killed goes on unseen, beside the next one."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_signal() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    return set_signal


def remove_stale(base: str) -> None:
    """Logs of runs that were killed: each run holds a lock on its folder, which goes with the process."""
    for path in glob.glob(os.path.join(glob.escape(base), _PREFIX + "*")):
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another user's, a link, or gone
        try:
            status = os.fstat(held)
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700 and time.time() - status.st_mtime > _STALE:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # its run works
        finally:
            os.close(held)


def require_whole(said: str, logged: int, base: str) -> None:
    """pgbench does not notice that its log cannot be written, as when another user has filled the file system."""
    found = re.search(r"^number of transactions actually processed: ([0-9]+)", said, re.MULTILINE)
    if found and int(found.group(1)) != logged:
        raise ResidencyError("pgbench ran %s transactions, and its log in %s has %d: is there space?" % (found.group(1), base, logged))


def command(program: str, connection: str, group: Group, number: int, folder: str, seconds: int) -> List[str]:
    """Each session has a thread, as long as there are processors for them."""
    line = [
        program, "--no-vacuum", "--protocol=prepared", "--client=%d" % group.sessions,
        "--jobs=%d" % max(1, min(group.sessions, os.cpu_count() or 1)), "--time=%d" % seconds, "--random-seed=%d" % group.seed,
        "--log", "--log-prefix=%s" % os.path.join(folder, "%d.log" % number),
    ]
    for script, (text, weight) in enumerate(group.scripts):
        path = os.path.join(folder, "%d.%d.sql" % (number, script))
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        line.append("--file=%s@%d" % (path, weight))
    return [*line, connection]


def complaint(said: str) -> str:
    """The error among what a pgbench that failed has said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line.lower() or "fatal:" in line.lower()] or lines or ["it said nothing"]
    return "pgbench failed: %s." % errors[0].rstrip(".")


def _said(folder: str, number: int) -> str:
    with open(os.path.join(folder, "%d.said" % number), "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")


class _Logs:
    """The logs of all sessions, as far as they are read."""

    def __init__(self, folder: str, sessions: Sequence[int]) -> None:
        self._folder = folder
        self._sessions = [[Session(group, number) for number in range(count)] for group, count in enumerate(sessions)]
        self._read: Dict[str, int] = {}  # path -> bytes
        self._first: Optional[float] = None
        self._last = 0.0

    def read(self) -> None:
        for group, sessions in enumerate(self._sessions):
            for path in glob.glob(os.path.join(glob.escape(self._folder), "%d.log.*" % group)):
                done = self._read.get(path, 0)
                with open(path, "rb") as file:
                    file.seek(done)
                    whole, end, dummy = file.read().rpartition(b"\n")
                if end:
                    self._count(sessions, whole)
                    self._read[path] = done + len(whole) + 1
                    _forget(path, self._read[path])

    def _count(self, sessions: List[Session], lines: bytes) -> None:
        for line in lines.split(b"\n"):
            words = line.split()
            try:
                session, script = sessions[int(words[0])], int(words[3])
                if words[2].isalpha():  # "failed", of a transaction that could not be serialized
                    session.failed += 1
                    continue
                latency, ended = int(words[2]), int(words[4]) + int(words[5]) / 1e6
            except (ValueError, IndexError):
                raise ResidencyError("pgbench's log in %s has a line that is cut: is there space?" % os.path.dirname(self._folder)) from None
            session.done[script] = session.done.get(script, 0) + 1
            session.slowest[script] = max(session.slowest.get(script, 0.0), latency / 1e3)
            begun = ended - latency / 1e6
            self._first = begun if self._first is None else min(self._first, begun)
            self._last = max(self._last, ended)

    def transactions(self, group: int) -> int:
        return sum(sum(session.done.values()) for session in self._sessions[group])

    def run(self) -> Run:
        every = [one for sessions in self._sessions for one in sessions]
        return Run(every, 0.0 if self._first is None else max(0.0, self._last - self._first))


def _forget(path: str, until: int) -> None:
    """Free what was read of a file that grows. Where the file system cannot, it grows."""
    whole = until // 4096 * 4096
    if whole:
        subprocess.run(  # pylint: disable=ansible-bad-function
            ["fallocate", "--punch-hole", "--offset", "0", "--length", str(whole), path],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
