# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Patroni with three members, and the real etcd that it needs, on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest
import yaml
from cluster import OWNER, Cluster, free_port, run, thorough
from conftest import TABLES
from proxies import wait_until

RELEASES = ["patroni-4", pytest.param("patroni-3", marks=thorough)]
BALANCER = """
defaults
  mode tcp
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  option redispatch 1
  default-server inter 500ms fastinter 100ms downinter 200ms fall 3 rise 1
"""
REPLICA = """
- name: Load balancers are not sent to it yet
  ansible.builtin.uri:
    url: "http://127.0.0.1:{{ patroni }}/replica"
    status_code: [503]
"""
LOGIN = {"username": "api", "password": "s3cret-0f-the-api"}


class Member:
    def __init__(self, directory, cluster):
        self.directory = directory
        self.cluster = cluster
        self.port = free_port()
        self.configuration = os.path.join(directory, "patroni.yml")
        self.process = None

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body and json.dumps(body), {"Authorization": "Basic YXBpOnMzY3JldC0wZi10aGUtYXBp"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def version(self):
        """As numbers."""
        return tuple(map(int, json.loads(self.ask("GET", "/patroni")[1])["patroni"]["version"].split(".")))


class Patroni:
    """``release`` is the name of a virtual environment of build-tools/integration."""

    def __init__(self, directory, binaries, release, names=("db1", "db2", "db3")):
        self.directory = directory
        self._binaries = binaries
        self._python = os.path.join(os.environ["PATRONI"], release, "bin/python")
        self._processes = []
        self.members = {}
        self._etcd = "127.0.0.1:%d" % free_port()
        self._begin_etcd()
        for name in names:
            folder = os.path.join(directory, name)
            os.mkdir(folder)
            shutil.chown(folder, OWNER, OWNER)
            self.members[name] = Member(folder, Cluster(binaries, folder, "data"))
            self.write(name)
            self.start(name)
            wait_until(lambda name=name: self.answers(name))

    def _begin_etcd(self):
        peer = "http://127.0.0.1:%d" % free_port()
        self._run("etcd", [
            os.environ["ETCD"], "--data-dir", os.path.join(self.directory, "etcd"), "--unsafe-no-fsync", "--listen-client-urls", "http://" + self._etcd,
            "--advertise-client-urls", "http://" + self._etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", "default=" + peer])

    def _run(self, name, command):
        with open(os.path.join(self.directory, name + ".log"), "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", user=OWNER, group=OWNER, extra_groups=[], start_new_session=True,
                env={"PATH": "/usr/bin:/bin", "HOME": self.directory, "LANG": "C.UTF-8"})
        self._processes.append(process)
        return process

    def write(self, name, restapi=None, ctl=None, parameters=None, tags=None, recovery_conf=None):
        """The configuration of a member."""
        member = self.members[name]
        parameters = dict({
            "shared_buffers": "16MB", "autovacuum": "off", "bgwriter_lru_maxpages": 0, "unix_socket_directories": member.directory, "fsync": "off",
        }, **parameters or {})
        here = "127.0.0.1:%d" % member.port
        with open(member.configuration, "w") as file:
            yaml.safe_dump({
                "scope": "shop", "name": name, "etcd3": {"host": self._etcd},
                "restapi": dict({"listen": here, "connect_address": here, "authentication": LOGIN}, **restapi or {}),
                "bootstrap": {
                    "dcs": {"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "postgresql": {
                        "use_slots": True, "use_pg_rewind": True, "parameters": {"max_worker_processes": 8}}},
                    "initdb": ["no-sync", {"encoding": "UTF8"}]},
                "postgresql": {
                    "listen": "127.0.0.1:%d" % member.cluster.port, "connect_address": "127.0.0.1:%d" % member.cluster.port, "data_dir": member.cluster.data,
                    "bin_dir": self._binaries, "use_unix_socket": True, "parameters": parameters,
                    "recovery_conf": recovery_conf or {},
                    "pg_hba": ["local all all peer", "host replication replicator 127.0.0.1/32 trust", "host all all 127.0.0.1/32 trust"],
                    "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}}},
                "tags": tags or {}, "ctl": ctl or {},
            }, file, sort_keys=False)
        shutil.chown(member.configuration, OWNER, OWNER)

    def start(self, name):
        self.members[name].process = self._run(name, [self._python, "-m", "patroni", self.members[name].configuration])

    def kill(self, name):
        """Patroni itself: PostgreSQL goes on."""
        self.members[name].process.kill()
        self.members[name].process.wait()

    def certificate(self, name):
        """The paths of a certificate for 127.0.0.1, which is its own authority, and of its key."""
        paths = [os.path.join(self.directory, name + end) for end in (".crt", ".key")]
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=" + name,
            "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1], user=OWNER)
        return paths

    def answers(self, name):
        try:
            return json.loads(self.members[name].ask("GET", "/patroni")[1])["state"] == "running"
        except (OSError, http.client.HTTPException):
            return False

    def cluster(self):
        """GET /cluster of a member that answers."""
        for member in self.members.values():
            try:
                status, text = member.ask("GET", "/cluster")
            except (OSError, http.client.HTTPException):
                continue
            if status == 200:
                return json.loads(text)
        return {"members": []}

    def states(self):
        return {one["name"]: one["state"] for one in self.cluster()["members"]}

    def leader(self):
        return next((one["name"] for one in self.cluster()["members"] if one["role"] == "leader"), None)

    def timelines(self):
        return {one.get("timeline") for one in self.cluster()["members"]}

    def starts(self, name):
        """How often PostgreSQL was started."""
        with open(os.path.join(self.directory, name + ".log"), errors="replace") as log:
            return log.read().count("starting PostgreSQL")

    @contextlib.contextmanager
    def without_store(self):
        """While etcd does not answer."""
        etcd = self._processes[0]
        etcd.send_signal(signal.SIGSTOP)
        yield
        etcd.send_signal(signal.SIGCONT)

    def configure(self, **values):
        status, text = self.members[self.leader()].ask("PATCH", "/config", values)
        assert status == 200, text

    def stop(self):
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for member in self.members.values():
            member.cluster.stop("immediate")


class Balancer:
    """A real HAProxy whose health checks are Patroni's; ``ports`` has one for the primary and one for the standbys."""

    def __init__(self, patroni, directory):
        self.ports = {"primary": free_port(), "replica": free_port()}
        path = os.path.join(directory, "balancer.cfg")
        with open(path, "w") as file:
            file.write(BALANCER)
            for name, port in self.ports.items():
                file.write("listen %s\n  bind 127.0.0.1:%d\n  option httpchk GET /%s\n" % (name, port, name))
                for member in patroni.members.values():
                    file.write("  server %s 127.0.0.1:%d check port %d\n" % (os.path.basename(member.directory), member.cluster.port, member.port))
        self._process = subprocess.Popen([os.environ["HAPROXY"], "-f", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self._process.kill()
        self._process.wait()


class Client:
    """pgbench, which gives up at the first transaction or connection that fails."""

    def __init__(self, cluster, directory, name, host, port, script, *options):
        path = os.path.join(directory, name + ".sql")
        with open(path, "w") as file:
            file.write(script)
        self._log, self._said = os.path.join(directory, name + ".transactions"), os.path.join(directory, name + ".said")
        with open(self._said, "w") as said:
            self._process = subprocess.Popen(
                [cluster.bin + "/pgbench", "--no-vacuum", "--time=100000", "--rate=20", "--log", "--log-prefix", self._log, "--file", path,
                 "--host", host, "--port", str(port), "--username", "postgres", *options, "postgres"],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, user=OWNER, group=OWNER, extra_groups=[], cwd=directory)

    def stop(self):
        """What it has given up for, the number of its transactions, and the longest time between two of them, in seconds."""
        failed = self._process.poll() is not None
        self._process.kill()
        self._process.wait()
        with open(self._said) as said:
            text = said.read() if failed else ""
        with open("%s.%d" % (self._log, self._process.pid)) as file:
            ends = [int(words[4]) + int(words[5]) / 1e6 for words in map(str.split, file) if len(words) > 5]
        return text, len(ends), max((later - sooner for sooner, later in zip(ends, ends[1:])), default=0.0)


def restart(fleet, patroni, *arguments, **variables):
    """Each host goes back into traffic only if it is really out of it then."""
    ports = {name: {"patroni": member.port} for name, member in patroni.members.items()}
    checks = fleet.write("replica.yml", REPLICA)
    return fleet.run(
        *arguments, pgfleet_service_manager="patroni", per_host=ports, timeout=600,
        **dict({"cache_restart_traffic": ["patroni"], "cache_restart_before_in": checks, "cache_restart_drain_timeout": 20}, **variables))


def texts(patroni):
    found = {}
    for name, member in patroni.members.items():
        with open(member.configuration) as file:
            found[name] = file.read()
    return found


def begun(machine, release):
    """For a fixture: the fixture cluster has installed the extension's files."""
    directory = tempfile.mkdtemp(dir=machine.directory)
    os.chmod(directory, 0o755)
    shutil.chown(directory, OWNER, OWNER)
    patroni = Patroni(directory, machine.bin, release)
    leader = patroni.members[patroni.leader()].cluster
    leader.sql(TABLES)
    leader.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    wait_until(lambda: all(one.cluster.sql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_residency'") == "1" for one in patroni.members.values()))
    yield patroni
    patroni.stop()
