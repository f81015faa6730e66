# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart of servers that would not start again with their files as they are now: nothing is stopped, and each is named with its remedy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager

import pytest
from cluster import free_port, run, thorough
from proxies import wait_until
from test_rolling_restart import fresh, primary_and_standbys, row, says

CONF, HBA, IDENT = "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    return primary_and_standbys(machine, "next")


@pytest.fixture
def fleet(ansible, clusters, machine):
    yield from fresh(ansible, clusters, machine)


@contextmanager
def added(one, name, text):
    """While it lasts, the file of this cluster ends with this text. One that is not there is made."""
    path = os.path.join(one.data, name)
    if not os.path.exists(path):
        with open(path, "w"):
            shutil.chown(path, "postgres", "postgres")
        try:
            yield path, 0
        finally:
            os.unlink(path)
        return
    with open(path) as file:
        before = file.read()
    with open(path, "a") as file:
        file.write(text + "\n")
    try:
        yield path, before.count("\n") + 1
    finally:
        with open(path, "w") as file:
            file.write(before)


def test_each_fault_is_named_before_anything_is_stopped(fleet, clusters):
    before = fleet.started()
    with added(clusters["db1"], CONF, "shared_buffers = 128XB") as (conf, line), \
            added(clusters["db2"], CONF, "max_connections = 20\nmax_wal_senders = 5"), added(clusters["db3"], HBA, "local all all nonsense") as (hba, at):
        output, status = fleet.run("--check")
    assert status != 0 and fleet.started() == before
    says(output, 'PostgreSQL on db1 would not start again: invalid value for parameter "shared_buffers": "128XB" (%s line %d).' % (conf, line))
    says(output, "PostgreSQL on db2 would not start again: max_connections would be 20, and is 100 on its primary; max_wal_senders would be 5,"
         " and is 10 on its primary. A standby with less does not start: raise it here, or restart the primary with its new value first (cache_restart_only).")
    says(output, 'PostgreSQL on db3 would not start again: %s line %d: invalid authentication method "nonsense". Correct it first.' % (hba, at))


def test_what_the_host_does_not_give(fleet, clusters):
    """What a running server does not mind. Each of them really keeps a server from starting, or from being found."""
    before = fleet.started()
    gone = clusters["db3"].socket + "_gone"
    faults = {"db1": "listen_addresses = '192.0.2.1'", "db2": "shared_buffers = 4TB", "db3": "unix_socket_directories = '%s'" % gone}
    with added(clusters["db1"], CONF, faults["db1"]), added(clusters["db2"], CONF, faults["db2"]), added(clusters["db3"], CONF, faults["db3"]):
        output, status = fleet.run("--check")
        assert not any(starts(one) for one in clusters.values())
    assert status != 0 and fleet.started() == before
    says(output, "PostgreSQL on db1 would not start again: it cannot listen at 192.0.2.1 (Cannot assign requested address): correct listen_addresses, or")
    says(output, "PostgreSQL on db2 would not start again: it needs 4.* TB of shared memory, which this host does not give (Cannot allocate memory): lower")
    says(output, "PostgreSQL on db3 would not start again: it cannot make its socket in %s (there is no such directory): create the directory" % gone)


@contextmanager
def receiver_of(one, **environment):
    """A receiver of WAL for which the server has no timeout. It ends, and the server goes on."""
    folder = tempfile.mkdtemp(prefix="pgfleet_wal.", dir="/var/tmp")
    shutil.chown(folder, "postgres", "postgres")
    one.sql("ALTER SYSTEM SET wal_sender_timeout = 0")
    one.sql("SELECT pg_reload_conf()")
    receiver = subprocess.Popen(
        [one.bin + "/pg_receivewal", "--directory", folder, "--host", one.socket, "--port", str(one.port), "--no-loop", "--status-interval=2"],
        env=dict(os.environ, **environment), user="postgres", group="postgres",
        extra_groups=[], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: one.sql("SELECT count(*) FROM pg_stat_replication WHERE application_name = 'pg_receivewal' AND state = 'streaming'") == "1")
        yield receiver
    finally:
        receiver.kill()
        receiver.wait()
        shutil.rmtree(folder)


@contextmanager
def silent(one):
    with receiver_of(one) as receiver:
        receiver.send_signal(signal.SIGSTOP)
        yield


def forget_timeout(one):
    one.sql("ALTER SYSTEM RESET wal_sender_timeout")
    one.sql("SELECT pg_reload_conf()")


