# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of a restart through Patroni, and how its configuration is found."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _managers, _patroni, _patroni_node
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

STATUS = {"state": "running", "role": "replica"}
MEMBERS = [{"name": "db1", "role": "leader", "state": "running"}, {"name": "db2", "role": "replica", "state": "streaming"}]


def with_members(*members):
    return {"cluster": {"members": members}}


@pytest.mark.parametrize("more, begins", [
    ({}, ""),
    ({"status": {"pause": True}}, "The cluster of db2 is paused"),
    ({"cluster": {"pause": True}}, "The cluster of db2 is paused"),
    (with_members(MEMBERS[0]), "db2 is not yet a member"),
    (with_members(MEMBERS[1]), "The cluster of db2 has no leader"),
    ({"status": {"cluster_unlocked": True}}, "The cluster of db2 has no leader"),
    ({"status": {"dcs_last_seen": time.time() - 100}}, "Patroni of db2 has not reached its configuration store for more than 60 s"),
    (with_members({"name": "db1", "role": "standby_leader"}, MEMBERS[1]), "db2 belongs to a standby cluster"),
    ({"cluster": {"scheduled_switchover": {"at": "2099", "from": "db1"}}}, "A switchover is scheduled in the cluster of db2 (2099)"),
    ({"status": {"scheduled_restart": {"schedule": "2099"}}}, "A restart of db2 is scheduled"),
    ({"status": {"state": "start failed"}}, "PostgreSQL of db2 is 'start failed' for Patroni: wait, or repair the member"),
    ({"status": {"state": "starting\x1b"}}, "PostgreSQL of db2 is 'starting\\x1b' for Patroni"),
    ({"status": {"role": "master"}}, "db2 is 'master' for Patroni and a replica for PostgreSQL"),
    ({"status": {"role": "primary"}, "role": "primary", "reboots": True}, "db2 leads its cluster, and Patroni would fail over"),
    ({"status": {"role": "master"}, "role": "primary"}, ""),
])
def test_obstacle(more, begins):
    status = dict(STATUS, **dict({"dcs_last_seen": time.time()}, **more.get("status", {})))
    said = _patroni.obstacle("db2", status, dict({"members": MEMBERS}, **more.get("cluster", {})), more.get("role", "replica"), more.get("reboots", False))
    assert said.startswith(begins) and bool(said) is bool(begins), said


@pytest.mark.parametrize("candidate, members, begins", [
    ("db2", MEMBERS, ""),
    ("db3", MEMBERS, "The candidate db3 is 'no member' for Patroni"),
    ("db2", [MEMBERS[0], dict(MEMBERS[1], state="stopped")], "The candidate db2 is 'stopped' for Patroni"),
    ("db2", [MEMBERS[0], dict(MEMBERS[1], tags={"nofailover": True})], "The candidate db2 has the tag nofailover"),
    ("db2", [*MEMBERS, {"name": "db3", "role": "sync_standby", "state": "streaming"}], "The cluster is synchronous, and only db3 may take over"),
    ("db3", [*MEMBERS, {"name": "db3", "role": "sync_standby", "state": "streaming"}], ""),
    # Patroni would choose
    ("", MEMBERS, "The candidate streams no WAL from the primary now, so that its name in Patroni is unknown"),
])
def test_cannot_lead(candidate, members, begins):
    said = _patroni.cannot_lead(candidate, {"members": members})
    assert said.startswith(begins) and bool(said) is bool(begins), said


@pytest.mark.parametrize("status, text, begins", [
    (200, 'Successfully switched over to "db2"', ""),
    (200, 'Switched over to "db3" instead of "db2"', "Patroni promoted another standby than db2"),
    (503, "Switchover status unknown", "Patroni does not know whether it has switched over to db2"),
    (503, "Switchover failed", "Patroni did not switch over from db1 to db2 (503, Switchover failed)"),
    (412, "leader name does not match", "Patroni did not switch over from db1 to db2 (412, leader name does not match)"),
])
def test_not_switched_over(status, text, begins):
    said = _patroni.not_switched_over("db1", "db2", status, text)
    assert said.startswith(begins) and bool(said) is bool(begins), said


@pytest.mark.parametrize("status, text, begins", [
    (200, "restarted successfully", ""),
    (503, "postgres is still starting", ""),
    (503, "restart conditions are not satisfied", "db2 is no longer a replica"),
    (503, "reinitialize already in progress", "Patroni of db2 restarts or reinitializes PostgreSQL already"),
    (503, "restart failed", "PostgreSQL of db2 does not start (restart failed)"),
    (409, "Another restart is already scheduled", "A restart of db2 was scheduled meanwhile"),
    (500, "x" * 300, "Patroni of db2 answers the restart with 500 ("),
])
def test_not_restarted(status, text, begins):
    said = _patroni.not_restarted("db2", "replica", status, text)
    assert said.startswith(begins) and bool(said) is bool(begins), said


@pytest.mark.parametrize("status, text, refused", [
    (400, "Switchover could be performed only to a specific candidate", True), (409, "Another restart is already scheduled", True),
    (412, "leader name does not match", True), (503, "Switchover failed", True), (503, "restart conditions are not satisfied", True),
    # something happens, or may still happen
    (200, 'Switched over to "db3" instead of "db2"', False), (503, "Switchover status unknown", False), (503, "restart failed", False),
    (503, "reinitialize already in progress", False), (500, "", False),
])
def test_is_refused(status, text, refused):
    assert _patroni.is_refused(status, text) is refused


