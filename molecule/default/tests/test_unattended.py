"""The roles cache_unattended and cache_readiness beside a real systemd: a server that is killed comes back warm, and load balancers hear how warm it is."""

from __future__ import annotations

import json
import re
import time

HOST = "pg-b"  # which has pipelining: much faster
testinfra_hosts = ["ansible://" + HOST]

UNIT = "postgresql@15-main.service"
DATA_DIRECTORY = "/var/lib/postgresql/15/main"
ALONE = {"cache_unattended_restart": True, "cache_restart_min_standbys": 0, "cache_restart_min_residency": 0}
EVICT = "import os, sys; os.posix_fadvise(os.open(sys.argv[1], os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)"
ASK = "import socket; print(socket.create_connection((\"localhost\", 8433)).makefile().read())"


def sql(host, query):
    return host.run_expect([0], f"runuser -u postgres -- psql -XAt -v ON_ERROR_STOP=1 -c \"{query}\"").stdout.strip()


def changed(done):
    """The number of changed tasks; an error if the play has failed."""
    assert done.returncode == 0, done.stdout
    return int(re.search(HOST + r" .*changed=(\d+)", done.stdout).group(1))


def resident(host, path):
    return int(host.run_expect([0], f"fincore --bytes --noheadings --output RES {path}").stdout)


def get(host):
    """HTTP status and what it says."""
    program = "import http.client, sys; c = http.client.HTTPConnection(\"localhost\", 8432); c.request(\"GET\", \"/\"); r = c.getresponse()"
    answer = host.run_expect([0], f"/usr/bin/python3 -c '{program}; print(r.status, r.read().decode())'").stdout
    status, _space, body = answer.partition(" ")
    return int(status), json.loads(body)


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.5)


def test_a_server_that_nobody_watches(host, play):
    """Preloaded by a rolling restart of one host; killed, with a cold table, systemd starts it, and the table is back without a controller."""
    assert changed(play(hosts=HOST, roles=["pgfleet.cache.cache_unattended"], vars=ALONE)) > 0
    assert changed(play(hosts=HOST, roles=["pgfleet.cache.cache_unattended"], vars=ALONE)) == 0
    table = DATA_DIRECTORY + "/" + sql(host, "SELECT pg_relation_filepath('passenger')")
    sql(host, "SET max_parallel_workers_per_gather = 0; SELECT count(remark) FROM passenger")
    before = resident(host, table)
    host.run_expect([0], f"systemctl restart {UNIT}")  # which saves
    eventually(lambda: sql(host, "SELECT state FROM residency_worker") == "waiting")
    host.run_expect([0], f"systemctl kill --signal=KILL --kill-whom=all {UNIT}")
    eventually(lambda: host.run(f"systemctl is-active {UNIT}").stdout.strip() in ("failed", "inactive"))
    host.run_expect([0], f"/usr/bin/python3 -c '{EVICT}' {table}")
    cold = resident(host, table)
    host.run_expect([0], f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    eventually(lambda: sql(host, "SELECT state FROM residency_worker") == "waiting")
    assert cold < before / 4 and resident(host, table) > before * 0.9, (before, cold, resident(host, table))


def test_what_load_balancers_hear(host, play):
    """The role is idempotent, follows its variables, and leaves nothing."""
    role = {"hosts": HOST, "roles": ["pgfleet.cache.cache_readiness"]}
    assert changed(play(**role)) > 0
    assert changed(play(**role)) == 0
    status, said = get(host)
    assert status in (200, 503) and said["snapshot"] == "autosave" and (said["state"] == "ready" or said["residency"] > 0), said
    assert re.fullmatch(r"up [1-9]\d*%\n*", host.run_expect([0], f"/usr/bin/python3 -c '{ASK}'").stdout)
    host.run_expect([0], f"systemctl stop {UNIT}")
    eventually(lambda: get(host)[0] == 503 and get(host)[1]["state"] == "down")
    assert host.run_expect([0], f"/usr/bin/python3 -c '{ASK}'").stdout.strip() == "up 1%"
    host.run_expect([0], f"systemctl start {UNIT}")
    eventually(lambda: get(host)[1]["state"] != "down")
    assert changed(play(**role, vars={"cache_readiness_min_residency": 0})) > 0 and get(host)[0] == 200
    assert changed(play(**role, vars={"cache_readiness_state": "absent"})) > 0
    assert changed(play(**role, vars={"cache_readiness_state": "absent"})) == 0
    assert host.run("ls /etc/systemd/system/*/pgfleet-readiness* /etc/systemd/system/pgfleet-readiness* /usr/local/lib/pgfleet/*").stdout == ""


def test_no_longer(host, play):
    assert changed(play(hosts=HOST, roles=["pgfleet.cache.cache_unattended"], vars=dict(ALONE, cache_unattended_state="absent"))) > 0
    assert sql(host, "SHOW shared_preload_libraries") == "" and sql(host, "SELECT state FROM residency_worker") == "not preloaded"
