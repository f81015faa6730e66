# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server after its power came back: transactions a second from the postmaster's start, and how long recovery takes, by who fills which cache.

Runs behind the throttle of bench/run. The server is stopped as by a crash, the page cache of its files is emptied, it is started, and pgbench selects rows of a
table that is larger than shared_buffers, so many a second, from the moment at which the server accepts connections. Nobody else loads anything.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

RATE = 45_000  # transactions a second that are asked of it: two thirds of what it can do here, whose speed changes by a tenth from one minute to the next
BACK = 0.95  # of them
SLOT = 0.25  # seconds, of a curve
STEADY = 8  # slots in a row
WATCHED = 40  # seconds
PATIENCE = 60  # seconds
BANDWIDTH = 125_000_000  # bytes a second that the throttle leaves
SAMPLED = 0.1  # of the transactions
LEVELS = " ▁▂▃▄▅▆▇█"
CONF = """
listen_addresses = ''
shared_buffers = 256MB
max_wal_size = 16GB
checkpoint_timeout = 1d
autovacuum = off
"""
OURS = "shared_preload_libraries = 'pg_residency'\n"
SAVING = "pg_residency.autosave = 1s\n"  # until the caches are saved
METHODS = {
    "nothing": "",
    "autoprewarm": "shared_preload_libraries = 'pg_prewarm'\npg_prewarm.autoprewarm_interval = 0\n",
    "ours": OURS,
    "ours, both caches": OURS + "pg_residency.autorestore = both\n",
}
RECOVERIES = {"nothing": "", "library": OURS + "pg_residency.autorestore = off\n", "ours": OURS}
CHANGE = "UPDATE pgbench_accounts SET abalance = 1 WHERE aid % 97 = 1"
# What recovery reads: (settings, the change). With full pages it reads nothing but WAL, which has each block that is changed for the first time.
REPLAYS = {
    "WAL": ("", CHANGE),
    "blocks that are restored": ("full_page_writes = off\n", CHANGE),
}

Curve = list[float]  # transactions a second in each slot since the start


