# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create, change and remove, each four times: in check mode, really, in check mode again, really again.

Each time: whether it says "changed", that its keys are those that are documented, and that a check run left the host as
it was: the extension's files, its jobs and processes, and what the page cache holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

import pytest
from cluster import LOOSE, quick, thorough
from cluster import run as run_command
from playbook import documented, keys, task
from residency import held, is_there, there

RUNS = ("check", "real", "check again", "real again")
WITHOUT_LOGIN = ("host_record",)
RELATIONS = ("passenger", '"Boarding Pass"', "passenger_id")


def records(cluster):
    """Where the server's user may have them, and what is in them."""
    directory = os.path.join(cluster.socket, "records")
    found = {}
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        if name == ".lock":
            continue  # what whoever reads or writes takes
        with open(os.path.join(directory, name)) as file:
            found[name] = file.read()
    return directory, found


def host(cluster):
    paths = [cluster.file_of(relation) for relation in RELATIONS]
    return {
        "files": cluster.folder(),
        "records": records(cluster)[1],
        "jobs": cluster.sql("SELECT job, state, loaded FROM residency_jobs ORDER BY job"),
        "processes": cluster.processes(),
        "there": [there(path) for path in paths],
    }


def same_cache(before, after):
    """But for what the kernel has reclaimed: nothing is evicted and nothing read in."""
    for earlier, later in zip(before, after):
        assert 0.95 * earlier - 128 * 1024 <= later <= earlier + 128 * 1024


def same_host(before, after):
    same_cache(before["there"], after["there"])
    assert {**before, "there": None} == {**after, "there": None}


@pytest.fixture
def four_runs(cluster, as_postgres, login):
    def run(module, expected, restored=(), **arguments):
        """The real run restores these files, and the runs after it find them as it has left them."""
        results = []
        for run, changed in zip(RUNS, expected):
            check = run.startswith("check")
            before = host(cluster)
            by = {} if module in WITHOUT_LOGIN else login
            [result] = as_postgres(task(module, check=check, diff=True, **dict(by, **arguments)))
            assert not result.get("failed"), "%s: %s" % (run, result["msg"])
            assert changed in (result["changed"], None), "%s: %s" % (run, result["msg"])
            assert keys(result) == documented(module), run
            after = host(cluster)
            if check:
                same_host(before, after)
            results.append(result)
            if run == "real" and restored:
                assert all(is_there(path) for path in restored)
                holding.enter_context(held(*restored))
        holding.close()
        return results

    with contextlib.ExitStack() as holding:
        yield run


@quick
def test_snapshot(cluster, four_runs):
    """Taking one is always a change: it is of another moment. keep bounds how many there are."""
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    cluster.warm(cluster.file_of("passenger"))
    create = four_runs("residency_snapshot", (True, True, True, True), name="warm", keep=2)
    first = create[1]["snapshot"]["generation"]  # numbers are never used again
    assert [one["snapshot"] and one["snapshot"]["generation"] for one in create] == [None, first, None, first + 1]
    assert "passenger" in create[0]["diff"]["after"]
    change = four_runs("residency_snapshot", (True, True, True, True), name="warm", keep=1)
    assert [one["snapshot"] and one["snapshot"]["generation"] for one in change] == [None, first + 2, None, first + 3]
    # of the two, the fullest stays if the new one has a block less
    for one in change[:2]:
        assert one["removed"] and set(one["removed"]) <= {"warm@%d" % first, "warm@%d" % (first + 1)}
    left = int(cluster.sql("SELECT count(*) FROM residency_snapshots()"))
    assert left in (1, 2)
    remove = four_runs("residency_snapshot", (True, True, False, False), name="warm", state="absent")
    amount = "%d generation%s of snapshot 'warm'." % (left, "s" if left == 2 else "")
    assert [one["msg"] for one in remove] == [
        "Would remove " + amount,
        "Removed " + amount,
        "Snapshot 'warm' does not exist.",
        "Snapshot 'warm' does not exist.",
    ]
    assert not [path for path in cluster.folder() if "warm@" in path]


