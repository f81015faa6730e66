# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Blocks, percents and durations as people read them."""

from __future__ import annotations

import math
import re

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

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


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp]?)i?b?(?:/s)?", re.IGNORECASE)
LARGEST = 2**62  # bytes; a sum of two still fits 64 bits


def parse_bytes(option: str, text: str) -> int:
    """``200MB``, ``200mb``, ``1.5 GiB``, ``10MB/s``: the units are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ResidencyError("%s is '%s': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB." % (option, text))
    size = int(float(found.group(1)) * 1024 ** " kmgtp".index(found.group(2).lower() or " "))
    if size == 0:
        raise ResidencyError("%s is %s: it must be more than 0." % (option, text.strip()))
    if size > LARGEST:
        raise ResidencyError("%s is %s: it must be at most 4096 PB." % (option, text.strip()))
    return size


def human_blocks(blocks: int) -> str:
    return human_bytes(blocks * BLOCK_BYTES)


def human_seconds(seconds: float) -> str:
    """``6 ms``, ``0.8 s``, ``42 s``, ``3 min 20 s``, ``1 h 5 min``."""
    if 0 < seconds < 0.05:
        return "%d ms" % max(1, round(seconds * 1000))
    if seconds < 10:
        return "%.1f s" % seconds
    whole = round(seconds)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %d s" % divmod(whole, 60)
    return "%d h %d min" % (whole // 3600, whole % 3600 // 60)


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|min|h|d|w|)", re.IGNORECASE)
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_DURATION = 100 * 365 * 86400  # seconds


def parse_seconds(option: str, text: str) -> float:
    """``36h``, ``90 min``, ``1.5d``; a plain number is of seconds."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ResidencyError("%s is '%s': it must be a duration such as 36h; the units are s, min, h, d and w." % (option, text))
    seconds = float(found.group(1)) * _UNIT_SECONDS[found.group(2).lower()]
    if not 0 < seconds <= LONGEST_DURATION:
        raise ResidencyError("%s is %s: it must be more than 0 and at most 100 years." % (option, text.strip()))
    return seconds


def human_age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``26 h``, ``9 days``: rounded down, since an age need not be exact."""
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < until:
            return "%d %s" % (seconds // size, unit)
    return "%d days" % (seconds // 86400)


def percent(part: int, whole: int) -> float:
    """Percent with two digits, rounded down: 99.999 is not 100. Nothing of nothing is all of it."""
    if whole <= 0:
        return 100.0
    return math.floor(part * 10000 / whole) / 100


def human_percent(value: float) -> str:
    return "%g %%" % value
