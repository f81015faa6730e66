# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures, gaps and remarks from two made-up readings. The integration tests have real readings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _io_report, _io_window, _physical_io_info, _proc
from ansible_collections.pgfleet.cache.plugins.module_utils._devices import Beneath
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._io_reading import Charged, Counters, Served
from ansible_collections.pgfleet.cache.plugins.module_utils._io_report import Location
from ansible_collections.pgfleet.cache.plugins.module_utils._io_window import Database, Object, Reading, Sessions, Statistics

BLOCK = 8192
MIB = 1 << 20
QUIET = Sessions(0, 0, 0, None, 0)
RELATIONS = Object(1000, 1000 * BLOCK, 100, 100 * BLOCK)
BEGUN = Reading(
    host="db1",
    boot="boot",
    clock=1795500000.0,
    seconds=1000.0,
    data_directory="/data",
    postmaster=(100, 7),
    recovered="2026-11-24 06:00:00+00",
    block_size=BLOCK,
    statistics=Statistics(
        {"0": Database("", 10, 20, 0, None), "5": Database("pgio", 1000, 2000, 0, None)}, {"relation": RELATIONS}, "x", None, None, 5000, "y"
    ),
    sessions=QUIET,
    charged=Charged(MIB, MIB, 0, False),
    volumes=("dm-0",),
    disks=("sda",),
    counters={"sda": Counters(100, 1, 100 * BLOCK, 500, 10, 1, 10 * BLOCK, 50, 600, 700, 9),
              "dm-0": Counters(90, 0, 90 * BLOCK, 400, 10, 0, 10 * BLOCK, 50, 500, 600, 11)},
    cgroup={"dm-0": Served(1, 2, 3, 4)},
    memory={"refaulted_pages": 5, "major_faults": 6},
    pressure={"io_some": 1000000, "io_full": 0, "memory_some": 0, "memory_full": 0},
)
DATA = Location("data", "/data", None, Beneath("/data", "ext4", "/dev/dm-0", ("dm-0",), ("sda",), (), None))


@pytest.fixture(autouse=True)
def no_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(_proc, "_SYSTEM", str(tmp_path))


def grown(counters, **by):
    return counters._replace(**{name: getattr(counters, name) + count for name, count in by.items()})


def ended(blocks=80000, served=50000, others=0, elsewhere=0, seconds=10.0):
    """SLOB's way: each read is of one block."""
    old = BEGUN.statistics
    return replace(
        BEGUN,
        clock=BEGUN.clock + seconds,
        seconds=BEGUN.seconds + seconds,
        statistics=replace(
            old,
            databases=dict(old.databases, **{"5": Database("pgio", 1000 + blocks, 2000 + 20000, 0, None)}),
            objects={"relation": Object(1000 + blocks, (1000 + blocks) * BLOCK, 300, 300 * BLOCK)},
            wal_bytes=6000,
        ),
        charged=Charged(MIB + served * BLOCK, 3 * MIB, MIB, False),
        counters={
            "sda": grown(BEGUN.counters["sda"], reads=served + others + elsewhere, read_bytes=(served + others + elsewhere) * BLOCK,
                         read_ms=served * 2, writes=200, write_bytes=200 * BLOCK, write_ms=100, busy_ms=9000, queue_ms=served * 2),
            "dm-0": grown(BEGUN.counters["dm-0"], reads=served + others, read_bytes=(served + others) * BLOCK, busy_ms=8000),
        },
        cgroup={"dm-0": Served(1 + served, 2 + served * BLOCK, 3, 4)},
        memory={"refaulted_pages": 25, "major_faults": 6},
        pressure={"io_some": 6000000, "io_full": 0, "memory_some": 0, "memory_full": 0},
    )


def report(begun=BEGUN, end=None, places=(DATA,), foreign=0):
    return _io_report.report(begun, end or ended(), places, foreign)


