# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes of this test."""

from __future__ import annotations

import os
import subprocess
import sys

from ansible_collections.pgfleet.cache.plugins.module_utils import _io_reading, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._processes import Process


def test_a_process_that_has_ended():
    """Also before its parent has waited for it, when its own user can no longer read its counts."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not _processes.ended(child.pid)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _processes.ended(child.pid)
    child.wait()
    assert _processes.ended(child.pid)


def test_a_process_that_is_about_to_end(monkeypatch):
    """While the kernel frees its memory, it is not a zombie yet: as /proc/<pid>/status shows it in these microseconds."""
    status = "Name:\tpostgres\nState:\tR (running)\n%sThreads:\t1\n"
    monkeypatch.setattr(_processes._proc, "text", {"/proc/7/status": status % "", "/proc/8/status": status % "VmSize:\t  219012 kB\n"}.get)
    assert _processes.ended(7) and not _processes.ended(8)


def test_its_counts_are_read_once_more(monkeypatch):
    """They are its parent's then."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    parent, ended = (Process(pid, 1, 0, "postgres", "postgres") for pid in (os.getpid(), child.pid))
    seen = []

    def read(pid):
        seen.append(pid)
        if pid == child.pid:
            child.wait()
            raise PermissionError(13, "Permission denied", "/proc/%d/io" % pid)
        return 8192

    monkeypatch.setattr(_io_reading, "_server", lambda postmaster: {parent, ended} if child.returncode is None else {parent})
    assert _io_reading.by_process(os.getpid(), read) == ({parent: 8192}, False) and child.pid in seen
