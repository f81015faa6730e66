# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.module_utils import _residency
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Place
from ansible_collections.pgfleet.cache.plugins.module_utils._residency import Amount, Change
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import (
    Session,
    database_row,
    outcome_row,
    relation,
    relation_row,
    segment_row,
)


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
    outcome = _residency.job_outcome(
        Session(residency_job_segments=[outcome_row(16400, 1, over_budget=40, loaded=7, reason="over the memory budget")]), 7
    )
    measured = _residency.summarize(rows, outcome)
    assert measured.relations[0] == (Place(5, 1663, 16400), Amount(150, 110, 0, 40, 7))
    assert [one.segment_no for one in measured.segments] == [2, 3, 1]
    assert measured.segments[0].reason == "over the memory budget"
    assert measured.total == Amount(155, 110, 0, 40, 7)


def test_coldest_is_what_lacks_most_blocks_not_most_percent():
    rows = [segment_row(1, 2), segment_row(2, 1000, resident=900), segment_row(3, 500, resident=500)]
    assert [one.segment_no for one in _residency.summarize(rows, {}).segments] == [2, 1, 3]


def test_same_relfilenumber_in_two_tablespaces_is_two_relations():
    rows = [segment_row(1, 10, relfilenumber=7), segment_row(2, 10, relfilenumber=7, tablespace=16999)]
    assert len(_residency.summarize(rows, {}).relations) == 2


def test_result_is_bounded():
    rows = [segment_row(number, 10) for number in range(1000)]
    described = _residency.describe(_residency.summarize(rows, {}), Names())
    assert len(described["relations"]) == len(described["segments"]) == _residency.LISTED


def test_names_are_the_servers():
    session = Session(
        residency_current_names=[
            relation_row("public.a", 1),
            relation_row("pg_toast.i", 2, database=6, kind="toast index", owner_oid=9, owner="public.b"),
            database_row(5, "postgres"),
            database_row(6, "postgres_air"),
            database_row(7, "closed", "the database does not accept connections"),
        ]
    )
    places = [Place(5, 1663, 1), Place(6, 1663, 2), Place(7, 1663, 4), Place(99, 1663, 5)]
    names = _residency.name_places(places, session)
    assert names.relations[places[0]].name == "public.a"
    assert _residency.identity(places[1], names) == {
        "database": "postgres_air", "relation": "pg_toast.i", "kind": "toast index", "belongs_to": "public.b", "database_oid": 6,
        "tablespace": 1663, "relfilenumber": 2,
    }
    assert _residency.label(_residency.identity(places[2], names)) == "relfilenumber 4 in closed"
    assert _residency.identity(places[3], names)["database"] is None


def test_dropped_relation_keeps_the_name_it_had():
    old = relation("public.boarding_pass", 8)
    former = Names({old.place: old}, {99: "dropped"})
    names = _residency.name_places([old.place], Session(residency_current_names=[database_row(5, "postgres")]), former)
    assert _residency.label(_residency.identity(old.place, names)) == "table public.boarding_pass in postgres"
    assert names.databases[99] == "dropped"


def test_labels():
    names = Names({}, {5: "postgres_air"})
    index = relation("public.pk", 8, kind="index", owner="public.passenger")
    names.relations[index.place] = index
    assert _residency.label(_residency.identity(index.place, names)) == "index public.pk of public.passenger in postgres_air"
    assert _residency.label(_residency.identity(Place(0, 1664, 7), names)) == "relfilenumber 7 in all databases"
    assert _residency.label(_residency.identity(Place(9, 1663, 7), names)) == "relfilenumber 7 in database 9"


def test_wanted_whole_is_resident_in_either_cache():
    session = Session(
        residency_shared_buffers=[{"database": 5, "tablespace": 1663, "relfilenumber": 8, "only_in_buffers": 30}],
        residency_segments=[
            segment_row(None, 100, resident=90, relfilenumber=8, blocks=100),
            segment_row(None, 100, resident=10, relfilenumber=8, segment=1, blocks=100),
            segment_row(None, 50, relfilenumber=8, tablespace=16999, blocks=50),
        ],
    )
    rows = _residency.whole_rows(session, [Place(5, 1663, 8)])
    assert [row["resident"] for row in rows] == [100, 30]


def test_diff_shows_what_changes():
    diff = _residency.diff("warm@3", [Change("table a", 128, 0, 128), Change("table b", 1, 1, 1)])
    assert diff == {
        "before_header": "warm@3",
        "after_header": "warm@3",
        "before": "table a: 0 B of 1.00 MB, 0 %\n",
        "after": "table a: 1.00 MB of 1.00 MB, 100 %\n",
    }
