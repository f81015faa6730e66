# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A restore that holds what it has restored: by the module, by the role, and how it ends."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timedelta, timezone

import pytest
from cluster import LOOSE, quick, run, thorough
from playbook import documented, four, in_seconds, keys, task
from residency import held as mapped_here
from residency import is_there

RESTORE = "residency_restore"
WORKER = "pg_residency restore"


def soon(seconds):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%SZ")


@pytest.fixture
def held(cluster, as_postgres, login):
    """A table with a snapshot, cold; afterwards no job."""
    path = cluster.file_of("passenger")
    with mapped_here(path):
        [saved] = as_postgres(task("residency_snapshot", name="held", force=True, **login))
    assert not saved.get("failed"), saved["msg"]
    cluster.cool(path)
    yield path
    cluster.sql("SELECT residency_cancel(job) FROM residency_jobs WHERE state = 'holding'")
    until = time.monotonic() + 30
    while any(WORKER in line for line in cluster.processes()):
        assert time.monotonic() < until
        time.sleep(0.1)


def mapped(cluster, path):
    """Bytes of the file that processes of the cluster have mapped and that are in memory."""
    with open(os.path.join(cluster.data, "postmaster.pid")) as file:
        postmaster = file.readline().strip()
    found = 0
    for pid in run("ps", "-o", "pid=", "--ppid", postmaster).split():
        inside = False
        with open("/proc/%s/smaps" % pid) as file:
            for line in file:
                if "-" in line.split(" ")[0]:
                    inside = line.rstrip("\n").endswith(path)
                elif inside and line.startswith("Rss:"):
                    found += 1024 * int(line.split()[1])
    return found


def well(results):
    for result in results:
        assert not result.get("failed"), result["msg"]
    return results


@quick
def test_four_runs(cluster, as_postgres, login, held):
    size = os.stat(held).st_size
    until = soon(600)
    foreseen, done, foreseen_again, again = well(as_postgres(*four(
        RESTORE, name="held", hold_until=until, hold_interval=1, min_residency=LOOSE, **login)))
    assert keys(done) == documented(RESTORE)
    assert foreseen["changed"] and foreseen["hold"] is None and "Would hold it until %s." % until in foreseen["msg"]
    assert done["changed"] and done["state"] == "holding" and done["hold"]["state"] == "holding"
    assert done["hold"]["until"] == until.replace(" ", "T") and "Held until %s; SELECT residency_cancel(" % done["hold"]["until"] in " ".join(done["remarks"])
    assert is_there(held)
    deadline = time.monotonic() + 30
    while mapped(cluster, held) < 0.95 * size:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert not again["changed"] and again["queries"] == [] and again["hold"]["job"] == done["job"]
    assert not foreseen_again["changed"] and foreseen_again["queries"] == []
    # what another process advises to evict stays
    with open(held, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cluster.resident(held) >= 0.95 * size
    [later] = well(as_postgres(task(RESTORE, name="held", job=done["job"], min_residency=LOOSE, **login)))
    assert later["hold"]["mapped_bytes"] >= 0.95 * size and later["hold"]["reclaim_rate"] >= 0 and later["hold"]["since"] <= later["hold"]["until"]


@thorough
def test_another_restore_ends_it(cluster, as_postgres, login, held):
    """One that loads something, or holds longer."""
    gate = {"min_residency": LOOSE}
    first, longer = well(as_postgres(
        task(RESTORE, name="held", hold_until=soon(300), **gate, **login), task(RESTORE, name="held", hold_until=soon(600), **gate, **login)))
    assert longer["changed"] and longer["job"] > first["job"] and "residency_cancel(%d)" % first["job"] in longer["queries"][0]
    assert cluster.sql("SELECT state FROM residency_jobs WHERE job = %d" % first["job"]) == "canceled"
    cluster.sql("SELECT residency_evict('passenger')")
    [loads] = well(as_postgres(task(RESTORE, name="held", **gate, **login)))
    assert loads["changed"] and loads["state"] == "done" and loads["hold"] is None
    assert cluster.sql("SELECT count(*) FROM residency_jobs WHERE state = 'holding'") == "0"


@thorough
@pytest.mark.parametrize("scope", [{"scope": "relation", "relations": ["public.passenger"]}, {"scope": "cluster"}], ids=["relation", "cluster"])
def test_an_eviction_ends_it(cluster, as_postgres, login, held, scope):
    started, foreseen = well(as_postgres(
        task(RESTORE, name="held", hold_until=soon(600), hold_interval=1, min_residency=LOOSE, **login),
        task("cache_evict", check=True, **scope, **login)))
    assert "residency_cancel(%d)" % started["job"] in foreseen["queries"][0]
    assert cluster.sql("SELECT state FROM residency_jobs WHERE job = %d" % started["job"]) == "holding"
    [evicted] = well(as_postgres(task("cache_evict", **scope, **login)))
    assert evicted["changed"] and "residency_cancel(%d)" % started["job"] in evicted["queries"][0]
    assert cluster.resident(held) == 0 and mapped(cluster, held) == 0


@thorough
def test_it_ends_by_itself(cluster, as_postgres, login, held):
    [started] = well(as_postgres(task(RESTORE, name="held", hold_until=in_seconds(8), hold_interval=1, min_residency=LOOSE, **login)))
    until = time.monotonic() + 60
    while cluster.sql("SELECT state FROM residency_jobs WHERE job = %d" % started["job"]) == "holding":
        assert time.monotonic() < until
        time.sleep(0.2)
    [after] = well(as_postgres(task(RESTORE, name="held", job=started["job"], min_residency=LOOSE, **login)))
    assert after["state"] == after["hold"]["state"] == "done" and not after["changed"]
    assert after["seconds"] == started["seconds"], "of the restore alone"


def test_warmup(fleet, cluster):
    """The role's variable; one that is misspelt is refused before anything is done."""
    output, status = fleet.command("pgfleet.cache.warmup", "--limit", "one", "-e", "cache_warmup_hold_until=tonight")
    assert status != 0 and "cache_warmup_hold_until: hold_until is 'tonight': it must be a date and time with a zone" in " ".join(output.split())
    try:
        output, status = fleet.command(
            "pgfleet.cache.warmup", "--limit", "one", "-e",
            json.dumps({"cache_warmup_hold_until": soon(600), "cache_warmup_min_residency": LOOSE}))
        assert status == 0, output
        assert cluster.sql("SELECT state FROM residency_jobs ORDER BY job DESC LIMIT 1") == "holding"
    finally:
        cluster.sql("SELECT residency_cancel(job) FROM residency_jobs WHERE state = 'holding'")
