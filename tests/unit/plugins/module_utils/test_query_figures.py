# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures from made-up counts. The integration tests have real counts."""

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _query_figures, _server_io, _toast
from ansible_collections.pgfleet.cache.plugins.module_utils._others import Others
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Disk, Reads

MIB = 1 << 20
ALONE = Others(0, 0, 0)
BACKEND, IO_WORKER = (Process(pid, 1, 100, "postgres", title) for pid, title in ((101, "postgres: a db [local] idle"), (102, "postgres: io worker 0")))


def plan(read, **more):
    explained = {"Execution Time": 12.5, "Planning Time": 0.5, "Plan": {"Shared Read Blocks": read, "Shared Hit Blocks": 3}}
    explained["Plan"].update(more)
    return explained


def figures(explained, reads, others=ALONE, not_measured=()):
    found = _query_figures.figures(explained, reads, others, 8192, not_measured)
    assert set(found) | {"name", "repetition", "plan"} == set(_query_figures.RUN_KEYS)
    return found


def on(count, **changed):
    """Reads from one device, which the backend made."""
    return Reads(**dict({"backend": count, "disk": {"sda": Disk(9, count)}}, **changed))


def test_the_page_cache_has_a_lower_bound_of_nothing():
    warm = figures(plan(1000), on(0))
    assert (warm["page_cache_bytes"], warm["page_cache_percent"], warm["over_read_bytes"]) == (8192000, 100.0, 0)
    half = figures(plan(1000), on(4096000))
    assert (half["page_cache_percent"], half["over_read_bytes"], half["certainty"], half["remarks"]) == (50.0, 0, "exact", [])
    over = figures(plan(1000), on(9000000))
    assert (over["page_cache_bytes"], over["over_read_bytes"]) == (0, 808000)
    assert figures(plan(0), on(0))["page_cache_percent"] is None


def test_read_timing_of_every_version():
    assert figures(plan(1, **{"I/O Read Time": 2.5, "Temp I/O Read Time": 9.0}), Reads())["read_milliseconds"] == 2.5
    newer = dict(plan(1, **{"Shared I/O Read Time": 2.5, "Local I/O Read Time": 1.0}), Serialization={"Shared I/O Read Time": 0.25})
    assert figures(newer, Reads())["read_milliseconds"] == 3.75
    assert figures(plan(1), Reads())["read_milliseconds"] is None


def test_what_the_result_reads_is_read():
    """PostgreSQL 17 and newer count that apart."""
    explained = dict(plan(10), Serialization={"Time": 4.5, "Output Volume": 900, "Shared Hit Blocks": 1, "Shared Read Blocks": 990})
    found = figures(explained, on(1000 * 8192))
    assert (found["shared_hit"], found["shared_read"], found["read_bytes"]) == (4, 1000, 1000 * 8192)
    assert (found["serialization_milliseconds"], found["page_cache_bytes"]) == (4.5, 0)
    assert figures(plan(10), on(0))["serialization_milliseconds"] is None


def test_a_spill_is_not_read_from_the_page_cache():
    spilled = plan(100, **{"Temp Read Blocks": 1000, "Temp Written Blocks": 1200})
    found = figures(spilled, on(100 * 8192))
    assert (found["read_bytes"], found["page_cache_bytes"], found["temp_read"], found["temp_written"]) == (819200, 0, 1000, 1200)
    assert found["remarks"] == ["it wrote 9.38 MB to temporary files and read 7.81 MB of them, which are not in the bytes that it read"]
    assert figures(spilled, on(500 * 8192))["remarks"][0].endswith("; some of the device's bytes may be theirs")


def test_jit_and_settings_are_shown():
    explained = dict(plan(1), JIT={"Functions": 1, "Timing": {"Total": 25.5}}, Settings={"jit_above_cost": "0"})
    found = figures(explained, on(8192))
    assert (found["jit"], found["settings"]) == ({"functions": 1, "milliseconds": 25.5}, {"jit_above_cost": "0"})
    assert (found["certainty"], found["remarks"]) == ("exact", ["JIT compiled 1 function"])
    assert (figures(plan(1), on(0))["jit"], figures(plan(1), on(0))["settings"]) == (None, {})


NO_TELLING = "program files were read too, such as the library for JIT, and the devices cannot tell them from the data"
ELSEWHERE = "90.0 MB came from other devices than the data's, such as program files: they are not counted"


