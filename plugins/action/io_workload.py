# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the module of this name, with a line per host every 10 % or 30 s while it loads or runs."""

from __future__ import annotations

from typing import Any, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._io_workload import LOAD_TIMEOUT, RUN_TIME
from ansible_collections.pgfleet.cache.plugins.plugin_utils._followed import Followed

BOUNDS = {"present": ("load_timeout", LOAD_TIMEOUT), "run": ("run_time", RUN_TIME)}


class ActionModule(Followed):
    module = "pgfleet.cache.io_workload"
    work = "load"

    def bound(self) -> Tuple[str, Any]:
        option, default = BOUNDS[str(self._task.args.get("state", "present"))]
        return option, self._task.args.get(option, default)
