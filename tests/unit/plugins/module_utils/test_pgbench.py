# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _pgbench
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


def test_the_log_is_read_as_it_grows(tmp_path):
    """Two threads of one process, one line of which is half written; a transaction that could not be serialized."""
    logs = _pgbench._Logs(str(tmp_path), [2, 1])
    first, second, other = (tmp_path / name for name in ("0.log.77", "0.log.77.1", "1.log.78"))
    first.write_bytes(b"0 0 2000 0 1000 500000\n0 1 1000 1 1001 0\n0 2 30")
    second.write_bytes(b"1 0 failed 1 1001 0\n1 1 40000 1 1001 250000\n")
    other.write_bytes(b"")
    logs.read()
    with open(first, "ab") as file:
        file.write(b"00 0 1002 0\n")
    logs.read()
    logs.read()
    run = logs.run()
    assert [(one.group, one.number, one.done, one.failed, one.slowest) for one in run.sessions] == [
        (0, 0, {0: 2, 1: 1}, 0, {0: 3.0, 1: 1.0}), (0, 1, {1: 1}, 1, {1: 40.0}), (1, 0, {}, 0, {}),
    ]
    assert run.seconds == pytest.approx(1002 - 1000.498)


def test_what_is_read_takes_no_space(tmp_path):
    """As pgbench writes: at its own offset, which stays."""
    logs = _pgbench._Logs(str(tmp_path), [1])
    path = tmp_path / "0.log.1"
    line = b"0 1 1000 0 1000 0\n"
    with open(path, "wb", buffering=0) as file:
        for dummy in range(20):
            file.write(line * 5000)
            logs.read()
        file.flush()
        found = os.fstat(file.fileno())
    assert found.st_size == 20 * 5000 * len(line) and found.st_blocks * 512 < found.st_size / 4
    assert logs.run().sessions[0].done == {0: 100000}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", "pgbench failed: it said nothing."),
        ("pgbench (15.8)\npgbench: error: connection to server failed: FATAL:  too many\npgbench: error: could not\n",
         "pgbench failed: pgbench: error: connection to server failed: FATAL:  too many."),
    ],
)
def test_complaint(said, expected):
    assert _pgbench.complaint(said) == expected


def test_no_program(tmp_path, monkeypatch):
    with pytest.raises(ResidencyError, match="is no program on this host"):
        _pgbench.find(15, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResidencyError, match="There is no pgbench on this host"):
        _pgbench.find(99, None)


def test_command(tmp_path):
    group = _pgbench.Group([("SELECT 1;", 40), ("SELECT 2;", 60)], 3, 5)
    line = _pgbench.command("/bin/pgbench", "dbname='x'", group, 2, str(tmp_path), 10)
    assert line[-3:] == ["--file=%s/2.0.sql@40" % tmp_path, "--file=%s/2.1.sql@60" % tmp_path, "dbname='x'"]
    assert "--client=3" in line and "--time=10" in line and "--random-seed=5" in line
    assert (tmp_path / "2.1.sql").read_text() == "SELECT 2;"


PROGRAM = """#!/bin/sh
for one in "$@"; do case $one in --log-prefix=*) log=${one#*=};; esac; done
echo "0 0 1000 0 1000 0" >"$log.$$"
echo "number of transactions actually processed: %s"
"""


def program(tmp_path, text):
    path = tmp_path / "pgbench"
    path.write_text(text)
    path.chmod(0o700)
    return str(path)


def run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_pgbench, "_FASTER", str(tmp_path))
    return _pgbench.run(name, "", {}, [_pgbench.Group([("SELECT 1;", 1)], 1, 0)], 1, lambda so_far, elapsed: None)


def test_a_log_that_is_not_whole(tmp_path, monkeypatch):
    """As when another user has filled the file system, which pgbench does not notice."""
    assert run(program(tmp_path, PROGRAM % "1"), tmp_path, monkeypatch).sessions[0].done == {0: 1}
    with pytest.raises(ResidencyError, match=r"pgbench ran 2 transactions, and its log in .* has 1: is there space"):
        run(program(tmp_path, PROGRAM % "2"), tmp_path, monkeypatch)
    assert [one.name for one in tmp_path.iterdir()] == ["pgbench"]


@pytest.mark.parametrize("line", [b"0 1 10\n", b"7 1 1000 0 1000 0\n", b"0 1 1000 0 10\x00 0\n", b"\n\n"])
def test_a_line_that_is_cut(tmp_path, line):
    (tmp_path / "0.log.1").write_bytes(line)
    with pytest.raises(ResidencyError, match="has a line that is cut"):
        _pgbench._Logs(str(tmp_path), [1]).read()


def test_a_program_that_is_none(tmp_path, monkeypatch):
    with pytest.raises(ResidencyError, match=r"^pgbench cannot be run: "):
        run(program(tmp_path, "no program"), tmp_path, monkeypatch)
    assert [one.name for one in tmp_path.iterdir()] == ["pgbench"]


def test_folders_of_killed_runs_go(tmp_path):
    """Not one of a run that works, one that is just being made, and one that is a link."""
    for name in ("killed", "works", "new"):
        (tmp_path / ("pgfleet_io." + name)).mkdir(mode=0o700)
        (tmp_path / ("pgfleet_io." + name) / "0.log.1").write_text("")
        if name != "new":
            os.utime(tmp_path / ("pgfleet_io." + name), (1000, 1000))
    (tmp_path / "other").mkdir(mode=0o700)
    os.utime(tmp_path / "other", (1000, 1000))
    (tmp_path / "pgfleet_io.link").symlink_to(tmp_path / "other")
    held = os.open(str(tmp_path / "pgfleet_io.works"), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    _pgbench.remove_stale(str(tmp_path))
    os.close(held)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "pgfleet_io.link", "pgfleet_io.new", "pgfleet_io.works"]


def test_pgbench_ends_with_the_module(tmp_path, monkeypatch):
    """Also if the module is killed: else the load goes on unseen, beside that of the next run."""
    name = program(tmp_path, "#!/bin/sh\necho $$ >%s/pid\nexec sleep 300\n" % tmp_path)
    monkeypatch.setattr(_pgbench, "_FASTER", str(tmp_path))
    group = _pgbench.Group([("SELECT 1;", 1)], 1, 0)
    module = multiprocessing.get_context("fork").Process(target=_pgbench.run, args=(name, "", {}, [group], 300, lambda so_far, elapsed: None))
    module.start()
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < until and module.is_alive()
            time.sleep(0.05)
    finally:
        module.kill()
        module.join()
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 60
    while True:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    break
        except OSError:
            break
        assert time.monotonic() < until
        time.sleep(0.05)