@thorough
@pytest.mark.parametrize("modes", [["--check"], ["-v", "bounded"]], ids=" ".join)
def test_a_receiver_that_no_stop_would_outlast(fleet, clusters, modes):
    """It takes 20 s for each run until one that seems silent is known to be so."""
    one, before = clusters["db1"], fleet.started()
    try:
        with silent(one):
            wait_until(lambda: one.sql(
                "SELECT clock_timestamp() - reply_time > '22 s' FROM pg_stat_replication WHERE application_name = 'pg_receivewal'") == "t")
            output, status = fleet.run(modes[0])
            assert status != 0 and fleet.started() == before
            says(output, "PostgreSQL on db1 would not stop: its walsender pg_receivewal of local (process *, streaming) has been silent for * s, with *"
                 " to confirm, and wal_sender_timeout is 0. End its receiver, or set wal_sender_timeout and reload.")
            if "bounded" not in modes:
                return
            one.sql("ALTER SYSTEM SET wal_sender_timeout = '10min'")
            one.sql("SELECT pg_reload_conf()")
            output, status = fleet.run("--check")
            says(output, "The stop of db1 waits up to 600 s (wal_sender_timeout) for its walsender pg_receivewal of local")
            assert status == 0, output
    finally:
        forget_timeout(one)


ELEVEN_DAYS_AGO = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
int gettimeofday(struct timeval *now, void *zone) {
    int done = syscall(SYS_gettimeofday, now, zone);
    now->tv_sec -= 1000000;
    return done;
}
"""


@thorough
def test_a_receiver_with_another_clock(fleet, clusters, tmp_path):
    """It confirms: what it thinks of the time is no silence."""
    source, library = tmp_path / "clock.c", os.path.join(fleet.directory, "clock.so")  # which postgres can read
    source.write_text(ELEVEN_DAYS_AGO)
    run("gcc", "-shared", "-fPIC", "-o", library, str(source))
    one = clusters["db1"]
    try:
        with receiver_of(one, LD_PRELOAD=library):
            wait_until(lambda: one.sql(
                "SELECT clock_timestamp() - reply_time > '10 days' FROM pg_stat_replication WHERE application_name = 'pg_receivewal'") == "t")
            output, status = fleet.run("--check")
            assert status == 0 and "silent" not in output, output
    finally:
        forget_timeout(one)


@thorough
def test_what_a_stop_that_hangs_waits_for(fleet, clusters):
    """Of a receiver that has come after the check."""
    one, hanging = clusters["db2"], fleet.write("hanging.yml", """
- name: Stop it, which hangs
  ansible.builtin.command: {bin}/pg_ctl stop --wait --timeout=5 --mode=fast --pgdata={{{{ data }}}}
  become: true
  become_user: postgres
""".format(bin=clusters["db2"].bin))
    try:
        with silent(one):
            output, status = fleet.run(per_host={"db2": {"pgfleet_service_manager": hanging}})
            assert status != 0
            assert re.search(r"It has not ended yet, and waits for: (\S+: )?walsender \S+ .* \(process \d+\)\. End the receiver of each walsender, or run kill",
                             row(output, "db2")), output
        wait_until(lambda: not os.path.exists(one.data + "/postmaster.pid"))
    finally:
        if not os.path.exists(one.data + "/postmaster.pid"):
            one.start()
        forget_timeout(one)


def starts(one):
    """Whether a server starts with the files of this one, at a port of its own: a copy of what is small."""
    folder = tempfile.mkdtemp(prefix="pgfleet_next.", dir="/var/tmp")
    try:
        run("cp", "-a", "--", one.data + "/.", folder, timeout=60)
        for name in ("postmaster.pid", "standby.signal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        shutil.chown(folder, "postgres", "postgres")
        with open(os.path.join(folder, "postgresql.auto.conf"), "a") as file:
            file.write("port = %d\n" % free_port())
        run(one.bin + "/pg_ctl", "start", "--wait", "--timeout=60", "--silent", "-D", folder, "-l", os.path.join(folder, "log"), user="postgres", check=False)
        up = "server is running" in run(one.bin + "/pg_ctl", "status", "-D", folder, user="postgres", check=False)
        if up:
            run(one.bin + "/pg_ctl", "stop", "--wait", "--mode=immediate", "-D", folder, user="postgres")
        return up
    finally:
        shutil.rmtree(folder)


@thorough
def test_what_a_standby_has_replayed_it_does_not_replay_again(fleet, clusters):
    """It would begin at the primary's last checkpoint, while it is closed."""
    primary, standby = clusters["db1"], clusters["db2"]
    primary.sql("CHECKPOINT")
    primary.sql("CREATE TABLE since AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 10000)")
    written, begins = primary.sql("SELECT pg_current_wal_lsn()"), os.path.getsize(standby.log)
    try:
        output, status = fleet.run("-e", "cache_restart_max_lag=1MB", "--check")
        assert status == 0 and re.search(r"db2 would replay .* MB again after a restart: before that, a checkpoint is run on the primary\.", output), output
        output, status = fleet.run("-e", "cache_restart_only=db2")
        assert status == 0, output
    finally:
        primary.sql("DROP TABLE since")
    with open(standby.log) as file:
        file.seek(begins)
        [redo] = re.findall("redo starts at ([0-9A-F/]+)", file.read())
    assert primary.sql("SELECT '%s'::pg_lsn >= '%s'::pg_lsn" % (redo, written)) == "t"


