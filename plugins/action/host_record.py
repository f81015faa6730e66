# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module of this name, with what only the controller knows: which run this is, and whether the run that holds a lease still exists."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _host, _lease, _pending

display = Display()

OTHERS = 10  # leases of one server that a run replaces: it can have several names


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        here, given = task_vars or {}, self._task.args
        run = dict(_lease.mine(str(given.get("what") or "")), data_directory=str(given.get("data_directory") or ""))
        arguments = dict(given, lease=run)
        if given.get("event") in ("begin", "save", "waived"):
            facts = dict(given.get("facts") or {}, by=run["owner"], **({"since": run["since"]} if given["event"] == "save" else {}))
            arguments.update(facts=facts)
        if given.get("announce") and not self._task.check_mode:
            display.display(printable(str(given["announce"]), 600))
        result.update(self._done(arguments, run, here))
        if result.get("failed") and not result.get("record"):  # the last one that is known stays in the registered variable
            result["record"] = _known(here.get(str(self._task.register)))
        return result

    def _done(self, arguments: Dict[str, Any], run: Dict[str, Any], here: Dict[str, Any]) -> Dict[str, Any]:
        state = arguments.get("state")
        if state == "leased":
            return self._leased(arguments, run, here)
        if state == "written" and arguments.get("what"):
            before = _host.execute(self, "host_record", dict(arguments, state="read"), here).get("lease") or {}
            leased = self._leased(dict(arguments, state="leased"), run, here)
            if leased.get("failed"):
                return leased
            try:
                return _host.execute(self, "host_record", arguments, here)
            finally:
                if before.get("id") != run["id"]:  # else another task of this run took it, and releases it
                    _host.execute(self, "host_record", dict(arguments, state="released"), here)
        result = _host.execute(self, "host_record", arguments, here)
        held = result.get("lease")
        if state == "free" and not result.get("failed") and held and not self._is_ours(held, arguments, run):
            return dict(result, failed=True, msg=_lease.refused(self._host(here), held))
        return result

    @staticmethod
    def _is_ours(lease: Dict[str, Any], arguments: Dict[str, Any], run: Dict[str, Any]) -> bool:
        """Whether the lease is this run's, or that of a run that has ended."""
        return lease.get("id") in (run["id"], arguments.get("take_over")) or _lease.gone(lease, run)

    def _host(self, here: Dict[str, Any]) -> str:
        return str(self._task.delegate_to or here["inventory_hostname"])

    def _leased(self, arguments: Dict[str, Any], run: Dict[str, Any], here: Dict[str, Any]) -> Dict[str, Any]:
        host, what = self._host(here), str(arguments.get("what") or "")
        replace = [str(arguments["take_over"])] if arguments.get("take_over") else []
        for dummy in range(OTHERS):
            result = _host.execute(self, "host_record", dict(arguments, replace=replace), here)
            held = result.get("held_by")
            if not held or not _lease.gone(held, run):
                break
            replace.append(str(held.get("id")))
        if held:
            return dict(result, failed=True, msg=_lease.refused(host, held))
        if result.get("failed"):
            return dict(result, msg="%s: %s" % (host, result.get("msg")))
        unfinished = _pending.unfinished(result, host, what) if what in (_pending.COLD_TEST, _pending.PLAY) else ""
        if unfinished:
            _host.execute(self, "host_record", dict(arguments, state="released"), here)
            return dict(result, failed=True, msg=unfinished)
        return dict(result, remark=_lease.taken_over(result["taken_over"]))


def _known(earlier: Any) -> Any:
    return earlier.get("record") if isinstance(earlier, dict) else None