def test_the_articles_formulas():
    """RIOPS from pg_stat_database, RPIOPS from /proc/diskstats, by hand."""
    found = report()
    reads = found["reads"]
    assert (reads["counted"], reads["riops"]) == (80000, 8000.0)
    assert (reads["served"], reads["rpiops"], reads["ratio"]) == (50000, 5000.0, 1.6)
    assert (reads["page_cache_bytes"], reads["page_cache_percent"]) == (30000 * BLOCK, 37.5)
    assert (reads["hits"], reads["hit_percent"]) == (20000, 20.0)
    assert (reads["server_bytes"], reads["over_read_bytes"]) == (50000 * BLOCK, 0)
    assert found["writes"] == {
        "counted": 200, "counted_bytes": 200 * BLOCK, "wiops": 20.0, "wal_bytes": 1000, "served": 200, "served_bytes": 200 * BLOCK, "wpiops": 20.0,
        "ratio": 1.0, "server_bytes": MIB,
    }
    assert found["others"] == {"read_bytes": 0, "read_percent": 0.0, "elsewhere_bytes": 0, "same_filesystems_bytes": 0}
    assert (found["certainty"], found["gaps"], found["remarks"]) == ("exact", [], [])
    assert found["msg"] == (
        "In 10 s, PostgreSQL counted 8000 reads/s and the disks served 5000/s; at least 37.5 % of its bytes came from the page cache."
    )


def test_devices():
    found = report()
    [disk], [volume] = found["disks"], found["volumes"]
    assert (disk["read_milliseconds"], disk["write_milliseconds"], disk["queue"], disk["utilisation_percent"]) == (2.0, 0.5, 10.0, 90.0)
    assert (disk["read_request_bytes"], disk["reads_per_second"], disk["read_bytes_per_second"]) == (BLOCK, 5000.0, 5000.0 * BLOCK)
    assert (volume["device"], volume["reads"], volume["utilisation_percent"]) == ("dm-0", 50000, 80.0)
    assert {key: disk[key] for key in found["total"]} == found["total"]
    assert found["cgroup"] == {"reads": 50000, "read_bytes": 50000 * BLOCK, "writes": 0, "write_bytes": 0, "foreign_processes": 0}
    assert found["memory"] == {"refaulted_pages": 20, "major_faults": 0}
    assert found["pressure"]["io_some_percent"] == 50.0
    assert found["databases"] == [{"name": "pgio", "counted": 80000, "hits": 20000, "temp_bytes": 0}]


def test_the_sum_of_two_disks():
    both = [replace(one, disks=("sda", "sdb"), counters=dict(one.counters, sdb=counters)) for one, counters in (
        (BEGUN, Counters(*[0] * 11)), (ended(), Counters(1000, 0, 1000 * BLOCK, 9000, 0, 0, 0, 0, 5000, 20000, 0)))]
    total = report(*both)["total"]
    assert (total["reads"], total["utilisation_percent"], total["queue"]) == (51000, 90.0, 12.0)
    assert total["read_milliseconds"] == round((100000 + 9000) / 51000, 3)


def test_others():
    found = report(end=ended(others=3000, elsewhere=1000))
    assert found["others"] == {
        "read_bytes": 4000 * BLOCK, "read_percent": 7.4, "elsewhere_bytes": 1000 * BLOCK, "same_filesystems_bytes": 3000 * BLOCK,
    }
    assert found["certainty"] == "upper_bound"
    assert found["remarks"] == [
        "others read 31.2 MB from these disks meanwhile (7.81 MB for other file systems, 23.4 MB in the cluster's own):"
        " served, rpiops and ratio include them"
    ]
    assert report(end=ended(others=400))["certainty"] == "exact", "less than 1 %"


def test_a_window_without_activity():
    found = report(end=ended(blocks=0, served=0))
    assert (found["reads"]["counted"], found["reads"]["ratio"], found["reads"]["page_cache_percent"], found["reads"]["rpiops"]) == (0, None, None, 0.0)
    assert found["disks"][0]["read_milliseconds"] is None
    assert found["remarks"] == ["PostgreSQL read nothing inside the window"]


def without(reading, **changed):
    return replace(reading, **changed)


def with_statistics(**changed):
    one = ended()
    return replace(one, statistics=replace(one.statistics, **changed))


