# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""That a password of a login is nowhere but where the user has put it."""

from __future__ import annotations

import os
import stat
import time

import pytest
from cluster import thorough
from playbook import task

LARGEST = 8 << 20  # of a file that is searched: what is longer is a relation


def files_with(secret, since, *folders):
    """Written since then, with the secret in them; relations and what belongs to no run of this test are left out."""
    found = []
    for folder in folders:
        for directory, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in ("base", "pg_wal") and not name.startswith(("wt-", "pytest-"))]
            for name in files:
                path = os.path.join(directory, name)
                try:
                    status = os.lstat(path)
                    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST or max(status.st_mtime, status.st_ctime) < since:
                        continue
                    with open(path, "rb") as file:
                        if secret.encode() in file.read():
                            found.append(path)
                except OSError:
                    continue  # another's, gone meanwhile
    return found


@pytest.fixture
def keyed(cluster):
    """The password of a role whose every statement is logged."""
    secret = "pl4ce-%s" % os.urandom(8).hex()
    cluster.sql("CREATE ROLE keyed LOGIN PASSWORD '%s' IN ROLE pg_monitor, residency_admin" % secret)
    settings = ("log_statement = 'all'", "log_connections = on", "log_disconnections = on")
    for one in settings:
        cluster.sql("ALTER SYSTEM SET " + one)
    cluster.sql("SELECT pg_reload_conf()")
    yield secret
    for one in settings:
        cluster.sql("ALTER SYSTEM RESET " + one.split()[0])
    cluster.sql("SELECT pg_reload_conf(); DROP ROLE keyed")


@thorough
def test_a_password_stays_on_no_host(fleet, cluster, keyed):
    """In every place where one can be, with right options and wrong ones: not in outputs, results, temporary folders, nor what PostgreSQL writes."""
    secret, since = keyed, time.time() - 1
    base = {"login_host": "127.0.0.1", "login_port": cluster.port, "login_user": "keyed"}
    places = [
        dict(base, login_password=secret),
        dict(base, connect_params={"password": secret, "application_name": "test"}),
        dict(base, login_db="postgresql://keyed:%s@127.0.0.1:%d/postgres" % (secret, cluster.port)),
        dict(base, login_db="host=127.0.0.1 user=keyed password=%s" % secret),
        dict(base, login_user="nobody", login_password=secret),
    ]
    some = [
        ("residency_info", {"subset": ["snapshots"]}), ("residency_snapshot", {"name": "keyed"}), ("residency_restore", {"name": "keyed", "min_residency": 0}),
        ("server_query", {"query": "SELECT 1"}), ("query_io", {"query": "SELECT 1"}), ("cache_evict", {"data_directory": cluster.data}),
        ("residency_extension", {"databases": ["postgres"]}), ("server_preload", {"state": "absent"}),
    ]
    wrong = {
        "residency_info": {"subset": ["none"]}, "residency_snapshot": {"keep": "none"}, "residency_restore": {"relations": {"a": 1}},
        "server_query": {"named_args": "none"}, "query_io": {"queries": [5]}, "cache_evict": {"layers": ["none"]},
        "residency_extension": {"databases": {"a": 1}}, "server_preload": {"wait_timeout": "none"},
    }
    tasks = [dict(task(module, **dict(arguments, **login)), ignore_errors=True) for module, arguments in some for login in places]
    tasks += [dict(task(module, **dict(arguments, **wrong[module], **login)), ignore_errors=True)
              for module, arguments in [(one, {key: value for key, value in given.items() if key not in wrong[one]}) for one, given in some]
              for login in places[:3]]
    tasks.append(dict(task("residency_restore", **dict(some[2][1], **places[1])), ignore_errors=True, **{"async": 60, "poll": 1}))
    play = fleet.write(tasks, hosts="one")
    outputs = []
    try:
        for callback, pipelining in (("ansible.builtin.default", "True"), ("ansible.posix.json", "False")):
            output, dummy = fleet.command(play, "-vvv", ANSIBLE_STDOUT_CALLBACK=callback, ANSIBLE_PIPELINING=pipelining)
            outputs.append(output)
    finally:
        os.unlink(play)  # which has it, of course
    for playbook, *more in (
        ["snapshot"], ["warmup", "-e", "cache_warmup_min_residency=0"], ["warmup", "-e", "cache_warmup_rate=x"],
        ["warmup", "-e", "pgfleet_login_db=postgresql://keyed:%s@127.0.0.1/postgres" % secret],
    ):
        output, dummy = fleet.command(
            "pgfleet.cache." + playbook, "-vvv", "--limit", "one", "-e", "pgfleet_login_password=%s" % secret, "-e", "pgfleet_login_user=keyed",
            "-e", "pgfleet_login_host=127.0.0.1", *more
        )
        outputs.append(output)
    for output in outputs:
        found = [line for line in output.splitlines() if secret in line and not line.startswith("ansible-playbook")]
        assert found == [], found[0][:2000]
    assert "'keyed'" in outputs[0] or "keyed@" in outputs[0], "they have done their work"
    homes = [os.path.expanduser("~%s/.ansible" % user) for user in ("root", "postgres")]
    folders = ["/tmp", "/var/tmp", "/run", "/dev/shm", "/var/log", str(fleet.results), cluster.data, os.path.dirname(cluster.log), *homes]
    assert files_with(secret, since, *folders) == []
    with open(cluster.log, encoding="utf-8", errors="replace") as file:
        log = file.read()
    assert secret not in log and "residency_snapshot(" in log and list(fleet.results.glob("*"))


def test_a_password_is_shown_nowhere(fleet, by_password, cluster):
    """In the options of every module that logs in, with others that are wrong."""
    login = by_password("monitor")
    wrong = [
        task("query_io", queries=["SELECT 1"], **login),
        task("query_io", queries=[{"query": {"a": 1}}], **login),
        task("query_io", queries=[5], **login),
        task("query_io", query="SELECT 1", settings=[1], **login),
        task("residency_info", subset=["nothing"], **login),
        task("residency_restore", name="warm", relations={"a": 1}, nothing=1, **login),
        task("residency_snapshot", name="warm", keep="none", **login),
        task("residency_extension", databases={"a": 1}, **login),
        task("cache_evict", layers=["none"], **login),
        task("server_query", query="SELECT 1", named_args="none", **login),
        task("server_preload", parameters=5, **login),
    ]
    tasks = [dict(one, ignore_errors=True, register="failed%d" % number) for number, one in enumerate(wrong)]
    tasks.append({"ansible.builtin.assert": {"that": ["failed%d is failed" % number for number in range(len(wrong))]}})
    play = fleet.write(tasks, hosts="one")
    for callback in ("ansible.builtin.default", "ansible.posix.json", "minimal"):
        output, status = fleet.command(play, "-vvv", ANSIBLE_STDOUT_CALLBACK=callback, ANSIBLE_PIPELINING="True")
        assert status == 0 and login["login_password"] not in output, output
    runs = [["snapshot"], ["warmup"], ["cold_test", "-e", "cache_cold_test_queries='select 1'"], ["warmup", "-e", "cache_warmup_rate=x"]]
    for playbook, *more in runs:
        output, dummy = fleet.command(
            "pgfleet.cache." + playbook, "--check", "-vvv", "--limit", "one", "-e", "pgfleet_login_password=%s" % login["login_password"], *more
        )
        found = [line for line in output.splitlines() if login["login_password"] in line]
        assert found == [], found
    for path in fleet.results.glob("*"):
        assert login["login_password"] not in path.read_text()
