# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of a cold test's steps, and its figures in a row for each query and state."""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_percent

RESTORED = 99  # percent of the snapshot that are resident after a restore: with fewer, the row says so

# the names of the states, as tables have them
STATES = {
    "both_cold": "both cold",
    "buffers_cold": "page cache warm, buffers cold",
    "restored_page_cache": "page cache restored",
    "restored": "both restored",
    "both_warm": "both warm",
}


def steps(queries: Sequence[str], states: Sequence[str], repeat: int) -> List[Dict[str, Any]]:
    """Every query in every state, ``repeat`` times.

    Each time begins with another state, and every second time goes through them backwards: what changes with time (a
    device that slows down, a neighbour that wakes up) hits all of them, and none always follows the same other.
    """
    found = []
    for repetition in range(repeat):
        for number, query in enumerate(queries):
            first = (repetition + number) % max(1, len(states))
            order = [*states[first:], *states[:first]]
            for state in reversed(order) if repetition % 2 else order:
                found.append({"query": query, "state": state, "repetition": repetition + 1})
    return found


def summary(runs: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """A row for each query and state, in the order of the queries' first runs and of STATES."""
    rows = []
    for query in dict.fromkeys(run["query"] for run in runs):
        for state, label in STATES.items():
            chosen = [run for run in runs if run["query"] == query and run["state"] == state]
            if not chosen:
                continue
            times = [run["milliseconds"] for run in chosen]
            row: Dict[str, Any] = {
                "query": query,
                "state": state,
                "label": label,
                "runs": len(chosen),
                "milliseconds_min": min(times),
                "milliseconds_median": round(median(times), 3),
                "milliseconds_max": max(times),
                "exact": sum(run["certainty"] == "exact" for run in chosen),
                "remarks": list(dict.fromkeys(remark for run in chosen for remark in run["remarks"])),
            }
            restored = [run["restored_percent"] for run in chosen if run.get("restored_percent") is not None]
            row["restored_percent_min"] = min(restored) if restored else None
            if restored and min(restored) < RESTORED:
                row["remarks"].append("the restore before the query ended with %s of the snapshot resident" % human_percent(min(restored)))
            for key in ("shared_hit", "shared_read", "read_bytes", "device_bytes", "page_cache_bytes", "over_read_bytes"):
                row[key] = int(median(run[key] for run in chosen))
            rows.append(row)
    return rows
