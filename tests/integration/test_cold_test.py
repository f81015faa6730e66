# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook cold_test: every state is what its name says, and afterwards the host is as it was."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from cluster import quick, run, thorough
from residency import there
from test_playbooks import unreachable

MIB = 1 << 20
LOCK = "/dev/shm/pgfleet.cold_test"
QUERY = {"name": "passengers", "query": "SELECT count(name) FROM passenger"}


@pytest.fixture
def fleet(cluster, ansible, tmp_path, state_directory):
    """Half of one table is cached, and nothing of the other."""
    ansible.set_hosts(
        {"db1": {}},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_cold_test_queries=[QUERY],
        cache_cold_test_repeat=2,
        pgfleet_results=str(tmp_path / "results"),
        pgfleet_state_directory=state_directory,
    )
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    paths = [cluster.file_of(relation) for relation in ("passenger", '"Boarding Pass"')]
    for path in paths:
        cluster.cool(path)
    with open(paths[1], "rb") as file:
        file.read(4 * MIB)
    cluster.paths = paths
    return ansible


def host(cluster):
    return [there(path) for path in cluster.paths]


def kept(tmp_path, host="db1"):
    """What the run's only file has of this host."""
    [path] = (tmp_path / "results").glob("*")
    return json.loads(path.read_text())["hosts"][host]["result"]


def as_before(cluster, before):
    passenger, pass_ = cluster.paths
    assert cluster.resident(passenger) <= before[0] + MIB, "what only the test has read is gone again"
    # what the kernel reclaims before the run saves it is not restored
    assert there(pass_) >= 0.7 * before[1] > 0
    assert not os.path.lexists(LOCK)
    assert cluster.sql("SELECT count(*) FROM residency_snapshots()") == "0"


@quick
@pytest.mark.parametrize("repeat", [1, pytest.param(2, marks=thorough)])
def test_every_state(fleet, cluster, tmp_path, repeat):
    before = host(cluster)
    for _attempt in range(3):
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
        # the figures are no task's
        output, status = fleet.command("pgfleet.cache.cold_test", "-e", "cache_cold_test_repeat=%d" % repeat, ANSIBLE_DISPLAY_OK_HOSTS="false")
        assert status == 0, output
        result = kept(tmp_path)
        if min(one["state_percent"] for one in result["runs"]) >= 99:
            break  # otherwise the kernel has reclaimed pages each time that the state was made
    size = int(cluster.sql("SELECT pg_relation_size('passenger')"))
    states = {row["state"]: row for row in result["states"]}
    assert set(states) == {"both_cold", "buffers_cold", "restored_page_cache", "restored", "both_warm"}
    assert len(result["runs"]) == 5 * repeat
    for row in states.values():
        assert row["runs"] == repeat
        assert row["milliseconds_min"] <= row["milliseconds_median"] <= row["milliseconds_max"]
        assert row["label"] in output
    assert 0.95 * size <= states["both_cold"]["device_bytes"] <= 1.3 * size
    assert states["both_cold"]["page_cache_bytes"] <= 0.05 * size
    for state in ("buffers_cold", "restored_page_cache", "restored", "both_warm"):
        assert states[state]["device_bytes"] <= 0.1 * size, state
    assert states["buffers_cold"]["page_cache_bytes"] >= 0.9 * size
    assert states["restored_page_cache"]["page_cache_bytes"] >= 0.9 * size
    assert min(one["state_percent"] for one in result["runs"]) >= 99, result["runs"]
    as_before(cluster, before)


def test_check_mode(fleet, cluster):
    before, started = host(cluster), cluster.sql("SELECT pg_postmaster_start_time()")
    output, status = fleet.command("pgfleet.cache.cold_test", "--check")
    assert status == 0, output
    assert "Would run 10 times in postgres: passengers" in " ".join(output.split())
    assert cluster.sql("SELECT pg_postmaster_start_time()") == started
    as_before(cluster, before)


