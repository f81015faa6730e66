# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart that is begun in the middle."""

from __future__ import annotations

import re

from cluster import quick, thorough

FIRST = "Check that the target has hosts"
SOME = ("Begin with all hosts of the target, and no failure", "Run the role")


def refused(fleet, cluster, names):
    """An error, and nothing done."""
    before = cluster.sql("SELECT pg_postmaster_start_time()"), cluster.folder()
    for name in names:
        output, status = fleet.command("pgfleet.cache.rolling_restart", "--start-at-task", name)
        assert status != 0 and "is finished" not in output, output
    assert (cluster.sql("SELECT pg_postmaster_start_time()"), cluster.folder()) == before


@quick
def test_with_some_tasks(fleet, cluster):
    refused(fleet, cluster, SOME)


@thorough
def test_with_any_task_but_the_first(fleet, cluster):
    listed, status = fleet.command("pgfleet.cache.rolling_restart", "--list-tasks")
    assert status == 0, listed
    first, *others = list(dict.fromkeys(re.findall(r"^ {6}(\S.*?)\s*TAGS:", listed, re.MULTILINE)))
    assert first == FIRST and {*SOME} < {*others}, listed
    refused(fleet, cluster, others)
