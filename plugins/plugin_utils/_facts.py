# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether what hosts say of themselves becomes variables.

By default Ansible makes a variable of every fact, and any module's result can bring facts: ``ansible_remote_tmp`` and ``ansible_su_exe`` among
them, which go into the commands that the next task runs as another user, or, of a delegated task, on another host. The setting
inject_facts_as_vars ends that, for all of ansible-playbook. It is read in ansible-playbook's own process, where the hosts of a play are evaluated
before the play begins.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Dict, Tuple

from ansible import constants
from ansible.vars import manager

# up to ansible-core 2.19, and since
_PLACES: Tuple[Tuple[ModuleType, str], ...] = ((constants, "INJECT_FACTS_AS_VARS"), (manager, "_INJECT_FACTS"))
_before: Dict[str, Any] = {}


def facts_apart(hosts: Any) -> Any:
    """From the play on that has these hosts, facts are in ansible_facts only."""
    for module, name in _PLACES:
        if hasattr(module, name):
            _before.setdefault(name, getattr(module, name))
            setattr(module, name, False)
    return hosts


def facts_as_before(hosts: Any) -> Any:
    """From the play on that has these hosts, as the settings have it: what follows is somebody else's."""
    for module, name in _PLACES:
        if name in _before:
            setattr(module, name, _before.pop(name))
    return hosts


def are_variables() -> bool:
    """In an ansible-core that has the setting elsewhere it could not be changed, and is what it was set to."""
    found = [bool(getattr(module, name)) for module, name in _PLACES if hasattr(module, name)]
    return any(found) if found else bool(constants.config.get_config_value("INJECT_FACTS_AS_VARS"))
