# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the controller alone: the variables of a host are checked before it is reached."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _variables


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        here = task_vars or {}
        found = _variables.faults(_variables.as_list(self._task.args["roles"]), list(map(str, here)), lambda name: self._templar.template(here[name]))
        if "pgfleet_role" in here:  # in a playbook of this collection
            host = here["hostvars"][here["inventory_hostname"]]
            found = _variables.unread(host, load_extra_vars(self._loader), context.CLIARGS.get("become_user")) + found
        if found:
            result.update(failed=True, msg=" ".join([*found, "Nothing was changed."]))
        result["changed"] = False
        return result
