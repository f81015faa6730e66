# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster that Patroni keeps running, of both ends: Debian 12's 3.0.2 and 4.1."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import types

import pytest
from cluster import heart, thorough
from patroni import RELEASES, Balancer, Client, begun, restart, texts
from playbook import documented, four, keys, task
from proxies import Pooler, wait_until
from test_rolling_restart import NAMES, fresh, row, says


@pytest.fixture(scope="module", params=RELEASES)
def patroni(request, machine, cluster):
    yield from begun(machine, request.param)


@pytest.fixture
def fleet(patroni, ansible, machine):
    yield from fresh(ansible, {name: member.cluster for name, member in patroni.members.items()}, machine)


def asked(fleet, member, **arguments):
    """The result of the module."""
    return fleet.ansible.tasks([task("patroni", data_directory=member.cluster.data, **arguments)], become=True, become_user="postgres")[0]


def test_the_modules(patroni, fleet):
    """In check mode, really, in check mode again, really again; and the configuration is afterwards as it was."""
    standby = patroni.members[next(name for name in NAMES if name != patroni.leader())]
    here = {"data_directory": standby.cluster.data}
    login = {"login_port": standby.cluster.port, "login_unix_socket": standby.cluster.socket}
    started, before = [standby.cluster.sql("SELECT pg_postmaster_start_time()")], texts(patroni)
    results = fleet.ansible.tasks(
        four("patroni", state="restarted", role="replica", **here) + four("patroni_traffic", state="out", timeout=1, **here, **login)
        + four("patroni_traffic", **here) + four("patroni_traffic", state="in", **here), become=True, become_user="postgres")
    assert [one["changed"] for one in results] == [True] * 4 + [True, True, False, False] + [False] * 4 + [True, True, False, False]
    assert [one["out"] for one in results[4:]] == [False, True, True, True] + [True] * 4 + [True, False, False, False]
    for number, one in enumerate(results):
        assert keys(one) == documented("patroni" if number < 4 else "patroni_traffic"), one
    wait_until(lambda: patroni.states()[os.path.basename(standby.directory)] in ("running", "streaming"))
    assert standby.cluster.sql("SELECT pg_postmaster_start_time()") not in started
    assert texts(patroni) == before


def test_one_is_restarted(patroni, fleet):
    """A standby, through Patroni, and while it is out of traffic."""
    standby = next(name for name in NAMES if name != patroni.leader())
    started, before = fleet.started(), texts(patroni)
    output, status = restart(fleet, patroni, cache_restart_only=[standby])
    assert status == 0, output
    assert {name for name, at in fleet.started().items() if at != started[name]} == {standby}
    assert texts(patroni) == before


@thorough
def test_all_are_restarted(patroni, fleet):
    leader, timelines, started, before = patroni.leader(), patroni.timelines(), fleet.started(), texts(patroni)
    output, status = restart(fleet, patroni, "--check")
    assert status == 0, output
    assert fleet.started() == started
    output, status = restart(fleet, patroni)
    assert status == 0, output
    assert texts(patroni) == before
    assert not any(one.get("tags") for one in patroni.cluster()["members"])
    assert not set(fleet.started().values()) & set(started.values())
    assert all("done" in row(output, name) for name in NAMES), output
    assert (patroni.leader(), patroni.timelines()) == (leader, timelines)  # nobody failed over
    assert set(patroni.states().values()) <= {"running", "streaming"}
    assert "pause" not in patroni.cluster()


class Readers:
    """The states of a member's record while it is in the traffic of /replica."""

    def __init__(self, fleet, member, name):
        self.states = set()
        self._fleet, self._member, self._name = fleet, member, name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._stopping.wait(0.1):
            if self._member.ask("GET", "/replica")[0] == 200:
                self.states.add(self._fleet.kept(self._name)["state"])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stopping.set()
        self._thread.join()


