# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the clients of two servers behind HAProxy notice when one of them comes back from a reboot: the p99 of their transactions, in milliseconds.

Runs behind the throttle of bench/run. pgbench opens a connection for each transaction, of which HAProxy gives each server its share. One server is
stopped as by a crash, HAProxy takes it out, the page cache of its files is emptied, and it is started again: HAProxy decides by its own check (rise and
fall), or by readiness.py beside each server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from power_on import OURS, Server

RATE = 60  # transactions a second, each with a connection of its own: a quarter of what this machine can do
NORMAL, WATCHED = 20, 40  # seconds, with two warm servers, and since the start of the one
CONF = """
global
    stats socket {directory}/haproxy.admin level admin
defaults
    mode tcp
    retries 3
    option redispatch
    timeout connect 5s
    timeout client 1m
    timeout server 1m
    timeout check 5s
listen read
    bind unix@{directory}/.s.PGSQL.6000 mode 777
    balance roundrobin
    {check}
    default-server inter 1s fall 3 rise 2
"""
SERVER = "    server db{number} unix@{directory}/.s.PGSQL.5432 check weight 100 {warmth}\n"
PLAIN = ("option pgsql-check user postgres", "")
READINESS = ("option httpchk", "port {http} addr 127.0.0.1 agent-check agent-addr 127.0.0.1 agent-port {agent} agent-inter 1s")
METHODS = {
    "nothing, rise/fall": ("", False),
    "ours, rise/fall": (OURS, False),
    "ours, readiness": (OURS, True),
}


def p99(milliseconds: list[float]) -> float:
    return statistics.quantiles(milliseconds, n=100)[98]


class Pool:
    def __init__(self, directory: Path, program: Path, haproxy: Path, servers: list[Server]) -> None:
        self.directory, self.program, self.haproxy, self.servers = directory, program, haproxy, servers
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self, readiness: bool) -> None:
        check, warmth = READINESS if readiness else PLAIN
        text = CONF.format(directory=self.directory, check=check)
        for number, server in enumerate(self.servers, 1):
            http, agent = 6000 + number, 6010 + number
            text += SERVER.format(number=number, directory=server.directory, warmth=warmth.format(http=http, agent=agent))
            if readiness:
                self.processes.append(subprocess.Popen(
                    ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "systemd-socket-activate", "--listen", f"127.0.0.1:{http}",
                     "--listen", f"127.0.0.1:{agent}", "--setenv", f"PGHOST={server.directory}", "--setenv", "PGDATABASE=postgres",
                     "--setenv", "PATH=/usr/bin:/bin", "/usr/bin/python3", str(self.program)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"))
        conf = self.directory / "haproxy.cfg"
        conf.write_text(text)
        self.processes.append(subprocess.Popen([str(self.haproxy), "-q", "-db", "-f", str(conf)], cwd="/"))
        self.wait("UP")

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes = []

    def wait(self, state: str) -> None:
        """Until HAProxy says so of db2."""
        deadline = time.monotonic() + 120
        while not self.state().startswith(state):
            if time.monotonic() > deadline:
                raise RuntimeError(f"db2 is not {state}: {self.state()}")
            time.sleep(0.1)

    def state(self) -> str:
        try:
            with socket.socket(socket.AF_UNIX) as admin:
                admin.connect(str(self.directory / "haproxy.admin"))
                admin.sendall(b"show stat\n")
                rows = admin.makefile().read().splitlines()
        except OSError:
            return ""
        names = rows[0].lstrip("# ").split(",")
        return next((dict(zip(names, row.split(",")))["status"] for row in rows if row.startswith("read,db2,")), "")

    def load(self, seconds: float) -> subprocess.Popen[bytes]:
        for old in self.directory.glob("transactions.*"):
            old.unlink()
        os.chmod(self.directory, 0o777)
        return subprocess.Popen(
            self.servers[0].command("pgbench", "-h", str(self.directory), "-p", "6000", "-S", "-C", "-n", "-c", "8", "-j", "2", "-R", str(RATE), "-T",
                                    str(round(seconds)), "-l", "--log-prefix", f"{self.directory}/transactions", "postgres"),
            stdout=subprocess.DEVNULL, cwd=self.directory)

    def latencies(self, process: subprocess.Popen[bytes]) -> list[float]:
        """Of its transactions, connections included, in milliseconds; once it has ended."""
        if process.wait() != 0:
            raise RuntimeError("pgbench failed")
        return [int(line.split()[2]) / 1000 for path in self.directory.glob("transactions.*") for line in path.read_text().splitlines()]

    def reboot(self, conf: str, readiness: bool) -> dict[str, float]:
        second = self.servers[1]
        second.begin(conf)
        self.begin(readiness)
        try:
            normal = p99(self.latencies(self.load(NORMAL)))
            second.ctl("-m", "immediate", "stop")
            self.wait("DOWN")
            second.lose_power()
            process = self.load(WATCHED)
            started = second.power_on()
            self.wait("UP")
            at = time.time() - started
            found = self.latencies(process)
        finally:
            self.end()
        second.ctl("-m", "fast", "stop")
        return {"normal": normal, "p99": p99(found), "worst": max(found), "seconds until traffic": at}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="of the extension")
    parser.add_argument("--program", type=Path, required=True, help="readiness.py, where postgres can read it")
    parser.add_argument("--haproxy", type=Path, required=True)
    parser.add_argument("--scale", type=int, default=40, help="pgbench's: 15 MB each")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    options.directory.mkdir(parents=True)
    servers = [Server("15", options.directory / name, options.source, "") for name in ("db1", "db2")]
    for server in servers:
        server.create(options.scale)
    pool = Pool(options.directory, options.program, options.haproxy, servers)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
    try:
        servers[1].begin("")
        servers[1].sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO pg_monitor")
        servers[1].ctl("-m", "fast", "stop")
        servers[0].begin("")
        for _number in range(options.repeat):
            for name, (conf, readiness) in METHODS.items():
                found[name].append(pool.reboot(conf, readiness))
                one = found[name][-1]
                print(f"{name:20} p99 {one['p99']:7.1f} ms, {one['p99'] / one['normal']:5.2f} times the normal {one['normal']:.1f} ms; worst"
                      f" {one['worst']:.0f} ms; traffic {one['seconds until traffic']:.1f} s after the start", flush=True)
    finally:
        for server in servers:
            if (server.data / "postmaster.pid").exists():
                server.ctl("-m", "immediate", "stop")
    options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
