# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import random
import re

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _flush_cost
from ansible_collections.pgfleet.cache.tests.unit.plugins.plugin_utils import published_flush_cost

numpy = pytest.importorskip("numpy")


def close(value, expected):
    assert value == pytest.approx(expected, rel=0.025)


def test_the_published_figures():
    """The results of an analysis of the raw files: about 1.0 below 16 MB, 1.18 to 1.38 above, and a dry scan ten times cheaper than 0.01."""
    fitted = _flush_cost.fit({"measurements": published_flush_cost.measurements()})
    small, middle, large = fitted["classes"]
    assert [one["name"] for one in fitted["classes"]] == ["below 16 MB", "16 to 256 MB", "above 256 MB"]
    assert [len(one["blocks"]) for one in fitted["classes"]] == [4, 5, 3]
    close(small["a"]["value"], 0.98)
    close(middle["a"]["value"], 1.31)
    close(large["a"]["value"], 1.18)
    close(middle["a_random"]["value"], 1.40)
    assert 0.0010 < small["b"]["value"] < 0.0016
    for one in (middle, large):
        assert 0.0010 < one["b"]["value"] < 0.0014
        assert one["a"]["low"] is None  # one iteration has no interval
    close(fitted["scan_nanoseconds"]["value"], 1.56)
    by_size = {one["blocks"]: one for one in fitted["sizes"]}
    for blocks, ratio in published_flush_cost.RATIOS.items():
        assert by_size[blocks]["write"]["value"] == pytest.approx(ratio, abs=0.055), blocks
    for blocks in (2048, 4096, 8192, 32768, 65536, 262144):
        assert 0.05 <= by_size[blocks]["dry_percent_of_write"] <= 0.14


def made(a=1.4, b=0.002, wild=0.0, iterations=30, sizes=(512, 2048, 8192, 32768), seed=3):
    """Measurements that follow a law, with noise of 3 %, and a share of iterations that are wild."""
    chance = random.Random(seed)
    found = []
    for blocks in sizes:
        values = {phase: [] for phase in ("write", "dry_write", "read", "dry_read", "random_read", "random_write")}
        for _iteration in range(iterations):
            read = 2.0 * chance.gauss(1, 0.03)
            scan = 2.0 * b * chance.gauss(1, 0.03)
            storm = chance.uniform(5, 20) if chance.random() < wild else 1.0
            values["read"].append(read)
            values["write"].append(storm * (2.0 * a * chance.gauss(1, 0.03)) + scan)
            values["dry_write"].append(scan + 1.5 / blocks)  # a statement's own 1.5 us
            values["dry_read"].append(0.03)
            values["random_read"].append(1.2 * read)
            values["random_write"].append(1.1 * 2.0 * a)
        found.append({
            "blocks": blocks, "buffers": blocks, "written": blocks, "read": blocks, "iterations": iterations,
            "microseconds": {phase: {"median": 0, "values": some} for phase, some in values.items()},
        })
    return {"measurements": found}


@pytest.mark.parametrize("wild", [0.0, 0.2, 0.3])
def test_a_law_is_found_again(wild):
    """Also where nearly a third of the writes took many times as long: a mean would be far away."""
    data = made(wild=wild)
    for one in _flush_cost.fit(data)["classes"]:
        assert one["a"]["value"] == pytest.approx(1.4, rel=0.05)
        assert one["a"]["low"] < 1.4 < one["a"]["high"] or abs(one["a"]["value"] - 1.4) < 0.03
        assert one["b"]["value"] == pytest.approx(0.002, rel=0.05)
    if wild:
        writes = [value for one in data["measurements"] for value in one["microseconds"]["write"]["values"]]
        assert sum(writes) / len(writes) > 1.5 * 2.8


def test_intervals():
    """They hold the truth about as often as they promise, and are narrower with more iterations."""
    hits = widths = narrow = 0
    for seed in range(60):
        [one] = _flush_cost.fit(made(seed=seed, iterations=15, sizes=(2048, 8192)), 400)["classes"]
        hits += one["a"]["low"] <= 1.4 <= one["a"]["high"]
        widths += one["a"]["high"] - one["a"]["low"]
        [more] = _flush_cost.fit(made(seed=seed, iterations=120, sizes=(2048, 8192)), 400)["classes"]
        narrow += more["a"]["high"] - more["a"]["low"]
    assert hits >= 51 and narrow < 0.6 * widths
    assert _flush_cost.fit(made()) == _flush_cost.fit(made())


