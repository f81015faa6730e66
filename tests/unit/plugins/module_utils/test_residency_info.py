# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_info
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._residency_info import Options
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import (
    Session,
    database_row,
    give,
    names_file,
    relation_row,
    snapshot_row,
)

DATABASES = [{"oid": 5, "datname": "postgres_air"}, {"oid": 6, "datname": "reporting"}]
NAMES = [
    relation_row("public.boarding_pass", 16001),
    database_row(5, "postgres_air"),
    database_row(6, "reporting", "the database does not accept connections"),
]
KEYS = set(_residency_info.empty_result()) | {"msg"}


def options(*subset, **changed):
    values = {
        "subset": list(subset), "databases": [], "relations": [], "relation": None, "sort": "page_cache", "limit": 20, "snapshot": None,
        "min_residency": 90.0, "wait": False, "wait_timeout": 1, "wait_sleep": 0.01, "data_directory": None,
    }
    values.update(changed)
    return Options(**values)


def counted(what, database, relfilenumber=None, **changed):
    row = {
        "what": what, "database": database, "tablespace": 1663, "relfilenumber": relfilenumber, "blocks": 100, "in_page_cache": 50,
        "in_shared_buffers": 20, "in_both": 10, "dirty_in_page_cache": 5, "dirty_in_shared_buffers": 2,
    }
    row.update(changed)
    return row


def segment(relfilenumber, **changed):
    row = counted("segment", 5, relfilenumber, fork="main", segment=1)
    row.update(changed)
    return row


def server(**more):
    answers = {
        "FROM relations GROUP BY database": [
            counted("database", 5),
            counted("database", 6, in_page_cache=60),
            counted("database", 0, dirty_in_page_cache=None),
            counted("relation", 5, 16001),
            counted("relation", 6, 16002),
        ],
        "current_setting('shared_buffers')": [{"blocks": 1000}],
        "residency_segments(": [segment(16001), segment(16003)],
        "residency_current_names": NAMES,
        "pg_database": DATABASES,
        "residency_snapshots": [snapshot_row()],
    }
    answers.update(more)
    return Session(**answers)


def look(session, chosen, with_extension=None):
    return _residency_info.of_server(session, chosen, with_extension, lambda path: {"path": path})


def test_databases_and_what_belongs_to_none():
    result = look(server(), options("databases"))
    assert [(row["database"], row["kind"], row["in_shared_buffers"]) for row in result["databases"]] == [
        ("reporting", "database", 20),
        (None, "shared catalogs", 20),
        ("postgres_air", "database", 20),
        (None, "unused buffers", 940),
    ]
    assert result["databases"][0]["percent"] == 70.0
    assert result["total"]["in_page_cache"] == 160
    assert result["total"]["dirty_in_page_cache"] is None
    assert result["relations"] == []
    assert result["msg"] == "1.25 MB of 2.34 MB are in the page cache, 480 kB in shared buffers, 240 kB in both."


def test_relations_and_segments_have_names():
    result = look(server(), options("relations", "segments", limit=5))
    assert [(row["database"], row["relation"], row["in_both"]) for row in result["relations"]] == [
        ("postgres_air", "public.boarding_pass", 10),
        ("reporting", None, 10),
    ]
    assert [(row["relation"], row["segment"], row["percent"]) for row in result["segments"]] == [
        ("public.boarding_pass", 1, 50.0),
        (None, 1, 50.0),
    ]
    assert result["warnings"] == ["The relations of these databases are not named: reporting (the database does not accept connections)."]


def test_the_server_sorts_and_limits():
    session = server()
    look(session, options("relations", sort="dirty", limit=5))
    sql, params = next((sql, params) for sql, params in session.asked if "GROUP BY database" in sql)
    assert "ORDER BY coalesce(dirty_in_page_cache, 0) + dirty_in_shared_buffers DESC" in sql
    assert params == [5]


def test_patterns_for_names_need_all_names():
    session = server()
    result = look(session, options("relations", relations=["boarding*"], limit=5))
    assert [row["relation"] for row in result["relations"]] == ["public.boarding_pass"]
    assert next(params for sql, params in session.asked if "GROUP BY database" in sql) == [None]
    with pytest.raises(ResidencyError, match=r"^No relation matches nothing\.$"):
        look(server(), options("relations", relations=["nothing"]))


def test_each_pattern_that_fits_nothing_is_named():
    """Also where another fits what it would fit."""
    result = look(server(), options("relations", relations=["*", "boarding*", "nothing", "neither"], databases=["post*", "shop*"]))
    assert [one for one in result["warnings"] if one.startswith("Nothing matches")] == [
        "Nothing matches 'shop*' of databases.", "Nothing matches 'nothing' of relations.", "Nothing matches 'neither' of relations.",
    ]


