# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of make demo, by copies of its scripts that know other directories than this machine's."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess

import pytest

ROOT = os.path.join(os.path.dirname(__file__), "../..")


@pytest.fixture
def demo(tmp_path):
    """Runs a script of the demonstration, which has no room for a fleet, and so ends where the lock has let it pass."""
    for name in ("demo/run", "demo/clean", "build-tools/lib.sh"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read()
        path.write_text(text.replace("/run/pgfleet", str(tmp_path / "lock")).replace("/var/lib/pgfleet-demo", str(tmp_path / "fleet")))
        path.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/df").write_text("#!/bin/sh\necho 0\n")
    (tmp_path / "bin/df").chmod(0o755)
    (tmp_path / "fleet").mkdir()

    def run(script):
        done = subprocess.run(
            [str(tmp_path / "demo" / script)], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            universal_newlines=True, env=dict(os.environ, PATH="%s:%s" % (tmp_path / "bin", os.environ["PATH"])), timeout=60,
        )
        return done.stdout, done.returncode

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
