# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks that are begun in the middle, and the role that is nothing without its playbook."""

from __future__ import annotations

import re

import pytest
from cluster import quick, thorough
from conftest import HOSTS
from test_playbooks import results

FIRST = "Check that the target has hosts, and that the results can be written"
PLAYBOOKS = ("rolling_restart", "install", "snapshot", "warmup", "cold_test")
SOME = ("Reset the facts of an earlier run", "Run the role", "Plan the rolling restart", "Check the traffic of the host")


def refused(fleet, cluster, playbook, names):
    """One message, and nothing done."""
    before = cluster.sql("SELECT pg_postmaster_start_time()"), cluster.folder()
    for name in names:
        output, status = fleet.command("pgfleet.cache." + playbook, "--start-at-task", name)
        text = " ".join(output.split())
        assert status != 0 and "undefined" not in text and "has no attribute" not in text, output
        assert "--start-at-task, --tags or --skip-tags skipped the first tasks" in text or "nothing was done" in text, output
        assert "is finished" not in text, output
    assert (cluster.sql("SELECT pg_postmaster_start_time()"), cluster.folder()) == before


@quick
def test_a_rolling_restart(fleet, cluster):
    refused(fleet, cluster, "rolling_restart", SOME)


@thorough
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_with_any_task_but_the_first(fleet, cluster, playbook):
    listed, status = fleet.command("pgfleet.cache." + playbook, "--list-tasks")
    assert status == 0, listed
    first, *others = list(dict.fromkeys(re.findall(r"^ {6}(\S.*?)\s*TAGS:", listed, re.MULTILINE)))
    assert first == FIRST and len(others) > 2 and (playbook != "rolling_restart" or {*SOME} < {*others}), listed
    if playbook == "rolling_restart":
        refused(fleet, cluster, playbook, others)
        return
    for name in others:
        output, status = fleet.command("pgfleet.cache." + playbook, "--start-at-task", name)
        assert "undefined" not in output and "has no attribute" not in output and set(results(fleet)[-1]["hosts"]) == set(HOSTS), output
        # with the task that does the work, all of it; of the cold test, that it has no queries
        counts = results(fleet)[-1]["counts"]
        assert counts == {"done": 3} if status == 0 else "nothing was done" in output or (playbook, counts) == ("cold_test", {"failed": 3}), output


@pytest.mark.parametrize("entry_point", ["main", "look"])
def test_the_role_without_its_playbook(fleet, entry_point):
    role = {"name": "pgfleet.cache.cache_restart", "tasks_from": entry_point}
    output, status = fleet.command(fleet.write([{"ansible.builtin.include_role": role}]))
    text = " ".join(output.split())
    assert status != 0 and "undefined" not in text, output
    for host in HOSTS:
        assert "The role cache_restart was not prepared for %s: run the playbook pgfleet.cache.rolling_restart instead" % host in text, output
