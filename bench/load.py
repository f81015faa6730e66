"""What a load costs on its own side (make bench): blocks per second that 1 to 8 sessions drive, and the CPU of client and server per block.

Ours is io_workload's: pgbench with a prepared statement. Beside it, on the same tables, pgio's way: a loop in PL/pgSQL that asks for ranges
until its time is up. The tables stay in the page cache, so that nothing but the load's own work is measured; on a disk both wait.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from ansible_collections.pgfleet.cache.plugins.module_utils import _io_workload, _pgbench

SESSIONS = (1, 2, 4, 8)
BLOCKS = 8192  # of a table: 64 MB
WORK_UNIT = 255
OURS, PGIO = "ours: pgbench", "pgio's way: PL/pgSQL"
LOOP = """
DO $$
DECLARE
  until timestamptz := clock_timestamp() + interval '{seconds} s';
  first integer;
  loops bigint := 0;
BEGIN
  WHILE clock_timestamp() < until LOOP
    first := 1 + floor(random() * ({blocks} - {unit} + 1));
    PERFORM sum(scratch) FROM pgfleet_io.pgio1 WHERE mykey BETWEEN first AND first + {unit} - 1;
    loops := loops + 1;
  END LOOP;
  RAISE NOTICE 'loops %', loops;
END $$;
"""


class Load:
    def __init__(self, directory: Path, seconds: int) -> None:
        self._bin = directory / "usr/lib/postgresql/15/bin"
        self._directory, self._seconds = directory, seconds
        table = "pgfleet_io.pgio1"
        self._psql(
            "CREATE SCHEMA pgfleet_io;"
            f"CREATE TABLE {table} (mykey integer NOT NULL, scratch integer NOT NULL, filler character(1024)) WITH (fillfactor = 10);"
            f"INSERT INTO {table} SELECT g, g, 'x' FROM generate_series(1, {BLOCKS}) AS g ORDER BY hashint4(g);"
            f"CREATE UNIQUE INDEX ON {table} (mykey); VACUUM (FREEZE, ANALYZE) {table}; SELECT sum(scratch) FROM {table}; CHECKPOINT"
        )

    def _command(self) -> list[str]:
        return [str(self._bin / "psql"), "-h", str(self._directory), "-U", "postgres", "-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1"]

    def _psql(self, statement: str) -> str:
        done = subprocess.run(self._command(), input=statement, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout + done.stderr

    def ours(self, sessions: int) -> tuple[int, float]:
        """Blocks, and the seconds in which they were read."""
        options = _io_workload.Options(
            state="run", schema="pgfleet_io", schemas=1, scale=str(BLOCKS), sessions=sessions, load_sessions=1, load_timeout="1h", run_time="1s",
            work_unit=WORK_UNIT, update_pct=0, update_work_unit=8, seed=1, pgbench=None, progress=None,
        )
        group = _pgbench.Group(_io_workload.scripts(options, BLOCKS, 1), sessions, 1)
        connection = f"host='{self._directory}' user='postgres' dbname='postgres'"
        settings = {"PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in _io_workload.PLAN.items())}  # as the module has them
        done = _pgbench.run(str(self._bin / "pgbench"), connection, settings, [group], self._seconds, lambda so_far, elapsed: None)
        return sum(one.done.get(0, 0) for one in done.sessions) * WORK_UNIT, done.seconds

    def pgio(self, sessions: int) -> tuple[int, float]:
        said: list[str] = []
        text = LOOP.format(seconds=self._seconds, blocks=BLOCKS, unit=WORK_UNIT)
        threads = [threading.Thread(target=lambda: said.append(self._psql(text))) for dummy in range(sessions)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(int(one.split("loops ")[1].split()[0]) for one in said) * WORK_UNIT, time.monotonic() - begun

    def server_cpu(self) -> float:
        """Seconds of the postmaster and of its children that have ended, once all sessions have: a client does not wait for the end of its session."""
        pid = (self._directory / "data/postmaster.pid").read_text().split("\n", 1)[0]
        while any("[local]" in title(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            time.sleep(0.01)
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(field) for field in fields[11:15]) / 100


def title(pid: str) -> str:
    """As ps(1) shows it. One that is ending has none, and is taken for a session: its parent has not taken note of its time yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text() or "[local]"
    except OSError:
        return ""


def client_cpu() -> float:
    """Seconds of this process, which reads pgbench's log, and of its children that have ended."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    load = Load(options.directory, options.seconds)
    rows = []
    print(f"==> load: blocks of a cached table of {BLOCKS // 128} MB, {WORK_UNIT} a SELECT, {options.seconds} s a run; CPU in microseconds per block")
    print(f"    {os.cpu_count()} processors; before, without this part, the load average was {os.getloadavg()[0]:.1f}")
    print(f"{'sessions':>8} {'method':24} {'blocks/s min':>13} {'median':>10} {'max':>10} {'client':>8} {'server':>8}")
    for sessions in SESSIONS:
        speeds: dict[str, list[float]] = {OURS: [], PGIO: []}
        cpu: dict[str, list[tuple[float, float]]] = {OURS: [], PGIO: []}
        for turn in range(options.repeat):
            methods = [(OURS, load.ours), (PGIO, load.pgio)]
            for name, method in reversed(methods) if turn % 2 else methods:
                before = client_cpu(), load.server_cpu()
                blocks, seconds = method(sessions)
                speeds[name].append(blocks / seconds)
                cpu[name].append(((client_cpu() - before[0]) / blocks * 1e6, (load.server_cpu() - before[1]) / blocks * 1e6))
        for name, values in speeds.items():
            client, server = (statistics.median(one[which] for one in cpu[name]) for which in (0, 1))
            rows.append({"part": "load", "sessions": sessions, "method": name, "unit": "blocks/s", "values": values,
                         "client microseconds per block": client, "server microseconds per block": server})
            print(f"{sessions:8} {name:24} {min(values):13.0f} {statistics.median(values):10.0f} {max(values):10.0f} {client:8.3f} {server:8.3f}", flush=True)
    options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
