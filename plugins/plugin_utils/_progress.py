# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the next line about something that takes its time is due."""

from __future__ import annotations

import math
from typing import Tuple

STEP = 10.0  # percent between two lines
LONGEST = 30  # seconds between two lines
FIRST = 2  # seconds of the first slice, before there is a speed to reckon with; as long as there is none, they double


def next_slice(progress: float, seconds: float) -> int:
    """Seconds until the next line is due at the speed so far."""
    if progress <= 0 or seconds <= 0:
        return max(FIRST, min(LONGEST, int(seconds)))
    next_step = (math.floor(progress / STEP) + 1) * STEP
    return max(1, min(LONGEST, math.ceil((next_step - progress) * seconds / progress)))


def is_due(progress: float, now: float, spoken: Tuple[float, float]) -> bool:
    """``spoken`` are percent and time of the last line."""
    percent, moment = spoken
    return progress // STEP > percent // STEP or now - moment >= LONGEST