class Server:
    """Of a copy of the packages' files, in which our extension is installed from the source in that directory."""

    def __init__(self, major: str, directory: Path, source: Path, io_method: str) -> None:
        for part in ("lib", "share", "include"):
            shutil.copytree(f"/usr/{part}/postgresql/{major}", directory / "usr" / part / "postgresql" / major, symlinks=True)
        self.bin = directory / "usr/lib/postgresql" / major / "bin"
        shutil.copytree(source, directory / "src")
        subprocess.run(["make", "-s", "-C", str(directory / "src"), f"PG_CONFIG={self.bin}/pg_config", "install"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["chown", "-R", "postgres:", str(directory)], check=True)
        self.directory, self.data, self.log = directory, directory / "data", directory / "log"
        self.conf = f"{CONF}unix_socket_directories = '{directory}'\n" + (f"io_method = {io_method}\n" if io_method else "")

    def command(self, name: str, *arguments: str) -> list[str]:
        return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", str(self.bin / name), *arguments]

    def run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(self.command(name, *arguments), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.directory)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stdout}")
        return done.stdout.strip()

    def sql(self, text: str) -> str:
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(self.directory), "-d", "postgres", "-c", text)

    def ctl(self, *arguments: str) -> None:
        subprocess.run(self.command("pg_ctl", "-D", str(self.data), "-l", str(self.log), "-s", *arguments), check=True, cwd=self.directory)

    def database(self, *arguments: str) -> list[str]:
        return ["-h", str(self.directory), *arguments, "postgres"]

    def create(self, scale: int) -> None:
        self.run("initdb", "-D", str(self.data), "-A", "trust", "--no-sync")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(self.conf)
        self.ctl("-w", "start")
        self.run("pgbench", *self.database("-i", "-q", "-s", str(scale), "--fillfactor=90"))
        self.sql("CREATE EXTENSION pg_residency; CREATE EXTENSION pg_prewarm")
        self.sql("VACUUM")
        self.ctl("-m", "fast", "stop")

    def files(self, *names: str) -> list[Path]:
        found = []
        for name in names:
            base = self.data / self.sql(f"SELECT pg_relation_filepath('{name}')")
            found += sorted(base.parent.glob(f"{base.name}*"))
        return found

    def hot(self) -> list[Path]:
        return self.files("pgbench_accounts", "pgbench_accounts_pkey")

    def begin(self, conf: str) -> None:
        """A warm server with these settings, whose caches are saved."""
        settings = self.data / "postgresql.auto.conf"
        settings.write_text(conf + (SAVING if OURS in conf else ""))
        for old in (self.data / "pg_residency").glob("autosave*"):
            old.unlink()
        self.ctl("-w", "start")
        for path in self.hot():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
        self.run("pgbench", *self.database("-S", "-n", "-c", "4", "-j", "2", "-T", "5"))
        if "pg_prewarm" in conf:
            self.sql("SELECT autoprewarm_dump_now()")
        if OURS in conf:
            newest = "SELECT coalesce(max(generation), 0) FROM residency_snapshots() WHERE name = 'autosave'"
            before = int(self.sql(newest))
            self.wait(newest, lambda found: int(found) > before + 1)  # one was under way
        settings.write_text(conf)

    def wait(self, query: str, is_enough: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_enough(self.sql(query)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{query}: {self.sql(query)}")
            time.sleep(0.1)

    def lose_power(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.ctl("-m", "immediate", "stop")
        os.sync()
        for path in self.data.rglob("*"):
            if path.is_file():
                evict(path)

    def power_on(self) -> float:
        """When the postmaster was started, by time.time(); it accepts connections now."""
        at = time.time()
        self.ctl("-W", "start")
        while subprocess.run(self.command("pg_isready", "-q", "-h", str(self.directory)), check=False, cwd=self.directory).returncode:
            if time.time() > at + PATIENCE:
                raise RuntimeError(self.log.read_text(errors="replace")[-1000:])
            time.sleep(0.02)
        return at

    def curve(self, since: float) -> Curve:
        """From that time.time() on."""
        for old in self.directory.glob("transactions.*"):
            old.unlink()
        arguments = ["-S", "-M", "prepared", "-n", "-c", "8", "-j", "2", "-R", str(RATE), "-T", str(WATCHED)]
        self.run("pgbench", *self.database(*arguments, "-l", "--log-prefix", f"{self.directory}/transactions", "--sampling-rate", str(SAMPLED)))
        found = [0.0] * round(WATCHED / SLOT)
        for path in self.directory.glob("transactions.*"):
            for line in path.read_text().splitlines():
                seconds, microseconds = line.split()[4:6]
                slot = int((int(seconds) + int(microseconds) / 1e6 - since) / SLOT)
                if slot < len(found):
                    found[slot] += 1 / SAMPLED / SLOT
        return found


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def back_at(curve: Curve) -> float | None:
    """Seconds from the start to the first of the slots in which there is enough, on average of STEADY."""
    enough = BACK * RATE
    for at in range(len(curve) - STEADY + 1):
        if curve[at] >= 0.9 * enough and statistics.mean(curve[at : at + STEADY]) >= enough:
            return at * SLOT
    return None


def drawn(curve: Curve) -> str:
    """A character a second."""
    each = round(1 / SLOT)
    return "".join(LEVELS[min(8, round(statistics.mean(curve[at : at + each]) / RATE * 8))] for at in range(0, len(curve), each))


def throughput(server: Server, repeat: int) -> dict[str, object]:
    server.begin("")
    size = sum(path.stat().st_size for path in server.hot())
    server.ctl("-m", "fast", "stop")
    target = 1.25 * size / BANDWIDTH
    print(f"hot set {size / 2**30:.2f} GiB, so the target is {target:.1f} s", flush=True)
    found: dict[str, list[Curve]] = {name: [] for name in METHODS}
    for _number in range(repeat):
        for name, conf in METHODS.items():
            server.begin(conf)
            server.lose_power()
            curve = server.curve(server.power_on())
            server.ctl("-m", "immediate", "stop")
            found[name].append(curve)
            seconds = back_at(curve)
            back = "not back" if seconds is None else f"{seconds:6.2f} s"
            print(f"{name:18} {back}  {drawn(curve)}", flush=True)
    return {"bytes": size, "target": target, "curves": found}


def recovery(server: Server, repeat: int) -> dict[str, list[float]]:
    """Seconds from the start until it accepts connections."""
    found: dict[str, list[float]] = {}
    for reads, (settings, change) in REPLAYS.items():
        for _number in range(max(3, repeat)):
            for name, conf in RECOVERIES.items():
                server.begin(conf + settings)
                server.sql(f"CHECKPOINT; {change}")
                server.lose_power()
                began = server.power_on()
                found.setdefault(f"{reads}, {name}", []).append(time.time() - began)
                server.ctl("-m", "fast", "stop")
        print(f"recovery reads {reads}", flush=True)
        nothing = statistics.median(found[f"{reads}, nothing"])
        for name in RECOVERIES:
            several = found[f"{reads}, {name}"]
            print(f"  {name:8} {statistics.median(several) / nothing:5.3f}  {' '.join(f'{one:6.2f}' for one in several)} s", flush=True)
    return found


def saving(server: Server, repeat: int) -> dict[str, list[int]]:
    """Milliseconds, and those of CPU, of the worker's saves of a server that has little in its caches: the fixed part."""
    (server.data / "postgresql.auto.conf").write_text(OURS + SAVING)
    server.ctl("-w", "start")
    for path in server.hot():
        evict(path)
    found: dict[str, list[int]] = {"ms": [], "CPU ms": [], "MB": []}
    last = ""
    for _number in range(10 * repeat):
        saved = "SELECT generation, save_ms, save_cpu_ms, wanted / 128 FROM residency_worker WHERE generation IS NOT NULL"
        server.wait(saved, lambda row, last=last: row not in ("", last))
        last = server.sql(saved)
        for values, value in zip(found.values(), last.split("|")[1:]):
            values.append(int(value))
    server.ctl("-m", "fast", "stop")
    ms, cpu, mb = (statistics.median(values) for values in found.values())
    print(f"a save of {mb:.0f} MB takes {ms:.0f} ms ({min(found['ms'])} to {max(found['ms'])}), {cpu:.0f} ms of CPU", flush=True)
    return found


def draw(files: list[Path], picture: Path) -> None:
    import matplotlib.pyplot as plt  # the development environment has it

    figure, axes = plt.subplots(len(files), 1, figsize=(9, 2.6 * len(files)), squeeze=False, sharex=True)
    for axis, path in zip(axes[:, 0], files):
        found = json.loads(path.read_text())
        for name, several in found["throughput"]["curves"].items():
            axis.plot([SLOT * at for at in range(len(several[0]))], several[0], label=name)
        axis.axvline(found["throughput"]["target"], color="gray", linestyle=":", label="1.25 times hot bytes by bandwidth")
        axis.set(title=found["title"], ylabel="transactions a second", ylim=(0, None), xlim=(0, None))
    axes[0, 0].legend(loc="lower right", fontsize="small")
    axes[-1, 0].set_xlabel("seconds since the postmaster's start")
    figure.tight_layout()
    figure.savefig(picture, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--major", default="15")
    parser.add_argument("--directory", type=Path, help="that does not exist yet")
    parser.add_argument("--source", type=Path, help="of the extension")
    parser.add_argument("--io-method", default="")
    parser.add_argument("--scale", type=int, default=40, help="pgbench's: 15 MB each")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--parts", default="saving,throughput,recovery")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path, help="a picture of the results in FILES")
    parser.add_argument("files", type=Path, nargs="*")
    options = parser.parse_args()
    if options.draw:
        draw(options.files, options.draw)
        return
    title = f"PostgreSQL {options.major}" + (f", io_method {options.io_method}" if options.io_method else "")
    print(f"==> {title}", flush=True)
    server = Server(options.major, options.directory, options.source, options.io_method)
    found: dict[str, object] = {"title": title}
    try:
        server.create(options.scale)
        for part in options.parts.split(","):
            found[part] = {"saving": saving, "throughput": throughput, "recovery": recovery}[part](server, options.repeat)
    finally:
        if (server.data / "postmaster.pid").exists():
            server.ctl("-m", "immediate", "stop")
    options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
