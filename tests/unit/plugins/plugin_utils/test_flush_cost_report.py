# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _flush_cost_plot, _flush_cost_report
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Result, table


def price(value, low=None, high=None):
    return {"value": value, "low": low, "high": high}


def one_class(name, a, blocks):
    return {
        "name": name, "blocks": blocks, "iterations": 30, "read_microseconds": price(2.5), "a": price(a, a - 0.1, a + 0.1), "a_random": price(1.5),
        "b": price(0.0011, 0.001, 0.0012), "random_read": price(1.1, 1.0, 1.2),
    }


def result(a=1.28, kind="nvme", **changed):
    """As the role leaves it."""
    sizes = [{
        "blocks": blocks, "iterations": 30, "read_microseconds": 2.5, "write": price(a, a - 0.1, a + 0.1), "random_write": price(1.4),
        "random_read": price(1.1), "dry_percent_of_write": 0.091,
    } for blocks in (1024, 8192)]
    return dict({
        "measured": {
            "server_version": "15.8", "reached": "page_cache", "remarks": ["writes reached the page cache and not the device"], "msg": "Would measure.",
            "storage": {"kind": kind, "filesystem": "ext4", "layers": ["partition", "disk"], "limits": []},
        },
        "fit": {"classes": [one_class("below 16 MB", 0.98, [1024]), one_class("16 to 256 MB", a, [8192])], "sizes": sizes, "level": 95},
        "plan": {
            "dirtied": 8192, "allocated": 8192, "class": "16 to 256 MB", "flush_cost": 10500.0, "flush_cost_low": 9700.0, "flush_cost_high": 11300.0,
            "published_flush_cost": 10730.0, "serial_scan_cost": 12290.0, "parallel_scan_cost": 10900.0, "workers": 2, "scans_to_pay": 7.55,
        },
    }, **changed)


def host(found, verdict="done", message=""):
    return {"verdict": verdict, "message": message, "result": found}


def test_table_of_a_host():
    lines = _flush_cost_report.table(result(), "db1")
    assert lines[0] == "db1: PostgreSQL 15.8, nvme ext4, page cache"
    assert lines[2].split() == ["8.00", "MB", "30", "2.5", "1.28", "(1.18-1.38)", "1.40", "1.10", "0.091"]
    assert "16 to 256 MB: a = 1.28 (1.18-1.38), in random order 1.50; b = 0.00110 (0.00100-0.00120)" in lines
    assert lines[-2] == (
        "A table with 64.0 MB in local buffers, 64.0 MB of it dirty: flush_cost = 10500 (9700 to 11300), by the published formula 10730; a scan costs"
        " 12290, with 2 workers 10900: the flush pays from scan 8 on.")
    assert lines[-1] == "Writes reached the page cache and not the device."


@pytest.mark.parametrize(("scans", "words"), [
    (None, "parallel workers cost more than they save, and no flush pays."), (0.4, "the flush pays from the first scan on."),
    (2.0, "the flush pays from scan 2 on."),
])
def test_when_a_flush_pays(scans, words):
    assert _flush_cost_report.planner(Result(dict(result()["plan"], scans_to_pay=scans))).endswith(words)


def test_storage():
    measured = dict(result()["measured"], reached="partly_device", storage={"kind": "virtual", "filesystem": "xfs", "layers": ["loop"], "limits": [
        {"device": "vda", "read_iops": 120, "write_iops": 130, "read_bps": 150000000, "write_bps": None}]})
    assert _flush_cost_report.storage(Result(measured)) == "virtual xfs on loop limited to 120 IOPS, 150 MB/s, partly device"
    assert _flush_cost_report.storage(Result({})) == "unknown storage, not measured"


@pytest.mark.parametrize("harm", [
    {"storage": 5}, {"storage": {"limits": 5}}, {"storage": {"limits": [5]}}, {"storage": {"limits": {"a": 1}}}, {"storage": {"layers": 5}},
    {"storage": {"kind": ["nvme"]}}, {"remarks": 5}, {"reached": 5},
], ids=str)
def test_a_hostile_host_costs_its_own_row(harm):
    hosts = {"db1": host(result()), "db2": host(result(measured=dict(result()["measured"], **harm)))}
    lines, odd = table(_flush_cost_report.TABLE, hosts, False)
    assert list(odd) == ["db2"] and "1.28 (1.18-1.38)" in lines[1]
    assert any(line.startswith("nvme ext4, page cache ") for line in _flush_cost_report.by_storage(hosts))
    assert _flush_cost_report.lines_of(hosts)[0][0] == "db1: nvme ext4, page cache"


@pytest.mark.parametrize("harm", [
    {"layers": ["loop" * 5000]}, {"limits": [{"read_iops": 1e17, "write_bps": 1e17}] * 5000}, {"kind": "x" * 5000, "filesystem": "x" * 5000},
], ids=["layers", "limits", "kind"])
def test_a_storage_with_many_words(harm):
    measured = dict(result()["measured"], storage=dict(result()["measured"]["storage"], **harm))
    assert len(_flush_cost_report.storage(Result(measured))) < 160


