# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _names, _snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Place
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, relation, relation_row, snapshot_row


@pytest.mark.parametrize("name", ["warm", "0", "before-2026.11_20", "a" * 63])
def test_names(name):
    _snapshot.check_name(name, generation_allowed=False)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../x", "a b", "a" * 64, "warm\n", "warm@", "warm@0", "warm@x", "@1"])
def test_bad_names(name):
    with pytest.raises(ResidencyError, match="is no name for a snapshot"):
        _snapshot.check_name(name, generation_allowed=True)


def test_a_generation_cannot_be_chosen_for_a_new_snapshot():
    _snapshot.check_name("warm@3", generation_allowed=True)
    with pytest.raises(ResidencyError, match="give the name as 'warm'"):
        _snapshot.check_name("warm@3", generation_allowed=False)


def test_keep_nothing():
    with pytest.raises(ResidencyError, match="keep is 0"):
        _snapshot.check_options("warm", 0, present=True)


def test_name_means_its_newest_generation():
    session = Session(residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)])
    assert _snapshot.find(session, "warm")["generation"] == 3
    assert _snapshot.find(session, "warm@2")["generation"] == 2


def test_unknown_snapshot_names_those_there_are():
    session = Session(residency_snapshots=[snapshot_row(), snapshot_row("batch", generation=1)])
    with pytest.raises(ResidencyError, match=r"no snapshot 'wram' here; there is warm@3, batch@1\."):
        _snapshot.find(session, "wram")


def test_unusable_snapshot_says_why():
    session = Session(residency_snapshots=[snapshot_row(problem="damaged: checksum")])
    with pytest.raises(ResidencyError, match=r"Snapshot warm@3 cannot be used here: damaged: checksum\."):
        _snapshot.find(session, "warm")


DATABASES = [{"oid": 5, "datname": "postgres_air", "datallowconn": True, "here": True}]


def wanted_row(relfilenumber, wanted, database=5):
    return {"database": database, "tablespace": 1663, "relfilenumber": relfilenumber, "wanted": wanted}


def cached_row(relfilenumber, in_page_cache):
    return dict(
        wanted_row(relfilenumber, 0), what="relation", in_page_cache=in_page_cache, in_shared_buffers=0, in_both=0
    )


def server(snapshots, before, now, names=None):
    return Session(
        **{
            "FROM residency_snapshot(": [snapshot_row()],
            "residency_snapshots()": snapshots,
            "residency_names": [{"names": names}],
            "residency_set_names": [{"residency_set_names": ""}],
            "residency_snapshot_segments": [before, now] if before is not None else now,
            "residency_segments()": [cached_row(row["relfilenumber"], row["wanted"]) for row in now],
            "pg_filenode_relation": [relation_row("public.boarding_pass", 8, oid=80)],
            "pg_database": DATABASES,
        }
    )


def take(session, check_mode=False):
    return _snapshot.take(session, "warm", 2, check_mode, lambda database: session)


def test_take():
    session = server([], None, [wanted_row(8, 400)])
    result = take(session)
    assert result["changed"]
    assert result["snapshot"]["system_identifier"] == "7574833217290718432"
    assert result["snapshot"]["taken_at"] == "2026-11-20T12:00:00+00:00"
    assert result["msg"] == "Saved warm@3: 3.12 MB of 7.81 MB are cached in 4 segments, a file of 300 B."
    assert result["difference"] is None
    assert result["diff"]["after"] == "table public.boarding_pass in postgres_air: 3.12 MB\n"
    assert [(row["relation"], row["wanted"]) for row in result["relations"]] == [("public.boarding_pass", 400)]
    assert "residency_set_names('warm@3'" in result["queries"][1]


def test_take_says_what_is_different():
    old = relation("public.boarding_pass", 7, oid=80)
    names = _names.dump(Names({old.place: old}))
    session = server([snapshot_row(generation=2)], [wanted_row(7, 100), wanted_row(9, 50)], [wanted_row(8, 400)], names)
    difference = take(session)["difference"]
    assert (difference["snapshot"], difference["wanted_before"], difference["wanted"]) == ("warm@2", 150, 400)
    rows = [(row["relation"], row["relfilenumber"], row["wanted_before"], row["wanted"]) for row in difference["relations"]]
    assert rows == [("public.boarding_pass", 8, 100, 400), (None, 9, 50, 0)]


def test_half_of_the_previous_one_is_doubted():
    result = take(server([snapshot_row()], [wanted_row(7, 801)], [wanted_row(7, 400)]))
    assert result["warnings"] == ["warm@3 had 6.26 MB, more than twice as much: is this still the working set?"]
    assert take(server([snapshot_row()], [wanted_row(7, 800)], [wanted_row(7, 400)]))["warnings"] == []


