# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a flush of local buffers costs: the module against a device of its own, what an interrupted one leaves, and the playbook."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
from cluster import MAJOR, OWNER, quick, run, thorough
from devices import device
from playbook import documented, four, keys, recap, task

COST = "temp_buffer_cost"
SMALL = {"sizes": [128, 1024], "iterations": 2}
PHASES = {"write", "dry_write", "read", "dry_read", "random_read", "random_write"}
MIB = 1 << 20


def well(results):
    for result in results:
        assert not result.get("failed"), result["msg"]
        assert keys(result) == documented(COST)
    return results


def left(cluster):
    """Files of temporary relations, and sessions of the module."""
    files = glob.glob(os.path.join(cluster.data, "base", "*", "t[0-9]*_*")) + glob.glob(os.path.join(cluster.data, "pg_tblspc", "*", "*", "*", "t[0-9]*_*"))
    return files, cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgfleet.cache temp_buffer_cost'")


def nothing_is_left(cluster):
    until = time.monotonic() + 60
    while left(cluster) != ([], "0"):
        assert time.monotonic() < until, left(cluster)
        time.sleep(0.2)


@quick
@pytest.mark.parametrize("dependents", [pytest.param(False, marks=thorough), True], ids=["table", "with TOAST and an index"])
def test_four_runs(cluster, as_postgres, login, dependents):
    """What each statement did is what EXPLAIN counted, so that an iteration that measured something else is an error."""
    check, real, again, last = well(as_postgres(*four(COST, dependents=dependents, **SMALL, **login)))
    assert not any(one["changed"] for one in (check, real, again, last))
    assert check["msg"] == again["msg"] and check["measurements"] == [] and check["reached"] is None
    assert re.fullmatch(
        r"Would measure 2 sizes of 1\.00 MB to 8\.00 MB%s, 2 iterations each: up to .* of disk space in .*/data/base and .* of memory, at most 1h\."
        % (" with TOAST and an index" if dependents else ""), check["msg"]), check["msg"]
    for result in (real, last):
        assert result["complete"] and [one["blocks"] for one in result["measurements"]] == [128, 1024]
        assert result["server_version"].startswith("%d" % MAJOR) and result["block_size"] == 8192
        assert result["checksums"] is (cluster.sql("SHOW data_checksums") == "on")
        for one in result["measurements"]:
            assert one["iterations"] == 2 and set(one["microseconds"]) == PHASES
            assert all(value > 0 for phase in one["microseconds"].values() for value in phase["values"])
            # the table as it was asked for, and its maps; with an index its blocks
            assert one["blocks"] <= one["read"] <= one["blocks"] * (1.1 if dependents else 1.01) + 8
            assert one["blocks"] <= one["written"] <= one["buffers"] and one["random_written"] == one["read"]
            # a dry run does nothing but look
            assert one["microseconds"]["dry_write"]["median"] < 0.5 * one["microseconds"]["write"]["median"]
        assert result["storage"]["filesystem"] == run("stat", "--file-system", "--format=%T", cluster.data).strip().replace("ext2/ext3", "ext4")
        assert result["storage"]["path"] == os.path.join(cluster.data, "base")
    nothing_is_left(cluster)


@pytest.fixture(scope="module")
def disk(machine, cluster):
    """A tablespace on a device that nobody else reads or writes."""
    with device(os.path.join(machine.directory, "cost"), 256 * MIB) as found:
        os.chmod(found.mount, 0o755)
        place = os.path.join(found.mount, "space")
        os.mkdir(place)
        shutil.chown(place, OWNER, OWNER)
        cluster.sql("CREATE TABLESPACE apart LOCATION '%s'" % place)
        found.place = place
        try:
            yield found
        finally:
            cluster.sql("DROP TABLESPACE apart")


def counted(disk):
    """Bytes read and written, from a file of its own that the collection does not read."""
    with open("/sys/block/%s/stat" % disk.name) as file:
        fields = [int(one) for one in file.read().split()]
    return fields[2] * 512, fields[6] * 512


