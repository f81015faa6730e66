# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible does because a result says so, whichever module it is of: new hosts, groups, variables and stats."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action.normal import ActionModule as NormalActionModule

_INTERPRETER = "discovered_interpreter_python"  # which Ansible itself has added


def without_orders(result: Dict[str, Any]) -> Dict[str, Any]:
    """No module here gives any; a host, or whoever the module runs as there, could."""
    facts = result.pop("ansible_facts", None)
    for key in ("add_host", "add_group", "ansible_stats"):
        result.pop(key, None)
    if isinstance(facts, dict) and isinstance(facts.get(_INTERPRETER), str):
        result["ansible_facts"] = {_INTERPRETER: facts[_INTERPRETER]}
    return result


class ActionModule(NormalActionModule):
    """Of every module that needs no other."""

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        return without_orders(super().run(tmp, task_vars))
