# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils._cold_test import STATES, established, relations, steps, summary


def test_every_query_in_every_state_as_often():
    found = steps(["a", "b"], list(STATES), 3)
    assert Counter((one["query"], one["state"]) for one in found) == {(query, state): 3 for query in "ab" for state in STATES}


def test_no_state_is_always_first_or_behind_the_same_other():
    found = steps(["a"], ["x", "y", "z"], 4)
    assert [one["state"] for one in found] == [*"xyz", *"xzy", *"zxy", *"zyx"]
    assert [one["state"] for one in steps(["a"], ["x"], 2)] == ["x", "x"]


def run(query, state, milliseconds, device, certainty="exact", remarks=()):
    return {
        "query": query, "state": state, "milliseconds": milliseconds, "certainty": certainty, "remarks": list(remarks), "shared_hit": 0,
        "shared_read": 10, "read_bytes": 81920, "device_bytes": device, "page_cache_bytes": 81920 - device, "over_read_bytes": 0,
    }


def test_min_median_max():
    rows = summary([
        run("b", "both_warm", 1.0, 0), run("b", "both_cold", 9.0, 81920), run("b", "both_cold", 7.0, 81920, "upper_bound", ["others"]),
        run("b", "both_cold", 30.0, 40960, "upper_bound", ["others"]), run("a", "both_cold", 2.0, 0),
    ])
    assert [(row["query"], row["label"]) for row in rows] == [("b", "both cold"), ("b", "both warm"), ("a", "both cold")]
    cold = rows[0]
    assert (cold["milliseconds_min"], cold["milliseconds_median"], cold["milliseconds_max"]) == (7.0, 9.0, 30.0)
    assert (cold["runs"], cold["exact"], cold["remarks"], cold["device_bytes"]) == (3, 1, ["others"], 81920)
    assert [row["restored_percent_min"] for row in rows] == [None] * 3


def test_a_restore_that_was_not_complete():
    """The time of its query is that of a partly cold one: the table says so."""
    full, half = (dict(run("a", "restored", 1.0, 0), restored_percent=percent) for percent in (100.0, 86.5))
    [row] = summary([full, half])
    assert (row["restored_percent_min"], row["exact"]) == (86.5, 2)
    assert row["remarks"] == ["the restore before the query ended with 86.5 % of the snapshot resident"]
    assert summary([full])[0]["remarks"] == []


def test_the_tables_of_a_query():
    plan = {"Node Type": "Sort", "Plans": [
        {"Node Type": "Index Scan", "Relation Name": "Odd [1]", "Schema": "public", "Index Name": "i"},
        {"Node Type": "Gather", "Plans": [{"Node Type": "Seq Scan", "Relation Name": "a*", "Schema": "s"}, {"Node Type": "CTE Scan", "CTE Name": "c"}]},
    ]}
    assert relations([{"name": "q", "plan": plan}, {"name": "p", "plan": None}]) == {"q": ["public.Odd [[]1]", "s.a[*]"], "p": []}


def counted(resident, buffers=0, wanted=1000, buffers_wanted=100, **changed):
    return dict({"wanted": wanted, "gone": 0, "resident": resident, "buffers_wanted": buffers_wanted, "buffers_resident": buffers}, **changed)


@pytest.mark.parametrize(("state", "found", "percent"), [
    ("both_cold", counted(0), 100.0),
    ("both_cold", counted(25), 97.5),
    ("buffers_cold", counted(1000), 100.0),
    ("buffers_cold", counted(890), 89.0),
    ("buffers_cold", counted(1000, 30), 70.0),
    ("restored_page_cache", counted(895), 89.5),
    ("restored_page_cache", counted(1000, buffers_wanted=0), 100.0),
    ("restored", counted(1000, 100), 100.0),
    ("restored", counted(1000, 60), 60.0),
    ("restored", counted(990, 60, buffers_wanted=0), 99.0),
    ("both_warm", counted(1000, 0), 100.0),
    ("both_warm", counted(500, 100), 50.0),
    # what is gone cannot be there
    ("both_warm", counted(500, gone=500), 100.0),
])
def test_how_much_of_a_state_is_there(state, found, percent):
    reached = percent >= 99
    assert established(found, state, 1) == {"percent": percent, "tries": 1, "again": not reached}
    assert established(found, state, 3) == {"percent": percent, "tries": 3, "again": False}


@pytest.mark.parametrize("found", [{"skipped": True}, {"failed": True, "msg": "no relation"}, {}, counted(0, wanted=0), counted(0, gone=1000)])
def test_a_state_that_cannot_be_counted(found):
    assert established(found, "restored", 1) == {"percent": None, "tries": 1, "again": False}


def test_a_state_that_was_not_there():
    """Its times are those of another state: the table says so, as of bytes that are not exact."""
    full, less = (dict(run("q", "both_warm", 1.0, 0), state_percent=percent) for percent in (100.0, 89.5))
    [row] = summary([full, less])
    assert (row["state_percent_min"], row["exact"]) == (89.5, 2)
    assert row["remarks"] == ["only 89.5 % of this state was there when the query began"]
    assert summary([full])[0]["remarks"] == []
    assert summary([run("q", "both_warm", 1.0, 0)])[0]["state_percent_min"] is None
