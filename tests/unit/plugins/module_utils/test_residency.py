# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.module_utils import _residency
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._residency import Amount, Place, RelationName
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, segment_row


def test_gone_blocks_do_not_count_against_residency():
    amount = Amount(wanted=100, resident=45, gone=50)
    assert amount.residency == 90.0
    assert amount.missing == 5
    assert amount.gone_percent == 50.0


def test_everything_gone_is_not_cold():
    amount = Amount(wanted=100, gone=100)
    assert amount.residency == 100.0
    assert amount.gone_percent == 100.0


def test_empty_snapshot():
    total = _residency.summarize([], {}).total
    assert (total.residency, total.gone_percent, total.missing) == (100.0, 0.0, 0)


def test_segments_add_up_to_relations():
    rows = [
        segment_row(1, 100, resident=100, relfilenumber=16400, segment=0),
        segment_row(2, 50, resident=10, relfilenumber=16400, segment=1),
        segment_row(3, 5, relfilenumber=16500),
    ]
    measured = _residency.summarize(rows, {2: {"over_budget": 40, "reason": "over the memory budget"}})
    assert measured.relations[0] == (Place(5, 1663, 16400), Amount(150, 110, 0, 40))
    assert [one.segment_no for one in measured.segments] == [2, 3, 1]
    assert measured.segments[0].reason == "over the memory budget"
    assert measured.total == Amount(155, 110, 0, 40)


def test_coldest_is_what_lacks_most_blocks_not_most_percent():
    rows = [segment_row(1, 2), segment_row(2, 1000, resident=900), segment_row(3, 500, resident=500)]
    assert [one.segment_no for one in _residency.summarize(rows, {}).segments] == [2, 1, 3]


def test_same_relfilenumber_in_two_tablespaces_is_two_relations():
    rows = [segment_row(1, 10, relfilenumber=7), segment_row(2, 10, relfilenumber=7, tablespace=16999)]
    assert len(_residency.summarize(rows, {}).relations) == 2


def test_result_is_bounded():
    rows = [segment_row(number, 10) for number in range(1000)]
    described = _residency.describe(_residency.summarize(rows, {}), {})
    assert len(described["relations"]) == len(described["segments"]) == _residency.LISTED


DATABASES = [
    {"oid": 5, "datname": "postgres", "datallowconn": True, "here": True},
    {"oid": 6, "datname": "air", "datallowconn": True, "here": False},
    {"oid": 4, "datname": "template0", "datallowconn": False, "here": False},
]


def name_row(relation, relfilenumber, relkind="r", toast_index=False, belongs_to=None):
    return {
        "tablespace": 1663,
        "relfilenumber": relfilenumber,
        "relation": relation,
        "relkind": relkind,
        "toast_index": toast_index,
        "belongs_to": belongs_to,
    }


def test_names_come_from_each_database():
    here = Session(pg_database=DATABASES, pg_filenode_relation=[name_row("public.a", 1)])
    there = Session(pg_filenode_relation=[name_row("pg_toast.i", 2, "i", True, "public.b")])
    there.close = lambda: None
    asked = []

    def connect_to(database):
        asked.append(database)
        return there

    places = [Place(5, 1663, 1), Place(6, 1663, 2), Place(4, 1663, 3), Place(99, 1663, 4)]
    names = _residency.name_places(places, here, connect_to)
    assert asked == ["air"]
    assert names[places[0]] == RelationName("postgres", "public.a", "table", None)
    assert names[places[1]] == RelationName("air", "pg_toast.i", "toast index", "public.b")
    assert names[places[2]] == RelationName("template0", None, None, None)
    assert names[places[3]] == RelationName(None, None, None, None)


def test_database_that_refuses_stays_unnamed():
    def refuse(database):
        raise ResidencyError("no pg_hba.conf entry")

    place = Place(6, 1663, 2)
    assert _residency.name_places([place], Session(pg_database=DATABASES), refuse) == {
        place: RelationName("air", None, None, None)
    }
