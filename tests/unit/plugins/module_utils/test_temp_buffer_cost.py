# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _temp_buffer_cost as cost
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

OPTIONS = cost.Options(
    sizes=None, iterations=None, quick=False, dependents=False, reach="page_cache", tablespace=None, rate="200MB", time_limit="1h", seed=0, progress=None,
)


def changed(**options):
    return cost.Options(**dict(OPTIONS.__dict__, **options))


def test_defaults():
    """Those of the published benchmark."""
    cost.check_options(OPTIONS)
    assert (OPTIONS.blocks[0], OPTIONS.blocks[-1], len(OPTIONS.blocks), OPTIONS.rounds) == (128, 262144, 12, 30)
    quick = changed(quick=True)
    assert (quick.blocks, quick.rounds) == ([128, 512, 2048, 8192, 32768], 5)
    assert cost.what(OPTIONS) == "12 sizes of 1.00 MB to 2.00 GB, 30 iterations each"
    assert cost.what(changed(sizes=[128], iterations=1, dependents=True, reach="device")) == (
        "1 size of 1.00 MB with TOAST and an index, 1 iteration each, as far as the device")


@pytest.mark.parametrize(("options", "message"), [
    ({"sizes": [4194305]}, "sizes has 4194305: each must be from 128 to 4194304 blocks of 8 kB."),
    ({"sizes": list(range(128, 229))}, "sizes has 101 sizes: it must have at most 100."),
    ({"sizes": []}, "sizes is empty: leave it out, or name one."),
    ({"iterations": 0}, "iterations is 0: it must be from 1 to 1000."),
    ({"quick": True, "iterations": 3}, "quick has sizes and iterations of its own: set either quick, or sizes and iterations."),
    ({"time_limit": "soon"}, "time_limit is 'soon': it must be a duration such as 36h; the units are s, min, h, d and w."),
])
def test_wrong_options(options, message):
    with pytest.raises(ResidencyError, match="^%s$" % re.escape(message)):
        cost.check_options(changed(**options))


def explained(milliseconds, **counts):
    """As PostgreSQL 15 has it, with what is of no interest here left out."""
    plan = {"Node Type": "Function Scan", "Actual Rows": 1, "Shared Hit Blocks": 3, "Local Hit Blocks": 0, "Local Read Blocks": 0, "Local Dirtied Blocks": 0,
            "Local Written Blocks": 0}
    return [{"Plan": dict(plan, **counts), "Planning": {"Local Read Blocks": 77}, "Planning Time": 9.9, "Execution Time": milliseconds}]


def test_step_of():
    assert cost.step_of(explained(0.978, **{"Local Written Blocks": 1025})) == cost.Step(978.0, 0, 0, 0, 1025)
    assert cost.step_of(explained(1.2, **{"Local Hit Blocks": 4, "Local Dirtied Blocks": 5, "Local Read Blocks": 6})) == cost.Step(1200.0, 4, 6, 5, 0)


class Session:
    """Answers as a server whose flush or read does what it likes."""

    schema = "ext"

    def __init__(self, *steps, left=0):
        self.steps, self.left = list(steps), left

    def rows(self, sql, params=()):
        return [{"QUERY PLAN": self.steps.pop(0)}]

    def only_row(self, sql, params=()):
        return {"dirtied": self.left}

    def command(self, sql):
        pass


def table(session):
    return cost._Table(session, OPTIONS, float("inf"), "/data", "/data/base")


@pytest.fixture(autouse=True)
def _no_end(monkeypatch):
    monkeypatch.setattr(cost._Table, "_limit", lambda self: None)


@pytest.mark.parametrize(("expected", "written", "left", "right"), [
    (128, 128, 0, True), (128, 127, 0, False), (128, 129, 0, False), (128, 128, 1, False), (0, 0, 0, True), (0, 1, 0, False),
])
def test_a_flush_writes_what_is_dirty(expected, written, left, right):
    one = table(Session(explained(1.0, **{"Local Written Blocks": written}), left=left))
    if right:
        assert one._flush(False, expected)[1] == 1000.0
        return
    with pytest.raises(ResidencyError, match=r"^This is not what was to be measured: a flush of %d dirty buffers wrote %d blocks, and left %d\.$" % (
            expected, written, left)):
        one._flush(False, expected)


