# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency
from ansible_collections.pgfleet.cache.plugins.module_utils._remarks import Budget, Facts, Lost, Missing, Reclaim, Wait, remarks
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import outcome_row, segment_row

MB = 1 << 20
BUDGET = Budget(400 * MB, None, 0, 10 * MB, 90 * MB, 20 * MB)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"wait": Wait('waiting for the restore of "/data" (PID 5)', 42.2)}, ['Job 7 waited for the restore of "/data" (PID 5), for 42 s.']),
        (
            {"gone": 12, "gone_percent": 1.5, "lost": [Lost("table a", 10, True), Lost("table b", 2, False)]},
            ["96.0 kB of the snapshot is gone (1.5 %): table a (80.0 kB, rewritten), table b (16.0 kB, dropped or truncated)."],
        ),
        ({"gone": 1, "lost": []}, ["8.00 kB of the snapshot is gone (less than 0.01 %): 8.00 kB of others."]),
        (
            {"missing": Missing(over_budget=128), "budget_bytes": 8 * MB, "budget_option": 8 * MB, "budget": BUDGET},
            ["1.00 MB did not fit the memory budget of 8.00 MB, which the option budget sets."],
        ),
        (
            {"missing": Missing(over_budget=128), "budget_bytes": 280 * MB, "budget_option": 900 * MB, "budget": BUDGET},
            ["1.00 MB did not fit the memory budget of 280 MB: the limit is the host's memory, of which 400 MB is available; 90.0 MB in active use,"
             " 20.0 MB restored for other clusters, 10.0 MB kept in reserve."],
        ),
        (
            {"missing": Missing(over_budget=128), "budget_bytes": 96 * MB, "budget": Budget(400 * MB, 100 * MB, 0, 4 * MB, 0, 20 * MB)},
            ["1.00 MB did not fit the memory budget of 96.0 MB: the limit is the server's memory cgroup, which has room for 100 MB; 4.00 MB kept in"
             " reserve."],
        ),
        (
            {"missing": Missing(not_reached=128), "state": "canceled", "message": "the time limit of 60 s was reached"},
            ["1.00 MB was not loaded before job 7 ended (the time limit of 60 s was reached)."],
        ),
        (
            {"missing": Missing(not_reached=128), "state": "canceled", "message": "the time limit of 60 s was reached", "limit": "the deadline 06:00Z"},
            ["1.00 MB was not loaded before job 7 ended (the time limit of 60 s was reached, by the deadline 06:00Z)."],
        ),
        ({"missing": Missing(not_reached=128), "state": "interrupted"}, ["1.00 MB was not loaded before job 7 ended (interrupted)."]),
        ({"state": "failed", "message": "disk on fire."}, ["Job 7, failed: disk on fire."]),
        ({"missing": Missing(failed=128), "failures": {"Input/output error": 130}}, ["1.02 MB failed: Input/output error."]),
        ({"missing": Missing(reclaimed=128), "elapsed": 44.0}, ["1.00 MB was in memory during the restore, and the kernel has reclaimed it within 44 s."]),
        ({"missing": Missing(not_planned=128)}, ["1.00 MB was not part of job 7."]),
        (
            {"reclaim": Reclaim(True), "gone": 1, "gone_percent": 100.0, "lost": [Lost("table a", 1, False)]},
            ["8.00 kB of the snapshot is gone (100 %): table a (8.00 kB, dropped or truncated)."],
        ),
        (
            {"reclaim": Reclaim(True)},
            ["DAMON runs on this host: the kernel reclaims pages that are not read for a while, although memory is free. Restore shortly before they"
                " are needed, or hold them (hold_until)."],
        ),
        (
            {"reclaim": Reclaim(True), "state": "holding"},
            ["DAMON runs on this host: the kernel reclaims pages that are not read for a while, although memory is free."],
        ),
        (
            {"reclaim": Reclaim(False, "/sys/fs/cgroup/pg", 512 * MB)},
            ["The server's memory is at memory.high of 512 MB (/sys/fs/cgroup/pg): the kernel reclaims pages that are not read for a while. Raise it,"
                " or restore shortly before they are needed, or hold them (hold_until)."],
        ),
    ],
)
def test_words(facts, expected):
    assert remarks(Facts(job=7, **facts)) == expected


def test_no_more_than_a_few_names():
    lost = [Lost("table %d" % number, 10, False) for number in range(20)]
    [text] = remarks(Facts(gone=500, gone_percent=9.0, lost=lost))
    assert text.count("table") == 5 and text.endswith(", 3.52 MB of others.")


def test_what_is_missing_has_a_reason_always():
    """For every outcome of a segment, the parts add up to the missing blocks, and each has a remark."""
    reasons = (None, "over the memory budget", _residency.ENDED, _residency.RECLAIMED, "Input/output error", "the file was truncated")
    for resident, over, failed, reason, planned in itertools.product((0, 60, 99, 100), (0, 30, 200), (0, 20, 300), reasons, (True, False)):
        outcome = {(_residency.place_of(segment_row(1, 100)), "main", 0): outcome_row(16001, over_budget=over, failed=failed, reason=reason)}
        measured = _residency.summarize([segment_row(1, 100, resident=resident)], outcome if planned else {})
        assert measured.missing.total == measured.total.missing == 100 - resident
        said = remarks(Facts(missing=measured.missing, job=7, failures=measured.failed))
        assert said or resident == 100


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({}, Missing(reclaimed=40)),
        ({"over_budget": 30}, Missing(over_budget=30, reclaimed=10)),
        ({"over_budget": 30, "reason": _residency.ENDED}, Missing(over_budget=30, not_reached=10)),
        ({"failed": 15, "reason": "Input/output error"}, Missing(failed=15, reclaimed=25)),
        ({"failed": 15, "reason": _residency.RECLAIMED}, Missing(reclaimed=40)),
    ],
)
def test_reasons_of_a_segment(outcome, expected):
    outcomes = {(_residency.place_of(segment_row(1, 100)), "main", 0): outcome_row(16001, **outcome)}
    assert _residency.summarize([segment_row(1, 100, resident=60)], outcomes).missing == expected
