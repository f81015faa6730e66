# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role cache_temp_buffer_cost."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Callable, Dict


def _late(module: str, name: str) -> Callable[..., Any]:
    """Ansible loads all filters of a collection for any of them, and numpy is for these alone."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module("ansible_collections.pgfleet.cache.plugins.plugin_utils." + module), name)(*arguments, **named)

    return call


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {
            "flush_cost": _late("_flush_cost", "of_host"), "flush_cost_missing": _late("_flush_cost", "missing"),
            "flush_cost_table": _late("_flush_cost_report", "table"),
        }
