# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library and its parameters in the configuration of a Patroni cluster; and the roles for extension and warm-up on its members."""

from __future__ import annotations

import contextlib
import json
import os
import shutil

import pytest
import test_patroni
from cluster import LOOSE, heart, run, thorough
from playbook import documented, keys, recap, task
from proxies import wait_until
from test_rolling_restart import NAMES, row

patroni, fleet = test_patroni.patroni, test_patroni.fleet
LIBRARIES = "shared_preload_libraries"


def parameters(patroni):
    """In the configuration of the cluster, asked of each member until all have read the same."""
    found = []

    def are_one():
        found[:] = [json.loads(member.ask("GET", "/config")[1])["postgresql"]["parameters"] for member in patroni.members.values()]
        return all(one == found[0] for one in found)

    wait_until(are_one)
    return found[0]


def pending(patroni):
    return {one["name"] for one in patroni.cluster()["members"] if one.get("pending_restart")}


def set_parameters(patroni, **values):
    patroni.configure(postgresql={"parameters": values})


@pytest.fixture
def plain(patroni, fleet):
    """With a library of the user's that is loaded, and without ours before and after the test."""

    def clear():
        ours = {name: None for name in parameters(patroni) if name.startswith("pg_residency.")}
        set_parameters(patroni, **dict(ours, shared_preload_libraries="auto_explain"))
        for name, member in patroni.members.items():
            member.cluster.sql("ALTER SYSTEM RESET ALL")
            wait_until(lambda one=member.cluster: one.sql("SELECT count(*) FROM pg_file_settings WHERE name LIKE 'pg_residency.%'") == "0")
            if member.cluster.sql("SHOW shared_preload_libraries") != "auto_explain":
                wait_until(lambda one=name: one in pending(patroni))  # a restart during Patroni's reload stays pending for ever
                status, text = member.ask("POST", "/restart", {})
                assert status == 200, text

    clear()
    wait_until(lambda: not pending(patroni))
    yield patroni
    clear()


def preload(fleet, patroni, name, *some, **common):
    """The module's results on a member, for the options of each call."""
    one = patroni.members[name].cluster
    tasks = [task("server_preload", diff=True, login_port=one.port, login_unix_socket=one.socket, **{
        "check": False, "manager": "patroni", **common, **options}) for options in some]
    return fleet.ansible.tasks(tasks, become=True, become_user="postgres")


def test_the_module(plain, fleet):
    """Beside what is there, foretold by check mode, once for the whole cluster; and absent leaves what was there."""
    before = parameters(plain)
    first, second = NAMES[:2]
    given = {"parameters": {"rate": "50MB", "autosave": "60s", "autorestore": False}}
    check, real, check_again, again = preload(fleet, plain, first, dict(given, check=True), given, dict(given, check=True), given)
    assert [one["changed"] for one in (check, real, check_again, again)] == [True, True, False, False], (check, real)
    assert check["queries"] == real["queries"] and check["diff"] == real["diff"] and again["queries"] == [], real
    assert real["diff"]["before"] == "shared_preload_libraries = 'auto_explain'\n" and real["diff"]["after"] == (
        "pg_residency.autorestore = 'off'\npg_residency.autosave = '60s'\npg_residency.rate = '50MB'\n"
        "shared_preload_libraries = 'auto_explain, pg_residency'\n")
    assert keys(real) == documented("server_preload") and real["restart"] and real["msg"] == "PostgreSQL has to be restarted, to load the library."
    assert parameters(plain) == dict(before, **{
        "pg_residency.autorestore": "off", "pg_residency.autosave": "60s", "pg_residency.rate": "50MB", LIBRARIES: "auto_explain, pg_residency"})
    [other] = preload(fleet, plain, second, given)
    assert (other["changed"], other["restart"], other["queries"]) == (False, True, []), other
    assert plain.members[second].cluster.sql("SHOW pg_residency.rate") == "50MB"
    wait_until(lambda: pending(plain) == set(NAMES))
    [fewer] = preload(fleet, plain, second, {"parameters": {"rate": "51200kB"}})
    changes = {"pg_residency.autorestore": None, "pg_residency.autosave": None, "pg_residency.rate": "51200kB"}
    assert fewer["queries"] == ["PATCH /config " + json.dumps({"postgresql": {"parameters": changes}})], fewer
    check, absent, again = preload(fleet, plain, second, {"check": True}, {}, {}, state="absent")
    assert (check["changed"], absent["changed"], again["changed"], again["restart"]) == (True, True, False, False), (check, absent, again)
    assert parameters(plain) == before
    wait_until(lambda: not pending(plain))


