# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rolling restart leaves behind when it goes wrong, and what the next run makes of it: pending restores, leases, damaged records.

What ends the controller is test_cuts.py's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from cluster import heart, quick, run, thorough
from test_rolling_restart import fresh, is_restored, primary_and_standbys, resident, row, says, warm

GENERATIONS = "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = 'restart'"
ROLLING_RESTART = "pgfleet.cache.rolling_restart"


_FAILED = {}  # of the fixture failed: when the servers were started


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    return primary_and_standbys(machine, "rec")


@pytest.fixture
def fleet(ansible, clusters, machine):
    yield from fresh(ansible, clusters, machine)


@pytest.fixture
def failed(fleet, clusters):
    """db2 is restarted and has no room to be warm: its restore is pending, and db3 and db1 are not begun.

    As long as no server is restarted, what that run has left does for the next tests, too.
    """
    state, left = (os.path.join(fleet.directory, name) for name in ("state", "failed"))
    if os.path.exists(left) and _FAILED.get("started") == fleet.started():
        shutil.copytree(left, state)
        clusters["db2"].cool(clusters["db2"].file_of("passenger"))
        assert resident(clusters["db2"]) < 0.1
        fleet.run("--list-hosts")  # leaves the inventory
        return fleet.kept("db2")["pending"]
    for one in clusters.values():
        warm(one)
    output, status = fleet.run(per_host={"db2": {"cache_warmup_budget": "1MB"}})
    assert status != 0 and "less than min_residency" in row(output, "db2"), output
    says(output, "Not as warm as before its restart: db2 (restart@")
    assert resident(clusters["db2"]) < 0.1
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(state, left)
    _FAILED["started"] = fleet.started()
    return fleet.kept("db2")["pending"]


