# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _progress


@pytest.mark.parametrize(
    ("progress", "seconds", "expected"),
    [
        (0.0, 0.0, _progress.FIRST),
        (0.0, 5.0, 5),
        (0.0, 500.0, _progress.LONGEST),
        (5.0, 10.0, 10),  # 5 % took 10 s: so do the next
        (10.0, 10.0, 10),  # on a step: the next one counts
        (99.0, 99.0, 1),
        (50.0, 0.5, 1),
        (1.0, 60.0, _progress.LONGEST),
    ],
)
def test_slice_ends_when_the_next_line_is_due(progress, seconds, expected):
    assert _progress.next_slice(progress, seconds) == expected


@pytest.mark.parametrize(
    ("progress", "now", "spoken", "expected"),
    [
        (9.9, 5.0, (0.0, 0.0), False),
        (10.0, 5.0, (9.9, 0.0), True),
        (35.0, 5.0, (12.0, 0.0), True),
        (19.0, 5.0, (12.0, 0.0), False),
        (12.0, 30.0, (12.0, 0.0), True),
    ],
)
def test_line_every_10_percent_or_30_seconds(progress, now, spoken, expected):
    assert _progress.is_due(progress, now, spoken) is expected
