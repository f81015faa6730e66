# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Place
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import (
    Session,
    database_row,
    relation,
    relation_row,
    snapshot_row,
)


@pytest.mark.parametrize("name", ["warm", "0", "before-2026.11_20", "a" * 63])
def test_names(name):
    _residency_snapshot.check_name(name, generation_allowed=False)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../x", "a b", "a" * 64, "warm\n", "warm@", "warm@0", "warm@x", "@1"])
def test_bad_names(name):
    with pytest.raises(ResidencyError, match="invalid snapshot name"):
        _residency_snapshot.check_name(name, generation_allowed=True)


THIN = [
    snapshot_row(generation=1, wanted=1000),
    snapshot_row(generation=2, wanted=900, current=True, measure=1000),
    snapshot_row(generation=3, wanted=300, measure=800, thin=True),
    snapshot_row(generation=4, wanted=200, measure=800, thin=True),
]


def test_a_bare_name_means_what_the_server_calls_current():
    for asked, generation in (("warm", 2), ("warm@1", 1), ("warm@4", 4)):
        assert _residency_snapshot.find(Session(residency_snapshots=THIN), asked)["generation"] == generation


@pytest.mark.parametrize(
    ("name", "asked", "warnings"),
    [
        ("warm", None, ["'warm' means warm@2, from 26 h ago: warm@3 and warm@4 are newer and thin (less than half as full)."]),
        ("warm@2", "warm", ["'warm' means warm@2, from 26 h ago: warm@3 and warm@4 are newer and thin (less than half as full)."]),
        ("warm@2", None, []),
        ("warm@3", None, ["warm@3 is thin: it holds 2.34 MB, while the fullest generation before it held 6.25 MB. 'warm' means warm@2, from 26 h ago."]),
    ],
)
def test_thin_generations_are_named(name, asked, warnings):
    assert _residency_snapshot.find(Session(residency_snapshots=THIN), name, asked)["warnings"] == warnings


def test_one_thin_generation():
    assert _residency_snapshot.find(Session(residency_snapshots=THIN[:3]), "warm")["warnings"] == [
        "'warm' means warm@2, from 26 h ago: warm@3 is newer and thin (less than half as full)."
    ]


def wanted_row(relfilenumber, wanted, database=5):
    return {"database": database, "tablespace": 1663, "relfilenumber": relfilenumber, "wanted": wanted}


def cached_row(relfilenumber, in_page_cache):
    return dict(
        wanted_row(relfilenumber, 0), what="relation", blocks=in_page_cache, in_page_cache=in_page_cache, in_shared_buffers=0, in_both=0
    )


NAMES = [database_row(5, "postgres_air"), relation_row("public.boarding_pass", 8, oid=80)]


def server(snapshots, before, now, names=(), after=(), taken=None, exists=None):
    """``snapshots`` before the new one, ``after`` with it."""
    return Session(
        **{
            "FROM residency_snapshot(": [taken or snapshot_row()],
            "residency_snapshots()": [list(snapshots), list(after or snapshots)],
            "residency_snapshot_names": [list(names), NAMES] if before is not None else NAMES,
            "sum(wanted - gone)": [{"blocks": exists}],
            "residency_snapshot_relations": [before, now] if before is not None else now,
            "residency_segments(": [cached_row(row["relfilenumber"], row["wanted"]) for row in now],
            "residency_current_names": NAMES,
            "inet_server_addr": [{"here": None, "pid": 1}],
        }
    )


def take(session, check_mode=False, keep=2, force=False):
    return _residency_snapshot.take(session, "warm", keep, force, check_mode)


def test_take():
    session = server([], None, [wanted_row(8, 400)])
    result = take(session)
    assert result["changed"]
    assert result["snapshot"]["system_identifier"] == "7574833217290718432"
    assert result["snapshot"]["taken_at"] == "2026-11-20T12:00:00+00:00"
    assert (result["snapshot"]["thin"], result["snapshot"]["measure"]) == (False, None)
    assert result["msg"] == "Saved warm@3: 3.12 MB of 7.81 MB are cached in 4 segments, a file of 300 B."
    assert result["difference"] is None
    assert result["diff"]["after"] == "table public.boarding_pass in postgres_air: 3.12 MB\n"
    assert [(row["relation"], row["wanted"]) for row in result["relations"]] == [("public.boarding_pass", 400)]
    assert len(result["queries"]) == 1 and result["queries"][0].endswith("FROM residency_snapshot('warm'::text, 2::int4, False::bool)")


