# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of proxies, as the adapter haproxy reads them."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import threading
import time

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils._adapters import file
from ansible_collections.pgfleet.cache.plugins.plugin_utils._haproxy import haproxy, haproxy_cut, haproxy_question, haproxy_unfit


def test_the_question():
    place = {"host": "lb1", "socket": "/s", "backend": "read", "server": "db2"}
    assert haproxy_question(place, []) == ["python3", "-I", "-", "/s"]
    assert haproxy_question(place, ["idle", "30"]) == ["python3", "-I", "-", "/s", "read", "db2", "idle", "30"]


def test_how_it_sees_a_host():
    entry = {"host": "lb1", "socket": "/s", "backend": "read", "server": "db2"}
    rows = [
        {"backend": "read", "server": "db2", "address": "10.0.0.2:5432", "status": "DRAIN", "up": True, "out": True, "sessions": 2},
        {"backend": "read", "server": "db3", "address": "10.0.0.3:5432", "status": "UP", "up": True, "out": False, "sessions": 1},
        {"backend": "other", "server": "db4", "address": "10.0.0.2:5432", "status": "UP", "up": True, "out": False, "sessions": 1},
    ]
    asked = [{"__cache_common_place": dict(entry, host="localhost"), "rc": 0, "stdout": json.dumps(rows)}]
    [found] = haproxy(asked, [entry], False)
    assert found == dict(
        entry, status="DRAIN", up=True, out=True, sessions=2, answered=True, error="", known=True, servers=["db2", "db3"], others=["db3"], up_there=["db3"],
        beside=["other"],
    )
    rows[1]["out"] = True
    asked[0]["stdout"] = json.dumps(rows)
    assert haproxy(asked, [entry], False)[0]["others"] == [] and haproxy(asked, [entry], True) == []
    [found] = haproxy([{"rc": 1, "stderr": "Traceback\nOSError: no", "stderr_lines": 5}], [entry], True)
    assert (found["answered"], found["error"], found["known"], found["out"]) == (False, "OSError: no", False, None)
    [found] = haproxy([{"unreachable": True, "msg": "no route"}], [entry], False)
    assert (found["answered"], found["error"]) == (False, "no route")


ENTRY = {"host": "lb1", "socket": "/run/haproxy/admin.sock", "backend": "read", "server": "db1"}
SERVER = {"backend": "read", "server": "db1", "address": "db1", "out": False, "up": True, "sessions": 3, "status": "UP"}


def test_a_proxy_decides_nothing_but_how_a_server_is():
    """Neither whom to ask next, nor for what."""
    rows = [dict(SERVER, host="localhost", socket="/run/docker.sock", known=False), dict(SERVER, server="db2", address="db2")]
    [found] = haproxy([{"rc": 0, "stdout": json.dumps(rows)}], [ENTRY], False)
    assert found == dict(ENTRY, out=False, up=True, sessions=3, status="UP", answered=True, error="", known=True, servers=["db1", "db2"], others=["db2"],
                         up_there=["db2"], beside=["read"])


@pytest.mark.parametrize("answer", ["", "5", "[5]", "[" * 100000, json.dumps([dict(SERVER, sessions="3")]), json.dumps([dict(SERVER, backend=["read"])])])
def test_a_proxy_that_answers_what_was_not_asked(answer):
    [found] = haproxy([{"rc": 0, "stdout": answer}], [ENTRY], False)
    assert (found["answered"], found["error"], found["known"], found["host"]) == (False, "unexpected answer", False, "lb1")


SEEN = dict(ENTRY, out=False, up=True, sessions=3, status="UP", answered=True, error="", known=True, servers=["db1"], others=["db2"], up_there=["db2"],
            beside=["read"])


@pytest.mark.parametrize(("changed", "begun", "ours", "begins"), [
    ({}, False, False, ""),
    ({"answered": False, "error": "no \x1b[2J"}, False, False, "HAProxy on lb1 does not answer at /run/haproxy/admin.sock: no \\x1b[2J. It needs"),
    ({"known": False, "servers": ["db7"]}, False, False, "HAProxy on lb1 has no server db1 in backend read, which has db7. Correct"),
    ({"known": False, "servers": []}, False, False, "HAProxy on lb1 has no server db1 in backend read: there is no such backend. Correct"),
    ({"others": []}, False, False, "In backend read of HAProxy on lb1 no server but db1 is up"),
    ({"others": []}, True, False, ""),
    ({"up_there": []}, True, False, "In backend read of HAProxy on lb1 no server but db1 is up"),
    ({"out": True, "status": "MAINT"}, False, False, "HAProxy on lb1 has db1 in state MAINT already, which this playbook did not set"),
    ({"out": True, "status": "DRAIN"}, False, True, ""),
])
def test_unfit(changed, begun, ours, begins):
    said = haproxy_unfit([SEEN, dict(SEEN, **changed)], begun, ours)
    assert said.startswith(begins) and bool(said) is bool(begins), said


def test_cut():
    assert haproxy_cut([SEEN, SEEN], False, 60) == "6 sessions did not end within cache_restart_drain_timeout (60 s); a restart cuts them."
    assert haproxy_cut([SEEN], True, 60) == haproxy_cut([dict(SEEN, sessions=0)], False, 60) == ""
    assert haproxy_cut([dict(SEEN, sessions=0, beside=["read", "admin"])], False, 60) == (
        "Backend admin of HAProxy on lb1 sends it traffic too, and is not in cache_restart_haproxy: a restart cuts its sessions.")


@pytest.mark.parametrize(("part", "pause"), [(b"x", 0.05), (b"x" * 4096, 0)])
def test_an_answer_without_an_end(tmp_path, part, pause):
    """Neither its time nor its size is the proxy's to choose."""
    spec = importlib.util.spec_from_file_location("servers", file("haproxy", "traffic", "servers.py"))
    servers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(servers)
    servers.SECONDS, servers.BYTES = (0.3, 1 << 20) if pause else (60, 1 << 16)
    path = os.path.join(str(tmp_path), "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)

        def talk():
            connection = listener.accept()[0]
            try:
                while True:
                    connection.sendall(part)
                    time.sleep(pause)
            except OSError:
                connection.close()

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        begun = time.monotonic()
        with pytest.raises((socket.timeout, ValueError)):
            servers.ask(path, "show stat")
        assert time.monotonic() - begun < 30
        talker.join(30)
