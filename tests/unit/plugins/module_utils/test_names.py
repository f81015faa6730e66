# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _names
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Patterns, Place
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, database_row, relation, relation_row

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


ROWS = [
    relation_row("public.passenger", 16002, pages=7),
    relation_row("public.p1_pkey", 16003, kind="index", owner_oid=16004, owner="public.p1", partition_of=["public.p"]),
    relation_row("pg_catalog.pg_authid", 1260, database=0, tablespace=1664),
    relation_row("public.elsewhere", 16002, database=6),
    database_row(5, "postgres_air"),
    database_row(6, "Odd DB"),
    database_row(7, "reporting", "the database does not accept connections."),
    database_row(4, "template0", "the database does not accept connections"),
]


def test_names_of_a_snapshot():
    names = _names.of_snapshot(Session(residency_snapshot_names=ROWS), "warm@3")
    assert names.databases == {5: "postgres_air", 6: "Odd DB", 7: "reporting", 4: "template0"}
    assert {(place, one.database, one.name) for place, one in names.relations.items()} == {
        (Place(5, 1663, 16002), "postgres_air", "public.passenger"),
        (Place(5, 1663, 16003), "postgres_air", "public.p1_pkey"),
        (Place(0, 1664, 1260), None, "pg_catalog.pg_authid"),
        (Place(6, 1663, 16002), "Odd DB", "public.elsewhere"),
    }
    index = names.relations[Place(5, 1663, 16003)]
    assert (index.kind, index.owner, index.owner_oid, index.partition_of) == ("index", "public.p1", 16004, ("public.p",))
    assert names.relations[Place(5, 1663, 16002)].pages == 7


def test_a_snapshot_without_names_has_none():
    """Unlike a snapshot with names of databases that allow no connection."""
    assert _names.of_snapshot(Session(residency_snapshot_names=[]), "warm@3") is None
    names = _names.of_snapshot(Session(residency_snapshot_names=[database_row(7, "reporting", "closed")]), "warm@3")
    assert names.relations == {} and names.unnamed == {"reporting": "closed"}


def test_template0_is_no_surprise():
    names = _names.of_snapshot(Session(residency_snapshot_names=ROWS), "warm@3")
    assert _names.unnamed_warnings(names) == [
        "The relations of these databases are not named: reporting (the database does not accept connections)."
    ]
    assert _names.unnamed_warnings(Names()) == []


def test_a_database_without_a_name():
    names = _names.collect([database_row(99, "", "its worker failed"), relation_row("public.a", 1, database=99)])
    assert names.databases == {} and names.unnamed == {"OID 99": "its worker failed"}
    assert names.relations[Place(99, 1663, 1)].database is None


def test_long_lists_of_databases_are_cut():
    names = Names(unnamed={"d%d" % number: "closed" for number in range(9)})
    assert _names.say_unnamed(names) == "d0 (closed), d1 (closed), d2 (closed), d3 (closed), d4 (closed) and 4 more"


def test_only_the_databases_of_the_places_are_asked():
    session = Session(residency_current_names=ROWS)
    _names.at_places([Place(6, 1663, 2), Place(0, 1664, 1), Place(6, 1663, 2), Place(6, 1663, 3)], session)
    [(dummy, params)] = session.asked
    assert params == ([0, 6], [0, 6, 6], [1664, 1663, 1663], [1, 2, 3])


def test_of_nothing_nothing_is_asked():
    assert _names.at_places([], Session()) == Names()


@pytest.mark.parametrize(("patterns", "asked"), [([], ()), (["postgres*"], ([5],)), (["*"], ([5, 6, 0],)), (['"Odd DB"'], ([6],))])
def test_databases_by_pattern(patterns, asked):
    known = [{"oid": 5, "datname": "postgres_air"}, {"oid": 6, "datname": "Odd DB"}]
    session = Session(residency_current_names=ROWS, pg_database=known)
    assert len(_names.everything(session, Patterns("databases", patterns)).relations) == 4
    assert session.asked[-1][1] == asked


def test_no_such_database():
    session = Session(pg_database=[{"oid": 5, "datname": "postgres_air"}])
    assert _names.everything(session, Patterns("databases", ["x*"])) == Names()


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


def test_a_name_as_a_result_shows_it():
    """The escaped form that a result shows matches the name, too."""
    odd = relation('public."bidi\u202egpj"')
    for pattern in ('public."bidi\u202egpj"', 'public."bidi\\u202egpj"', "bidi\\u202egpj", "bidi*"):
        assert Patterns("relations", [pattern]).rank(odd) == 0, pattern
    assert Patterns("databases", ["evil\\x9b31m"]).rank_database("evil\x9b31m") == 0
    assert Patterns("databases", ["evil\\x9b31m"]).rank_database("evil31m") is None
