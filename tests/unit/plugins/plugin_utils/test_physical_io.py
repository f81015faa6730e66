# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _physical_io
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import OddResultError, Result, table


def run(limit, riops, rpiops, certainty="exact", remarks=()):
    return {
        "limit": limit, "load": {"blocks_per_second": 50000, "sessions": [{}, {}]},
        "io": {
            "reads": {"riops": riops, "rpiops": rpiops, "ratio": round(riops / rpiops, 3), "page_cache_percent": 31.1},
            "total": {"read_bytes_per_second": 246415360.0, "read_milliseconds": 1.234, "utilisation_percent": 88.4},
            "certainty": certainty, "gaps": [], "remarks": list(remarks),
        },
    }


RESULT = {
    "state": "present", "database": "pgio", "start": "cold", "load": {"schemas": 4, "blocks": 131072, "msg": "4 schemas are there."},
    "runs": [run("", 43696.4, 30159.9), run("2GB", 24360.0, 24364.0, "upper_bound", ["others read 1.00 GB from these disks meanwhile"])],
}


def test_the_runs_of_a_host_side_by_side():
    lines = _physical_io.table(RESULT, "db1")
    assert lines[0] == "db1: pgio, 4 schemas of 1.00 GB, 2 sessions, page cache cold at the beginning"
    assert " ".join(lines[1].split()) == "page cache blocks/s RIOPS RPIOPS ratio from cache device/s latency busy"
    assert " ".join(lines[2].split()) == "as it is 50000 43696 30160 1.449 31.1 % 235.00 MB 1.23 ms 88 %"
    assert " ".join(lines[3].split()) == "2GB 50000 24360 24364 1.000 31.1 % 235.00 MB 1.23 ms 88 % *"
    assert lines[-2] == "* 2GB: others read 1.00 GB from these disks meanwhile."
    assert lines[-1] == (
        "PostgreSQL counted 43696 reads/s where the devices served 30160/s: 31.1 % of the bytes came from the page cache;"
        " with 2GB of page cache, 24360 counted and 24364 served."
    )


def test_tables_that_fit_into_shared_buffers():
    lines = _physical_io.table(dict(RESULT, runs=[run("", 12000.0, 11000.0)]), "db1")
    assert lines[-1].startswith("shared_buffers had 76 % of the blocks that the run touched")
    assert "cache_io_workload_scale" in lines[-1]


def test_rates_are_of_the_run():
    """And not of the window, which is as long as a busy controller makes it."""
    one = run("", 5000.0, 2500.0)
    one["load"]["seconds"], one["io"]["window"] = 20.0, {"seconds": 40.0}
    [found] = _physical_io.runs(Result({"runs": [one]}))
    assert (found.riops, found.rpiops, found.ratio, found.device, found.latency, found.busy) == (10000, 5000, 2, 492830720, 1.234, 100)


def test_a_row_for_the_fleet():
    cells, words = _physical_io.row({"message": ""}, Result(RESULT), False)
    assert cells == ["50000", "43696", "30160", "1.449", "31.1 %", "235.00 MB", "1.23 ms", "88 %", "1.000"]
    assert words == "others read 1.00 GB from these disks meanwhile" and len(cells) == len(_physical_io.TABLE.columns)


@pytest.mark.parametrize(("one", "result", "check", "words"), [
    ({"message": "unreachable"}, {}, False, "unreachable"),
    ({"message": ""}, {"msg": "Would load 1 schema.", "runs": []}, True, "Would load 1 schema."),
    ({"message": ""}, {"state": "absent", "load": {"msg": "Removed 2 schemas."}, "runs": []}, False, "Removed 2 schemas."),
])
def test_without_runs(one, result, check, words):
    assert _physical_io.row(one, Result(result), check) == (["-"] * 9, words)


def test_what_could_not_be_measured_is_no_zero():
    bare = {"limit": "", "load": {}, "io": {"reads": None, "total": None, "certainty": "unknown", "gaps": ["/data is on overlay"], "remarks": []}}
    cells, words = _physical_io.row({"message": ""}, Result(dict(RESULT, runs=[bare])), False)
    assert cells == ["-"] * 9 and words == "/data is on overlay"
    assert _physical_io.gain(_physical_io.runs(Result({"runs": [bare]}))) == ""


def test_a_hosts_odd_answer():
    with pytest.raises(OddResultError):
        _physical_io.row({"message": ""}, Result({"runs": [{"io": {"reads": {"riops": "many"}}}]}), False)


@pytest.mark.parametrize("runs", [5, {"a": 1}, [5]], ids=str)
def test_runs_that_are_none_cost_one_row(runs):
    lines, odd = table(_physical_io.TABLE, {"db1": {"verdict": "done", "message": "", "result": {"runs": runs}}}, False)
    assert list(odd) == ["db1"] and len(lines) == 2