@thorough
def test_what_the_log_says_of_one_that_does_not_come_back(fleet, clusters):
    broken = fleet.write("broken.yml", """
- name: Break it between stop and start
  ansible.builtin.shell: |
    {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}
    echo "shared_buffers = 128XB" >>{{{{ data }}}}/postgresql.auto.conf
    {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
""".format(bin=clusters["db1"].bin))
    before = fleet.started()
    with added(clusters["db2"], CONF, ""):
        output, status = fleet.run(per_host={"db2": {"pgfleet_service_manager": broken}})
    clusters["db2"].start()
    assert status != 0
    line = row(output, "db2")
    assert "terminating" not in line and 'FATAL: configuration file "%s/postgresql.auto.conf" contains errors' % clusters["db2"].data in line, line
    after = fleet.started()
    assert [name for name in after if after[name] != before[name]] == ["db2"]


@thorough
@pytest.mark.parametrize("name, text, message", [
    (CONF, "no equals sign here", "syntax error in file \"*\" line *, near token \"sign\". Correct it first."),
    (CONF, "shared_preload_libraries = 'pg_residency, nowhere'",
     'could not access file "nowhere": No such file or directory. Correct it first.'),
    (CONF, "shared_preload_libraries = 'pg_residency, {folder}/other.so'", 'could not load library "{folder}/other.so": *'),
    (CONF, "ssl = on\nssl_key_file = '/nowhere/server.key'\nssl_cert_file = '/etc/hostname'",
     'could not load server certificate file "/etc/hostname": no start line. Correct it first.'),
    (CONF, "ssl = on\nssl_key_file = '/etc/hostname'\nssl_cert_file = '/etc/hostname'",
     'could not load server certificate file "/etc/hostname": no start line. Correct it first.'),
    (CONF, "ssl = on\nssl_key_file = '{folder}/other.key'\nssl_cert_file = '{folder}/own.crt'",
     'could not load private key file "{folder}/other.key": key values mismatch. Correct it first.'),
    (CONF, "hba_file = '/nowhere/pg_hba.conf'", "hba_file is /nowhere/pg_hba.conf, which cannot be read. Restore the file, or correct the setting."),
    (CONF, "hba_file = '/dev/null'", "hba_file would be /dev/null, and is *: nothing can tell before the start whether the rules there have a fault."),
    (CONF, "max_replication_slots = 0", "max_replication_slots would be 0, and there are 1 replication slots: drop those that nobody needs, or raise it."),
    (CONF, "wal_level = minimal", "wal_level would be minimal, but there are replication slots: raise it, or change that first."),
    (CONF, "superuser_reserved_connections = 100", "superuser_reserved_connections (100) must be less than max_connections (100)"),
    (CONF, "wal_level = minimal\nmax_wal_senders = 0\narchive_mode = on", "wal_level would be minimal, but there are replication slots"),
    (CONF, "log_directory = '/nowhere/logs'\nlogging_collector = on", "it cannot write to /nowhere: create the directory, and give its user the right"),
    (CONF, "unix_socket_directories = '/var/tmp/{long}'", "it cannot make its socket in /var/tmp/*/.s.PGSQL.* is longer than 107 bytes): create"),
    (CONF, "unix_socket_directories = '/var/tmp'", "its socket would be in /var/tmp, and is in *: neither its clients nor this rolling restart would find"),
    (CONF, "listen_addresses = ''", "it would listen at no address: listen_addresses is empty."),
    ("recovery.conf", "", "there is recovery.conf in *, which PostgreSQL no longer accepts: remove the file."),
    ("backup_label", "", "there is backup_label in *, from which it would recover: remove the file."),
    (CONF, "huge_pages = on\nshared_buffers = 9GB", "huge_pages is on and 9.* GB are needed, but the host has huge pages (2.00 MB) for *: raise"),
    (IDENT, "map /( x", "*pg_ident.conf line *: invalid regular expression"),
    (CONF, "port = 1", "it would be at port 1, and is at *: neither its clients nor this rolling restart would find it."),
], ids=["syntax", "library", "broken library", "certificate", "key", "pair", "hba", "other hba", "slots", "wal_level", "reserved", "archive", "logs",
        "long socket", "moved socket", "no address", "recovery.conf", "backup_label", "huge_pages", "ident", "port"])
