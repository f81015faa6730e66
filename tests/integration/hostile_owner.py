# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the operating system user of a cluster can plant in a data directory, and the modules as root beside it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys

import pytest
from cluster import OWNER, free_port
from playbook import task

EVICT, INFO, LIMIT = "cache_evict", "residency_info", "page_cache_limit"
LIMITED = "/var/lib/pgfleet/page_cache_limit.json"
BOTH = ["page_cache", "shared_buffers"]
SECRET = "root-only-words"
SIZE = 1 << 15
SECONDS = 120  # for a module: what blocks is a failure, not a test that hangs
ROLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "roles")

# a busy exchange of two names, by renameat2(2), so that one of the two is always there
FLIPPER = """
import ctypes, os, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
libc = ctypes.CDLL(None)
first = True
pairs = [(sys.argv[at].encode(), sys.argv[at + 1].encode()) for at in range(3, len(sys.argv), 2)]
while True:
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)  # which fails while a name leads through an exchanged directory
    if first:
        os.write(1, b".")
    first = False
"""


# The modules without Ansible around them, each in a process of its own, because there are some hundred calls
HARNESS = """
import json, os, resource, signal, sys, traceback, types
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.modules import cache_evict, page_cache_limit, residency_info

login = {name: option.get("default") for name, option in module_argument_spec().items()}
info = {name: option.get("default") for name, option in residency_info.OPTIONS.items()}
evict = {"scope": "cluster", "layers": ["page_cache"], "method": "functions", "service": None, "relations": [], "databases": [],
         "level": 3, "force": False, "data_directory": None}
limit = {"state": "present", "size": None, "method": "huge_pages", "service": None, "data_directory": None}
MODULES = {
    "cache_evict": (cache_evict, dict(login, **evict)),
    "residency_info": (residency_info, dict(login, **info)),
    "page_cache_limit": (page_cache_limit, limit),
}

def call(module, params, check):
    try:
        called, defaults = MODULES[module]
        return called.run(types.SimpleNamespace(params=dict(defaults, **params), check_mode=check))
    except ResidencyError as error:
        return dict(error.result, failed=True, msg=str(error))
    except BaseException:
        return {"failed": True, "msg": traceback.format_exc()}

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # what reads without end fails, and the machine lives on
for line in sys.stdin:
    module, params, check, seconds = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        sys.stdout.write(json.dumps(call(module, params, check)) + "\\n")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps({"failed": True, "msg": "Timed out"}), flush=True)
"""


def give(path):
    shutil.chown(path, OWNER, OWNER)
    return path