@thorough
def test_a_thin_snapshot(cluster, four_runs, as_postgres, login):
    """It neither takes the place of a full one nor removes it, unless it is forced; check mode foresees all that."""
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    path = cluster.file_of("passenger")
    with held(path):
        [full] = as_postgres(task("residency_snapshot", name="guard", **login))
    number = full["snapshot"]["generation"]
    as_postgres(task("cache_evict", **login))
    check, thin, again, second = four_runs("residency_snapshot", (True,) * 4, name="guard", keep=1)
    for result, what in ((check, "The new generation would be thin: "), (thin, "guard@%d is thin: " % (number + 1))):
        [warning] = result["warnings"]
        assert warning.startswith(what) and "The name 'guard' still means guard@%d." % number in warning
    assert (check["removed"], thin["removed"]) == ([], [])
    assert (again["removed"], second["removed"]) == (["guard@%d" % (number + 1)],) * 2, "thin ones are removed by thin ones"
    assert (thin["snapshot"]["thin"], thin["snapshot"]["current"]) == (True, False)
    assert full["snapshot"]["wanted"] >= thin["snapshot"]["measure"] > 2 * thin["snapshot"]["wanted"]
    info, restored, dropped = as_postgres(
        task("residency_info", subset=["snapshots"], **login),
        task("residency_restore", name="guard", min_residency=LOOSE, **login),
        task("residency_snapshot", check=True, name="guard", state="absent", keep=1, **login),
    )
    assert [(one["generation"], one["thin"], one["current"]) for one in info["snapshots"]] == [
        (number, False, True), (number + 2, True, False)
    ]
    assert restored["snapshot"] == "guard@%d" % number and is_there(path)
    assert restored["warnings"] == [
        "'guard' means guard@%d, from %s ago: guard@%d is newer and thin (less than half as full)."
        % (number, re.search("from (.*?) ago", restored["warnings"][0]).group(1), number + 2)
    ]
    assert restored["snapshot_thin"] is False and 0 < restored["snapshot_age"] < 3600
    assert dropped["removed"] == ["guard@%d" % (number + 2)]
    as_postgres(task("cache_evict", **login))
    check, forced, dummy, last = four_runs("residency_snapshot", (True,) * 4, name="guard", keep=1, force=True)
    assert not [one for one in (check, forced) if "warnings" in one]
    assert check["removed"] == forced["removed"] == ["guard@%d" % number]
    assert forced["snapshot"]["current"] and not forced["snapshot"]["thin"] and forced["snapshot"]["measure"] is None
    assert last["snapshot"]["current"]


def older_than(cluster, name, seconds):
    """Wait until all generations are; their numbers."""
    ages = "SELECT count(*) FROM residency_snapshots() WHERE name = '%s' AND taken_at > clock_timestamp() - interval '%g s'" % (name, seconds)
    deadline = time.monotonic() + 60
    while cluster.sql(ages) != "0" and time.monotonic() < deadline:
        time.sleep(0.1)
    return [int(one) for one in cluster.sql("SELECT generation FROM residency_snapshots() WHERE name = '%s' ORDER BY 1" % name).split()]


@thorough
def test_snapshots_by_age(cluster, as_postgres, login):
    """By the server's clock. The fullest stays, a thin one removes none, and check mode foresees each."""
    limit = 3
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    paths = [cluster.file_of(relation) for relation in RELATIONS]
    young = dict(login, name="aged", keep=9, keep_days=limit / 86400.0)

    def both(*, warm, **more):
        with held(*warm):
            results = as_postgres(*(task("residency_snapshot", check=check, diff=True, **dict(young, **more)) for check in (True, False)))
        assert not [one for one in results if one.get("failed")], [one["msg"] for one in results]
        assert results[0]["removed"] == results[1]["removed"], (results[0]["msg"], results[1]["msg"])
        assert keys(results[1]) == documented("residency_snapshot")
        there = cluster.sql("SELECT string_agg(name || '@' || generation, ' ' ORDER BY generation) FROM residency_snapshots()").split()
        assert not set(results[1]["removed"]) & set(there)
        return results[1]

    with held(*paths):
        [full] = as_postgres(task("residency_snapshot", name="aged", **login))
    assert 0 <= full["snapshot"]["age"] < 3600 and full["thin"] is False
    as_postgres(task("cache_evict", **login))
    [first] = older_than(cluster, "aged", limit)
    thin = both(warm=[])
    assert thin["thin"] and thin["removed"] == []
    older_than(cluster, "aged", limit)
    # passenger is three quarters of it
    less = both(warm=paths[:1])
    assert not less["thin"] and less["removed"] == ["aged@%d" % (first + 1)], "the fullest stays"
    assert "keep_days is" in less["msg"] and "generation aged@%d, from " % (first + 1) in less["diff"]["before"]
    older_than(cluster, "aged", limit)
    last = both(warm=paths, force=True)
    assert last["removed"] == ["aged@%d" % first, "aged@%d" % (first + 2)]
    older_than(cluster, "aged", limit)
    gone = both(warm=[], state="absent", keep=1)
    assert gone["removed"] == [] and gone["msg"].endswith("beyond the newest 1.")
    assert both(warm=[], state="absent", keep=0)["removed"] == ["aged@%d" % (first + 3)]


