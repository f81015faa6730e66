# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A primary and two standbys of this machine, restarted by a user's own task file; and what is refused, word for word.

pgbouncer is in test_cuts.py; systemd and reboots are molecule/fleet's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time

import pytest
from cluster import LONG, LOOSE, heart, quick, thorough
from conftest import TABLES
from playbook import banners
from test_playbooks import OLDEST, as_text

NAMES = ("db1", "db2", "db3")
RESTART = """
- name: Stop it, and empty its page cache as a reboot would
  ansible.builtin.command: {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}
  become: true
  become_user: postgres
  changed_when: true

- name: Empty its page cache
  pgfleet.cache.cache_evict:
    scope: cluster
    data_directory: "{{{{ data }}}}"
  become: true
  become_user: postgres
  when: cold | default(true)

- name: Start it
  ansible.builtin.command: {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
  changed_when: true
"""


class Fleet:
    def __init__(self, ansible, clusters, directory):
        self.ansible = ansible
        self.clusters = clusters
        self.directory = directory
        self.tasks = os.path.join(directory, "restart.yml")
        self.write("restart.yml", RESTART.format(bin=clusters["db1"].bin))

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def run(self, *arguments, hosts=NAMES, per_host=None, environment=None, playbook="pgfleet.cache.rolling_restart", timeout=LONG, **variables):
        """Output and status of the playbook; the inventory has these hosts."""
        self.ansible.set_hosts(
            {
                name: dict(
                    {"pgfleet_login_port": self.clusters[name].port, "pgfleet_login_unix_socket": self.clusters[name].socket,
                     "data": self.clusters[name].data},
                    **(per_host or {}).get(name, {})
                )
                for name in hosts
            },
            **dict(
                {"pgfleet_service_manager": self.tasks, "pgfleet_state_directory": os.path.join(self.directory, "state"),
                 "cache_restart_min_free": "1MB", "cache_restart_replay_timeout": 20,
                 "cache_restart_min_residency": LOOSE},
                **variables
            )
        )
        return self.ansible.command(playbook, *arguments, timeout=timeout, **(environment or {}))

    def kept(self, name):
        with open(os.path.join(self.directory, "state", name + ".json")) as file:
            return json.load(file)

    def left(self):
        """Names of what the hosts keep."""
        directory = os.path.join(self.directory, "state")
        return [name for name in os.listdir(directory) if name != ".lock"] if os.path.isdir(directory) else []

    def started(self):
        return {name: one.sql("SELECT pg_postmaster_start_time()") for name, one in self.clusters.items()}

    def forget(self):
        shutil.rmtree(os.path.join(self.directory, "state"), ignore_errors=True)


def primary_and_standbys(machine, prefix):
    """db1 and its standbys db2 and db3; their directories begin with the prefix. The fixture cluster has installed the extension's files."""
    primary = machine(prefix + "1")
    primary.sql(TABLES)
    primary.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    return {"db1": primary, "db2": machine(prefix + "2", primary), "db3": machine(prefix + "3", primary)}


def fresh(ansible, clusters, machine):
    """For a fixture: the fleet, of which no record is kept before and after a test."""
    fleet = Fleet(ansible, clusters, machine.directory)
    fleet.forget()
    yield fleet
    fleet.forget()


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    return primary_and_standbys(machine, "db")


@pytest.fixture
def fleet(ansible, clusters, machine):
    yield from fresh(ansible, clusters, machine)


def row(output, name):
    """A host's line in the table at the end."""
    return re.search("^%s  .*$" % name, output, re.MULTILINE).group()


def warm(one):
    one.warm(one.file_of("passenger"))


def resident(one):
    path = one.file_of("passenger")
    return one.resident(path) / os.path.getsize(path)


def is_restored(one, kept):
    return one.is_restored(kept["snapshot"])


@thorough
def test_a_state_directory_that_is_a_file(fleet, clusters):
    before = fleet.started()
    fleet.write("file", "")
    output, status = fleet.run(pgfleet_state_directory=os.path.join(fleet.directory, "file"))
    assert status != 0 and fleet.started() == before
    assert "is not a directory: correct pgfleet_state_directory." in " ".join(output.split()), output
    # Ansible itself shows what its module has said
    assert "{source}" not in output.split("TASK [Write the report]")[1], output


