# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every adapter does the steps of its contract (docs/adapters.md), with a real instance of what it is for, which the test asks itself.

systemd's runs in the molecule scenario default, where there is a systemd: molecule/default/tests/test_service.py; Patroni's in test_patroni.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import types

import pytest
from cluster import LONG, MAJOR, free_port, heart, quick, run, thorough
from proxies import HAProxy, Pooler, wait_until

TASKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../roles/cache_common/tasks")
OWN_TRAFFIC = """
- name: Note the step
  ansible.builtin.copy:
    content: "{{ pgfleet_traffic_step }} {{ pgfleet_traffic_host }}"
    dest: "{{ noted }}"
    mode: "0644"
"""
OWN_SERVICE = """
- name: Do it
  ansible.builtin.command: "{{ pg_ctl }} {{ {'stopped': 'stop', 'started': 'start', 'restarted': 'restart'}[pgfleet_service_state] }}
    --wait --silent --pgdata={{ pgfleet_service_server.data_directory }} --log={{ pgfleet_service_server.data_directory }}.log"
  become: true
  become_user: "{{ pgfleet_become_user }}"
  changed_when: true
"""


class Haproxy:
    refused = "HAProxy on db1 does not answer at "

    def __init__(self, directory, cluster):
        self.proxy = HAProxy(directory, {"db1": cluster, "db2": cluster})
        self.entry = {"host": "db1", "backend": "read", "socket": self.proxy.socket}

    def is_out(self):
        return self.proxy.status("db1").startswith("DRAIN")

    def stop(self):
        self.proxy.stop()


class Pgbouncer:
    refused = "pgbouncer on db1 does not answer at port "

    def __init__(self, directory, cluster):
        self.pooler = Pooler(os.path.join(directory, "pooler"), cluster)
        self.entry = {"host": "db1", "port": self.pooler.port, "socket": self.pooler.directory, "database": "postgres"}
        wait_until(lambda: not self.pooler.ask("SHOW VERSION")[1])

    def is_out(self):
        return self.pooler.paused() == ["postgres"]

    def stop(self):
        if not self.pooler.ask("SHOW VERSION")[1]:
            self.pooler.stop()
        wait_until(lambda: self.pooler.ask("SHOW VERSION")[1])


class OwnTraffic:
    refused = ""  # nothing is asked of it

    def __init__(self, directory, cluster):
        self.kind = os.path.join(directory, "traffic.yml")
        self.noted = os.path.join(directory, "noted")
        with open(self.kind, "w") as file:
            file.write(OWN_TRAFFIC)
        self.entry = None

    def is_out(self):
        try:
            with open(self.noted) as file:
                return file.read() == "out db1"
        except FileNotFoundError:
            return False

    def stop(self):
        pass


ADAPTERS = {"haproxy": Haproxy, "pgbouncer": Pgbouncer, "tasks": OwnTraffic}


def test_every_adapter_is_here():
    for contract, here in (("traffic", {*ADAPTERS, "patroni"}), ("service", {*SERVICES, "systemd", "patroni"})):
        assert here == {one.name for one in os.scandir(os.path.join(TASKS, contract)) if one.is_dir()}


@pytest.fixture(params=heart(sorted(ADAPTERS), {"haproxy"}.__contains__))
def traffic(request, machine, cluster, ansible, tmp_path):
    """steps(...) does them in one play, and returns what the last look has seen, the output and the status."""
    ansible.set_hosts({"db1": {}})
    directory = tempfile.mkdtemp(dir=machine.directory)  # which the pooler's user can reach
    os.chmod(directory, 0o755)
    instance = ADAPTERS[request.param](directory, cluster)
    kind = getattr(instance, "kind", request.param)
    seen = tmp_path / "seen.json"
    variables = {
        "cache_restart_traffic": [kind], "cache_restart_" + request.param: [instance.entry], "pgfleet_traffic_timeout": 3, "pgfleet_traffic_bound": 300,
        "pgfleet_traffic_settles": 0,
        "noted": os.path.join(directory, "noted"), "pgfleet_traffic_host": "db1",
        "pgfleet_traffic_alone": False, "pgfleet_traffic_begun": False, "pgfleet_traffic_out": False, "pgfleet_traffic_seen": {},
        "pgfleet_traffic_places": "{{ (given | pgfleet.cache.adapters('ways', 'db1'))[0].places }}",
    }
    variables["given"] = {name: value for name, value in variables.items() if name.startswith("cache_restart_")}

    def steps(*names, primary=False):
        seen.write_text("")
        tasks = [{"ansible.builtin.include_tasks": "{{ kind | pgfleet.cache.adapters('file', 'traffic', '%s') }}" % name} for name in names]
        tasks.append({"ansible.builtin.copy": {"content": "{{ pgfleet_traffic_seen | to_json }}", "dest": str(seen), "mode": "0644"}})
        play = ansible.write(
            tasks, hosts="db1", roles=["pgfleet.cache.cache_common"], vars=dict(variables, kind=kind, pgfleet_traffic_primary=primary)
        )
        output, status = ansible.command(play)
        text = seen.read_text()
        return json.loads(text).get(kind, []) if text else None, output, status

    steps.instance, steps.variables = instance, variables
    yield steps
    if request.param != "tasks":
        instance.stop()