@contextlib.contextmanager
def in_the_members_own(patroni, **values):
    """Parameters in the configuration of db2 itself."""
    patroni.write("db2", parameters=values)
    yield
    patroni.write("db2")


@contextlib.contextmanager
def by_alter_system(patroni, **values):
    one = patroni.members["db2"].cluster
    for name, value in values.items():
        one.sql("ALTER SYSTEM SET %s = %s" % (name, value))
    yield
    one.sql("ALTER SYSTEM RESET ALL")


@contextlib.contextmanager
def untroubled(patroni):
    yield


OVER = ", which overrides the cluster's configuration: "
GATE = ({LIBRARIES: "auto_explain"}, {}), ({}, {"members": []})  # own and altered libraries, members


@pytest.mark.parametrize("trouble, values, more, message", heart([
    (in_the_members_own, {"pg_residency.rate": "1MB"}, {"parameters": {"rate": "2MB"}},
     "pg_residency.rate is set in {configuration} of db2" + OVER + "remove it there, and reload Patroni. Nothing was changed."),
    (in_the_members_own, {LIBRARIES: "auto_explain"}, {}, LIBRARIES + " is set in {configuration} of db2" + OVER + "remove it there, and reload Patroni."),
    (by_alter_system, {LIBRARIES: "auto_explain"}, {},
     LIBRARIES + " is set with ALTER SYSTEM on db2" + OVER + "run ALTER SYSTEM RESET " + LIBRARIES + " there. Nothing was changed."),
    (by_alter_system, {LIBRARIES: "pg_residency"}, {"state": "absent"}, LIBRARIES + " is set with ALTER SYSTEM on db2" + OVER),
    (untroubled, {}, {"file": "/tmp/a.conf"}, "belong into the configuration of the cluster, not into /tmp/a.conf: leave out "),
    (untroubled, {}, {"manager": "systemd"}, "/db2/data/postgresql.conf is written by Patroni: set pgfleet_service_manager to patroni."),
    (untroubled, {}, {"members": []}, "It is not known whether pg_residency is on db1, db2, db3 of this cluster, where PostgreSQL would not start again"),
    (test_patroni.another_password, {}, {}, "wants another password: correct restapi.authentication in "),
    (test_patroni.no_patroni, {}, {}, "No Patroni of this user keeps the server in "),
], lambda one: one[1:3] in GATE), ids=["own rate", "own libraries", "altered libraries", "altered absent", "file", "manager", "members", "password", "gone"])
def test_refused(plain, fleet, trouble, values, more, message):
    before = parameters(plain)
    with trouble(plain, **values):
        check, real = preload(fleet, plain, "db2", dict(more, check=True), more)
    for one in (check, real):
        assert one["failed"] and not one["changed"] and message.format(configuration=plain.members["db2"].configuration) in one["msg"], one["msg"]
    assert parameters(plain) == before


@thorough
def test_in_a_pause(plain, fleet):
    """Patroni applies the configuration then too, and restarts nothing."""
    with test_patroni.paused(plain):
        [real] = preload(fleet, plain, "db2", {"parameters": {"hold": "1h"}})
        assert real["changed"] and real["restart"], real
        assert plain.members["db2"].cluster.sql("SHOW pg_residency.hold") == "1h"


@thorough
def test_without_the_store(plain, fleet):
    """In a pause, no leader steps down for that."""
    with test_patroni.paused(plain), plain.without_store():
        [real] = preload(fleet, plain, "db2", {})
    assert real["failed"] and "Patroni of db2 does not reach the configuration of its cluster: see patronictl list" in real["msg"], real["msg"]


@thorough
def test_all_at_once(plain, fleet):
    """Without the role, which lets one follow the other."""
    login = {"login_port": "{{ pgfleet_login_port }}", "login_unix_socket": "{{ pgfleet_login_unix_socket }}"}
    play = fleet.ansible.write([task("server_preload", manager="patroni", parameters={"rate": "1MB"}, **login)], become=True, become_user="postgres")
    output, status = fleet.run(playbook=play)
    assert status == 0 and any(recap(output)[name]["changed"] for name in NAMES), output
    assert parameters(plain)[LIBRARIES] == "auto_explain, pg_residency" and parameters(plain)["pg_residency.rate"] == "1MB"