@quick
@thorough
def test_all_are_restarted_and_warm(fleet, clusters):
    for one in clusters.values():
        warm(one)
    before = fleet.started()
    output, status = fleet.run()
    assert status == 0, output
    after = fleet.started()
    assert all(before[name] < after[name] for name in NAMES)
    # standbys first, one after the other, the primary last
    assert after["db2"] < after["db3"] < after["db1"], output
    for name, one in clusters.items():
        kept = fleet.kept(name)
        assert kept["state"] == "done" and kept["finished"]
        assert ("replay" in kept["seconds"]) == (name != "db1"), kept
        assert is_restored(one, kept), name
    assert "All hosts are restarted: the rolling restart is finished." in output
    assert "WARNING" not in output, output


def test_a_failed_gate_and_its_resume(fleet, clusters):
    """db2 has no room: it stays where it is, db1 is not begun. The next run restores db2 and restarts neither standby again."""
    for one in clusters.values():
        warm(one)
    before = fleet.started()
    output, status = fleet.run(
        "-e", "cache_restart_serial=2", "-e", "cache_restart_min_standbys=0", per_host={"db2": {"cache_warmup_budget": "1MB"}}
    )
    assert status != 0
    assert "less than min_residency of %d %%" % LOOSE in row(output, "db2")
    assert "1 of 3 hosts failed: db2. The table shows why." in output
    assert "Not done: db1, db2. Run the playbook again, with the same variables, to continue." in output
    between = fleet.started()
    assert between["db1"] == before["db1"]
    assert between["db2"] != before["db2"] and between["db3"] != before["db3"]
    assert resident(clusters["db2"]) < 0.1 and is_restored(clusters["db3"], fleet.kept("db3"))

    output, status = fleet.run()
    assert status == 0, output
    assert "All hosts are restarted: the rolling restart is finished." in output
    assert is_restored(clusters["db2"], fleet.kept("db2"))
    after = fleet.started()
    assert after["db2"] == between["db2"] and after["db3"] == between["db3"] and after["db1"] != between["db1"]
    assert all(fleet.kept(name)["finished"] for name in NAMES)


@thorough
def test_warn_lets_a_cold_host_through(fleet, clusters):
    for one in clusters.values():
        warm(one)
    output, status = fleet.run(per_host={"db3": {"cache_warmup_budget": "1MB"}}, cache_restart_gate="warn", cache_restart_primary="skip")
    assert status == 0, output
    assert "less than min_residency of %d %%" % LOOSE in row(output, "db3")
    assert fleet.kept("db3")["state"] == "done" and fleet.kept("db3")["residency"] < LOOSE


@thorough
def test_wait_tries_again_and_gives_up(fleet, clusters):
    """Each attempt brings in what the budget has room for: a host that gets nowhere is one that failed, after its attempts."""
    for one in clusters.values():
        warm(one)
    before = fleet.started()
    newest = "SELECT coalesce(max(job), 0) FROM residency_jobs"
    first = int(clusters["db2"].sql(newest))
    output, status = fleet.run(
        per_host={"db2": {"cache_warmup_budget": "16kB"}}, cache_restart_gate="wait", cache_restart_attempts=3
    )
    assert status != 0
    assert int(clusters["db2"].sql(newest)) == first + 3
    assert "less than min_residency of %d %%" % LOOSE in row(output, "db2")
    after = fleet.started()
    assert after["db2"] != before["db2"] and after["db3"] == before["db3"] and after["db1"] == before["db1"]


SWITCHOVER = """
- name: Stop the old primary
  ansible.builtin.command: {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}
  become: true
  become_user: postgres
  changed_when: true

- name: Promote the candidate
  ansible.builtin.command: {bin}/pg_ctl promote --wait --pgdata={{{{ hostvars[cache_restart_candidate].data }}}}
  become: true
  become_user: postgres
  delegate_to: "{{{{ cache_restart_candidate }}}}"
  changed_when: true

- name: Start the old primary as its standby
  ansible.builtin.shell:
    cmd: |
      touch {{{{ data }}}}/standby.signal
      echo "primary_conninfo = 'host={{{{ pgfleet_login_unix_socket }}}} port={{{{ hostvars[cache_restart_candidate].pgfleet_login_port }}}}'" \\
          >>{{{{ data }}}}/postgresql.auto.conf
      {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
  changed_when: true
"""


