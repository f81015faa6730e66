# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters for text that comes from hosts, before it is shown or names a file."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import file_name, printable


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"printable": printable, "file_name": file_name}