@pytest.fixture
def play(plain, fleet, machine, tmp_path):
    """Output of a playbook on members."""

    def call(playbook, *arguments, hosts=NAMES, status=0, **variables):
        output, ended = fleet.run(*arguments, hosts=hosts, playbook=playbook, **dict({
            "pgfleet_service_manager": "patroni", "pgfleet_results": str(tmp_path / "results"), "cache_extension_pg_config": machine.bin + "/pg_config",
            "cache_warmup_min_residency": LOOSE,
        }, **variables))
        assert (ended == 0) == (status == 0), output
        return output

    return call


@thorough
def test_the_playbooks(plain, fleet, play):
    """From the extension to a warm cluster: only the rolling restart restarts, and each member once."""
    started, leader, before = fleet.started(), plain.leader(), parameters(plain)
    plain.members[leader].cluster.sql("DROP EXTENSION pg_residency")
    play("pgfleet.cache.install")
    output = play("pgfleet.cache.unattended", "--check", cache_unattended_rate="50MB")
    assert "PostgreSQL would have to be restarted, to load the library." in row(output, "db3") and parameters(plain) == before, output
    output = play("pgfleet.cache.unattended", hosts=NAMES[:2], status=2)
    assert "It is not known whether pg_residency is on db3 of this cluster" in row(output, "db1") and parameters(plain) == before, output
    output = play("pgfleet.cache.unattended", cache_unattended_file="/tmp/a.conf", status=2)
    assert "not into /tmp/a.conf: leave out cache_unattended_file." in row(output, "db2"), output
    output = play("pgfleet.cache.unattended", cache_unattended_rate="50MB")
    assert sorted(recap(output)[name]["changed"] for name in NAMES) == [0, 0, 1], output
    assert all("PostgreSQL has to be restarted, to load the library." in row(output, name) for name in NAMES), output
    wait_until(lambda: pending(plain) == set(NAMES))
    assert fleet.started() == started
    play("pgfleet.cache.rolling_restart")
    assert not set(fleet.started().values()) & set(started.values()) and plain.leader() == leader
    wait_until(lambda: not pending(plain))
    started = fleet.started()
    output = play("pgfleet.cache.unattended", cache_unattended_rate="50MB")
    assert all(recap(output)[name]["changed"] == 0 and "The worker is " in row(output, name) for name in NAMES), output
    output = play("pgfleet.cache.unattended", hosts=["db2"], cache_unattended_rate="60MB")
    assert recap(output)["db2"]["changed"] == 1 and plain.members["db2"].cluster.sql("SHOW pg_residency.rate") == "60MB", output
    play("pgfleet.cache.snapshot")
    for member in plain.members.values():
        member.cluster.cool(member.cluster.file_of("passenger"))
    play("pgfleet.cache.warmup")
    assert fleet.started() == started
    output = play("pgfleet.cache.unattended", cache_unattended_state="absent")
    assert "All hosts: PostgreSQL has to be restarted, to end the worker of the library." in output and parameters(plain) == before, output


@thorough
def test_one_host_is_restarted(plain, fleet, play):
    """By the role, where the cluster has the library already; and the flag of Patroni goes."""
    play("pgfleet.cache.unattended")
    wait_until(lambda: pending(plain) == set(NAMES))
    leader = plain.leader()  # the role refuses a standby without its primary
    role = fleet.ansible.write([], roles=["pgfleet.cache.cache_unattended"])
    started = fleet.started()
    play(role, hosts=[leader], cache_unattended_restart=True, cache_restart_min_standbys=0)
    assert {name for name, at in fleet.started().items() if at != started[name]} == {leader} and plain.leader() == leader
    wait_until(lambda: pending(plain) == {*NAMES} - {leader})


@thorough
def test_a_library_that_was_replaced(plain, fleet, play, machine):
    """Patroni restarts the members, without a failover."""
    set_parameters(plain, shared_preload_libraries="auto_explain, pg_residency")
    wait_until(lambda: pending(plain) == set(NAMES))
    for name in NAMES:
        assert plain.members[name].ask("POST", "/restart", {})[0] == 200
    wait_until(lambda: not pending(plain))
    library = os.path.join(run(machine.bin + "/pg_config", "--pkglibdir").strip(), "pg_residency.so")
    shutil.copy2(library, library + ".new")
    os.rename(library + ".new", library)
    started, leader = fleet.started(), plain.leader()
    play("pgfleet.cache.install")
    assert fleet.started() == started
    play("pgfleet.cache.install", cache_extension_restart=True)
    assert not set(fleet.started().values()) & set(started.values())
    wait_until(lambda: plain.timelines() == {1})
    assert plain.leader() == leader
