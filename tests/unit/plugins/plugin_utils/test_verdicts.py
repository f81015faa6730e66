# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _verdicts

NOTHING = "nothing was done: excluded by --tags, --skip-tags or --start-at-task, or another host ended the run"
GOOD = {
    "pgfleet_failure": "",
    "cache_warmup_result": {"state": "done", "invocation": {"module_args": {}}, "_ansible_no_log": False},
}


@pytest.mark.parametrize(
    ("variables", "verdict", "message"),
    [
        (GOOD, "done", ""),
        (dict(GOOD, pgfleet_failure="no snapshot"), "failed", "no snapshot"),
        (dict(GOOD, pgfleet_failure="unreachable: timed out"), "unreachable", "unreachable: timed out"),
        (dict(GOOD, pgfleet_failure="lost during the run"), "lost", "lost during the run"),
        (dict(GOOD, cache_warmup_result={"unreachable": True, "msg": "no\nroute"}), "unreachable", "unreachable: no route"),
        (dict(GOOD, cache_warmup_result={"failed": True, "msg": "no"}), "failed", "no"),
        (dict(GOOD, cache_warmup_result={}), "done", ""),
        (dict(GOOD, cache_warmup_result=None), "not_run", NOTHING),
        ({}, "not_run", NOTHING),
    ],
)
def test_verdict(variables, verdict, message):
    found = _verdicts.verdict("db1", variables, "warmup")
    assert (found["verdict"], found["message"]) == (verdict, message)


RESTARTED = {
    "pgfleet_failure": "", "cache_restart_host": {"what": "postgresql"}, "cache_restart_fleet": {"rolling_restart": "9", "primary": "db1"},
    "cache_restart_result": {"record": {"rolling_restart": "9", "state": "done"}},
}
KEPT = {"db1": {"kept": {"rolling_restart": "9", "state": "done"}}}


@pytest.mark.parametrize(
    ("variables", "verdict", "message"),
    [
        (dict(RESTARTED), "done", ""),
        (dict(RESTARTED, cache_restart_result={}, cache_restart_fleet=dict(RESTARTED["cache_restart_fleet"], answers=KEPT)), "done", ""),
        (dict(RESTARTED, cache_restart_result={"record": {"rolling_restart": "9", "state": "restarted"}}), "not_begun", "not started: another host has failed"),
        (dict(RESTARTED, cache_restart_result={}, cache_restart_fleet={"problem": "two primaries"}), "not_begun", "two primaries"),
        (dict(RESTARTED, cache_restart_result={}, ansible_check_mode=True), "done", ""),
        (dict(RESTARTED, cache_restart_result={}, cache_restart_fleet={"skipped": "db1"}), "done", ""),
        (dict(RESTARTED, cache_restart_result={}, cache_restart_fleet={"only": ["db2"]}), "not_begun", "not in cache_restart_only"),
        (dict(RESTARTED, cache_restart_result={}, cache_restart_fleet={"skipped": "db2"}), "not_begun", "not started: another host has failed"),
        (dict(RESTARTED, cache_restart_result=None, cache_restart_host={}), "not_run", NOTHING),
    ],
)
def test_verdict_of_a_roll(variables, verdict, message):
    found = _verdicts.verdict("db1", variables, "rolling_restart")
    assert (found["verdict"], found["message"]) == (verdict, message)


def test_what_ansible_adds_is_left_out():
    assert _verdicts.verdict("db1", GOOD, "warmup")["result"] == {"state": "done"}


def test_not_done():
    found = _verdicts.verdicts(["db1", "db2"], {"db1": GOOD, "db2": dict(GOOD, pgfleet_failure="no")}, "warmup")
    assert list(found) == ["db1", "db2"] and _verdicts.not_done(found) == ["db2"]


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ({"msg": "no\n  way"}, "no way"),
        ({}, "failed: see above"),
        ({"msg": "", "results": [{"failed": True, "msg": "a"}, {"msg": "fine"}, {"failed": True, "msg": "a"}, {"failed": True, "msg": "b"}]}, "a b"),
        ({"msg": "non-zero return code", "stderr": "x" * 600}, "non-zero return code " + "x" * 500),
        ({"msg": "Failed to set permissions on the temporary files Ansible needs to create"},
         "Failed to set permissions on the temporary files Ansible needs to create"
         " Install the package acl on the host, or set pipelining = true, so that one unprivileged user can become another."),
        ({"msg": "MODULE FAILURE", "module_stderr": "/bin/sh: 1: sudo: not found"},
         "MODULE FAILURE /bin/sh: 1: sudo: not found Install sudo on the host, or choose another ansible_become_method."),
        ({"msg": "Missing sudo password"},
         "Missing sudo password Give the password with --ask-become-pass, or use another ansible_become_method."),
        ({"msg": "su: user pgsql does not exist"},
         "su: user pgsql does not exist Set pgfleet_become_user to the operating system user that owns the cluster."),
        ({"msg": 'relation "sudo" does not exist'}, 'relation "sudo" does not exist'),
    ],
)
def test_reason(failed, expected):
    assert _verdicts.reason(failed) == expected


@pytest.mark.parametrize(("result", "said"), [
    ({"rc": 2, "cmd": "ps -e", "msg": "Error executing command."}, "There is no program ps on the host, or it is not in the PATH: install it."),
    ({"rc": 2, "cmd": ["ss", "-l"], "msg": "[Errno 2] No such file or directory: b'ss'"}, "There is no program ss on the host, or it is not in the PATH:"),
    ({"rc": 2, "cmd": ["ls"], "msg": "non-zero return code", "stderr": "no"}, "non-zero return code no"),
    ({"msg": "Module result deserialization failed", "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found"},
     "Module result deserialization failed /bin/sh: 1: /usr/bin/python3: not found"),
])
def test_what_ansible_keeps_elsewhere(result, said):
    assert _verdicts.reason(result).startswith(said)