@thorough
def test_switchover(patroni, fleet):
    """Without tasks of the user, to a standby that this rolling restart has warmed; a cluster ends with one more timeline."""
    leader, started = patroni.leader(), fleet.started()
    first = next(name for name in NAMES if name != leader)
    for tags in ({"nofailover": True}, {}):
        patroni.write(first, tags=tags)
        assert patroni.members[first].ask("POST", "/reload")[0] == 202
        wait_until(lambda tags=tags: next(one.get("tags") or {} for one in patroni.cluster()["members"] if one["name"] == first) == tags)
        if tags:
            output, status = restart(fleet, patroni, cache_restart_primary="switchover")
            assert status != 0 and fleet.started() == started, output
            says(output, "The candidate %s has the tag nofailover: remove it, or set another cache_restart_candidate. Nothing was restarted." % first)
    before = patroni.starts(leader)
    output, status = restart(fleet, patroni, "--check", cache_restart_primary="switchover")
    assert status == 0, output
    says(output, "%s: snapshot, switch over to a warm standby, out of traffic, replay, restore, your checks, back into traffic" % leader)
    assert patroni.leader() == leader
    mine = patroni.members[leader]
    os.chmod(mine.configuration, 0o440)
    try:
        output, status = restart(fleet, patroni, cache_restart_primary="switchover")
    finally:
        os.chmod(mine.configuration, 0o600)
    assert status != 0 and fleet.started() == started, output
    says(output, "The tag noloadbalance cannot be set in %s, the configuration of Patroni: Permission denied." % mine.configuration)
    with Readers(fleet, mine, leader) as readers:
        output, status = restart(fleet, patroni, cache_restart_primary="switchover")
    assert status == 0, output
    assert readers.states and readers.states <= {"warm", "done"}, readers.states
    led = next(name for name in NAMES if name != leader)
    assert patroni.leader() == led
    assert not set(fleet.started().values()) & set(started.values())
    assert {name: row(output, name).split()[1] for name in NAMES} == {name: "primary" if name == led else "standby" for name in NAMES}
    assert patroni.starts(leader) == before + 1  # its demotion was its restart
    assert all("done" in row(output, name) for name in NAMES), output
    wait_until(lambda: len(patroni.timelines()) == 1)
    assert set(patroni.states().values()) <= {"running", "streaming"}


@thorough
@pytest.mark.parametrize("mode, refused", [("on", True), ("quorum", False)])
def test_synchronous(patroni, fleet, mode, refused):
    """With one synchronous standby commits wait for it, unless they may; with a quorum of two another one is left."""
    if mode == "quorum" and patroni.members["db1"].version() < (4,):
        pytest.skip("This Patroni has no quorum mode")
    patroni.configure(synchronous_mode={"on": True}.get(mode, mode))
    wait_until(lambda: {"on": "sync_standby", "quorum": "quorum_standby"}[mode] in {one["role"] for one in patroni.cluster()["members"]})
    try:
        started = fleet.started()
        output, status = restart(fleet, patroni)
        assert (status != 0) is refused, output
        if refused:
            says(output, "all commits on %s would wait: synchronous_standby_names needs 1, and 0 would be connected." % patroni.leader())
            assert fleet.started() == started
            output, status = restart(fleet, patroni, cache_restart_commits_may_wait=True)
            assert status == 0, output
        assert not set(fleet.started().values()) & set(started.values())
    finally:
        patroni.configure(synchronous_mode=None)
        wait_until(lambda: {one["role"] for one in patroni.cluster()["members"]} == {"leader", "replica"})


