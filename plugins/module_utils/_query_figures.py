# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures of a query: the counts of EXPLAIN, those of the kernel, and their certainty."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _server_io
from ansible_collections.pgfleet.cache.plugins.module_utils._others import Others
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import NOISE, Reads
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, percent

# Of relations; what a query writes to temporary files and reads again is no read of the data.
_RELATIONS = tuple("%s_%s" % (layer, what) for layer in ("shared", "local") for what in ("hit", "read"))
_COUNTS = (*_RELATIONS, "temp_read", "temp_written")

RUN_KEYS = (
    "name",
    "repetition",
    "milliseconds",
    "planning_milliseconds",
    "serialization_milliseconds",
    *_COUNTS,
    "planning_read",
    "read_milliseconds",
    "workers_launched",
    "read_bytes",
    "device_bytes",
    "page_cache_bytes",
    "page_cache_percent",
    "over_read_bytes",
    "certainty",
    "remarks",
    "backend_bytes",
    "io_worker_bytes",
    "ended_bytes",
    "other_bytes",
    "elsewhere_bytes",
    "disks",
    "cgroup_bytes",
    "jit",
    "settings",
    "plan",
)


def figures(explained: Mapping[str, Any], reads: Reads, others: Others, block_size: int, not_measured: Sequence[str] = ()) -> Dict[str, Any]:
    """The figures of one run, of RUN_KEYS. ``not_measured`` names reads that are in no count."""
    plan, planning, serialization = explained["Plan"], explained.get("Planning", {}), explained.get("Serialization", {})
    found: Dict[str, Any] = {count: plan.get(_buffers(count), 0) + serialization.get(_buffers(count), 0) for count in _COUNTS}
    workers = sum(node.get("Workers Launched", 0) for node in _nodes(plan))
    # catalogs that planning read came the same way
    counted = (found["shared_read"] + found["local_read"] + planning.get("Shared Read Blocks", 0)) * block_size
    device = reads.of_query(workers)
    page_cache = max(0, counted - device)
    more = _server_io.more_than_its_own(reads, workers, others, _read_by_workers(plan))
    less = [*not_measured, *_left_out(plan)]
    unknown = _server_io.neither_more_nor_less(reads)
    found.update(
        milliseconds=explained["Execution Time"],
        planning_milliseconds=explained["Planning Time"],
        serialization_milliseconds=serialization.get("Time"),
        planning_read=planning.get("Shared Read Blocks", 0),
        read_milliseconds=_read_milliseconds(plan, serialization),
        workers_launched=workers,
        read_bytes=counted,
        device_bytes=device,
        page_cache_bytes=page_cache,
        page_cache_percent=percent(page_cache, counted) if counted else None,
        over_read_bytes=max(0, device - counted),
        certainty=_certainty(unknown, more, less),
        remarks=[*unknown, *more, *less, *_own_costs(explained, found, device - counted, block_size), *_server_io.cross_check(reads, workers)],
        jit=_jit(explained),
        settings=explained.get("Settings", {}),
        **_server_io.as_result(reads, workers)
    )
    return found


def _certainty(unknown: List[str], more: List[str], less: List[str]) -> str:
    if unknown or (more and less):
        return "unknown"
    return "upper_bound" if more else "lower_bound" if less else "exact"


def _left_out(plan: Mapping[str, Any]) -> List[str]:
    if any(node.get("Node Type") == "Foreign Scan" for node in _nodes(plan)):
        return ["what a foreign server reads for the foreign tables is not counted"]
    return []


def _own_costs(explained: Mapping[str, Any], found: Mapping[str, Any], over_read: int, block_size: int) -> List[str]:
    """Remarks about temporary files and JIT, which a query spends time on besides its reads of relations."""
    remarks = []
    if found["temp_read"] or found["temp_written"]:
        text = "it wrote %s to temporary files and read %s of them, which are not in the bytes that it read" % (
            human_bytes(found["temp_written"] * block_size), human_bytes(found["temp_read"] * block_size)
        )
        if found["temp_read"] and over_read > NOISE:
            text += "; some of the device's bytes may be theirs"
        remarks.append(text)
    jit = _jit(explained)
    if jit is not None:
        remarks.append("JIT compiled %d function%s" % (jit["functions"], "" if jit["functions"] == 1 else "s"))
    return remarks


def _jit(explained: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The sum of the leader and all workers."""
    found = explained.get("JIT")
    if not found:
        return None
    return {"functions": found.get("Functions", 0), "milliseconds": found.get("Timing", {}).get("Total", 0.0)}


def _buffers(count: str) -> str:
    layer, what = count.split("_")
    return "%s %s Blocks" % (layer.capitalize(), what.capitalize())


def _read_milliseconds(*parts: Mapping[str, Any]) -> Optional[float]:
    """Up to 16 one figure for shared and local blocks; None where track_io_timing is off."""
    found = [part[key] for part in parts for key in ("I/O Read Time", "Shared I/O Read Time", "Local I/O Read Time") if key in part]
    return round(sum(found), 3) if found else None


def _read_by_workers(plan: Mapping[str, Any]) -> int:
    """Blocks; a node has what those below it have read too."""
    own = [worker["Shared Read Blocks"] for worker in plan.get("Workers", ()) if "Shared Read Blocks" in worker]
    return sum(own) if own else sum(_read_by_workers(child) for child in plan.get("Plans", ()))


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
