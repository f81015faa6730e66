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
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import as_list


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        given, variables = self._task.args, (task_vars or {})["hostvars"]
        hosts, limited, waived = ([str(one) for one in as_list(given.get(name) or [])] for name in ("hosts", "limited", "waived"))
        wrong = _plan.not_shared(limited, variables)
        if wrong:
            result.update(problem="The variables of %s are wrong, or an earlier play has lost the host." % ", ".join(wrong))
        elif given.get("state") == "gathered":
            result.update(_plan.gathered(hosts, limited, variables, waived), problem="")
        else:
            result.update(_plan.planned(hosts, limited, time.time(), variables, waived, self._task.check_mode))
        result["changed"] = False
        return result
