# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others notice while a table is loaded again and again (make bench): direct reads of 8 KiB, one and eight at a time, and pgbench.

By scheduler of the device, which is set for the rows and put back afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench import Bench, Method

SCHEDULERS = ("none", "mq-deadline", "bfq")
SECONDS = 4
READERS = (1, 8)
ACCOUNTS_SCALE = 100  # of pgbench: 1.3 GB, of which a run reads a small part


def queue(device: int) -> Path:
    directory = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    return (directory if (directory / "queue").exists() else directory.resolve().parent) / "queue/scheduler"


@contextlib.contextmanager
def scheduler(device: int, name: str) -> Iterator[bool]:
    """False where the device does not have that scheduler."""
    file = queue(device)
    try:
        before = re.search(r"\[(.+?)\]", file.read_text())
        file.write_text(name)
    except OSError as error:
        print(f"scheduler {name}: left out ({error})")
        yield False
        return
    try:
        yield True
    finally:
        if before is not None:
            file.write_text(before.group(1))


def methods_for(bench: Bench, pattern: str, wanted: list[bytes]) -> dict[str, Method | None]:
    """The peers that know no map load only whole tables."""
    methods: dict[str, Method | None] = {"alone": None, "ours, default": bench.ours(wanted, "{}"), "pgfincore": bench.pgfincore(wanted)}
    if pattern == "full":
        methods.update({"pg_prewarm read": bench.prewarm(wanted, "read"), "vmtouch -t": bench.vmtouch(wanted)})
        methods["cat"] = lambda: bench.time_to_resident(wanted, lambda: bench.tool("cat", *(str(f.path) for f in bench.files)))
    return methods


def in_turn(methods: dict[str, Method | None], repetition: int) -> list[tuple[str, Method | None]]:
    """Each repetition begins with another one."""
    every = list(methods.items())
    return every[repetition % len(every) :] + every[: repetition % len(every)]


def load_until(process: subprocess.Popen[str], method: Method | None) -> str:
    """Loads the table again and again until the process ends; what that has printed."""
    while method is not None and process.poll() is None:
        method()
    output = process.communicate()[0]
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    return output


def read_directly(bench: Bench, readers: int, method: Method | None) -> tuple[float, float, float]:
    """Reads per second in sum, and p99 and the worst, milliseconds."""
    fio = subprocess.Popen(
        ["fio", "--name=foreground", f"--filename={bench.directory}/data/base/fio", "--size=512M", "--rw=randread", "--bs=8k", "--iodepth=1",
         "--direct=1", "--time_based", f"--runtime={SECONDS}", f"--numjobs={readers}", "--group_reporting", "--output-format=json"],
        stdout=subprocess.PIPE, text=True)
    data = json.loads(load_until(fio, method))["jobs"][0]["read"]
    return data["iops"], data["clat_ns"]["percentile"]["99.000000"] / 1e6, data["clat_ns"]["max"] / 1e6


def run_pgbench(bench: Bench, method: Method | None) -> tuple[float, float, float]:
    """Transactions per second, and p99 and the worst, milliseconds: of selects whose blocks are not cached."""
    accounts = bench.accounts
    for file in accounts:
        file.evict()
    log = bench.directory / "pgbench"
    log.mkdir(exist_ok=True)
    for old in log.iterdir():
        old.unlink()
    pgbench = subprocess.Popen(
        [str(bench.directory / "usr/lib/postgresql/15/bin/pgbench"), "-h", str(bench.directory), "-U", "postgres", "-n", "-S", "-M", "prepared",
         "-c", "2", "-T", str(SECONDS), f"--random-seed={random.randrange(10**6)}", "-l", f"--log-prefix={log}/log", "postgres"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    load_until(pgbench, method)
    # client, transaction, microseconds, ...
    times = sorted(int(line.split()[2]) / 1000 for file in log.iterdir() for line in file.read_text().splitlines())
    return len(times) / SECONDS, times[int(0.99 * len(times))], times[-1]


def rows(bench: Bench, part: str, condition: str, unit: str, results: dict[str, list[tuple[float, float, float]]]) -> None:
    alone = [statistics.median(column) for column in zip(*results["alone"])]
    for name, values in results.items():
        for index, what in enumerate((unit, "ms p99", "ms worst")):
            figures = [value[index] for value in values]
            share = statistics.median(figures) / alone[index] if alone[index] else 0.0
            bench.row({"part": part, "condition": condition, "method": name if name == "alone" else f"during {name}", "unit": what,
                       "values": figures, "note": f"{share:.2f} of alone" if index == 0 else f"{share:.1f} x alone"})


def measure(bench: Bench) -> None:
    pgbench = str(bench.directory / "usr/lib/postgresql/15/bin/pgbench")
    subprocess.run([pgbench, "-h", str(bench.directory), "-U", "postgres", "-i", "-q", "-s", str(ACCOUNTS_SCALE), "postgres"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    bench.sql("CHECKPOINT")
    bench.accounts = bench.files_of("pgbench_accounts")
    bench.loads_once = False  # again and again, so that it is at hand
    for name in SCHEDULERS:
        with scheduler(bench.device, name) as in_force:
            for pattern in ("full", "random 50 %") if in_force else ():
                wanted = bench.remember(pattern)
                methods = methods_for(bench, pattern, wanted)
                for readers in READERS:
                    direct: dict[str, list[tuple[float, float, float]]] = {method: [] for method in methods}
                    for repetition in range(bench.repeat):
                        for method, call in in_turn(methods, repetition):
                            direct[method].append(read_directly(bench, readers, call))
                    rows(bench, f"foreground x {readers}", f"{pattern}, {name}", "reads/s", direct)
                if pattern != "full":
                    continue
                selects: dict[str, list[tuple[float, float, float]]] = {method: [] for method in methods}
                for repetition in range(bench.repeat):
                    for method, call in in_turn(methods, repetition):
                        selects[method].append(run_pgbench(bench, call))
                rows(bench, "pgbench", f"{pattern}, {name}", "tps", selects)
    bench.loads_once = True
