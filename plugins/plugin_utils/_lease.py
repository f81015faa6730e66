# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The leases of hosts: this run as their owner, and whether the owner of a lease still exists, as far as this controller can tell."""

from __future__ import annotations

import getpass
import hashlib
import multiprocessing
import os
import platform
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import owner, way_out


def mine(what: str = "") -> Dict[str, Any]:
    """The lease of this run, with the same ``id`` in all its tasks. Action plugins run in a child, so the process is its parent."""
    main = multiprocessing.parent_process()
    pid = os.getpid() if main is None or main.pid is None else main.pid
    controller, process = platform.node(), _process(pid)
    return {
        "id": "run-" + hashlib.sha256(("%s %s %d" % (controller, process, pid)).encode()).hexdigest()[:8],
        "owner": os.environ.get("SUDO_USER") or _user(), "controller": controller, "pid": pid, "process": process,
        "what": what, "since": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container with a user that has no name
        return str(os.getuid())


def _process(pid: int) -> str:
    """A unique name of the process: boot, PID namespace, and start time in clock ticks; empty if it has ended."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else "%s %s %s" % (boot, os.readlink("/proc/self/ns/pid"), fields[19])
    except (OSError, IndexError):
        return ""


def began() -> Optional[str]:
    """When this run's process began, in UTC; None where the system does not tell."""
    ticks = _process(mine()["pid"]).rpartition(" ")[2]
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            age = float(file.read().split()[0]) - int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    return (datetime.now(timezone.utc) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gone(lease: Mapping[str, Any], of_this_run: Mapping[str, Any]) -> bool:
    """Whether the owner was a process of this controller that has ended. Nothing is known about other controllers."""
    process, here = str(lease.get("process")), str(of_this_run.get("process"))
    if lease.get("controller") != of_this_run.get("controller") or process.split(" ")[:2] != here.split(" ")[:2]:
        return False
    try:
        pid = int(lease["pid"])
        found = _process(pid)
        if not found:
            os.kill(pid, 0)  # of others /proc may show nothing (hidepid)
        return found != process
    except ProcessLookupError:
        return True
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return False


def at_work(lease: Any) -> str:
    """A sentence on the run that works on a host, as far as this controller can tell; empty if there is none, or if it has ended."""
    if not isinstance(lease, Mapping) or not lease or gone(lease, mine()):
        return ""
    return "Another run is at work: %s. %s" % (owner(lease), way_out(lease).replace("Wait until it ends. ", ""))


def refused(host: str, held: Mapping[str, Any]) -> str:
    return "Another run is at work on %s: the lease is held by %s. %s" % (host, owner(held), way_out(held))


def taken_over(lease: Optional[Mapping[str, Any]]) -> str:
    """The owner of the lease taken over, for the report."""
    return "This run has taken over the lease of %s." % owner(lease) if lease else ""