@pytest.mark.parametrize(
    ("changed", "device", "certainty", "remarks"),
    [
        # no fault, no program
        ({"disk": {"sda": Disk(9, 100 * MIB)}}, 100, "exact", []),
        # from another device, whose own counter says how much
        ({"elsewhere": {"sdb": Disk(9, 90 * MIB)}}, 10, "exact", [ELSEWHERE]),
        # others read there too
        ({"elsewhere": {"sdb": Disk(9, 95 * MIB)}}, 10, "upper_bound", [NO_TELLING, ELSEWHERE]),
        # a third device says nothing of programs
        ({"elsewhere": {"sdb": Disk(9, 90 * MIB), "sdc": Disk(9, 900 * MIB)}}, 10, "exact", [ELSEWHERE]),
        # seven faults read little, wherever from
        ({"programs": frozenset(["sda"]), "disk": {"sda": Disk(9, 100 * MIB)}, "ahead": 131072}, 100, "exact", None),
        ({"programs": frozenset(["sda"]), "disk": {"sda": Disk(9, 100 * MIB)}, "ahead": 8 * MIB}, 100, "upper_bound", [NO_TELLING]),
        # others read the data meanwhile
        ({"elsewhere": {"sdb": Disk(9, 90 * MIB)}, "disk": {"sda": Disk(9, 60 * MIB)}}, 60, "upper_bound",
         [NO_TELLING, "40.0 MB came from other devices than the data's, such as program files: they are not counted"]),
        # from the same device, from an unknown one; the device does not count
        ({"programs": frozenset(["sda"]), "disk": {"sda": Disk(9, 100 * MIB)}}, 100, "upper_bound", [NO_TELLING]),
        ({"programs": None}, 10, "upper_bound", [NO_TELLING, ELSEWHERE]),
        ({"dead": True}, 100, "upper_bound", [NO_TELLING, "a part of the data is on no device that counts its reads"]),
    ],
)
def test_programs_are_no_data(changed, device, certainty, remarks):
    """The processes are charged with 100 MB, the data's device has delivered 10."""
    faults = 0 if remarks == [] else 7
    common = {"backend": 100 * MIB, "faults": faults, "programs": frozenset(["sdb"]), "disk": {"sda": Disk(9, 10 * MIB)}}
    found = figures(plan(1280), Reads(**dict(common, **changed)))
    assert (found["device_bytes"], found["certainty"], found["remarks"]) == (device * MIB, certainty, remarks or [])
    assert found["elsewhere_bytes"] == (100 - device) * MIB


def test_the_devices_of_programs():
    """This process runs from files, too."""
    status = os.stat(os.path.realpath("/proc/self/exe"))
    with open("/proc/diskstats", encoding="ascii") as file:
        names = {(int(fields[0]), int(fields[1])): fields[2] for fields in map(str.split, file)}
    found = _server_io.program_devices(os.getpid())
    mine = names.get((os.major(status.st_dev), os.minor(status.st_dev)))
    assert found is None if mine is None else mine in found
    assert _server_io.program_devices(999999999) is None
    assert _server_io.read_ahead(None) is None and _server_io.read_ahead(frozenset(["none such"])) is None
    setting = "/sys/class/block/%s/queue/read_ahead_kb" % mine
    if os.path.exists(setting):  # a partition has its disk's
        with open(setting, encoding="ascii") as file:
            assert _server_io.read_ahead(frozenset([mine])) == max(65536, int(file.read()) * 1024)


FOREIGN = {"Node Type": "Foreign Scan"}
CAME = "1 session began meanwhile, whose reads could not be told from the query's"
GONE = frozenset([BACKEND])


def read(count, **changed):
    return Reads(disk={"a": Disk(9, count)}, **changed)


