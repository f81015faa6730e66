# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _cache_evict
from ansible_collections.pgfleet.cache.plugins.module_utils._cache_evict import Options, State
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Place
from ansible_collections.pgfleet.cache.plugins.module_utils._page_cache import File
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import give

OPTIONS = Options(
    scope="cluster",
    layers=["page_cache"],
    method="functions",
    service=None,
    relations=[],
    databases=[],
    level=3,
    force=False,
    data_directory=None,
)


def evict(check_mode=False, log_in=None, **changed):
    return _cache_evict.evict(dataclasses.replace(OPTIONS, **changed), log_in, check_mode)


def test_relations_before_and_after():
    before = State(
        [
            File("base/5/16001", 100, 80),
            File("base/5/16001.1", 50, 40),
            File("base/5/16002", 300, 200),
            File("base/5/16003", 300, 0),
        ],
        {Place(5, 1663, 16003): 2},
    )
    after = State([File("base/5/16001", 100, 8), File("base/5/16004", 10, 10)], {Place(5, 1663, 16002): 1})
    rows = _cache_evict.compare(before, after)
    assert [
        (row["place"].relfilenumber, row["bytes"], row["resident_bytes_before"], row["resident_bytes_after"],
         row["buffer_bytes_before"], row["buffer_bytes_after"])
        for row in _cache_evict.rank(rows, "before")
    ] == [(16003, 300, 0, 0, 16384, 0), (16002, 300, 200, 0, 0, 8192), (16001, 150, 120, 8, 0, 0)]
    assert [row["place"].relfilenumber for row in _cache_evict.rank(rows, "after")] == [16002, 16004, 16001]


def test_rows_are_bounded():
    rows = _cache_evict.compare(State([File("base/5/%d" % number, 10, 10) for number in range(1000)], None), State([], None))
    assert len(_cache_evict.rank(rows, "before")) == 20


@pytest.fixture
def stopped(tmp_path):
    for name, content in (("PG_VERSION", b"15\n"), ("base/5/16001", b"x" * 8192)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    give(tmp_path)
    return str(tmp_path)


def test_stopped_cluster(stopped):
    result = evict(True, data_directory=stopped)
    assert result["changed"] and result["server"] == "stopped"
    assert set(result) == set(_cache_evict.empty_result()) | {"msg"}
    row = result["relations"][0]
    assert (row["relfilenumber"], row["resident_bytes_before"], row["resident_bytes_after"]) == (16001, 8192, 0)
    assert row["buffer_bytes_before"] is None
    assert result["left"] == []
    assert result["diff"]["before"] == "relfilenumber 16001 in database 5: 8.00 kB of 8.00 kB, 100 %\n"
    assert result["diff"]["after"] == "relfilenumber 16001 in database 5: 0 B of 8.00 kB, 0 %\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relations": ["t"]}, "scope relation and relations must be used together."),
        ({"scope": "host", "layers": ["page_cache", "shared_buffers"], "method": "restart"},
         "method restart needs the data_directory of a running cluster."),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ResidencyError) as caught:
        evict(**options)
    assert str(caught.value) == message


def test_stopped_relations_need_names(stopped):
    with pytest.raises(ResidencyError) as caught:
        evict(scope="relation", relations=["t"], data_directory=stopped)
    assert str(caught.value) == (
        "No relation matches t. While PostgreSQL is stopped, only names from snapshots are known, and there are none."
    )
