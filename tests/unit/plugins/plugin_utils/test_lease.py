# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import way_out
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease


@pytest.fixture
def child():
    """A process that ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process
        if process.stdin and not process.stdin.closed:
            process.stdin.close()


def lease_of(process):
    return dict(_lease.mine(), pid=process.pid, process=_lease._process(process.pid))


def test_mine():
    mine = _lease.mine()
    assert mine["pid"] == os.getpid() and len(mine["process"].split()) == 3 and mine["owner"]
    assert re.fullmatch("run-[0-9a-f]{8}", mine["id"]) and mine["id"] == _lease.mine("play")["id"], "the same in all tasks of a run"
    assert mine["id"] in way_out(mine), "and it can be pasted into a shell"
    assert not _lease.gone(mine, _lease.mine())


def test_it_is_the_process_of_the_playbook():
    """What Ansible evaluates, it evaluates in a child of it, which ends soon."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply(_lease.mine)
    assert (found["pid"], found["id"]) == (os.getpid(), _lease.mine()["id"])


def test_another_run_has_another_name(monkeypatch):
    mine = _lease.mine()["id"]
    for name, value in (("node", lambda: "another"), ("_process", lambda pid: "boot pid:[1] 5")):
        with monkeypatch.context() as context:
            context.setattr(_lease.platform if name == "node" else _lease, name, value)
            assert _lease.mine()["id"] != mine, name


def test_whoever_ran_sudo_is_the_owner(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "carol")
    assert _lease.mine()["owner"] == "carol"
    monkeypatch.delenv("SUDO_USER")

    def nobody():
        raise KeyError("uid not found")

    monkeypatch.setattr(_lease.getpass, "getuser", nobody)
    assert _lease.mine()["owner"] == str(os.getuid())


def test_a_process_that_lives_and_ends(child):
    lease = lease_of(child)
    assert lease["process"] and not _lease.gone(lease, _lease.mine())
    child.stdin.close()
    # it has ended, and nobody has asked for its exit status: a zombie
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _lease.gone(lease, _lease.mine())
    child.wait()
    assert _lease.gone(lease, _lease.mine())


@pytest.mark.parametrize(("error", "gone"), [(ProcessLookupError, True), (PermissionError, False)])
def test_where_proc_shows_no_processes_of_others(child, monkeypatch, error, gone):
    """hidepid: that nothing is to be seen of it does not say that it has ended."""
    lease = lease_of(child)

    def kill(pid, number):
        assert (pid, number) == (child.pid, 0)
        raise error

    mine = _lease.mine()
    monkeypatch.setattr(_lease, "_process", lambda pid: "")
    monkeypatch.setattr(_lease.os, "kill", kill)
    assert _lease.gone(lease, mine) is gone


def test_another_process_with_the_same_number(child):
    lease = lease_of(child)
    boot, namespace, ticks = lease["process"].split()
    assert _lease.gone(dict(lease, process="%s %s %d" % (boot, namespace, int(ticks) - 1)), _lease.mine())


@pytest.mark.parametrize("changed", [
    {"controller": "another"}, {"process": ""}, {"process": None}, {"process": "another-boot pid:[1] 5"}, {"controller": None}, {"process": ["x"]},
], ids=str)
def test_of_others_nothing_is_known(child, changed):
    """Another machine, another container, or before a reboot: there somebody has to say so."""
    lease = dict(lease_of(child), pid=1 << 30, **changed)
    assert not _lease.gone(lease, _lease.mine())


@pytest.mark.parametrize("pid", ["x", None, [1], {}])
def test_a_number_that_is_none(child, pid):
    assert not _lease.gone(dict(lease_of(child), pid=pid), _lease.mine())


def test_refused():
    assert _lease.refused("db2", {"id": "run-0a1b2c3d", "owner": "alice", "controller": "ctl1", "what": "rolling_restart", "pid": 4711, "since": "now"}) == (
        "Another run is at work on db2: the lease is held by alice on ctl1 (rolling_restart, process 4711, since now). Wait until it ends. If"
        " that run no longer exists, take it over with -e pgfleet_take_over=run-0a1b2c3d."
    )


def test_taken_over():
    assert _lease.taken_over(None) == ""
    assert "taken over the lease of alice on ctl1" in _lease.taken_over({"owner": "alice", "controller": "ctl1"})


def test_when_the_run_began():
    began = datetime.strptime(_lease.began(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert timedelta(0) <= datetime.now(timezone.utc) - began < timedelta(hours=1)
