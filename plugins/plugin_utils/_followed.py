# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that takes long, with a line per host every 10 % or 30 s while it works.

A module cannot speak before it ends. So it is started as one of Ansible's asynchronous jobs, which goes on without the connection, and its
note of how far it is is read until it has ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import time
from typing import Any, Dict, Optional, Tuple

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._units import parse_seconds
from ansible_collections.pgfleet.cache.plugins.plugin_utils._progress import is_due

AFTER = 3600  # seconds after the module's own bound, in which it ends what it has begun
POLL = 1.0  # seconds, of the first look
SLOWEST = 5.0  # seconds between two looks
GONE = 2  # looks in a row that find no process: its result may come just after the first
_GONE_MARK = "pgfleet-process-is-gone"
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) %")

display = Display()


class Followed(ActionBase):
    _supports_check_mode = True
    _supports_async = True
    module = ""  # by its full name
    work = ""  # what it does, in the words of a message
    changes = True  # whether what it has done so far is a change

    def bound(self) -> Tuple[str, Any]:
        """The option with the longest duration, and its value; KeyError: this call of the module does not take long."""
        raise NotImplementedError

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        result.update(self._started(task_vars or {}))
        return result

    def _started(self, task_vars: Dict[str, Any]) -> Dict[str, Any]:
        if self._task.check_mode or self._task.async_val:
            return self._module(task_vars, {}, bool(self._task.async_val) and not self._connection.has_native_async)
        name = secrets.token_hex(16)
        try:
            option, value = self.bound()
            seconds = AFTER + int(parse_seconds(option, str(value)))
        except (ResidencyError, KeyError):
            return self._module(task_vars, {}, False)  # which says what is wrong, if anything is
        self._task.async_val = seconds
        # Ansible leaves it to the host, where the user that the module runs as cannot remove what is the connection's user's
        tmp = self._make_tmp_path()
        try:
            started = self._module(task_vars, {"progress": name}, True)
        finally:
            self._task.async_val = 0
        if "ansible_job_id" not in started or started.get("failed"):
            self._remove_tmp_path(tmp, force=True)
            return started
        try:
            return self._follow(task_vars, str(started["ansible_job_id"]), str(started.get("results_file", "")), name, time.monotonic() + seconds)
        finally:
            self._status(task_vars, str(started["ansible_job_id"]), "cleanup")
            self._remove_tmp_path(tmp, force=True)

    def _follow(self, task_vars: Dict[str, Any], job: str, results: str, name: str, until: float) -> Dict[str, Any]:
        host = str(task_vars.get("inventory_hostname", ""))
        note = os.path.join(os.path.dirname(results), "pgfleet." + name)
        spoken = (0.0, time.monotonic())
        pause = POLL
        pid: Optional[int] = None
        gone = 0
        try:
            while True:
                result = self._status(task_vars, job, "status")
                if result.get("finished") or result.get("failed"):
                    break
                if time.monotonic() > until:
                    return self._lost("The %s has not ended within its bound, nor said why: look on the host for %s." % (self.work, self.module))
                time.sleep(pause)
                pause = min(SLOWEST, pause * 1.5)
                if gone >= GONE:
                    return self._lost("The %s's process has ended without a result: it was killed, or the host restarted." % self.work)
                # its own user asks; the host may have been restarted, or the process killed together with what waited for it
                asked = " && { kill -0 %s 2>/dev/null || echo %s; }" % (pid, _GONE_MARK) if pid else ""
                said, mark, dummy = str(self._low_level_execute_command("cat %s%s" % (shlex.quote(note), asked)).get("stdout", "")).partition(_GONE_MARK)
                gone = gone + 1 if mark else 0
                percent, text = read_note(said)
                pid = read_pid(said)
                if text and is_due(percent, time.monotonic(), spoken):
                    spoken = (percent, time.monotonic())
                    display.display(printable("%s: %s" % (host, text)))
        finally:
            self._low_level_execute_command("rm -f %s" % shlex.quote(note))
        for key in ("ansible_job_id", "finished", "started", "results_file", "stdout", "stderr", "stdout_lines", "stderr_lines"):
            result.pop(key, None)
        return result

    def _lost(self, message: str) -> Dict[str, Any]:
        return {"failed": True, "changed": self.changes, "msg": message}

    def _module(self, task_vars: Dict[str, Any], more: Dict[str, Any], wrap_async: bool) -> Dict[str, Any]:
        result: Dict[str, Any] = self._execute_module(
            module_name=self.module, module_args=dict(self._task.args, **more), task_vars=task_vars, wrap_async=wrap_async
        )
        if not wrap_async:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _status(self, task_vars: Dict[str, Any], job: str, mode: str) -> Dict[str, Any]:
        result: Dict[str, Any] = self._execute_module(
            module_name="ansible.legacy.async_status", module_args={"jid": job, "mode": mode, "_async_dir": self.get_shell_option(
                "async_dir", default="~/.ansible_async")}, task_vars=task_vars, wrap_async=False
        )
        if self._connection._shell.tmpdir:
            self._remove_tmp_path(self._connection._shell.tmpdir, force=True)
        return result


def read_pid(text: str) -> Optional[int]:
    """The process that wrote the note; None if there is no note."""
    try:
        return int(json.loads(text)["pid"])
    except (ValueError, KeyError, TypeError):
        return None


def read_note(text: str) -> Tuple[float, str]:
    """Percent and words of what the module has noted; nothing of what is not such a note."""
    try:
        words = json.loads(text)["text"]
    except (ValueError, KeyError, TypeError):
        return 0.0, ""
    found = _PERCENT.search(str(words))
    return (float(found.group(1)) if found else 0.0), str(words)[:200]
