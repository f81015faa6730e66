# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role cache_restart and its playbook decide on the controller, and other roles of the records of hosts."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _pending, _rolling_restart, _steps

DECISIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        _pending.forgotten, _pending.not_to_be_measured, _pending.recorded, _pending.saved_as, _pending.saved_before,
        _rolling_restart.anybody_out, _rolling_restart.left, _rolling_restart.may_go_in, _rolling_restart.may_go_out, _rolling_restart.may_start,
        _rolling_restart.restarted, _rolling_restart.roles_changed, _states.is_pending,
        _steps.gate_fails, _steps.leaving, _steps.taken_out_again, _steps.thin, _steps.waiting,
    )
}


def rolling_restart(value: Any, decision: str, *arguments: Any, **options: Any) -> Any:
    return DECISIONS[decision](value, *arguments, **options)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"rolling_restart": rolling_restart}