@contextlib.contextmanager
def exchanged(*pairs):
    """By the user, busily, while the block runs."""
    user = pwd.getpwnam(OWNER)
    words = [path for pair in pairs for path in pair]
    one = subprocess.Popen([sys.executable, "-c", FLIPPER, str(user.pw_uid), str(user.pw_gid), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert one.stdout.read(1) == b".", one.stderr.read()
        yield
        assert one.poll() is None, one.stderr.read()
    finally:
        one.kill()
        one.wait()


class Hostile:
    """A directory of the user's own that looks like a stopped cluster, and what is none of the user's business."""

    def __init__(self, home, private):
        self.home = home
        self.data = os.path.join(home, "data")
        self.private = private
        self.secret = os.path.join(private, "secret")
        self.marker = os.path.join(home, "marker")
        self.processes = []
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("%s/bin/postgres '%s'\n" % (home, SECRET) + "x" * SIZE)
        os.makedirs(os.path.join(private, "5"))
        os.makedirs(os.path.join(private, "PG_15_202209061", "5"))
        for name in ("5/16001", "1262", "PG_15_202209061/5/16001", "warm@1.snapshot", "warm@1.names"):
            os.link(self.secret, os.path.join(private, name))
        with open(self.secret, "rb") as file:
            self.digest = hashlib.sha256(file.read()).hexdigest()
        self.make()

    def make(self):
        for folder in ("", "base", "base/5", "global", "pg_tblspc", "pg_residency"):
            os.mkdir(os.path.join(self.data, folder), 0o700)
            give(os.path.join(self.data, folder))
        self.write("PG_VERSION", "15\n")
        self.write("base/5/16001", "x" * 8192)
        self.write("global/1262", "x" * 8192)

    def path(self, name):
        return os.path.join(self.data, name)

    def write(self, name, text, mode=0o600):
        path = os.path.join(self.data, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return give(path)

    def replace(self, name, target):
        path = self.path(name)
        if os.path.lexists(path):
            os.rename(path, path + ".was")
        os.symlink(target, path)
        os.chown(path, pwd.getpwnam(OWNER).pw_uid, -1, follow_symlinks=False)

    def pipe(self, name):
        path = self.path(name)
        if os.path.lexists(path):
            os.unlink(path)
        os.mkfifo(path)
        give(path)

    def sparse(self, name, size=8 << 40):
        with open(self.path(name), "w") as file:
            os.truncate(file.fileno(), size)
        give(self.path(name))

    def process(self, directory, user=OWNER):
        """Started in a directory, as a postmaster is."""
        one = subprocess.Popen(["sleep", "600"], cwd=directory, user=user, group=pwd.getpwnam(user).pw_gid)
        self.processes.append(one)
        return one

    def program(self, name):
        """One that leaves behind who ran it, and with which words."""
        path = os.path.join(self.home, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\necho \"$(id -u) $*\" >>%s\nsleep 0.1\nexit 1\n" % self.marker)
        os.chmod(path, 0o755)
        return give(path)

    def ran(self):
        """Who ran the program, and with what."""
        if not os.path.exists(self.marker):
            return []
        with open(self.marker) as file:
            return [line.split(" ", 1) for line in file.read().splitlines()]

    @contextlib.contextmanager
    def watched(self):
        """Nobody opens the secret meanwhile, by whichever of its names: neither to read nor to count nor to evict it."""
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_NONBLOCK)
        try:
            assert libc.inotify_add_watch(watch, self.secret.encode(), 0x20) > 0  # IN_OPEN
            yield
            with pytest.raises(BlockingIOError):
                os.read(watch, 4096)
        finally:
            os.close(watch)

    def exchanged(self, *pairs):
        return exchanged(*[(os.path.join(self.home, one), os.path.join(self.home, other)) for one, other in pairs])

    def close(self):
        for one in self.processes:
            one.kill()
            one.wait()


def bounded(module, **arguments):
    return dict(task(module, **arguments), timeout=SECONDS)


def every_module(data):
    """Whatever a module does with a data directory as root, without what would empty this machine's page cache."""
    return [
        bounded(EVICT, data_directory=data),
        bounded(EVICT, data_directory=data, scope="relation", relations=["*"]),
        bounded(EVICT, data_directory=data, layers=BOTH, method="restart", check=True),
        bounded(EVICT, data_directory=data, layers=BOTH, method="restart"),
        bounded(EVICT, data_directory=data, scope="host", force=True, check=True),
        bounded(INFO, data_directory=data, subset=["databases", "relations", "segments", "snapshots"], limit=1000),
        bounded(INFO, data_directory=data, subset=["capabilities"]),
        bounded(LIMIT, data_directory=data, method="cgroup", size="1GB", check=True),
        bounded(LIMIT, data_directory=data, method="cgroup", size="1GB"),
    ]


def without_ansible(tasks):
    """As Ansible.tasks, by the modules' own functions."""
    lines = []
    for one in tasks:
        [(name, arguments)] = [(key, value) for key, value in one.items() if key.startswith("pgfleet.cache.")]
        lines.append(json.dumps([name.rpartition(".")[2], arguments, one["check_mode"], SECONDS]))
    done = subprocess.run(
        [sys.executable, "-c", HARNESS], input="\n".join(lines), stdout=subprocess.PIPE, universal_newlines=True, check=True,
        env=dict(os.environ, PYTHONPATH=os.environ["ANSIBLE_COLLECTIONS_PATH"]),
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def attack(hostile, results_of, tasks=None):
    """Run modules as root; what has to hold whatever is planted."""
    with hostile.watched():
        results = results_of(tasks or every_module(hostile.data))
    for result in results:
        text = json.dumps(result)
        assert SECRET not in text and hostile.digest not in text, result
        assert "Timed out" not in text and "Traceback" not in text and "MODULE FAILURE" not in text, result
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", result.get("msg", "")), result
        if result.get("failed"):
            assert 0 < len(result["msg"]) < 1000, result
        assert result.get("bytes", 0) < SIZE, "nothing of root's is counted"
    assert [who for who, dummy in hostile.ran() if who == "0"] == []
    limited = os.path.exists(LIMITED)
    if limited:
        os.unlink(LIMITED)  # or every attack after this one fails
    assert not limited
    return results


class Neighbour:
    """A cluster of another operating system user."""

    user = "nobody"

    def __init__(self, machine):
        self.bin = machine.bin
        self.home = os.path.join(machine.directory, "neighbour")
        self.data = os.path.join(self.home, "data")
        self.port = free_port()
        os.mkdir(self.home, 0o755)
        shutil.chown(self.home, self.user, "nogroup")
        self.run("initdb", "-D", self.data, "--no-sync", "-U", "postgres", "--auth=trust")
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.write("listen_addresses = ''\nport = %d\nunix_socket_directories = '%s'\nshared_buffers = '16MB'\nautovacuum = off\n" % (self.port, self.home))
        self.start()

    def run(self, program, *words):
        subprocess.run(
            [os.path.join(self.bin, program), *words], user=self.user, group="nogroup", extra_groups=[], check=True, cwd="/",
            stdout=subprocess.DEVNULL,
        )

    def start(self):
        self.run("pg_ctl", "start", "--wait", "--silent", "-D", self.data, "-l", os.path.join(self.home, "log"))

    def pid(self):
        with open(os.path.join(self.data, "postmaster.pid")) as file:
            return int(file.readline())

    def close(self):
        self.run("pg_ctl", "stop", "--wait", "--silent", "-m", "immediate", "-D", self.data)
        shutil.rmtree(self.home)
