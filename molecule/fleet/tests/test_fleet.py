"""The rolling restart as its client, the proxies and the kernel saw it: nothing here asks the collection.

The client's log, and what the tests' own reader counted: when a host was taken out of traffic (out), after its stop (cold), before it
was put back (in).
"""

from __future__ import annotations

import json
import os
import re

import pytest
import testinfra

STANDBYS = ("roll-2", "roll-3")
ALL = ("roll-1", *STANDBYS)
# Of the pages that have to be resident, the least part that is, or that the kernel has reclaimed since: it takes what is idle.
# The gate of the rolling restart is 90 %.
LEFT = 0.9
LOGS = os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]

every_host = pytest.mark.parametrize("name", ALL)
# Of what side_effect.yml does, with THOROUGH=1
thorough = pytest.mark.thorough


def output(name, command):
    done = testinfra.get_host("docker://" + name).run(command)
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def sql(name, query):
    return output(name, f'runuser -u postgres -- psql -XAt -c "{query}"')


def files(name, moment):
    """What was counted of each relation file at a moment."""
    return json.loads(output(name, f"cat /var/lib/pgfleet-test/{moment}.json"))


def pages(name, moment):
    """The pages of relation files that were resident at a moment: a set of (file, page)."""
    return {
        (path, page)
        for path, counted in files(name, moment).items()
        for first, count in counted["resident"]
        for page in range(first, first + count)
    }


def there(name, moment, wanted):
    """How many of these pages were resident at a moment, with those that the kernel has reclaimed from their files."""
    paths = {path for path, _page in wanted}
    reclaimed = sum(counted["reclaimed"] for path, counted in files(name, moment).items() if path in paths)
    return len(pages(name, moment) & wanted) + reclaimed


def log(name):
    with open(os.path.join(LOGS, name + ".log"), encoding="utf-8") as file:
        return file.read()


def status(name):
    with open(os.path.join(LOGS, name + ".status"), encoding="utf-8") as file:
        return int(file.read())


def rows(name):
    """The table at the end of a run: a host's line, with its role and state."""
    table = log(name).rpartition("\nhost ")[2]
    found = {host: re.search(r"^%s +(standby|primary) +(\S+).*$" % host, table, re.MULTILINE) for host in ALL}
    assert all(found.values()), log(name)[-3000:]
    return found


@pytest.fixture(scope="module", name="transactions")
def fixture_transactions():
    lines = output("roll-proxy", "cat /var/lib/pgfleet-test/client.log").splitlines()
    return [json.loads(line) for line in lines]


@every_host
def test_every_host_was_warm_then_cold_then_warm(name):
    """Counted from outside."""
    before, cold = pages(name, "first-out"), pages(name, "first-cold")
    assert there(name, "first-out", before) > LEFT * 8000
    assert len(cold & before) <= 0.02 * len(before), "the cache was really emptied"
    if name != "roll-1":  # the primary is put back before it is warm
        assert there(name, "first-in", before) >= LEFT * len(before)


def test_the_primary_is_warm_in_the_end():
    before = pages("roll-1", "first-out")
    assert there("roll-1", "first-end", before) >= LEFT * len(before)


def test_reads_never_failed(transactions):
    reads = [one for one in transactions if one["way"] != "write"]
    assert len(reads) > 500
    assert [one for one in reads if one["error"]] == []


def test_writes_waited_and_none_failed(transactions):
    """pgbouncer holds them back while the primary restarts: the longest one is the primary's own cut."""
    writes = [one for one in transactions if one["way"] == "write"]
    assert [one for one in writes if one["error"]] == []
    *others, longest = sorted(one["seconds"] for one in writes)
    held = [seconds for seconds in others if seconds > 1]
    print(f"the primary's own cut: {longest} s; of {len(writes)} writes {sum(one['seconds'] > 0.5 for one in writes)} took more than 0.5 s")
    assert longest < 300
    # a busy host delays some for a second or two; a second cut, of a standby's restart, would last as long as the first
    assert sum(held) < longest / 2


def test_no_write_was_lost(transactions):
    written = sum(one["way"] == "write" and not one["error"] for one in transactions)
    assert int(sql("roll-1", "SELECT count(*) FROM ledger")) == written + 1


@every_host
def test_replication_goes_on(name):
    assert sql(name, "SELECT pg_is_in_recovery()") == ("f" if name == "roll-1" else "t")
    if name == "roll-1":
        assert sql(name, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "2"


@thorough
def test_patroni_is_refused_before_anything_is_changed():
    assert status("patroni") != 0
    assert "Patroni keeps PostgreSQL on roll-3 running, and may treat a restart as a failure" in " ".join(log("patroni").split())
    assert {row.group(2) for row in rows("patroni").values()} == {"-", "failed"}


@thorough
def test_a_failed_gate_keeps_one_out_and_lets_the_other_back():
    assert status("gate") != 0
    seen = rows("gate")
    assert [seen[host].group(2) for host in ALL] == ["-", "failed", "done"]
    assert "less than min_residency of 90 %" in seen["roll-2"].group()
    assert "Out of traffic now: roll-2 (roll-proxy" in " ".join(log("gate").split())
    assert "Run the playbook again, with the same variables, to continue." in log("gate")
    assert proxies("gate") == {"read,roll-2": "DRAIN", "read,roll-3": "UP", "reports,roll-2": "DRAIN", "reports,roll-3": "UP"}


def proxies(moment):
    lines = output("roll-proxy", f"cat /var/lib/pgfleet-test/proxies-{moment}").splitlines()
    return {line.rpartition(",")[0]: line.rpartition(",")[2] for line in lines}


@thorough
def test_a_reload_forgets_and_that_is_noticed():
    assert proxies("reloaded")["read,roll-2"] == "UP"
    assert proxies("reloaded")["reports,roll-2"] == "DRAIN"
    assert "had put it back into traffic" in rows("resume")["roll-2"].group()


@thorough
def test_the_next_run_finishes_the_roll():
    assert status("resume") == 0, log("resume").partition("PLAY [5.")[2]
    assert [row.group(2) for row in rows("resume").values()] == ["done", "done", "done"]
    assert "All hosts are restarted: the rolling restart is finished." in log("resume")
    assert set(proxies("resumed").values()) == {"UP"}


@thorough
def test_the_next_run_restarts_nobody_twice():
    """The standbys were restarted by the run that failed."""
    text = log("resume")
    for name in STANDBYS:
        assert not re.search(r"TASK \[pgfleet.cache.cache_restart : Restart (the host|PostgreSQL \(pg_ctlcluster\))\] \**\n(changed|ok): \[%s\]" % name, text)
    assert re.search(r"TASK \[pgfleet.cache.cache_restart : Restart PostgreSQL \(systemd\)\] \**\nchanged: \[roll-1\]", text)


@thorough
@every_host
def test_handlers_restore(name):
    """Service, community.postgresql and reboot: cold at the stop, and back afterwards."""
    path, size = sql(name, "SELECT pg_relation_filepath('passenger') || ' ' || pg_relation_size('passenger') / 4096").split()
    whole = {(path, page) for page in range(int(size))}
    assert len(pages(name, "cold") & whole) <= 0.02 * len(whole)
    assert there(name, "service", whole) >= LEFT * len(whole)