@thorough
def test_switchover(fleet, machine, cluster):
    """Onto a standby that this run has warmed; then the old primary is restarted as one."""
    first = machine("sw1")
    first.sql(TABLES)
    first.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    fleet.clusters = {"db1": first, "db2": machine("sw2", first)}
    for one in fleet.clusters.values():
        warm(one)
    try:
        output, status = fleet.run(
            hosts=("db1", "db2"), cache_restart_primary="switchover",
            cache_restart_switchover_tasks=fleet.write("switchover.yml", SWITCHOVER.format(bin=first.bin)),
        )
        assert status == 0, output
        assert first.sql("SELECT pg_is_in_recovery()") == "t"
        assert fleet.clusters["db2"].sql("SELECT pg_is_in_recovery()") == "f"
        assert fleet.kept("db1")["state"] == "done" and is_restored(first, fleet.kept("db1"))
        # an acknowledged write arrives
        fleet.clusters["db2"].sql("CREATE TABLE after_switchover ()")
        for _attempt in range(50):
            if first.sql("SELECT to_regclass('after_switchover')"):
                break
            time.sleep(0.1)
        assert first.sql("SELECT to_regclass('after_switchover')") == "after_switchover"
    finally:
        for one in fleet.clusters.values():
            one.stop("immediate")


@thorough
@pytest.mark.parametrize("first, said, intent", [
    ("""
  ansible.builtin.ping:
  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
""", "fatal: [db1]: UNREACHABLE!", "stopping"),
    ("""
  ansible.builtin.fail: {msg: It does not want to.}
""", "It does not want to.", ""),
], ids=["unreachable", "refused"])
def test_a_switchover_ends_at_its_first_failure(fleet, clusters, first, said, intent):
    """What comes after it would promote a standby beside a primary that was not stopped. One that has failed before that leaves nothing open."""
    for one in clusters.values():
        warm(one)
    before, mark = fleet.started(), os.path.join(fleet.directory, "promoted")
    tasks = fleet.write("lost_switchover.yml", """
- name: Stop the old primary%s
- name: Promote the candidate
  ansible.builtin.file: {path: "%s", state: touch, mode: "0644"}
""" % (first, mark))
    output, status = fleet.run(cache_restart_primary="switchover", cache_restart_switchover_tasks=tasks)
    assert status != 0 and said in output, output
    assert not os.path.exists(mark) and fleet.started()["db1"] == before["db1"]
    assert fleet.kept("db1")["intent"] == intent


@thorough
def test_the_role_in_a_play_of_the_user(fleet, clusters):
    """For one host: without its fleet only by the user's word, and what a failure leaves is finished by the next run."""
    role = fleet.ansible.write([], roles=["pgfleet.cache.cache_restart"])
    before = fleet.started()
    output, status = fleet.run(playbook=role)
    assert status != 0
    says(output, "This play has 3 hosts, and the role cache_restart would restart all of them at once. Import the playbook pgfleet.cache.rolling_restart")
    output, status = fleet.run(playbook=role, hosts=("db1",))
    assert status != 0 and fleet.left() == []
    says(output, "db1 has no standby, so no host would serve while it restarts.")
    output, status = fleet.run(playbook=role, hosts=("db2",), cache_restart_min_standbys=0)
    assert status != 0 and fleet.left() == []
    says(output, "No primary found among db2: * The playbook pgfleet.cache.rolling_restart asks the other hosts of the cluster, too.")
    output, status = fleet.run("--check", playbook=role, hosts=("db1",), cache_restart_min_standbys=0)
    assert status == 0 and fleet.left() == [], output
    says(output, "db1: snapshot, restart, restore")
    assert fleet.started() == before
    warm(clusters["db1"])
    output, status = fleet.run("-e", "cache_warmup_budget=1MB", playbook=role, hosts=("db1",), cache_restart_min_standbys=0)
    assert status != 0 and fleet.left() == ["db1.json"], output
    after = fleet.started()
    assert after["db1"] > before["db1"]
    output, status = fleet.run(playbook=role, hosts=("db1",), cache_restart_min_standbys=0)
    assert status == 0 and fleet.left() == ["db1.json"], output
    assert fleet.started() == after and is_restored(clusters["db1"], fleet.kept("db1")) and fleet.kept("db1")["finished"]


def says(output, message):
    """Word for word; * stands for what differs between machines. Ansible's own prefix is not ours."""
    text = " ".join(output.replace('\\"', '"').split())
    pattern = ".*".join(re.escape(part) for part in message.split("*"))
    assert re.search(pattern, text), output[-3000:]


