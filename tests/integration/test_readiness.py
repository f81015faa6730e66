# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that tells load balancers how warm a server is, with sockets as systemd gives them, and a real HAProxy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from cluster import OWNER, free_port, thorough
from proxies import HAProxy, wait_until

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
def readiness(request, one, machine):
    program = shutil.copy(PROGRAM, machine.directory)
    one.warm(one.large)
    one.sql("SELECT residency_snapshot('autosave', 1, true)")
    started = Readiness(request.param, program, one, "--min-residency=60")
    yield started
    started.stop()


def cool_most(one):
    """Three quarters of the table are no longer in the page cache."""
    one.sql("CHECKPOINT")
    with open(one.large, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, os.path.getsize(one.large) * 3 // 4, os.POSIX_FADV_DONTNEED)


def test_what_it_answers(one, readiness):
    """The measured residency; 503 below the minimum; HTTP's other methods; and nobody waits for a client that says nothing."""
    status, said = readiness.get()
    assert (status, said["state"], said["snapshot"], said["reason"]) == (200, "measured", "autosave", "") and abs(said["residency"] - residency(one)) < CLOSE
    cool_most(one)
    with socket.create_connection(("127.0.0.1", readiness.http)):
        wait_until(lambda: readiness.get()[0] == 503, 10)
        said = readiness.get()[1]
        assert abs(said["residency"] - residency(one)) < CLOSE and said["residency"] < 60, said
        assert readiness.line() == "up %d%%\n" % said["residency"]
    request = urllib.request.Request("http://127.0.0.1:%d/" % readiness.http, method="HEAD")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 503 and refused.value.read() == b""


def test_it_follows_a_restore(one, readiness):
    """While a job runs, it is the job that tells."""
    cool_most(one)
    job = one.sql("SELECT residency_restore_start('autosave', '{\"rate\": 4194304}')")
    wait_until(lambda: readiness.get()[1]["state"] == "restoring", 10)
    first = readiness.get()[1]["residency"]
    wait_until(lambda: readiness.get()[1]["residency"] > first, 20)
    one.sql("SELECT residency_cancel(%s)" % job)
    wait_until(lambda: readiness.get()[1]["state"] == "measured", 10)


def test_it_stops_no_traffic_without_need(one, readiness):
    """Without a snapshot, without the extension, or without a login, PostgreSQL serves, and so it is up; stopped, it is not, at once."""
    one.sql("SELECT residency_drop_snapshot('autosave')")
    wait_until(lambda: readiness.get()[1]["reason"] == "There is no snapshot autosave.", 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.sql("DROP EXTENSION pg_residency")
    wait_until(lambda: readiness.get()[1]["reason"] == "Extension pg_residency is not in this database.", 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.sql("CREATE EXTENSION pg_residency")
    one.sql("ALTER DATABASE postgres ALLOW_CONNECTIONS false", "template1")
    one.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgfleet readiness'", "template1")
    wait_until(lambda: "not currently accepting connections" in readiness.get()[1]["reason"], 10)
    assert (readiness.get()[0], readiness.line()) == (200, "up 100%\n")
    one.stop()
    wait_until(lambda: readiness.get()[1]["state"] == "down", 10)
    assert (readiness.get()[0], readiness.line()) == (503, "up 1%\n")
    one.start()
    one.sql("ALTER DATABASE postgres ALLOW_CONNECTIONS true", "template1")


def test_haproxy(one, readiness, tmp_path):
    """The weight follows the residency; a server that is stopped is down, and comes back; an operator's drain stays."""
    proxy = HAProxy(str(tmp_path), {"db1": one}, "weight 100 agent-check agent-addr 127.0.0.1 agent-port %d agent-inter 200ms" % readiness.agent)
    try:
        wait_until(lambda: abs(int(proxy.statuses("weight")["db1"]) - residency(one)) < CLOSE, 20)
        cool_most(one)
        wait_until(lambda: int(proxy.statuses("weight")["db1"]) < 60, 20)
        assert abs(int(proxy.statuses("weight")["db1"]) - residency(one)) < CLOSE and proxy.status("db1") == "UP"
        proxy.ask("set server read/db1 state drain")
        one.warm(one.large)
        wait_until(lambda: readiness.line() > "up 9", 20)
        wait_until(lambda: proxy.status("db1").startswith("DRAIN"), 20)
        one.stop()
        wait_until(lambda: readiness.line() == "up 1%\n", 20)
        one.start()
        wait_until(lambda: readiness.line().startswith("up 9"), 20)
        wait_until(lambda: proxy.status("db1").startswith("DRAIN"), 20)
        proxy.ask("set server read/db1 state ready")
        wait_until(lambda: proxy.status("db1") == "UP" and int(proxy.statuses("weight")["db1"]) > 90, 20)
    finally:
        proxy.stop()
