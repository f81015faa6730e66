# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the playbooks for their variables and for the results of hosts."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils._host_pattern import host_pattern
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import as_list
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import reason


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"as_list": as_list, "host_pattern": host_pattern, "reason": reason}