def with_counters(name, counters):
    one = ended()
    changed = dict(one.counters, **{name: counters}) if counters else {key: value for key, value in one.counters.items() if key != name}
    return replace(one, counters=changed)


NEW = ended()
DATABASES = NEW.statistics.databases
SDA = NEW.counters["sda"]
LOST = "what it read and wrote before and after cannot be added up"


@pytest.mark.parametrize(
    ("end", "gap", "unknown", "known"),
    [
        (without(NEW, postmaster=(101, 9)), "PostgreSQL was restarted inside the window: " + LOST,
         ["reads.counted", "reads.server_bytes", "writes.counted", "writes.wal_bytes", "others", "cgroup"], ["reads.served"]),
        (without(NEW, postmaster=(100, 9)), "PostgreSQL was restarted inside the window: " + LOST, ["reads.counted"], ["reads.served"]),
        (without(NEW, recovered="later"), "a process of PostgreSQL crashed inside the window: after the recovery its statistics began anew",
         ["reads.counted", "reads.page_cache_bytes", "writes.counted"], ["reads.served", "reads.server_bytes", "cgroup"]),
        (with_statistics(databases=dict(DATABASES, **{"5": DATABASES["5"]._replace(reset="now")})),
         "the statistics of database pgio were reset inside the window", ["reads.counted", "reads.hits", "reads.ratio"], ["writes.counted"]),
        (with_statistics(databases=dict(DATABASES, **{"5": DATABASES["5"]._replace(read=3)})),
         "the statistics of database pgio were reset inside the window", ["reads.counted"], ["reads.served"]),
        (with_statistics(databases=dict(DATABASES, **{"0": DATABASES["0"]._replace(hit=3)})),
         "the statistics of the shared relations were reset inside the window", ["reads.counted"], ["reads.served"]),
        (with_statistics(databases={"0": DATABASES["0"]}), "database pgio was dropped inside the window, and its statistics with it",
         ["reads.counted"], ["reads.served"]),
        (with_statistics(objects_reset="now"), "pg_stat_io was reset inside the window", ["pg_stat_io", "writes.counted"], ["reads.counted"]),
        (with_statistics(objects={"relation": Object(0, 0, 0, 0)}), "pg_stat_io was reset inside the window", ["writes.counted"], ["reads.counted"]),
        (with_statistics(wal_reset="now"), "pg_stat_wal was reset inside the window", ["writes.wal_bytes"], ["writes.counted"]),
        (with_counters("sda", SDA._replace(reads=5)), "the counters of sda wrapped or began anew inside the window",
         ["reads.served", "reads.rpiops", "reads.ratio", "total.reads", "others", "writes.served"], ["reads.counted", "reads.page_cache_bytes"]),
        (with_counters("sda", SDA._replace(queue_ms=5)),
         "the times of sda wrapped inside the window: its latency, queue and utilisation are unknown",
         ["total.queue", "total.read_milliseconds", "total.utilisation_percent"], ["reads.served"]),
        (with_counters("sda", SDA._replace(sequence=10)), "sda was exchanged inside the window", ["reads.served", "total.reads"], ["reads.counted"]),
        (with_counters("sda", None), "sda went away inside the window, or is no longer counted", ["reads.served"], ["reads.counted"]),
        (with_counters("dm-0", None), "dm-0 went away inside the window, or is no longer counted", ["others"], ["reads.served"]),
        (without(NEW, disks=("sda", "sdb")), "sdb holds data only since some time inside the window", ["reads.served"], ["reads.counted"]),
        (without(NEW, disks=()), "sda no longer holds data since some time inside the window", ["reads.served"], ["reads.counted"]),
        (without(NEW, charged=Charged(0, 0, 0, False)),
         "what the kernel charges to PostgreSQL's processes went back: one of them was counted before it had ended, and not after",
         ["reads.server_bytes", "others"], ["reads.served"]),
        (without(NEW, cgroup={"dm-0": Served(0, 0, 0, 0)}), "the counters of the cgroup began anew inside the window", ["cgroup"], ["reads.served"]),
    ],
)
def test_what_began_anew_is_not_computed(end, gap, unknown, known):
    found = report(end=end)

    def value(name):
        key, dummy, below = name.partition(".")
        return found[key] if not below else found[key][below]

    assert found["gaps"] == [gap]
    assert {name: value(name) for name in unknown} == dict.fromkeys(unknown)
    assert None not in [value(name) for name in known]
    assert found["certainty"] == "unknown"
    assert found["msg"].endswith("Unknown: %s." % gap)