@pytest.mark.parametrize("role, wanted", [("master", None), ("primary", None), ("replica", 7)])
def test_a_leader_keeps_its_own_limit(role, wanted):
    """A timeout would replace the time after which Patroni fails over."""
    asked = []

    class Api(_patroni_node.Node):
        def ask(self, method, path, body=None, seconds=0):
            asked.append(body)
            return 200, ""

    _patroni._restart(Api("db1", "", "", {}), role, 7, {})
    assert [(one["role"], one.get("timeout")) for one in asked] == [(role, wanted)]


@pytest.mark.parametrize("command, is_one", [
    ("/usr/bin/python3 /usr/bin/patroni /etc/p.yml", True), ("/opt/v/bin/python -m patroni p.yml", True), ("patroni", True),
    ("vi /etc/patroni", False), ("/usr/bin/python3 /usr/bin/patronictl list", False), ("postgres: shop: checkpointer patroni", False),
])
def test_is_patroni(command, is_one):
    assert _managers.is_patroni(command) is is_one


@pytest.mark.parametrize("arguments, path", [
    (["/usr/bin/python3", "/usr/bin/patroni", "/etc/patroni/15-main.yml", ""], "/etc/patroni/15-main.yml"),
    (["python", "-m", "patroni", "--verbose", "p.yml"], "p.yml"),
    (["patroni", ""], ""),
])
def test_configuration(arguments, path):
    assert _patroni_node._configuration(arguments) == path


def test_settings(tmp_path):
    (tmp_path / "a.yml").write_text("name: db1\nrestapi:\n  listen: 0.0.0.0:8008\n  authentication: {username: a, password: b}\n")
    (tmp_path / "b.yaml").write_text("postgresql: {data_dir: /d}\nrestapi: {connect_address: '10.0.0.1:8008'}\n")
    (tmp_path / "c.txt").write_text("name: no\n")
    where, found = _patroni_node._settings(tmp_path.name, str(tmp_path.parent), {"PATRONI_RESTAPI_PASSWORD": "c", "PATRONI_NAME": "db2"})
    assert where == str(tmp_path)
    assert found == {
        "name": "db2", "postgresql": {"data_dir": "/d"},
        "restapi": {"listen": "0.0.0.0:8008", "connect_address": "10.0.0.1:8008", "authentication": {"username": "a", "password": "c"}}}
    node = _patroni_node._node(1, where, found)
    assert (node.name, node.url) == ("db2", "http://10.0.0.1:8008")
    assert _patroni_node._is_of(found, "/d") and not _patroni_node._is_of(found, "/e")


@pytest.mark.parametrize("restapi, url", [
    ({"listen": "*:8009"}, "http://127.0.0.1:8009"), ({"listen": "[::]:8009", "certfile": "/c"}, "https://127.0.0.1:8009"), ({}, "http://127.0.0.1:8008"),
])
def test_url(restapi, url):
    assert _patroni_node._node(1, "", {"restapi": restapi}).url == url


def test_of_the_environment_alone():
    """Beside PATRONI_CONFIGURATION, Patroni takes no other variable."""
    found = _patroni_node._settings("", "/", {"PATRONI_CONFIGURATION": "name: db1", "PATRONI_NAME": "db2"})
    assert found == ("its environment", {"name": "db1"})
    assert _patroni_node._settings("", "/", {"PATRONI_NAME": "db2"})[1] == {"name": "db2"}


def test_a_section_that_is_empty(tmp_path):
    (tmp_path / "p.yml").write_text("restapi:\n")
    assert _patroni_node._settings("p.yml", str(tmp_path), {"PATRONI_RESTAPI_LISTEN": "a:1"})[1] == {"restapi": {"listen": "a:1"}}


@pytest.mark.parametrize("text", ["name: [", "- a\n- b\n"])
def test_no_configuration(tmp_path, text):
    (tmp_path / "p.yml").write_text(text)
    with pytest.raises(ResidencyError, match=r"The configuration of Patroni in .*p.yml cannot be read"):
        _patroni_node._settings("p.yml", str(tmp_path), {})


@pytest.mark.parametrize("password", ["@S3cr3t", "*S3cr3t", "!S3cr3t x"])
def test_no_secret_in_a_message(tmp_path, password):
    (tmp_path / "p.yml").write_text("restapi:\n  authentication: {password: %s}\n" % password)
    with pytest.raises(ResidencyError, match="line 2: ") as caught:
        _patroni_node._settings("p.yml", str(tmp_path), {})
    assert "S3cr3t" not in str(caught.value)


@pytest.fixture
def running(tmp_path):
    """begin(times) starts a Patroni that has forked so often; it does nothing."""
    (tmp_path / "p.yml").write_text("name: db1\npostgresql: {data_dir: %s}\n" % tmp_path)
    begun = []

    def begin(times=1):
        for _time in range(times):
            begun.append(subprocess.Popen(["patroni", "-c", "sleep 60; :", str(tmp_path / "p.yml")], executable="/bin/sh"))
        deadline = time.monotonic() + 10
        while not _patroni_node._managers.is_patroni(_patroni_node._processes.title(begun[-1].pid)) and time.monotonic() < deadline:
            time.sleep(0.01)

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def test_one_that_has_forked_is_one(running, tmp_path):
    with pytest.raises(ResidencyError, match="No Patroni of this user keeps the server in"):
        _patroni_node.of(str(tmp_path))
    running(2)
    assert _patroni_node.of(str(tmp_path)).name == "db1"


def test_no_descriptor_stays_open(running, tmp_path):
    running()
    before = len(os.listdir("/proc/self/fd"))
    _patroni_node.of(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
