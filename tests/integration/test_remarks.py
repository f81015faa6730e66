# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each reason why a restore does not end with everything resident, brought about on a real server.

What is gone is in test_playbooks.py, the memory cgroup's limit in test_memory.py, and the wait for another cluster in test_several_clusters.py.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from playbook import documented, in_seconds, keys, task
from residency import held, is_there

RESTORE = "residency_restore"
RELATION = '"Boarding Pass"'


@pytest.fixture
def cold(cluster):
    """A snapshot that has all of one table of 8.9 MB, which is not in the page cache now; its file."""
    path = cluster.file_of(RELATION)
    with held(path):
        cluster.sql("SELECT FROM residency_snapshot('reasons', 1, true)")
    cluster.cool(path)
    return path


def said(result, pattern):
    found = [one for one in result["remarks"] if re.fullmatch(pattern, one)]
    assert found and found[0] in result["msg"], result["msg"]
    assert keys(result) == documented(RESTORE)


def wait_for(cluster, job):
    deadline = time.monotonic() + 60
    while cluster.sql("SELECT finished_at IS NULL FROM residency_jobs WHERE job = %d" % job) != "f":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_reclaimed_before_the_count(cluster, cold, as_postgres, login):
    some = dict(login, name="reasons", relations=["Boarding Pass"], min_residency=0)
    [started] = as_postgres(task(RESTORE, wait=False, **some))
    wait_for(cluster, started["job"])
    assert is_there(cold)
    cluster.cool(cold)
    [result] = as_postgres(task(RESTORE, job=started["job"], **some))
    assert result["reached"] and result["reclaimed"] == result["missing"] > 900
    said(result, r"\d\.\d\d MB was in memory during the restore, and the kernel has reclaimed it within \S+ s\.")


def test_over_the_option(cluster, cold, as_postgres, login):
    [result] = as_postgres(task(RESTORE, name="reasons", relations=["Boarding Pass"], min_residency=0, budget="2MB", **login))
    assert result["over_budget"] > 0
    said(result, r"\d\.\d\d MB did not fit the memory budget of 2\.00 MB, which the option budget sets\.")


@pytest.mark.parametrize("by", ["deadline", "wait_timeout"])
def test_not_in_time(cluster, cold, as_postgres, login, by):
    limit = {"deadline": in_seconds(8)} if by == "deadline" else {"wait_timeout": 4}
    [result] = as_postgres(task(RESTORE, name="reasons", relations=["Boarding Pass"], min_residency=0, rate="512kB", **dict(login, **limit)))
    assert result["state"] == "canceled" and result["not_reached"] > 0, result["msg"]
    added = r", by the deadline 2\d{3}-\d\d-\d\d \d\d:\d\d:\d\dZ" if by == "deadline" else ""
    said(result, r"\d\.\d\d MB was not loaded before job %d ended \(the time limit of \d+ s was reached%s\)\." % (result["job"], added))


def test_a_file_that_cannot_be_read(cluster, cold, as_postgres, login):
    """While the job runs; whoever looks afterwards finds it in order."""
    number = os.path.basename(cold)
    segments = cluster.sql(
        "SELECT jsonb_build_object('segments', jsonb_agg(segment_no)) FROM residency_snapshot_segments('reasons') WHERE relfilenumber = %s AND fork = 'main'"
        % number
    )
    os.chmod(cold, 0)
    try:
        job = int(cluster.sql("SELECT residency_restore_start('reasons', '%s')" % segments))
        wait_for(cluster, job)
    finally:
        os.chmod(cold, 0o600)
    [result] = as_postgres(task(RESTORE, name="reasons", job=job, min_residency=0, **login))
    assert result["failed_blocks"] > 900
    said(result, r"\d\.\d\d MB failed: Permission denied\.")
    said(result, r'Job %d, done: could not restore file ".*": Permission denied\.' % job)


def test_what_reclaims_by_itself(cluster, as_postgres, by_password, ansible, login):
    """Said where it is so, by the socket and by TCP on the same host, and also when nothing is missing; of a snapshot only if it is thin."""
    cluster.warm(cluster.file_of("pg_database"))
    cluster.sql("SELECT FROM residency_snapshot('reasons', 1, true)")
    one = {"name": "reasons", "relations": ["pg_database"], "min_residency": 0}
    [seen, local, saved] = as_postgres(
        task("residency_info", subset=["capabilities"], **login), task(RESTORE, **dict(one, **login)), task("residency_snapshot", name="later", **login))
    [remote] = ansible.tasks([task(RESTORE, **dict(one, **by_password("operator")))])
    # in a container, root sees what the cluster's user cannot
    states = [path.read_text() for path in Path("/sys/kernel/mm/damon/admin/kdamonds").glob("*/state")]
    kdamonds = seen["capabilities"]["proactive_reclaim"]["kdamonds"]
    for result, runs in ((local, kdamonds), (saved, None), (remote, "on\n" in states)):
        assert any(text.startswith("DAMON runs on this host: ") for text in result["remarks"]) is bool(runs)
