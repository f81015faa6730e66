# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _names
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Patterns, Place
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import relation

ODD = relation('"Odd Schema"."Table, ""quoted"".x"', 9)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("public.boarding_pass", "public.boarding_pass"),
        ("boarding_pass", "public.boarding_pass"),
        ("public.*", "public.boarding_pass"),
        ("*_pass", "public.boarding_pass"),
        ("public.boarding_pas[st]", "public.boarding_pass"),
        ('"Odd Schema"."Table, ""quoted"".x"', ODD.name),
        ('Odd Schema.Table, "quoted".x', ODD.name),
        ('Table, "quoted".x', ODD.name),
        ('"Table, ""quoted"".x"', ODD.name),
        ("Odd*", ODD.name),
        ("a.b", '"a.b"."c"'.replace('"c"', '"a.b"')),
    ],
)
def test_patterns_spell_names_with_or_without_quotes(pattern, name):
    assert Patterns("relations", [pattern]).rank(relation(name)) == 0


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("boarding", "public.boarding_pass"),
        ("public", "public.boarding_pass"),
        ("Boarding_pass", "public.boarding_pass"),
        ("odd schema.*", ODD.name),
    ],
)
def test_patterns_fit_whole_names_and_their_case(pattern, name):
    assert Patterns("relations", [pattern]).rank(relation(name)) is None


def test_a_table_means_its_indexes_toast_and_partitions():
    patterns = Patterns("relations", ["flight"])
    assert patterns.rank(relation("public.flight_pkey", kind="index", owner="public.flight", owner_oid=3)) == 0
    assert patterns.rank(relation("pg_toast.pg_toast_3", kind="toast", owner="public.flight", owner_oid=3)) == 0
    assert patterns.rank(relation("public.flight_2026", partition_of=("public.flight_20", "public.flight"))) == 0
    assert patterns.rank(relation("public.flight_2026")) is None


def test_an_index_means_itself():
    assert Patterns("relations", ["flight_pkey"]).rank(relation("public.flight")) is None


def test_the_first_pattern_that_fits_is_the_rank():
    patterns = Patterns("relations", ["public.b*", "*", "public.boarding_pass"])
    assert patterns.rank(relation("public.boarding_pass")) == 0
    assert patterns.rank(relation("public.passenger")) == 1
    assert patterns.unmatched([0, 1]) == ["public.boarding_pass"]


def test_what_has_no_name_fits_everything_only():
    assert Patterns("relations", []).rank(None) == 0
    assert Patterns("relations", ["b*", "*"]).rank(None) == 1
    assert Patterns("relations", ["*.*"]).rank(None) is None
    assert Patterns("databases", ["postgres*"]).rank_text(None) is None


def test_document_survives():
    shared = relation("pg_catalog.pg_authid", 1260, database=None, place=Place(0, 1664, 1260))
    index = relation('public."\u00fcber"', 10, kind="index", owner="public.t", owner_oid=4, pages=7, partition_of=("public.p",))
    names = Names({one.place: one for one in (ODD, shared, index)}, {5: "postgres_air"})
    text = _names.dump(names)
    assert text.isascii() and " " not in text.replace("Odd Schema", "").replace(", ", "")
    loaded = _names.load(text)
    assert loaded is not None
    assert loaded.relations == names.relations
    assert loaded.databases == {5: "postgres_air"}


@pytest.mark.parametrize(
    "text",
    [None, "", "null", "[]", "[1]", "{", "{}", '{"version": 2}', '{"version": 1}', '{"version": 1, "databases": {"5": 3}}',
     '{"version": 1, "databases": {"5": {"name": "a", "relations": [[1, 2]]}}}'],
)
def test_document_of_somebody_else_is_none(text):
    assert _names.load(text) is None


def test_successors():
    old = {
        "full": relation("public.passenger", 1, oid=100),
        "renamed": relation("public.old_name", 2, oid=200),
        "reindexed": relation("public.i", 3, oid=300, kind="index"),
        "toast": relation("pg_toast.pg_toast_400", 4, oid=401, kind="toast", owner="public.doc", owner_oid=400),
        "dropped": relation("public.dropped", 5, oid=500),
        "same": relation("public.same", 6, oid=600),
        "kind": relation("public.was_a_table", 7, oid=700),
    }
    now = [
        relation("public.passenger", 11, oid=100),
        relation("public.new_name", 12, oid=200),
        relation("public.i", 13, oid=310, kind="index"),
        relation("pg_toast.pg_toast_410", 14, oid=411, kind="toast", owner="public.doc", owner_oid=400),
        old["same"],
        relation("public.was_a_table", 17, oid=710, kind="index"),
    ]
    found = _names.match_successors(old.values(), now)
    assert {place.relfilenumber: one.place.relfilenumber for place, one in found.items()} == {1: 11, 2: 12, 3: 13, 4: 14}
