# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The leases of hosts: this run as their owner, and whether the owner of a lease still exists, as far as this controller can tell."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import platform
import uuid
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import owner, way_out
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable


def mine(what: str = "") -> Dict[str, Any]:
    """The lease of this run. Ansible evaluates templates in a child, so the process is its parent."""
    main = multiprocessing.parent_process()
    pid = os.getpid() if main is None or main.pid is None else main.pid
    return {
        "id": uuid.uuid4().hex, "owner": os.environ.get("SUDO_USER") or _user(), "controller": platform.node(), "pid": pid, "process": _process(pid),
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


def replaced(leases: Sequence[Optional[Mapping[str, Any]]], of_this_run: Mapping[str, Any], take_over: str) -> List[str]:
    """The ids of leases that this run may replace: their owner is gone, or is the one that pgfleet_take_over names."""
    return sorted({
        str(lease["id"]) for lease in leases
        if lease and lease.get("id") and (gone(lease, of_this_run) or (take_over and lease.get("owner") == take_over))
    })


def refused(results: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> str:
    """Why this run does not start: another run is at work, or the lease could not be written; empty if neither. Unreachable hosts are skipped."""
    for host, one in zip(hosts, results):
        if one.get("failed") and not one.get("unreachable"):
            return "%s: %s Or remove it from target." % (host, printable(one.get("msg") or "", 500))
        held = one.get("held_by")
        if isinstance(held, Mapping):
            return "Another run is at work on %s: the lease is held by %s. %s" % (host, owner(held), way_out(held))
    return ""


def taken(lease: Optional[Mapping[str, Any]], mine_is: str) -> str:
    """Why this run stops without putting anything back: another run holds the host's ``lease`` now."""
    if not lease or lease.get("id") == mine_is:
        return ""
    return "The lease of this host is now held by %s: that run has to put back what this one began. Nothing more was done." % owner(lease)


def taken_over(results: Sequence[Mapping[str, Any]]) -> str:
    """The owner of the lease taken over, for the report."""
    found = [one["taken_over"] for one in results if isinstance(one.get("taken_over"), Mapping)]
    return "This run has taken over the lease of %s." % owner(found[0]) if found else ""
