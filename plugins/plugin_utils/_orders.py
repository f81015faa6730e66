# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible does on the order of any module's result: new hosts, groups, variables and stats."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional

from ansible.plugins.action.normal import ActionModule as NormalActionModule
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable_lines
from ansible_collections.pgfleet.cache.plugins.plugin_utils._results import plain

_INTERPRETER = "discovered_interpreter_python"  # which Ansible itself has added
_ORDERS = ("add_host", "add_group", "ansible_stats", "results", "ansible_loop_var", "ansible_index_var")
_SAID = ("warnings", "deprecations", "exception")  # written to the terminal as they are
_DEPTH = 20  # more than any module here returns; Ansible cannot do with some hundreds


def without_orders(result: Dict[str, Any]) -> Dict[str, Any]:
    """No module here gives such orders, but a hostile host or user could. Results of the caller's loop are removed too."""
    facts = result.pop("ansible_facts", None)
    for key in list(result):
        if key in _ORDERS or str(key).startswith("__"):
            del result[key]
        elif not str(key).startswith("_ansible_"):
            result[key] = _shown(result[key]) if key in _SAID else plain(result[key], _DEPTH)
    if isinstance(facts, dict) and isinstance(facts.get(_INTERPRETER), str):
        result["ansible_facts"] = {_INTERPRETER: facts[_INTERPRETER]}
    return result


def _shown(value: Any, depth: int = _DEPTH) -> Any:
    """Of a text, or what ansible-core makes of it from 2.19."""
    if not depth:
        return "..."
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        return {key: _shown(one, depth - 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_shown(one, depth - 1) for one in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{one.name: _shown(getattr(value, one.name), depth - 1) for one in dataclasses.fields(value) if one.init})
    return value


class ActionModule(NormalActionModule):
    """Of every module that needs no other."""

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        return without_orders(super().run(tmp, task_vars))
