"""Ten kills at random moments: each time the working set comes back, without a controller.

The kernel is asked from outside, at the files of the hosts' volumes. Nothing here asks the collection; the extension's view is asked once, at the end.
"""

from __future__ import annotations

import ctypes
import glob
import os
import random
import subprocess
import time

import pytest

KILLS = 10
SEED = int(os.environ.get("REBOOT_SEED", "") or random.SystemRandom().randrange(1 << 32))
BACK = 0.9  # of the pages that were there
PATIENCE = 120  # seconds from the start of a host until the pages are back
CACHESTAT = 451  # on every architecture
libc = ctypes.CDLL(None, use_errno=True)


def docker(*words):
    return subprocess.run(["docker", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Host:
    def __init__(self, name):
        self.name = name
        volumes = docker("inspect", "--format", '{{range .Mounts}}{{if eq .Type "volume"}}{{.Source}}{{end}}{{end}}', name)
        [self.data] = glob.glob(volumes + "/*/main")
        database = self.sql("SELECT oid FROM pg_database WHERE datname = 'bench'", "postgres")
        files = self.sql("SELECT pg_relation_filepath(oid) FROM pg_class WHERE relname IN ('pgbench_accounts', 'pgbench_accounts_pkey')").split()
        assert len(files) == 2 and files[0].startswith("base/%s/" % database)
        self.files = [os.path.join(self.data, one) for one in files]

    def sql(self, query, database="bench"):
        return docker("exec", "--user", "postgres", self.name, "psql", "-XAt", "-d", database, "-c", query)

    def serves(self):
        words = ["docker", "exec", "--user", "postgres", self.name, "psql", "-XAt", "-d", "bench", "-c", "SELECT 1"]
        return subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def load(self):
        """Clients that write, so that a start has to recover."""
        docker("exec", "--detach", "--user", "postgres", self.name, "sh", "-c", '"$(pg_config --bindir)/pgbench" --client=2 --time=600 --rate=200 bench')

    def pages(self):
        """Of the working set, in the page cache or reclaimed by the kernel itself since, by cachestat(2); before Linux 6.5 by fincore(1)."""
        found = 0
        for path in self.files:
            whole, counts = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
            with open(path, "rb") as file:
                if libc.syscall(CACHESTAT, file.fileno(), whole, counts, 0):
                    found += int(subprocess.run(
                        ["fincore", "--noheadings", "--output", "PAGES", path], check=True, stdout=subprocess.PIPE, text=True).stdout)
                else:
                    found += counts[0] + counts[3]
        return found

    def lose_power(self):
        """What is only in memory is gone, but for dirty pages: no disk here forgets what it was given."""
        docker("kill", self.name)
        for path in self.files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                present = subprocess.run(["fincore", "--noheadings", "--bytes", "--output", "RES", path], check=True, stdout=subprocess.PIPE, text=True)
            assert int(present.stdout) <= os.path.getsize(path) / 20, "%s is not cold" % path

    def start(self):
        docker("start", self.name)


def until(condition, what, seconds=PATIENCE):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, what
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.parametrize("name", ["reboot-15", "reboot-17"])
def test_ten_kills(name):
    chance = random.Random(SEED)
    host = Host(name)
    host.sql("SELECT count(filler) FROM pgbench_accounts; SET enable_seqscan = off; SELECT count(*) FROM pgbench_accounts WHERE aid > 0")
    warm = host.pages()
    generation = int(host.sql("SELECT max(generation) FROM residency_snapshots() WHERE name = 'autosave'"))
    until(lambda: int(host.sql("SELECT generation FROM residency_worker") or 0) > generation + 1, "it does not save")
    print("%s, REBOOT_SEED=%d: %d pages are warm" % (name, SEED, warm))
    host.load()
    for kill in range(1, KILLS + 1):
        moment, twice = chance.uniform(0, 6), chance.random() < 0.5
        time.sleep(moment)
        host.lose_power()
        again = ""
        if twice:  # once more, while it boots, recovers or restores
            soon = chance.uniform(0, 5)
            host.start()
            time.sleep(soon)
            host.lose_power()
            again = ", again %.1f s after the start" % soon
        host.start()
        until(host.serves, "PostgreSQL does not come up")
        cold = host.pages()
        seconds = until(lambda: host.pages() >= BACK * warm, "kill %d: %d of %d pages are back" % (kill, host.pages(), warm))
        print("kill %2d: %.1f s after the last was warm%s; it serves with %3.0f %%, %.1f s later %3.0f %% are back" % (
            kill, moment, again, 100 * cold / warm, seconds, 100 * host.pages() / warm))
        host.load()
    until(lambda: host.sql("SELECT state IN ('waiting', 'saving') AND failures = 0 AND generation > 0 FROM residency_worker") == "t", "it does not save")
    assert host.sql("SELECT count(*) FROM residency_snapshots() WHERE name = 'autosave' AND problem IS NOT NULL") == "0"
    unfinished = os.path.join(host.data, "pg_residency", "pgsql_tmp.snapshot.[0-9]*")
    until(lambda: not glob.glob(unfinished), "what a save left that was killed stays: %s" % glob.glob(unfinished))