@thorough
@pytest.mark.parametrize("primary", ["in_place", "switchover"])
def test_no_client_notices(patroni, fleet, machine, primary):
    """Behind HAProxy, and those who write behind pgbouncer before it: no transaction fails, and they write again a moment later."""
    directory = tempfile.mkdtemp(dir=machine.directory)
    os.chmod(directory, 0o777)
    leader = patroni.members[patroni.leader()].cluster
    leader.sql("CREATE TABLE IF NOT EXISTS written (at timestamptz DEFAULT now())")
    balancer = Balancer(patroni, directory)
    pooler = Pooler(os.path.join(directory, "pooler"), types.SimpleNamespace(socket="127.0.0.1", port=balancer.ports["primary"], bin=machine.bin))
    wait_until(lambda: not pooler.ask("SELECT 1", database="postgres")[1])
    clients = {
        "writer": Client(leader, directory, "writer", pooler.directory, pooler.port, "INSERT INTO written DEFAULT VALUES;"),
        "reader": Client(leader, directory, "reader", "127.0.0.1", balancer.ports["replica"], "SELECT count(*) FROM passenger;", "--connect"),
    }
    try:
        output, status = restart(
            fleet, patroni, cache_restart_primary=primary, cache_restart_traffic=["patroni", "pgbouncer"], cache_restart_switchover_wait=2,
            cache_restart_pgbouncer=[{"host": "db1", "port": pooler.port, "socket": pooler.directory, "database": "postgres"}])
        said = {name: client.stop() for name, client in clients.items()}
        assert status == 0, output
        print(primary, said)
        for text, transactions, longest in said.values():
            assert text == "" and transactions > 100, text
        assert pooler.paused() == []
    finally:
        for one in (*clients.values(), pooler, balancer):
            one.stop()


@contextlib.contextmanager
def paused(patroni):
    patroni.configure(pause=True)
    wait_until(lambda: patroni.cluster().get("pause"))
    yield
    patroni.configure(pause=None)
    wait_until(lambda: not patroni.cluster().get("pause"))


@contextlib.contextmanager
def a_scheduled_switchover(patroni):
    leader = patroni.leader()
    status, text = patroni.members[leader].ask("POST", "/switchover", {"leader": leader, "scheduled_at": "2099-01-01T00:00:00+00:00"})
    assert status == 202, text
    wait_until(lambda: patroni.cluster().get("scheduled_switchover"))
    yield
    patroni.members[leader].ask("DELETE", "/switchover")
    wait_until(lambda: not patroni.cluster().get("scheduled_switchover"))


@contextlib.contextmanager
def a_scheduled_restart(patroni):
    status, text = patroni.members["db2"].ask("POST", "/restart", {"schedule": "2099-01-01T00:00:00+00:00"})
    assert status == 202, text
    yield
    assert patroni.members["db2"].ask("DELETE", "/restart")[0] == 200


@contextlib.contextmanager
def another_password(patroni):
    """In the file, while Patroni has the one that it has read."""
    patroni.write("db2", {"authentication": {"username": "api", "password": "wrong"}})
    yield
    patroni.write("db2")


@contextlib.contextmanager
def another_address(patroni):
    patroni.write("db2", {"connect_address": "127.0.0.1:1"})
    yield
    patroni.write("db2")


@contextlib.contextmanager
def no_patroni(patroni):
    patroni.kill("db2")
    yield
    patroni.start("db2")
    wait_until(lambda: patroni.answers("db2"))


@pytest.mark.parametrize("trouble, message", heart([
    (paused, "is paused: somebody works on it. Run patronictl resume when that is done. Nothing was restarted."),
    (a_scheduled_switchover, "A switchover is scheduled in the cluster of db2 (2099-01-01T00:00:00+00:00): wait for it"),
    (a_scheduled_restart, "A restart of db2 is scheduled: wait for it, or take it back with patronictl flush CLUSTER restart."),
    (another_password, "wants another password: correct restapi.authentication in "),
    (another_address, "Patroni's API at http://127.0.0.1:1 does not answer: "),
    (no_patroni, "No Patroni of this user keeps the server in "),
], lambda case: case[0] in (paused, another_password, no_patroni)), ids=lambda value: getattr(value, "__name__", ""))
def test_refused(patroni, fleet, trouble, message):
    with trouble(patroni):
        result = asked(fleet, patroni.members["db2"], role="replica" if patroni.leader() != "db2" else "primary")
        assert result["failed"]
        assert message in result["msg"], result["msg"]
        assert not result["changed"]


