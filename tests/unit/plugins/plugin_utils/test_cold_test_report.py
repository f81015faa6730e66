# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import re
import socket

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _host_lock
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _cold_test, _cold_test_report

MIB = 1 << 20
SIZE = 67 * MIB
BUFFERS = 16384  # blocks, 128 MB
LABELS = _cold_test.STATES


def run(state, milliseconds, device=0, hit=0, read=SIZE // 8192, **changed):
    plan = {"Node Type": "Aggregate", "Plans": [
        {"Node Type": "Seq Scan", "Relation Name": "passenger", "Shared Hit Blocks": hit, "Shared Read Blocks": read}
    ]}
    return dict({
        "query": "q", "state": state, "milliseconds": milliseconds, "certainty": "exact", "remarks": [], "shared_hit": hit, "shared_read": read,
        "read_bytes": read * 8192, "device_bytes": device, "page_cache_bytes": read * 8192 - device, "over_read_bytes": 0, "plan": plan,
    }, **changed)


def result(*runs, buffers=BUFFERS):
    return {
        "host": "db1", "server_version": "15.4", "io_method": "sync", "database": "air", "scope": "cluster", "shared_buffers_blocks": buffers,
        "runs": list(runs), "states": _cold_test.summary(runs),
    }


RING = (
    "q: passenger is larger than a quarter of shared_buffers (128 MB), so that PostgreSQL scans it through a ring buffer, which leaves little of it in"
    " shared_buffers: 'both warm' is warm in the page cache only."
)
COLD = run("both_cold", 300.0, SIZE)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([COLD, run("both_warm", 100.0), run("both_warm", 110.0)], [RING]),
        # all of it in buffers, or it would have had room, or its buffers are not known
        ([COLD, run("both_warm", 100.0, hit=SIZE // 8192, read=0)], []),
        ([COLD, run("both_warm", 100.0, read=BUFFERS // 4)], []),
        ([run("both_cold", 300.0, SIZE, plan=None), run("both_warm", 100.0, plan=None)], []),
        ([run("buffers_cold", 100.0)], []),
        ([run("both_cold", 20.0, SIZE)], [
            "q: 'both cold' read 3.27 GB/s, which no device delivers to one process: a cache below the device, such as the hypervisor's, had these"
            " blocks. A read that misses it takes longer."
        ]),
        ([COLD, run("both_cold", 900.0, SIZE)], [
            "q: 'both cold' took from 300.0 to 900.0 ms for the same reads: others used the host meanwhile, or a cache below the device, such as the"
            " hypervisor's, served some of them."
        ]),
        ([COLD, run("buffers_cold", 100.0), run("buffers_cold", 250.0)], [
            "q: 'page cache warm, buffers cold' took from 100.0 to 250.0 ms for the same reads: others used the host meanwhile."
        ]),
        # not the same reads; too short to say anything
        ([COLD, run("both_cold", 900.0, 2 * SIZE)], []),
        ([run("buffers_cold", 1.0), run("buffers_cold", 9.0)], []),
        ([COLD, run("restored", 310.0)], [
            "q: 'both restored' was slower than 'both cold', although it read less from the device: the device is not what this query waits for, or"
            " others used the host meanwhile."
        ]),
        ([COLD, run("restored", 310.0, SIZE)], []),
        ([run("both_cold", 3.0, 8192), run("restored", 4.0)], []),
    ],
)
def test_notes(runs, expected):
    assert _cold_test_report.notes(result(*runs)) == expected


def test_notes_without_what_they_need():
    assert _cold_test_report.notes(result(run("both_warm", 100.0), buffers=None)) == []
    assert _cold_test_report.notes(result(COLD, run("both_cold", 0.0, 0))) == []


def test_table():
    spilled = dict(COLD, temp_written=MIB // 8192)
    half = run("restored", 200.0, state_percent=50.0)
    lines = _cold_test_report.table(result(spilled, half, run("both_warm", 100.25, certainty="upper_bound", remarks=["others"]), buffers=0))
    assert lines == [
        "db1: PostgreSQL 15.4, io_method sync, air, scope cluster",
        "",
        "q",
        "  state                          runs     min ms    median       max  in buffers        read      device  page cache   temporary",
        "  both cold                         1      300.0     300.0     300.0         0 B    67.00 MB    67.00 MB         0 B     1.00 MB",
        "  both restored                     1      200.0     200.0     200.0         0 B    67.00 MB         0 B    67.00 MB         0 B  *",
        "  both warm                         1      100.2     100.2     100.2         0 B    67.00 MB         0 B    67.00 MB         0 B  *",
        "",
        "Bytes are medians; the page cache served at least as much as shown. 'temporary' was written to temporary files, which the other bytes leave out."
        " 1 MB is 1024 kB. The device may have caches of its own.",
        "* q, both restored: only 50 % of this state was there when the query began",
        "* q, both warm: others",
    ]


def test_owner():
    who = _cold_test_report.owner("db\n1")
    expected = r"cold test of db\\n1, run by \S+ on %s \(pid %d\), since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ" % (re.escape(socket.gethostname()), os.getpid())
    assert re.fullmatch(expected, who)
    # whether that process runs cannot be seen on the host
    assert not _host_lock._OF_A_PROCESS.match(who)


LOCK = "/dev/shm/lock"


@pytest.mark.parametrize(
    ("there", "failed", "expected"),
    [
        ({"stat": {"exists": False}}, {"stderr": "ln: no space"}, "Cannot create the lock /dev/shm/lock: ln: no space"),
        ({}, {"msg": "gone"}, "Cannot create the lock /dev/shm/lock: gone"),
        ({"stat": {"exists": True, "uid": 5}}, {}, "Another run is in progress on this host: a file. Wait until it is done. If that run no longer"
            " exists, remove the lock: rm /dev/shm/lock (as user 5)."),
        ({"stat": {"exists": True, "pw_name": "alice", "lnk_target": "query_io \x1b[2J"}}, {},
         "Another run is in progress on this host: query_io \\x1b[2J. Wait until it is done. If that run no longer exists, remove the lock: rm"
         " /dev/shm/lock (as user alice)."),
        ({"stat": {"exists": True, "pw_name": "postgres", "lnk_target": "cold test of db1, run by bob"}}, {},
         "Another run is in progress on this host: cold test of db1, run by bob. Wait until it is done. If that process no longer exists, start PostgreSQL"
         " if it is stopped, and first restore what was cached: ansible-playbook pgfleet.cache.warmup -e target=db1 -e"
         " cache_warmup_snapshot=cold_test_found -e cache_warmup_shared_buffers=true (if there is such a snapshot). Then remove the lock: rm /dev/shm/lock"
         " (as user postgres)."),
    ],
    ids=["no lock", "nothing", "file", "query_io", "cold test"],
)
def test_locked(there, failed, expected):
    assert _cold_test_report.locked(there, failed, "db1", LOCK) == expected
