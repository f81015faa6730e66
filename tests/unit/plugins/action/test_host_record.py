# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller adds to the module, which works on real files here."""

from __future__ import annotations

import os

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.pgfleet.cache.plugins.action import host_record
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records
from ansible_collections.pgfleet.cache.plugins.modules import host_record as module
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease

DEFAULTS = {name: option.get("default") for name, option in yaml.safe_load(module.DOCUMENTATION)["options"].items()}
LIVING = {"id": "run-11111111", "owner": "bob", "controller": "another", "pid": 1, "process": "x y 1", "what": "rolling_restart", "since": "now"}
PENDING = {
    "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": 5, "system_identifier": "7", "standby": True,
    "by": "alice", "since": "2026-11-21T06:00:00Z",
}
SAVED = {name: PENDING[name] for name in ("snapshot", "digest", "wanted", "started", "system_identifier", "standby")}


class Action(host_record.ActionModule):
    """Of a host that is this one."""

    def __init__(self, directory, check_mode=False, reached=True):
        self.directory, self.reached, self.states = str(directory), reached, []
        self._connection = type("Connection", (), {"_shell": type("Shell", (), {"tmpdir": None})()})()
        self._task = type("Task", (), {"check_mode": check_mode, "async_val": 0, "delegate_to": None, "register": "found"})()
        self.records = Records(self.directory)

    def _execute_module(self, module_name, module_args, task_vars):
        assert module_name == "pgfleet.cache.host_record"
        if not self.reached:
            raise AnsibleConnectionFailure("no\nroute")
        self.states.append(module_args["state"])
        params = dict(DEFAULTS, **dict(module_args))
        try:
            return module.run(type("Module", (), {"params": params, "check_mode": self._task.check_mode})())
        except ResidencyError as error:
            return dict(module.EMPTY, failed=True, msg=str(error))

    def _remove_tmp_path(self, tmp_path, force=False):
        pass

    def do(self, state, here=None, **arguments):
        self._task.args = dict({"directory": self.directory, "name": "db1", "state": state}, **arguments)
        return self.run(None, dict({"inventory_hostname": "db1"}, **(here or {})))

    def lease(self):
        return self.records.read("db1")["lease"]


@pytest.fixture
def action(tmp_path):
    os.chmod(str(tmp_path), 0o755)
    return Action(tmp_path)


def test_a_run_has_one_lease(action):
    assert "failed" not in action.do("leased", what="rolling_restart", data_directory="/data")
    mine = action.lease()
    assert (mine["id"], mine["what"], mine["data_directory"]) == (_lease.mine()["id"], "rolling_restart", "/data")
    assert action.do("written", event="begin", facts={"rolling_restart": "9"})["record"]["rolling_restart"] == "9"
    assert "failed" not in action.do("held") and action.do("released")["lease"] is None


def test_a_lease_of_another(action):
    action.records._store("db1.lease", LIVING)
    for state in ("leased", "free"):
        found = action.do(state)
        assert found["failed"] and found["msg"].startswith("Another run is at work on db1: the lease is held by bob on another"), state
    for arguments in ({"state": "held"}, {"state": "written", "event": "begin", "facts": {"rolling_restart": "9"}}):
        assert action.do(**arguments)["msg"].startswith("The lease of this host is now held by bob")
    assert action.records.read("db1") == {"record": None, "lease": LIVING, "fault": ""}
    assert "failed" not in action.do("free", take_over=LIVING["id"])
    assert "taken over the lease of bob" in action.do("leased", take_over=LIVING["id"])["remark"] and action.lease()["owner"] != "bob"


def test_leases_of_runs_that_have_ended(action):
    """Also of one server under two names; nobody has to say so."""
    for name, number in (("db1", 1), ("other", 2)):
        action.records._store(name + ".lease", dict(_lease.mine(), id="run-%d" % number, pid=1 << 22, data_directory="/data"))
    assert "failed" not in action.do("free") and action.do("held")["failed"]
    found = action.do("leased", data_directory="/data")
    assert "failed" not in found and found["remark"] and [one["id"] for one in action.records.leases()] == [_lease.mine()["id"]]
    assert action.do("leased", data_directory="/data")["remark"] == "", "it is ours already"


def test_who_it_was(action):
    """The controller says so, and not the task."""
    action.do("leased")
    mine = _lease.mine()
    pending = action.do("written", event="save", facts=SAVED)["record"]["pending"]
    assert pending == dict(SAVED, by=mine["owner"], since=pending["since"], **{"for": "rolling_restart"}) and pending["since"]
    remarks = action.do("written", event="waived")["record"]["remarks"]
    assert remarks == ["%s waived the restore that was pending since %s: restart@3." % (mine["owner"], pending["since"])]


def test_one_event_without_a_lease(action):
    """It is taken for this event only."""
    action.do("leased")
    action.do("written", event="save", facts=dict(SAVED, **{"for": "play"}))
    action.do("released")
    assert action.do("written", event="put_back", what="handler")["record"]["pending"] == {} and action.lease() is None
    action.records._store("db1.json", {"state": "odd"})
    assert "state is 'odd'" in action.do("written", event="out", what="handler")["msg"] and action.lease() is None, "nor after a failure"
    action.records._store("db1.lease", LIVING)
    assert "Another run is at work" in action.do("written", event="resumed", what="handler")["msg"] and action.lease() == LIVING


@pytest.mark.parametrize("what", ["cold_test", "play"])
def test_what_is_unfinished_keeps_others_away(action, what):
    action.records._store("db1.json", {"pending": PENDING})
    found = action.do("leased", what=what)
    assert found["msg"].startswith("A rolling restart of db1 was not finished") and action.lease() is None
    assert "failed" not in action.do("leased", what="rolling_restart")


def test_changed_meanwhile(action):
    action.records._store("db1.json", {"at": 5.5})
    assert "failed" not in action.do("leased", at=5.5)
    action.do("released")
    found = action.do("leased", at=5.25)
    assert found["msg"] == "db1: another run has changed the state of this host in the meantime. Run the playbook again." and action.lease() is None
    assert action.do("leased", at=0)["failed"], "it had none"


def test_after_a_failure_the_last_record_is_known(action, tmp_path):
    known = {"found": {"record": {"rolling_restart": "9"}}}
    lost = Action(tmp_path, reached=False)
    found = lost.do("written", known, event="go_on")
    assert (found["failed"], found["msg"], found["record"]) == (True, "unreachable: no route", {"rolling_restart": "9"})
    assert lost.do("written", event="go_on")["record"] is None
    assert action.do("written", known, event="go_on")["record"] == {"rolling_restart": "9"}, "it has no lease"


def test_check_mode_changes_nothing(tmp_path):
    action = Action(tmp_path, check_mode=True)
    for state, arguments in (("leased", {"what": "play"}), ("written", {"event": "begin", "facts": {"rolling_restart": "9"}}), ("released", {})):
        assert "failed" not in action.do(state, **arguments)
    assert os.listdir(str(tmp_path)) == []
    Records(str(tmp_path))._store("db1.lease", LIVING)
    assert "Another run is at work" in action.do("leased")["msg"]