def test_take_says_what_is_different():
    old = [database_row(5, "postgres_air"), relation_row("public.boarding_pass", 7, oid=80)]
    session = server([snapshot_row(generation=2)], [wanted_row(7, 100), wanted_row(9, 50)], [wanted_row(8, 400)], old)
    difference = take(session)["difference"]
    assert (difference["snapshot"], difference["wanted_before"], difference["wanted"]) == ("warm@2", 150, 400)
    rows = [(row["relation"], row["relfilenumber"], row["wanted_before"], row["wanted"]) for row in difference["relations"]]
    assert rows == [("public.boarding_pass", 8, 100, 400), (None, 9, 50, 0)]


def test_it_is_compared_with_what_its_name_meant():
    session = server(THIN, [wanted_row(7, 900)], [wanted_row(8, 400)])
    assert take(session)["difference"]["snapshot"] == "warm@2"


def test_a_thin_one_says_what_it_means():
    thin = snapshot_row(generation=3, wanted=300, measure=800, thin=True)
    session = server(THIN[:2], [wanted_row(7, 900)], [wanted_row(8, 300)], after=[*THIN[:2], thin], taken=thin)
    result = take(session)
    assert result["changed"] and result["snapshot"]["thin"] and result["removed"] == []
    assert result["warnings"] == [
        "warm@3 is thin: it holds 2.34 MB, less than half of the 6.25 MB that still exist of the fullest generation."
        " The name 'warm' still means warm@2. If it is the new working set, set force, which makes it the reference."
    ]


def test_force_is_handed_on():
    session = server([], None, [wanted_row(8, 400)])
    assert take(session, force=True)["warnings"] == []
    assert ("warm", 2, True) in [params for sql, params in session.asked]


def test_removed_is_what_is_gone():
    session = server(THIN, [wanted_row(7, 900)], [wanted_row(8, 400)], after=[THIN[1], THIN[3], snapshot_row(generation=5)])
    result = take(session)
    assert result["removed"] == ["warm@1", "warm@3"]
    assert result["msg"].endswith(" keep is 2: removed warm@1, warm@3.")


def test_databases_without_names_are_a_warning():
    session = server([], None, [wanted_row(8, 400)])
    session.answers["residency_snapshot_names"] = [*NAMES, database_row(6, "reporting", "the database does not accept connections")]
    assert take(session)["warnings"] == [
        "The relations of these databases are not named: reporting (the database does not accept connections)."
    ]


@pytest.mark.parametrize(("cached", "exists", "force", "thin"), [(399, 800, False, True), (400, 800, False, False), (1, 800, True, False)])
def test_check_mode_foresees_a_thin_one(cached, exists, force, thin):
    """By what still exists of the fullest generation, which need not be the newest."""
    session = server(THIN[:2], [wanted_row(7, 900)], [wanted_row(8, cached)], exists=exists)
    result = take(session, check_mode=True, force=force)
    assert bool(result["warnings"]) is thin
    if thin:
        assert result["warnings"] == [
            "The new generation would be thin: it holds 3.12 MB, less than half of the 6.25 MB that still exist of the fullest"
            " generation. The name 'warm' still means warm@2. If it is the new working set, set force, which makes it the reference."
        ]
    asked = [params for sql, params in session.asked if "wanted - gone" in sql]
    assert asked == ([] if force else [("warm@1",), ("warm@2",)])


def test_what_cannot_be_the_measure_is_not_read():
    session = server(THIN, [wanted_row(7, 900)], [wanted_row(8, 390)], exists=950)
    assert take(session, check_mode=True)["warnings"]
    assert [params for sql, params in session.asked if "wanted - gone" in sql] == [("warm@1",)]


def test_a_forced_generation_is_the_measure():
    """Generations before it do not count any more."""
    forced = snapshot_row(generation=5, wanted=100, current=True)
    session = server([*THIN, forced], [wanted_row(7, 100)], [wanted_row(8, 60)], exists=100)
    assert take(session, check_mode=True)["warnings"] == []
    assert [params for sql, params in session.asked if "wanted - gone" in sql] == [("warm@5",)]


DAMAGED = snapshot_row(generation=1, problem="damaged: checksum")


