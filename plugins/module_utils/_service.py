# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop and start a cluster the way it was started: by its systemd unit, or by pg_ctl where it has none.

Only a unit needs root, and only the one whose main process is this cluster's postmaster, which Unit verifies before each
act. Everything else, which is all that comes from the data directory, is done as the cluster's operating system user.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from typing import Any, Dict, FrozenSet, List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory, _managers, _privileges, _proc, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._data_directory import DataDirectory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

TIMEOUT = 600  # seconds for a shutdown with its checkpoint, or for recovery
_LARGEST_OUTPUT = 4000  # bytes


class Unit:
    """The actions of root in a restart, on the postmaster of this directory only."""

    def __init__(self, data_directory: str, named: Optional[str]) -> None:
        self._directory = _data_directory.opened(data_directory)
        self._named = named
        self._name: Optional[str] = None
        self._postmaster: Optional[_processes.Pinned] = None
        self._cgroups: FrozenSet[str] = frozenset()

    @property
    def acts(self) -> Dict[str, _privileges.Act]:
        return {"find unit": self.find, "stop unit": self.stop, "start unit": self.start, "join cgroups": self.join}

    def find(self) -> Optional[str]:
        """The name of the unit, None when no unit runs the server."""
        self._postmaster = running(self._directory)
        self._name = self._named or unit_of(self._postmaster)
        if self._name is not None:
            if os.geteuid() != 0:
                raise ResidencyError("PostgreSQL runs in the systemd unit %s, which only root may restart: become root." % self._name)
            require_main_process(self._name, self._postmaster, self._directory)
        else:
            self._cgroups = _cgroups_of(self._postmaster.pid) - _cgroups_of(os.getpid())
            if not self._directory.is_postmaster(self._postmaster):
                raise _ended(self._directory)
        return self._name

    def stop(self) -> None:
        if self._name is None or self._postmaster is None:
            raise ResidencyError("There is no unit to stop.")
        require_main_process(self._name, self._postmaster, self._directory)
        systemctl("stop", self._name)

    def start(self) -> None:
        if self._name is not None:
            systemctl("start", self._name)

    def join(self, pid: int) -> None:
        """Move the new server into the former one's cgroups: its limits, and the cgroup that its pages are charged to, stay the same."""
        if os.geteuid() == 0 and _processes.Pinned(pid).user() == self._directory.uid:
            for folder in sorted(self._cgroups):
                write(os.path.join(folder, "cgroup.procs"), pid)


class Service:
    """A running cluster: what is needed to start it again is recorded before it is stopped."""

    _STOP = ("stop", "-m", "fast")

    def __init__(self, data_directory: str, ask: _privileges.Ask) -> None:
        self.data_directory = data_directory
        self._directory = _data_directory.opened(data_directory)
        self._ask = ask
        self.unit: Optional[str] = ask("find unit")
        if self.unit is not None:
            return
        postmaster = running(self._directory)
        self._keeper(postmaster.pid)
        executable, self._arguments = _command(self._directory)
        self._pg_ctl = os.path.join(os.path.dirname(executable), "pg_ctl")
        self._environment = _environment(postmaster)
        try:
            log = postmaster.error_log()
        except OSError:
            log = ""
        self._log = log if os.path.isfile(log) else os.devnull

    def stop(self) -> None:
        if self.unit is not None:
            self._ask("stop unit")
        else:
            self._run(*self._STOP)
        if self._directory.postmaster() is not None:
            raise ResidencyError("PostgreSQL in %s was stopped, but runs again: something else starts it." % self.data_directory)

    def start(self) -> None:
        """After stop()."""
        try:
            if self.unit is not None:
                self._ask("start unit")
            else:
                self._ask("join cgroups", os.getpid())
                self._run(*self._start_arguments())
        except ResidencyError as error:
            where = "journalctl -u %s" % self.unit if self.unit is not None else self._log
            raise ResidencyError(
                "PostgreSQL in %s was stopped and does not start again; see %s. %s" % (self.data_directory, where, error),
                {"changed": True, "data_directory": self.data_directory, "server": "stopped"},
            ) from error

    @property
    def commands(self) -> List[str]:
        """The commands as they are shown."""
        if self.unit is not None:
            return ["systemctl stop %s" % self.unit, "systemctl start %s" % self.unit]
        return [shlex.join(self._pg_ctl_command(*arguments)) for arguments in (self._STOP, self._start_arguments())]

    def _keeper(self, pid: int) -> None:
        process = _processes.look(pid)
        parent = _processes.look(process.parent) if process else None
        if parent and _managers.is_supervisor(parent.name):
            raise ResidencyError(
                "PostgreSQL in %s is managed by %s (process %d): stop it with that, evict, and start it again."
                % (self.data_directory, parent.name, parent.pid)
            )

    def _run(self, *arguments: str) -> None:
        if os.geteuid() == 0:
            raise ResidencyError("pg_ctl does not run as root: become the cluster's operating system user.")
        _call(self._pg_ctl_command(*arguments), env=self._environment)

    def _start_arguments(self) -> List[str]:
        return ["start", "-l", self._log, "-o", self._arguments]

    def _pg_ctl_command(self, *arguments: str) -> List[str]:
        return [self._pg_ctl, *arguments, "-D", self.data_directory, "--wait", "--silent", "-t", str(TIMEOUT)]


