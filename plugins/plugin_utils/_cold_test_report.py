# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Output of a cold test: the owner of the lock, the figures of one host, and notes on unexpected ones."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shlex
import socket
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._host_lock import COLD_TEST
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes
from ansible_collections.pgfleet.cache.plugins.plugin_utils._cold_test import ESTABLISHED, nodes
from ansible_collections.pgfleet.cache.plugins.plugin_utils._host_pattern import host_pattern
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import human

NO_DEVICE = 3 << 30  # bytes per second that one process, with the kernel's read-ahead, gets from no device of today
FACTOR = 2  # between runs of the same state that read the same
_LEGEND = (
    "Bytes are medians; the page cache served at least as much as shown. 'temporary' was written to temporary files, which the other bytes leave out."
    " 1 MB is 1024 kB. The device may have caches of its own."
)
SHORT = 50  # milliseconds below which a difference says nothing


def owner(host: str) -> str:
    """The owner in the lock. Its text differs from that of query_io, which removes the lock of a process that has ended: this one is on the controller."""
    main = multiprocessing.parent_process()  # what Ansible evaluates, it evaluates in a child
    pid = os.getpid() if main is None or main.pid is None else main.pid
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = "user %d" % os.geteuid()
    return "%s%s, run by %s on %s (pid %d), since %s" % (
        COLD_TEST, printable(host, 200), user, socket.gethostname(), pid, time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    )


def locked(there: Mapping[str, Any], failed: Mapping[str, Any], host: str, lock: str) -> str:
    """The reason why the lock could not be created; ``there`` is the result of the module stat on its path, ``failed`` that of ln."""
    stat = there.get("stat") or {}
    if not stat.get("exists"):
        return "Cannot create the lock %s: %s" % (lock, printable(failed.get("stderr") or failed.get("msg") or "ln gave no reason", 500))
    who = str(stat.get("lnk_target") or "a file")
    text = "Another run is in progress on this host: %s. Wait until it is done." % printable(who, 400)
    user = printable(stat.get("pw_name") or stat.get("uid"), 100)
    remove = "rm %s (as user %s)" % (lock, user)
    if not who.startswith(COLD_TEST):
        return "%s If that run no longer exists, remove the lock: %s." % (text, remove)
    restore = ["ansible-playbook", "pgfleet.cache.warmup", "-e", "target=%s" % host_pattern(host), "-e", "cache_warmup_snapshot=cold_test_found",
               "-e", "cache_warmup_shared_buffers=true"]
    return (
        "%s If that process no longer exists, start PostgreSQL if it is stopped, and first restore what was cached: %s (if there is such a"
        " snapshot). Then remove the lock: %s." % (text, " ".join(map(shlex.quote, restore)), remove)
    )


def table(result: Mapping[str, Any]) -> List[str]:
    """The figures of one host, as its result has them."""
    lines = ["%s: PostgreSQL %s, io_method %s, %s, scope %s" % (
        printable(result["host"]), printable(result["server_version"], 20), printable(result["io_method"], 20), printable(result["database"]), result["scope"]
    )]
    shape = "  %-29s %5s  %9s %9s %9s  %10s  %10s  %10s  %10s  %10s%s"
    query: Optional[str] = None
    for row in result["states"]:
        if row["query"] != query:
            query = row["query"]
            lines += ["", printable(query)]
            lines.append((shape % ("state", "runs", "min ms", "median", "max", "in buffers", "read", "device", "page cache", "temporary", "")).rstrip())
        times = ["%.1f" % row["milliseconds_" + which] for which in ("min", "median", "max")]
        keys = ("read_bytes", "device_bytes", "page_cache_bytes", "temp_bytes")
        counts = [_bytes(count) for count in (row["shared_hit"] * 8192, *(row[key] for key in keys))]
        lines.append(shape % (row["label"], row["runs"], *times, *counts, "  *" if _doubtful(row) else ""))
    lines += ["", _LEGEND]
    for row in result["states"]:
        if row["remarks"]:
            mark = "* " if _doubtful(row) else ""
            lines.append(printable("%s%s, %s: %s" % (mark, row["query"], row["label"], "; ".join(row["remarks"]))))
    return lines + [printable(note) for note in notes(result)]


