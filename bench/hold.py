# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A table that a job holds beside one that is left alone, against this host's own reclaim, for ten minutes (PARTS=hold bench/run).

Both are counted by mincore(2), from a process that never touches their pages.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench, File

GIB = 0.5  # each table
SECONDS = 600
EVERY = 120
TICKS = 100  # of /proc/PID/stat, per second


def percent(files: list[File]) -> float:
    return 100 * sum(file.pages().bit_count() for file in files) / sum(file.bytes // 4096 for file in files)


def processor_seconds(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(bench: Bench) -> None:
    tables = {name: bench.create(f"bench_{name}", GIB) for name in ("held", "alone")}
    bench.server("restart", "-m", "fast")  # with none of them in shared buffers
    for files in tables.values():
        for file in files:
            file.evict()
            file.load([(0, file.bytes // 8192)])
    time.sleep(2)
    bench.sql("SELECT residency_snapshot('hold', 1, true)")
    number = bench.sql("SELECT segment_no FROM residency_snapshot_segments('hold') WHERE fork = 'main' AND relfilenumber = pg_relation_filenode('bench_held')")
    job = bench.sql(f"SELECT residency_restore_start('hold', jsonb_build_object('segments', '[{number}]'::jsonb, 'hold_until', now() + '{SECONDS + 60} s'))")
    while bench.sql(f"SELECT state = 'holding' AND counted_at IS NOT NULL FROM residency_jobs WHERE job = {job}") != "t":
        time.sleep(0.1)
    pid = bench.sql(f"SELECT pid FROM residency_jobs WHERE job = {job}")
    before, begin = processor_seconds(pid), time.monotonic()
    for seconds in range(0, SECONDS + 1, EVERY):
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        for name, files in tables.items():
            bench.row({"part": "hold", "condition": f"after {seconds} s", "method": name, "unit": "%", "values": [percent(files)]})
    used = (processor_seconds(pid) - before) / GIB * 3600 / (time.monotonic() - begin)
    bench.row({"part": "hold", "condition": "the worker", "method": "held", "unit": "CPU s", "values": [used], "note": "per GiB and hour"})
    for column in ("reclaimed", "brought_back"):
        found = int(bench.sql(f"SELECT {column} FROM residency_jobs WHERE job = {job}"))
        bench.row({"part": "hold", "condition": "by residency_jobs", "method": column, "unit": "MB", "values": [found * 8192 / 1e6]})
    bench.sql(f"SELECT residency_cancel({job})")
