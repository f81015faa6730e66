# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart under Patroni, in each step of which somebody else switches over, or the primary dies; and the run after it.

FAILOVERS        how many are tried of either kind (3), or "all"
FAILOVERS_SEED   (2) which ones
FAILOVERS_TABLE  a file for the table of all of them
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import threading

import pytest
from cluster import run, thorough
from cuts import PLUGINS
from patroni import RELEASES, begun, restart, texts
from proxies import wait_until
from test_rolling_restart import NAMES, fresh, is_restored, row, warm

# The step of a host before which it happens: the first standby, or the primary
STEPS = [
    *(("standby", step, {}) for step in (
        "Record the event save", "Record the event going_out", "Record the event out", "Run a checkpoint on the primary", "Record the event stopping",
        "Restart PostgreSQL (Patroni)", "Record the event restarted", "Record the event warm", "Record the event going_in", "Record the event done")),
    *(("primary", step, {}) for step in ("Record the event stopping", "Restart PostgreSQL (Patroni)", "Record the event restarted", "Record the event ended")),
    *(("primary", step, {"cache_restart_primary": "switchover"}) for step in (
        "Choose the candidate for the switchover", "Count what is resident on the candidate", "Record the event stopping", "Switch over (Patroni)",
        "Wait until the server has its role", "Record the event restarted")),
]
CRASHES = [STEPS[number] for number in (2, 5, 6, 11, 17)]


def chosen(steps):
    count = os.environ.get("FAILOVERS", "3")
    return steps if count == "all" else random.Random(os.environ.get("FAILOVERS_SEED", "2")).sample(steps, min(int(count), len(steps)))


@pytest.fixture(scope="module", params=RELEASES)
def patroni(request, machine, cluster):
    yield from begun(machine, request.param)


@pytest.fixture
def fleet(patroni, ansible, machine):
    yield from fresh(ansible, {name: member.cluster for name, member in patroni.members.items()}, machine)


