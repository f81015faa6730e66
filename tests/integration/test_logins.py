# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may run what, from where, and with which Python: the table in docs/security.md."""

from __future__ import annotations

import os
import re

import pytest
from cluster import LOOSE, heart, run, thorough
from conftest import PASSWORD
from playbook import environments, task

ENVIRONMENTS = environments("host-3.*")
MAIN_JOB = [("residency_snapshot", {"name": "mine"}), ("residency_restore", {"name": "mine", "min_residency": LOOSE}), ("residency_info", {})]


@pytest.fixture
def another_host(machine, cluster):
    """A Python that reaches the server over TCP and sees nothing of the server's folders, as on another machine."""
    path = os.path.join(machine.directory, "another-host-python")
    with open(path, "w") as file:
        file.write(
            "#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs none %s && exec /usr/bin/python3 \"$@\"' sh \"$@\"\n" % cluster.socket
        )
    os.chmod(path, 0o755)
    return {"ansible_python_interpreter": path}


@pytest.mark.parametrize("pipelining", [True, False])
def test_become_the_owner(as_postgres, login, pipelining):
    tasks = [task(module, **dict(login, **arguments)) for module, arguments in [*MAIN_JOB, ("cache_evict", {})]]
    for result in as_postgres(*tasks, environment={"ANSIBLE_PIPELINING": str(pipelining)}):
        assert not result.get("failed"), result["msg"]


def test_password_from_another_host(ansible, by_password, another_host, cluster):
    """What works there: all that the server does for itself."""
    cluster.warm(cluster.file_of("passenger"))
    cluster.sql("SELECT FROM residency_snapshot('far')")
    results = ansible.tasks([task(module, **dict(by_password("operator"), **arguments)) for module, arguments in MAIN_JOB], vars=another_host)
    cluster.cool(cluster.file_of("passenger"))  # a snapshot of another test, which this one is too thin to replace, may have it
    results += ansible.tasks([task("residency_restore", name="far", min_residency=0, **by_password("operator"))], vars=another_host)
    for result in results:
        assert not result.get("failed"), result["msg"]
    assert results[-1]["changed"], results[-1]["msg"]


@thorough
def test_what_needs_the_files_says_so_from_another_host(ansible, by_password, another_host, cluster):
    """And what does not."""
    login = by_password("monitor")
    told = [
        task(module, data_directory=directory, **dict(login, **arguments))
        for module, arguments in (("residency_info", {"subset": ["capabilities"]}), ("cache_evict", {}))
        for directory in (None, cluster.data)
    ]
    capabilities, named_capabilities, evict, named_evict = ansible.tasks(told, vars=another_host)
    for result in (capabilities, evict):
        assert result["failed"] and result["msg"].startswith("Over TCP, only the server itself tells its data directory")
    assert named_capabilities["msg"] == (
        "There is no %s on this host: the subset capabilities must run on PostgreSQL's host, as its owner." % cluster.data
    )
    assert named_evict["msg"] == (
        "There is no %s on this host: this module must run on PostgreSQL's host, as its owner." % cluster.data
    )


@pytest.mark.parametrize("password", [PASSWORD, PASSWORD + "-wrong"], ids=["right", "wrong"])
@pytest.mark.parametrize("pipelining", [True, False])
def test_the_password_is_shown_nowhere(ansible, by_password, password, pipelining):
    tasks = [
        dict(task(module, check=check, diff=True, **dict(by_password("operator", login_password=password), **arguments)), ignore_errors=True)
        for module, arguments in MAIN_JOB
        for check in (True, False)
    ]
    output, dummy = ansible.command("-vvv", "--diff", ansible.write(tasks), ANSIBLE_PIPELINING=str(pipelining))
    assert "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in output
    assert output.count("residency_snapshot") > 1
    assert PASSWORD not in output


