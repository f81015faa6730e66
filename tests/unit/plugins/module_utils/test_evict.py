# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.module_utils import _evict
from ansible_collections.pgfleet.cache.plugins.module_utils._page_cache import File


def test_relations_before_and_after():
    before = [
        File("/data/base/5/16001", 100, 80),
        File("/data/base/5/16001.1", 50, 40),
        File("/data/base/5/16002", 300, 200),
        File("/data/base/5/16003", 300, 0),
    ]
    rows = _evict.compare(before, [File("/data/base/5/16001", 100, 8), File("/data/base/5/16004", 10, 10)])
    assert [
        (row["place"].relfilenumber, row["bytes"], row["resident_bytes_before"], row["resident_bytes_after"]) for row in rows
    ] == [(16002, 300, 200, 0), (16001, 150, 120, 8)]


def test_rows_are_bounded():
    assert len(_evict.compare([File("/data/base/5/%d" % number, 10, 10) for number in range(1000)], [])) == 20


def test_stopped_cluster(tmp_path):
    for name, content in (("PG_VERSION", b"15\n"), ("base/5/16001", b"x" * 8192)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    params = {"data_directory": str(tmp_path)}
    result = _evict.evict_cluster(params, True)
    assert result["changed"] and result["server"] == "stopped"
    assert set(result) == set(_evict.empty_result()) | {"msg"}
    row = result["relations"][0]
    assert (row["relfilenumber"], row["resident_bytes_before"], row["resident_bytes_after"]) == (16001, 8192, 0)
    assert result["diff"]["before"] == "relfilenumber 16001 in database 5: 8.00 kB of 8.00 kB, 100 %\n"
    assert result["diff"]["after"] == "relfilenumber 16001 in database 5: 0 B of 8.00 kB, 0 %\n"