@thorough
def test_tls(patroni, fleet):
    """With the certificates that patronictl would use; and what is said without them."""
    member = patroni.members["db2"]
    server, client = patroni.certificate("server"), patroni.certificate("client")
    restapi = {"certfile": server[0], "keyfile": server[1], "cafile": client[0], "verify_client": "required"}
    ctl = {"cacert": server[0], "certfile": client[0], "keyfile": client[1]}
    patroni.kill("db2")
    patroni.write("db2", restapi, ctl)
    patroni.start("db2")
    try:
        wait_until(lambda: "failed" not in asked(fleet, member))
        assert asked(fleet, member)["url"] == "https://127.0.0.1:%d" % member.port
        for wrong in (dict(ctl, cacert=client[0]), {"cacert": server[0]}):
            patroni.write("db2", restapi, wrong)
            result = asked(fleet, member)
            assert "Check restapi and ctl (cacert, certfile, keyfile) in %s." % member.configuration in result["msg"], result["msg"]
        patroni.write("db2", restapi, dict(ctl, keyfile="/missing.key"))
        assert " name in %s cannot be read by this user: No such file or directory." % member.configuration in asked(fleet, member)["msg"]
    finally:
        patroni.kill("db2")
        patroni.write("db2")
        patroni.start("db2")
        wait_until(lambda: patroni.answers("db2"))


@thorough
def test_a_slow_start(patroni, fleet):
    """Patroni calls it failed when the time of the request is over; PostgreSQL goes on, and whoever asked waits for it."""
    standby = patroni.members[next(name for name in NAMES if name != patroni.leader())]
    name, starts = os.path.basename(standby.directory), patroni.starts(os.path.basename(standby.directory))
    patroni.write(name, recovery_conf={"restore_command": "sleep 4; false"})
    assert standby.ask("POST", "/reload")[0] == 202
    wait_until(lambda: standby.cluster.sql("SHOW restore_command") == "sleep 4; false")
    try:
        result = asked(fleet, standby, role="replica", state="restarted", timeout=2)
        assert not result.get("failed") and result["changed"], result
        assert json.loads(standby.ask("GET", "/patroni")[1])["state"] == "starting"
        wait_until(lambda: patroni.answers(name))
        assert patroni.starts(name) == starts + 1
    finally:
        patroni.write(name)
        standby.ask("POST", "/reload")
        wait_until(lambda: patroni.answers(name) and standby.cluster.sql("SHOW restore_command") == "")


def test_another_role(patroni, fleet):
    """As after a failover: what Patroni itself answers then, and the module before it asks."""
    standby = next(name for name in NAMES if name != patroni.leader())
    status, text = patroni.members[standby].ask("POST", "/restart", {"role": "primary", "timeout": 60})
    assert (status, "conditions are not satisfied" in text) == (503, True), text
    result = asked(fleet, patroni.members[standby], role="primary", state="restarted")
    assert "and a primary for PostgreSQL: a failover has begun." in result["msg"]


def test_another_manager_is_refused(patroni, fleet):
    output, status = fleet.run("--check")
    assert status != 0
    says(output, "Patroni keeps PostgreSQL on db1 running, and may treat a restart as a failure: set pgfleet_service_manager to patroni.")


def test_the_leader_is_not_rebooted(patroni, fleet):
    leader = patroni.leader()
    result = asked(fleet, patroni.members[leader], role="primary", reboots=True)
    assert "%s leads its cluster, and Patroni would fail over when its host stops" % leader in result["msg"]
    standby = next(name for name in NAMES if name != leader)
    assert not asked(fleet, patroni.members[standby], role="replica", reboots=True).get("failed")