def test_databases_by_pattern():
    session = server()
    look(session, options("databases", databases=["post*"]))
    assert next(params for sql, params in session.asked if "GROUP BY database" in sql) == [[5], 20]
    session = server()
    look(session, options("databases", databases=["*"]))
    assert next(params for sql, params in session.asked if "GROUP BY database" in sql) == [[5, 6, 0], 20]


def test_buffers_of_a_relation_of_another_database():
    rows = [{"fork": "main", "block": 7, "dirty": True, "usage_count": 5, "blocks": 3, "dirty_blocks": 1}]
    other = Session(
        to_regclass=[{"oid": 16001}],
        MATERIALIZED=rows,
        residency_buffers=[{"usage_count": 5, "blocks": 3}],
        current_database=[{"name": "postgres_air"}],
    )
    asked = []

    def with_extension(database):
        asked.append(database)
        return other

    result = look(Session(), options("buffers", relation="public.boarding_pass", databases=["postgres_air"]), with_extension)
    assert asked == ["postgres_air"]
    assert result["buffers"] == {
        "database": "postgres_air",
        "relation": "public.boarding_pass",
        "blocks": 3,
        "dirty": 1,
        "usage_counts": [{"usage_count": 5, "blocks": 3}],
        "buffers": [{"fork": "main", "block": 7, "dirty": True, "usage_count": 5}],
    }
    assert result["msg"] == "24.0 kB of public.boarding_pass are in shared buffers, 8.00 kB dirty."


def test_waits_until_it_is_warm():
    amounts = [[{"wanted": 100, "resident": resident, "gone": 20}] for resident in (10, 50, 72)]
    result = look(server(residency_snapshot_segments=amounts), options(snapshot="warm", wait=True))
    assert result["reached"]
    assert result["residency"] == {
        "snapshot": "warm@3", "wanted": 100, "resident": 72, "missing": 8, "gone": 20, "residency": 90.0, "gone_percent": 20.0,
    }
    assert result["msg"] == "warm@3: 90 % of 640 kB is resident."


def test_thin_generations_are_named():
    """So that a probe that never succeeds can be understood."""
    snapshots = [snapshot_row(current=True), snapshot_row(generation=4, thin=True, measure=400)]
    amounts = [{"wanted": 100, "resident": 100, "gone": 0}]
    result = look(server(residency_snapshots=snapshots, residency_snapshot_segments=amounts), options(snapshot="warm"))
    assert result["residency"]["snapshot"] == "warm@3"
    assert result["warnings"] == ["'warm' means warm@3, from 26 h ago: warm@4 is newer and thin (less than half as full)."]


@pytest.fixture
def stopped(tmp_path):
    """A data directory with two relations and a snapshot with names."""
    names = names_file(database_row(5, "postgres_air"), relation_row("public.boarding_pass", 16001))
    files = {
        "PG_VERSION": b"15\n", "global/1262": b"g" * 8192, "base/5/16001": b"b" * 81920, "base/5/16001_vm": b"v" * 8192,
        "base/6/16002": b"r" * 16384, "pg_residency/warm@2.snapshot": b"content", "pg_residency/warm@10.snapshot": b"",
        "pg_residency/pgsql_tmp.lock": b"", "pg_residency/warm@2.names": names, "pg_residency/warm@10.names": b"something else",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    give(tmp_path)
    return str(tmp_path)


def test_stopped(stopped):
    chosen = options("databases", "relations", "segments", "snapshots", "jobs", "capabilities", limit=2)
    result = _residency_info.of_files(stopped, chosen, lambda path: {"path": path})
    assert set(result) == KEYS
    assert result["server"] == "stopped"
    assert [(row["database"], row["database_oid"], row["kind"], row["blocks"]) for row in result["databases"]] == [
        ("postgres_air", 5, "database", 11),
        (None, 6, "database", 2),
        (None, 0, "shared catalogs", 1),
    ]
    assert [(row["relation"], row["blocks"], row["in_page_cache"]) for row in result["relations"]] == [
        ("public.boarding_pass", 11, 11),
        (None, 2, 2),
    ]
    assert [(row["fork"], row["blocks"]) for row in result["segments"]] == [("main", 10), ("main", 2)]
    assert result["relations"][0]["dirty_in_page_cache"] is None
    assert [(row["name"], row["generation"], row["file_bytes"]) for row in result["snapshots"]] == [("warm", 2, 7), ("warm", 10, 0)]
    assert set(result["snapshots"][0]) == set(_residency_info._residency_snapshot.COLUMNS)
    assert result["capabilities"] == {"path": stopped}
    assert result["msg"] == "PostgreSQL is stopped. 112 kB of 112 kB in 4 files are in the page cache. 2 snapshots."


def test_capabilities_need_no_login(stopped):
    assert not options("capabilities").needs_login
    assert options("capabilities", snapshot="warm").needs_login
    assert options("capabilities", "jobs").needs_login
    result = _residency_info.of_host(stopped, lambda path: {"path": path})
    assert result["capabilities"] == {"path": stopped} and set(result) == KEYS