@thorough
def test_rights_of_the_roles(ansible, by_password, cluster):
    """monitor looks, operator changes too, and whoever has neither role gets nothing."""
    expected = {"monitor": [True, True, False], "operator": [False, False, False], "app": [True, True, True]}
    cluster.warm(cluster.file_of("passenger"))
    cluster.sql("SELECT FROM residency_snapshot('mine')")
    cluster.cool(cluster.file_of("passenger"))
    for user, failed in expected.items():
        tasks = [task(module, **dict(by_password(user), **arguments)) for module, arguments in MAIN_JOB]
        assert [bool(result.get("failed")) for result in ansible.tasks(tasks)] == failed, user


@thorough
def test_evicting_takes_the_right_to_checkpoint(as_postgres, by_password):
    keeper, operator = as_postgres(task("cache_evict", **by_password("keeper")), task("cache_evict", **by_password("operator")))
    assert not keeper.get("failed"), keeper["msg"]
    assert operator["msg"] == (
        "Login role operator lacks pg_checkpoint, without which what is dirty would stay: grant it, or log in as a superuser."
    )


def test_root_without_a_login(ansible, cluster):
    """With PostgreSQL stopped nobody can log in, and the kernel tells root what it tells the owner."""
    tasks = [
        task("residency_info", subset=["databases", "snapshots", "capabilities"], data_directory=cluster.data),
        task("cache_evict", data_directory=cluster.data),
    ]
    cluster.stop()
    try:
        cluster.warm(cluster.data + "/base/5/1259")
        for result in ansible.tasks(tasks):
            assert not result.get("failed"), result["msg"]
            assert result["server"] == "stopped"
        assert cluster.resident(cluster.data + "/base/5/1259") == 0
    finally:
        cluster.start()


@pytest.mark.parametrize("environment", heart(ENVIRONMENTS, {*ENVIRONMENTS[:1], *ENVIRONMENTS[-1:]}.__contains__), ids=os.path.basename)
def test_python_of_the_host(ansible, by_password, cluster, environment):
    """Every module, and another driver, on the oldest to the newest Python that a host may have."""
    everything = ["databases", "relations", "segments", "snapshots", "jobs", "capabilities"]
    cluster.warm(cluster.file_of("passenger"))
    cluster.sql("SELECT FROM residency_snapshot('mine')")
    cluster.cool(cluster.file_of("passenger"))
    results = ansible.tasks(
        [
            task("residency_restore", name="mine", min_residency=0, deadline="2099-01-01 06:00+01:00", **by_password("operator")),
            task("residency_snapshot", name="mine", **by_password("operator")),
            task("residency_info", subset=everything, data_directory=cluster.data, **by_password("operator")),
            task("residency_info", subset=["buffers"], relation="passenger", **by_password("operator")),
            task("cache_evict", check=True, data_directory=cluster.data, **by_password("keeper")),
            task("residency_info", login_password="wrong", **{k: v for k, v in by_password("monitor").items() if k != "login_password"}),
        ],
        vars={"ansible_python_interpreter": environment + "/bin/python"},
    )
    for result in results[:-1]:
        assert not result.get("failed"), result["msg"]
    assert results[0]["changed"] and results[0]["loaded"] > 0
    assert re.search(r"password authentication failed for user \"monitor\"\. Correct login_user and login_password\.", results[-1]["msg"])


def test_python_without_a_driver(ansible, as_postgres, login, machine):
    path = os.path.join(machine.directory, "bare")
    if not os.path.exists(path):
        run("/usr/bin/python3", "-m", "venv", "--without-pip", path)
    bare = {"ansible_python_interpreter": path + "/bin/python"}
    check, real, info = as_postgres(
        task("residency_snapshot", check=True, name="warm", **login),
        task("residency_snapshot", name="warm", **login),
        task("residency_info", subset=["capabilities"], data_directory=machine.directory),
        vars=bare,
    )
    missing = (
        "psycopg is missing for %s/bin/python on this host: install python3-psycopg2 (the playbook pgfleet.cache.install does), "
        "or set ansible_python_interpreter to a Python that has it." % path
    )
    assert (check["changed"], check["warnings"]) == (True, [missing])
    assert (real["failed"], real["msg"]) == (True, missing)
    assert not info.get("failed"), info["msg"]