@pytest.mark.parametrize(
    ("generations", "cached", "keep", "removed"),
    [
        (THIN[:2], 900, 3, []),
        (THIN[:2], 900, 2, ["warm@1"]),
        (THIN[:2], 700, 2, []),  # the fullest stays
        (THIN[:2], 1, 1, []),  # a thin one removes no full one
        (THIN, 1, 1, ["warm@3", "warm@4"]),
        (THIN, 1, 2, ["warm@3"]),
        (THIN, 900, 1, ["warm@1", "warm@2", "warm@3"]),
        ([DAMAGED, *THIN[1:2]], 900, 3, []),
        ([DAMAGED, *THIN[1:2]], 900, 2, ["warm@1"]),
        ([DAMAGED, *THIN[1:2]], 900, 1, ["warm@1", "warm@2"]),
    ],
)
def test_check_mode_foresees_what_is_removed(generations, cached, keep, removed):
    exists = 800
    session = server(generations, [wanted_row(7, 900)], [wanted_row(8, cached)], exists=exists)
    assert take(session, check_mode=True, keep=keep)["removed"] == removed


def test_damaged_generation_is_not_compared_with():
    session = server([snapshot_row(generation=2, problem="damaged")], None, [wanted_row(8, 400)])
    assert take(session)["difference"] is None


def test_take_in_check_mode():
    session = server([], None, [wanted_row(8, 400)])
    result = take(session, check_mode=True)
    assert result["changed"] and result["snapshot"] is None
    assert result["msg"] == "Would save 3.12 MB that are cached now as 'warm'."
    assert len(result["queries"]) == 1
    assert not [sql for sql, dummy in session.asked if "residency_snapshot(" in sql]
    assert result["relations"][0]["wanted"] == 400


def test_names_of_both_generations_help_each_other():
    known = relation("public.passenger", 7, oid=70)
    rows = _residency_snapshot.compare({known.place: 10}, Names(), {known.place: 30}, Names({known.place: known}))
    assert [(row["relation"], row["wanted_before"], row["wanted"]) for row in rows] == [("public.passenger", 10, 30)]


def test_lists_are_bounded():
    rows = _residency_snapshot.compare({}, Names(), {Place(5, 1663, number): number for number in range(1000)}, Names())
    assert [row["wanted"] for row in _residency_snapshot.largest(rows, "wanted")] == list(range(999, 979, -1))


@pytest.mark.parametrize(("name", "removed"), [("warm", 2), ("warm@2", 1), ("cold", 0)])
def test_drop_in_check_mode_counts(name, removed):
    session = Session(residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)])
    result = _residency_snapshot.drop(session, name, keep=0, check_mode=True)
    assert result["changed"] is (removed > 0)
    assert len(result["queries"]) == removed
    if removed:
        assert "Would remove %d generation" % removed in result["msg"]


def test_drop_shows_what_stays():
    session = Session(residency_drop_snapshot=[{"removed": 1}], residency_snapshots=[snapshot_row(generation=2), snapshot_row()])
    result = _residency_snapshot.drop(session, "warm@2", keep=0, check_mode=False)
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
    """Across names. A damaged generation has no date and is not kept."""
    day = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    snapshots = [
        snapshot_row("weekly", generation=1, taken_at=day),
        snapshot_row("night-broken", generation=1, taken_at=None, problem="damaged: checksum"),
        snapshot_row("night-a", generation=1, taken_at=day),
        snapshot_row("night-a", generation=2, taken_at=day + datetime.timedelta(1)),
        snapshot_row("night-b", generation=1, taken_at=day + datetime.timedelta(2)),
    ]
    result = _residency_snapshot.drop(Session(residency_snapshots=snapshots), name, keep, check_mode=True)
    assert result["diff"]["after"].split() == stay
    assert len(result["queries"]) == 5 - len(stay)


@pytest.mark.parametrize(
    ("keep", "stay"),
    [(1, ["warm@2"]), (2, ["warm@1", "warm@2"]), (3, ["warm@1", "warm@2", "warm@4"])],
)
def test_thin_generations_go_before_full_ones(keep, stay):
    result = _residency_snapshot.drop(Session(residency_snapshots=THIN), "warm", keep, check_mode=True)
    assert result["diff"]["after"].split() == stay


def test_what_the_name_means_stays_although_it_is_thin():
    """Where the full ones were removed by hand."""
    snapshots = [dict(THIN[2], current=True), THIN[3]]
    result = _residency_snapshot.drop(Session(residency_snapshots=snapshots), "warm", 1, check_mode=True)
    assert result["diff"]["after"].split() == ["warm@3"]


DAY = 86400.0