def running(directory: DataDirectory) -> _processes.Pinned:
    postmaster = directory.postmaster()
    if postmaster is None:
        raise ResidencyError("PostgreSQL is stopped in %s: there is nothing to restart." % directory.path)
    return postmaster


def _ended(directory: DataDirectory) -> ResidencyError:
    return ResidencyError("PostgreSQL in %s has ended, or was restarted, meanwhile: run the module again." % directory.path)


def require_main_process(unit: str, postmaster: _processes.Pinned, directory: DataDirectory) -> None:
    """Right before a unit is touched: it runs this server, and nothing else."""
    main = systemctl("show", "--property=MainPID", "--value", "--", unit).strip()
    if not directory.is_postmaster(postmaster):
        raise _ended(directory)
    if main != str(postmaster.pid):
        raise ResidencyError(
            "Unit %s is not PostgreSQL's own (its main process is %s, not %d), but perhaps a cluster manager such as Patroni: stop PostgreSQL by its"
            " means, evict, and start it again." % (unit, main or "none", postmaster.pid)
        )


def _cgroups_of(pid: int) -> FrozenSet[str]:
    """The folders of a process's cgroups, of the controllers that limit it or are charged for its pages."""
    found = (_proc.cgroup_of(pid, controller) for controller in ("memory", "blkio", "cpu", ""))
    return frozenset(cgroup.folder for cgroup in found if cgroup is not None and os.path.isdir(cgroup.folder))


def unit_of(process: _processes.Pinned) -> Optional[str]:
    """The systemd service that a process runs in, where systemd is at work."""
    if not os.path.isdir("/run/systemd/system"):
        return None
    for line in process.read("cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        last = path.rpartition("/")[2]
        if (controllers == "name=systemd" or (number == "0" and not controllers)) and last.endswith(".service"):
            return last
    return None


def _command(directory: DataDirectory) -> List[str]:
    """The program, and its arguments but for -D, as postmaster.opts has them."""
    try:
        words = shlex.split(directory.read("postmaster.opts").decode("utf-8", "surrogateescape"))
        program = words[0]
    except FileNotFoundError:
        raise ResidencyError("%s/postmaster.opts, which has PostgreSQL's start command, is missing." % directory.path) from None
    except (ValueError, IndexError):
        raise ResidencyError("%s/postmaster.opts does not hold a command: PostgreSQL writes it at each start." % directory.path) from None
    arguments = words[1:]
    if "-D" in arguments:
        at = arguments.index("-D")
        del arguments[at : at + 2]
    return [program, " ".join(shlex.quote(word) for word in arguments)]


def _environment(postmaster: _processes.Pinned) -> Dict[str, str]:
    """The environment that the server was started with, which an archive_command may need; nothing of this module's."""
    try:
        words = postmaster.read("environ").split("\0")
    except OSError:
        words = []
    found = dict(word.split("=", 1) for word in words if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word))
    return found or _privileges.clean_environment()


def systemctl(*arguments: str) -> str:
    return _call(["systemctl", *arguments], env=_privileges.clean_environment())


def write(path: str, value: Any) -> None:
    """Write a value to a file of the kernel's."""
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("%s\n" % value)
    except OSError as error:
        raise ResidencyError("Cannot write %s to %s: %s." % (value, path, error.strerror)) from None


def _call(command: List[str], env: Dict[str, str]) -> str:
    # no pipes, which what the command leaves behind could hold open for ever
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            # an engine has no AnsibleModule, whose run_command() is meant, and which knows no timeout
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=TIMEOUT + 30, cwd="/", check=False, env=env
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise ResidencyError("%s: %s." % (shlex.join(command), error)) from None
        output.seek(0)
        errors.seek(0)
        text, said = (file.read(_LARGEST_OUTPUT).decode("utf-8", "replace") for file in (output, errors))
    if done.returncode != 0:
        words = " ".join((said or text).split())
        raise ResidencyError("%s failed: %s" % (shlex.join(command), words or "no output; see the server's log."))
    return text
