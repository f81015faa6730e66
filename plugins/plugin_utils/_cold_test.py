# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of a cold test's steps, and its figures in a row for each query and state."""

from __future__ import annotations

import re
from statistics import median
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES, human_percent

RESTORED = 99  # percent of the snapshot that are resident after a restore: with fewer, the row says so
ESTABLISHED = 99  # percent of a state that are there when its query begins: with fewer, it is established again, and in the end the row says so
TRIES = 3

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


def relations(runs: Sequence[Mapping[str, Any]]) -> Dict[str, List[str]]:
    """The tables that the plan of each query names, as patterns; a table means its indexes and TOAST too."""
    found: Dict[str, List[str]] = {}
    for run in runs:
        names = {"%s.%s" % (node["Schema"], node["Relation Name"]) for node in nodes(run.get("plan") or {}) if "Relation Name" in node and "Schema" in node}
        found[run["name"]] = sorted(re.sub(r"([*?\[])", r"[\1]", name) for name in names)
    return found


def established(counted: Mapping[str, Any], state: str, tries: int) -> Dict[str, Any]:
    """The percent of a state that is established, by a count of the blocks that the query reads.

    ``counted`` is the result of residency_restore in check mode, for the snapshot of the warm caches and the relations of the query. Percent is
    None if nothing could be counted. ``again``: after so many tries it is worth another one.
    """
    existing = (counted.get("wanted") or 0) - (counted.get("gone") or 0)
    if counted.get("skipped") or counted.get("failed") or existing <= 0:
        return {"percent": None, "tries": tries, "again": False}
    resident = 100 * (counted.get("resident") or 0) / existing
    buffers = 100 * (counted.get("buffers_resident") or 0) / counted["buffers_wanted"] if counted.get("buffers_wanted") else None
    parts = [100 - resident if state == "both_cold" else resident]
    if buffers is not None and state in ("buffers_cold", "restored_page_cache"):
        parts.append(100 - buffers)
    elif buffers is not None and state == "restored":
        parts.append(buffers)
    least = round(max(0.0, min(parts)), 2)
    return {"percent": least, "tries": tries, "again": least < ESTABLISHED and tries < TRIES}


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
            there = [run["state_percent"] for run in chosen if run.get("state_percent") is not None]
            row["state_percent_min"] = min(there) if there else None
            if there and min(there) < ESTABLISHED:
                row["remarks"].append("only %s of this state was there when the query began" % human_percent(min(there)))
            row["temp_bytes"] = int(median(run.get("temp_written") or 0 for run in chosen)) * BLOCK_BYTES
            for key in ("shared_hit", "shared_read", "read_bytes", "device_bytes", "page_cache_bytes", "over_read_bytes"):
                row[key] = int(median(run[key] for run in chosen))
            rows.append(row)
    return rows


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    left = [plan]
    while left:
        node = left.pop()
        yield node
        left.extend(node.get("Plans") or ())
