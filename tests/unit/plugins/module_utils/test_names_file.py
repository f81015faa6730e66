# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _names, _names_file
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import database_row, give, names_file, relation_row

ROWS = [
    database_row(5, "postgres_air"),
    database_row(6, "Gr\u00f6\u00dfe", "the database does not accept connections"),
    relation_row('public."\u00fcber"', 10, kind="index", owner="public.t", owner_oid=4, pages=7, partition_of=["public.p", "public.q"]),
    relation_row("pg_catalog.pg_authid", 1260, database=0, tablespace=1664),
    relation_row("pg_toast.pg_toast_4_index", 12, kind="toast index", owner="public.t", owner_oid=4),
    relation_row("public.v", 13, kind="materialized view"),
]


def test_it_is_what_the_server_would_have_said():
    assert _names_file.load(names_file(*ROWS)) == _names.collect(ROWS)


def test_no_names_at_all_are_names():
    assert _names_file.load(names_file()) == Names()


def test_cut_short():
    """Nothing is invented, and nothing raised."""
    whole = names_file(*ROWS)
    for size in range(len(whole)):
        names = _names_file.load(whole[:size])
        assert names is None or set(names.relations) < set(_names.collect(ROWS).relations)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1,"databases":{}}', names_file(*ROWS, version=2), b"PGRNAMES" + b"\xff" * 999])
def test_what_is_something_else(data):
    assert _names_file.load(data) is None


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pg_residency").mkdir()
    return tmp_path / "pg_residency"


def write(folder, name, data, age):
    path = folder / name
    path.write_bytes(data)
    os.utime(path, (1000000 - age, 1000000 - age))
    give(folder.parent)
    return path


def test_the_newest_that_can_be_read(folder):
    write(folder, "warm@3.names", b"{}", 1)
    write(folder, "warm@2.names", names_file(database_row(5, "second")), 2)
    write(folder, "warm@1.names", names_file(database_row(5, "first")), 3)
    assert _names_file.load_newest(str(folder.parent)).databases == {5: "second"}


def test_only_a_regular_file_is_read(folder):
    """A pipe would never end, and a link may lead to what only root may read."""
    elsewhere = write(folder.parent, "elsewhere", names_file(database_row(5, "linked")), 0)
    (folder / "link@1.names").symlink_to(elsewhere)
    os.mkfifo(folder / "pipe@1.names")
    (folder / "folder@1.names").mkdir()
    write(folder, "warm@1.names", names_file(database_row(5, "file")), 9)
    assert _names_file.load_newest(str(folder.parent)).databases == {5: "file"}


def test_without_any(tmp_path):
    assert _names_file.load_newest(str(tmp_path)) == Names()
