# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else listens at a port; tests/integration/test_next_start.py has the rest, with real servers."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _next_start


def test_who_else_listens():
    """What this process has itself is free after its restart; what others have is not."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        port = own.getsockname()[1]
        assert _next_start._others(port, os.getpid()) == set()
        with socket.socket() as other, subprocess.Popen(["sleep", "60"], pass_fds=(other.fileno(),)) as stranger:
            try:
                assert _next_start._others(port, stranger.pid) == {"127.0.0.1"}
            finally:
                stranger.kill()
    with pytest.raises(OSError, match="Address already in use"):
        _next_start._bind("127.0.0.1", {"127.0.0.1"})
    with pytest.raises(OSError, match="Address already in use"):
        _next_start._bind("", {"192.0.2.1"})
    _next_start._bind("127.0.0.1", {"192.0.2.1"})
    with pytest.raises(OSError, match="Cannot assign"):
        _next_start._bind("192.0.2.1", set())
