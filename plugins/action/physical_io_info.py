# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module of this name, of whose result no more is believed than it documents."""

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.plugin_utils._orders import ActionModule

__all__ = ["ActionModule"]