def test_a_disk_that_is_not_counted():
    one, two = ({name: value for name, value in reading.counters.items() if name != "sda"} for reading in (BEGUN, NEW))
    found = report(replace(BEGUN, counters=one), replace(NEW, counters=two))
    assert found["gaps"] == ["the kernel does not count the I/O of sda (its queue/iostats is 0, or it is not in /proc/diskstats)"]
    assert found["reads"]["served"] is None


def test_a_reboot():
    found = report(end=replace(NEW, boot="another"))
    assert found["window"]["seconds"] is None and found["reads"]["served"] is None and found["reads"]["counted"] is None
    assert found["msg"] == "Nothing is known of this window: the host was rebooted inside the window, and every counter began anew."


def test_a_new_database_began_with_nothing():
    end = with_statistics(databases=dict(DATABASES, **{"9": Database("new", 50, 60, 70, "now")}))
    found = report(end=end)
    assert (found["reads"]["counted"], found["gaps"]) == (80050, [])
    assert found["databases"][1] == {"name": "new", "counted": 50, "hits": 60, "temp_bytes": 70}


def test_a_place_that_cannot_be_measured():
    """Its reads are the server's too: nothing tells them from those of the disk."""
    there = Location("tablespace", "/nfs/t", 16384, Beneath("/nfs", "nfs4", "filer:/x", (), (), (), "nfs4 is a network file system"))
    found = report(places=(DATA, there))
    assert found["gaps"] == ["/nfs/t is on no disk that can be measured: nfs4 is a network file system"]
    assert (found["others"], found["certainty"]) == (None, "unknown")
    alone = report(replace(BEGUN, disks=(), volumes=(), counters={}), replace(NEW, disks=(), volumes=(), counters={}), (there,))
    assert (alone["total"], alone["disks"], alone["reads"]["served"], alone["reads"]["ratio"]) == (None, [], None, None)
    assert alone["reads"]["page_cache_percent"] == 37.5, "the processes are charged with what the network served"


def test_before_postgresql_16():
    old, new = (replace(one, statistics=replace(one.statistics, objects=None, objects_reset=None, written=count, written_reset="z"))
                for one, count in ((BEGUN, 10), (NEW, 40)))
    found = report(old, new)
    assert (found["pg_stat_io"], found["writes"]["counted"]) == (None, 30)
    found = report(old, replace(new, statistics=replace(new.statistics, written_reset="now")))
    assert (found["writes"]["counted"], found["gaps"]) == (None, ["pg_stat_bgwriter was reset inside the window"])


@pytest.mark.parametrize(
    ("begun", "end", "remark"),
    [
        (QUIET, Sessions(0, 0, 2, 90.0, 0), "at the end 2 other sessions were in a transaction, the oldest for 1 min 30 s: what they read in it in the"
         " window is not counted"),
        (Sessions(0, 0, 1, 5.0, 0), QUIET, "at the beginning 1 other session was in a transaction, the oldest for 5.0 s: what it read in it before the"
         " window is counted"),
        (QUIET, Sessions(0, 1, 0, None, 0), "at the end 1 other session was idle for less than 10 s: what it read last in the window may be missing"),
        (Sessions(0, 2, 0, None, 0), QUIET, "at the beginning 2 other sessions were idle for less than 10 s: what they read last before the window"
         " may be counted"),
        (Sessions(1, 0, 0, None, 0), QUIET, "other sessions were at work, which report at most once per second: what PostgreSQL counted may be of 1 s more"
         " or less than this window"),
        (QUIET, Sessions(0, 0, 0, None, 1), "at the end 1 other session was without track_activities, and may not have reported all"),
    ],
)
def test_what_is_not_settled(begun, end, remark):
    assert report(replace(BEGUN, sessions=begun), replace(NEW, sessions=end))["remarks"] == [remark]


