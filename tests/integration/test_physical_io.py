# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What physical_io_info says of a cluster on a disk of its own, against that disk's own counters and loads of a known size."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time

import pytest
from cluster import MAJOR, METHODS, OWNER, free_port, quick, run, thorough
from conftest import PASSWORD
from disks import MIB, Disk, cluster_on
from playbook import documented, environments, keys, task
from residency import held, is_there
from test_memory import BLKIO, TABLE, make_cgroup, remove_cgroup

PHYSICAL, IO = "physical_io_info", "query_io"
BLOCKS = 60 * 128
OTHERS = 48 * MIB
SCAN = "SET max_parallel_workers_per_gather = 0; SET jit = off; SELECT count(*) FROM wide"


def scan_command(one):
    return [one.bin + "/psql", "-XAtq", "-h", one.socket, "-p", str(one.port), "-d", "postgres", "-c", SCAN]


NUMBERS = itertools.count()
# file systems; on a version with several, the ways of reading
WAYS = [("ext4", method) for method in METHODS] if MAJOR >= 18 else [
    ("ext4", None), *(pytest.param((kind, None), marks=thorough) for kind in ("xfs", "btrfs"))
]


def prepare(disk, machine, kind, device=None, method=None):
    disk.make(kind, device)
    one = cluster_on(disk, machine, os.path.basename(disk.point))
    one.disk = disk
    one.read_by(method)
    one.sql(TABLE % ("wide", "wide", "wide", BLOCKS, "wide"))
    one.sql("CREATE ROLE app LOGIN PASSWORD '%s'" % PASSWORD)
    one.blocks = int(one.sql("SELECT pg_relation_size('wide') / 8192"))
    assert one.blocks >= BLOCKS
    # read by others, past the page cache
    one.other = os.path.join(disk.point, "other")
    run("dd", "if=/dev/urandom", "of=" + one.other, "bs=1M", "count=%d" % (OTHERS // MIB), "conv=fsync")
    os.chmod(one.other, 0o644)
    return one


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way[1] or way[0])
def apart(request, machine):
    yield from on_a_disk(machine, *request.param)


@pytest.fixture(scope="module")
def plain(machine):
    yield from on_a_disk(machine, "ext4")


@pytest.fixture
def halved(machine):
    yield from on_a_disk(machine, "ext4", halves=True)


def on_a_disk(machine, kind, method=None, halves=False):
    disk = Disk(machine.directory, "disk%d" % next(NUMBERS))
    one = None
    try:
        device, second = disk.halves() if halves else (None, None)
        one = prepare(disk, machine, kind, device, method)
        one.second = second
        yield one
    finally:
        if one is not None:
            one.stop("immediate")
        disk.remove()


def cold(one):
    """Neither cache has the table. The server is new, and idle sessions of before are gone."""
    path = one.file_of("wide")
    one.stop()
    run("sync", "--file-system", one.data)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert one.resident(path) < MIB
    one.start()


def login(one):
    return {"login_port": one.port, "login_unix_socket": one.socket}


def around(as_postgres, one, *commands, settle=11):
    """A window around tasks of somebody else's; what the disk itself counted in it."""
    shell = [{"ansible.builtin.command": {"argv": list(command)}} for command in commands]
    before = one.disk.counted()
    begun, *done, ended = as_postgres(
        task(PHYSICAL, state="begin", settle=settle, **login(one)),
        *shell,
        task(PHYSICAL, state="end", reading="{{ begun.reading }}", settle=settle, **login(one)),
        register="begun",
    )
    after = one.disk.counted()
    for result in (begun, *done, ended):
        assert not result.get("failed"), result
    for result in (begun, ended):
        assert keys(result) == documented(PHYSICAL) and result["changed"] is False
    return ended, [later - earlier for earlier, later in zip(before, after)]


@quick
def test_counted_and_served(apart, as_postgres):
    cold(apart)
    found, (reads, size) = around(as_postgres, apart, scan_command(apart))
    bytes_of_table = apart.blocks * 8192
    assert {one["kind"] for one in found["locations"]} == {"data", "wal"}
    assert {(tuple(one["volumes"]), tuple(one["disks"])) for one in found["locations"]} == {((apart.disk.name,), (apart.disk.name,))}
    read = found["reads"]
    assert apart.blocks <= read["counted"] <= 1.05 * apart.blocks + 600, "and the catalogs of three new sessions"
    # nobody else reads from this disk: what it counted is what the module says it served, and what the processes were charged with
    assert 0.95 * size <= read["served_bytes"] <= size
    assert read["served"] <= reads
    assert 0.97 * bytes_of_table <= read["server_bytes"] <= read["served_bytes"] * 1.01
    assert read["page_cache_percent"] <= 5
    assert found["total"]["read_bytes"] == found["disks"][0]["read_bytes"] == read["served_bytes"]
    assert found["certainty"] == "exact" and found["gaps"] == []
    assert found["total"]["read_milliseconds"] > 0 and found["total"]["queue"] > 0
    assert 0 < found["total"]["utilisation_percent"] <= 100
    path = apart.file_of("wide")
    assert is_there(path)
    with held(path):
        warm, (reads, size) = around(as_postgres, apart, scan_command(apart))
    assert warm["reads"]["counted"] >= apart.blocks * 0.7, "most of it is not in shared buffers"
    assert warm["reads"]["page_cache_percent"] >= 90
    assert warm["reads"]["served_bytes"] <= size <= 0.1 * bytes_of_table


@thorough
def test_reads_of_others_in_the_same_file_system(apart, as_postgres):
    """A load of a known size beside it, past the page cache."""
    cold(apart)
    other = ["dd", "if=" + apart.other, "of=/dev/null", "bs=1M", "iflag=direct"]
    found, (dummy, size) = around(as_postgres, apart, scan_command(apart), other)
    assert found["reads"]["served_bytes"] >= 0.95 * size and size >= 0.95 * (OTHERS + apart.blocks * 8192)
    assert abs(found["others"]["read_bytes"] - OTHERS) <= 0.05 * OTHERS
    assert found["others"]["elsewhere_bytes"] == 0
    assert abs(found["reads"]["server_bytes"] - apart.blocks * 8192) <= 0.1 * apart.blocks * 8192
    assert found["certainty"] == "upper_bound"
    assert [one for one in found["remarks"] if one.startswith("others read ") and "in the cluster's own" in one]


@thorough
def test_reads_of_others_in_another_partition(halved, as_postgres):
    cold(halved)
    run("chmod", "o+r", halved.second)
    other = ["dd", "if=" + halved.second, "of=/dev/null", "bs=1M", "count=%d" % (OTHERS // MIB), "iflag=direct"]
    found, dummy = around(as_postgres, halved, scan_command(halved), other)
    [data] = [place for place in found["locations"] if place["kind"] == "data"]
    assert [(layer["device"], layer["kind"]) for layer in data["layers"]] == [(halved.disk.name + "p1", "partition"), (halved.disk.name, "loop")]
    assert abs(found["others"]["elsewhere_bytes"] - OTHERS) <= 0.05 * OTHERS
    assert found["others"]["same_filesystems_bytes"] <= 2 * MIB
    [volume], [disk] = found["volumes"], found["disks"]
    # less what the server read of its own program, from another disk
    assert 0 <= disk["read_bytes"] - volume["read_bytes"] - found["others"]["elsewhere_bytes"] <= MIB


@thorough
def test_a_duration(plain, as_postgres):
    busy = subprocess.Popen(
        ["setpriv", "--reuid", OWNER, "--regid", OWNER, "--init-groups", "sh", "-c", "while :; do \"$@\" >/dev/null || exit; done", "sh",
         *scan_command(plain)], start_new_session=True,
    )
    try:
        [result] = as_postgres(task(PHYSICAL, duration="4s", **login(plain)))
    finally:
        os.killpg(busy.pid, signal.SIGTERM)
        busy.wait()
    assert not result.get("failed"), result
    assert result["window"]["seconds"] >= 4
    assert result["reads"]["counted"] >= plain.blocks
    assert result["reads"]["riops"] == pytest.approx(result["reads"]["counted"] / result["window"]["seconds"], rel=0.01)
    assert result["databases"][0]["name"] == "postgres"


@thorough
def test_a_window_without_activity(plain, as_postgres):
    [result] = as_postgres(task(PHYSICAL, duration="1s", **login(plain)))
    assert not result.get("failed"), result
    assert result["reads"]["page_cache_percent"] is None or result["reads"]["counted"] < 500
    assert result["certainty"] == "exact"


class Idle:
    """Stays connected: the second of two scans within a second is not in the statistics before it has been idle for 10 seconds."""

    def __init__(self, one):
        self.psql = subprocess.Popen(
            ["setpriv", "--reuid", OWNER, "--regid", OWNER, "--init-groups", "env", "HOME=/var/empty", *scan_command(one)[:-2]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True, bufsize=1, cwd="/",
        )

    def ask(self, statement):
        self.psql.stdin.write(statement + ";\n")
        assert self.psql.stdout.readline().strip().isdigit()

    def scan(self, times):
        for dummy in range(times):
            self.ask(SCAN)

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


def begin(as_postgres, one, **more):
    [result] = as_postgres(task(PHYSICAL, state="begin", **dict(login(one), **more)))
    assert not result.get("failed"), result
    return result["reading"]


def end(as_postgres, one, reading, **more):
    [result] = as_postgres(task(PHYSICAL, state="end", reading=reading, **dict(login(one), **more)))
    return result


@thorough
@pytest.mark.parametrize("settle", [11, 0])
def test_statistics_are_waited_for(plain, as_postgres, settle):
    cold(plain)  # empty shared buffers, so that each scan reads all
    plain.warm(plain.file_of("wide"))
    session = Idle(plain)
    try:
        for _attempt in range(30):
            reading = begin(as_postgres, plain, settle=settle)
            session.scan(4)
            time.sleep(1.5)
            began = time.monotonic()
            session.ask("SELECT count(*) FROM pg_class")  # after more than a second: what was counted so far is reported
            session.scan(1)
            last = time.monotonic()
            if last - began > 0.9:
                continue
            result = end(as_postgres, plain, reading, settle=settle)
            # a session that has been idle for 10 seconds reports what is left
            if settle or time.monotonic() - last < 9:
                break
        else:
            pytest.fail("in none of 30 attempts were the scan and the end of the window fast enough")
    finally:
        session.close()
    assert not result.get("failed"), result
    late = [one for one in result["remarks"] if one.startswith("at the end 1 other session was idle for less than 10 s")]
    if settle:
        assert result["reads"]["counted"] >= 4.8 * plain.blocks and not late
    else:
        assert 3.8 * plain.blocks <= result["reads"]["counted"] <= 4.5 * plain.blocks and late


@thorough
def test_sessions_that_go_on_while_statistics_are_waited_for(plain, as_postgres):
    """A short statement now and then: idle at nearly every look, and so waited for. By a clock and a count of the test's own."""
    cold(plain)
    plain.warm(plain.file_of("wide"))
    counts, over = [], threading.Event()

    def work():
        session = Idle(plain)
        try:
            while not over.wait(0.5):
                session.scan(1)
                counts.append(time.monotonic())
        finally:
            session.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while len(counts) < 5:
            time.sleep(0.1)
        [result] = as_postgres(task(PHYSICAL, duration="8s", **login(plain)))
    finally:
        over.set()
        thread.join()
    assert not result.get("failed"), result
    rate = (len(counts) - 1) / (counts[-1] - counts[0]) * plain.blocks
    # a session reports once a second
    assert 0.75 * rate <= result["reads"]["riops"] <= 1.25 * rate, (rate, result["reads"], result["window"])
    assert result["window"]["seconds"] >= 8


@thorough
def test_a_transaction_that_stays_open_is_named(plain, as_postgres):
    session = Idle(plain)
    try:
        reading = begin(as_postgres, plain)
        session.psql.stdin.write("BEGIN;\n")
        session.scan(1)
        result = end(as_postgres, plain, reading)
    finally:
        session.close()
    assert [one for one in result["remarks"] if one.startswith("at the end 1 other session was in a transaction")]


def test_statistics_reset(plain, as_postgres):
    reading = begin(as_postgres, plain)
    plain.sql(SCAN)
    plain.sql("SELECT pg_stat_reset()")
    result = end(as_postgres, plain, reading)
    assert result["gaps"] == ["the statistics of database postgres were reset inside the window"]
    assert (result["reads"]["counted"], result["reads"]["riops"], result["reads"]["ratio"]) == (None, None, None)
    assert result["reads"]["served"] is not None and result["reads"]["server_bytes"] is not None
    assert result["certainty"] == "unknown"


@thorough
def test_a_dropped_database(plain, as_postgres):
    plain.sql("CREATE DATABASE gone")
    plain.sql("SELECT count(*) FROM pg_class", "gone")
    reading = begin(as_postgres, plain)
    plain.sql("DROP DATABASE gone")
    result = end(as_postgres, plain, reading)
    assert result["gaps"] == ["database gone was dropped inside the window, and its statistics with it"]
    assert result["reads"]["counted"] is None


def test_a_restart(plain, as_postgres):
    reading = begin(as_postgres, plain)
    plain.stop()
    plain.start()
    result = end(as_postgres, plain, reading)
    assert result["gaps"] == ["PostgreSQL was restarted inside the window: what it read and wrote before and after cannot be added up"]
    assert [result["reads"][name] for name in ("counted", "server_bytes", "page_cache_bytes")] == [None] * 3
    assert result["others"] is None and result["reads"]["served"] is not None


@thorough
def test_a_restart_within_the_duration(plain, as_postgres):
    """The module's own session ends with the server, and it logs in again."""

    def restart():
        for _attempt in range(300):
            if plain.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgfleet.cache physical%'"
                         " AND query LIKE '%checkpointer%'") != "0":
                break
            time.sleep(0.1)
        plain.stop()
        plain.start()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        [result] = as_postgres(task(PHYSICAL, duration="8s", settle=0, **login(plain)))
    finally:
        thread.join()
    assert not result.get("failed"), result
    assert [one for one in result["gaps"] if one.startswith("PostgreSQL was restarted inside the window")]


def started(one):
    """When the checkpointer was, which begins again after a crash."""
    try:
        return one.sql("SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
    except subprocess.CalledProcessError:
        return ""


@thorough
def test_a_crash(plain, as_postgres):
    """The postmaster stays, and so does what the kernel charges to it."""
    reading = begin(as_postgres, plain)
    before = started(plain)
    victim = Idle(plain)
    victim.scan(1)
    pid = int(plain.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"))
    os.kill(pid, signal.SIGKILL)
    for _attempt in range(200):
        if started(plain) not in ("", before):
            break
        time.sleep(0.1)
    victim.psql.kill()
    victim.psql.wait()
    result = end(as_postgres, plain, reading)
    assert result["gaps"] == ["a process of PostgreSQL crashed inside the window: after the recovery its statistics began anew"]
    assert result["reads"]["counted"] is None and result["reads"]["server_bytes"] is not None


@thorough
def test_a_device_that_goes_away(plain, machine, as_postgres):
    second = Disk(machine.directory, "second", 128)
    try:
        second.make("ext4")
        plain.sql("CREATE TABLESPACE second LOCATION '%s'" % run("sh", "-c", "mkdir $0/t && chown postgres $0/t && echo $0/t", second.point).strip())
        reading = begin(as_postgres, plain)
        both = end(as_postgres, plain, reading)
        assert sorted(one["device"] for one in both["disks"]) == sorted([plain.disk.name, second.name])
        assert both["gaps"] == [] and both["total"]["reads"] is not None
        plain.sql("DROP TABLESPACE second")
        second.remove()
        assert not os.path.exists("/sys/block/" + second.name)
        result = end(as_postgres, plain, reading)
    finally:
        plain.sql("DROP TABLESPACE IF EXISTS second")
        second.remove()
    assert result["gaps"] == ["%s went away inside the window, or is no longer counted" % second.name]
    figures = {one["device"]: one["reads"] for one in result["disks"]}
    assert figures[second.name] is None and figures[plain.disk.name] is not None
    assert result["total"]["reads"] is None and result["reads"]["served"] is None and result["certainty"] == "unknown"


@thorough
def test_a_device_that_comes(plain, machine, as_postgres):
    second = Disk(machine.directory, "second", 128)
    try:
        reading = begin(as_postgres, plain)
        second.make("ext4")
        plain.sql("CREATE TABLESPACE second LOCATION '%s'" % run("sh", "-c", "mkdir $0/t && chown postgres $0/t && echo $0/t", second.point).strip())
        result = end(as_postgres, plain, reading)
    finally:
        plain.sql("DROP TABLESPACE IF EXISTS second")
        second.remove()
    assert result["gaps"] == ["%s holds data only since some time inside the window" % second.name]
    assert result["reads"]["served"] is None


@thorough
@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_what_cannot_be_measured(plain, machine, as_postgres, kind):
    point = os.path.join(machine.directory, kind)
    os.makedirs(point)
    layers = [os.path.join(plain.disk.point, kind + part) for part in ("_lower", "_upper", "_work")]
    options = "size=32m"
    if kind == "overlay":
        for layer in layers:
            os.makedirs(layer)
        options = "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(layers)
    run("mount", "-t", kind, "-o", options, kind, point)
    try:
        os.mkdir(point + "/t")
        run("chown", OWNER, point + "/t")
        plain.sql("CREATE TABLESPACE elsewhere LOCATION '%s/t'" % point)
        result = end(as_postgres, plain, begin(as_postgres, plain))
    finally:
        plain.sql("DROP TABLESPACE IF EXISTS elsewhere")
        run("umount", point)
    assert not result.get("failed"), result
    [place] = [one for one in result["locations"] if one["kind"] == "tablespace"]
    assert (place["filesystem"], place["disks"]) == (kind, [])
    assert place["unmeasurable"].startswith(kind + " ")
    assert result["gaps"] == ["%s/t is on no disk that can be measured: %s" % (point, place["unmeasurable"])]
    assert result["others"] is None and result["certainty"] == "unknown"


@thorough
def test_whose_reading_it_is(plain, machine, as_postgres):
    reading = begin(as_postgres, plain)
    other = end(as_postgres, plain, dict(reading, data_directory="/elsewhere"))
    assert other["failed"] and other["msg"].startswith("reading is of /elsewhere on host %s, but this is %s on host " % (reading["host"], plain.data))
    assert keys(other) == documented(PHYSICAL)
    rebooted = end(as_postgres, plain, dict(reading, boot="another"))
    assert rebooted["msg"] == "Nothing is known of this window: the host was rebooted inside the window, and every counter began anew."
    for wrong in ({"counters": {plain.disk.name: [1, 2]}}, {"statistics": []}, {"charged": None}, {"seconds": "x"}, {"sessions": [1]}):
        result = end(as_postgres, plain, dict(reading, **wrong))
        assert result["failed"] and result["msg"].startswith("reading is not what state begin has returned"), wrong


def test_without_the_right(plain, ansible, as_postgres):
    by_password = {"login_host": "127.0.0.1", "login_port": plain.port, "login_user": "app", "login_password": PASSWORD}
    [role] = as_postgres(task(PHYSICAL, duration="1s", **by_password))
    assert role["msg"] == (
        "Login role app lacks pg_monitor, to learn whether the statistics of other sessions are complete: grant it, or log in as a superuser."
    )
    root, = ansible.tasks([task(PHYSICAL, duration="1s", **by_password)])
    assert root["msg"].startswith("Over TCP, only the server itself tells its processes, which root does not trust")
    plain.sql("GRANT pg_monitor TO app")
    [user] = ansible.tasks([task(PHYSICAL, duration="1s", **by_password)], become=True, become_user="nobody", vars={"ansible_become_flags": "-s /bin/sh"})
    assert user["failed"] and "become the cluster's operating system user" in user["msg"]
    assert {frozenset(keys(one)) for one in (role, root, user)} == {frozenset(documented(PHYSICAL))}
    nowhere = login(plain)
    nowhere["login_port"] = free_port()
    [stopped] = as_postgres(task(PHYSICAL, duration="1s", **nowhere))
    assert stopped["msg"].startswith("Cannot connect to PostgreSQL: ")


@thorough
def test_root_measures_as_the_owner(plain, ansible):
    """What the kernel tells of a process it tells to the process's user, who cannot read root's own Python."""
    found = environments("host-3.*-*")
    pythons = ["/usr/bin/python3", *(one + "/bin/python" for one in found[:1] + found[-1:])]
    with open(os.path.join(plain.data, "pg_hba.conf"), "r+") as file:
        rules = file.read()
        file.seek(0)
        file.write("local all all trust\n" + rules)
    plain.sql("SELECT pg_reload_conf()")
    try:
        results = [
            result for python in pythons
            for result in ansible.tasks(
                [task(PHYSICAL, duration="1s", login_user="postgres", **login(plain))], vars={"ansible_python_interpreter": python}
            )
        ]
    finally:
        with open(os.path.join(plain.data, "pg_hba.conf"), "w") as file:
            file.write(rules)
        plain.sql("SELECT pg_reload_conf()")
    for result in results:
        assert not result.get("failed"), result
        assert result["reads"]["server_bytes"] is not None and result["data_directory"] == plain.data


@pytest.fixture
def in_a_cgroup(plain):
    """That counts I/O: what the kernel counts for the loop device, and again for the disk of its file, is one read."""
    folder = make_cgroup(BLKIO, "io")
    path = plain.file_of("wide")
    plain.stop()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = "echo $$ >%s/cgroup.procs && exec setpriv --reuid %s --regid %s --init-groups %s/pg_ctl start --wait --silent -D %s -l %s"
    run("sh", "-c", start % (folder, OWNER, OWNER, plain.bin, plain.data, plain.log))
    plain.folder = folder
    yield plain
    plain.stop()
    remove_cgroup(folder)
    plain.start()


@thorough
@pytest.mark.skipif(not os.path.isdir(BLKIO), reason="version 2 of cgroups has no hierarchy of its own for I/O")
def test_a_cgroup(in_a_cgroup, as_postgres):
    one = in_a_cgroup
    before = begin(as_postgres, one)
    [query] = as_postgres(task(IO, query="SELECT count(*) FROM wide", settings={"max_parallel_workers_per_gather": 0}, **login(one)))
    result = end(as_postgres, one, before)
    size = one.blocks * 8192
    with open(one.folder + "/blkio.throttle.io_service_bytes_recursive") as file:
        counted = {line.split()[0]: int(line.split()[2]) for line in file if " Read " in line}
    if not counted:
        assert result["cgroup"] is None
        pytest.skip("this kernel counts nothing for a cgroup without a limit")
    for count in (query["runs"][0]["cgroup_bytes"], result["cgroup"]["read_bytes"]):
        assert 0.95 * size <= count <= 1.2 * size, counted
    assert result["cgroup"]["foreign_processes"] == 0


@thorough
def test_what_the_version_counts(plain, as_postgres):
    reading = begin(as_postgres, plain)
    plain.sql("CREATE TABLE written AS SELECT repeat('x', 1000) FROM generate_series(1, 8000)")
    plain.sql("CHECKPOINT")
    result = end(as_postgres, plain, reading)
    plain.sql("DROP TABLE written")
    assert 900 <= result["writes"]["counted"] <= 6000
    assert result["writes"]["wal_bytes"] > 0 and result["writes"]["server_bytes"] >= 900 * 8192
    assert (result["pg_stat_io"] is None) == (MAJOR < 16)
    assert result["memory"]["refaulted_pages"] >= 0 and 0 <= result["pressure"]["io_some_percent"] <= 100
