# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module of this name. That a host cannot be reached, or cannot run the module, is an answer too."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _host
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import reason


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        found = _host.execute(self, "restart_info", self._task.args, task_vars or {})
        if found.get("failed") and "answer" not in found:  # it did not come to look
            why = reason(found)
            found = {"changed": False, "msg": why, "answer": {"problem": why, "kept": self._task.args.get("kept") or {}, "lease": None}}
        host, own = str(self._task.delegate_to or ""), str((task_vars or {}).get("inventory_hostname"))
        if "problem" in found.get("answer", {}) and host not in ("", own):
            found["msg"] = "%s does not answer: %s" % (host, found["answer"]["problem"])
        result.update(found)
        return result
