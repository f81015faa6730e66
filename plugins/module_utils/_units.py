# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Blocks, percents and durations as people read them."""

from __future__ import annotations

import math

BLOCK_BYTES = 8192  # pg_residency counts in blocks of this size, whatever the kernel's page size is


def human_bytes(count: float) -> str:
    """``0 B``, ``112 kB``, ``1.41 GB``: three digits, and PostgreSQL's units, which are powers of 1024."""
    if count < 1024:
        return "%d B" % count
    value = float(count)
    unit = "B"
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1024
        if value < 999.5:
            break
    return "%.*f %s" % (2 if value < 9.995 else 1 if value < 99.95 else 0, value, unit)


def human_blocks(blocks: int) -> str:
    return human_bytes(blocks * BLOCK_BYTES)


def human_seconds(seconds: float) -> str:
    """``0.8 s``, ``42 s``, ``3 min 20 s``, ``1 h 5 min``."""
    if seconds < 10:
        return "%.1f s" % seconds
    whole = round(seconds)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %d s" % divmod(whole, 60)
    return "%d h %d min" % (whole // 3600, whole % 3600 // 60)


def percent(part: int, whole: int) -> float:
    """Percent with two digits, rounded down: 99.999 is not 100. Nothing of nothing is all of it."""
    if whole <= 0:
        return 100.0
    return math.floor(part * 10000 / whole) / 100


def human_percent(value: float) -> str:
    return "%g %%" % value