@pytest.mark.parametrize(("hit", "read", "written", "again", "right"), [
    (0, 128, 0, False, True), (1, 127, 0, False, False), (0, 128, 1, False, False), (128, 0, 0, True, True), (127, 1, 0, True, False),
    (128, 0, 0, False, False),
])
def test_a_read_is_a_read(hit, read, written, again, right):
    counts = {"Local Hit Blocks": hit, "Local Read Blocks": read, "Local Written Blocks": written}
    one = table(Session(explained(1.0, **counts)))
    if right:
        assert one._read("false", 0, "false", 128, again).microseconds == 1000.0
        return
    with pytest.raises(ResidencyError, match=r"^This is not what was to be measured: reading 128 blocks hit %d, read %d and wrote %d\.$" % (
            hit, read, written)):
        one._read("false", 0, "false", 128, again)


def iteration(write=3.0, **changes):
    return dict({
        "microseconds": {**dict.fromkeys(cost.PHASES, 1.0), "write": write},
        "buffers": 131, "written": 131, "read": 128, "random_written": 128, "written_back": 0.0, "device_written": 0.5, "device_read": 0.0,
        "queued": 0.02, "swapped": 0,
    }, **changes)


def test_summary():
    found = cost.summary(128, [iteration(write) for write in (5.0, 3.0, 100.0, 3.5, 4.0)])
    assert found["microseconds"]["write"] == {"median": 4.0, "mad": 1.0, "low": 3.5, "high": 5.0, "values": [5.0, 3.0, 100.0, 3.5, 4.0]}
    assert (found["blocks"], found["iterations"], found["written"], found["buffers"], found["swapped_pages"]) == (128, 5, 131, 131, 0)
    assert (found["written_back_percent"], found["device_write_percent"], found["device_read_percent"]) == (0.0, 50.0, 0.0)
    assert cost.summary(128, [iteration()])["microseconds"]["write"] == {"median": 3.0, "mad": 0.0, "low": 3.0, "high": 3.0, "values": [3.0]}


@pytest.mark.parametrize(("shares", "kind", "expected"), [
    ([(0.0, 90.0), (4.0, 90.0)], "solid state", "page_cache"), ([(100.0, 0.0)], "solid state", "device"), ([(0.0, 0.0), (60.0, 0.0)], "nvme", "partly_device"),
    ([(None, 1.0)], "nvme", "page_cache"), ([(None, 120.0)], "nvme", "device"), ([(None, None)], "network", "unknown"), ([(0.0, None)], "memory", "memory"),
])
def test_reached(shares, kind, expected):
    """The kernel's word about the files themselves comes before counters that others move too."""
    assert cost.reached([{"written_back_percent": back, "device_write_percent": device} for back, device in shares], kind) == expected


def found(**changes):
    one = dict(cost.summary(128, [iteration()] * 30), **changes)
    return {"measurements": [one], "storage": {"kind": "nvme", "mount": "/data"}, "reached": "page_cache"}


