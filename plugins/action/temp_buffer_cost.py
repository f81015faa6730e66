# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the module of this name, with a line per host every 10 % or 30 s while it measures."""

from __future__ import annotations

from typing import Any, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._temp_buffer_cost import TIME_LIMIT
from ansible_collections.pgfleet.cache.plugins.plugin_utils._followed import Followed


class ActionModule(Followed):
    module = "pgfleet.cache.temp_buffer_cost"
    work = "measurement"
    changes = False

    def bound(self) -> Tuple[str, Any]:
        return "time_limit", self._task.args.get("time_limit", TIME_LIMIT)