def test_check_mode_changes_nothing(fleet):
    before = fleet.started()
    output, status = fleet.run("--check")
    assert status == 0, output
    lines = output.splitlines()
    begins = lines.index("Would first restart the batches db2; db3.")
    assert lines[begins + 1:begins + 5] == ["Would then restart the primary db1.", *(
        "  %s: snapshot, restart, %srestore" % (name, "" if name == "db1" else "replay, ") for name in ("db2", "db3", "db1"))], output
    assert fleet.started() == before
    assert not os.path.exists(os.path.join(fleet.directory, "state"))


# arguments of Fleet.run, and what is said
REFUSED = [
    ({"hosts": ("db1",)},
     "db1 has no standby, so no host would serve while it restarts. Add the standbys to target, or set cache_restart_min_standbys to 0. No host was"
     " restarted."),
    ({"hosts": ("db2", "db3")},
     "No primary found among db2, db3: name the whole fleet with target, and the hosts to restart with cache_restart_only. No host was restarted."),
    ({"cache_restart_serial": 2},
     "A batch of db2, db3 would take all standbys out of traffic: 0 of 2 would stay, but cache_restart_min_standbys is 1. Reduce"
     " cache_restart_serial. No host was restarted."),
    ({"cache_restart_serial": "half"},
     "cache_restart_serial is half: it must be a number, a percentage such as 30%, or a list of these. Nothing was changed."),
    ({"cache_restart_primary": "switchover", "cache_restart_candidate": "db9", "cache_restart_switchover_tasks": "/dev/null"},
     "cache_restart_candidate is db9, which is not a standby; there are db2, db3. No host was restarted."),
    ({"cache_restart_primary": "switchover"},
     "cache_restart_primary is switchover: set cache_restart_switchover_tasks to the task file that makes cache_restart_candidate the primary."),
    ({"pgfleet_service_manager": "/nowhere/restart.yml"},
     "Task file /nowhere/restart.yml does not exist on the controller: correct pgfleet_service_manager, or use patroni or pg_ctlcluster or"
     " systemd."),
    ({"cache_restart_traffic": ["/nowhere/traffic.yml"]},
     "Task file /nowhere/traffic.yml does not exist on the controller: correct cache_restart_traffic, or use haproxy or patroni or"
     " pgbouncer."),
    ({"pgfleet_service_manager": "systemd"},
     "systemd's unit * does not run this server, which is process *: set pgfleet_service_name to the right unit, or pgfleet_service_manager to"
     " what starts it."),
    ({"pgfleet_service_manager": "pg_ctlcluster"},
     "pg_ctlcluster needs a cluster_name such as 15/main, but that of this server is '': it was not created by"
     " pg_createcluster. Set pgfleet_service_manager to what starts it."),
    ({"cache_restart_min_free": "1PB"},
     "The file system of * or its pg_wal has * free, less than cache_restart_min_free (1PB). Free some space for the snapshot and for the WAL that is"
     " kept while a standby restarts."),
    ({"cache_restart_snapshot": "../warm"},
     "invalid snapshot name '../warm': use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit."),
    ({"pgfleet_login_db": "template1"},
     "Extension pg_residency is not installed in database template1. Run the playbook pgfleet.cache.install, or set pgfleet_login_db to the"
     " database that has it."),
    ({"cache_restart_traffic": ["haproxy"], "cache_restart_haproxy": [{"host": "db2", "backend": "read", "socket": "/nowhere.sock"}]},
     "HAProxy on db2 does not answer at /nowhere.sock: FileNotFoundError: [Errno 2] No such file or directory. It needs 'stats socket"
     " /nowhere.sock level admin' in its global section; set its address in cache_restart_haproxy."),
    ({"cache_restart_traffic": ["pgbouncer"], "cache_restart_pgbouncer": [{"host": "db2", "database": "air", "port": 1}]},
     "pgbouncer on db2 does not answer at port 1: psql: error: connection to server on socket * failed: No such file or directory Is the"
     " server running locally and accepting connections on that socket?. Its console needs psql on that host and a user in admin_users; set its"
     " address in cache_restart_pgbouncer."),
]


@pytest.mark.parametrize("arguments, message", heart(REFUSED, REFUSED[:3].__contains__), ids=[message[:40] for dummy, message in REFUSED])
def test_refused(fleet, arguments, message):
    before = fleet.started()
    output, status = fleet.run(**arguments)
    assert status != 0
    says(output, message)
    assert fleet.started() == before
    assert fleet.left() == [], "the leases are given back"