def test_siblings(fleet, clusters, machine, name, text, message):
    folder = machine.directory
    for pair in ("own", "other"):
        run("openssl", "req", "-new", "-x509", "-nodes", "-subj", "/CN=" + pair, "-keyout", "%s/%s.key" % (folder, pair), "-out", "%s/%s.crt" % (folder, pair))
        shutil.chown("%s/%s.key" % (folder, pair), "postgres", "postgres")
    clusters["db1"].sql("SELECT pg_create_physical_replication_slot('kept')")
    with open(folder + "/other.so", "w") as file:
        file.write("no library")
    before = fleet.started()
    with added(clusters["db1"], name, text.format(folder=folder, long=100 * "x")):
        output, status = fleet.run()
    clusters["db1"].sql("SELECT pg_drop_replication_slot('kept')")
    assert status != 0 and fleet.started() == before
    begins = {IDENT: "nobody could log in by the maps of its users: ", **dict.fromkeys(
        ("port = 1", "unix_socket_directories = '/var/tmp'", "listen_addresses = ''"), "After a restart of PostgreSQL on db1, ")}
    says(output, begins.get(name, begins.get(text, "PostgreSQL on db1 would not start again: ")) + message.format(folder=folder))


@thorough
def test_what_keeps_no_server_from_starting(fleet, clusters):
    """No map file, a certificate in the data directory, huge pages that a reboot brings, more addresses where it listens, and its directory by another name."""
    one = clusters["db2"]
    run("openssl", "req", "-new", "-x509", "-nodes", "-subj", "/CN=db2", "-keyout", one.data + "/own.key", "-out", one.data + "/own.crt", user="postgres")
    maps = one.data + "/pg_ident.conf"
    os.rename(maps, maps + ".away")
    try:
        with added(one, CONF, "\n".join([
                "huge_pages = on", "shared_buffers = 9GB", "ssl = on", "ssl_cert_file = 'own.crt'", "ssl_key_file = 'own.key'", "listen_addresses = '*'",
                "unix_socket_directories = '%s/'" % one.socket])):
            output, status = fleet.run("--check", cache_restart_what="host")
    finally:
        os.rename(maps + ".away", maps)
    assert status == 0, output


def test_whose_role_would_change(fleet, clusters):
    """Two primaries, or none."""
    before = fleet.started()
    primary, standby = (os.path.join(clusters[name].data, "standby.signal") for name in ("db1", "db2"))
    os.rename(standby, primary)
    try:
        output, status = fleet.run("--check")
    finally:
        os.rename(primary, standby)
    assert status != 0 and fleet.started() == before
    says(output, "After a restart of PostgreSQL on db1, it would be no primary any more: there is standby.signal in %s." % clusters["db1"].data)
    says(output, "After a restart of PostgreSQL on db2, it would be a second primary: there is no standby.signal in %s." % clusters["db2"].data)


@thorough
def test_what_has_changed_since_the_check(fleet, clusters):
    """A fleet takes hours: what would not start now stays in service."""
    spoiling = fleet.write("spoiling.yml", """
- name: Spoil the next host meanwhile
  ansible.builtin.lineinfile:
    path: %s/postgresql.auto.conf
    line: shared_buffers = 128XB
  become: true
  become_user: postgres

- name: Restart
  ansible.builtin.include_tasks: restart.yml
""" % clusters["db3"].data)
    before = fleet.started()
    with added(clusters["db3"], CONF, ""):
        output, status = fleet.run(per_host={"db2": {"pgfleet_service_manager": spoiling}})
    assert status != 0
    says(row(output, "db3"), 'PostgreSQL on db3 would not start again: invalid value for parameter "shared_buffers"')
    assert [name for name, started in fleet.started().items() if started != before[name]] == ["db2"]


@thorough
def test_whose_commits_would_wait(fleet, clusters):
    primary = clusters["db1"]
    every = ("-e", "cache_restart_serial=2", "-e", "cache_restart_min_standbys=0")
    before = fleet.started()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.sql("SELECT pg_reload_conf()")
    try:
        output, status = fleet.run("--check")
        assert status == 0, output  # the other one confirms meanwhile
        output, status = fleet.run(*every)
        assert status != 0 and fleet.started() == before
        says(output, "While db2, db3 restart, all commits on db1 would wait: synchronous_standby_names needs 1, and 0 would be connected. Reduce"
             " cache_restart_serial, change synchronous_standby_names meanwhile, or let them wait with -e cache_restart_commits_may_wait=true.")
        output, status = fleet.run("--check", *every, "-e", "cache_restart_commits_may_wait=true")
        assert status == 0, output
    finally:
        primary.sql("ALTER SYSTEM RESET synchronous_standby_names")
        primary.sql("SELECT pg_reload_conf()")