@thorough
def test_what_a_run_would_refuse(fleet, cluster):
    """Check mode says it, too: the extension is not in that database, or the server loads its caches by itself."""
    cluster.sql("CREATE DATABASE plain")
    cluster.sql("ALTER SYSTEM SET shared_preload_libraries = pg_prewarm, pg_residency")
    try:
        output, status = fleet.command("pgfleet.cache.cold_test", "--check", "-e", "pgfleet_login_db=plain")
        assert status != 0 and "db1 has no extension pg_residency in database plain: run the playbook" in " ".join(output.split()), output
        cluster.stop()
        cluster.start()
        started = cluster.sql("SELECT pg_postmaster_start_time()")
        for mode in ("--check", "-v"):
            output, status = fleet.command("pgfleet.cache.cold_test", mode)
            assert status != 0 and (
                "On db1 no restart would leave the caches cold, because of autoprewarm (set pg_prewarm.autoprewarm to off) and pg_residency"
                " (set pg_residency.autorestore to off)." in " ".join(output.split())
            ), output
        assert cluster.sql("SELECT pg_postmaster_start_time()") == started
    finally:
        cluster.sql("ALTER SYSTEM RESET shared_preload_libraries")
        cluster.sql("DROP DATABASE plain")
        cluster.stop()
        cluster.start()
        cluster.sql("SELECT residency_drop_snapshot('autosave')")


@thorough
def test_whoever_is_connected_is_not_cut_off(fleet, cluster):
    """Also nobody of a group that nobody has named."""
    before, started = host(cluster), cluster.sql("SELECT pg_postmaster_start_time()")
    output, status = fleet.command("pgfleet.cache.cold_test", "-e", "no_target=1")
    assert status != 0 and "cold_test evicts the caches and restarts PostgreSQL: name its hosts with -e target=..." in " ".join(output.split()), output
    with cluster.session("shop"):
        for mode in ("--check", "-v"):
            output, status = fleet.command("pgfleet.cache.cold_test", mode)
            assert status != 0 and (
                "Sessions of others are connected (1), such as postgres at postgres (shop): the cold test restarts PostgreSQL under them. Choose another"
                " host or time, or let it happen with -e cache_cold_test_with_clients=true." in " ".join(output.split())), output
        output, status = fleet.command("pgfleet.cache.cold_test", "--check", "-e", "cache_cold_test_with_clients=true")
        assert status == 0 and "such as postgres at postgres (shop): the cold test restarts PostgreSQL under them." in " ".join(output.split()), output
    assert cluster.sql("SELECT pg_postmaster_start_time()") == started
    as_before(cluster, before)


@thorough
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM passenger", "passengers: PostgreSQL says: column \"nothing\" does not exist."),
        ("SELECT 1 / (count(name) - 24000) FROM passenger", "passengers failed with SQLSTATE 22012 (DivisionByZero)"),
    ],
    ids=["before anything is done", "while it is measured"],
)
def test_a_query_that_fails(fleet, cluster, tmp_path, query, message):
    before = host(cluster)
    output, status = fleet.command(
        "pgfleet.cache.cold_test", "-e", json.dumps({"cache_cold_test_queries": [dict(QUERY, query=query)]})
    )
    assert status != 0
    assert message in " ".join(output.split()).replace('\\"', '"'), output
    assert "1 of 1 hosts failed: db1. The table shows why." in output
    as_before(cluster, before)


def test_another_run_is_in_progress(fleet, cluster):
    before = host(cluster)
    os.symlink("cold test of db1 by alice, since noon", LOCK)
    try:
        output, status = fleet.command("pgfleet.cache.cold_test")
        assert os.readlink(LOCK) == "cold test of db1 by alice, since noon"
    finally:
        os.unlink(LOCK)
    assert status != 0
    assert "Another run is in progress on this host: cold test of db1 by alice, since noon." in " ".join(output.split())
    as_before(cluster, before)


