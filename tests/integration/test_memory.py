# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server with less memory than its snapshot needs: in a cgroup of its own, as in a container or a systemd slice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time

import pytest
from cluster import OWNER, run, thorough
from playbook import task
from residency import is_there, there

MIB = 1 << 20
RESTORE = "pgfleet.cache.residency_restore"
# a row per block
TABLE = """
CREATE TABLE %s (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE %s ALTER filler SET STORAGE PLAIN;
INSERT INTO %s SELECT i, repeat('x', 700) FROM generate_series(1, %d) AS i;
VACUUM %s;
"""
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
BLKIO = "/sys/fs/cgroup/blkio"  # version 1


def make_cgroup(hierarchy, name):
    """One that no run which was killed has left."""
    folder = tempfile.mkdtemp(prefix="pgfleet-%s." % name, dir=hierarchy)
    os.chmod(folder, 0o755)  # the server's user reads its limits and counters
    return folder


def remove_cgroup(folder):
    """Once the last of its processes is gone."""
    for _attempt in range(300):
        try:
            return os.rmdir(folder)
        except OSError:
            time.sleep(0.1)
    return os.rmdir(folder)


class MemoryCgroup:
    def __init__(self, name):
        self.v1 = os.path.isdir(V1)
        if not self.v1:
            self._write(os.path.join(V2, "cgroup.subtree_control"), "+memory")
        self.folder = make_cgroup(V1 if self.v1 else V2, name)

    def limit(self, count):
        self._write(os.path.join(self.folder, "memory.limit_in_bytes" if self.v1 else "memory.max"), str(count))

    def start(self, cluster):
        """The server, and with it all that it will have in memory."""
        start = "echo $$ >%s/cgroup.procs && exec setpriv --reuid %s --regid %s --init-groups %s/pg_ctl start --wait --silent -D %s -l %s"
        run("sh", "-c", start % (self.folder, OWNER, OWNER, cluster.bin, cluster.data, cluster.log))

    def remove(self):
        remove_cgroup(self.folder)

    @staticmethod
    def _write(path, text):
        with open(path, "w") as file:
            file.write(text)


@pytest.fixture(scope="module")
def narrow(machine, cluster):
    """A cluster with two tables, `large` of 512 MiB and `hot` of 64 MiB, its snapshot `all` of both, and its cgroup."""
    one = machine("narrow")
    for name, mebibytes in (("large", 512), ("hot", 64)):
        one.sql(TABLE % (name, name, name, mebibytes * 128, name))
    one.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    run("sync", "--file-system", one.data)
    one.cgroup = MemoryCgroup("narrow")
    yield one
    one.stop("immediate")
    one.cgroup.remove()


@pytest.fixture
def in_cgroup(narrow):
    """Restarts the server within the limit, its files evicted: what it had loaded before was charged to others."""

    def restart(limit):
        files = [narrow.file_of(name) for name in ("large", "hot")]
        for path in files:
            narrow.warm(path)
        narrow.sql("SELECT FROM residency_snapshot('all')")
        narrow.stop()
        for path in files:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert narrow.resident(path) < MIB
        narrow.cgroup.limit(limit)
        narrow.cgroup.start(narrow)
        return files

    return restart


def restore(as_postgres, one, check=False, **arguments):
    [result] = as_postgres(
        task(RESTORE, check=check, name="all", login_port=one.port, login_unix_socket=one.socket, **arguments)
    )
    return result


def test_a_quarter_fits_and_is_called_a_quarter(narrow, in_cgroup, as_postgres):
    """512 MiB into 128 MiB: what a naive restore would report as done."""
    large, dummy = in_cgroup(128 * MIB)
    result = restore(as_postgres, narrow, relations=["large"])
    assert result["failed"] and result["changed"]
    resident = 100 * narrow.resident(large) / (512 * MIB)
    assert 10 <= result["residency"] <= 25.5
    # seen from outside; the kernel may page out what nobody touches
    assert result["residency"] - 5 <= resident <= 25.5
    assert 0 < result["over_budget"] <= result["missing"] <= 1.05 * result["over_budget"]
    assert re.search(r"did not fit the memory budget of [\d.]+ MB: the limit is the server's memory cgroup, which has room for ", result["msg"]), result["msg"]
    assert narrow.sql("SELECT count(*) FROM hot") == str(64 * 128), "and the server is still there"


