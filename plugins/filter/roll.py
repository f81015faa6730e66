# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role cache_restart and its playbook decide on the controller."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils import _roll

DECISIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        _roll.answers, _roll.behind, _roll.in_the_way, _roll.left, _roll.plan, _roll.preview, _roll.proxies, _roll.restarted, _roll.roles_changed, _roll.what,
    )
}


def roll(value: Any, decision: str, *arguments: Any, **options: Any) -> Any:
    return DECISIONS[decision](value, *arguments, **options)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"roll": roll}
