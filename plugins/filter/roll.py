# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role cache_restart and its playbook decide on the controller, and other roles of the records and leases of hosts."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease, _plan, _roll, _states, _steps

DECISIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        _plan.asked, _plan.not_shared, _plan.plan, _plan.what,
        _lease.mine, _lease.refused, _lease.replaced, _lease.taken, _lease.taken_over,
        _roll.anybody_out, _roll.answers, _roll.behind, _roll.changed_meanwhile, _roll.closed,
        _roll.gathered, _roll.half_done, _roll.in_the_way, _roll.left, _roll.may_go_in, _roll.may_go_out,
        _roll.may_start, _roll.preview, _roll.restarted, _roll.roles_changed, _roll.written,
        _states.not_to_be_measured, _states.note, _states.open_ends, _states.owes, _states.recorded,
        _states.saved_as, _states.saved_before, _states.unfinished, _states.way,
        _steps.cannot_begin, _steps.closing, _steps.end, _steps.entry_point, _steps.gate_fails, _steps.gone_on_with, _steps.not_restarted,
        _steps.paused_beyond, _steps.recorded_as, _steps.replayed, _steps.silent, _steps.taken_out_again, _steps.thin, _steps.waived_remark,
    )
}


def roll(value: Any, decision: str, *arguments: Any, **options: Any) -> Any:
    return DECISIONS[decision](value, *arguments, **options)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"roll": roll}
