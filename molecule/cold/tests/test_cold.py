"""The figures of a cold test, against each other and against what the hosts count themselves."""

from __future__ import annotations

import glob
import json
import os

import pytest
import testinfra

FOLDER = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "cold")
HOSTS = ("cold-15", "cold-18")
STATES = ("both_cold", "buffers_cold", "restored_page_cache", "restored", "both_warm")
MIB = 1 << 20
# What is left at least of pages that were there minutes ago: the kernel takes back what nobody touches. Not evicted, not lost.
LEFT = 0.3
spared = pytest.mark.skipif(
    bool(os.environ.get("PGFLEET_SPARE_THIS_MACHINE")), reason="the machine's page cache was not dropped"
)


def run(name, command):
    """A command on a host, as root; not by Ansible."""
    done = testinfra.get_host("docker://" + name).run(command)
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def sql(name, query):
    return run(name, f'runuser -u postgres -- psql -XAtc "{query}"')


def kept(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)


def result_of(name):
    """Of the playbook, in the one file of its run."""
    [path] = glob.glob(os.path.join(FOLDER, "all", "cold_test-*.json"))
    return kept(path)["hosts"][name]["result"]


def states(result):
    return {row["state"]: row for row in result["states"]}


@pytest.fixture(name="size", scope="module")
def fixture_size():
    sizes = {name: int(sql(name, "SELECT pg_relation_size('million')")) for name in HOSTS}
    assert all(size > 150 * MIB for size in sizes.values())
    return sizes


@pytest.fixture(name="counted")
def fixture_counted():
    """Buffers of the table, its bytes in the page cache, and its size, as the host counted them."""

    def counted(name, moment):
        return [int(line) for line in run(name, f"cat /var/lib/pgfleet-test/{moment}").splitlines()]

    return counted


@pytest.mark.parametrize("name", HOSTS)
def test_every_state_is_what_it_is_called(name, size):
    rows = states(result_of(name))
    assert set(rows) == set(STATES)
    for row in rows.values():
        assert row["runs"] == 2
    cold = rows["both_cold"]
    assert 0.97 * size[name] <= cold["device_bytes"] <= 1.25 * size[name]
    assert cold["page_cache_bytes"] <= 0.03 * size[name]
    assert cold["read_bytes"] >= 0.97 * size[name]
    for state in STATES[1:]:
        # the kernel takes back what nobody touches, some percent on a busy machine
        assert rows[state]["device_bytes"] <= 0.15 * size[name], state
    for state in ("buffers_cold", "restored_page_cache"):
        assert rows[state]["page_cache_bytes"] >= 0.85 * size[name], state
        assert rows[state]["read_bytes"] >= 0.97 * size[name], state
    for state in ("restored", "both_warm"):
        assert rows[state]["shared_hit"] * 8192 >= 0.95 * size[name], state
        assert rows[state]["read_bytes"] <= 0.05 * size[name], state


@pytest.mark.parametrize("name", HOSTS)
def test_the_blocks_read_are_those_of_the_article(name):
    """20,409 of them, and some catalogs, in every state in which the buffers are cold."""
    rows = states(result_of(name))
    assert abs(rows["both_cold"]["shared_read"] - 20409) < 100
    assert abs(rows["both_cold"]["shared_read"] - rows["buffers_cold"]["shared_read"]) < 100


@pytest.mark.parametrize("name", HOSTS)
def test_the_device_agrees(name):
    """Others may read too, but never less can come from the device than from it to this server."""
    for one in result_of(name)["runs"]:
        assert sum(disk["bytes"] for disk in one["disks"]) >= 0.97 * one["device_bytes"] - MIB
        assert one["certainty"] == "exact", one["remarks"]


@pytest.mark.parametrize("name", HOSTS)
def test_the_host_is_as_it_was_found(name, counted):
    buffers, resident, size = counted(name, "before")
    buffers_after, resident_after, _size = counted(name, "after")
    assert 0.3 * size <= resident <= 0.8 * size, "half of it was read"
    # counted by the restore itself, at once; minutes later the kernel may have taken back what nobody touches
    back = result_of(name)["put_back"]
    assert back["residency"] >= 100 * LEFT and back["wanted"] * 8192 >= 0.8 * resident
    assert LEFT * resident <= resident_after <= resident + 0.1 * size
    assert buffers_after >= 0.8 * buffers
    assert run(name, "ls /dev/shm | grep cold_test || true") == ""
    assert sql(name, "SELECT count(*) FROM residency_snapshots()") == "0"
    assert sql(name, "SELECT 1") == "1"


@pytest.mark.parametrize("method", ["sync", "io_uring", "worker"])
def test_every_io_method_is_accounted(method, size):
    """With workers, and only then, the backend has read next to nothing by its own account."""
    result = kept(method + ".json")
    assert result["io_method"] == method
    runs = {one["state"]: one for one in result["runs"]}
    cold, warm = runs["both_cold"], runs["buffers_cold"]
    assert 0.97 * size["cold-18"] <= cold["device_bytes"] <= 1.25 * size["cold-18"]
    assert warm["device_bytes"] <= 0.15 * size["cold-18"]
    assert warm["page_cache_bytes"] >= 0.85 * size["cold-18"]
    own = cold["backend_bytes"] / cold["device_bytes"]
    assert own < 0.1 if method == "worker" else own > 0.9
    assert (cold["io_worker_bytes"] > 0.9 * size["cold-18"]) == (method == "worker")


def test_functions_empty_both_caches(counted, size):
    buffers, resident, _size = counted("cold-18", "functions")
    assert buffers == 0 and resident <= MIB
    found = kept("functions.json")
    evicted = found["evicted"]
    assert evicted["changed"] and not evicted["restarted"]
    assert evicted["buffer_bytes_before"] > 0 == evicted["buffer_bytes_after"]
    assert {row["relation"] for row in evicted["relations"]} == {"public.million"}
    [query] = found["query"]["runs"]
    assert query["workers_launched"] == 2
    assert 0.97 * size["cold-18"] <= query["device_bytes"] <= 1.25 * size["cold-18"]
    assert query["backend_bytes"] <= 0.1 * size["cold-18"]


def test_behind_a_limit_of_its_systemd_unit(size):
    found = kept("limit.json")
    assert found["set"]["changed"]
    assert int(found["unit"]) == found["set"]["after"]
    # and what is not touched yet of 64 MB of shared buffers
    assert 55 * MIB <= found["set"]["page_cache_bytes"] <= 150 * MIB
    for one in found["query"]["runs"]:
        # more than fits comes from the device each time
        assert one["device_bytes"] >= 0.4 * size["cold-15"]
    assert found["back"]["changed"] and found["unit_after"] == "infinity"
    # neither the limit's file nor a lease; the host's record stays
    assert run("cold-15", "ls /var/lib/pgfleet/") == "cold-15.json"


@spared
def test_the_whole_machine(size):
    refused = kept("refused.json")
    assert refused["failed"]
    assert "1 client is connected to PostgreSQL here (15/main: postgres postgres [local] SELECT)" in refused["msg"]
    assert "This host is a container: the page cache belongs to the physical host" in refused["msg"]
    rows = states(kept("host.json"))
    assert 0.97 * size["cold-15"] <= rows["both_cold"]["device_bytes"] <= 1.5 * size["cold-15"]
    assert rows["both_cold"]["page_cache_bytes"] <= 0.03 * size["cold-15"]
    assert rows["buffers_cold"]["device_bytes"] <= 0.15 * size["cold-15"]
