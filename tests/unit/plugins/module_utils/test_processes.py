# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes of this test."""

from __future__ import annotations

import os
import subprocess
import sys

from ansible_collections.pgfleet.cache.plugins.module_utils import _processes, _server_io
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

    monkeypatch.setattr(_server_io, "_server_processes", lambda server: {parent, ended} if child.returncode is None else {parent})
    monkeypatch.setattr(_server_io, "_read_bytes", read)
    found = _server_io.sample(_server_io.Server(os.getpid(), "/"))
    assert found.read == {parent: 8192} and not found.torn and child.pid in seen