@pytest.mark.parametrize("user, refused", heart([("nobody", False), ("postgres", True)], lambda one: one[1]))
def test_a_process_that_is_called_patroni(fleet, user, refused):
    """Any user may call a process so; only the cluster's own and root's can be its manager."""
    process = subprocess.Popen(["patroni", "600"], executable="/bin/sleep", user=user)
    try:
        output, status = fleet.run("--check", environment={"COLUMNS": "80"})  # ps would cut its lines
    finally:
        process.kill()
        process.wait()
    assert (status != 0) == refused, output
    if refused:
        says(output, "Patroni keeps PostgreSQL on db1 running, and may treat a restart as a failure: set pgfleet_service_manager to patroni.")


@thorough
def test_two_primaries_are_refused(fleet, machine):
    promoted = machine("db4", fleet.clusters["db1"])
    promoted.sql("SELECT pg_promote()")
    fleet.clusters = dict(fleet.clusters, db4=promoted)
    output, status = fleet.run(hosts=("db1", "db2", "db4"))
    promoted.stop("immediate")
    assert status != 0
    says(output,
         "db1 and db4 are primaries of the same cluster: a standby was promoted. Find out which one the clients use, and make the other its"
         " standby again (pg_rewind). No host was restarted.")


@thorough
def test_a_standby_that_does_not_replay(fleet, clusters):
    before = fleet.started()
    clusters["db2"].sql("SELECT pg_wal_replay_pause()")
    try:
        clusters["db1"].sql("CREATE TABLE later AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        output, status = fleet.run(cache_restart_replay_timeout=2)
    finally:
        clusters["db2"].sql("SELECT pg_wal_replay_resume()")
    assert status != 0
    says(output, "db2 has not caught up with db1: it is * behind. Replay is paused: run SELECT pg_wal_replay_resume().")
    clusters["db2"].sql("ALTER SYSTEM SET primary_conninfo = ''")
    clusters["db2"].sql("SELECT pg_reload_conf()")
    try:
        clusters["db1"].sql("DROP TABLE later")
        output, status = fleet.run(cache_restart_replay_timeout=2)
    finally:
        clusters["db2"].sql("ALTER SYSTEM RESET primary_conninfo")
        with open(os.path.join(clusters["db2"].data, "postgresql.auto.conf"), "a") as file:
            file.write("primary_conninfo = 'host=%s port=%d'\n" % (clusters["db1"].socket, clusters["db1"].port))
        clusters["db2"].sql("SELECT pg_reload_conf()")
    assert status != 0
    says(output, "db2 has not caught up with db1: after 2 s it is * behind. It receives no WAL: check its primary_conninfo and its log.")
    assert fleet.started() == before


@thorough
def test_a_change_of_roles_stops_the_rest(fleet, machine):
    """Somebody promotes the standby when it has just been taken out of traffic. It is put back, and not restarted."""
    primary = fleet.clusters["db1"]
    fleet.clusters = {"db1": primary, "db5": machine("db5", primary)}
    before = fleet.started()
    traffic = fleet.write("traffic.yml", (
        "- name: Promote it\n  ansible.builtin.command: %s/pg_ctl promote --wait --pgdata={{ data }}\n  become: true\n"
        "  become_user: postgres\n  changed_when: true\n  when: pgfleet_traffic_step == 'out'\n" % primary.bin
    ))
    output, status = fleet.run(hosts=("db1", "db5"), cache_restart_traffic=[traffic])
    after = fleet.started()
    fleet.clusters["db5"].stop("immediate")
    assert status != 0
    says(output,
         "db1 was the primary and db5 a standby when this run began; now the primary is db1 and db5: the roles have changed. db5 was not"
         " restarted. Run the playbook again when the roles are stable.")
    assert after == before
    assert fleet.kept("db5")["out"] is False


def test_unreachable_hosts_are_named(fleet):
    """A host that cannot be reached from the beginning: nothing is changed, and the way on is shown."""
    before = fleet.started()
    output, status = fleet.run(per_host={"db3": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}})
    assert status != 0
    assert row(output, "db3").count("unreachable: ") == 1
    assert "1 of 3 hosts failed: db3. The table shows why." in output and "has no attribute" not in output
    says(output, "Unreachable: db3. Not done: db1, db2, db3. Run the playbook again, with the same variables, to continue. To go on without db3, add"
                 " -e cache_restart_only=db1,db2.")
    assert fleet.started() == before


