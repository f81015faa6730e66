# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time to resident, cost of looking, and what the foreground notices: pg_residency beside its peers.

Everything is measured on the same files in the same run, the methods in turn. Time to resident ends when mincore(2),
asked from here, sees 99 % of the wanted pages, and a second one when it sees 99.99 %; not when a call returns. With them go the bytes read and the
unwanted pages that came along, both as a share of what was wanted. A measurement that something else on the
machine disturbed is repeated, at most as often as there are repetitions; what stayed disturbed is marked.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import mmap
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import foreground
import hold

BLOCK = 8192
PAGE = mmap.PAGESIZE
PAGES = BLOCK // PAGE  # of a block
ENOUGH, NEARLY_ALL = 0.99, 0.9999
PATIENCE = 120  # seconds until a method that does not get there is given up
THROTTLE_IOPS, THROTTLE_BYTES = 3000, 125_000_000  # a common cloud volume
BLKIO, UNIFIED = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
GROUP = "pgfleet-bench"
MANY_FILES, MANY_BYTES = 10_000, 2**40
SPARSE_DATABASES, SPARSE_MIB = 4, 256
TICKS = os.sysconf("SC_CLK_TCK")
REPORTING = Path("/sys/module/page_reporting")
WAIT_FOR_JOB = """DO $$ BEGIN
WHILE EXISTS (SELECT FROM residency_jobs WHERE state IN ('starting', 'waiting', 'running')) LOOP
    PERFORM pg_sleep(0.02);
END LOOP; END $$"""

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]

Pattern = list[tuple[int, int]]  # runs of blocks (or of pages): first, count
Method = Callable[[], "float | None"]
Besides = dict[str, "float | None"]


@functools.lru_cache(maxsize=64)
def runs_of(pages: bytes) -> Pattern:
    """The runs of pages that are wanted, from a byte for each page."""
    return [(run.start(), run.end() - run.start()) for run in re.finditer(b"\1+", pages)]


class File:
    """One segment file: which of its pages are resident, and making it cold or partly warm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY)
        self.bytes = os.fstat(self.fd).st_size
        self.address = libc.mmap(None, self.bytes, 0, mmap.MAP_SHARED, self.fd, 0)  # PROT_NONE: never touched

    def close(self) -> None:
        libc.munmap(self.address, self.bytes)
        os.close(self.fd)

    def pages(self) -> int:
        """A byte a page, as one number: 1 where it is resident."""
        vector = ctypes.create_string_buffer(self.bytes // PAGE)
        if libc.mincore(self.address, self.bytes, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return int.from_bytes(vector.raw, "little")

    def resident(self, wanted: bytes) -> int:
        """How many of the wanted pages are resident. Where few are wanted, it looks only at these: a look at all would take as long as
        what is measured, and what arrives meanwhile would have to wait for the next one."""
        if wanted.count(1) > len(wanted) / 16:
            return (self.pages() & int.from_bytes(wanted, "little")).bit_count()
        runs = runs_of(wanted)
        vector = ctypes.create_string_buffer(max((count for _first, count in runs), default=1))
        have = 0
        for first, count in runs:
            if libc.mincore(self.address + first * PAGE, count * PAGE, vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            have += vector[:count].count(1)
        return have

    def glance(self, wanted: bytes) -> tuple[int, int]:
        """Of every 32nd stretch of 64 pages, how many wanted ones are resident, and how many there are: cheap to ask."""
        have = total = 0
        vector = ctypes.create_string_buffer(64)
        for first in range(0, self.bytes // PAGE - 64, 2048):
            mask = int.from_bytes(wanted[first : first + 64], "little")
            libc.mincore(self.address + first * PAGE, 64 * PAGE, vector)
            have += (int.from_bytes(vector.raw, "little") & mask).bit_count()
            total += mask.bit_count()
        return have, total

    def evict(self) -> None:
        for _attempt in range(50):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if self.pages() == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("pages of the table would not go: is somebody else using it?")

    def load(self, runs: Pattern) -> None:
        """Exactly these runs of blocks, in pages of their own."""
        for first, count in runs:
            for at in range(first, first + count, 16):
                n = min(16, first + count - at)
                os.posix_fadvise(self.fd, at * BLOCK, n * BLOCK, os.POSIX_FADV_WILLNEED)

    def read(self) -> None:
        """All of it from its beginning, which the kernel caches in large folios where it can."""
        at = 0
        while piece := os.pread(self.fd, 2**20, at):
            at += len(piece)


def touch_memory(size: int) -> None:
    """Takes memory, and gives it back when it is at hand.

    The host of a virtual machine takes back what has been free for two seconds (free page reporting), and to have it
    again takes up to three times as long as to read it full: what a method finds would depend on the one before it.
    """
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.madvise(address, size, 14)  # MADV_HUGEPAGE
    if libc.madvise(address, size, 23) != 0:  # MADV_POPULATE_WRITE
        raise OSError(ctypes.get_errno(), "madvise")
    if REPORTING.exists():
        time.sleep(2.5)
    libc.munmap(address, size)


def patterns(blocks: int, share: random.Random) -> dict[str, Pattern]:
    scattered = [(b, 1) for b in range(blocks) if share.random() < 0.5]
    sparse = [(b, 1) for b in range(blocks) if share.random() < 0.02]
    clustered, at = [], 0
    while at < blocks:
        run = min(max(1, int(share.expovariate(1 / 32))), blocks - at)
        clustered.append((at, run))
        at += run + max(1, int(share.expovariate(1 / 32)))
    return {"full": [(0, blocks)], "random 50 %": scattered, "runs of 64 pages": clustered, "random 2 %": sparse}


class Machine:
    """What this run's processes used, and what everybody used: the difference disturbed us."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.begin = time.monotonic()
        self.before = self.look()

    @staticmethod
    def device_read(device: int) -> int:
        return int(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[2]) * 512

    def look(self) -> dict[str, float]:
        # user nice system idle iowait irq softirq steal
        cpu = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        device = (Path(f"/sys/dev/block/{os.major(self.bench.device)}:{os.minor(self.bench.device)}") / "stat").read_text().split()
        own = os.times()
        return {
            "cpu": (sum(cpu) - cpu[3] - cpu[4]) / TICKS,
            "own cpu": own.user + own.system + own.children_user + own.children_system + self.bench.tree_cpu(),
            "read": int(device[2]) * 512,
            "own read": self.bench.tree_read() + self.bench.tools_read,
            "written": int(device[6]) * 512,
        }

    def used(self) -> dict[str, float]:
        now = self.look()
        return {key: now[key] - self.before[key] for key in now}

    def disturbed(self) -> bool:
        seconds = time.monotonic() - self.begin
        used = self.used()
        others = (used["cpu"] - used["own cpu"]) / seconds / (os.cpu_count() or 1)
        return (others > 0.3 or abs(used["read"] - used["own read"]) > max(32 * 2**20, 0.15 * used["read"])
                or used["written"] > 64 * 2**20 * max(1, seconds))