@quick
def test_traffic(traffic):
    one = traffic.instance
    asked = one.entry is not None
    found, output, status = traffic("check", "look")
    assert status == 0 and not one.is_out(), output
    assert [place["out"] for place in found] == ([False] if asked else [])
    if asked:
        assert found[0]["host"] == "db1"
    # an earlier run that has ended may have done it
    for names in (("out", "look"), ("out", "look")):
        found, output, status = traffic(*names)
        assert status == 0 and one.is_out() and [place["out"] for place in found] == ([True] if asked else []), output
    for names in (("in", "look"), ("in", "look")):
        found, output, status = traffic(*names)
        assert status == 0 and not one.is_out() and [place["out"] for place in found] == ([False] if asked else []), output
    one.stop()
    found, output, status = traffic("check")
    assert (status != 0) is asked and one.refused in " ".join(output.split()) and "Traceback" not in output, output


@thorough
@pytest.mark.parametrize("traffic", ["haproxy"], indirect=True)
def test_a_primary_is_put_back_although_nobody_else_serves_by_now(traffic):
    dummy, output, status = traffic("out", primary=True)
    assert status == 0 and traffic.instance.is_out(), output
    traffic.instance.proxy.ask("set server read/db2 state maint")
    dummy, output, status = traffic("in", primary=True)
    assert status == 0 and traffic.instance.proxy.status("db1") == "UP", output


@thorough
@pytest.mark.parametrize("traffic", ["pgbouncer"], indirect=True)
def test_nobody_waits_for_a_pooler_that_hangs(traffic):
    """psql itself has no end where a console accepts and says nothing."""
    dummy, output, status = traffic("out")
    assert status == 0 and traffic.instance.is_out(), output
    entry, port = traffic.instance.entry, free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(os.path.join(entry["socket"], ".s.PGSQL.%d" % port))
        os.chmod(os.path.join(entry["socket"], ".s.PGSQL.%d" % port), 0o777)
        silent.listen(9)
        traffic.variables["given"]["cache_restart_pgbouncer"] = [dict(entry, port=port), entry]
        dummy, output, status = traffic("in")
    assert status != 0 and "could not be resumed from here: it did not answer in time." in " ".join(output.split()), output
    assert not traffic.instance.is_out()


@thorough
@pytest.mark.parametrize("traffic", ["pgbouncer"], indirect=True)
def test_a_pooler_that_others_have_paused(traffic):
    """It is not taken for ours, and not resumed. A name that needs quotes is paused and resumed as any other."""
    pooler, given = traffic.instance.pooler, traffic.variables["given"]
    given["cache_restart_pgbouncer"] = [dict(traffic.instance.entry, database="my-shop")]
    dummy, output, status = traffic("check", "out")
    assert status == 0 and pooler.paused() == ["my-shop"], output
    dummy, output, status = traffic("in")
    assert status == 0 and pooler.paused() == [], output
    given["cache_restart_pgbouncer"] = [dict(traffic.instance.entry, database="")]
    pooler.ask("PAUSE")
    try:
        dummy, output, status = traffic("out")
        assert status != 0 and "pgbouncer on db1 is paused by another operator, so nothing was restarted. Resume it first." in " ".join(output.split()), output
        traffic.variables["__cache_common_paused"] = {"results": [{"rc": 3, "stderr": "already suspended/paused"}]}  # as out has registered it
        dummy, output, status = traffic("in")
        assert status == 0 and "already" in pooler.ask("PAUSE")[1], output
    finally:
        pooler.ask("RESUME")