@thorough
def test_snapshots_of_a_pattern(cluster, four_runs):
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    for name in ("nightly-1", "nightly-2", "nightly-3", "weekly"):
        cluster.sql("SELECT FROM residency_snapshot('%s')" % name)
    results = four_runs("residency_snapshot", (True, True, False, False), name="nightly-*", state="absent", keep=1)
    assert [one["msg"] for one in results] == [
        "Would remove 2 generations of snapshots 'nightly-*'.",
        "Removed 2 generations of snapshots 'nightly-*'.",
        "There is no more than 1 generation of 'nightly-*'.",
        "There is no more than 1 generation of 'nightly-*'.",
    ]
    assert cluster.sql("SELECT string_agg(name, ' ' ORDER BY name) FROM residency_snapshots()") == "nightly-3 weekly"


@quick
def test_restore(cluster, four_runs):
    """Its opposite is cache_evict, below; what changes is the choice of relations."""
    both = [cluster.file_of(relation) for relation in RELATIONS[:2]]
    with held(*both):
        cluster.sql("SELECT FROM residency_snapshot('both')")
    for path in both:
        cluster.cool(path)
        assert cluster.resident(path) == 0
    loose = {"name": "both", "min_residency": LOOSE}
    create = four_runs("residency_restore", (True, True, None, None), restored=both[:1], relations=["passenger"], **loose)
    assert create[1]["loaded"] > 0
    assert cluster.resident(both[1]) == 0
    assert "passenger" in create[0]["diff"]["after"]
    change = four_runs("residency_restore", (True, True, None, None), restored=both, relations=["passenger", "Boarding*"], **loose)
    for check, real in (create[2:], change[2:]):
        # of an index, which is not held, the kernel may reclaim pages
        assert check["missing"] <= 0.05 * check["wanted"]
        assert real["loaded"] <= 0.05 * real["wanted"]
        assert real["changed"] is (real["loaded"] > 0)


def test_restore_of_shared_buffers(cluster, four_runs):
    """After a restart they are empty, also where the page cache still holds everything."""
    cluster.sql("SELECT count(name) FROM passenger")
    buffers = "SELECT count(*) FROM residency_buffers('passenger')"
    path = cluster.file_of("passenger")
    had = int(cluster.sql(buffers))
    assert had > 0
    with held(path):
        cluster.sql("SELECT FROM residency_snapshot('buffers')")
    cluster.stop()
    cluster.start()
    assert cluster.sql(buffers) == "0"
    check, real, again, last = four_runs(
        "residency_restore", (True, True, None, None), restored=[path], name="buffers", relations=["passenger"], shared_buffers=True, min_residency=LOOSE
    )
    assert "Would fill shared buffers with" in check["msg"]
    assert int(cluster.sql(buffers)) >= 0.9 * had
    assert real["buffers_wanted"] >= real["buffers_resident"] >= real["buffers_loaded"] >= 0.9 * had
    assert again["missing"] <= 0.05 * again["wanted"]
    assert last["buffers_loaded"] == 0 and last["buffers_resident"] >= 0.9 * had
    assert last["changed"] is (last["loaded"] > 0)


@quick
def test_evict_with_the_server_running(cluster, four_runs):
    """Whether the server reads its catalogs again in between is its own affair: then there is something to evict again."""
    for relation in RELATIONS:
        cluster.warm(cluster.file_of(relation))
    results = four_runs("cache_evict", (True, True, None, None))
    for run, result in zip(RUNS, results):
        left = 0 if run.startswith("check") else result["resident_bytes_after"]
        assert result["changed"] is (left < result["resident_bytes_before"])
    assert [one["queries"] for one in results] == [["CHECKPOINT"]] * 4
    assert {one["server"] for one in results} == {"running"}
    for relation in RELATIONS:
        assert cluster.resident(cluster.file_of(relation)) == 0


