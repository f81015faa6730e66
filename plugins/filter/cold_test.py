# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role cache_cold_test."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils._cold_test import established, relations, steps, summary
from ansible_collections.pgfleet.cache.plugins.plugin_utils._cold_test_report import locked, owner, table


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {
            "cold_test_steps": steps, "cold_test_relations": relations, "cold_test_established": established, "cold_test_summary": summary,
            "cold_test_owner": owner, "cold_test_locked": locked, "cold_test_table": table,
        }