def background(fleet, *arguments, **variables):
    """A run of its own, which goes on; the inventory is there from a run before."""
    environment = dict(os.environ, ANSIBLE_CONFIG=fleet.ansible.settings, ANSIBLE_PIPELINING="True", ANSIBLE_NOCOLOR="True", **variables)
    return subprocess.Popen(
        ["ansible-playbook", "-i", fleet.ansible.inventory, ROLLING_RESTART, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, universal_newlines=True, start_new_session=True,
    )


def wait_for(what, seconds=300):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def lease(fleet, name):
    return os.path.join(fleet.directory, "state", name + ".lease")


RACE = """
import os
import shutil
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_NAME = "race"

    def v2_playbook_on_task_start(self, task, is_conditional):
        if task.get_name().endswith("Take the lease of the host") and os.path.exists(os.environ["RACE_FROM"]):
            shutil.move(os.environ["RACE_FROM"], os.environ["RACE_TO"])
"""


@thorough
def test_what_another_run_has_ended_is_not_begun_again(fleet, tmp_path):
    """It writes its last record after this run has read an older one, and before this run has the leases."""
    before = fleet.started()
    (tmp_path / "race.py").write_text(RACE)
    state = os.path.join(fleet.directory, "state")
    os.makedirs(state, mode=0o700)
    half = {"rolling_restart": "7", "what": "postgresql", "state": "restarting", "intent": "stopping", "out": True, "traffic": [], "at": 5.5}
    ended = dict(half, state="done", intent="", out=False, at=6.5)
    for path, record in ((os.path.join(state, "db2.json"), half), (str(tmp_path / "ended"), ended)):
        with open(path, "w") as file:
            json.dump(record, file)
    output, status = fleet.run(environment={
        "ANSIBLE_CALLBACK_PLUGINS": str(tmp_path), "ANSIBLE_CALLBACKS_ENABLED": "race", "RACE_FROM": str(tmp_path / "ended"),
        "RACE_TO": os.path.join(state, "db2.json"),
    })
    assert status != 0 and fleet.started() == before
    says(output, "db2: another run has changed the state of this host in the meantime. Run the playbook again.")
    assert fleet.kept("db2") == ended, output


@thorough
@pytest.mark.parametrize("way", ["a new one", "the same one", "too old"])
def test_what_is_owed_outlives_the_roll(fleet, clusters, failed, way):
    """The gate is measured against the first snapshot; none is taken of the cold cache."""
    taken = clusters["db2"].sql(GENERATIONS)
    output, status = fleet.run(
        "-e", "cache_restart_only=db2", cache_restart_resume=way != "a new one", cache_restart_max_age=1 if way == "too old" else 86400)
    assert status == 0, output
    assert clusters["db2"].sql(GENERATIONS) == taken
    kept = fleet.kept("db2")
    assert kept["pending"] == {} and kept["state"] == "done"
    assert is_restored(clusters["db2"], failed)


@thorough
def test_the_others_do_not_go_on_without_it(fleet, clusters, failed):
    """It does not serve as what it was: with the other standby out there would be nobody."""
    before = fleet.started()
    output, status = fleet.run("-e", "cache_restart_only=db1,db3")
    assert status != 0 and fleet.started() == before
    says(
        output, "0 of 2 standbys would serve, but cache_restart_min_standbys is 1. db2 has been out of traffic, or not as warm as before, since an"
        " earlier run: name it in cache_restart_only, too."
    )


@thorough
def test_what_is_cold_is_not_saved(fleet, clusters, failed):
    """The nightly snapshot would have what is left of the cache, and after some nights nothing else."""
    output, status = fleet.ansible.command("pgfleet.cache.snapshot", "--limit", "db2,db3")
    assert status != 0
    says(
        output, "This host is not as warm as before a restart: %s has not been restored. Nothing was saved. Finish that first, or waive it"
        " (pgfleet_waive)." % failed["snapshot"]
    )
    count = "SELECT count(*) FROM residency_snapshots() WHERE name = 'warm'"
    assert (clusters["db2"].sql(count), clusters["db3"].sql(count)) == ("0", "1")


@thorough
def test_a_waived_debt_is_in_the_report(fleet, clusters, failed):
    output, status = fleet.run("-e", "cache_restart_only=db2", "-e", "pgfleet_waive=db2")
    assert status == 0, output
    says(output, "root waived the restore that was pending since %s: %s." % (failed["since"], failed["snapshot"]))
    assert fleet.kept("db2")["pending"] == {}
    output, status = fleet.run("--check", "-e", "pgfleet_waive=db9")
    assert status != 0
    says(output, "pgfleet_waive names hosts that are not in target: db9. No host was restarted.")


@thorough
def test_abort_restores_and_restarts_nobody(fleet, clusters, failed):
    before = fleet.started()
    output, status = fleet.run("-e", "cache_restart_abort=true")
    assert status == 0, output
    assert fleet.started() == before
    assert is_restored(clusters["db2"], failed) and fleet.kept("db2")["pending"] == {}
    says(output, "What was begun is put back, and no other host was restarted.")


@thorough
def test_abort_switches_nothing_over(fleet, clusters):
    """The primary is cold; it is restored where it is."""
    for one in clusters.values():
        warm(one)
    output, status = fleet.run(per_host={"db1": {"cache_warmup_budget": "1MB"}})
    assert status != 0 and "less than min_residency" in row(output, "db1"), output
    before, pending = fleet.started(), fleet.kept("db1")["pending"]
    never = fleet.write("never.yml", "- name: Never\n  ansible.builtin.fail:\n    msg: switched over\n")
    output, status = fleet.run("-e", "cache_restart_abort=true", cache_restart_primary="switchover", cache_restart_switchover_tasks=never)
    assert status == 0, output
    assert fleet.started() == before and is_restored(clusters["db1"], pending)


@quick
@thorough
def test_two_operators(fleet, clusters):
    """The second one is told who is at work, and changes nothing; the first one does not notice."""
    for one in clusters.values():
        warm(one)
    output, status = fleet.run("--check", "-e", "cache_restart_only=db2", cache_restart_primary="skip")
    assert status == 0, output
    first = background(fleet)
    try:
        wait_for(lambda: os.path.exists(lease(fleet, "db1")))
        time.sleep(1)
        output, status = fleet.run(cache_restart_primary="skip")
        assert status != 0
        says(output, "Another run is at work on db1: the lease is held by root on %s (rolling_restart, process %d, since " % (socket.gethostname(), first.pid))
    finally:
        said = first.communicate(timeout=300)[0]
    assert first.returncode == 0, said
    assert not os.path.exists(lease(fleet, "db1")), "it is given back"
    assert {name: fleet.kept(name)["state"] for name in ("db2", "db3")} == {"db2": "done", "db3": "done"}


@thorough
def test_the_lease_of_a_process_that_is_gone(fleet, clusters):
    """SIGKILL: the next run takes over and says from whom."""
    fleet.run("--check", "-e", "cache_restart_only=db2", cache_restart_primary="skip")
    first = background(fleet)
    wait_for(lambda: os.path.exists(lease(fleet, "db3")))
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    output, status = fleet.run(cache_restart_primary="skip")
    assert status == 0, output
    says(output, "This run has taken over the lease of root on %s (rolling_restart, process %d" % (socket.gethostname(), first.pid))


@thorough
def test_what_was_begun_is_not_finished_in_another_way(fleet, clusters):
    """Half of a fleet rebooted and the other half only restarted is not finished."""
    for one in clusters.values():
        warm(one)
    output, status = fleet.run("-e", "cache_restart_only=db2", "-e", "cache_restart_what=host")
    assert status == 0 and fleet.kept("db2")["what"] == "host", output
    says(output, "All hosts of cache_restart_only are restarted. Not done: db1, db3. Run the playbook again, without it, to continue.")
    before = fleet.started()
    output, status = fleet.run()
    assert status != 0
    says(output,
         "The unfinished rolling restart has cache_restart_what=host (on db2), but this run has postgresql. Finish it with -e"
         " cache_restart_what=host, or start a new one with -e cache_restart_resume=false. No host was restarted.")
    assert fleet.started() == before
    output, status = fleet.run("--check", per_host={"db2": {"cache_restart_what": "host"}})
    assert status == 0, output
    says(output, "Would first restart the batches db3.")
    output, status = fleet.run("--check", "-e", "cache_restart_what=host")
    assert status == 0, output
    assert row(output, "db2").endswith("Already restarted and warm: would not be restarted again.")
    assert re.search(r"Would save [\d.]+ .?B that are cached now as 'restart'\.", row(output, "db3")), output
    says(output, "Would first restart the batches db3.*Would then restart the primary db1.")
    output, status = fleet.run("--check", "-e", "cache_restart_resume=false", cache_restart_primary="skip")
    assert status == 0, output
    says(output, "Would first restart the batches db2; db3.*Would not restart the primary db1.")


@thorough
def test_a_lease_of_another_controller(fleet, clusters):
    """Nothing is known of its process: it is waited for, or taken over by name."""
    os.makedirs(os.path.join(fleet.directory, "state"))
    foreign = {"id": "run-x", "owner": "alice", "controller": "ctl9", "pid": 1, "what": "cold_test", "since": "2026-11-22T00:00:00Z"}
    with open(lease(fleet, "db2"), "w") as file:
        json.dump(foreign, file)
    before = fleet.started()
    fleet.run("--check", "-e", "cache_restart_only=db2", "-e", "cache_restart_primary=skip")
    refused = "the lease is held by alice on ctl9 (cold_test, process 1, since 2026-11-22T00:00:00Z)."
    for arguments in (["--check"], []):
        output, status = fleet.run(*arguments)
        assert status != 0
        says(output, "Another run is at work on db2: " + refused)
    clusters["db2"].sql("SELECT FROM residency_snapshot('held')")
    warmup = ["pgfleet.cache.warmup", "--limit", "db2", "-e", "cache_warmup_snapshot=held", "-e", "cache_warmup_min_residency=0"]
    output, status = fleet.ansible.command(*warmup)
    assert status != 0
    says(output, "Another run is at work on this host: " + refused)
    output, status = fleet.ansible.command(*warmup, "-e", "pgfleet_take_over=run-x")
    assert status == 0, output
    assert fleet.started() == before
    output, status = fleet.run("-e", "cache_restart_only=db2", "-e", "pgfleet_take_over=run-x")
    assert status == 0, output
    says(output, "This run has taken over the lease of alice on ctl9")


@pytest.mark.parametrize("content, said", heart([
    ("", "db3.json is damaged"), ("[1", "db3.json is damaged"), ('{"state": "warmer"}', "is damaged (state is 'warmer')"),
    ('{"pending": {"snapshot": 5}}', "is damaged (for of its pending restore is 'None')"),
], lambda one: "state" in one[0]))
def test_a_damaged_record(fleet, clusters, content, said):
    """One clear message at the host that has it, and none at the others."""
    os.makedirs(os.path.join(fleet.directory, "state"))
    with open(os.path.join(fleet.directory, "state", "db3.json"), "w") as file:
        file.write(content)
    before = fleet.started()
    output, status = fleet.run()
    assert status != 0 and fleet.started() == before
    assert said in row(output, "db3") and "remove the file" in row(output, "db3")
    assert row(output, "db1").rstrip().endswith("in")
    assert "Traceback" not in output and "has no attribute" not in output


@thorough
@pytest.mark.parametrize(
    "options, said", [("size=64k", "is full, so this run cannot be recorded on the host. Free some space."), ("ro", "Read-only file system")]
)
def test_no_room_for_a_record(fleet, clusters, options, said):
    directory = os.path.join(fleet.directory, "state")
    os.makedirs(directory)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "pgfleet", directory], check=True)
    try:
        before = fleet.started()
        output, status = fleet.run()
        assert status != 0 and fleet.started() == before
        says(output, said)
    finally:
        subprocess.run(["umount", directory], check=True)