@thorough
def test_a_larger_budget_is_no_more_memory(narrow, in_cgroup, as_postgres):
    """The option is an upper bound, in check mode and for the job."""
    large, dummy = in_cgroup(128 * MIB)
    check = restore(as_postgres, narrow, relations=["large"], budget="100GB", check=True)
    result = restore(as_postgres, narrow, relations=["large"], budget="100GB")
    for one in (check, result):
        assert 0 < one["budget_bytes"] <= 128 * MIB
        assert one["over_budget"] > 0
    assert narrow.resident(large) <= 128 * MIB


@thorough
def test_the_working_set_of_the_foreground_stays(narrow, in_cgroup, as_postgres):
    """What is read again and again is in the way of a restore that is too large, and not the other way round."""
    large, hot = in_cgroup(256 * MIB)
    for _time in range(4):
        narrow.sql("SELECT count(*) FROM hot")
    assert is_there(hot)
    before = there(hot)
    result = restore(as_postgres, narrow, relations=["large"])
    assert result["failed"] and result["over_budget"] > 0
    assert result["budget_bytes"] <= 256 * MIB - before, "its memory is not even tried for"
    assert narrow.resident(large) >= 0.2 * 512 * MIB
    # a cgroup at its limit gives up a little of what was read last, too
    assert narrow.resident(hot) >= 0.5 * before


EAT = """
eaten = []
while True:
    eaten.append(bytearray(b"x") * (4 << 20))
"""


def test_a_hold_is_no_victim_of_others(narrow, in_cgroup):
    """A process of the server's cgroup that takes all of its memory is what the kernel ends. The held files are charged to others, and more."""
    files = in_cgroup(300 * MIB)
    for path in files:
        narrow.warm(path)
    job = narrow.sql("SELECT residency_restore_start('all', jsonb_build_object('hold_until', now() + '1 h', 'hold_interval', 1))")
    for _attempt in range(600):
        if narrow.sql("SELECT counted_at IS NOT NULL FROM residency_jobs WHERE job = %s" % job) == "t":
            break
        time.sleep(0.1)
    row = "SELECT state, pid, pg_postmaster_start_time(), (SELECT min(backend_start) FROM pg_stat_activity) FROM residency_jobs WHERE job = %s" % job
    before = narrow.sql(row)
    assert before.startswith("holding"), before
    assert int(narrow.sql("SELECT mapped_bytes FROM residency_jobs WHERE job = %s" % job)) > 0, "it maps what is safe to map"
    eater = subprocess.run(
        ["sh", "-c", "echo $$ >%s/cgroup.procs && exec /usr/bin/python3 -c '%s'" % (narrow.cgroup.folder, EAT)], check=False, timeout=120
    )
    assert eater.returncode == -signal.SIGKILL
    assert narrow.sql(row) == before, "nothing of the server was ended"
    narrow.sql("SELECT residency_cancel(%s)" % job)


def test_a_rolling_restart_foresees_it(narrow, in_cgroup, ansible, machine):
    """What others have warmed would not fit into the server's own memory after a restart: said before anything is done."""
    large, hot = in_cgroup(128 * MIB)
    for path in (large, hot):
        narrow.warm(path)
    started = narrow.sql("SELECT pg_postmaster_start_time()")
    ansible.set_hosts(
        {"db1": {}}, pgfleet_login_port=narrow.port, pgfleet_login_unix_socket=narrow.socket, cache_restart_min_standbys=0,
        pgfleet_service_manager=__file__, pgfleet_state_directory=os.path.join(machine.directory, "state"),
    )
    output, status = ansible.command("pgfleet.cache.rolling_restart")
    assert status != 0
    pattern = (
        r"\d+\.\d\d MB are resident, but there is memory for only \d+\.\d\d MB of page cache: cache_restart_min_residency \(90 %\) cannot be reached"
        " after a restart. Give db1 more memory, or lower it."
    )
    assert re.search(pattern, " ".join(output.split())), output
    assert narrow.sql("SELECT pg_postmaster_start_time()") == started
