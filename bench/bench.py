# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time to resident, cost of looking, and what the foreground notices: pg_residency beside its peers.

Everything is measured on the same files in the same run, the methods in turn. Time to resident ends when mincore(2),
asked from here, sees 99 % of the wanted pages; not when a call returns.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

BLOCK = 8192
PAGE = mmap.PAGESIZE
PAGES = BLOCK // PAGE  # of a block
ENOUGH = 0.99
PATIENCE = 300  # seconds until a method that does not get there is given up
THROTTLE_IOPS, THROTTLE_BYTES = 3000, 125_000_000  # a common cloud volume
BLKIO = Path("/sys/fs/cgroup/blkio")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class File:
    """One segment file: which of its pages are resident, and making it cold or partly warm."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.bytes = os.fstat(self.fd).st_size
        self.address = libc.mmap(None, self.bytes, 0, mmap.MAP_SHARED, self.fd, 0)  # PROT_NONE: never touched

    def pages(self) -> bytes:
        vector = ctypes.create_string_buffer(self.bytes // PAGE)
        if libc.mincore(self.address, self.bytes, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return vector.raw

    def evict(self) -> None:
        for _attempt in range(50):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if self.pages().count(1) == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("pages of the table would not go: is somebody else using it?")

    def load(self, runs: list[tuple[int, int]]) -> None:
        """Exactly these runs of blocks, (first, count)."""
        for first, count in runs:
            for at in range(first, first + count, 16):
                n = min(16, first + count - at)
                os.posix_fadvise(self.fd, at * BLOCK, n * BLOCK, os.POSIX_FADV_WILLNEED)


def patterns(blocks: int, share: random.Random) -> dict[str, list[tuple[int, int]]]:
    scattered = [(b, 1) for b in range(blocks) if share.random() < 0.5]
    sparse = [(b, 1) for b in range(blocks) if share.random() < 0.02]
    clustered, at = [], 0
    while at < blocks:
        run = min(max(1, int(share.expovariate(1 / 32))), blocks - at)
        clustered.append((at, run))
        at += run + max(1, int(share.expovariate(1 / 32)))
    return {"full": [(0, blocks)], "random 50 %": scattered, "runs of 64 pages": clustered, "random 2 %": sparse}


class Bench:
    def __init__(self, directory: Path, gib: float, repeat: int) -> None:
        self.directory, self.repeat = directory, repeat
        self.rows: list[dict[str, object]] = []
        blocks = int(gib * 2**30 / BLOCK)
        print(f"==> A table of {gib:g} GiB: one row a block, so that little has to be written", flush=True)
        self.sql("CREATE EXTENSION pg_residency; CREATE EXTENSION pgfincore; CREATE EXTENSION pg_prewarm")
        self.sql("CREATE TABLE bench (a int, filler text) WITH (fillfactor = 10); ALTER TABLE bench ALTER filler SET STORAGE PLAIN")
        self.sql(f"INSERT INTO bench SELECT i, repeat('x', 700) FROM generate_series(1, {blocks}) i; CHECKPOINT")
        base = directory / "data" / self.sql("SELECT pg_relation_filepath('bench')")
        names = sorted(base.parent.glob(base.name + ".*"), key=lambda p: int(p.suffix[1:]))
        self.files = [File(path) for path in [base, *names]]
        share = random.Random(1)
        self.patterns = [patterns(file.bytes // BLOCK, share) for file in self.files]
        self.device = os.stat(base).st_dev

    def sql(self, statement: str) -> str:
        command = ["psql", "-h", str(self.directory), "-U", "postgres", "-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1"]
        return subprocess.run(command, input=statement, capture_output=True, text=True, check=True).stdout.strip()

    # --- the state of the page cache

    def evict(self) -> None:
        for file in self.files:
            file.evict()

    def make(self, pattern: str) -> list[bytes]:
        """Makes exactly that resident; which pages these are."""
        self.evict()
        for file, wanted in zip(self.files, self.patterns):
            file.load(wanted[pattern])
        vectors = []
        for file, wanted in zip(self.files, self.patterns):
            vector = bytearray(file.bytes // PAGE)
            for first, count in wanted[pattern]:
                vector[first * PAGES : (first + count) * PAGES] = b"\1" * (count * PAGES)
            vectors.append(bytes(vector))
        self.wait_for(vectors)
        return vectors

    def resident(self, wanted: list[bytes]) -> float:
        have = total = 0
        for file, vector in zip(self.files, wanted):
            both = int.from_bytes(file.pages(), "little") & int.from_bytes(vector, "little")
            have += bin(both).count("1")
            total += vector.count(1)
        return have / total

    def wait_for(self, wanted: list[bytes]) -> float | None:
        begin = time.monotonic()
        while time.monotonic() - begin < PATIENCE:
            if self.resident(wanted) >= ENOUGH:
                return time.monotonic()
            time.sleep(0.01)
        return None

    # --- one figure

    def time_to_resident(self, wanted: list[bytes], call) -> float | None:
        self.evict()
        begin = time.monotonic()
        call()
        end = self.wait_for(wanted)
        return None if end is None else end - begin

    def measure(self, part: str, condition: str, methods: dict[str, object], unit: str = "s") -> None:
        """Each method in turn, then all again, so that other work on the machine falls on all of them."""
        results: dict[str, list[float]] = {name: [] for name in methods}
        for _repetition in range(self.repeat):
            for name, method in methods.items():
                value = method()
                if value is not None:
                    results[name].append(value)
        best_peer = min((statistics.median(v) for n, v in results.items() if v and not n.startswith("ours")), default=None)
        for name, values in results.items():
            median = statistics.median(values) if values else None
            ratio = median / best_peer if median is not None and best_peer else None
            self.rows.append({"part": part, "condition": condition, "method": name, "unit": unit, "values": values, "to best peer": ratio})
            figures = " ".join(f"{v:9.3f}" for v in (min(values), median, max(values))) if values else "did not get there"
            print(f"{part:18} {condition:18} {name:24} {figures} {unit:3} {'' if ratio is None else f'{ratio:6.2f} x best peer'}", flush=True)

    # --- the parts

    def start_restore(self, options: str) -> None:
        self.sql(f"SELECT residency_restore_start('bench', '{options}')")

    def ours(self, wanted: list[bytes], options: str):
        def call() -> float | None:
            seconds = self.time_to_resident(wanted, lambda: self.start_restore(options))
            self.sql("DO $$ BEGIN WHILE EXISTS (SELECT FROM residency_jobs WHERE state IN ('starting', 'waiting', 'running'))"
                     " LOOP PERFORM pg_sleep(0.01); END LOOP; END $$")
            return seconds
        return call

    def pgfincore(self, wanted: list[bytes]):
        return lambda: self.time_to_resident(wanted, lambda: self.sql(
            "SELECT count(*) FROM bench_map m, pgfadvise_loader('bench', 'main', m.segment, true, false, m.databit) l"))

    def prewarm(self, wanted: list[bytes], mode: str):
        return lambda: self.time_to_resident(wanted, lambda: self.sql(f"SELECT pg_prewarm('bench', '{mode}')"))

    def vmtouch(self, wanted: list[bytes]):
        paths = [os.readlink(f"/proc/self/fd/{file.fd}") for file in self.files]
        return lambda: self.time_to_resident(
            wanted, lambda: subprocess.run(["vmtouch", "-q", "-t", "-m", "2G", *paths], check=True, stdout=subprocess.DEVNULL))

    def remember(self, pattern: str) -> list[bytes]:
        """Makes the pattern resident and lets both extensions save it."""
        wanted = self.make(pattern)
        self.sql("SELECT residency_snapshot('bench', 1)")
        self.sql("DROP TABLE IF EXISTS bench_map; CREATE TABLE bench_map AS SELECT * FROM pgfincore('bench', true)")
        return wanted

    def looking(self) -> None:
        def timed(statement: str):
            def call() -> float:
                return float(self.sql(f"SELECT clock_timestamp() AS begin \\gset\n{statement};\n"
                                      "SELECT 1000 * extract(epoch FROM clock_timestamp() - :'begin'::timestamptz)").splitlines()[-1])
            return call

        for state in ("cold", "full", "random 50 %"):
            if state == "cold":
                self.evict()
            else:
                self.make(state)
            self.measure("looking", state, {
                "pgfincore": timed("SELECT sum(pages_mem) FROM pgfincore('bench', true)"),
                "ours: counts": timed("SELECT sum(resident) FROM residency_segments()"),
                "ours: whole snapshot": timed("SELECT wanted FROM residency_snapshot('bench', 1)"),
            }, "ms")

    def loading(self, part: str, names: list[str], full_peers: bool) -> None:
        for pattern in names:
            wanted = self.remember(pattern)
            methods = {
                "ours": self.ours(wanted, "{}"),
                "ours, aggressive": self.ours(wanted, '{"aggressive": true}'),
                "pgfincore": self.pgfincore(wanted),
            }
            if pattern == "full" and full_peers:
                methods.update({f"pg_prewarm {mode}": self.prewarm(wanted, mode) for mode in ("prefetch", "read", "buffer")})
                methods["vmtouch -t"] = self.vmtouch(wanted)
            self.measure(part, pattern, methods)

    def throttled(self) -> None:
        group = BLKIO / "pgfleet-bench"
        device = f"{os.major(self.device)}:{os.minor(self.device)}"
        postmaster = (self.directory / "data" / "postmaster.pid").read_text().splitlines()[0]
        try:
            group.mkdir(exist_ok=True)
            (group / "blkio.throttle.read_iops_device").write_text(f"{device} {THROTTLE_IOPS}\n")
            (group / "blkio.throttle.read_bps_device").write_text(f"{device} {THROTTLE_BYTES}\n")
            (group / "cgroup.procs").write_text(postmaster)
        except OSError as error:
            print(f"throttled: left out, no cgroup v1 blkio controller to do it with ({error})")
            return
        try:
            # pgfincore takes a minute and a half for a GiB here: once is enough
            repeat, self.repeat = self.repeat, 1
            self.loading("3000 IOPS 125 MB/s", ["full", "random 50 %"], full_peers=False)
            self.repeat = repeat
        finally:
            (BLKIO / "cgroup.procs").write_text(postmaster)

    def device_limit(self) -> None:
        def fio(block_size: str, depth: int):
            def call() -> float:
                output = subprocess.run(
                    ["fio", "--name=limit", f"--filename={self.directory}/data/base/fio", "--size=1G", "--rw=read", f"--bs={block_size}",
                     f"--iodepth={depth}", "--ioengine=libaio", "--direct=1", "--output-format=json", "--runtime=3"],
                    check=True, capture_output=True, text=True).stdout
                return json.loads(output)["jobs"][0]["read"]["bw_bytes"] / 2**20
            return call

        self.measure("device", "sequential", {"fio 1M depth 1": fio("1M", 1), "fio 1M depth 32": fio("1M", 32)}, "MiB/s")

    def foreground(self) -> None:
        """Another's reads of 8 KiB, direct and one at a time, alone and while the table is restored again and again."""
        wanted = self.remember("full")

        def reads(options: str | None):
            def call() -> tuple[float, float]:
                fio = subprocess.Popen(
                    ["fio", "--name=foreground", f"--filename={self.directory}/data/base/fio", "--size=1G", "--rw=randread", "--bs=8k",
                     "--iodepth=1", "--direct=1", "--time_based", "--runtime=4", "--output-format=json"], stdout=subprocess.PIPE, text=True)
                while options is not None and fio.poll() is None:
                    self.ours(wanted, options)()
                data = json.loads(fio.communicate()[0])["jobs"][0]["read"]
                return data["iops"], data["clat_ns"]["percentile"]["99.000000"] / 1e6
            return call

        alone = [reads(None)() for _repetition in range(self.repeat)]
        during = [reads("{}")() for _repetition in range(self.repeat)]
        for name, values in (("alone", alone), ("during ours", during)):
            for index, unit in ((0, "reads/s"), (1, "ms p99")):
                figures = sorted(value[index] for value in values)
                self.rows.append({"part": "foreground", "condition": name, "method": "fio 8k", "unit": unit, "values": figures})
                print(f"{'foreground':18} {name:18} {'fio 8k ' + unit:24} "
                      + " ".join(f"{v:9.3f}" for v in (figures[0], statistics.median(figures), figures[-1])), flush=True)


def conditions(device: int) -> dict[str, str]:
    queue = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue")
    if not queue.exists():
        queue = queue.parent.parent / "queue"

    def read(name: str) -> str:
        try:
            return (queue / name).read_text().strip()
        except OSError:
            return "unknown"

    return {"kernel": os.uname().release, "scheduler": read("scheduler"), "read_ahead_kb": read("read_ahead_kb"),
            "max_sectors_kb": read("max_sectors_kb"), "cpus": str(os.cpu_count()), "load": f"{os.getloadavg()[0]:.2f}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--gib", type=float, required=True)
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    bench = Bench(options.directory, options.gib, options.repeat)
    stated = conditions(bench.device)
    print("==> " + ", ".join(f"{key} {value}" for key, value in stated.items()))
    print(f"{'part':18} {'condition':18} {'method':24} {'min':>9} {'median':>9} {'max':>9}")
    bench.device_limit()
    bench.looking()
    bench.loading("time to resident", list(bench.patterns[0]), full_peers=True)
    bench.foreground()
    bench.throttled()
    options.json.write_text(json.dumps({"conditions": stated, "rows": bench.rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
