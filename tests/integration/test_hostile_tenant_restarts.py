# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What restarts or moves something, in a cluster with a hostile tenant: playbooks, entry points and handlers of the roles, and the same
on a standby. In check mode and really, nothing of the tenant's runs with other rights than his own.
"""

from __future__ import annotations

import json
import os
import re

import hostile
import pytest
from cluster import MAJOR, run
from playbook import documented, keys, task
from residency import is_there, there
from test_hostile_tenant import login, tasks

LOCK = "/dev/shm/pgfleet.cold_test"
BOTH = ["page_cache", "shared_buffers"]
MODES = pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
DATABASES = pytest.mark.parametrize("database", ["postgres", "shop"])
SERVICE = """
- name: Stop PostgreSQL
  ansible.builtin.command: {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}
  become: true
  become_user: postgres
  changed_when: true
  when: pgfleet_service_state != 'started'

- name: Start PostgreSQL
  ansible.builtin.command: {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
  changed_when: true
  when: pgfleet_service_state != 'stopped'
"""


@pytest.fixture(scope="module")
def office(set_up):
    """A database in which the tenant has nothing, beside his own."""
    set_up.sql("CREATE DATABASE office")
    set_up.sql("CREATE TABLE ledger AS SELECT i AS entry, repeat('x', 1000) AS text FROM generate_series(1, 4000) AS i", "office")
    set_up.sql("CHECKPOINT")
    yield set_up
    set_up.sql("DROP DATABASE office WITH (FORCE)")


@pytest.fixture(scope="module")
def standby(set_up, machine):
    """Of the hostile cluster."""
    standby = machine("hostile_standby", set_up)
    standby.trap = hostile.Log(standby)
    yield standby
    standby.stop()


@pytest.fixture
def nothing_sprung_there(standby):
    standby.trap.sprung()
    yield
    assert standby.trap.sprung() == []


@pytest.fixture
def fleet(ansible, shop, machine, state_directory):
    """Runs a playbook on the cluster, or on others: output and status."""
    service = os.path.join(machine.directory, "hostile_service.yml")
    with open(service, "w") as file:
        file.write(SERVICE.format(bin=shop.bin))

    def play(playbook, database, check=False, hosts=None, **variables):
        hosts = hosts or {"db1": shop}
        ansible.set_hosts(
            {name: {"pgfleet_login_port": one.port, "pgfleet_login_unix_socket": one.socket, "data": one.data} for name, one in hosts.items()},
            **dict(
                {"pgfleet_login_db": database, "cache_extension_pg_config": shop.bin + "/pg_config", "pgfleet_state_directory": state_directory},
                **variables
            )
        )
        return ansible.command(playbook if playbook.startswith("/") else "pgfleet.cache." + playbook, *(["--check", "--diff"] if check else []))

    play.ansible = ansible
    play.service = service
    return play


def postmaster(one):
    """Without asking the server."""
    with open(os.path.join(one.data, "postmaster.pid")) as file:
        return file.readline().strip()


def plain(text):
    return " ".join(re.sub(r"\\?[\"']", "", text).split())


# --- cold_test ---


@MODES
@DATABASES
def test_cold_test_refuses_where_he_may_create(office, fleet, nothing_sprung, tmp_path, database, check):
    """Before anything is changed."""
    office.warm(office.goods)
    before, server, files = there(office.goods), postmaster(office), office.folder()
    output, status = fleet(
        "cold_test", "postgres", check, cache_cold_test_database=database, pgfleet_results=str(tmp_path / "results"),
        cache_cold_test_queries=[{"name": "goods", "query": "SELECT count(*) FROM pg_class WHERE oid = 1::int4"}],
    )
    assert status != 0
    assert hostile.REFUSED % (database, "tenant") in plain(output), output
    assert postmaster(office) == server
    assert office.folder() == files
    assert is_there(office.goods, before)
    assert not os.path.lexists(LOCK)
    assert (tmp_path / "results").exists() is not check


@pytest.mark.parametrize("database, manager", [("postgres", "own"), ("shop", "systemd")], ids=["postgres-own", "shop-systemd"])
def test_cold_test_beside_his_databases(office, fleet, nothing_sprung, tmp_path, database, manager):
    """The modules log in to one of his; the query runs where he has nothing."""
    arguments = {
        "cache_cold_test_database": "office",
        "cache_cold_test_queries": [{"name": "ledger", "query": "SELECT count(text) FROM ledger WHERE entry = 1::int8"}],
        "cache_cold_test_states": ["both_cold", "restored"],
        "cache_cold_test_repeat": 1,
        "pgfleet_results": str(tmp_path),
    }
    if manager == "own":
        arguments["pgfleet_service_manager"] = fleet.service
    server = postmaster(office)
    output, status = fleet("cold_test", database, check=True, **arguments)
    assert status == 0, output
    assert postmaster(office) == server
    output, status = fleet("cold_test", database, **arguments)
    assert status == 0, output
    assert postmaster(office) != server
    [result] = [json.loads(one.read_text())["hosts"]["db1"]["result"] for one in tmp_path.glob("*.json")]
    assert [row["state"] for row in result["states"]] == ["both_cold", "restored"]


# --- rolling_restart, and what else a standby is asked ---


@DATABASES
def test_rolling_restart(set_up, standby, fleet, nothing_sprung, nothing_sprung_there, database):
    hosts = {"db1": set_up, "db2": standby}
    arguments = {
        "hosts": hosts,
        "pgfleet_service_manager": fleet.service,
        "cache_restart_min_free": "1MB",
        "cache_restart_replay_timeout": 60,
        "cache_restart_min_residency": 0,
    }
    for one in hosts.values():
        one.warm(os.path.join(one.data, os.path.relpath(set_up.goods, set_up.data)))
    before = {name: postmaster(one) for name, one in hosts.items()}
    output, status = fleet("rolling_restart", database, check=True, **arguments)
    assert status == 0, output
    assert {name: postmaster(one) for name, one in hosts.items()} == before
    output, status = fleet("rolling_restart", database, **arguments)
    assert status == 0, output
    assert "All hosts are restarted: the rolling restart is finished." in output
    for name, one in hosts.items():
        assert postmaster(one) != before[name]


def test_playbooks_on_a_standby(set_up, standby, fleet, nothing_sprung, nothing_sprung_there):
    for playbook in ("install", "snapshot", "warmup"):
        for check in (True, False):
            output, status = fleet(
                playbook, "shop", check, hosts={"db1": set_up, "db2": standby}, cache_extension_databases="all",
                # how much of it is still there is not asked here
                cache_snapshot_name="both", cache_warmup_snapshot="both", cache_warmup_min_residency=0,
            )
            assert status == 0, output


def test_every_module_on_a_standby(set_up, standby, as_postgres, nothing_sprung, nothing_sprung_there):
    work = tasks(standby, "shop")
    for one, result in zip(work, as_postgres(*work)):
        module = next(iter(one)).rpartition(".")[2]
        if module == "query_io":
            assert result["msg"] == hostile.REFUSED % ("shop", "tenant")
        elif module == "temp_buffer_cost":
            assert result["msg"] == "This is a standby, where no temporary table can be created: measure on the primary."
        else:
            assert not result.get("failed"), (module, result["msg"])
        assert keys(result) == documented(module)


# --- modules that restart or limit ---


@pytest.mark.parametrize("user, database", [("postgres", "postgres"), ("postgres", "shop"), ("root", None)], ids=["postgres", "shop", "root"])
def test_evict_by_restart(set_up, ansible, nothing_sprung, user, database):
    """The owner logs in to find the data directory, root need not."""
    arguments = {"data_directory": set_up.data} if user == "root" else login(set_up, database)
    become = {"become": True, "become_user": "postgres"} if user == "postgres" else {}
    for check in (True, False):
        server = postmaster(set_up)
        [result] = ansible.tasks([task("cache_evict", check=check, layers=BOTH, method="restart", **arguments)], **become)
        assert not result.get("failed"), result["msg"]
        assert result["restarted"] is not check
        assert (postmaster(set_up) == server) is check


def test_page_cache_limit(set_up, ansible, nothing_sprung):
    """It logs in nowhere."""
    would, absent = ansible.tasks([
        task("page_cache_limit", check=True, method="huge_pages", size="1GB", data_directory=set_up.data),
        task("page_cache_limit", method="cgroup", state="absent", data_directory=set_up.data),
    ])
    for result in (would, absent):
        # there is none to be seen in the root file system of another major
        assert not result.get("failed") or "cannot be limited" in result["msg"], result["msg"]
        assert keys(result) == documented("page_cache_limit")
    assert not absent["changed"]


def test_pg_buffercache_in_a_schema_of_his(shop, as_postgres, nothing_sprung):
    """Whose view he could replace between two statements: nothing of that schema is called."""
    shop.sql("CREATE DATABASE booth OWNER tenant; ALTER ROLE postgres SET log_statement = 'all'")
    try:
        shop.sql("CREATE EXTENSION pg_buffercache", "booth")
        there = login(shop, "booth")
        plain_, refused, would = as_postgres(
            task("cache_evict", **there), task("cache_evict", layers=BOTH, **there), task("cache_evict", check=True, layers=BOTH, **there)
        )
        assert not plain_.get("failed"), plain_["msg"]
        assert plain_["buffer_bytes_before"] is None
        said = "PostgreSQL %d empties its shared buffers only by a restart: set method to restart." % MAJOR if MAJOR < 17 else (
            "In database booth extension pg_buffercache is in schema public, owned by tenant, who could replace the extension's objects: ALTER"
            " EXTENSION pg_buffercache SET SCHEMA to one of a superuser's, or set method to restart."
        )
        assert refused["msg"] == would["msg"] == said
        with open(shop.log, encoding="utf-8", errors="replace") as file:
            assert "public.pg_buffercache" not in file.read()
        shop.sql("CREATE SCHEMA buffers; ALTER EXTENSION pg_buffercache SET SCHEMA buffers", "booth")
        counted, emptied = as_postgres(task("cache_evict", **there), task("cache_evict", layers=BOTH, **there))
        assert counted["buffer_bytes_before"] > 0
        assert bool(emptied.get("failed")) is (MAJOR < 17), emptied["msg"]
    finally:
        shop.sql("ALTER ROLE postgres RESET log_statement")
        shop.sql("DROP DATABASE booth")


# --- install ---


def changes(output, host="db1"):
    return int(re.search(r"^%s +: ok=\d+ +changed=(\d+) " % host, output, re.MULTILINE).group(1))


@pytest.mark.parametrize("name", ["stall", "Größe; 'x"], ids=["plain", "quoted"])
def test_install_moves_an_extension_in_a_schema_of_his(set_up, fleet, nothing_sprung, name):
    set_up.sql('CREATE DATABASE "%s" OWNER tenant' % name)
    try:
        set_up.sql("CREATE EXTENSION pg_residency", name)
        hostile.plant(set_up, name, "public", casts=True)
        hostile.configure(set_up, 'DATABASE "%s"' % name, MAJOR)
        set_up.trap.sprung()
        moved = ["-%s: 1.0.0 in schema public" % name, "+%s: 1.0.0 in schema residency" % name]
        # first from beside, then in the database itself
        for check, database in ((True, "postgres"), (True, name), (False, name)):
            output, status = fleet("install", database, check, cache_extension_databases=[name])
            assert status == 0, output
            assert changes(output) == 1
            if check:
                assert [line for line in output.splitlines() if line.startswith(("-%s:" % name, "+%s:" % name))] == moved, output
        output, status = fleet("install", name, cache_extension_databases=[name])
        assert (status, changes(output)) == (0, 0), output
        for check in (True, False):
            output, status = fleet("install", name, check, cache_extension_databases=[name], cache_extension_state="absent")
            assert status == 0, output
            assert changes(output) == 1
        output, status = fleet("install", name, cache_extension_databases=[name], cache_extension_state="absent")
        assert (status, changes(output)) == (0, 0), output
    finally:
        set_up.sql('DROP DATABASE "%s"' % name)


def test_install_drops_an_extension_in_a_schema_of_his(set_up, fleet, nothing_sprung):
    """Which has not been moved before: what is in its place is not asked for jobs."""
    set_up.sql("CREATE DATABASE stall OWNER tenant")
    try:
        set_up.sql("CREATE EXTENSION pg_residency", "stall")
        hostile.plant(set_up, "stall", "public", casts=True)
        set_up.trap.sprung()
        for check in (True, False):
            output, status = fleet("install", "stall", check, cache_extension_databases=["stall"], cache_extension_state="absent")
            assert status == 0, output
            assert changes(output) == 1
    finally:
        set_up.sql("DROP DATABASE stall")


def test_install_restarts_to_load_the_library(set_up, fleet, nothing_sprung):
    """By the handler of cache_extension."""
    server = postmaster(set_up)
    try:
        for check in (True, False):
            output, status = fleet("install", "shop", check, cache_extension_preload=True, pgfleet_service_manager=fleet.service)
            assert status == 0, output
            assert (postmaster(set_up) == server) is check
    finally:
        set_up.sql("ALTER SYSTEM RESET shared_preload_libraries")
        set_up.stop()
        set_up.start()


# --- roles in plays of the user's own ---


@MODES
def test_roles_and_their_handlers(set_up, fleet, nothing_sprung, check):
    """Saved before the play's own restart and restored behind it; and restored by the role itself."""
    role = "pgfleet.cache.cache_warmup"
    path = fleet.ansible.write(
        [
            {"ansible.builtin.include_role": {"name": role, "tasks_from": "around"}},
            {"ansible.builtin.command": "true", "name": "Change something", "notify": "Restart PostgreSQL"},
            {"ansible.builtin.meta": "flush_handlers"},
            {"ansible.builtin.include_role": {"name": role}},
        ],
        vars={"cache_snapshot_name": "around", "cache_warmup_snapshot": "around", "cache_warmup_min_residency": 0},
        handlers=[
            {"name": "Restart PostgreSQL", "notify": "Restore the page cache", "become": True, "become_user": "postgres",
             "ansible.builtin.command": "{bin}/pg_ctl restart --wait --silent --mode=fast --pgdata={data} --log={log}".format(
                 bin=set_up.bin, data=set_up.data, log=set_up.log)},
        ],
    )
    server = postmaster(set_up)
    output, status = fleet(path, "shop", check)
    assert status == 0 or (check and "does not exist here" in output), output
    assert (postmaster(set_up) == server) is check
    assert ("RUNNING HANDLER [Restore the page cache]" in output or "Restore the page cache" in output) or check


def test_the_trap_is_armed_to_the_end(shop):
    """It springs for a superuser's plain statement, also in a transaction that only reads."""
    shop.trap.sprung()
    run("env", "PGOPTIONS=-c default_transaction_read_only=on", shop.bin + "/psql", "-XAtq", "-h", shop.socket, "-p", str(shop.port),
        "-d", "postgres", "-c", "SELECT count(*) FROM pg_class WHERE oid = 1::int4", user="postgres")
    assert shop.trap.sprung() != []
    assert not hostile.is_superuser(shop)
