# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.action import residency_restore


def test_a_warning_of_both_looks_is_there_once():
    meant = "'warm' means warm@3, from %s ago: warm@4 is newer and thin (less than half as full)."
    assert residency_restore.merged(["too long", meant % "59 s"], [meant % "61 s", "new"]) == ["too long", meant % "59 s", "new"]


def test_line():
    result = {"progress": 40.0, "seconds": 2.0, "bytes_per_second": 100 * 1024**2, "snapshot": "warm@3", "state": "running"}
    assert residency_restore.progress_line("db1", result) == "db1: 40 % of warm@3, 100 MB/s, 3.0 s left"
    assert residency_restore.progress_line("db1", dict(result, snapshot=None)) == "db1: 40 % of the fallback relations, 100 MB/s, 3.0 s left"


def test_line_before_there_is_a_speed():
    result = {"progress": 0.0, "seconds": 2.0, "bytes_per_second": 0, "snapshot": "warm@3", "state": "running"}
    assert residency_restore.progress_line("db1", result) == "db1: 0 % of warm@3, 0 B/s"


def test_line_of_a_job_that_waits():
    result = {"progress": 0.0, "seconds": 40.0, "bytes_per_second": 0, "snapshot": "warm@3", "state": "waiting"}
    assert residency_restore.progress_line("db1", result) == "db1: warm@3 is waiting for another restore on this host, for 40 s so far"
    result["waited"] = {"reason": 'waiting for the restore of "/data" (PID 5)'}
    assert residency_restore.progress_line("db1", result) == 'db1: warm@3 is waiting for the restore of "/data" (PID 5), for 40 s so far'
