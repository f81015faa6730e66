# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock and the fleet of make demo, by copies of its files that know other directories than this machine's."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile

import pytest
from cluster import thorough

ROOT = os.path.join(os.path.dirname(__file__), "../..")


def write(source, path, *changes):
    """A copy of a file of the repository with other strings in it, each of which it has to contain."""
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        text = file.read()
    for old, new in changes:
        assert old in text, (source, old)
        text = text.replace(old, new)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def outcome(command, **options):
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, **options)
    return done.stdout, done.returncode


@pytest.fixture
def demo(tmp_path):
    """Runs a script of the demonstration, which has no room for a fleet, and so ends where the lock has let it pass."""
    for name in ("demo/run", "demo/clean", "build-tools/lib.sh"):
        changes = [("/run/pgfleet", str(tmp_path / "lock")), ("/var/lib/pgfleet-demo", str(tmp_path / "fleet"))]
        write(name, tmp_path / name, *changes if name.startswith("demo/") else [])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/df").write_text("#!/bin/sh\necho 0\n")
    (tmp_path / "bin/df").chmod(0o755)
    (tmp_path / "fleet").mkdir()

    def run(script):
        return outcome([str(tmp_path / "demo" / script)], env=dict(os.environ, PATH="%s:%s" % (tmp_path / "bin", os.environ["PATH"])), timeout=60)

    return run


def test_two_demonstrations_do_not_take_the_fleet_from_each_other(demo, tmp_path):
    output, status = demo("run")
    assert status != 0 and "0 GiB free" in output, output
    lock = tmp_path / "lock"
    assert os.stat(str(lock)).st_uid == 0 and stat.S_IMODE(os.stat(str(lock)).st_mode) == 0o755
    with open(str(lock / "demo.lock")) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nothing has kept it
        output, status = demo("run")
        assert status != 0 and "Another make demo is running on this host." in output, output
        output, status = demo("clean")
        assert status != 0 and "A make demo is running on this host." in output, output
        assert (tmp_path / "fleet").is_dir()
    output, status = demo("clean")
    assert status == 0 and not (tmp_path / "fleet").exists(), output


@pytest.fixture
def small_clone(tmp_path):
    """A clone that only root can enter, with a space in its path, whose tables are small; and the directory of its fleet."""
    clone = tmp_path / "two words"
    clone.mkdir(mode=0o700)
    fleet = tempfile.mkdtemp(prefix="pgfleet_demo.", dir="/var/tmp")
    for folder, dummy, names in os.walk(os.path.join(ROOT, "demo")):
        for name in names:
            source = os.path.relpath(os.path.join(folder, name), ROOT)
            changes = {
                "inventory.yml": [("/var/lib/pgfleet-demo", fleet)],
                "tables.sql": [("2500000", "25000"), ("16500000", "165000")],
                "volume": [("/sys/fs/cgroup/blkio", "/nonexistent"), ("/run/systemd/system", "/nonexistent")],
                "clean": [("/var/lib/pgfleet-demo", fleet), ("/var/lib/pgfleet/", fleet + "/"), ("/run/pgfleet", str(tmp_path / "lock"))],
            }
            write(source, clone / source, *changes.get(name, []))
    write("build-tools/lib.sh", clone / "build-tools/lib.sh")
    # instead of the copy of PostgreSQL into which the demonstration installs the extension
    os.makedirs(os.path.join(fleet, "usr/lib/postgresql"))
    os.symlink("/usr/lib/postgresql/15", os.path.join(fleet, "usr/lib/postgresql/15"))
    yield clone, fleet
    output, status = outcome([str(clone / "demo/clean")], timeout=60)
    assert status == 0 and not os.path.exists(fleet), output


@thorough
def test_fleet_of_a_clone_that_postgres_cannot_read(small_clone):
    clone, fleet = small_clone
    output, status = outcome(["ansible-playbook", "fleet.yml"], cwd=str(clone / "demo"), env=dict(os.environ, ANSIBLE_NOCOLOR="True"), timeout=300)
    assert status == 0, output
    counted = subprocess.check_output(
        ["su", "postgres", "-c", "psql -XAtq -h %s/run -p 54322 postgres_air -c 'SELECT count(*) FROM boarding_pass'" % fleet],
        universal_newlines=True, timeout=60, cwd="/")
    assert counted == "165000\n"
    # another clone's demonstration begins with this
    other = clone.with_name("another")
    shutil.copytree(str(clone), str(other))
    output, status = outcome([str(other / "demo/clean")], timeout=60)
    assert status == 0 and re.fullmatch("==> Removing the fleet of an earlier run: .*\n", output) and not os.path.exists(fleet), output
