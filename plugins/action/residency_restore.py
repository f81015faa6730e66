# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the module of this name, with a line per host every 10 % or 30 s while a restore runs.

A module cannot speak before it ends. So the job is started without waiting, and then waited for in slices
that end when the next line is due. The last slice is the module's own result.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Optional

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._residency_restore import (
    LOST_JOB,
    NOT_FINISHED,
    RUNNING,
    STOPPING,
    WAIT_TIMEOUT,
    WAITS,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, human_seconds
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease
from ansible_collections.pgfleet.cache.plugins.plugin_utils._progress import is_due, next_slice

MODULE = "pgfleet.cache.residency_restore"
GOES_ON = "Job %s does not depend on the connection: it goes on there."
_AGE = re.compile(r", from \d+ \w+ ago")

display = Display()


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        result.update(self._restore(task_vars or {}))
        return result

    def _restore(self, task_vars: Dict[str, Any]) -> Dict[str, Any]:
        arguments = self._task.args
        try:
            waits = boolean(arguments.get("wait", True))
            timeout = float(arguments.get("wait_timeout", WAIT_TIMEOUT))
        except (TypeError, ValueError):
            return self._run_module(task_vars)  # which says what is wrong with them
        if self._task.check_mode or self._task.async_val:
            return self._run_module(task_vars)

        deadline = time.monotonic() + timeout + STOPPING
        started = self._run_module(task_vars, wait=False)
        held = started.get("held_by")
        if isinstance(held, dict) and _lease.gone(held, _lease.mine()):  # which only the controller knows
            started = self._run_module(task_vars, wait=False, lease_id=str(held.get("id")))
        if started.get("state") not in RUNNING:
            return started
        host = str(task_vars.get("inventory_hostname", ""))
        if arguments.get("deadline") and not arguments.get("job"):
            display.display(printable("%s: %s" % (host, started["msg"])))  # whether it will be kept, said beforehand
        if started["state"] == "waiting":
            display.display(printable(progress_line(host, started)))
        if not waits:
            return started
        result = self._follow(task_vars, started, deadline, host)
        if result.get("failed") and result.get("state") in RUNNING:  # the last slice names its own timeout
            result["msg"] = NOT_FINISHED % (human_seconds(timeout), result["msg"].partition(": ")[2])
        return result

    def _follow(
        self, task_vars: Dict[str, Any], started: Dict[str, Any], deadline: float, host: str
    ) -> Dict[str, Any]:
        result, ahead = started, reason(started)
        spoken = (0.0, time.monotonic())  # percent and time of the last line
        while result.get("state") in RUNNING and time.monotonic() < deadline:
            left = max(1, int(deadline - time.monotonic()))
            slice_seconds = min(left, next_slice(result["progress"], result["seconds"]))
            seen = {"waited": result["waited"]} if result.get("waited") else {}
            result = self._run_module(task_vars, job=started["job"], wait_timeout=slice_seconds, **seen)
            if result.get("state") in RUNNING and (is_due(result["progress"], time.monotonic(), spoken) or reason(result) not in (None, ahead)):
                spoken, ahead = (result["progress"], time.monotonic()), reason(result)
                display.display(printable(progress_line(host, result)))
        own = bool(started["queries"])
        result["changed"] = result.get("loaded", 0) > (0 if own else started["loaded"]) or bool(result.get("buffers_loaded") or (own and result.get("hold")))
        if result.get("failed") and result.get("job") is None:  # the server cannot be asked any more
            result.update(job=started["job"], snapshot=started["snapshot"], changed=own)
            result["msg"] += " " + LOST_JOB % (started["job"], started["snapshot"] or "relations without a snapshot")
        result["queries"] = started["queries"] + result.get("queries", [])
        result["expected_seconds"] = started["expected_seconds"]
        result["warnings"] = merged(started.get("warnings", []), result.get("warnings", []))
        return result

    def _run_module(self, task_vars: Dict[str, Any], **changed: Any) -> Dict[str, Any]:
        wrap_async = self._task.async_val and not self._connection.has_native_async
        arguments = dict({"lease_id": _lease.mine()["id"]}, **dict(self._task.args, **changed))
        try:
            result: Dict[str, Any] = self._execute_module(
                module_name=MODULE, module_args=arguments, task_vars=task_vars, wrap_async=wrap_async
            )
        except AnsibleConnectionFailure as error:
            if not arguments.get("job"):
                raise
            raise AnsibleConnectionFailure("%s. %s" % (str(error).rstrip("."), GOES_ON % printable(arguments["job"], 20))) from None
        if not wrap_async:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result


def merged(earlier: List[Any], later: List[Any]) -> List[Any]:
    """Warnings of two looks at the same job, each once: meanwhile a snapshot has become older."""
    known = {_AGE.sub("", str(warning)) for warning in earlier}
    return earlier + [warning for warning in later if _AGE.sub("", str(warning)) not in known]


def reason(result: Dict[str, Any]) -> Optional[str]:
    """The job that a job waits for now."""
    if result.get("state") != "waiting":
        return None
    return str((result.get("waited") or {}).get("reason") or WAITS)


def progress_line(host: str, result: Dict[str, Any]) -> str:
    """``db1: 40 % of warm@3, 812 MB/s, 4.2 s left``."""
    what = result["snapshot"] or "the fallback relations"
    if result["state"] == "waiting":
        return "%s: %s is %s, for %s so far" % (host, what, reason(result), human_seconds(result["seconds"]))
    line = "%s: %d %% of %s, %s/s" % (
        host,
        result["progress"],
        what,
        human_bytes(result["bytes_per_second"]),
    )
    if result["progress"] > 0:
        left = result["seconds"] * (100 - result["progress"]) / result["progress"]
        line += ", %s left" % human_seconds(left)
    return line
