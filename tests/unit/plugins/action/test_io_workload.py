# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import shlex

import pytest
from ansible_collections.pgfleet.cache.plugins.action import io_workload
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _followed
from ansible_collections.pgfleet.cache.plugins.plugin_utils._followed import read_note, read_pid


@pytest.mark.parametrize(("text", "expected"), [
    ('{"text": "loading, 12.5 %, 1.00 GB"}', (12.5, "loading, 12.5 %, 1.00 GB")),
    ('{"text": "loading"}', (0.0, "loading")),
    ("", (0.0, "")),
    ("cat: no such file", (0.0, "")),
    ("[1]", (0.0, "")),
    ('{"text": "1..2 %"}', (2.0, "1..2 %")),
    ('{"text": "%s"}' % ("x" * 900), (0.0, "x" * 200)),
])
def test_read_note(text, expected):
    assert read_note(text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ('{"text": "", "pid": 77}', 77), ('{"text": ""}', None), ('{"pid": "77; reboot"}', None), ("", None),
])
def test_read_pid(text, expected):
    assert read_pid(text) == expected


class Host(io_workload.ActionModule):
    """A host that answers what it likes."""

    def __init__(self, answers, note):
        self.answers, self.note, self.asked = answers, note, []
        self._connection = type("Connection", (), {"_shell": type("Shell", (), {"tmpdir": None})()})()
        self._task = type("Task", (), {"args": {"state": "run", "run_time": "2s"}, "check_mode": False, "async_val": 0})()

    def get_shell_option(self, option, default=None):
        return default

    def _execute_module(self, module_name, module_args, **rest):
        mode = module_args.get("mode", "start")
        self.asked.append(mode)
        answers = self.answers[mode]
        return dict(answers.pop(0) if len(answers) > 1 else answers[0])

    def _make_tmp_path(self, remote_user=None):
        return "/tmp/ansible-tmp-1"

    def _remove_tmp_path(self, tmp_path, force=False):
        self.asked.append("remove %s" % tmp_path)

    def _low_level_execute_command(self, command):
        self.asked.append(command)
        return {"stdout": self.note(command)}


def test_a_process_that_is_gone(monkeypatch):
    """As after a restart of the host: the job never says that it has ended, and nobody waits for its bound, which is hours."""
    monkeypatch.setattr(_followed, "POLL", 0.01)
    note = json.dumps({"text": "running, 3.0 %", "pid": 77})
    host = Host(
        {"start": [{"ansible_job_id": "j1", "results_file": "/home/a b/j1"}], "status": [{"finished": 0}], "cleanup": [{}]},
        lambda command: note + ("pgfleet-process-is-gone" if "kill -0 77" in command else ""),
    )
    result = host._started({"inventory_hostname": "db1"})
    assert result["failed"] and "has ended without a result" in result["msg"]
    note, *last = host.asked[-3:]
    assert shlex.split(note)[:2] == ["rm", "-f"] and shlex.split(note)[2].startswith("/home/a b/pgfleet.")
    assert last == ["cleanup", "remove /tmp/ansible-tmp-1"]


def test_a_result_just_after_its_process_has_gone(monkeypatch):
    monkeypatch.setattr(_followed, "POLL", 0.01)
    note = json.dumps({"text": "running, 3.0 %", "pid": 77})
    last = {"finished": 1, "msg": "done"}
    host = Host(
        {"start": [{"ansible_job_id": "j1", "results_file": "/j1"}], "status": [{"finished": 0}, {"finished": 0}, last], "cleanup": [{}]},
        lambda command: note + ("pgfleet-process-is-gone" if "kill -0 77" in command else ""),
    )
    assert host._started({}) == {"msg": "done"}