@thorough
def test_what_a_restart_ends(fleet, clusters):
    with clusters["db1"].session("pg_dump", "SELECT pg_create_physical_replication_slot('gone', false, true)"):
        output, status = fleet.run("--check")
    assert status == 0, output
    says(output, "The restart of db1 ends: pg_dump, temporary replication slots (1).")
    assert "The restart of db2 ends" not in output


@thorough
def test_a_standby_that_is_late_by_design(fleet, clusters):
    """It would never catch up: said at once, and not after cache_restart_replay_timeout."""
    late, primary = clusters["db3"], clusters["db1"]
    try:
        late.sql("ALTER SYSTEM SET recovery_min_apply_delay = '1h'")
        late.sql("SELECT pg_reload_conf()")
        primary.sql("CREATE TABLE late ()")
        before = fleet.started()
        output, status = fleet.run(cache_restart_replay_timeout=600)
        assert status != 0 and fleet.started() == before
        says(output, "db3 has not caught up with db1: it is * behind. It replays WAL 1h late by design (recovery_min_apply_delay): leave it out of target,"
             " or set that to 0.")
    finally:
        late.sql("ALTER SYSTEM RESET recovery_min_apply_delay")
        late.sql("SELECT pg_reload_conf()")
        primary.sql("DROP TABLE IF EXISTS late")


@thorough
def test_the_primary_first(fleet, clusters):
    """The order that works: the primary takes the lower value, its standbys replay that, and may have it too."""
    lower = "max_connections = 50"
    with added(clusters["db1"], CONF, lower), added(clusters["db2"], CONF, lower), added(clusters["db3"], CONF, lower):
        before = fleet.started()
        output, status = fleet.run()
        assert status != 0 and fleet.started() == before
        says(output, "PostgreSQL on db2 would not start again: max_connections would be 50, and is 100 on its primary.")
        output, status = fleet.run("-e", "cache_restart_only=db1")
        assert status == 0, output
        output, status = fleet.run()
        assert status == 0, output
        assert all(before[name] != started for name, started in fleet.started().items())
        assert all(one.sql("SHOW max_connections") == "50" for one in clusters.values())
    for name in ("db2", "db3", "db1"):  # as before, standbys first: they may have more than the primary
        clusters[name].stop("fast")
        clusters[name].start()


EVICT = "pgfleet.cache.cache_evict: {{scope: cluster, data_directory: {data}, login_port: {port}, login_unix_socket: {socket}}}"
SPOILT = """
- name: Spoil it when it is back in traffic
  {task}
  become: true
  become_user: postgres
  when: pgfleet_traffic_step == 'in'
"""


@thorough
@pytest.mark.parametrize("task, message, gate", [
    (EVICT,
     "db2 was warm, and * % of it is resident now, less than cache_restart_min_residency (30 %): nothing was switched over.", "fail"),
    (EVICT, "never.yml did not make db2 the primary and db1 its standby", "warn"),
    ("ansible.builtin.command: {bin}/psql -h {socket} -p {port} -c 'SELECT pg_wal_replay_pause()'",
     "db2 has replay paused, so nothing was switched over.", "fail"),
], ids=["cold", "cold is enough", "paused"])
def test_a_candidate_that_was_warm(fleet, clusters, task, message, gate):
    """It is looked at again just before the switchover."""
    one = clusters["db2"]
    for cluster in clusters.values():
        cluster.warm(cluster.file_of("passenger"))
    before = fleet.started()
    steer = fleet.write("spoilt.yml", SPOILT.format(task=task.format(data=one.data, bin=one.bin, socket=one.socket, port=one.port)))
    try:
        output, status = fleet.run(
            "-e", "cache_restart_only=db1,db2", "-e", "cache_restart_gate=" + gate, "-e", "cache_restart_timeout=3",
            cache_restart_primary="switchover", cache_restart_switchover_tasks=fleet.write("never.yml", "[]"),
            per_host={"db2": {"cache_restart_traffic": [steer]}})
    finally:
        one.sql("SELECT pg_wal_replay_resume()")
    assert status != 0 and fleet.started()["db1"] == before["db1"]
    says(output, message)