def during_the_restore(fleet, clusters, what, **variables):
    """``what`` happens while db2 restores, slowly; output and status of that run."""
    job = "SELECT count(*) FROM residency_jobs WHERE state = 'running'"
    ended, happened = threading.Event(), []

    def act():
        while not ended.wait(0.2):
            try:
                if fleet.kept("db2")["state"] == "restarted" and clusters["db2"].sql(job) == "1":
                    what()
                    happened.append(what)
                    return
            except (OSError, ValueError, KeyError, subprocess.CalledProcessError):
                pass

    for one in clusters.values():
        warm(one)
    thread = threading.Thread(target=act)
    thread.start()
    try:
        output, status = fleet.run(per_host={"db2": {"cache_warmup_rate": "8MB"}}, **variables)
    finally:
        ended.set()
        thread.join()
    assert happened, "db2 was not found restoring:\n" + output
    return output, status


STEER = """
- name: Steer the traffic
  ansible.builtin.copy:
    content: "{{ pgfleet_traffic_step }}"
    dest: "{{ data }}.traffic"
    mode: "0644"
"""


def in_traffic(one):
    """As the task file above has left it."""
    with open(one.data + ".traffic") as file:
        return file.read() == "in"


@thorough
def test_restarted_by_others_while_it_restores(fleet, clusters):
    """It is cold again, so it stays out; the next run restores it from what it had at first."""
    def restart():
        clusters["db2"].stop()
        clusters["db2"].start()

    output, status = during_the_restore(fleet, clusters, restart)
    assert status != 0, output
    kept = fleet.kept("db2")
    assert kept["pending"] and kept["state"] == "restarted"
    before = fleet.started()
    output, status = fleet.run("-e", "cache_restart_only=db2")
    assert status == 0, output
    assert fleet.started() == before, "it is not restarted once more"
    assert is_restored(clusters["db2"], kept["pending"])


