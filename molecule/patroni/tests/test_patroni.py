"""What a user does with a cluster of Patroni, in this order: each test goes on where the one before has ended.

Playbooks run as a user runs them. Servers, Patroni, the clients of HAProxy and the kernel are asked from outside; only messages are the collection's.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

NAMES = ("db1", "db2", "db3")
BACK = 0.9  # of the pages that were in the page cache before
DATA, CONFIGURATION = "/var/lib/postgresql/15/main", "/etc/patroni/15-main.yml"
UNIT = "patroni@15-main"
PATRONICTL = ["/opt/patroni/bin/patronictl" if os.environ.get("PATRONI") == "4" else "patronictl", "-c", CONFIGURATION]
PATIENCE = 180  # seconds
FOLDER = os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]


def run(name, *words, user="root"):
    return subprocess.run(["docker", "exec", "--user", user, name, *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def sql(name, query):
    return run(name, "psql", "-XAt", "-c", query, user="postgres")


def started_again(name, before):
    """Whether another server runs than the one that was started then."""
    words = ["docker", "exec", "--user", "postgres", name, "psql", "-XAt", "-c", "SELECT pg_postmaster_start_time()"]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode == 0 and done.stdout.strip() != before


def until(condition, what):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE, what
        time.sleep(1)


def members(name="db1"):
    return {one["Member"]: one for one in json.loads(run(name, *PATRONICTL, "list", "--format", "json"))}


def leader(name="db1"):
    return next((member for member, one in members(name).items() if one["Role"] == "Leader"), None)


def standbys():
    return [name for name in NAMES if name != leader()]


def is_whole():
    """All follow one leader."""
    found = members()
    roles = sorted(one["Role"] for one in found.values())
    return roles == ["Leader", "Replica", "Replica"] and len({one.get("TL") for one in found.values()}) == 1 and {
        one["State"] for one in found.values()} <= {"running", "streaming"}


def started():
    return {name: sql(name, "SELECT pg_postmaster_start_time()") for name in NAMES}


def configurations():
    return {name: run(name, "cat", CONFIGURATION) for name in NAMES}


def look(name, moment):
    run(name, "sh", "-c", "python3 /usr/local/bin/page_cache.py %s >/var/lib/pgfleet-test/%s.json" % (DATA, moment))


class Counted:
    """The pages of the table: those that were in the page cache at a moment, and how many more the kernel has reclaimed."""

    def __init__(self, name, moment):
        path, size = sql(name, "SELECT pg_relation_filepath('passenger') || ' ' || pg_relation_size('passenger') / 4096").split()
        found = json.loads(run(name, "cat", "/var/lib/pgfleet-test/%s.json" % moment)).get(path, {"resident": [], "reclaimed": 0})
        self.all, self.reclaimed = int(size), found["reclaimed"]
        self.pages = {page for first, count in found["resident"] for page in range(first, first + count)}


def is_warm(name, moment):
    """Whether what was in the page cache before the rolling restart is there at a moment, or was reclaimed since."""
    before, now = Counted(name, "before"), Counted(name, moment)
    return len(now.pages & before.pages) + now.reclaimed >= BACK * len(before.pages)


def playbook(**variables):
    """The status and the output of a rolling restart."""
    command = ["ansible-playbook", "-i", os.path.join(FOLDER, "inventory"), "pgfleet.cache.rolling_restart", "-e", json.dumps(variables)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print("\nhost " + done.stdout.partition("\nhost ")[2].partition("\nThe results")[0])
    return done.returncode, " ".join(done.stdout.split())


def restart(**variables):
    """A rolling restart while clients read and write.

    Each host that it restarts was warm, is made cold at its stop, and is warm again before it is back in traffic, or if it is the primary in the end.
    """
    restarted = variables.get("cache_restart_only", NAMES)
    until(is_whole, "the cluster is not whole before a rolling restart")
    for name in restarted:
        sql(name, "SET max_parallel_workers_per_gather = 0; SELECT count(remark) FROM passenger")
        look(name, "before")
        assert len(Counted(name, "before").pages) > Counted(name, "before").all / 2  # shared buffers may have the others
    before, texts = started(), configurations()
    run("proxy", "systemctl", "restart", "client")
    try:
        status, output = playbook(cache_restart_resume=False, **variables)
    finally:
        run("proxy", "systemctl", "stop", "client")
    assert status == 0, output[-5000:]
    until(is_whole, "the cluster is not whole after a rolling restart")
    assert {name for name, at in started().items() if at != before[name]} == set(restarted)
    assert configurations() == texts
    status = json.loads(run("db1", "python3", "-c", "import urllib.request as r; print(r.urlopen('http://172.31.78.11:8008/cluster').read().decode())"))
    assert not status.get("pause")
    assert not any(one.get("tags") for one in status["members"])
    for name in restarted:
        look(name, "end")
        cold = Counted(name, "cold")
        assert len(cold.pages) < cold.all / 20
        assert is_warm(name, "end")
        assert name == leader() or is_warm(name, "in")
    transactions = [json.loads(line) for line in run("proxy", "cat", "/var/lib/pgfleet-test/client.log").splitlines()]
    reads = [one for one in transactions if one["way"] == "read"]
    assert len(reads) > 500
    assert [one for one in reads if one["error"]] == []
    ends = [one["at"] + one["seconds"] for one in transactions if one["way"] == "write" and not one["error"]]
    print("%d reads, none failed; %d writes, the longest gap between two is %.1f s" % (
        len(reads), len(ends), max(after - before for before, after in zip(ends, ends[1:], strict=False))))


def test_rolling_restart():
    """In place: nobody fails over."""
    was, timeline = leader(), members()["db1"]["TL"]
    restart()
    assert (leader(), members()["db1"]["TL"]) == (was, timeline)


def test_switchover():
    """Without tasks of the user, to a standby that this rolling restart has warmed. It also loads the library, as Patroni's own configuration says."""
    run("db1", *PATRONICTL, "edit-config", "--force", "--set", "postgresql.parameters.shared_preload_libraries=pg_residency", "15-main")
    until(lambda: all(one.get("Pending restart") for one in members().values()), "Patroni does not want to restart")
    was = leader()
    restart(cache_restart_primary="switchover")
    assert leader() != was
    assert is_warm(leader(), "in")
    assert not any(one.get("Pending restart") for one in members().values())