class Beside:
    """What is done at a place of a run, and whether the run came there."""

    def __init__(self, directory, action):
        self.done = False
        self._action = action
        self._path = os.path.join(directory, "beside.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self._path)
        self._socket.listen(1)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def environment(self, host, step):
        return {
            "ANSIBLE_CALLBACK_PLUGINS": PLUGINS, "ANSIBLE_CALLBACKS_ENABLED": "meanwhile", "MEANWHILE_TASK": step, "MEANWHILE_HOST": host,
            "MEANWHILE_SOCKET": self._path}

    def _wait(self):
        with self._socket.accept()[0]:
            self._action()
            self.done = True

    def stop(self):
        self._socket.close()


def beside(fleet, patroni, host, step, action, **variables):
    """Output and status of a run, beside which that was done."""
    meanwhile = Beside(fleet.directory, action)
    try:
        output, status = restart(fleet, patroni, environment=meanwhile.environment(host, step), **variables)
    finally:
        meanwhile.stop()
    assert meanwhile.done, output
    return output, status


def stable(patroni):
    """One leader, whom the others follow; whoever no longer can is made anew, as an operator would do it."""
    def receives(name):
        return patroni.members[name].cluster.sql("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") == "1"

    def follow():
        return len(patroni.timelines()) == 1 and set(patroni.states().values()) <= {"running", "streaming"} and all(
            receives(name) for name in NAMES if name != patroni.leader())

    wait_until(patroni.leader)
    try:
        wait_until(follow, seconds=60)
    except AssertionError:
        for name in NAMES:
            if name != patroni.leader() and not (patroni.states()[name] in ("running", "streaming") and receives(name)):
                status, text = patroni.members[name].ask("POST", "/reinitialize", {"force": True})
                print("reinit of %s: %d %s" % (name, status, text))
        wait_until(follow)


def switched_over(patroni, leader, candidate):
    """As patronictl does it, by somebody else."""
    status, text = patroni.members[leader].ask("POST", "/switchover", {"leader": leader, "candidate": candidate})
    return "%d %s" % (status, text)


def killed(patroni, leader):
    """The primary and its Patroni; another one is promoted when its time to live (ttl) is over."""
    patroni.kill(leader)
    with open(os.path.join(patroni.members[leader].cluster.data, "postmaster.pid")) as file:
        run("kill", "-KILL", file.readline().strip())
    wait_until(lambda: patroni.leader() not in (None, leader))
    return "%s was promoted" % patroni.leader()


def tried(fleet, patroni, role, step, variables, crash):
    for name in NAMES:
        patroni.write(name)
        patroni.members[name].ask("POST", "/reload")
    stable(patroni)
    leader, before = patroni.leader(), texts(patroni)
    standbys = [name for name in NAMES if name != leader]
    happened, starts = [], {}

    def fail_over():
        now = patroni.leader()
        # one that is being restarted cannot take over: the other one then
        for candidate in [name for name in (standbys[0], *standbys[1:], leader) if name != now]:
            happened.append(killed(patroni, now) if crash else switched_over(patroni, now, candidate))
            if crash or happened[-1].startswith("200"):
                break
        starts.update({name: patroni.starts(name) for name in NAMES})
        happened.append(patroni.leader())

    output, first = beside(fleet, patroni, standbys[0] if role == "standby" else leader, step, fail_over, cache_restart_timeout=30, **variables)
    led = happened[-1]
    # whoever leads since then was not restarted by this run
    again = patroni.starts(led) - starts[led]
    said = [row(output, name) for name in NAMES]
    if crash:
        patroni.start(leader)
        wait_until(lambda: patroni.answers(leader))
    stable(patroni)
    output, second = restart(fleet, patroni, **variables)
    lost = re.search(r"Give it up with -e pgfleet_waive=(\w+)\.", output)
    if second and lost:  # pg_rewind has replaced the snapshot of the host by those of the new primary
        second = "waived " + lost.group(1)
        output, third = restart(fleet, patroni, pgfleet_waive=lost.group(1), cache_restart_before_in="", **variables)  # it is in traffic
        assert third == 0, output
    path = os.environ.get("FAILOVERS_TABLE")
    if path:
        with open(path, "a") as table:
            table.write("| %s | %s | %s | %s | %s | %s | %s |\n" % (
                role, step, "switchover" if variables else "in place", happened[-2][:60], first, " / ".join(re.sub(" +", " ", one) for one in said), second))
    assert again == 0, said
    assert second == 0 or lost, output
    assert all("done" in row(output, name) for name in NAMES), output
    assert texts(patroni) == before
    stable(patroni)
    assert not any(one.get("tags") for one in patroni.cluster()["members"])
    assert "pause" not in patroni.cluster()


@thorough
@pytest.mark.parametrize("role, step, variables", chosen(STEPS))
def test_switched_over(fleet, patroni, role, step, variables):
    tried(fleet, patroni, role, step, variables, crash=False)


@thorough
@pytest.mark.parametrize("role, step, variables", chosen(CRASHES))
def test_primary_died(fleet, patroni, role, step, variables):
    tried(fleet, patroni, role, step, variables, crash=True)


@thorough
def test_a_switchover_that_comes_after_its_answer(fleet, patroni):
    """Patroni waits 20 s for its result. The restore stays pending: the next run neither saves the cold caches nor restarts the host again."""
    stable(patroni)
    leader = patroni.leader()
    one = patroni.members[leader].cluster
    warm(one)

    def hold_the_checkpoint():
        pid = one.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
        run("kill", "-STOP", pid)
        threading.Timer(40, run, ("kill", "-CONT", pid)).start()

    output, status = beside(fleet, patroni, leader, "Switch over (Patroni)", hold_the_checkpoint, cache_restart_primary="switchover")
    assert status != 0 and "Patroni does not know whether it has switched over to " in output, output
    wait_until(lambda: patroni.leader() not in (None, leader))
    stable(patroni)
    kept, starts = fleet.kept(leader), patroni.starts(leader)
    assert kept["pending"]["snapshot"].startswith("restart@"), kept
    output, status = restart(fleet, patroni, cache_restart_primary="switchover")
    assert status == 0 and patroni.starts(leader) == starts, output
    assert is_restored(one, kept["pending"]) and fleet.kept(leader)["pending"] == {}, output


@thorough
def test_a_primary_that_is_down_is_left_to_patroni(fleet, patroni):
    """It died during its restart, and another one was promoted: Patroni makes it a standby in the next run, and nobody else may do that beside it."""
    stable(patroni)
    leader = patroni.leader()
    output, status = beside(fleet, patroni, leader, "Restart PostgreSQL (Patroni)", lambda: killed(patroni, leader), cache_restart_timeout=5)
    assert status != 0, output
    output, status = beside(fleet, patroni, leader, "Leave the start to Patroni", lambda: patroni.start(leader))
    lost = "Give it up with -e pgfleet_waive=%s." % leader in output  # pg_rewind has replaced its snapshot by those of the new primary
    stable(patroni)
    assert status == 0 or lost, output


@thorough
@pytest.mark.parametrize("role, step, variables", [
    ("replica", "Restart PostgreSQL (Patroni)", {}), ("leader", "Switch over (Patroni)", {"cache_restart_primary": "switchover"}),
], ids=["restart", "switchover"])
def test_what_is_refused(fleet, patroni, role, step, variables):
    """Somebody pauses the cluster right before it: the host is back in traffic at once, and the next run restarts it."""
    stable(patroni)
    before, host = texts(patroni), next(one["name"] for one in patroni.cluster()["members"] if one["role"] == role)
    starts = patroni.starts(host)
    if role == "replica":
        variables = {"cache_restart_only": [host]}

    def pause():
        patroni.configure(pause=True)
        wait_until(lambda: patroni.cluster().get("pause"))

    try:
        output, status = beside(fleet, patroni, host, step, pause, **variables)
    finally:
        patroni.configure(pause=None)
        wait_until(lambda: not patroni.cluster().get("pause"))
    assert status != 0 and "is paused: somebody works on it" in row(output, host), output
    assert patroni.starts(host) == starts and texts(patroni) == before and not fleet.kept(host).get("out"), output
    output, status = restart(fleet, patroni, **variables)
    assert status == 0 and patroni.starts(host) == starts + 1, output