def test_remarks():
    only = changed(sizes=[128])
    assert cost.remarks(found(device_read_percent=3.5), only) == [
        "writes reached the page cache and not the device, and up to 3.5 % of a sequential read came from it"]
    assert cost.remarks(found(), only) == ["writes reached the page cache and not the device"]
    late = cost.remarks(found(iterations=7), changed(sizes=[128, 1024, 8192], time_limit="20s"))
    assert late[:2] == [
        "the time limit of 20s, with a rate of 200MB, left no time for 8.00 MB, 64.0 MB",
        "the time limit of 20s, with a rate of 200MB, left time for fewer iterations: 7 at 1.00 MB"]
    assert cost.remarks(found(swapped_pages=9), only)[0].startswith("the host swapped while 1.00 MB were measured")
    busy = cost.remarks(found(processor_wait_percent=45.5), only)
    assert busy[0] == "the host was busy: the server process waited for a processor 45.5 to 45.5 % of the time, which widens the intervals"
    device = changed(sizes=[128], reach="device")
    assert cost.remarks(found(device_read_percent=89.0), device) == [
        "the kernel does not confirm that what was written reached the device", "the kernel does not confirm that what was read came from the device"]
    assert cost.remarks(dict(found(device_read_percent=100.0), reached="device"), device) == []
    memory = dict(found(), reached="memory", storage={"kind": "memory", "mount": "/dev/shm"})
    assert cost.remarks(memory, device) == ["/dev/shm is in memory: there is no device to reach"]
    assert cost.remarks(memory, only) == []


class Locked:
    """The session that has the lock, until somebody ends it."""

    def __init__(self, ends_at, clock):
        self._ends_at, self._clock = ends_at, clock

    def command(self, sql):
        if self._clock.now >= self._ends_at:
            raise ResidencyError("PostgreSQL ended the connection.")


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def run(monkeypatch, options, seconds_of, ends_at=1e9):
    clock = Clock()
    monkeypatch.setattr(cost, "time", clock)
    done = []

    def one(self, blocks, number):
        seconds = seconds_of(blocks)
        if clock.now + seconds > self._until:
            clock.now = self._until
            raise cost.OutOfTimeError
        clock.now += seconds
        done.append((number, blocks))
        return iteration()

    monkeypatch.setattr(cost.Run, "_iteration", one)
    result = dict(cost.empty_result(), storage={"kind": "nvme", "mount": "/"})
    cost.Run(options, Locked(ends_at, clock), None, "/data", "/data/base", "pg_default", result).all(lambda text: None)
    return result, done, clock


def test_rounds_take_turns(monkeypatch):
    result, done, dummy = run(monkeypatch, changed(sizes=[1024, 128], iterations=2), lambda blocks: 0.1)
    assert done == [(0, 128), (0, 1024), (1, 128), (1, 1024)] and result["complete"]


def test_the_time_limit(monkeypatch):
    """The largest size loses iterations first, and none begins that would not end."""
    options = changed(sizes=[128, 1024, 8192], iterations=10, time_limit="60s", rate="100GB")
    result, dummy, clock = run(monkeypatch, options, lambda blocks: blocks / 512)
    assert clock.now <= 60 and not result["complete"]
    counts = {one["blocks"]: one["iterations"] for one in result["measurements"]}
    assert counts == {128: 8, 1024: 5, 8192: 3}
    assert result["msg"].startswith("Measured 16 of 30 iterations (3 sizes of 1.00 MB to 64.0 MB, 10 iterations each) in ")
    with pytest.raises(ResidencyError, match=r"^Not one iteration ended within the time_limit of 1s: set a longer one, or smaller sizes\.$"):
        run(monkeypatch, changed(sizes=[8192], time_limit="1s"), lambda blocks: 16.0)


def test_the_rate(monkeypatch):
    """10 iterations of 1 MB, each written four times, at 1 MB per second. Nobody waits for what does not come."""
    dummy, dummy, clock = run(monkeypatch, changed(sizes=[128], iterations=10, rate="1MB"), lambda blocks: 0.01)
    assert 35.9 <= clock.now <= 36.2
    result, done, clock = run(monkeypatch, changed(sizes=[128, 1024], iterations=10, rate="1B"), lambda blocks: 0.01)
    assert done == [(0, 128)] and clock.now < 1 and result["remarks"][0] == "the time limit of 1h, with a rate of 1B, left no time for 8.00 MB"


def test_whoever_ends_the_session_with_the_lock_ends_the_measurement(monkeypatch):
    """Also in a pause between two iterations, in which there is no other."""
    with pytest.raises(ResidencyError, match="ended the connection"):
        run(monkeypatch, changed(sizes=[1024], iterations=10, rate="1MB"), lambda blocks: 0.01, ends_at=5.0)
