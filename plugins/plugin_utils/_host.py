# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that an action plugin runs on its host. A host that is lost fails: Ansible would take it out of the play, without a rescue."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase


def execute(action: ActionBase, module: str, arguments: Mapping[str, Any], task_vars: Dict[str, Any]) -> Dict[str, Any]:
    """The result of the module; of a host on which it cannot be run, a failure that says so."""
    shell = action._connection._shell
    try:
        found: Dict[str, Any] = action._execute_module(module_name="pgfleet.cache." + module, module_args=dict(arguments), task_vars=task_vars)
        action._remove_tmp_path(shell.tmpdir)
    except AnsibleError as error:
        shell.tmpdir = None  # Ansible would remove it after the task, and fail again
        why = "unreachable: " if isinstance(error, AnsibleConnectionFailure) else ""
        return {"failed": True, "changed": False, "msg": why + " ".join(str(error).split())}
    return found