@pytest.mark.parametrize(
    ("reads", "workers", "others", "certainty", "remarks"),
    [
        # alone, a backend's own count is its own, whoever comes
        (read(9 * MIB, backend=9 * MIB, children_ended=True), 0, Others(5, 7, 9999), "exact", []),
        (read(9 * MIB, backend=9 * MIB, gone=GONE), 0, Others(None, None, None), "exact", []),
        (read(9 * MIB, io_workers=9 * MIB), 0, ALONE, "exact", []),
        (read(9 * MIB, io_workers=9 * MIB), 0, Others(1, 0, 0), "upper_bound", ["the I/O workers read for every session, and 1 other was active"]),
        (read(9 * MIB, io_workers=9 * MIB), 0, Others(None, 0, 0), "upper_bound",
         ["the I/O workers read for every session, and without pg_monitor the others cannot be seen"]),
        (read(9 * MIB, io_workers=9 * MIB, gone=GONE), 0, ALONE, "upper_bound",
         ["1 other process of this server ended, for which the I/O workers may have read"]),
        (read(9 * MIB, io_workers=9 * MIB), 0, Others(0, 1, 0), "upper_bound", [CAME]),
        (read(9 * MIB, io_workers=9 * MIB, children_ended=True), 0, ALONE, "upper_bound",
         ["another process of this server began or ended meanwhile"]),
        # a background worker without a database is in no view
        (read(9 * MIB, ended=9 * MIB, born=GONE), 2, ALONE, "upper_bound", ["another process of this server began or ended meanwhile"]),
        (read(9 * MIB, backend=9 * MIB, born=GONE), 0, ALONE, "exact", []),
        (read(9 * MIB, ended=9 * MIB, children_ended=True), 2, ALONE, "exact", []),
        (read(9 * MIB, ended=9 * MIB), 2, Others(None, 0, 0), "upper_bound",
         ["without pg_monitor other sessions cannot be seen, whose parallel workers could not be told from the query's"]),
        (read(9 * MIB, ended=9 * MIB), 2, Others(0, 1, 1000 + 1152), "upper_bound", [CAME + ": PostgreSQL counts 9.00 MB"]),
        (read(9 * MIB, ended=9 * MIB), 2, Others(0, 0, 1000 + 1152), "upper_bound",
         ["other processes of this server read 9.00 MB and ended meanwhile"]),
        (read(9 * MIB, ended=9 * MIB), 2, Others(0, 0, 1000 + 100), "exact", []),
        (read(9 * MIB, ended=9 * MIB), 2, Others(0, None, None), "upper_bound", ["the server does not tell which sessions came and went meanwhile"]),
        (read(9 * MIB, ended=MIB), 2, Others(0, 1, 9999), "exact", []),
        (read(9 * MIB, ended=9 * MIB, gone=GONE), 2, ALONE, "upper_bound",
         ["1 other process of this server ended: what it had read counts with the parallel workers'"]),
        (read(0, torn=True), 0, ALONE, "unknown", ["processes of this server came and went faster than they could be counted"]),
        (read(0, gone=frozenset([IO_WORKER])), 0, ALONE, "unknown",
         ["an I/O worker ended, and what it had read is no longer told from other processes' reads"]),
        (Reads(), 0, ALONE, "unknown", ["the data is on no block device of this host, whose reads the kernel would charge to processes"]),
        (read(90 * MIB, backend=9 * MIB), 0, ALONE, "exact", ["others read 81.0 MB from the same device meanwhile, which may have cost time"]),
    ],
)
def test_how_sure_it_is(reads, workers, others, certainty, remarks):
    gather = {"Workers Launched": workers, "Plans": [{"Workers": [{"Shared Read Blocks": 400}, {"Shared Read Blocks": 600}]}]}
    found = figures(plan(1, Plans=[gather]), reads, others)
    assert (found["certainty"], found["remarks"]) == (certainty, remarks)


def test_what_is_left_out():
    found = figures(plan(1), on(0), not_measured=[_toast.NOT_MEASURED])
    assert (found["certainty"], found["remarks"]) == ("lower_bound", [_toast.NOT_MEASURED])
    found = figures(plan(1, Plans=[FOREIGN]), on(0))
    assert (found["certainty"], found["remarks"]) == ("lower_bound", ["what a foreign server reads for the foreign tables is not counted"])
    # neither more nor less can be said
    assert figures(plan(1, Plans=[FOREIGN]), read(9 * MIB, io_workers=9 * MIB), Others(1, 0, 0))["certainty"] == "unknown"


def test_a_query_that_reads_its_result():
    assert list(_toast.readings("SELECT 1", [False])) == []
    assert list(_toast.readings("SELECT FROM t", [])) == []
    [only] = _toast.readings("SELECT i, t FROM t -- all", [False, True])
    assert only == (
        "SELECT pg_catalog.num_nonnulls(pg_catalog.random(), q.c1, pg_catalog.format('%s', q.c2)) FROM (\nSELECT i, t FROM t -- all\n) AS q (c1, c2)"
    )
    forms = list(_toast.readings("SELECT ';'; -- a;b", [True]))
    assert [one.partition("FROM (\n")[2].partition("\n) AS")[0] for one in forms] == ["SELECT ';'; -- a;b", "SELECT ';'; -- a", "SELECT ';'", "SELECT '"]
    # a function takes 100 arguments
    [wide] = _toast.readings("SELECT * FROM wide", [True] * 200)
    assert wide.count("num_nonnulls") == 3 and wide.count("pg_catalog.format") == 200