def wait_for(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


def descendants(pid):
    """But for the server, which may have just been started."""
    lines = [line.split() for line in run("ps", "-e", "-o", "pid=,ppid=,comm=").splitlines()]
    found = [int(pid)]
    for parent in found:
        found += [int(line[0]) for line in lines if int(line[1]) == parent and line[2] != "postgres"]
    return found[1:]


def held_by(host):
    try:
        return os.readlink(LOCK).startswith("cold test of %s, " % host)
    except OSError:
        return False


@thorough
@pytest.mark.parametrize("hosts", [["one", "two", "three"], pytest.param(["two"], marks=thorough)], ids=len)
def test_one_is_lost_midway(fleet, cluster, tmp_path, hosts):
    """One after the other: those behind it are measured, and the report is shown, also when it was the only one."""
    with open(fleet.inventory) as file:
        common = json.load(file)["postgresql"]["vars"]
    fleet.set_hosts({name: {} for name in hosts}, **common)
    lost, log = str(tmp_path / "lost"), tmp_path / "log"

    def lose():
        wait_for(lambda: held_by("two"))
        open(lost, "w").close()
        # three hosts are one here, and have one lock
        wait_for(lambda: "fatal: [two]: UNREACHABLE!" in log.read_text())
        os.unlink(LOCK)

    thread = threading.Thread(target=lose)
    thread.start()
    output, status = fleet.command(
        "pgfleet.cache.cold_test", *unreachable("two", lost), "-e", "cache_cold_test_repeat=1",
        "-e", json.dumps({"cache_cold_test_states": ["both_warm"]}), ANSIBLE_LOG_PATH=str(log), timeout=300
    )
    thread.join()
    [path] = (tmp_path / "results").glob("*")
    found = json.loads(path.read_text())["hosts"]
    assert status != 0 and {host: one["verdict"] for host, one in found.items()} == {name: "unreachable" if name == "two" else "done" for name in hosts}, output
    assert "1 of %d hosts failed: two. The table shows why." % len(hosts) in output
    assert [len(found[name]["result"].get("runs", [])) for name in hosts] == [int(name != "two") for name in hosts]
    order = [name for name in re.findall(r"TASK \[pgfleet.cache.cache_cold_test : Summarize the runs\] \*+\nok: \[(.*?)\]", output) if name != "two"]
    assert order == [name for name in hosts if name != "two"]
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")


def record(tmp_path):
    return json.loads((tmp_path / "state" / "db1.json").read_text())


@pytest.mark.parametrize("stopped, ended", [
    (True, signal.SIGKILL), *(pytest.param(*one, marks=thorough) for one in ((False, signal.SIGKILL), (False, signal.SIGTERM), (True, signal.SIGTERM))),
])
def test_an_interrupted_run(fleet, cluster, tmp_path, ended, stopped):
    """What it had found is pending for the host: the next run puts that back before anything else, and leaves the host as the first one found it."""
    before = host(cluster)
    log = tmp_path / "log"
    environment = dict(os.environ, ANSIBLE_CONFIG=fleet.settings, ANSIBLE_PIPELINING="True", ANSIBLE_LOG_PATH=str(log))
    process = subprocess.Popen(
        ["ansible-playbook", "-i", fleet.inventory, "pgfleet.cache.cold_test", "-e", "target=db1"], env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    try:
        # not by a session, which the cold test would not disturb
        wait_for(lambda: glob.glob(cluster.data + "/pg_residency/cold_test_warm@*.snapshot") or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        who = os.readlink(LOCK)
        assert who.startswith("cold test of db1, run by root on %s (pid %d), since 2" % (socket.gethostname(), process.pid))
    finally:
        at_work = descendants(process.pid)
        os.killpg(process.pid, ended)
        process.wait()
    # what was at work on the host ends by itself
    wait_for(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in at_work))
    pending = record(tmp_path)["pending"]
    assert pending["for"] == "cold_test" and pending["snapshot"].startswith("cold_test_found@")
    output, status = fleet.command("pgfleet.cache.rolling_restart", "-e", "cache_restart_min_standbys=0", "-e", "pgfleet_service_manager=%s" % __file__)
    assert status != 0 and "A cold test of db1 was not finished; %s has what its caches held before" % pending["snapshot"] in " ".join(output.split()), output
    own = []
    if stopped:  # which a task file of the user's may leave behind
        cluster.stop()
        own = ["-e", "pgfleet_service_manager=%s" % service(tmp_path, cluster)]
    output, status = fleet.command("pgfleet.cache.cold_test", "-e", "cache_cold_test_repeat=1", "-e", "cache_cold_test_states=both_warm", *own)
    assert status == 0, output
    as_before(cluster, before)
    assert record(tmp_path)["pending"] == {} and not (tmp_path / "state" / "db1.lease").exists()


@thorough
@pytest.mark.parametrize("released", [False, True])
def test_a_lease_that_is_lost(fleet, cluster, tmp_path, released):
    """Somebody else is at work by now, or was meanwhile: it measures no further, and what it had found stays pending."""
    lease, lose, path = tmp_path / "state" / "db1.lease", tmp_path / "lose.py", service(tmp_path, cluster)
    lose.write_text(
        "import json, pathlib\n"
        "lease = pathlib.Path('%s')\n"
        "%s\n" % (lease, "lease.unlink(missing_ok=True)" if released
                  else "lease.write_text(json.dumps(dict(json.loads(lease.read_text()), id='other', owner='alice')))")
    )
    path.write_text(path.read_text() + "- name: Lose the lease\n  ansible.builtin.command: python3 %s\n  when: pgfleet_service_state == 'started'\n" % lose)
    output, status = fleet.command("pgfleet.cache.cold_test", "-e", "cache_cold_test_repeat=1", "-e", "pgfleet_service_manager=%s" % path)
    said = "The lease of this host was removed." if released else "The lease of this host is now held by alice on "
    assert status != 0 and said in " ".join(output.split()), output
    assert output.count("TASK [pgfleet.cache.cache_cold_test : Stop PostgreSQL]") == 1, output
    assert record(tmp_path)["pending"]["for"] == "cold_test" and (released or json.loads(lease.read_text())["owner"] == "alice")
    output, status = fleet.command("pgfleet.cache.cold_test", "-e", "cache_cold_test_repeat=1", "-e", "pgfleet_take_over=other")
    assert status == 0 and record(tmp_path)["pending"] == {}, output


@thorough
def test_a_half_finished_roll_is_not_measured(fleet, cluster, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "db1.json").write_text(json.dumps({"state": "restarted", "out": True, "pending": {}}))
    before = host(cluster)
    output, status = fleet.command("pgfleet.cache.cold_test")
    assert status != 0
    assert "A rolling restart of db1 was not finished: run pgfleet.cache.rolling_restart again first" in " ".join(output.split()), output
    as_before(cluster, before)


@thorough
@pytest.mark.parametrize("arguments", [["--check"], []], ids=["check", "real"])
def test_what_a_play_has_restarted_is_not_measured(fleet, cluster, tmp_path, arguments):
    """--check foretells it."""
    (tmp_path / "state").mkdir()
    pending = {
        "for": "play", "snapshot": "restart@3", "digest": "", "wanted": 1, "started": 1, "by": "alice", "since": "2026-11-20T03:00:00Z",
        "standby": False,
        "system_identifier": cluster.sql("SELECT system_identifier FROM pg_control_system()"),
    }
    (tmp_path / "state" / "db1.json").write_text(json.dumps({"pending": pending}))
    before = host(cluster)
    output, status = fleet.command("pgfleet.cache.cold_test", *arguments)
    assert status != 0 and "db1 was restarted by a play that saved restart@3, and is not as warm as before" in " ".join(output.split()), output
    as_before(cluster, before)


@thorough
def test_the_preview_names_the_command(fleet, cluster):
    """Word for word, as the server's process is then started."""
    output, status = fleet.command("pgfleet.cache.cold_test", "--check")
    assert status == 0, output
    [preview] = re.findall(r"Before most of these runs (.*?)\.\"", " ".join(output.split()))
    stop, start = re.search(r"(\S+/pg_ctl stop .*?), (\S+/pg_ctl start .*)$", preview.replace('\\"', '"')).groups()
    started = cluster.sql("SELECT pg_postmaster_start_time()")
    for command in (stop, start):
        run(*shlex.split(command), user="postgres")
    assert cluster.sql("SELECT pg_postmaster_start_time()") != started


def service(tmp_path, cluster):
    path = tmp_path / "service.yml"
    path.write_text(
        "- name: Stop or start\n"
        "  ansible.builtin.command: %s/pg_ctl {{ 'stop' if pgfleet_service_state == 'stopped' else 'start -l %s' }} --wait -D %s\n"
        "  become: true\n  become_user: postgres\n  changed_when: true\n"
        "  failed_when: false\n" % (cluster.bin, cluster.log, cluster.data)
    )
    return path


@thorough
@pytest.mark.parametrize("times", [1, 9], ids=["once", "always"])
def test_a_state_that_is_not_there_when_its_query_begins(fleet, cluster, tmp_path, times):
    """A neighbour reads the table when PostgreSQL has been started, once in the state that is measured or each time."""
    path, seen = service(tmp_path, cluster), tmp_path / "seen"
    # the first start is that of the snapshot of warm caches
    neighbour = "echo >>%s; n=$(wc -l <%s); if [ $n -ge 2 ] && [ $n -lt %d ]; then cat %s >/dev/null; fi" % (seen, seen, 2 + times, cluster.paths[0])
    path.write_text(path.read_text() + "- name: Read\n  ansible.builtin.shell: %s\n  when: pgfleet_service_state == 'started'\n  changed_when: true\n"
                    % json.dumps(neighbour))
    output, status = fleet.command(
        "pgfleet.cache.cold_test", "-e", "pgfleet_service_manager=%s" % path, "-e", "cache_cold_test_repeat=1",
        "-e", json.dumps({"cache_cold_test_states": ["both_cold"]}),
    )
    assert status == 0, output
    result = kept(tmp_path)
    [found], [row] = result["runs"], result["states"]
    size = int(cluster.sql("SELECT pg_relation_size('passenger')"))
    remark = "* passengers, both cold: only %g %% of this state was there when the query began" % found["state_percent"]
    if times == 1:
        assert (found["state_tries"], found["device_bytes"] >= 0.95 * size) == (2, True), found
        assert found["state_percent"] >= 99 and row["remarks"] == [] and "only " not in output
    else:
        assert (found["state_tries"], found["device_bytes"] <= 0.05 * size) == (3, True), found
        assert found["state_percent"] <= 5 and row["state_percent_min"] == found["state_percent"]
        assert remark in " ".join(output.split()), output
    assert re.search("both cold .* [*]", output) if times > 1 else not re.search("both cold .* [*]", output)


@thorough
def test_a_task_file_of_the_users_own(fleet, cluster, tmp_path):
    path = service(tmp_path, cluster)
    before = host(cluster)
    output, status = fleet.command(
        "pgfleet.cache.cold_test", "-e", "pgfleet_service_manager=%s" % path, "-e", "cache_cold_test_repeat=1",
        "-e", json.dumps({"cache_cold_test_states": ["both_cold", "both_warm"]}),
    )
    assert status == 0, output
    result = kept(tmp_path)
    assert result["states"][0]["device_bytes"] > 20 * MIB > result["states"][1]["device_bytes"]
    as_before(cluster, before)
