# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Throwaway clusters of a copy of PostgreSQL, which finds its files relative to itself.

What is installed into it is gone with it: the machine's own PostgreSQL stays as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest
import residency

MAJOR = int(os.environ.get("PGFLEET_MAJOR", "15"))
OWNER = "postgres"
# How PostgreSQL reads
METHODS = ("worker", "sync", "io_uring") if MAJOR >= 18 else (None,)
# Of several ways through the same, those that make test has not the time for
cuts = pytest.mark.cuts
thorough = pytest.mark.thorough
# One of each file, for work in progress
quick = pytest.mark.quick
# Percent of min_residency where the gate is not the subject: the kernel reclaims pages between the load and the product's count, so that the
# default of 90 fails at times. What a restore has loaded, residency.py counts.
LOOSE = 30
GATE = ("-e", "cache_warmup_min_residency=%d" % LOOSE)
# Below the ports that the kernel assigns by itself. Each process of the tests has a network namespace of its own (build-tools/apart).
_PORTS = itertools.count(20000)
LONG = 180  # seconds for a command that takes its time on a busy host


def free_port():
    return next(_PORTS)


def complete(command, timeout, check=False, **options):
    """subprocess.run with all output in one. A command that is late fails the test with what it has printed."""
    try:
        return subprocess.run(
            command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=timeout, **options)
    except subprocess.TimeoutExpired as late:
        raise AssertionError("Not done within %g s: %s\n%s" % (timeout, " ".join(command), os.fsdecode(late.output or b""))) from None


def heart(values, kept):
    """Of these values of a parameter, those that kept(value) does not choose are thorough. A tuple has the values of several parameters."""
    return [one if kept(one) else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=thorough) for one in values]


def run(*command, user=None, text=None, check=True, timeout=60):
    if user is not None:
        command = ("setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "HOME=/var/empty", *command)
    return complete(command, timeout, check=check, input=text, cwd="/").stdout


def copy_postgresql(directory):
    for part in ("lib", "share", "include"):
        target = os.path.join(directory, "usr", part, "postgresql", str(MAJOR))
        shutil.copytree("/usr/%s/postgresql/%d" % (part, MAJOR), target, symlinks=True)
    return os.path.join(directory, "usr", "lib", "postgresql", str(MAJOR), "bin")


class Cluster:
    def __init__(self, bin_directory, directory, name):
        self.bin = bin_directory
        self.socket = directory
        self.data = os.path.join(directory, name)
        self.log = os.path.join(directory, name + ".log")
        self.port = free_port()

    def create(self):
        run(self.bin + "/initdb", "-D", self.data, "--no-sync", "--auth-local=peer", "--auth-host=scram-sha-256", user=OWNER, timeout=LONG)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.write(
                "listen_addresses = '127.0.0.1'\nport = %d\nunix_socket_directories = '%s'\n"
                "shared_buffers = '16MB'\nautovacuum = off\nbgwriter_lru_maxpages = 0\n" % (self.port, self.socket)
            )
        self.start()

    def clone(self, primary):
        """A streaming standby."""
        run(self.bin + "/pg_basebackup", "-D", self.data, "-h", primary.socket, "-p", str(primary.port), "--checkpoint=fast",
            "--write-recovery-conf", "--no-sync", user=OWNER, timeout=LONG)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.write("port = %d\n" % self.port)
        self.start()

    def start(self):
        try:
            run(self.bin + "/pg_ctl", "start", "--wait", "--silent", "-D", self.data, "-l", self.log, user=OWNER, timeout=LONG)
        except subprocess.CalledProcessError as error:
            with open(self.log, errors="replace") as file:
                raise AssertionError("%s\n%s" % (error, file.read()[-2000:])) from None

    def stop(self, mode="fast"):
        run(self.bin + "/pg_ctl", "stop", "--wait", "--silent", "-m", mode, "-D", self.data, user=OWNER, check=False, timeout=LONG)

    def read_by(self, method):
        """Restarts it with this io_method; None is what there was before PostgreSQL 18."""
        if method is not None:
            self.sql("ALTER SYSTEM SET io_method = '%s'" % method)
            self.stop()
            self.start()
            assert self.sql("SHOW io_method") == method

    def sql(self, text, database="postgres"):
        return run(
            self.bin + "/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.socket, "-p", str(self.port), "-d", database,
            user=OWNER, text=text, timeout=LONG,
        ).strip()

    @contextmanager
    def session(self, application_name, text=""):
        """A session of a client that stays connected after it has run this."""
        command = [self.bin + "/psql", "-XAtq", "-h", self.socket, "-p", str(self.port), "-d", "postgres"]
        environment = dict(os.environ, PGAPPNAME=application_name)
        with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/", user=OWNER, group=OWNER, extra_groups=[], text=True) as psql:
            psql.stdin.write(text + ";\n\\echo there\n")
            psql.stdin.flush()
            while psql.stdout.readline() not in ("there\n", ""):
                pass
            try:
                yield
            finally:
                psql.stdin.close()
        for _attempt in range(100):
            if self.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s'" % application_name) == "0":
                return
            time.sleep(0.1)
        raise AssertionError("%s is still connected" % application_name)

    def file_of(self, relation, database="postgres"):
        quoted = relation.replace("'", "''")
        return os.path.join(self.data, self.sql("SELECT pg_catalog.pg_relation_filepath('%s')" % quoted, database))

    # --- what is there, seen without the collection ---

    def resident(self, path):
        """Bytes in the page cache, by fincore(1)."""
        return int(run("fincore", "--bytes", "--noheadings", "--output", "RES", path))

    def is_restored(self, snapshot, relation="public.passenger"):
        """Whether what the snapshot has of it is there: less than was warmed, where the kernel had reclaimed pages, but not nearly nothing."""
        path = self.file_of(relation)
        wanted = 8192 * int(self.sql("SELECT wanted FROM residency_snapshot_relations('%s') WHERE name = '%s'" % (snapshot, relation)))
        figures = "%s: %d bytes, %d wanted, %d there" % (path, os.path.getsize(path), wanted, residency.there(path))
        assert wanted >= os.path.getsize(path) / 4 and residency.is_there(path, wanted), figures
        return True

    def warm(self, path):
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass

    def cool(self, path):
        self.sql("CHECKPOINT")
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def folder(self):
        """The extension's own files: names, contents, and when they were written."""
        found = {}
        for directory, dummy, names in os.walk(os.path.join(self.data, "pg_residency")):
            for name in names:
                if name == "pgsql_tmp.lock":
                    continue  # whoever gathers names takes a lock
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    found[path] = (hashlib.sha256(file.read()).hexdigest(), os.stat(path).st_mtime_ns)
        return found

    def processes(self):
        """The server's, but for those that come and go by themselves."""
        with open(os.path.join(self.data, "postmaster.pid")) as file:
            postmaster = file.readline().strip()
        lines = run("ps", "-ww", "-o", "args=", "--ppid", postmaster).splitlines()
        return sorted(line for line in lines if "residency" in line)