@thorough
def test_limit_is_refused(fleet):
    before = fleet.started()
    output, status = fleet.run("--limit", "db2,db1")
    assert status != 0 and fleet.started() == before and fleet.left() == [], output
    says(output, "leave it out, and name the hosts to restart with -e cache_restart_only=db2,db1.")


def counted(output):
    """Lines of plays and tasks, and calls of modules on hosts, without those that asked again because something took its time."""
    again = len(re.findall("FAILED - RETRYING", output))
    return banners(output), re.findall(r"^<[^>]+> EXEC .*python3", output, re.MULTILINE)[again:]


@thorough
def test_what_the_restart_of_one_standby_costs(fleet, clusters):
    """It was 226 lines and 48 calls, without this test's own tasks, 3 lines and 4 calls. Without traffic nothing looks at a proxy."""
    for one in clusters.values():
        warm(one)
    output, status = fleet.run("-e", "cache_restart_only=db2", "-vvv")
    assert status == 0, output
    lines, calls = counted(output)
    assert len(lines) - 3 <= 226 // 2 and len(calls) <= 52, "%d lines, %d calls\n%s" % (len(lines), len(calls), "\n".join(lines))
    assert not [line for line in lines if re.search("prox|pgbouncer", line, re.IGNORECASE)]


KEPT_BY_THE_TEST = ("pgfleet_state_directory", "cache_restart_min_free", "cache_warmup_snapshot", "cache_warmup_min_residency")


@thorough
@pytest.mark.parametrize(
    "environment",
    [
        {"PATH": OLDEST + "/bin:" + os.environ["PATH"]},
        pytest.param({"ANSIBLE_STRATEGY": "free", "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}, marks=thorough),
        pytest.param({"ANSIBLE_STRATEGY": "host_pinned", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}, marks=thorough),
        pytest.param({"ANSIBLE_STDOUT_CALLBACK": "minimal"}, marks=thorough),
    ],
    ids=["oldest core", "free, json", "host_pinned, yaml", "minimal"],
)
def test_text_versions_strategies_and_callbacks(fleet, clusters, environment):
    """With every variable as text: checked, run, and where the core is the oldest one, run again."""
    texts = as_text("rolling_restart")
    given = [part for pair in zip(texts[::2], texts[1::2]) if pair[1].split("=")[0] not in KEPT_BY_THE_TEST for part in pair]
    before = fleet.started()
    for more in (["--check"], [], [])[:3 if "PATH" in environment else 2]:
        for one in clusters.values():
            warm(one)
        output, status = fleet.run(*given, *more, hosts=("db1", "db2"), environment=environment)
        assert status == 0, output
        assert not re.search("Traceback|Unexpected Exception|has no attribute|is undefined", output), output
        after = fleet.started()
        restarted = {name for name in NAMES if after[name] != before[name]}
        assert restarted == (set() if more else {"db1", "db2"})
        if not more:
            assert after["db2"] < after["db1"]
            for name in ("db1", "db2"):
                assert fleet.kept(name)["finished"] and is_restored(clusters[name], fleet.kept(name))
        before = after


@thorough
def test_extra_variables_do_not_replace_the_gate(fleet):
    before = fleet.started()
    for name in ("cache_warmup_snapshot=warm", "cache_warmup_min_residency=1", "cache_warmup_max_age=1s"):
        output, status = fleet.run("-e", name, "-e", "cache_restart_only=db2")
        assert status != 0
        says(output, name.split("=", maxsplit=1)[0] + " is given with -e and would override what the rolling restart sets. Remove it:")
    assert fleet.started() == before


@thorough
def test_the_preview_of_a_refused_plan(fleet):
    output, status = fleet.run("--check", cache_restart_serial=2)
    assert status != 0 and "Would begin" not in output
    assert "Nothing would be restarted." in output and "Would save" not in output


@thorough
def test_the_preview_without_a_primary(fleet, clusters):
    """The host that does not answer is to blame, and the others have nothing wrong in their rows."""
    clusters["db1"].stop()
    try:
        output, status = fleet.run("--check")
    finally:
        clusters["db1"].start()
    assert status != 0 and "has no attribute" not in output
    assert "connection to server" in row(output, "db1").lower() and "failed" in row(output, "db1")
    assert row(output, "db2").rstrip().endswith("in") and "Nothing would be restarted." in output
    assert "1 of 3 hosts failed: db1. The table shows why." in output