def test_evict_with_the_server_stopped(cluster, as_postgres):
    """Idempotent, and without a login."""
    paths = [cluster.file_of(relation) for relation in RELATIONS]
    cluster.stop()
    try:
        for warmed in (paths, paths[:1]):
            for path in warmed:
                cluster.warm(path)
            before = [there(one) for one in paths]
            results = as_postgres(task("cache_evict", check=True, data_directory=cluster.data))
            same_cache(before, [there(one) for one in paths])
            results += as_postgres(
                task("cache_evict", data_directory=cluster.data),
                task("cache_evict", check=True, data_directory=cluster.data),
                task("cache_evict", data_directory=cluster.data),
            )
            assert [one["changed"] for one in results] == [True, True, False, False]
            assert [keys(one) for one in results] == [documented("cache_evict")] * 4
            assert {one["server"] for one in results} == {"stopped"}
            assert [cluster.resident(one) for one in paths] == [0, 0, 0]
    finally:
        cluster.start()


def test_info_changes_nothing(cluster, four_runs):
    cluster.sql("SELECT FROM residency_snapshot('seen', 1)")
    four_runs(
        "residency_info", (False,) * 4, subset=["capabilities", "databases", "relations", "segments", "buffers", "snapshots", "jobs"],
        relation='"Boarding Pass"', snapshot="seen", min_residency=0, wait=True,
    )


def test_capabilities_are_this_host(cluster, as_postgres, login):
    [result] = as_postgres(task("residency_info", subset=["capabilities"], **login))
    found = result["capabilities"]
    assert found["locations"][0]["path"] == cluster.data
    # lsblk goes down to the disks by itself
    source = run_command("findmnt", "--noheadings", "--output", "SOURCE", "--target", cluster.data).strip()
    below = run_command("lsblk", "--inverse", "--noheadings", "--raw", "--output", "NAME,TYPE", source).splitlines()
    assert found["locations"][0]["disks"] == sorted({line.split()[0] for line in below if line.split()[1] in ("disk", "loop")})
    with open(cluster.data + "/postmaster.pid") as file:
        assert found["cgroup"]["pid"] == int(file.readline())


def test_check_mode_before_the_extension_is_installed(cluster, as_postgres, login):
    """In a database that has no extension."""
    elsewhere = dict(login, login_db="without")
    tasks = [
        task("residency_snapshot", check=True, name="warm", **elsewhere),
        task("residency_restore", check=True, name="warm", **elsewhere),
        task("residency_info", check=True, **elsewhere),
    ]
    missing = (
        "Extension pg_residency is not in database without: run the playbook pgfleet.cache.install first,"
        " or set login_db to the database that has it (in roles and playbooks pgfleet_login_db)."
    )
    results = as_postgres(*tasks)
    assert [one["warnings"] for one in results] == [[missing]] * 3
    assert [one["msg"] for one in results] == [
        "Would save 'warm'.",
        "Would restore 'warm'.",
        "Nothing can be reported before the extension is installed.",
    ]
    assert [keys(one) for one in results] == [
        documented("residency_snapshot"), documented("residency_restore"), documented("residency_info"),
    ]


@thorough
def test_extension_of_a_database(cluster, four_runs):
    """Created, moved and dropped; on another database than the one whose host is compared."""
    cluster.sql("CREATE DATABASE made")

    def there():
        return cluster.sql("SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'pg_residency'", "made")

    try:
        create = four_runs("residency_extension", (True, True, False, False), databases=["made"])
        assert there() == "public" and create[0]["diff"]["after"] == "made: 1.0.0 in schema public\n"
        assert [one["databases"][0]["version"] for one in create] == ["1.0.0"] * 4
        four_runs("residency_extension", (True, True, False, False), databases=["made"], schema="Of its own")
        assert there() == '"Of its own"'
        drop = four_runs("residency_extension", (True, True, False, False), databases=["made"], state="absent")
        assert there() == "" and "postgres" in drop[1]["needed_by"] and "made" not in drop[1]["needed_by"]
    finally:
        cluster.sql("DROP DATABASE made")


