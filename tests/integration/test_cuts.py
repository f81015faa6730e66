# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart whose controller is killed, terminated or interrupted, and run again: cuts.py says what must hold then.

CUTS        how many cuts are tried (2), spread over the run, and as many of the hard ones; or "all": after every task, and every hard one
CUTS_SEED   (1) which ones, and by which signal
CUTS_WHEN   "end" (the default) of the task, or "during": 0.3 s after its start
CUTS_TABLE  a file for the table of all cuts
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess

import pytest
from cluster import cuts, quick, thorough
from conftest import TABLES
from cuts import EVICT, IN, NAMES, OUT, SIGNALS, START, STOP, Cut
from playbook import Ansible
from proxies import wait_until

# At least as many as the playbook starts on two hosts, which is known only when it has run. Cuts beyond the last one are left out.
TASKS = 195


def chosen():
    """(number of the task, signal), the same for the same seed."""
    dice = random.Random(int(os.environ.get("CUTS_SEED", "1")))
    count = os.environ.get("CUTS", "1")
    # else one of each part of the run
    parts = TASKS if count == "all" else int(count)
    numbers = range(1, TASKS + 1) if count == "all" else [1 + int(TASKS * (part + dice.random()) / parts) for part in range(parts)]
    return [(number, dice.choice(SIGNALS)) for number in numbers]


def signalled(places):
    """(place, signal): every place with each signal for CUTS=all; else some places, each with one signal, by the seed."""
    dice = random.Random("hard " + os.environ.get("CUTS_SEED", "1"))
    count = os.environ.get("CUTS", "1")
    if count == "all":
        return [(place, sent) for place in places for sent in SIGNALS]
    return [(place, dice.choice(SIGNALS)) for place in dice.sample(list(places), min(len(places), max(1, int(count))))]


# What is cut, at which task of the user's own files. A host is down there, or out, or paused, and perhaps nobody has noted it.
HARD = {
    "paused-primary": {"CUT_TASK": STOP, "CUT_HOST": "db1", "CUT_WHEN": "begin"},
    "all-paused": {"CUT_TASK": STOP, "CUT_HOST": "db1", "CUT_WHEN": "begin", "database": ""},
    "stopping-primary": {"CUT_TASK": STOP, "CUT_HOST": "db1", "CUT_WHEN": "during"},
    "stopped-primary": {"CUT_TASK": EVICT, "CUT_HOST": "db1", "CUT_WHEN": "end"},
    "started-primary": {"CUT_TASK": START, "CUT_HOST": "db1", "CUT_WHEN": "end"},
    "stopped-standby": {"CUT_TASK": EVICT, "CUT_HOST": "db2", "CUT_WHEN": "end"},
    "started-standby": {"CUT_TASK": START, "CUT_HOST": "db2", "CUT_WHEN": "end"},
    "going-out": {"CUT_TASK": OUT, "CUT_HOST": "db2", "CUT_WHEN": "end"},
    "coming-in": {"CUT_TASK": IN, "CUT_HOST": "db2", "CUT_WHEN": "begin"},
}


@pytest.fixture(scope="module")
def fleet(machine, cluster):
    """cluster has installed the extension's files."""
    directory = os.path.join(machine.directory, "cuts")
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    primary = machine("cut1")
    primary.sql(TABLES)
    primary.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    fleet = Cut(Ansible(directory, {}), dict(zip(NAMES, (primary, machine("cut2", primary)))), directory)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def tasks(fleet, table):
    """Of a run that is not cut."""
    fleet.reset()
    names = fleet.uncut()
    fleet.uncut_broken = fleet.broken()
    table("uncut", "%d tasks" % len(names), "-", "%.0f" % fleet.seconds, fleet.end(), "; ".join(fleet.uncut_broken) or "-")
    assert len(names) <= TASKS, "The playbook starts %d tasks now: say so in TASKS." % len(names)
    return names