def test_damaged_generation_is_not_compared_with():
    session = server([snapshot_row(generation=2, problem="damaged")], None, [wanted_row(8, 400)])
    assert take(session)["difference"] is None


def test_take_in_check_mode():
    session = server([], None, [wanted_row(8, 400)])
    result = take(session, check_mode=True)
    assert result["changed"] and result["snapshot"] is None
    assert result["msg"] == "Would save 3.12 MB that are cached now as 'warm'."
    assert len(result["queries"]) == 2
    assert not [sql for sql, dummy in session.asked if "residency_snapshot(" in sql or "set_names" in sql]
    assert result["relations"][0]["wanted"] == 400


def test_names_of_both_generations_help_each_other():
    known = relation("public.passenger", 7, oid=70)
    rows = _snapshot.compare({known.place: 10}, Names(), {known.place: 30}, Names({known.place: known}))
    assert [(row["relation"], row["wanted_before"], row["wanted"]) for row in rows] == [("public.passenger", 10, 30)]


def test_lists_are_bounded():
    rows = _snapshot.compare({}, Names(), {Place(5, 1663, number): number for number in range(1000)}, Names())
    assert [row["wanted"] for row in _snapshot.largest(rows, "wanted")] == list(range(999, 979, -1))


@pytest.mark.parametrize(("name", "removed"), [("warm", 2), ("warm@2", 1), ("cold", 0)])
def test_drop_in_check_mode_counts(name, removed):
    session = Session(residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)])
    result = _snapshot.drop(session, name, keep=0, check_mode=True)
    assert result["changed"] is (removed > 0)
    assert len(result["queries"]) == removed
    if removed:
        assert "Would remove %d generation" % removed in result["msg"]


def test_drop_shows_what_stays():
    session = Session(residency_drop_snapshot=[{"removed": 1}], residency_snapshots=[snapshot_row(generation=2), snapshot_row()])
    result = _snapshot.drop(session, "warm@2", keep=0, check_mode=False)
    assert (result["diff"]["before"], result["diff"]["after"]) == ("warm@2\nwarm@3\n", "warm@3\n")


@pytest.mark.parametrize(
    ("name", "keep", "stay"),
    [
        ("night-*", 0, ["weekly@1"]),
        ("night-*", 1, ["weekly@1", "night-b@1"]),
        ("night-?", 2, ["weekly@1", "night-broken@1", "night-a@2", "night-b@1"]),
        ("night-*", 9, ["weekly@1", "night-broken@1", "night-a@1", "night-a@2", "night-b@1"]),
        ("night-a", 1, ["weekly@1", "night-broken@1", "night-a@2", "night-b@1"]),
    ],
)
def test_the_newest_of_a_pattern_stay(name, keep, stay):
    """Whatever their names; what is damaged has no date and is nothing to keep."""
    day = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    snapshots = [
        snapshot_row("weekly", generation=1, taken_at=day),
        snapshot_row("night-broken", generation=1, taken_at=None, problem="it is damaged: checksum"),
        snapshot_row("night-a", generation=1, taken_at=day),
        snapshot_row("night-a", generation=2, taken_at=day + datetime.timedelta(1)),
        snapshot_row("night-b", generation=1, taken_at=day + datetime.timedelta(2)),
    ]
    result = _snapshot.drop(Session(residency_snapshots=snapshots), name, keep, check_mode=True)
    assert result["diff"]["after"].split() == stay
    assert len(result["queries"]) == 5 - len(stay)


def test_what_is_saved_meanwhile_stays():
    session = Session(residency_drop_snapshot=[{"removed": 1}], residency_snapshots=[snapshot_row(generation=2), snapshot_row()])
    _snapshot.drop(session, "warm", keep=0, check_mode=False)
    assert [arguments for sql, arguments in session.asked if "residency_drop_snapshot" in sql] == [("warm@2",), ("warm@3",)]


def test_what_somebody_else_has_removed_is_no_change():
    session = Session(residency_drop_snapshot=[{"removed": 0}], residency_snapshots=[snapshot_row()])
    assert _snapshot.drop(session, "warm", keep=0, check_mode=False)["changed"] is False


def test_every_path_has_the_same_keys():
    keys = set(_snapshot.empty_result()) | {"msg"}
    assert set(_snapshot.drop(Session(residency_snapshots=[]), "warm", 0, False)) == keys
    for check_mode in (False, True):
        assert set(take(server([], None, [wanted_row(8, 400)]), check_mode)) == keys
