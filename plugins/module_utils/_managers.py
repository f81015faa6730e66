# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cluster managers, which take a restart of PostgreSQL for a failure of it: how they are known, and what is said of them."""

from __future__ import annotations

import re
from typing import List

# Each with how it is named where it is started, as a program or as a module of Python, and with its own way to restart PostgreSQL
MANAGERS = {
    "Patroni": ("patroni", "patronictl restart"),
    "repmgr": ("repmgrd", "repmgr node service --action=restart"),
    "Pacemaker": ("pacemakerd", "pcs resource restart"),
    "pg_auto_failover": ("pg_autoctl", "pg_autoctl enable maintenance, then a restart"),
    "Stolon": ("stolon-keeper", "stolonctl, which restarts what a change of its specification needs"),
    "EDB Failover Manager": (r"java .*(?:/EFM-|com\.enterprisedb\.efm\.)\S*", "efm stop-cluster, then a restart"),
    "CloudNativePG": ("manager instance run", "kubectl cnpg restart"),
}
_PYTHON = r"(?:\S*python\S*(?: -[WX] \S+| -\S+)* )?"
_SUPERVISORS = r"patroni|repmgr|pacemaker|pg_autoctl|stolon|supervis|runsv"  # whose child a postmaster is


def is_supervisor(name: str) -> bool:
    """The cluster manager, from the name of a postmaster's parent, at most 15 characters (proc(5), comm)."""
    return bool(re.search(_SUPERVISORS, name))


def is_patroni(command: str) -> bool:
    """By the words of a command."""
    return bool(re.match(r"%s(?:\S*/)?patroni(?= |$)" % _PYTHON, command))


def _running(processes: str, user: str) -> List[str]:
    """The cluster managers among the lines of ``ps -e -ww -o pidns=,user:64=,args=``.

    Processes in containers on this host do not matter: they have a PID namespace of their own. Where that may not be seen, there are none.
    Nor do those of users other than root and the cluster's: anybody may give a process any name.
    """
    own = re.search(r"(?m)^ *([0-9]+) +root +ps -e -ww -o pidns=", processes)
    begins = r"(?m)^ *(?:-|%s) +(?:root|%s) +%s(?:\S*/)?" % (own.group(1) if own else "-", re.escape(user), _PYTHON)
    return [name for name, (program, dummy) in MANAGERS.items() if re.search("%s(?:%s)(?= |$)" % (begins, program), processes)]


def managed(processes: str, user: str, host: str, manager: str = "") -> str:
    """The reason not to restart PostgreSQL on this host; empty if no cluster manager runs but the one in pgfleet_service_manager."""
    found = next((name for name in _running(processes, user) if name.lower() != manager), "")
    if not found:
        return ""
    if found == "Patroni":
        return "Patroni keeps PostgreSQL on %s running, and may treat a restart as a failure: set pgfleet_service_manager to patroni." % host
    return (
        "%s runs on %s, and may treat a restart as a failure and promote a standby. There is no adapter for it. Restart with its own tools"
        " (%s), with a snapshot before and a warm-up after it." % (found, host, MANAGERS[found][1]))