def test_table_of_the_fleet():
    hosts = {"db1": host(result()), "db2": host({}, "failed", "No server."), "db3": host(dict(result(), fit={"classes": [{"name": "below 16 MB", "a": 5}]}))}
    lines, odd = table(_flush_cost_report.TABLE, hosts, False)
    assert "0.98 (0.88-1.08)" in lines[1] and "1.28 (1.18-1.38)" in lines[1] and "0.0011 (0.0010-0.0012)" in lines[1] and "nvme ext4, page cache" in lines[1]
    assert lines[2].endswith("No server.") and "nvme" not in lines[2]
    assert list(odd) == ["db3"] and "unexpected types" in lines[3]
    checked = dict(result(), fit={}, plan={})
    assert table(_flush_cost_report.TABLE, {"db1": host(checked)}, True)[0][1].endswith("Would measure.")


def test_remarks_that_make_figures_doubtful():
    measured = dict(result()["measured"], remarks=["writes reached the page cache and not the device", "the host swapped while 1.00 MB were measured"])
    assert table(_flush_cost_report.TABLE, {"db1": host(dict(result(), measured=measured))}, False)[0][1].endswith(
        "The host swapped while 1.00 MB were measured.")


def test_by_storage():
    hosts = {"db1": host(result(1.2)), "db2": host(result(1.4)), "db3": host(result(2.0, "rotational")), "db4": host({}), "db5": host({"fit": 5})}
    lines = _flush_cost_report.by_storage(hosts)
    nvme, rotational = lines[2:4]
    assert nvme.startswith("nvme ext4, page cache ") and "    2 " in nvme and "1.30 [1.20, 1.40]" in nvme
    assert rotational.startswith("rotational ext4, page cache") and rotational.split()[-3:] == ["0.98", "2.00", "-"]
    assert _flush_cost_report.by_storage({"db4": host({})}) == []


def test_lines_of_the_plot():
    hosts = {"db2": host(result(1.4)), "db1": host(result(1.2)), "db3": host({"fit": {"sizes": [5]}}), "db4": host({})}
    found = _flush_cost_report.lines_of(hosts)
    assert [label for label, dummy in found] == ["db1: nvme ext4, page cache", "db2: nvme ext4, page cache"]
    assert found[0][1] == [(8.0, 1.2, pytest.approx(1.1), pytest.approx(1.3)), (64.0, 1.2, pytest.approx(1.1), pytest.approx(1.3))]


# --- the plot ---


def size_of(path):
    """Width and height of a PNG."""
    with open(path, "rb") as file:
        head = file.read(24)
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


@pytest.mark.parametrize("count", [1, 8, 30])
def test_draw(tmp_path, count):
    """A file and nothing else; it grows with its legend, and not without end."""
    pytest.importorskip("matplotlib")
    hosts = [
        ("db%d: nvme, page cache" % number, [(1.0, 0.9, 0.8, 1.1), (64.0, 1.2 + number, None, None), (2048.0, 0.01, 0.0, 400.0)])
        for number in range(count)
    ]
    path = str(tmp_path / "plot.png")
    assert _flush_cost_plot.draw(hosts, path) == path
    width, height = size_of(path)
    assert width == 1200 and 600 < height < 1300
    assert [one.name for one in tmp_path.iterdir()] == ["plot.png"]


def same(one, other):
    return one.read_bytes() == other.read_bytes()


def test_words_of_a_host_are_no_formula(tmp_path, monkeypatch):
    """$ begins one for matplotlib, and TeX for whoever has switched that on; a name with _ is not left out of the legend."""
    matplotlib = pytest.importorskip("matplotlib")
    points = [(1.0, 1.1, None, None)]
    for name, labels in (("plain", ["db1"]), ("formula", ["$\\frac{$"]), ("underscore", ["_db1"]), ("none", ["_"]), ("letters", ["\u6e2c"])):
        _flush_cost_plot.draw([(label, points) for label in labels], str(tmp_path / name))
    assert not same(tmp_path / "underscore", tmp_path / "none") and not same(tmp_path / "plain", tmp_path / "formula")
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9.0)
    _flush_cost_plot.draw([("db1", points)], str(tmp_path / "again"))
    assert same(tmp_path / "plain", tmp_path / "again")


def test_other_playbooks_do_not_load_them():
    """A matplotlib that cannot be loaded, or takes long, is no matter of theirs."""
    code = (
        "import sys\n"
        "from ansible_collections.pgfleet.cache.plugins.action import fleet_report\n"
        "from ansible_collections.pgfleet.cache.plugins.filter.flush_cost import FilterModule\n"
        "FilterModule().filters()\n"
        "print(sorted({'numpy', 'matplotlib'} & set(sys.modules)))\n"
    )
    # ansible-test finds collections by itself, which another process does not
    collections = str(Path(__file__).resolve().parents[7])
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([collections, *filter(None, sys.path)]))
    loaded = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    assert loaded == "[]\n"


def test_without_matplotlib(monkeypatch):
    monkeypatch.setattr(_flush_cost_plot, "FigureCanvasAgg", None)
    assert _flush_cost_plot.missing().startswith("There is no plot: Ansible's Python on the controller has no matplotlib.")
