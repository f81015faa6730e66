# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.module_utils import _selection
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Patterns, Place
from ansible_collections.pgfleet.cache.plugins.module_utils._selection import Selection, Wish
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import relation, segment_row


def wish(relations=(), databases=(), order="listed"):
    return Wish(
        Patterns("relations", relations), Patterns("databases", databases), Patterns("fallback_relations", []), order, False
    )


NAMES = Names(
    {one.place: one for one in (relation("public.boarding_pass", 16001), relation("public.passenger", 16002))},
    {5: "postgres_air", 6: "reporting"},
)


def numbers(rows):
    return [row["segment_no"] for row in rows]


def test_listed_order_then_heat():
    rows = [
        segment_row(1, 10, blocks=100),
        segment_row(2, 10, blocks=100),
        segment_row(3, 90, blocks=100, relfilenumber=16002, segment=1),
    ]
    chosen, used = _selection.choose_rows(rows, NAMES, wish(["passenger", "*"]))
    assert numbers(chosen) == [3, 2, 1]
    assert used == {(0, 0), (1, 0)}
    chosen, used = _selection.choose_rows(rows, NAMES, wish(["boarding_pass", "passenger"], order="hottest"))
    assert numbers(chosen) == [3, 1, 2]


def test_heat_is_the_servers():
    """The counts, from which Python could compute a heat of its own, do not matter."""
    rows = [segment_row(1, 90, blocks=100, heat=0.2), segment_row(2, 10, blocks=100, heat=1.7), segment_row(3, 50, heat=0.9)]
    assert numbers(_selection.choose_rows(rows, NAMES, wish(["*"]))[0]) == [2, 3, 1]
    expected = _selection.expect(Selection(rows=rows), 40)
    assert [expected[Place(5, 1663, 16000 + number)] for number in (1, 2, 3)] == [0, 10, 30]


def test_databases():
    rows = [segment_row(1, 10), segment_row(2, 10, database=6), segment_row(3, 10, database=0), segment_row(4, 10, database=99)]
    assert numbers(_selection.choose_rows(rows, NAMES, wish(databases=["rep*"]))[0]) == [2]
    assert numbers(_selection.choose_rows(rows, NAMES, wish(databases=["rep*", "*"]))[0]) == [2, 1, 3, 4]
    assert numbers(_selection.choose_rows(rows, NAMES, wish(["passenger"], ["rep*"]))[0]) == []


def test_mostly_cached_by_the_whole_relation():
    table = relation("public.boarding_pass", 16001, pages=300000)
    rows = [segment_row(1, 131072), segment_row(1, 5, fork="vm")]
    # two more segments were cold, and are not in the snapshot
    assert _selection.mostly_cached(rows, {table.place: table}, [table.place]) == set()
    small = table._replace(pages=0)
    assert _selection.mostly_cached(rows, {table.place: small}, [table.place]) == {table.place}
    third = [segment_row(1, 100000, segment=2, blocks=131072)]
    assert _selection.mostly_cached(third, {table.place: small}, [table.place]) == set()


def test_only_the_main_fork_counts_for_mostly():
    table = relation("public.boarding_pass", 16001)
    assert _selection.mostly_cached([segment_row(1, 5, fork="fsm")], {table.place: table}, [table.place]) == set()


def test_everything_is_left_to_the_extension():
    assert _selection.start_options(Selection(rows=[segment_row(1, 10)])) == {}
    selection = Selection(
        rows=[segment_row(2, 10), segment_row(1, 10), segment_row(None, 5)],
        everything=False,
        whole=[Place(5, 1663, 16000)],
    )
    assert _selection.start_options(selection) == {"segments": [2, 1], "whole": [[1663, 5, 16000]]}


def test_expected_by_relation_within_the_budget():
    rows = [segment_row(1, 100, resident=40, blocks=100), segment_row(2, 100, gone=10, blocks=1000)]
    places = [Place(5, 1663, 16001), Place(5, 1663, 16002)]
    assert _selection.expect(Selection(rows=rows), 100) == {places[0]: 60, places[1]: 40}
    # in the order in which they are to be loaded
    assert _selection.expect(Selection(rows=rows[::-1], everything=False), 100) == {places[1]: 90, places[0]: 10}