@thorough
def test_a_preloaded_library(cluster, four_runs):
    """Of a server that has not loaded it: what its next start would do, and no longer does."""
    create = four_runs("server_preload", (True, True, False, False), parameters={"autosave": "1min"})
    assert [one["restart"] for one in create] == [True] * 4 and create[0]["queries"] == create[1]["queries"]
    drop = four_runs("server_preload", (True, True, False, False), state="absent")
    assert [one["restart"] for one in drop] == [False] * 4 and drop[0]["queries"] == drop[1]["queries"]


def test_a_query_changes_nothing(cluster, four_runs):
    for result in four_runs("server_query", (False,) * 4, query="SELECT 1 AS one", checkpoint=True):
        assert (result["query_result"], result["queries"]) == ([{"one": 1}], ["CHECKPOINT"])


@thorough
def test_a_measured_query_changes_nothing(cluster, four_runs):
    results = four_runs("query_io", (False,) * 4, query="SELECT count(*) FROM passenger")
    assert [bool(one["runs"]) for one in results] == [True] * 4


@thorough
def test_a_record_is_no_change(cluster, four_runs):
    """Of the host, whose unfinished work it is about. The second run of two finds what the first has written."""
    directory = records(cluster)[0]
    where = {"directory": directory, "name": "db1"}
    for one in four_runs("host_record", (False,) * 4, state="leased", what="rolling_restart", **where):
        assert one["held_by"] is None  # a run that has ended on this controller is in nobody's way
    assert sorted(records(cluster)[1]) == ["db1.lease"]
    dummy, *others = four_runs("host_record", (False,) * 4, state="written", event="resumed", what="handler", **where)
    assert [one["record"]["paused"] for one in others] == [[]] * 3 and sorted(records(cluster)[1]) == ["db1.json"]
    for one in four_runs("host_record", (False,) * 4, **where):
        assert (one["record"]["paused"], one["lease"]) == ([], None)
    four_runs("host_record", (False,) * 4, state="released", **where)
    assert sorted(records(cluster)[1]) == ["db1.json"]


@thorough
def test_the_state_of_a_host_is_no_change(cluster, four_runs):
    directory = records(cluster)[0]
    for one in four_runs("restart_info", (False,) * 4, directory=directory, name="db1"):
        answer = one["answer"]
        assert answer["in_recovery"] is False and answer["data_directory"] == cluster.data and "problem" not in answer


@thorough
def test_a_window_changes_nothing(cluster, four_runs):
    for result in four_runs("physical_io_info", (False,) * 4, duration="1s"):
        assert result["window"]["seconds"] >= 1
        assert result["reads"]["counted"] >= 0
    for result in four_runs("physical_io_info", (False,) * 4, state="begin"):
        assert result["reading"]["data_directory"] == cluster.data


@thorough
def test_a_load(cluster, four_runs):
    sizes = {"schemas": 1, "scale": "8M"}
    four_runs("io_workload", (True, True, False, False), **sizes)
    four_runs("io_workload", (False,) * 4, state="run", run_time="1s", **sizes)
    four_runs("io_workload", (True, True, False, False), state="absent", **sizes)


def changes(output):
    """Of the host; localhost has a line of its own."""
    return int(re.search(r"^db1 .*changed=(\d+)", output.split("PLAY RECAP")[1], re.MULTILINE).group(1))


def test_installing_again_changes_nothing(cluster, ansible):
    ansible.set_hosts(
        {"db1": {}},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_extension_pg_config=cluster.bin + "/pg_config",
    )
    for arguments in (["--check"], []):
        output, status = ansible.command("pgfleet.cache.install", *arguments)
        assert status == 0, output
        assert changes(output) == 0, output


def test_pg_config_of_another_server_is_refused(cluster, ansible):
    """Debian's own, for a cluster that runs from a copy of its binaries."""
    ansible.set_hosts(
        {"db1": {}},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
    )
    record = os.path.join(cluster.bin, "../lib/pg_residency.sources")  # without it there is something to build
    os.rename(record, record + ".was")
    try:
        output, status = ansible.command("pgfleet.cache.install", "--check")
    finally:
        os.rename(record + ".was", record)
    assert status != 0
    assert "Set cache_extension_pg_config to the pg_config of the running server's own installation." in " ".join(output.split())