@pytest.fixture(scope="module")
def table():
    """Takes a row; each is in the file at once, for whoever has no time for all."""
    path = os.environ.get("CUTS_TABLE")

    def add(*cells, mode="a"):
        if path:
            with open(path, mode) as file:
                file.write("| %s |\n" % " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells))

    add("cut", "task", "signal", "seconds", "end of the next run", "broken", mode="w")
    add(*["---"] * 6)
    return add


def tried(fleet, table, name, sent, database="postgres", **options):
    fleet.reset(database)
    fleet.cut(name, CUT_SIGNAL=sent, **options)
    cut_at = fleet.cut_at
    if fleet.is_recorded():  # nothing is left: the next run would be another rolling restart
        table(name, cut_at, sent, "%.0f" % fleet.took, "finished before", "-")
        assert [fleet.restarts(one) for one in NAMES] == [(1, 1)] * len(NAMES) and all(map(fleet.in_traffic, NAMES)) and fleet.pooler.paused() == []
        return
    fleet.resume()
    ended, broken = fleet.end(), fleet.broken()
    table(name, cut_at, sent, "%.0f" % fleet.took, ended, "; ".join(broken) or "-")
    assert not broken, "cut after %s by %s: %s\n%s" % (cut_at, sent, "; ".join(broken), fleet.output)


@quick
@thorough
def test_uncut(fleet, tasks):
    assert fleet.status == 0 and fleet.end() == "finished", fleet.output
    assert fleet.uncut_broken == []
    # those where the hard cuts are
    for name in (STOP, EVICT, START, OUT, IN):
        assert [one for one in tasks if one.endswith(name)], tasks


@thorough
@cuts
@pytest.mark.parametrize("number, sent", chosen(), ids=["cut-%d-%s" % one for one in chosen()])
def test_cut(fleet, tasks, table, number, sent):
    if number > len(tasks):
        pytest.skip("There are %d tasks" % len(tasks))
    tried(fleet, table, "cut-%d" % number, sent, CUT_AT=str(number), CUT_WHEN=os.environ.get("CUTS_WHEN", "end"))


@thorough
@cuts
@pytest.mark.parametrize("place, sent", signalled(HARD))
def test_hard_cut(fleet, table, place, sent):
    tried(fleet, table, place, sent, **HARD[place])


@pytest.mark.parametrize("place, sent, seconds", [
    ("paused-primary", "KILL", 10),
    pytest.param("started-primary", "KILL", 300, marks=thorough), pytest.param("all-paused", "INT", 10, marks=thorough),
])
def test_clients_go_on_without_a_controller(fleet, place, sent, seconds):
    """After the time of the restart, if it never began; as soon as the primary serves again. Nobody runs the playbook again."""
    cut = dict(HARD[place])
    fleet.reset(cut.pop("database", "postgres"))
    fleet.cut("alone", CUT_SIGNAL=sent, variables={"cache_restart_timeout": seconds}, **cut)
    assert place == "started-primary" or not fleet.answers()
    assert "db1: its clients wait at pgbouncer on db1:" in fleet.output and "for %d s at most, also if this run dies" % seconds in fleet.output, fleet.output
    wait_until(fleet.answers, seconds=60)  # less than the 300 after which they go on in any case
    assert fleet.pooler.paused() == []
    fleet.resume()
    assert fleet.end() == "finished" and fleet.broken() == [], fleet.output


@thorough
def test_who_was_paused_for_a_host_that_is_not_restarted(fleet):
    """The primary is not restarted; its clients go on, or the run says who waits and begins nothing. Who held the pause is dead, too."""
    fleet.reset()
    fleet.cut("beyond", CUT_SIGNAL="KILL", **HARD["paused-primary"])
    fleet.kill_who_holds_the_pause()
    assert fleet.pooler.paused() == ["postgres"]
    elsewhere = [{"host": "db1", "port": 1, "socket": fleet.pooler.directory, "database": "postgres"}]
    fleet.resume("-e", "cache_restart_only=db2", cache_restart_pgbouncer=elsewhere)
    assert fleet.status != 0 and "which is no longer in the inventory. Add it again" in " ".join(fleet.output.split()), fleet.output
    assert fleet.pooler.paused() == ["postgres"]
    fleet.resume("-e", "cache_restart_only=db2")
    assert fleet.pooler.paused() == [], fleet.output
    fleet.resume()
    assert fleet.end() == "finished" and fleet.broken() == [], fleet.output


def test_the_environment_chooses_no_other_server(fleet):
    """Variables of libpq that are for the people of a host: neither modules nor psql at a pooler obey them."""
    fleet.reset()
    fleet._run({}, arguments=("--check",), PGTARGETSESSIONATTRS="read-write", PGHOSTADDR="127.0.0.9", PGSERVICE="elsewhere", PGOPTIONS="-c nonsense=1")
    assert fleet.status == 0 and "Would then restart the primary db1" in fleet.output, fleet.output


@thorough
def test_check_foretells_that_a_stopped_primary_is_started(fleet):
    fleet.reset()
    fleet.cut("foretold", CUT_SIGNAL="KILL", **HARD["stopped-primary"])
    fleet.resume("--check")
    assert fleet.status == 0 and "PostgreSQL is stopped since an interrupted run and would be started first." in " ".join(fleet.output.split()), fleet.output
    fleet.resume()
    assert fleet.end() == "finished" and fleet.broken() == [], fleet.output
    assert "PostgreSQL was stopped since an interrupted run and was started first." in " ".join(fleet.output.split()), fleet.output


@thorough
def test_the_clients_of_a_primary_that_does_not_come_back(fleet):
    fleet.reset()
    fleet.resume(per_host={"db1": {"comes_back": False}}, cache_restart_timeout=3)
    assert fleet.status != 0 and "PostgreSQL on db1 does not accept connections 3 s after its restart" in " ".join(fleet.output.split()), fleet.output
    assert fleet.pooler.paused() == [], fleet.output
    fleet.resume()
    assert fleet.end() == "finished" and fleet.pooler.paused() == [], fleet.output


# As ssh runs a command, until the module restart_info is to run while db1 is up: then, and from then on, the host is not there.
LOSING = """#!/bin/sh
for last; do :; done
case "$last" in
    *"dd of="*) ;;
    *AnsiballZ_restart_info.py*) [ ! -e "{data}/postmaster.pid" ] || touch "{lost}" ;;
esac
[ ! -e "{lost}" ] || exit 255
exec sh -c "$last"
"""


@thorough
def test_a_primary_that_is_lost_while_it_is_started(fleet, tmp_path):
    """In the middle of a module, when Ansible has a directory there to clean up. Its clients go on, and every host is in the report."""
    elsewhere = [{"host": "db2", "port": fleet.pooler.port, "socket": fleet.pooler.directory, "database": "postgres"}]
    fleet.reset()
    fleet.cut("lost", CUT_SIGNAL="KILL", variables={"cache_restart_pgbouncer": elsewhere}, **HARD["stopped-primary"])
    assert fleet.pooler.paused() == ["postgres"]
    losing, lost = tmp_path / "ssh", tmp_path / "lost"
    losing.write_text(LOSING.format(data=fleet.clusters["db1"].data, lost=lost))
    losing.chmod(0o755)
    ssh = {"ansible_connection": "ssh", "ansible_ssh_executable": str(losing), "ansible_ssh_transfer_method": "piped", "ansible_pipelining": False}
    fleet.resume(per_host={"db1": ssh}, cache_restart_pgbouncer=elsewhere)
    assert lost.exists() and fleet.status != 0, fleet.output
    assert fleet.pooler.paused() == [], fleet.output
    assert re.search(r"db1 +\S+ +failed .*unreachable: ", fleet.output), fleet.output
    fleet.resume(cache_restart_pgbouncer=elsewhere)
    assert fleet.end() == "finished" and fleet.broken() == [], fleet.output


@thorough
def test_a_pooler_that_is_lost_while_the_primary_restarts(fleet, tmp_path):
    """Nobody can tell it to resume its clients, and they go on."""
    lost, losing = os.path.join(fleet.directory, "lost"), tmp_path / "ssh"
    losing.write_text('#!/bin/sh\nfor last; do :; done\n[ ! -e "%s" ] || exit 255\nexec sh -c "$last"\n' % lost)
    losing.chmod(0o755)
    ssh = {"ansible_connection": "ssh", "ansible_ssh_executable": str(losing), "ansible_ssh_transfer_method": "piped"}
    with open(fleet.restart_tasks) as file:
        off = fleet._write("off.yml", file.read() + "\n- name: Switch the network to db2 off\n  ansible.builtin.file: {path: %s, state: touch}\n" % lost)
    elsewhere = [{"host": "db2", "port": fleet.pooler.port, "socket": fleet.pooler.directory, "database": "postgres"}]
    fleet.reset()
    fleet.resume(per_host={"db1": {"pgfleet_service_manager": off}, "db2": ssh}, cache_restart_pgbouncer=elsewhere)
    assert os.path.exists(lost) and fleet.status != 0, fleet.output
    said = "pgbouncer on db2 was paused for the restart of db1 and could not be resumed from here"
    assert said in " ".join(fleet.output.split()), fleet.output
    wait_until(fleet.answers, seconds=60)
    os.unlink(lost)
    fleet.resume(cache_restart_pgbouncer=elsewhere)
    assert fleet.end() == "finished" and fleet.broken() == [], fleet.output


@thorough
def test_a_host_without_a_lease_keeps_nobody_else_down(fleet):
    """The primary is started and its clients go on, although nothing can be recorded on the standby."""
    state = os.path.join(fleet.directory, "readonly")
    os.mkdir(state)
    fleet.reset()
    fleet.cut("unleased", CUT_SIGNAL="KILL", **HARD["stopped-primary"])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "pgfleet", state], check=True)
    try:
        fleet.resume(per_host={"db2": {"pgfleet_state_directory": state}})
        assert fleet.status != 0 and "Read-only file system" in fleet.output, fleet.output
        assert fleet.pooler.paused() == [], fleet.output
        assert fleet._up(fleet.clusters["db1"]), fleet.output
    finally:
        subprocess.run(["umount", state], check=True)
    fleet.resume()
    assert fleet.end() == "finished", fleet.output


@thorough
@cuts
@pytest.mark.parametrize("host, sent", signalled(NAMES))
def test_cut_while_it_restores(fleet, table, host, sent):
    """Slowly enough to be met at it: some seconds."""
    tried(fleet, table, "restoring-%s" % host, sent, watch=fleet.restoring(host), variables={"cache_warmup_rate": "6MB"})