def test_one_size():
    """No slope is possible; the mean has the statement's own cost in it, and is no more than that."""
    fitted = _flush_cost.fit(made(sizes=(8192,), b=0.002))
    [one] = fitted["classes"]
    assert one["b"]["value"] == pytest.approx(0.002, rel=0.1)


@pytest.mark.parametrize("harm", [
    lambda one: one.pop("written"), lambda one: one["microseconds"]["read"].update(values=[]), lambda one: one["microseconds"]["write"]["values"].pop(),
    lambda one: one["microseconds"]["read"].update(values=[0.0] * 30), lambda one: one["microseconds"]["read"].update(values=["x"] * 30),
    lambda one: one.update(blocks="many"), lambda one: one.update(blocks=512), lambda one: one["microseconds"].update(read=7),
    lambda one: [phase.update(values=[1.0] * 1001) for phase in one["microseconds"].values()],
])
def test_what_is_no_measurement(harm):
    data = made()
    harm(data["measurements"][1])
    with pytest.raises(AnsibleFilterError, match=r": these are not results of temp_buffer_cost\.$"):
        _flush_cost.fit(data)


@pytest.mark.parametrize("measurements", [5, [1], made(iterations=1, sizes=range(128, 229))["measurements"]], ids=["number", "list of numbers", "101 sizes"])
def test_what_are_no_measurements(measurements):
    """A million of them would take all memory of the controller."""
    with pytest.raises(AnsibleFilterError, match=r": these are not results of temp_buffer_cost\.$"):
        _flush_cost.of_host({"measurements": measurements}, 8192, 8192, 40, 2)


def test_no_measurement():
    with pytest.raises(AnsibleFilterError, match=r"^There is no measurement to fit\.$"):
        _flush_cost.fit({"measurements": []})


def test_without_numpy(monkeypatch):
    monkeypatch.setattr(_flush_cost, "numpy", None)
    assert _flush_cost.missing() == _flush_cost.MISSING
    with pytest.raises(AnsibleFilterError, match="^%s$" % re.escape(_flush_cost.MISSING)):
        _flush_cost.fit(made())


def test_plan():
    """By hand: 8192 dirty blocks at a = 1.4, b = 0.002; 40 rows a block at 0.0125; 2 workers and a leader make 2.4."""
    fitted = _flush_cost.fit(made())
    for one in fitted["classes"]:
        one["a"]["value"], one["b"]["value"] = 1.4, 0.002
    found = _flush_cost.plan(fitted, 8192, 8192, 40, 2)
    assert found["class"] == "16 to 256 MB" and found["flush_cost"] == pytest.approx(1.402 * 8192, rel=0.001)
    assert found["serial_scan_cost"] == pytest.approx(8192 * 1.5, rel=0.001)
    assert found["parallel_scan_cost"] == pytest.approx(8192 + 4096 / 2.4 + 1000, rel=0.001)
    assert found["scans_to_pay"] == pytest.approx(11485.2 / (4096 - 4096 / 2.4 - 1000), rel=0.002)
    assert found["published_flush_cost"] == pytest.approx(1.31 * 8192, rel=0.001)
    assert found["flush_cost_low"] < found["flush_cost_high"]
    # a table that is too small for parallel workers never pays
    assert _flush_cost.plan(fitted, 100, 50, 40, 2)["scans_to_pay"] is None
    assert _flush_cost.plan(fitted, 100, 50, 40, 2)["allocated"] == 100


def test_the_class_of_a_table():
    fitted = _flush_cost.fit(made(sizes=(128, 1024, 32768)))
    assert [_flush_cost.class_of(fitted, blocks)["name"] for blocks in (1, 1024, 4000, 8192, 10**7)] == [
        "below 16 MB", "below 16 MB", "below 16 MB", "16 to 256 MB", "16 to 256 MB"]


def test_nothing_is_changed():
    data = made()
    before = copy.deepcopy(data)
    _flush_cost.fit(data)
    assert data == before
