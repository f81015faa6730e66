# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _deadline
from ansible_collections.pgfleet.cache.plugins.module_utils._deadline import Speed
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

MEGABYTE = 1024**2


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21 06:00+01:00",
        "2026-11-21T06:00:00+0100",
        "2026-11-21 06:00:00.5 +01",
        " 2026-11-21 05:00Z ",
        "2026-11-21 05:00 UTC",
        "2026-11-21 00:30 -04:30",
    ],
)
def test_offsets(text):
    assert _deadline.parse(text) == datetime(2026, 11, 21, 5, 0, tzinfo=timezone.utc)


def test_no_zone():
    with pytest.raises(ResidencyError, match="deadline is '2026-11-21 06:00': it must be a date and time with a zone"):
        _deadline.parse("2026-11-21 06:00")


def test_names_of_zones():
    pytest.importorskip("zoneinfo")
    assert _deadline.parse("2026-11-21 06:00 Europe/Berlin") == datetime(2026, 11, 21, 5, 0, tzinfo=timezone.utc)
    assert _deadline.parse("2026-07-21 06:00 Europe/Berlin") == datetime(2026, 7, 21, 4, 0, tzinfo=timezone.utc)


def test_seconds_left():
    moment = _deadline.parse("2026-11-21 05:00Z")
    assert _deadline.seconds_left(moment, datetime(2026, 11, 21, 4, 58, 30, tzinfo=timezone.utc)) == 90.0


def test_expected_seconds():
    assert _deadline.expected_seconds(10 * MEGABYTE, Speed(4 * MEGABYTE, "")) == 2.5
    assert _deadline.expected_seconds(10, None) is None
    assert _deadline.expected_seconds(0, None) == 0.0


@pytest.mark.parametrize(
    ("speed", "left", "sentence"),
    [
        (None, None, "How long that takes is unknown: no earlier job has a rate."),
        (None, 60, "Whether the deadline in 1 min 0 s is met is unknown: no earlier job has a rate."),
        (Speed(MEGABYTE, "the rate of job 4"), None, "100 MB take about 1 min 40 s at 1.00 MB/s, the rate of job 4."),
        (
            Speed(MEGABYTE, "the rate of job 4"),
            120,
            "100 MB take about 1 min 40 s at 1.00 MB/s, the rate of job 4: in time for the deadline in 2 min 0 s.",
        ),
        (
            Speed(MEGABYTE, "the rate asked for"),
            60,
            "100 MB take about 1 min 40 s at 1.00 MB/s, the rate asked for: too long for the deadline in 1 min 0 s,"
            " 40.0 MB will be missing.",
        ),
    ],
)
def test_forecast(speed, left, sentence):
    assert _deadline.forecast(100 * MEGABYTE, speed, left) == sentence