@quick
@pytest.mark.parametrize("reach", ["page_cache", "device"])
def test_what_reaches_the_device(cluster, disk, as_postgres, login, reach):
    """By the device's own counters: with reach=device, two flushes of each iteration are written and two reads read; else they are not."""
    run("sync", "--file-system", disk.mount)
    before = counted(disk)
    [result] = well(as_postgres(task(COST, sizes=[1024], iterations=4, tablespace="apart", reach=reach, **login)))
    read, written = (now - then for now, then in zip(counted(disk), before))
    assert result["tablespace"] == "apart" and result["storage"]["path"].startswith(disk.place) and result["storage"]["volumes"] == [disk.name]
    assert result["storage"]["layers"] == ["loop"] and result["storage"]["mount"] == disk.mount
    [one] = result["measurements"]
    table = 1024 * 8192
    if reach == "device":
        assert result["reached"] == "device" and not [remark for remark in result["remarks"] if "busy" not in remark]
        # the files are extended and synced, flushed and synced, and once more in random order
        assert 3 * 4 * table <= written <= 3.5 * 4 * table
        assert 2 * 4 * table <= read <= 2.5 * 4 * table
        assert 100 <= one["device_write_percent"] <= 120 and 95 <= one["device_read_percent"] <= 120 and one["written_back_percent"] == 100
    else:
        assert read <= 0.1 * table and one["device_read_percent"] == 0
        # the kernel may begin to write at any time; then the module must say so
        assert result["reached"] == "page_cache" or written > 0.05 * table
        assert result["remarks"][-1:] in (["writes reached the page cache and not the device"], ["part of the writes reached the device"])
    nothing_is_left(cluster)