@thorough
def test_the_primary_dies_while_a_standby_restores(fleet, clusters):
    """The standby cannot follow: it stays out, nobody else is begun, and the next run finishes it."""
    steered = {"cache_restart_traffic": [fleet.write("steer.yml", STEER)]}
    output, status = during_the_restore(fleet, clusters, lambda: clusters["db1"].stop("immediate"), **steered)
    try:
        assert status != 0, output
        pending = fleet.kept("db2")["pending"]
        assert pending and "db1" in row(output, "db2"), output
        assert not in_traffic(clusters["db2"])
    finally:
        clusters["db1"].start()
    before = fleet.started()
    output, status = fleet.run("-e", "cache_restart_only=db2", **steered)
    assert status == 0, output
    assert fleet.started() == before
    assert in_traffic(clusters["db2"])
    assert is_restored(clusters["db2"], pending)


@thorough
def test_a_standby_that_does_not_follow_does_not_serve(fleet, clusters):
    """db3 answers, and nobody could be sent to it: db2 stays."""
    clusters["db3"].sql("SELECT pg_wal_replay_pause()")
    before = fleet.started()
    try:
        output, status = fleet.run("-e", "cache_restart_only=db2")
    finally:
        clusters["db3"].sql("SELECT pg_wal_replay_resume()")
    assert status != 0 and fleet.started() == before
    says(
        output, "db2 was neither taken out of traffic nor restarted: 0 of 2 standbys would serve meanwhile, but cache_restart_min_standbys is 1."
        " db3 has replay paused: run SELECT pg_wal_replay_resume()."
    )