def test_a_second_of_a_long_window_is_nothing():
    assert report(end=replace(ended(seconds=200.0), sessions=Sessions(3, 0, 0, None, 0)))["remarks"] == []


def test_remarks():
    torn = replace(NEW, charged=NEW.charged._replace(torn=True))
    assert [one for one in report(end=torn)["remarks"] if "faster than they could be counted" in one]
    spilled = with_statistics(databases=dict(DATABASES, **{"5": DATABASES["5"]._replace(temp_bytes=5 * MIB)}))
    assert "5.00 MB of temporary files were written, of which no read is counted" in report(end=spilled)["remarks"]
    recovery = with_statistics(objects={"relation": Object(101000, 101000 * BLOCK, 300, 300 * BLOCK)})
    assert report(end=recovery)["remarks"] == [
        "pg_stat_io counts 20000 blocks more than pg_stat_database, which has none of recovery and of copied databases"
    ]
    ahead = with_counters("sda", SDA._replace(reads=SDA.reads - 46875))
    assert [one for one in report(end=ahead)["remarks"] if one.startswith("a read of the disks is of 128 kB on average")]
    elsewhere = replace(NEW, charged=NEW.charged._replace(read_bytes=NEW.charged.read_bytes + 400 * MIB))
    assert [one for one in report(end=elsewhere)["remarks"] if one.startswith("the disks count 400 MB less than the kernel charges")]


# --- a reading in a variable ---


def test_a_reading_comes_back_as_it_was():
    there = json.loads(json.dumps(_io_window.plain(BEGUN)))
    assert _io_window.parsed(there) == BEGUN
    none = replace(BEGUN, cgroup=None, boot=None, statistics=replace(BEGUN.statistics, objects=None, objects_reset=None, written=3))
    assert _io_window.parsed(json.loads(json.dumps(_io_window.plain(none)))) == none


def test_a_reading_without_a_key():
    for name in _io_window.plain(BEGUN):
        with pytest.raises(ResidencyError, match="reading is not what state begin has returned"):
            _io_window.parsed({key: value for key, value in _io_window.plain(BEGUN).items() if key != name})


# --- when the statistics are complete ---


EDGE = {"clock": "2026-11-24 06:00:00+00", "sessions": 7}


class Looks:
    """Answers of pg_stat_activity, one after another."""

    def __init__(self, *answers, worked=0, sessions=7):
        self.answers, self.more = list(answers), {"worked": worked, "sessions": sessions}

    def only_row(self, dummy, params):
        assert params == (EDGE["clock"],)
        working, pending = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"working": working, "pending": pending, "open": 0, "oldest": None, "unknown": 0, **self.more}


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_physical_io_info.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_physical_io_info.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


@pytest.mark.parametrize(
    ("looks", "waited", "pending"),
    [
        ([(0, 0)], 0, 0),
        ([(0, 2), (0, 2), (0, 1), (0, 0)], 0.6, 0),
        ([(0, 2)], 11, 2),
        ([(1, 2)], 0, 2),
        ([(0, 2), (1, 2)], 0.2, 2),
    ],
    ids=["quiet", "until they have reported", "not for ever", "not for those that work", "not once they work"],
)
def test_sessions_get_time_to_report(clock, looks, waited, pending):
    sessions, worked = _physical_io_info._settled(Looks(*looks), 11, EDGE)
    assert (sessions.pending, worked) == (pending, False)
    assert clock[0] == pytest.approx(waited)


@pytest.mark.parametrize("more", [{"worked": 1}, {"sessions": 8}], ids=["is there", "came and went"])
def test_a_session_that_worked_meanwhile(clock, more):
    assert _physical_io_info._settled(Looks((0, 1), (0, 0), **more), 11, EDGE)[1]


def test_who_does_not_want_to_wait(clock):
    assert _physical_io_info._settled(Looks((0, 2)), 0, EDGE)[0].pending == 2
    assert clock[0] == 0
