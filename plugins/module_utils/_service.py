# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop and start a cluster the way it was started: by its systemd unit, or by pg_ctl where it has none."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
from typing import FrozenSet, List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _page_cache, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

TIMEOUT = 600  # seconds for a shutdown with its checkpoint, or for recovery


class Service:
    """Of a cluster that runs now: what it takes to start it again is remembered before it is stopped."""

    def __init__(self, data_directory: str, unit: Optional[str] = None) -> None:
        self.data_directory = data_directory
        pid = _page_cache.postmaster_pid(data_directory)
        if pid is None:
            raise ResidencyError("PostgreSQL is stopped in %s: there is nothing to restart." % data_directory)
        self.unit = unit or unit_of(pid)
        if self.unit is not None:
            if os.geteuid() != 0:
                raise ResidencyError("PostgreSQL runs in systemd's unit %s, and only root may restart that: become root." % self.unit)
            main = systemctl("show", "--property=MainPID", "--value", self.unit).strip()
            if main != str(pid):
                raise ResidencyError(
                    "Unit %s is not PostgreSQL's own (its main process is %s, not %d), a cluster manager such as Patroni perhaps:"
                    " stop PostgreSQL your way, evict, and start it again." % (self.unit, main or "none", pid)
                )
            return
        self._keeper(pid)
        self._owner = pwd.getpwuid(os.stat(data_directory).st_uid)
        executable, self._arguments = _command(data_directory)
        self._pg_ctl = os.path.join(os.path.dirname(executable), "pg_ctl")
        log = (_processes.ask_as_owner(pid, "readlink", "/proc/%d/fd/2" % pid) or "").strip()
        self._log = log if os.path.isfile(log) else "/dev/null"
        self._cgroups = _cgroups_of(pid) - _cgroups_of(os.getpid())

    def stop(self) -> None:
        if self.unit is not None:
            systemctl("stop", self.unit)
        else:
            self._run("stop", "-m", "fast")
        if _page_cache.postmaster_pid(self.data_directory) is not None:
            raise ResidencyError("PostgreSQL in %s was stopped, and runs again: something else starts it." % self.data_directory)

    def start(self) -> None:
        """After stop()."""
        try:
            if self.unit is not None:
                systemctl("start", self.unit)
            else:
                self._run("start", "-l", self._log, "-o", self._arguments)
        except ResidencyError as error:
            where = "journalctl -u %s" % self.unit if self.unit is not None else self._log
            raise ResidencyError(
                "PostgreSQL in %s was stopped and does not start again, %s tells why. %s" % (self.data_directory, where, error),
                {"changed": True, "data_directory": self.data_directory, "server": "stopped"},
            ) from error

    @property
    def commands(self) -> List[str]:
        """As they are shown."""
        if self.unit is not None:
            return ["systemctl stop %s" % self.unit, "systemctl start %s" % self.unit]
        return ["pg_ctl stop -D %s" % self.data_directory, "pg_ctl start -D %s" % self.data_directory]

    def _keeper(self, pid: int) -> None:
        process = _processes.look(pid)
        parent = _processes.look(process.parent) if process else None
        if parent and re.search(r"patroni|repmgr|pacemaker|supervis|runsv", parent.name):
            raise ResidencyError(
                "PostgreSQL in %s is kept by %s (process %d): stop it that way, evict, and start it again."
                % (self.data_directory, parent.name, parent.pid)
            )

    def _run(self, *arguments: str) -> None:
        # LC_ALL and the like are what the server was started with, as far as this user has the same
        command = [self._pg_ctl, *arguments, "-D", self.data_directory, "--wait", "--silent", "-t", str(TIMEOUT)]
        if os.geteuid() == 0:
            # what limits it, and what its pages are charged to, stays the same
            join = "".join("echo $$ >%s && " % shlex.quote(folder + "/cgroup.procs") for folder in sorted(self._cgroups))
            command = ["setpriv", "--reuid", str(self._owner.pw_uid), "--regid", str(self._owner.pw_gid), "--init-groups", "--", *command]
            if join:
                command = ["sh", "-c", join + 'exec "$@"', "sh", *command]
        _call(command)


def _cgroups_of(pid: int) -> FrozenSet[str]:
    """Of the controllers that matter here."""
    found = (_capabilities.cgroup_of(pid, controller) for controller in ("memory", "blkio", "cpu", ""))
    return frozenset(cgroup.folder for cgroup in found if cgroup is not None and os.path.isdir(cgroup.folder))


def unit_of(pid: int) -> Optional[str]:
    """The systemd service that a process runs in, where systemd is at work."""
    if not os.path.isdir("/run/systemd/system"):
        return None
    for line in (_capabilities.text("proc/%d/cgroup" % pid) or "").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        last = path.rpartition("/")[2]
        if (controllers == "name=systemd" or (number == "0" and not controllers)) and last.endswith(".service"):
            return last
    return None


def _command(data_directory: str) -> List[str]:
    """The program, and its arguments but for -D, as postmaster.opts has them."""
    try:
        with open(os.path.join(data_directory, "postmaster.opts"), encoding="utf-8") as file:
            words = shlex.split(file.read())
    except OSError as error:
        raise ResidencyError("Cannot read how PostgreSQL was started: %s." % error) from None
    arguments = words[1:]
    if "-D" in arguments:
        at = arguments.index("-D")
        del arguments[at : at + 2]
    return [words[0], " ".join(shlex.quote(word) for word in arguments)]


def systemctl(*arguments: str) -> str:
    return _call(["systemctl", *arguments])


def _call(command: List[str]) -> str:
    try:
        # an engine has no AnsibleModule, whose run_command() is meant, and which knows no timeout
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            timeout=TIMEOUT + 30, cwd="/", check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResidencyError("%s: %s." % (shlex.join(command), error)) from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise ResidencyError("%s failed: %s" % (shlex.join(command), said or "it says nothing, see the server's log."))
    return done.stdout