def _doubtful(row: Mapping[str, Any]) -> bool:
    """True if the row has bytes of other queries, or its state was not complete."""
    there = row.get("state_percent_min")
    return row["exact"] < row["runs"] or (there is not None and there < ESTABLISHED)


def _bytes(count: float) -> str:
    return human(count).replace("Bytes", "B").replace("0.00 B", "0 B")


def notes(result: Mapping[str, Any]) -> List[str]:
    """A sentence or two for each figure that is right and yet not what a reader expects."""
    found: List[str] = []
    by_query: Dict[str, Dict[str, List[Mapping[str, Any]]]] = {}
    for run in result["runs"]:
        by_query.setdefault(run["query"], {}).setdefault(run["state"], []).append(run)
    labels = {row["state"]: row["label"] for row in result["states"]}
    for query, states in by_query.items():
        for text in _of_query(states, labels, int(result.get("shared_buffers_blocks") or 0)):
            found.append("%s: %s" % (query, text))
    return found


def _of_query(states: Mapping[str, Sequence[Mapping[str, Any]]], labels: Mapping[str, str], buffers: int) -> Iterator[str]:
    ring = [name for run in states.get("both_warm", ()) for name in _through_the_ring(run, buffers)]
    for name in dict.fromkeys(ring):
        yield (
            "%s is larger than a quarter of shared_buffers (%s), so that PostgreSQL scans it through a ring buffer, which leaves little of it in"
            " shared_buffers: '%s' is warm in the page cache only." % (name, human_bytes(buffers * 8192), labels["both_warm"])
        )
    cold = states.get("both_cold", ())
    speeds = [run["device_bytes"] * 1000 / run["milliseconds"] for run in cold if run["milliseconds"] > 0]
    if speeds and max(speeds) > NO_DEVICE:
        yield (
            "'%s' read %s/s, which no device delivers to one process: a cache below the device, such as the hypervisor's, had these blocks. A"
            " read that misses it takes longer." % (labels["both_cold"], human_bytes(max(speeds)))
        )
    for state, runs in states.items():
        if _differ(runs):
            times = [run["milliseconds"] for run in runs]
            what = "others used the host meanwhile"
            if state == "both_cold":
                what += ", or a cache below the device, such as the hypervisor's, served some of them"
            yield "'%s' took from %.1f to %.1f ms for the same reads: %s." % (labels[state], min(times), max(times), what)
    best = min((run["milliseconds"] for run in cold), default=0)
    for state, runs in states.items():
        least = min(run["milliseconds"] for run in runs)
        if state != "both_cold" and best > SHORT and least > best and _median_device(runs) < _median_device(cold) / 10:
            yield (
                "'%s' was slower than '%s', although it read less from the device: the device is not what this query waits for, or others used"
                " the host meanwhile." % (labels[state], labels["both_cold"])
            )


def _differ(runs: Sequence[Mapping[str, Any]]) -> bool:
    times: List[float] = [run["milliseconds"] for run in runs]
    device: List[int] = [run["device_bytes"] for run in runs]
    return max(times) > FACTOR * min(times) and max(times) - min(times) > SHORT and max(device) - min(device) <= max(device) / 10


def _median_device(runs: Sequence[Mapping[str, Any]]) -> float:
    return float(sorted(run["device_bytes"] for run in runs)[len(runs) // 2])


def _through_the_ring(run: Mapping[str, Any], buffers: int) -> Iterator[str]:
    """Tables of which a sequential scan has read more than a quarter of shared buffers, and most of it from outside of them."""
    for node in nodes(run.get("plan") or {}):
        hit, read = node.get("Shared Hit Blocks", 0), node.get("Shared Read Blocks", 0)
        if node.get("Node Type") == "Seq Scan" and buffers and hit + read > buffers / 4 and read > hit:
            yield str(node.get("Relation Name", "a table"))