def test_reboot():
    """Of a standby, whose Patroni starts with the host; else it is refused before anything is changed."""
    name = standbys()[0]
    before, boot = started(), run(name, "cat", "/proc/sys/kernel/random/boot_id")
    run(name, "systemctl", "disable", UNIT)
    status, output = playbook(cache_restart_what="host", cache_restart_only=[name])
    assert status != 0
    assert "systemd's unit %s.service is disabled, so PostgreSQL would stay down after a reboot." % UNIT in output
    run(name, "systemctl", "enable", UNIT)
    assert started() == before
    restart(cache_restart_what="host", cache_restart_only=[name])
    assert run(name, "cat", "/proc/sys/kernel/random/boot_id") != boot


def said(name):
    """What the library's worker has said of its last restore."""
    log = run(name, "cat", "/var/log/postgresql/postgresql-15-main.log")
    return "\n".join(log.rpartition("LOG:  restoring snapshot")[2].splitlines()[:2])


def again(name, before):
    """Wait until another server runs, with the snapshots of its leader, whose origin is noticed; the next rolling restart has one of its own."""
    until(lambda: started_again(name, before) and is_whole(), "%s does not come back" % name)
    until(lambda: 'This is host "%s"' % name in said(name), "its worker does not notice another host's snapshots")
    print("\nrestoring snapshot%s\n%s" % (said(name), sql(name, "SELECT name, generation, origin, timeline FROM residency_snapshots()")))
    assert 'on host "%s"' % leader() in said(name)
    assert sql(name, "SELECT DISTINCT origin FROM residency_snapshots()") == leader()
    restart(cache_restart_only=[name])
    assert sql(name, "SELECT origin FROM residency_snapshots() WHERE name = 'restart' ORDER BY generation DESC LIMIT 1") == name


def test_rewind():
    """A leader that dies with what no standby has: pg_rewind brings the snapshots of the new one."""
    was, standby = leader(), standbys()[0]
    before = sql(was, "SELECT pg_postmaster_start_time()")
    run(was, "pkill", "-STOP", "-f", "walsender")
    sql(was, "INSERT INTO ledger SELECT FROM generate_series(1, 100)")
    run(was, "systemctl", "kill", "--kill-who=all", "--signal=KILL", UNIT)
    until(lambda: leader(standby) not in (None, was), "nobody is promoted")
    run(was, "systemctl", "start", UNIT)
    again(was, before)
    assert "running pg_rewind" in run(was, "journalctl", "--unit", UNIT)


def test_reinit():
    """A standby that is made anew has the snapshots of the leader."""
    name = standbys()[-1]
    before = sql(name, "SELECT pg_postmaster_start_time()")
    run("db1", *PATRONICTL, "reinit", "--force", "15-main", name)
    again(name, before)


def test_the_end():
    print("\n" + run("db1", *PATRONICTL, "list"))
    assert is_whole()
