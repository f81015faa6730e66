# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _units
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 kB"),
        (10 * 1024, "10.0 kB"),
        (999 * 1024, "999 kB"),
        (1000 * 1024, "0.98 MB"),
        (1024**3, "1.00 GB"),
        (5000 * 1024**4, "5000 TB"),
    ],
)
def test_human_bytes(count, text):
    assert _units.human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "40 ms"), (0.0001, "1 ms"), (0, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")],
)
def test_human_seconds(seconds, text):
    assert _units.human_seconds(seconds) == text


def test_percent_never_rounds_up_to_the_gate():
    assert _units.percent(99999, 100000) == 99.99
    assert _units.percent(1, 3) == 33.33
    assert _units.percent(3, 3) == 100.0


def test_nothing_of_nothing_is_all_of_it():
    assert _units.percent(0, 0) == 100.0


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("200MB", 200 * 1024**2), ("200mb", 200 * 1024**2), ("1.5 GiB", 1536 * 1024**2), ("10 MB/s", 10 * 1024**2), ("8k", 8192)],
)
def test_sizes(text, size):
    assert _units.parse_bytes("rate", text) == size


@pytest.mark.parametrize("text", ["", "lots", "-5MB", "MB", "1,5 MB", "1e9", "0x10"])
def test_no_sizes(text):
    with pytest.raises(ResidencyError, match=r"^rate is '.*': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB.$"):
        _units.parse_bytes("rate", text)


@pytest.mark.parametrize(
    ("text", "message"), [("0", "rate is 0: it must be more than 0."), ("99999PB", "rate is 99999PB: it must be at most 4096 PB.")]
)
def test_sizes_out_of_range(text, message):
    with pytest.raises(ResidencyError) as caught:
        _units.parse_bytes("rate", text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3600", 3600), ("36h", 129600), ("1.5 d", 129600), ("90min", 5400), ("90m", 5400), ("2W", 1209600), ("0.5s", 0.5)],
)
def test_durations(text, seconds):
    assert _units.parse_seconds("max_age", text) == seconds


@pytest.mark.parametrize("text", ["", "long", "-5h", "h", "1,5h", "1e3", "5 years"])
def test_no_durations(text):
    with pytest.raises(ResidencyError, match=r"^max_age is '.*': it must be a duration such as 36h; the units are s, min, h, d and w.$"):
        _units.parse_seconds("max_age", text)


@pytest.mark.parametrize("text", ["0", "0h", "9999999999h"])
def test_durations_out_of_range(text):
    with pytest.raises(ResidencyError, match="^max_age is %s: it must be more than 0 and at most 100 years.$" % text):
        _units.parse_seconds("max_age", text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119.9, "119 s"), (120, "2 min"), (7199, "119 min"), (93600, "26 h"), (172800, "2 days")])
def test_ages(seconds, text):
    assert _units.human_age(seconds) == text
