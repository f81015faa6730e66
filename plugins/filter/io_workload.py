# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the role cache_io_workload."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils._pgio import options
from ansible_collections.pgfleet.cache.plugins.plugin_utils._physical_io import table


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"io_workload_options": options, "io_workload_table": table}