class Bench:
    def __init__(self, directory: Path, gib: float, repeat: int) -> None:
        self.directory, self.repeat, self.gib = directory, repeat, gib
        self.rows: list[dict[str, object]] = []
        self.tools_read = 0  # bytes that programs outside of the server have read
        self.device = os.stat(directory).st_dev
        self.cpu_before = 0.0  # before the last measurement, seconds
        self.went_again = False  # in the last measurement
        self.called_at = 0.0  # the last method, by the clock
        self.besides: Besides = {}  # what else the last load has shown
        self.machine = Machine(self)  # of the last measurement
        self.group: Path | None = None  # the control group that limits the server, and programs beside it
        self.loads_once = True  # not again and again beside the foreground: memory is touched before, and the result looked at
        self.files: list[File] = []
        self.accounts: list[File] = []  # pgbench's table
        # ours has functions of the peer's names, too: by itself a name means the peer's
        self.sql("ALTER DATABASE postgres SET search_path = public, ours")
        self.sql("CREATE SCHEMA ours; CREATE EXTENSION pg_residency SCHEMA ours; CREATE EXTENSION pgfincore; CREATE EXTENSION pg_prewarm")
        self.options = {"default window": "{}", "aggressive": '{"aggressive": true}'}

    # --- the server

    def sql(self, statement: str, database: str = "postgres") -> str:
        # Debian's psql is a script that looks for this one: it would add its start to the time of all that is SQL
        psql = str(self.directory / "usr/lib/postgresql/15/bin/psql")
        command = [psql, "-h", str(self.directory), "-U", "postgres", "-d", database, "-XAtq", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(command, input=statement, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{statement[:200]}: {done.stderr}")
        return done.stdout.strip()

    def server(self, *arguments: str) -> None:
        subprocess.run(["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups",
                        str(self.directory / "usr/lib/postgresql/15/bin/pg_ctl"), "-D", str(self.directory / "data"),
                        "-l", str(self.directory / "log"), "-s", "-w", *arguments], check=True)

    def postmaster(self) -> str:
        return (self.directory / "data/postmaster.pid").read_text().split("\n", 1)[0]

    def tree(self) -> list[str]:
        postmaster = self.postmaster()
        return [postmaster, *Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]

    def tree_cpu(self) -> float:
        """Seconds of the postmaster, of its children, and of those that have ended."""
        ticks = 0
        for number, pid in enumerate(self.tree()):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += sum(int(field) for field in fields[11:15 if number == 0 else 13])
        return ticks / TICKS

    def tree_read(self) -> int:
        """Bytes from the device; those of children that have ended are in the postmaster's."""
        total = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/io").read_text()
                total += int(text.split("\nread_bytes: ", 1)[1].split("\n", 1)[0])
        return total

    def tool(self, *command: str) -> None:
        """A program beside the server, and what it has read."""
        if self.group is not None:
            command = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.group / "cgroup.procs"), *command)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        text = Path(f"/proc/{process.pid}/io").read_text()
        self.tools_read += int(text.split("\nread_bytes: ", 1)[1].split("\n", 1)[0])
        if process.wait() != 0:
            raise RuntimeError(" ".join(command))

    # --- the data

    def create(self, name: str, gib: float, database: str = "postgres") -> list[File]:
        blocks = int(gib * 2**30 / BLOCK)
        self.sql(f"CREATE TABLE {name} (a int, filler text) WITH (fillfactor = 10); ALTER TABLE {name} ALTER filler SET STORAGE PLAIN;"
                 f"INSERT INTO {name} SELECT i, repeat('x', 700) FROM generate_series(1, {blocks}) i; VACUUM (FREEZE) {name}; CHECKPOINT", database)
        # what shared buffers hold of it counts as resident for us, and belongs to our snapshot: mincore does not see it
        self.server("restart", "-m", "fast")
        return self.files_of(name, database)

    def files_of(self, name: str, database: str = "postgres") -> list[File]:
        base = self.directory / "data" / self.sql(f"SELECT pg_relation_filepath('{name}')", database)
        names = sorted(base.parent.glob(base.name + ".*"), key=lambda p: int(p.suffix[1:]))
        return [File(path) for path in [base, *names]]

    def use(self, table: str, files: list[File]) -> None:
        self.table, self.files = table, files
        share = random.Random(1)
        self.patterns = [patterns(file.bytes // BLOCK, share) for file in files]

    # --- the state of the page cache

    def evict(self) -> None:
        for file in self.files:
            file.evict()

    def make(self, pattern: str) -> list[bytes]:
        """Makes exactly that resident; which pages these are."""
        vectors = []
        for file, wanted in zip(self.files, self.patterns):
            vector = bytearray(file.bytes // PAGE)
            for first, count in wanted[pattern]:
                vector[first * PAGES : (first + count) * PAGES] = b"\1" * (count * PAGES)
            vectors.append(bytes(vector))
        for _attempt in range(3):
            self.evict()
            for file, wanted in zip(self.files, self.patterns):
                file.load(wanted[pattern])
            if self.wait_for(vectors) is not None:
                return vectors
        raise RuntimeError(f"{pattern} does not become resident: the kernel takes the pages back")

    def resident(self, wanted: list[bytes]) -> float:
        have = sum(file.resident(vector) for file, vector in zip(self.files, wanted))
        return have / sum(vector.count(1) for vector in wanted)

    def glance(self, wanted: list[bytes]) -> float:
        seen = [file.glance(vector) for file, vector in zip(self.files, wanted)]
        return sum(have for have, _total in seen) / max(1, sum(total for _have, total in seen))

    def unwanted(self, wanted: list[bytes]) -> float:
        """Pages that are resident besides the wanted ones, as a share of those."""
        have = sum((file.pages() & ~int.from_bytes(vector, "little")).bit_count() for file, vector in zip(self.files, wanted))
        return have / sum(vector.count(1) for vector in wanted)

    def wait_for(self, wanted: list[bytes], patience: float = 10, enough: float = ENOUGH) -> float | None:
        """When it was resident; None when it is not after a while in which nothing more came in."""
        best, since = 0.0, time.monotonic()
        while True:
            now = self.glance(wanted)
            if now >= enough - 0.01:
                now = self.resident(wanted)
            if now >= enough:
                return time.monotonic()
            if now > best + 0.001:
                best, since = now, time.monotonic()
            elif now < best - 0.02:
                self.went_again = True
            if time.monotonic() - since > (1 if self.went_again else patience):
                return None
            time.sleep(0.005)

    # --- one figure

    def time_to_resident(self, wanted: list[bytes], call: Callable[[], object]) -> float | None:
        self.evict()
        if self.loads_once:
            if self.group is None:
                # what shared buffers hold counts as resident for us, and mincore does not see it
                self.server("restart", "-m", "fast")
            touch_memory(int(1.15 * sum(file.bytes for file in self.files)))
        self.went_again = False
        self.machine = Machine(self)  # what came before was preparation
        self.cpu_before = self.tree_cpu() + sum(os.times()[2:4])
        self.called_at = time.time()
        begin = time.monotonic()
        call()
        end = self.wait_for(wanted)
        if end is None:
            return None
        if not self.loads_once:
            return end - begin
        whole = self.wait_for(wanted, patience=0.5, enough=NEARLY_ALL)  # pages that the kernel takes back meanwhile do not come again
        read = self.machine.used()["own read"] / sum(vector.count(1) for vector in wanted) / PAGE
        self.besides = {"bytes read": read, "unwanted pages": self.unwanted(wanted), "seconds to 99.99 %": whole and whole - begin}
        return end - begin

    def measure(self, part: str, condition: str, methods: dict[str, Method], unit: str = "s", repeat: int = 0,
                gib: float = 0, compare: bool = True, again: bool = True) -> None:
        """Each method in turn, then all again, so that other work on the machine falls on all of them."""
        repeat = repeat or self.repeat
        clean: dict[str, list[tuple[float, Besides]]] = {name: [] for name in methods}
        disturbed: dict[str, list[tuple[float, Besides]]] = {name: [] for name in methods}
        failed = dict.fromkeys(methods, 0)
        for turn in range(2 * repeat if again else repeat):
            in_turn = list(methods.items())
            for name, method in in_turn[turn % len(in_turn) :] + in_turn[: turn % len(in_turn)]:
                if len(clean[name]) >= repeat or (turn >= repeat and failed[name] == turn):
                    continue
                self.went_again = False
                self.besides = {}
                self.machine = Machine(self)
                self.cpu_before = self.tree_cpu() + sum(os.times()[2:4])
                value = method()
                if value is None:
                    failed[name] += 1
                    continue
                self.besides["CPU seconds"] = self.tree_cpu() + sum(os.times()[2:4]) - self.cpu_before
                (disturbed if self.went_again or self.machine.disturbed() else clean)[name].append((value, self.besides))
        used = {name: clean[name] + disturbed[name][: repeat - len(clean[name])] for name in methods}
        values = {name: [value for value, _besides in used[name]] for name in methods}
        medians = {name: statistics.median(v) for name, v in values.items() if v}
        best = min((m for n, m in medians.items() if not n.startswith("ours")), default=None) if compare else None
        for name in methods:
            row: dict[str, object] = {
                "part": part, "condition": condition, "method": name, "unit": unit, "values": values[name],
                "disturbed": len(values[name]) - len(clean[name]), "repeated": len(disturbed[name]), "did not get there": failed[name]}
            if gib and used[name]:
                for what in used[name][0][1]:
                    seen = [figure for _value, besides in used[name] if (figure := besides[what]) is not None]
                    row[what] = statistics.median(seen) if seen else None
                row["cpu seconds per GiB"] = statistics.median(besides["CPU seconds"] or 0 for _value, besides in used[name]) / gib
            if best and name in medians:
                row["to best peer"] = medians[name] / best
            self.row(row)

    def row(self, row: dict[str, object]) -> None:
        self.rows.append(row)
        values = row["values"]
        assert isinstance(values, list)
        figures = " ".join(f"{v:9.3f}" for v in (min(values), statistics.median(values), max(values))) if values else f"{'did not get there':>29}"
        notes = []
        if row.get("to best peer"):
            notes.append(f"{row['to best peer']:6.2f} x best peer")
        if row.get("cpu seconds per GiB"):
            notes.append(f"{row['cpu seconds per GiB']:.2f} CPU s/GiB")
        if row.get("bytes read") is not None:
            late = row["seconds to 99.99 %"]
            notes.append(f"read {row['bytes read']:.2f} x, {row['unwanted pages']:.2f} x unwanted, 99.99 % "
                         + ("not reached" if late is None else f"after {late:.3f} s"))
        if row.get("disturbed"):
            notes.append(f"{row['disturbed']} of {len(values)} disturbed")
        if row.get("note"):
            notes.append(str(row["note"]))
        print(f"{row['part']:18} {row['condition']:20} {row['method']:24} {figures} {row['unit']:7} {', '.join(notes)}", flush=True)

    # --- loading

    def start_restore(self, options: str) -> None:
        self.sql(f"SELECT residency_restore_start('bench', '{options}')")

    def ours(self, wanted: list[bytes], options: str) -> Method:
        def call() -> float | None:
            seconds = self.time_to_resident(wanted, lambda: self.start_restore(options))
            started, state = self.sql(
                f"{WAIT_FOR_JOB};\nSELECT extract(epoch FROM started_at), state FROM residency_jobs ORDER BY job DESC LIMIT 1").split("|")
            if state != "done":
                raise RuntimeError(f"the restore is {state}")
            if float(started) > self.called_at + 1.0:
                self.went_again = True  # it waited for another cluster's turn
            return seconds
        return call

    def pgfincore(self, wanted: list[bytes]) -> Method:
        return lambda: self.time_to_resident(wanted, lambda: self.sql(
            f"SELECT count(*) FROM bench_map m, pgfadvise_loader('{self.table}', 'main', m.segment, true, false, m.databit) l"))

    def prewarm(self, wanted: list[bytes], mode: str) -> Method:
        return lambda: self.time_to_resident(wanted, lambda: self.sql(f"SELECT pg_prewarm('{self.table}', '{mode}')"))

    def vmtouch(self, wanted: list[bytes]) -> Method:
        return lambda: self.time_to_resident(wanted, lambda: self.tool("vmtouch", "-q", "-t", "-m", "2G", *(str(f.path) for f in self.files)))

    def remember(self, pattern: str) -> list[bytes]:
        """Makes the pattern resident and lets both extensions save it."""
        for _attempt in range(5):
            wanted = self.make(pattern)
            self.sql("SELECT residency_snapshot('bench', 1, true)")
            self.sql(f"DROP TABLE IF EXISTS bench_map; CREATE TABLE bench_map AS SELECT * FROM pgfincore('{self.table}', true)")
            if self.resident(wanted) >= 0.998:
                return wanted
        raise RuntimeError("the kernel takes pages back faster than they can be saved")

    def loading(self, part: str, names: list[str], modes: tuple[str, ...], repeat: int = 0, again: bool = True) -> None:
        """`modes` are pg_prewarm's. What shared buffers hold of a small table would count as resident for us: without `buffer` there."""
        for pattern in names:
            wanted = self.remember(pattern)
            methods: dict[str, Method] = {f"ours, {name}": self.ours(wanted, options) for name, options in self.options.items()}
            if pattern.startswith("random"):
                methods["ours, without gaps"] = self.ours(wanted, '{"gap_blocks": 0}')
            if pattern == "random 2 %":
                # what pgfincore does: without the catalogs' files
                numbers = self.sql("SELECT json_agg(segment_no) FROM residency_snapshot_segments('bench') "
                                   f"WHERE relfilenumber = pg_relation_filenode('{self.table}') AND fork = 'main'")
                methods["ours, this table only"] = self.ours(wanted, f'{{"segments": {numbers}}}')
            methods["pgfincore"] = self.pgfincore(wanted)
            if pattern == "full":
                methods.update({f"pg_prewarm {mode}": self.prewarm(wanted, mode) for mode in modes})
                methods["vmtouch -t"] = self.vmtouch(wanted)
            self.measure(part, pattern, methods, gib=sum(v.count(1) for v in wanted) * PAGE / 2**30,
                         repeat=repeat, again=again)

    def canceling(self, condition: str, pattern: str, repeat: int = 0) -> None:
        """From the call to the end of the job, in the midst of a restore."""
        wanted = self.remember(pattern)

        def canceled(options: str) -> Method:
            def call() -> float | None:
                self.evict()
                self.start_restore(options)
                while self.glance(wanted) < 0.1:
                    time.sleep(0.001)
                state, milliseconds = self.sql(
                    "SELECT clock_timestamp() AS begin, max(job) AS job FROM residency_jobs \\gset\n"
                    f"SELECT FROM residency_cancel(:job);\n{WAIT_FOR_JOB};\n"
                    "SELECT state, 1000 * extract(epoch FROM finished_at - :'begin') FROM residency_jobs WHERE job = :job").split("|")
                return float(milliseconds) if state == "canceled" else None
            return call

        self.measure("canceling", condition, {f"ours, {name}": canceled(options) for name, options in self.options.items()},
                     "ms", repeat=repeat, compare=False)

    # --- the parts

    def timed(self, statement: str) -> Method:
        def call() -> float:
            return float(self.sql(f"SELECT clock_timestamp() AS begin \\gset\n{statement};\n"
                                  "SELECT 1000 * extract(epoch FROM clock_timestamp() - :'begin'::timestamptz)").splitlines()[-1])
        return call

    def device_limit(self) -> None:
        def fio(block_size: str, depth: int) -> Method:
            def call() -> float:
                output = subprocess.run(
                    ["fio", "--name=limit", f"--filename={self.directory}/data/base/fio", "--size=512M",
                     "--rw=" + ("read" if block_size == "1M" else "randread"),
                     f"--bs={block_size}", f"--iodepth={depth}", "--ioengine=libaio", "--direct=1", "--output-format=json", "--runtime=2"],
                    check=True, capture_output=True, text=True).stdout
                data = json.loads(output)["jobs"][0]["read"]
                self.tools_read += data["io_bytes"]
                return float(data["bw_bytes"]) / 2**20
            return call

        subprocess.run(["fio", "--name=lay", f"--filename={self.directory}/data/base/fio", "--size=512M", "--rw=write", "--bs=1M",
                        "--end_fsync=1", "--output-format=json"], check=True, stdout=subprocess.DEVNULL)
        # the third is all that the default window of 2 x 256 KiB could give, were its reader always awake in time
        self.measure("device", "its own limit", {"fio 1M depth 1": fio("1M", 1), "fio 1M depth 32": fio("1M", 32),
                                                 "fio 256k depth 2": fio("256k", 2), "fio 8k depth 32": fio("8k", 32)}, "MiB/s", compare=False)

    def looking(self) -> None:
        def tool_time(*command: str) -> Method:
            def call() -> float:
                begin = time.monotonic()
                self.tool(*command)
                return 1000 * (time.monotonic() - begin)
            return call

        for state in ("cold", "full", "full, large folios", "random 50 %", "runs of 64 pages"):
            if state == "cold":
                self.evict()
            elif state == "full, large folios":
                self.evict()
                for file in self.files:
                    file.read()
            else:
                self.make(state)
            self.measure("looking", state, {
                "pgfincore, with maps": self.timed(f"SELECT sum(length(databit)) FROM pgfincore('{self.table}', true)"),
                "vmtouch": tool_time("vmtouch", "-q", "-m", "2G", *(str(f.path) for f in self.files)),
                "ours: counts": self.timed("SELECT sum(resident) FROM residency_segments()"),
                "ours: whole snapshot": self.timed("SELECT wanted FROM residency_snapshot('bench', 1, true)"),
            }, "ms")
            if state not in ("cold", "full, large folios"):
                ours = int(self.sql("SELECT file_bytes FROM residency_snapshots()"))
                theirs = int(self.sql(f"SELECT sum(length(databit)) / 8 FROM pgfincore('{self.table}', true)"))
                for name, size in (("ours", ours), ("pgfincore's maps", theirs)):
                    self.row({"part": "size of the map", "condition": state, "method": name, "unit": "KiB", "values": [size / 1024]})

    def many_files(self) -> None:
        """A cluster of 1 TB, sparse and cold: tables of 100 MiB each, whose inodes are cached."""
        self.sql("CREATE DATABASE many")
        self.sql("ALTER DATABASE many SET search_path = public, ours", "many")
        self.sql("CREATE SCHEMA ours; CREATE EXTENSION pg_residency SCHEMA ours; CREATE EXTENSION pgfincore", "many")
        for first in range(0, MANY_FILES, 1000):
            self.sql("".join(f"CREATE TABLE t{i} (a int);" for i in range(first, first + 1000)), "many")
        paths = self.sql("CHECKPOINT; SELECT pg_relation_filepath(oid) FROM pg_class WHERE relname ~ '^t[0-9]+$'", "many").splitlines()
        for path in paths:
            os.truncate(self.directory / "data" / path, MANY_BYTES // MANY_FILES // BLOCK * BLOCK)
        count = self.sql("SELECT count(*), sum(blocks) FROM residency_segments() WHERE blocks BETWEEN 13000 AND 14000")
        if int(count.split("|")[0]) != MANY_FILES:
            raise RuntimeError(f"{count} files and blocks were counted")
        self.measure("looking", "1 TB in 10,000 files", {
            "pgfincore, with maps": self.timed_in("many", "SELECT sum(length(f.databit)) FROM pg_class c, "
                                                  "pgfincore(c.oid::regclass::text, true) f WHERE relname ~ '^t[0-9]+$'"),
            "ours: counts": self.timed_in("many", "SELECT sum(resident) FROM residency_segments()"),
            "ours: whole snapshot": self.timed_in("many", "SELECT wanted FROM residency_snapshot('bench', 1, true)"),
        }, "ms", repeat=min(2, self.repeat), again=False)
        grown = self.sql("SELECT count(*) FROM residency_segments() WHERE blocks < 0;"
                         "SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000), 'VmHWM:\\s+(\\d+)'))[1]::int AS before \\gset\n"
                         "SELECT sum(resident) FROM residency_segments();"
                         "SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000), 'VmHWM:\\s+(\\d+)'))[1]::int - :before", "many").splitlines()[-1]
        self.row({"part": "looking", "condition": "1 TB in 10,000 files", "method": "ours: backend grows by", "unit": "MiB", "values": [int(grown) / 1024]})
        self.sql("DROP DATABASE many")

    def timed_in(self, database: str, statement: str) -> Method:
        def call() -> float:
            return float(self.sql(f"SELECT clock_timestamp() AS begin \\gset\n{statement};\n"
                                  "SELECT 1000 * extract(epoch FROM clock_timestamp() - :'begin'::timestamptz)", database).splitlines()[-1])
        return call

    @contextlib.contextmanager
    def throttle(self) -> Iterator[bool]:
        """The server behind a volume limited in requests and bytes; False where that cannot be had."""
        device = f"{os.major(self.device)}:{os.minor(self.device)}"
        v1 = (BLKIO / "blkio.throttle.read_iops_device").exists() or (BLKIO / "tasks").exists()
        parent = BLKIO if v1 else UNIFIED
        group = parent / GROUP
        try:
            group.mkdir(exist_ok=True)
            if v1:
                (group / "blkio.throttle.read_iops_device").write_text(f"{device} {THROTTLE_IOPS}\n")
                (group / "blkio.throttle.read_bps_device").write_text(f"{device} {THROTTLE_BYTES}\n")
            else:
                (group / "io.max").write_text(f"{device} riops={THROTTLE_IOPS} rbps={THROTTLE_BYTES}\n")
            for pid in self.tree():
                (group / "cgroup.procs").write_text(pid)
        except OSError as error:
            print(f"throttled: left out, no blkio (v1) or io (v2) controller to do it with ({error})")
            yield False
            return
        self.group = group
        try:
            yield True
        finally:
            self.group = None
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                group.rmdir()

    def throttled(self) -> None:
        self.use("bench_small", self.create("bench_small", self.gib / 8))
        with self.throttle() as limited:
            if limited:
                self.loading("3000 IOPS 125 MB/s", list(self.patterns[0]), ("prefetch", "read"), repeat=min(2, self.repeat), again=False)
                for pattern in ("full", "random 2 %"):
                    self.canceling(f"throttled, {pattern}", pattern, repeat=min(2, self.repeat))

    # --- shared buffers

    def sparse_buffers(self) -> None:
        """A sparse tenth of tables of several databases back in shared buffers: ours beside autoprewarm."""
        names = [f"sparse{n}" for n in range(SPARSE_DATABASES)]
        files: list[File] = []
        conf = self.directory / "data/postgresql.auto.conf"
        self.sql("ALTER SYSTEM SET shared_buffers = '256MB'")
        self.server("restart", "-m", "fast")
        for name in names:
            self.sql(f"CREATE DATABASE {name}")
            files += self.create("t", SPARSE_MIB / 1024, name)
            self.sql("CREATE EXTENSION pg_prewarm", name)
        self.sql("CHECKPOINT; SELECT pg_prewarm('pg_class')")
        self.server("restart", "-m", "fast")
        chosen = random.Random(2)
        blocks = files[0].bytes // BLOCK
        own = 0
        for name in names:
            sample = sorted(chosen.sample(range(blocks), blocks // 10))
            own += len(sample) * BLOCK
            self.sql(f"SELECT sum(pg_prewarm('t', 'buffer', 'main', b, b)) FROM unnest('{{{','.join(map(str, sample))}}}'::int[]) b", name)
        for file in files:
            file.evict()
        in_buffers = "SELECT sum(blocks) FROM residency_shared_buffers() WHERE database IN (SELECT oid FROM pg_database WHERE datname LIKE 'sparse%')"
        wanted = int(self.sql(in_buffers))
        self.sql("SELECT residency_snapshot('buffers', 1, true)")
        plain = conf.read_text()

        preload = "shared_preload_libraries = 'pg_prewarm'\npg_prewarm.autoprewarm_interval = 0\n"

        def until_back(begin: float) -> float | None:
            while time.monotonic() - begin < PATIENCE:
                if int(self.sql(in_buffers) or 0) >= 0.98 * wanted:
                    return time.monotonic() - begin
                time.sleep(0.01)
            return None

        read: dict[str, list[float]] = {"ours, aggressive": [], "autoprewarm": []}
        device: dict[str, list[float]] = {"ours, aggressive": [], "autoprewarm": []}
        size = self.directory / "data/autoprewarm.blocks"

        def ours() -> float | None:
            self.server("stop", "-m", "fast")
            for file in files:
                file.evict()
            conf.write_text(plain)
            self.server("start")
            machine = Machine(self)
            begin = time.monotonic()
            self.sql("""SELECT residency_restore_start('buffers', '{"shared_buffers": true, "aggressive": true}')""")
            seconds = until_back(begin)
            self.sql(WAIT_FOR_JOB)
            used = machine.used()
            read["ours, aggressive"].append(used["own read"] / own)
            device["ours, aggressive"].append(used["read"] / own)
            return seconds

        def autoprewarm() -> float | None:
            self.server("stop", "-m", "immediate")
            for file in files:
                file.evict()
            conf.write_text(plain + preload)
            before = Machine.device_read(self.device)
            self.server("start")
            begin = time.monotonic()
            seconds = until_back(begin)
            time.sleep(0.2)
            read["autoprewarm"].append(self.tree_read() / own)
            device["autoprewarm"].append((Machine.device_read(self.device) - before) / own)
            return seconds

        # autoprewarm writes its list of the same buffers, which ours has brought back
        self.server("stop", "-m", "fast")
        conf.write_text(plain + preload)
        (self.directory / "data/autoprewarm.blocks").unlink(missing_ok=True)
        self.server("start")
        self.sql("""SELECT residency_restore_start('buffers', '{"shared_buffers": true}')""")
        self.sql(WAIT_FOR_JOB)
        dumped = int(self.sql("SELECT autoprewarm_dump_now()"))
        self.measure("shared buffers", "sparse 10 %", {"ours, aggressive": ours, "autoprewarm": autoprewarm})
        dump = f"; {dumped} blocks dumped, {size.stat().st_size // 1024} KiB"
        for source, reads in (("by the server", read), ("by the whole device", device)):
            for name, values in reads.items():
                self.row({"part": "shared buffers", "condition": "sparse 10 %", "method": name, "unit": "x own", "values": values,
                          "note": f"bytes read {source} to {own / 2**20:.0f} MiB wanted" + (dump if name == "autoprewarm" else "")})
        conf.write_text(plain)


def conditions(device: int) -> dict[str, str]:
    queue = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue")
    if not queue.exists():
        queue = queue.parent.parent / "queue"

    def read(name: str) -> str:
        try:
            return (queue / name).read_text().strip()
        except OSError:
            return "unknown"

    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    system = next((m[m.index("-") + 1] for m in mounts if m[2] == f"{os.major(device)}:{os.minor(device)}"), "unknown")
    return {"kernel": os.uname().release, "file system": system, "scheduler": read("scheduler"), "read_ahead_kb": read("read_ahead_kb"),
            "max_sectors_kb": read("max_sectors_kb"), "cpus": str(os.cpu_count()), "load": f"{os.getloadavg()[0]:.2f}"}


PARTS = ("device", "looking", "many", "loading", "foreground", "throttled", "buffers", "hold")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--gib", type=float, required=True)
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ",".join(PARTS))
    options = parser.parse_args()
    parts = options.parts.split(",")
    stated = conditions(os.stat(options.directory).st_dev)
    stated.update({"table": f"{options.gib:g} GiB", "repetitions": str(options.repeat), "throttle": "none but where a row names one"})
    print("==> " + ", ".join(f"{key} {value}" for key, value in stated.items()), flush=True)
    bench = Bench(options.directory, options.gib, options.repeat)
    print(f"{'part':18} {'condition':20} {'method':24} {'min':>9} {'median':>9} {'max':>9}", flush=True)
    if {"device", "foreground"} & set(parts):
        bench.device_limit()
    if {"looking", "loading", "foreground"} & set(parts):
        # one row a block, so that little has to be written
        bench.use("bench", bench.create("bench", options.gib))
    if "looking" in parts:
        bench.looking()
    if "loading" in parts:
        bench.loading("time to resident", list(bench.patterns[0]), ("prefetch", "read", "buffer"))
        bench.canceling("full", "full")
    if "foreground" in parts:
        foreground.measure(bench)
    if "many" in parts:
        bench.many_files()
    if "throttled" in parts:
        bench.throttled()
    if "buffers" in parts:
        bench.sparse_buffers()
    if "hold" in parts:
        hold.measure(bench)
    stated["load at the end"] = f"{os.getloadavg()[0]:.2f}"
    print(f"==> load at the end {stated['load at the end']}")
    options.json.write_text(json.dumps({"conditions": stated, "rows": bench.rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
