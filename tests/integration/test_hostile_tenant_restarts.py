# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What restarts something, in a cluster with a hostile tenant, and every module on its standby. In check mode and really, nothing of the tenant's runs
with other rights than his own.
"""

from __future__ import annotations

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


def postmaster(one):
    """Without asking the server."""
    with open(os.path.join(one.data, "postmaster.pid")) as file:
        return file.readline().strip()


def plain(text):
    return " ".join(re.sub(r"\\?[\"']", "", text).split())


@MODES
@DATABASES
def test_cold_test_refuses_where_he_may_create(set_up, ansible, nothing_sprung, tmp_path, state_directory, database, check):
    """Before anything is changed."""
    set_up.warm(set_up.goods)
    before, server, files = there(set_up.goods), postmaster(set_up), set_up.folder()
    ansible.set_hosts(
        {"db1": {"pgfleet_login_port": set_up.port, "pgfleet_login_unix_socket": set_up.socket}}, pgfleet_state_directory=state_directory,
        cache_cold_test_database=database, pgfleet_results=str(tmp_path / "results"),
        cache_cold_test_queries=[{"name": "goods", "query": "SELECT count(*) FROM pg_class WHERE oid = 1::int4"}],
    )
    output, status = ansible.command("pgfleet.cache.cold_test", *(["--check", "--diff"] if check else []))
    assert status != 0
    assert hostile.REFUSED % (database, "tenant") in plain(output), output
    assert postmaster(set_up) == server
    assert set_up.folder() == files
    assert is_there(set_up.goods, before)
    assert not os.path.lexists(LOCK)
    assert (tmp_path / "results").exists() is not check


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


def test_the_trap_is_armed_to_the_end(shop):
    """It springs for a superuser's plain statement, also in a transaction that only reads."""
    shop.trap.sprung()
    run("env", "PGOPTIONS=-c default_transaction_read_only=on", shop.bin + "/psql", "-XAtq", "-h", shop.socket, "-p", str(shop.port),
        "-d", "postgres", "-c", "SELECT count(*) FROM pg_class WHERE oid = 1::int4", user="postgres")
    assert shop.trap.sprung() != []
    assert not hostile.is_superuser(shop)
