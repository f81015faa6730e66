# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that reports to load balancers how warm a server is, with sockets as systemd gives them, and a real HAProxy; and its role."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from cluster import OWNER, free_port, run, thorough
from playbook import recap
from proxies import HAProxy, wait_until
from test_playbooks import OLDEST

PROGRAM = os.path.join(os.path.dirname(__file__), "../../roles/cache_readiness/files/readiness.py")
PSYCOPG_3 = os.environ["HOST_ENVIRONMENTS"] + "/host-3.11-psycopg3/bin/python"
CLOSE = 5  # percentage points: the kernel reclaims some pages meanwhile


class Readiness:
    def __init__(self, python, program, cluster, *arguments):
        self.cluster = cluster
        self.http, self.agent = free_port(), free_port()
        listens = [word for port in (self.http, self.agent) for word in ("--listen", "127.0.0.1:%d" % port)]
        environment = {"PGHOST": cluster.socket, "PGPORT": str(cluster.port), "PGDATABASE": "postgres", "PGUSER": "postgres", "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            ["systemd-socket-activate", *listens, *(word for pair in environment.items() for word in ("--setenv", "=".join(pair))),
             python, program, *arguments],
            env=environment, cwd="/", user=OWNER, group=OWNER, extra_groups=[])
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", self.agent)) == 0, 10)

    def stop(self):
        self._process.kill()
        self._process.wait()

    def get(self):
        """HTTP status and what it says."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/" % self.http, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def line(self):
        with socket.create_connection(("127.0.0.1", self.agent), timeout=20) as connection:
            return connection.makefile().read()


def residency(one):
    """In percent, asked of the server."""
    return float(one.sql("SELECT 100.0 * sum(resident) / sum(wanted - gone) FROM residency_snapshot_segments('autosave')"))


@pytest.fixture(scope="module")
def one(machine, cluster):
    one = machine("readiness")
    one.sql("CREATE EXTENSION pg_residency; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO pg_monitor")
    one.sql("CREATE TABLE large AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 60000) AS i; CHECKPOINT")
    one.large = one.file_of("large")
    yield one
    one.stop()


@pytest.fixture(params=["/usr/bin/python3", pytest.param(PSYCOPG_3, marks=thorough)], ids=["psycopg2", "psycopg3"])
def begin(request, one, machine):
    """Start the program beside a server that has just been started, with three quarters of the table cold."""
    program = shutil.copy(PROGRAM, machine.directory)
    one.warm(one.large)
    one.sql("SELECT residency_snapshot('autosave', 1, true)")
    one.stop()
    cool_most(one)
    one.start()
    started = []

    def start(*arguments):
        started.append(Readiness(request.param, program, one, "--min-residency=60", *arguments))
        return started[0]

    yield start
    for each in started:
        each.stop()


def cool_most(one):
    with open(one.large, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, os.path.getsize(one.large) * 3 // 4, os.POSIX_FADV_DONTNEED)


def test_a_cold_start(one, begin):
    """The measured residency, until it was enough once: then a cache that shrinks is no reason to lose traffic."""
    readiness = begin()
    status, said = readiness.get()
    assert (status, said["state"], said["snapshot"]) == (503, "measured", "autosave") and abs(said["residency"] - residency(one)) < CLOSE, said
    assert readiness.line() == "up %d%%\n" % said["residency"]
    request = urllib.request.Request("http://127.0.0.1:%d/" % readiness.http, method="HEAD")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 503 and refused.value.read() == b""
    one.warm(one.large)
    wait_until(lambda: readiness.get()[0] == 200, 20)
    cool_most(one)
    time.sleep(3)  # an answer from before is older than FRESH then
    status, said = readiness.get()
    assert (status, said["state"], said["residency"], readiness.line()) == (200, "ready", None, "up 100%\n"), said
    one.stop()
    wait_until(lambda: readiness.get()[1]["state"] == "down", 10)
    assert (readiness.get()[0], readiness.line()) == (503, "up 1%\n")
    cool_most(one)
    one.start()
    wait_until(lambda: readiness.get()[1]["state"] != "down", 10)
    status, said = readiness.get()
    assert (status, said["state"]) == (503, "measured"), said


def test_it_follows_a_restore(one, begin):
    """While a job runs, it is the job that reports; with its end the server is ready, however warm it is."""
    readiness = begin()
    job = one.sql("SELECT residency_restore_start('autosave', '{\"rate\": 4194304}')")
    wait_until(lambda: readiness.get()[1]["state"] == "restoring", 10)
    first = readiness.get()[1]["residency"]
    wait_until(lambda: readiness.get()[1]["residency"] > first, 20)
    assert readiness.get()[0] == 503
    one.sql("SELECT residency_cancel(%s)" % job)
    wait_until(lambda: readiness.get()[0] == 200, 10)
    assert readiness.line() == "up 100%\n" and residency(one) < 60


def test_patience(begin):
    readiness = begin("--patience=4")
    assert readiness.get()[0] == 503
    wait_until(lambda: readiness.get()[0] == 200, 10)


def test_it_stops_no_traffic_without_need(one, begin):
    """Without a snapshot, without the extension, or without a login, PostgreSQL serves, and so it is up."""
    readiness = begin()
    one.sql("SELECT residency_drop_snapshot('autosave')")
    wait_until(lambda: readiness.get()[1]["state"] == "no snapshot", 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.sql("DROP EXTENSION pg_residency")
    wait_until(lambda: readiness.get()[1]["state"] == "no extension", 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.sql("CREATE EXTENSION pg_residency")
    one.sql("ALTER DATABASE postgres ALLOW_CONNECTIONS false", "template1")
    one.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgfleet readiness'", "template1")
    wait_until(lambda: readiness.get()[1]["state"] == "not measured", 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.stop()
    wait_until(lambda: readiness.get()[1]["state"] == "down", 10)
    assert (readiness.get()[0], readiness.line()) == (503, "up 1%\n")
    one.start()
    one.sql("ALTER DATABASE postgres ALLOW_CONNECTIONS true", "template1")


def test_a_server_that_hangs(one, begin):
    """A server whose storage hangs answers nobody, and the kernel still accepts connections for it."""
    readiness = begin("--patience=0")
    wait_until(lambda: readiness.get()[0] == 200, 10)
    with open(one.data + "/postmaster.pid", encoding="ascii") as file:
        postmaster = int(file.readline())
    all_of_it = [*map(int, run("ps", "-o", "pid=", "--ppid", str(postmaster)).split()), postmaster]
    for pid in all_of_it:
        os.kill(pid, signal.SIGSTOP)
    try:
        with socket.create_connection(("127.0.0.1", readiness.agent)):  # which waits for the answer
            wait_until(lambda: readiness.line() == "up 1%\n", 20)
            assert readiness.get()[0] == 503
    finally:
        for pid in all_of_it:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: readiness.get()[0] == 200, 20)


@thorough
def test_slow_clients(one, begin):
    """Many that send a byte at a time: others are answered when these have had their time, and a dead server is not called alive."""
    readiness = begin("--patience=0")
    wait_until(lambda: readiness.get()[0] == 200, 10)
    one.stop()
    with contextlib.ExitStack() as slow:
        clients = [slow.enter_context(socket.create_connection(("127.0.0.1", readiness.http))) for dummy in range(40)]
        wait_until(lambda: readiness.line() == "up 1%\n", 10)
        deadline = time.monotonic() + 8
        found = set()
        while time.monotonic() < deadline:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b"G")
            found.add(readiness.line())
            with contextlib.suppress(OSError, http.client.HTTPException):
                found.add(readiness.get()[0])
            time.sleep(0.3)
    assert found == {503, "up 1%\n"}, found
    one.start()
    wait_until(lambda: readiness.get()[0] == 200, 20)


def test_haproxy(one, begin, tmp_path):
    """The weight follows the residency; an operator's drain stays; a server that was stopped comes back with little."""
    readiness = begin()
    proxy = HAProxy(str(tmp_path), {"db1": one}, "weight 100 agent-check agent-addr 127.0.0.1 agent-port %d agent-inter 200ms" % readiness.agent)
    try:
        wait_until(lambda: int(proxy.statuses("weight")["db1"]) < 60, 20)
        assert abs(int(proxy.statuses("weight")["db1"]) - residency(one)) < CLOSE and proxy.status("db1") == "UP"
        one.warm(one.large)
        wait_until(lambda: int(proxy.statuses("weight")["db1"]) == 100, 20)
        proxy.ask("set server read/db1 state drain")
        wait_until(lambda: proxy.status("db1").startswith("DRAIN"), 20)
        one.stop()
        wait_until(lambda: readiness.line() == "up 1%\n", 20)
        one.start()
        wait_until(lambda: readiness.line() == "up 100%\n", 20)
        time.sleep(1)  # five answers of the agent
        assert proxy.status("db1").startswith("DRAIN")
        proxy.ask("set server read/db1 state ready")
        wait_until(lambda: proxy.status("db1") == "UP" and int(proxy.statuses("weight")["db1"]) == 100, 20)
    finally:
        proxy.stop()


@pytest.mark.parametrize("path", [OLDEST + "/bin:", pytest.param("", marks=thorough)], ids=["oldest", "newest"])
def test_the_role_without_its_units(one, ansible, path):
    """What it would do, and that there is nothing to remove; with the oldest Ansible too. With systemd, the scenario default runs it."""
    ansible.set_hosts({"db1": {}}, pgfleet_login_port=one.port, pgfleet_login_unix_socket=one.socket)
    role = ansible.write([], roles=["pgfleet.cache.cache_readiness"])
    environment = {"PATH": path + os.environ["PATH"]}
    output, status = ansible.command(role, "--check", **environment)
    assert status == 0 and recap(output)["db1"]["changed"] == 2 and not os.path.exists("/usr/local/lib/pgfleet/readiness.py"), output
    output, status = ansible.command(role, "-e", "cache_readiness_state=absent", **environment)
    assert status == 0 and recap(output)["db1"]["changed"] == 0, output
    output, status = ansible.command(role, "-e", "cache_readiness_http=8433", **environment)
    assert status != 0 and "cache_readiness_http and cache_readiness_agent are both 8433: set different ports." in " ".join(output.split()), output
