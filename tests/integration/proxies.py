# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HAProxy and a real pgbouncer, as Debian has them, in front of the tests' clusters."""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import socket
import subprocess
import time

from cluster import OWNER, free_port, run

HAPROXY = """
global
  stats socket {directory}/admin.sock level admin
defaults
  mode tcp
  timeout connect 1s
  timeout client 10s
  timeout server 10s
frontend clients
  bind {directory}/clients.sock mode 666
  default_backend read
backend read
"""
POOLER = """
[databases]
postgres = host={socket} port={server} dbname=postgres user=postgres
my-shop = host={socket} port={server} dbname=postgres user=postgres
[pgbouncer]
listen_addr = {address}
so_reuseport = {shared}
listen_port = {port}
unix_socket_dir = {directory}
auth_type = any
admin_users = pgbouncer
pool_mode = transaction
pidfile = {directory}/pid
logfile = {directory}/log
; by default 15: it would refuse for longer than a query waits here
server_login_retry = 1
"""


def wait_until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


class HAProxy:
    """Its backend read has a server for each of ``clusters``, by its name, which a connection is the check of; ``more`` are words of each server's."""

    def __init__(self, directory, clusters, more=""):
        self.socket = os.path.join(directory, "admin.sock")
        path = os.path.join(directory, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(HAPROXY.format(directory=directory))
            for name, one in clusters.items():
                file.write("  server %s 127.0.0.1:%d check inter 200ms %s\n" % (name, one.port, more))
        self._process = subprocess.Popen([os.environ["HAPROXY"], "-f", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: set(self.statuses().values()) == {"UP"})

    def ask(self, command):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.socket)
            connection.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def statuses(self, column="status"):
        """Of each server; none while nobody answers."""
        try:
            rows = csv.DictReader(io.StringIO(self.ask("show stat").lstrip("# ")))
        except OSError:
            return {}
        return {row["svname"]: row[column] for row in rows if row["pxname"] == "read" and row["svname"] != "BACKEND"}

    def status(self, name):
        return self.statuses()[name]

    def stop(self):
        self._process.kill()
        self._process.wait()


class Pooler:
    """A pgbouncer in front of the primary; with ``beside``, a second process at the TCP port of this one."""

    def __init__(self, directory, cluster, beside=None, tcp=False):
        self.directory = directory
        self.port = beside.port if beside else free_port()
        self._bin = cluster.bin
        os.mkdir(directory)
        shutil.chown(directory, OWNER, OWNER)
        path = os.path.join(directory, "pgbouncer.ini")
        with open(path, "w") as file:
            file.write(POOLER.format(
                socket=cluster.socket, server=cluster.port, port=self.port, directory=directory, address="127.0.0.1" if tcp else "", shared=int(tcp)))
        run(os.environ["PGBOUNCER"], "--daemon", path, user=OWNER)

    def stop(self):
        with open(os.path.join(self.directory, "pid")) as file:
            os.kill(int(file.read()), signal.SIGTERM)

    def ask(self, text, database="pgbouncer", seconds=10):
        """The answer as CSV, and what is wrong with it."""
        try:
            done = subprocess.run(
                [self._bin + "/psql", "-Xq", "--csv", "-h", self.directory, "-p", str(self.port), "-U", "pgbouncer", "-d", database, "-c", text],
                check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, cwd="/",
                user=OWNER, group=OWNER, extra_groups=[], timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return "", "no answer within %d s" % seconds
        return done.stdout, " ".join(done.stderr.split()) if done.returncode else ""

    def resume(self):
        """Each says that there is nothing to resume, where there is nothing."""
        for text in ("RESUME", "RESUME postgres"):
            self.ask(text)

    def paused(self):
        """Databases that are paused by name. Of a pause of them all pgbouncer 1.18 says nothing: a query tells."""
        text, problem = self.ask("SHOW DATABASES")
        assert not problem, problem
        return [row["name"] for row in csv.DictReader(io.StringIO(text)) if row["paused"] != "0"]