def aged(generation, days, **changed):
    return snapshot_row(generation=generation, age=days * DAY, **changed)


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize(
    ("generations", "cached", "force", "removed"),
    [
        # neither one that is not old, nor one whose age is not known
        ([aged(1, 9, wanted=500), aged(2, 7.5, wanted=500), aged(3, 6.5, wanted=500)], 500, False, [1, 2]),
        ([snapshot_row(generation=1, wanted=500, age=None, taken_at=None, problem="damaged"), aged(2, 6)], 500, False, []),
        # the fullest stays until a new one is as full
        ([aged(1, 9, wanted=900), aged(2, 8, wanted=500, measure=900)], 500, False, [2]),
        ([aged(1, 9, wanted=900), aged(2, 8, wanted=500, measure=900)], 890, False, [1, 2]),
        ([aged(1, 9, wanted=900), aged(2, 8, wanted=500, measure=900)], 500, True, [1, 2]),
        # a thin one removes none, and old thin ones go with others
        ([aged(1, 9, wanted=900), aged(2, 8, wanted=500, measure=900)], 100, False, []),
        ([aged(1, 9, wanted=900), aged(2, 8, wanted=100, thin=True, measure=900)], 890, False, [1, 2]),
    ],
)
def test_by_age(generations, cached, force, removed, check_mode):
    """In check mode as really."""
    fullest = max(one["wanted"] for one in generations)
    new = aged(9, 0, wanted=cached, measure=None if force else fullest, thin=not force and cached < fullest // 2)
    new["current"] = not new["thin"]
    session = server(generations, [wanted_row(7, 900)], [wanted_row(8, cached)], after=[*generations, new], taken=new, exists=fullest)
    session.answers["residency_drop_snapshot"] = [{"removed": 1}]
    result = _residency_snapshot.take(session, "warm", 9, force, check_mode, 7)
    assert result["removed"] == ["warm@%d" % number for number in removed]
    assert result["thin"] is new["thin"]
    dropped = [params[0] for sql, params in session.asked if "residency_drop_snapshot" in sql]
    assert dropped == ([] if check_mode else result["removed"])
    assert len(result["queries"]) == 1 + len(removed)
    if removed:
        assert result["msg"].endswith(" keep_days is 7: %s %s." % ("would remove" if check_mode else "removed", ", ".join(result["removed"])))
        assert "generation warm@%d, from " % removed[0] in result["diff"]["before"]


@pytest.mark.parametrize(
    ("keep", "days", "stay", "message"),
    [
        (0, 7, ["warm@1", "warm@3"], "Would remove 1 generation of snapshot 'warm' older than 7 days."),
        (2, 1, ["warm@1", "warm@2", "warm@3"], "There is no generation of 'warm' older than 1 day beyond the newest 2."),
        (1, 1.5, ["warm@1", "warm@3"], "Would remove 1 generation of snapshot 'warm' older than 1.5 days."),
        (0, 30, ["warm@1", "warm@2", "warm@3"], "There is no generation of 'warm' older than 30 days."),
    ],
)
def test_remove_by_age(keep, days, stay, message):
    """Only what is older; what cannot be read has no age."""
    day = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    snapshots = [
        snapshot_row(generation=1, age=None, taken_at=None, problem="damaged: checksum"),
        aged(2, 9, taken_at=day),
        aged(3, 2, taken_at=day + datetime.timedelta(7), current=True),
    ]
    result = _residency_snapshot.drop(Session(residency_snapshots=snapshots), "warm", keep, True, days)
    assert result["diff"]["after"].split() == stay and result["msg"] == message
    assert result["warnings"] == ["warm@1 is kept, because its age is unknown (damaged: checksum)."]


@pytest.mark.parametrize("days", [0, -1, 36501, float("nan")])
def test_days_out_of_range(days):
    with pytest.raises(ResidencyError, match=r"^keep_days is .*: it must be more than 0 and at most 36500\.$"):
        _residency_snapshot.check_options("warm", None, True, days)


def test_what_is_saved_meanwhile_stays():
    session = Session(residency_drop_snapshot=[{"removed": 1}], residency_snapshots=[snapshot_row(generation=2), snapshot_row()])
    _residency_snapshot.drop(session, "warm", keep=0, check_mode=False)
    assert [arguments for sql, arguments in session.asked if "residency_drop_snapshot" in sql] == [("warm@2",), ("warm@3",)]


def test_what_somebody_else_has_removed_is_no_change():
    session = Session(residency_drop_snapshot=[{"removed": 0}], residency_snapshots=[snapshot_row()])
    assert _residency_snapshot.drop(session, "warm", keep=0, check_mode=False)["changed"] is False