@thorough
@pytest.mark.parametrize("traffic", ["pgbouncer"], indirect=True)
def test_a_proxy_that_holds_the_connections_to_a_server_that_is_down(traffic, machine, cluster):
    """HAProxy tries such a server again every second, and may reach it once it is back: who has waited for that has seen no restart."""
    directory = tempfile.mkdtemp(dir=machine.directory)
    os.chmod(directory, 0o755)
    proxy = HAProxy(directory, {"db1": cluster}, "inter 60s")
    os.symlink(directory + "/clients.sock", directory + "/.s.PGSQL.5432")
    pooler = Pooler(os.path.join(directory, "pooler"), types.SimpleNamespace(socket=directory, port=5432, bin=cluster.bin))
    try:
        wait_until(lambda: not pooler.ask("SHOW VERSION")[1])
        traffic.variables["given"]["cache_restart_pgbouncer"] = [dict(traffic.instance.entry, port=pooler.port, socket=pooler.directory)]
        traffic.variables["pgfleet_traffic_timeout"] = 60  # nothing that stops the server has to begin sooner than after 90 s
        dummy, output, status = traffic("out")
        assert status == 0 and pooler.paused() == ["postgres"], output
        cluster.stop()
        time.sleep(1)
        cluster.start()
        wait_until(lambda: pooler.paused() == [], 45)
    finally:
        pooler.stop()
        proxy.stop()


@thorough
@pytest.mark.parametrize("traffic", ["pgbouncer"], indirect=True)
def test_processes_of_pgbouncer_that_share_a_port(traffic, machine, cluster):
    directory, given = tempfile.mkdtemp(dir=machine.directory), traffic.variables["given"]
    os.chmod(directory, 0o755)
    first = Pooler(os.path.join(directory, "a"), cluster, tcp=True)
    second = Pooler(os.path.join(directory, "b"), cluster, beside=first, tcp=True)
    entries = [dict(traffic.instance.entry, port=first.port, socket=one.directory) for one in (first, second)]
    wait_until(lambda: not first.ask("SHOW VERSION")[1] and not second.ask("SHOW VERSION")[1])
    try:
        given["cache_restart_pgbouncer"] = entries[:1]
        dummy, output, status = traffic("check")
        assert status != 0 and "2 processes of pgbouncer on db1 share port %d, and a pause is for one" % first.port in " ".join(output.split()), output
        given["cache_restart_pgbouncer"] = entries
        dummy, output, status = traffic("check", "out")
        assert status == 0 and first.paused() == second.paused() == ["postgres"], output
        dummy, output, status = traffic("in")
        assert status == 0 and first.paused() == second.paused() == [], output
    finally:
        first.stop()
        second.stop()


class Debian:
    """A cluster of the machine's own PostgreSQL, as pg_createcluster makes it; it is gone afterwards."""

    manager = "pg_ctlcluster"

    def __init__(self, directory, machine):
        port = free_port()
        self.name = "contract_" + os.urandom(4).hex()  # /etc/postgresql is the machine's, and a run that was killed leaves its own there
        self.data = os.path.join(str(machine.directory), self.name)
        run("pg_createcluster", str(MAJOR), self.name, "--datadir", self.data, "--port", str(port), "--socketdir", os.path.join(machine.directory, "run"),
            timeout=LONG)
        run("pg_ctlcluster", str(MAJOR), self.name, "start", timeout=LONG)
        self.server = {"cluster_name": "%s/%s" % (MAJOR, self.name), "version_num": MAJOR * 10000, "data_directory": self.data}

    def remove(self):
        run("pg_dropcluster", "--stop", str(MAJOR), self.name, check=False, timeout=LONG)


class OwnService:
    def __init__(self, directory, machine):
        one = machine("contract")
        self.manager = os.path.join(str(directory), "service.yml")
        with open(self.manager, "w") as file:
            file.write(OWN_SERVICE)
        self.data = one.data
        self.server = {"cluster_name": "", "version_num": MAJOR * 10000, "data_directory": one.data}
        self._remove = one.stop

    def remove(self):
        with contextlib.suppress(subprocess.CalledProcessError):  # it is stopped
            self._remove("immediate")


SERVICES = {"pg_ctlcluster": Debian, "tasks": OwnService}