@thorough
def test_no_connection_is_left(fleet, clusters):
    """A standby that takes nobody is no standby that serves: nobody is begun."""
    one = clusters["db3"]
    before = fleet.started()
    clients = one.sql("SHOW max_connections")
    psql = (one.bin + "/psql", "-h", one.socket, "-p", str(one.port), "-d", "postgres")
    asked = (*psql, "-Atc", "SELECT 1")
    # Each a process of its own, which waits for a statement: pgbench gives all its connections up when it gets one too few.
    waiting = [
        subprocess.Popen(psql, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user="postgres", cwd="/")
        for dummy in range(int(clients) + 10)  # more than one is refused while that below has a connection
    ]
    try:
        wait_for(lambda: "too many" in run(*asked, user="postgres", check=False))
        output, status = fleet.run("-e", "cache_restart_only=db2")
    finally:
        for client in waiting:
            client.kill()
            client.wait()
    assert status != 0
    says(output, "db3 does not answer: Cannot connect to PostgreSQL: *too many clients already*")
    wait_for(lambda: "too many" not in run(*asked, user="postgres", check=False))
    assert fleet.started() == before


@thorough
def test_a_host_that_is_lost_in_a_task_of_the_user(fleet, clusters):
    """Ansible takes it out of the play, past every rescue, and as it is alone in its batch, ends the playbook. The next run goes on with it."""
    steer = fleet.write("lost.yml", """
- name: Steer {{ pgfleet_traffic_step }}
  ansible.builtin.command: 'true'
  changed_when: true
  vars:
    ansible_connection: "{{ 'ssh' if lost | default(false) else 'local' }}"
    ansible_host: 127.0.0.1
    ansible_port: 1
""")
    steered = {"cache_restart_traffic": [steer], "cache_restart_min_standbys": 0, "cache_restart_primary": "skip"}
    before = fleet.started()
    output, status = fleet.run(per_host={"db2": {"lost": True}}, **steered)
    assert status != 0 and fleet.started() == before, output
    assert "fatal: [db2]: UNREACHABLE!" in output and "Restart the primary" not in output, output
    output, status = fleet.run(**steered)
    assert status == 0, output
    assert all(fleet.kept(name)["state"] == "done" for name in ("db2", "db3"))


@thorough
def test_a_restore_that_waits_for_another_one_says_so(fleet, clusters):
    """db3's slow one has the machine's turn until db2's has waited for a second."""
    for one in clusters.values():
        warm(one)
    other = clusters["db3"]
    other.sql("SELECT residency_snapshot('slow')")
    other.cool(other.file_of("passenger"))
    job = other.sql("""SELECT residency_restore_start('slow', '{"rate": 65536}')""")
    db2 = clusters["db2"]
    asked = (db2.bin + "/psql", "-h", db2.socket, "-p", str(db2.port), "-XAtc", "SELECT state FROM residency_jobs")

    def end():
        wait_for(lambda: "waiting" in run(*asked, user="postgres", check=False))  # it is down in between
        time.sleep(1)
        other.sql("SELECT residency_cancel(%s)" % job)

    ending = threading.Thread(target=end)
    ending.start()
    try:
        output, status = fleet.run("-e", "cache_restart_only=db2")
    finally:
        ending.join()
    assert status == 0 and re.search(r'Job \d+ waited for the restore of "%s" \(PID \d+\), for ' % other.data, row(output, "db2")), output
