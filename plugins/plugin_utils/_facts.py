# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether facts that hosts return become variables.

By default Ansible makes a variable of every fact, and any module's result can bring facts: ``ansible_remote_tmp`` and ``ansible_su_exe`` among
them, which go into the commands that the next task runs as another user, or, of a delegated task, on another host. The setting
inject_facts_as_vars ends that, for all of ansible-playbook. It is read in ansible-playbook's own process, where the hosts of a play are evaluated
before the play begins.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Dict, Tuple

from ansible import constants
from ansible.executor import task_executor
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars import manager

# of ansible-core up to 2.19, of 2.21, and of 2.20, which otherwise reads the settings, and with them the environment, each time
_PLACES: Tuple[Tuple[ModuleType, str], ...] = (
    (constants, "INJECT_FACTS_AS_VARS"), (manager, "_INJECT_FACTS"), (task_executor, "_INJECT_FACTS"),
)
_SETTING, _VARIABLE = "INJECT_FACTS_AS_VARS", "ANSIBLE_INJECT_FACT_VARS"
# of VariableManager: by it a host's facts are kept, also in a cache that outlasts the run
_KEEPS = "set_host_facts"
# what Ansible itself has found out: which Python there is
_FOUND = "discovered_interpreter_"
_before: Dict[Any, Any] = {}


def facts_apart(hosts: Any) -> Any:
    """From the play on that has these hosts, facts are in ansible_facts only, and what hosts say of themselves is not kept: not for what comes after."""
    _before.setdefault(_SETTING, constants.config.get_config_value(_SETTING))
    _before.setdefault(_VARIABLE, os.environ.get(_VARIABLE))
    os.environ[_VARIABLE] = "False"
    for place in _PLACES:
        if hasattr(*place):
            _before.setdefault(place, getattr(*place))
            setattr(*place, False)
    if _KEEPS not in _before:
        _before[_KEEPS] = getattr(manager.VariableManager, _KEEPS)
        setattr(manager.VariableManager, _KEEPS, _keep_little)
    return hosts


def facts_as_before(hosts: Any) -> Any:
    """From the play with these hosts on, facts are as configured again: later plays are the user's."""
    for place in _PLACES:
        if place in _before:
            setattr(*place, _before.pop(place))
    if _KEEPS in _before:
        setattr(manager.VariableManager, _KEEPS, _before.pop(_KEEPS))
    if _VARIABLE in _before:
        del _before[_SETTING]
        value = _before.pop(_VARIABLE)
        os.environ.pop(_VARIABLE)
        if value is not None:
            os.environ[_VARIABLE] = value
    return hosts


def _keep_little(variables: Any, host: Any, facts: Any) -> None:
    found = {name: value for name, value in facts.items() if str(name).startswith(_FOUND)}
    if found:
        _before[_KEEPS](variables, host, found)


def are_variables() -> bool:
    """Tried on a host that there is not, since an ansible-core that is not known here may have the setting elsewhere.

    Where that cannot be tried they are, unless the user's own setting says otherwise.
    """
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=None, parse=False)
    inventory.add_host("trial")
    trial = manager.VariableManager(loader=loader, inventory=inventory)
    trial._fact_cache = {"trial": {"pgfleet_said": True}}  # not the user's, which may be a file
    found = trial.get_vars(host=inventory.get_host("trial"), include_hostvars=False)
    if "pgfleet_said" not in found.get("ansible_facts", {}):
        return bool(_before.get(_SETTING, True))
    return "pgfleet_said" in found