def test_a_role_with_few_rights(cluster, as_postgres, by_password):
    """May measure: the functions reach the session's own tables only. The version of the extension is pg_monitor's to see."""
    [result] = well(as_postgres(task(COST, sizes=[128], iterations=1, **by_password("monitor"))))
    assert result["complete"]
    cluster.sql("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    try:
        [refused] = as_postgres(task(COST, sizes=[128], iterations=1, **by_password("monitor")))
    finally:
        cluster.sql("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    assert refused["failed"] and refused["msg"] == (
        "PostgreSQL says: permission denied for database postgres. Grant the login role TEMPORARY on it.")


def is_of(pid, settings):
    """Whether a process was started by the Ansible of this test: another test, or an operator, may measure on this machine too."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            return ("ANSIBLE_CONFIG=%s\0" % settings).encode() in file.read()
    except OSError:
        return False


def kill_when(cluster, there, settings):
    """Kill the module as soon as SQL says yes."""
    def wait():
        until = time.monotonic() + 120
        while cluster.sql("SELECT (%s)::int" % there) != "1":
            if time.monotonic() > until:
                return
            time.sleep(0.05)
        names = "AnsiballZ_temp_buffer_cost|temp_buffer_cost.*zip|[_]main__.*temp_buffer_cost"
        for pid in subprocess.run(["pgrep", "-f", names], check=False, stdout=subprocess.PIPE, text=True).stdout.split():
            if is_of(pid, settings):
                os.kill(int(pid), signal.SIGKILL)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@thorough
def test_nothing_is_left_of_a_killed_measurement(cluster, ansible, as_postgres, login):
    """Not its table, and not its process, which is in the middle of a statement."""
    begun = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'INSERT INTO pg_temp.pgfleet_cost%' AND state = 'active'"
    thread = kill_when(cluster, begun, ansible.settings)
    [cut] = as_postgres(
        task(COST, sizes=[131072], iterations=30, **login), environment={"ANSIBLE_PIPELINING": "False"})
    thread.join()
    assert cut["failed"] and "was killed, or the host restarted" in cut["msg"], cut
    nothing_is_left(cluster)
    [again] = well(as_postgres(task(COST, sizes=[128], iterations=1, **login)))
    assert again["complete"]


@thorough
def test_a_short_time_limit(cluster, as_postgres, login):
    """Ends with what it has; with nothing, it says so."""
    some, none = as_postgres(
        task(COST, sizes=[128, 131072], iterations=1000, time_limit="4s", rate="10GB", **login), task(COST, sizes=[262144], time_limit="0.5s", **login))
    assert not some.get("failed"), some["msg"]
    assert not some["complete"] and some["seconds"] < 300 and some["measurements"][0]["blocks"] == 128
    assert some["remarks"][0].startswith("the time limit of 4s, with a rate of 10GB, left ")
    assert none["failed"] and none["msg"] == "Not one iteration ended within the time_limit of 0.5s: set a longer one, or smaller sizes."
    nothing_is_left(cluster)


@thorough
def test_a_time_limit_at_any_statement(cluster, as_postgres, login):
    """Of a small size all statements are short: the limit meets one of them by chance."""
    limits = ["%.2fs" % (0.4 + 0.13 * number) for number in range(8)]
    for limit, ended in zip(limits, as_postgres(*(task(COST, sizes=[128], iterations=1000, time_limit=limit, rate="10GB", **login) for limit in limits))):
        if ended.get("failed"):
            assert ended["msg"] == "Not one iteration ended within the time_limit of %s: set a longer one, or smaller sizes." % limit
        else:
            assert not ended["complete"] and ended["measurements"][0]["iterations"] >= 1
    nothing_is_left(cluster)


@thorough
def test_one_at_a_time(cluster, as_postgres, login):
    with subprocess.Popen(
        (cluster.bin + "/psql", "-h", cluster.socket, "-p", str(cluster.port), "-d", "postgres"), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, user="postgres", cwd="/", text=True,
    ) as other:
        other.stdin.write("SELECT pg_advisory_lock(%d);\n" % 0x70677463)
        other.stdin.flush()
        until = time.monotonic() + 60
        while cluster.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0":
            assert time.monotonic() < until
        [refused] = as_postgres(task(COST, **SMALL, **login))
        other.kill()
    assert refused["failed"] and refused["msg"] == "Another measurement works in database postgres: wait for its end."


@thorough
def test_settings_of_the_database_have_no_say(cluster, disk, as_postgres, login):
    """Its owner may set a pool that holds no table, or tablespaces that are several."""
    cluster.sql("ALTER DATABASE postgres SET temp_buffers = '800kB'; ALTER DATABASE postgres SET temp_tablespaces = apart")
    try:
        [small] = well(as_postgres(task(COST, **SMALL, **login)))
        assert small["tablespace"] == "apart"
        cluster.sql("ALTER DATABASE postgres SET temp_tablespaces = apart, pg_default")
        several, chosen = as_postgres(task(COST, **SMALL, **login), task(COST, tablespace="pg_default", **SMALL, **login))
    finally:
        cluster.sql("ALTER DATABASE postgres RESET temp_buffers; ALTER DATABASE postgres RESET temp_tablespaces")
    global_one = as_postgres(task(COST, check=True, tablespace="pg_global", **SMALL, **login))[0]
    assert global_one["failed"] and global_one["msg"] == "Tablespace pg_global is for PostgreSQL's shared catalogs alone: correct tablespace."
    assert several["failed"] and several["msg"] == "temp_tablespaces is 'apart, pg_default': set tablespace to the one to measure."
    assert not chosen.get("failed") and chosen["storage"]["path"] == os.path.join(cluster.data, "base")


@thorough
def test_temp_tablespaces_of_the_configuration(cluster, disk, as_postgres, login):
    """There, unlike after SET, a name is as it was written; and one in place has a path below the data directory."""
    configuration = os.path.join(cluster.data, "postgresql.conf")
    with open(configuration) as file:
        before = file.read()
    cluster.sql("SET allow_in_place_tablespaces = on; CREATE TABLESPACE in_place LOCATION ''")
    try:
        with open(configuration, "a") as file:
            file.write("temp_tablespaces = 'Apart'\n")
        cluster.sql("SELECT pg_reload_conf()")
        written, in_place = well(as_postgres(task(COST, **SMALL, **login), task(COST, tablespace="in_place", **SMALL, **login)))
    finally:
        with open(configuration, "w") as file:
            file.write(before)
        cluster.sql("SELECT pg_reload_conf()")
        cluster.sql("DROP TABLESPACE in_place")
    assert written["tablespace"] == "apart" and written["storage"]["volumes"] == [disk.name]
    assert in_place["storage"]["path"].startswith(os.path.join(cluster.data, "pg_tblspc"))


@thorough
def test_whoever_ends_its_sessions_ends_it(cluster, as_postgres, login):
    """Also in a pause, in which only the one with the lock is there."""
    there = "application_name = 'pgfleet.cache temp_buffer_cost'"

    def end():
        until = time.monotonic() + 60
        while cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE " + there) != "1" and time.monotonic() < until:
            time.sleep(0.05)
        cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " + there)

    thread = threading.Thread(target=end)
    thread.start()
    [ended] = as_postgres(task(COST, sizes=[1024], iterations=100, rate="1MB", **login))
    thread.join()
    assert ended["failed"] and ended["msg"].startswith("PostgreSQL ended the connection"), ended["msg"]
    nothing_is_left(cluster)


@thorough
def test_too_little_space(cluster, disk, as_postgres, login):
    """Nothing is written before that is known."""
    before = counted(disk)
    [refused] = as_postgres(task(COST, sizes=[128, 131072], tablespace="apart", **login))
    assert refused["failed"]
    assert re.fullmatch(r"The largest size needs 1\.\d+ GB in .*/space.*, where .* are free: set smaller sizes\.", refused["msg"]), refused["msg"]
    assert counted(disk)[1] - before[1] < MIB


# --- the playbook ---


@pytest.fixture
def two(fleet, cluster):
    """One host that measures, and one whose server cannot be reached."""
    with open(fleet.inventory) as file:
        inventory = json.load(file)
    inventory["postgresql"]["hosts"] = {"good": {}, "bad": {"pgfleet_login_port": 1}}
    inventory["postgresql"]["vars"].update(cache_temp_buffer_cost_sizes=[128, 512, 2048], cache_temp_buffer_cost_iterations=3)
    with open(fleet.inventory, "w") as file:
        json.dump(inventory, file)
    return fleet


def needs(library):
    """Of Ansible's Python on the controller."""
    python = os.path.join(os.path.dirname(shutil.which("ansible-doc")), "python3")
    if subprocess.run([python, "-c", "import " + library], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this controller has no %s" % library)


def results(fleet):
    [path] = fleet.results.glob("*.json")
    found = json.loads(path.read_text())
    path.unlink()
    return found, path.with_suffix(".png")


@quick
def test_one_of_two_hosts_fails(two, cluster):
    needs("numpy")
    needs("matplotlib")
    output, status = two.command("pgfleet.cache.temp_buffer_cost", "--check")
    assert status != 0 and "Would measure 3 sizes of 1.00 MB to 16.0 MB, 3 iterations each" in output and not list(two.results.glob("*")), output
    output, status = two.command("pgfleet.cache.temp_buffer_cost", "-e", "cache_temp_buffer_cost_dirty_blocks=2048")
    assert status != 0
    assert recap(output)["good"]["failed"] == 0 and recap(output)["bad"]["failed"] == 1
    found, plot = results(two)
    assert found["counts"] == {"done": 1, "failed": 1} and "Cannot connect to PostgreSQL" in found["hosts"]["bad"]["message"]
    good = found["hosts"]["good"]["result"]
    assert [one["name"] for one in good["fit"]["classes"]] == ["below 16 MB", "16 to 256 MB"]
    # the figures that are fitted are those that were measured
    for size, one in zip(good["measured"]["measurements"], good["fit"]["sizes"]):
        ratio = size["microseconds"]["write"]["median"] / size["microseconds"]["read"]["median"]
        assert one["blocks"] == size["blocks"] and one["write"]["value"] == pytest.approx(ratio, rel=0.01)
    price = good["fit"]["classes"][1]
    assert good["plan"]["flush_cost"] == pytest.approx(price["a"]["value"] * 2048 + price["b"]["value"] * 8192, rel=0.01)
    assert "16 to 256 MB: a = " in output and "a, below 16 MB" in output and "The plot is in " in output
    with open(plot, "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    plot.unlink()
    output, status = two.command("pgfleet.cache.temp_buffer_cost", "--limit", "good,localhost", "-e", "temp_buffer_cost_plot=false",
                                 "-e", "cache_temp_buffer_cost_sizes=128", "-e", "cache_temp_buffer_cost_iterations=1")
    assert status == 0 and "The plot is in " not in output and not results(two)[1].exists(), output
    nothing_is_left(cluster)


@thorough
def test_wrong_variables(two):
    for variable, message in (
        ("cache_temp_buffer_cost_sizes=127", "sizes has 127: each must be from 128 to 4194304 blocks of 8 kB."),
        ("cache_temp_buffer_cost_iterations=0", "iterations is 0: it must be from 1 to 1000."),
        ("cache_temp_buffer_cost_reach=disk", "value of cache_temp_buffer_cost_reach must be one of: page_cache, device, got: disk"),
        ("cache_temp_buffer_cost_sizes=128,128", "sizes has one of them twice: name each once."),
        ("cache_temp_buffer_cost_time_limit=8d", "time_limit is 8d: it must be at most 7 days."),
        ("cache_temp_buffer_cost_rate=1X", "rate is '1X': it must be a size such as 200MB"),
        ("cache_temp_buffer_cost_time_limit=soon", "time_limit is 'soon': it must be a duration such as 36h"),
        ("cache_temp_buffer_cost_szies=128", "did you mean cache_temp_buffer_cost_sizes?"),
    ):
        output, status = two.command("pgfleet.cache.temp_buffer_cost", "-e", variable)
        assert status != 0 and message in " ".join(output.split()), output


@thorough
def test_a_controller_without_numpy(two, tmp_path):
    """Known before any host measures."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "numpy.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path / "without"), os.environ.get("PYTHONPATH")]))
    output, status = two.command("pgfleet.cache.temp_buffer_cost", "--limit", "good,localhost", PYTHONPATH=path)
    assert status != 0 and "The fit needs numpy, which Ansible's Python on the controller does not have" in " ".join(output.split()), output
    assert "Measure the flushes and reads" not in output