@pytest.fixture(params=heart(sorted(SERVICES), lambda kind: kind != "tasks"))
def service(request, machine, cluster, ansible, tmp_path):
    """step(name) does it, and returns the facts that it has set, the output and the status. The fixture cluster has installed what a server needs."""
    ansible.set_hosts({"db1": {}})
    instance = SERVICES[request.param](tmp_path, machine)
    facts = tmp_path / "facts.json"

    def step(name, **more):
        facts.write_text("")
        variables = {
            "pgfleet_service_manager": instance.manager, "pgfleet_service_server": dict(instance.server, pid=pid(instance) or 0), "pgfleet_service_timeout": 60,
            "pgfleet_service_state": {"stop": "stopped", "start": "started", "restart": "restarted"}.get(name, ""),
            "pgfleet_service_evict": {"layers": ["page_cache", "shared_buffers"], "scope": "cluster", "force": False},
            "pg_ctl": os.path.join(machine.bin, "pg_ctl"),
        }
        output, status = ansible.command(ansible.write([
            {"ansible.builtin.include_tasks": "{{ pgfleet_service_manager | pgfleet.cache.adapters('file', 'service', '%s') }}" % name},
            {"ansible.builtin.copy": {"content": "{{ pgfleet_service_commands | default([]) | to_json }}", "dest": str(facts), "mode": "0644"}},
        ], hosts="db1", roles=["pgfleet.cache.cache_common"], vars=dict(variables, **more)))
        text = facts.read_text()
        return json.loads(text) if text else None, output, status

    step.instance = instance
    yield step
    instance.remove()


def pid(instance):
    """Of the postmaster, which has to be there."""
    try:
        with open(os.path.join(instance.data, "postmaster.pid")) as file:
            found = int(file.readline())
        os.kill(found, 0)
        return found
    except (FileNotFoundError, ProcessLookupError):
        return None


@quick
def test_service(service):
    one = service.instance
    first = pid(one)
    commands, output, status = service("look")
    assert status == 0 and pid(one) == first, output
    commands, output, status = service("plan")
    assert status == 0 and commands and pid(one) == first, output
    dummy, output, status = service("restart")
    second = pid(one)
    assert status == 0 and second not in (None, first), output
    dummy, output, status = service("stop")
    assert status == 0 and pid(one) is None, output
    dummy, output, status = service("start")
    third = pid(one)
    assert status == 0 and third not in (None, second), output
    largest = max((os.path.join(folder, name) for folder, dummy, names in os.walk(os.path.join(one.data, "base")) for name in names), key=os.path.getsize)
    with open(largest, "rb") as file:
        file.read()
    dummy, output, status = service("cold")
    assert status == 0 and pid(one) not in (None, third), output
    resident = int(run("fincore", "--bytes", "--noheadings", "--output", "RES", largest))
    assert resident < os.path.getsize(largest), "the start reads some of it again"


@thorough
@pytest.mark.parametrize("service", ["pg_ctlcluster"], indirect=True)
def test_a_cluster_that_a_reboot_leaves_down(service):
    with open("/etc/postgresql/%s/start.conf" % service.instance.server["cluster_name"], "w") as file:
        file.write("manual\n")
    dummy, output, status = service("look")
    assert status == 0, output
    dummy, output, status = service("look", pgfleet_service_boots=True)
    assert status != 0 and "start.conf does not start the cluster with the host, so PostgreSQL would stay down" in " ".join(output.split()), output


@thorough
@pytest.mark.parametrize("service", ["pg_ctlcluster"], indirect=True)
def test_somebody_else_s(service):
    """What root would restart belongs to another user than the one whose cluster this is meant to be."""
    dummy, output, status = service("look", pgfleet_become_user="nobody")
    assert status != 0 and "is not a directory of nobody: either the cluster is another user's" in " ".join(output.split()), output
    dummy, output, status = service("look", pgfleet_service_server={"cluster_name": "../x"})
    assert status != 0 and "was not created by pg_createcluster" in " ".join(output.split()), output


@pytest.mark.parametrize(("unit", "right"), [
    ("../x.service", False), ("a b", False), ("x\n", False), ("$(id)", False), ("-Hroot@elsewhere", False), ("postgresql@15-main.service", True),
    ("srv\\x2ddb.service", True),
])
def test_a_unit_that_is_none(ansible, unit, right):
    """What a record names is not started before it is known to be a name. There is no systemd here."""
    ansible.set_hosts({"db1": {}})
    variables = {
        "pgfleet_service_manager": "systemd", "pgfleet_service_name": "", "pgfleet_service_timeout": 60, "pgfleet_service_server": {"unit": unit},
    }
    output, status = ansible.command(ansible.write([
        {"ansible.builtin.include_tasks": "{{ 'systemd' | pgfleet.cache.adapters('file', 'service', 'start') }}"},
    ], hosts="db1", roles=["pgfleet.cache.cache_common"], vars=variables))
    assert status != 0
    assert ("is not the name of a systemd unit: set pgfleet_service_name." in " ".join(output.split())) is not right, output
    assert ("TASK [Start PostgreSQL (systemd)]" in output) is right, output
