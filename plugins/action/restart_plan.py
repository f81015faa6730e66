# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans a rolling restart on the controller alone, from what the hosts have answered."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan

# Of the variables of _plan.Options
_KINDS = {
    "only": "list", "primary": "str", "candidate": "str", "switchover_tasks": "str", "serial": "list", "min_standbys": "int",
    "commits_may_wait": "bool", "abort": "bool", "resume": "bool", "max_age": "int",
}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        variables = (task_vars or {})["hostvars"]
        hosts, waived = ([str(one) for one in self._task.args.get(name) or []] for name in ("hosts", "waived"))
        if self._task.args.get("state") == "gathered" or any(variables[host].get("pgfleet_failure") for host in hosts):
            result.update(_plan.gathered(hosts, variables, waived))  # nothing is planned without the answers of all hosts
        else:
            dummy, given = self.validate_argument_spec(
                {"hosts": {"type": "list"}, "waived": {"type": "list"}, "state": {}, **{name: {"type": kind} for name, kind in _KINDS.items()}})
            options = _plan.Options(**{name: given[name] for name in _KINDS if given[name] is not None})
            result.update(_plan.planned(hosts, time.time(), variables, options, waived, self._task.check_mode))
        result["changed"] = False
        return result
