# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of flush costs: of a host by size, of the fleet by host, and by type of storage."""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_blocks
from ansible_collections.pgfleet.cache.plugins.plugin_utils._flush_cost import CLASSES, PUBLISHED
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Column, OddResultError, Result, Row, Table

_SIZES = (
    Column("size", -8), Column("n", 3), Column("read us", 8), Column("flush / read", 20), Column("random flush / read", 20), Column("random / read", 20),
    Column("scan %", 7),
)
_NOTE = (
    "Per block, medians, with %d %% intervals: flush / read has the flush in units of a sequential read. random: the same blocks in random order. scan:"
    " a flush without a dirty buffer, in percent of the flush. A planner's price is a x dirtied + b x allocated; published: %.2f and %.2f."
)
_WIDTH = 17  # of a coefficient with its interval
_STORAGE = 100  # characters


def table(result: Mapping[str, Any], host: str) -> List[str]:
    """The lines of one host."""
    found = Result(result)
    measured, fitted = found.part("measured"), found.part("fit")
    lines = ["%s: PostgreSQL %s, %s" % (printable(host), measured.text("server_version", 20), storage(measured))]
    shape = "  " + "  ".join("%%%ds" % column.width for column in _SIZES)
    lines.append(shape % tuple(column.title for column in _SIZES))
    for one in fitted.parts("sizes"):
        lines.append(shape % (
            human_blocks(int(one.number("blocks") or 0)), one.number("iterations"), _shown(one.number("read_microseconds")),
            *(interval(one.part(name)) for name in ("write", "random_write", "random_read")), "%.3f" % (one.number("dry_percent_of_write") or 0),
        ))
    for one in fitted.parts("classes"):
        lines.append("%s: a = %s, in random order %s; b = %s" % (
            one.text("name", 40), interval(one.part("a")), interval(one.part("a_random")), interval(one.part("b"), "%.5f")))
    lines.append("")
    lines.append(_NOTE % (fitted.number("level") or 0, PUBLISHED["a"], PUBLISHED["b"]))
    sentence = planner(found.part("plan"))
    lines += [sentence] if sentence else []
    return lines + [printable(one[:1].upper() + one[1:] + ".") for one in measured.texts("remarks")]


def planner(plan: Result) -> str:
    """A sentence about the costs of flushing and scanning a table."""
    cost, scans = plan.number("flush_cost"), plan.number("scans_to_pay")
    if cost is None:
        return ""
    text = "A table with %s in local buffers, %s of it dirty: flush_cost = %.0f" % (
        human_blocks(int(plan.number("allocated") or 0)), human_blocks(int(plan.number("dirtied") or 0)), cost)
    low, high = plan.number("flush_cost_low"), plan.number("flush_cost_high")
    if low is not None and high is not None:
        text += " (%.0f to %.0f)" % (low, high)
    text += ", by the published formula %.0f; a scan costs %.0f, with %d workers %.0f" % (
        plan.number("published_flush_cost") or 0, plan.number("serial_scan_cost") or 0, plan.number("workers") or 0, plan.number("parallel_scan_cost") or 0)
    if scans is None:
        return text + ": parallel workers cost more than they save, and no flush pays."
    return text + ": the flush pays from %s on." % ("the first scan" if scans <= 1 else "scan %d" % -(-scans // 1))


def storage(measured: Result) -> str:
    """The storage in a few words."""
    found = measured.part("storage")
    words = [found.text("kind", 60), found.text("filesystem", 20)]
    layers = found.texts("layers")
    words += ["on " + layers[0]] if layers and layers[0] not in ("disk", "partition") else []
    limits = []
    for limit in found.parts("limits"):
        iops = min((value for value in (limit.number("read_iops"), limit.number("write_iops")) if value is not None), default=None)
        rate = min((value for value in (limit.number("read_bps"), limit.number("write_bps")) if value is not None), default=None)
        limits.append(", ".join(filter(None, ["" if iops is None else "%d IOPS" % iops, "" if rate is None else "%.0f MB/s" % (rate / 1e6)])))
    words += ["limited to " + "; ".join(limits)] if any(limits) else []
    # a row of the fleet has room for some devices, not for all that a host may name
    below = printable(" ".join(filter(None, words)) or "unknown storage", _STORAGE)
    return "%s, %s" % (below, measured.text("reached", 20).replace("_", " ") or "not measured")


def interval(price: Result, form: str = "%.2f") -> str:
    value, low, high = price.number("value"), price.number("low"), price.number("high")
    if value is None:
        return "-"
    return form % value if low is None or high is None else "%s (%s-%s)" % tuple(form % number for number in (value, low, high))


def _shown(value: Optional[float]) -> str:
    return "-" if value is None else "%.3g" % value


def _row(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    words = str(host["message"])
    measured = result.part("measured")
    if not words and check_mode:
        words = measured.text("msg")
    fitted = result.part("fit")
    classes = {found.text("name", 40): found for found in fitted.parts("classes")}
    cells = [interval(classes[name].part("a")) if name in classes else "-" for name, dummy in CLASSES]
    biggest = list(classes.values())[-1:] or [Result({})]
    cells += [interval(biggest[0].part("b"), "%.4f"), interval(biggest[0].part("random_read"))]
    # what makes the host's figures another's
    kind = storage(measured) if measured.values and not check_mode else "-"
    return [*cells, kind], " ".join(filter(None, [words, *("%s." % (text[:1].upper() + text[1:]) for text in _doubts(measured))]))


def _doubts(measured: Result) -> List[str]:
    return [remark for remark in measured.texts("remarks") if "swapped" in remark or "busy" in remark or "time limit" in remark or "not confirm" in remark]


TABLE = Table(
    (*(Column("a, " + name, _WIDTH) for name, dummy in CLASSES), Column("b", 24), Column("random read", _WIDTH), Column("storage", -40)), _row
)


def by_storage(hosts: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """Hosts with the same storage together: medians of their coefficients, and the least and the largest."""
    groups: Dict[str, List[Dict[str, float]]] = {}
    for host in hosts.values():
        try:
            result = Result(host.get("result"))
            found = _coefficients(result)
            if found:
                groups.setdefault(storage(result.part("measured")), []).append(found)
        except OddResultError:
            continue  # its row has said so
    if not groups:
        return []
    names = [name for name, dummy in CLASSES]
    width = max(len(name) for name in groups)
    shape = "%%-%ds  %%5s" % width + "  %19s" * len(names)
    lines = ["", shape % ("storage", "hosts", *("a, " + name for name in names))]
    for kind, group in sorted(groups.items()):
        lines.append(shape % (kind, len(group), *(_range([one[name] for one in group if name in one]) for name in names)))
    return [*lines, "Published, for one NVMe laptop and its page cache: a = %.2f." % PUBLISHED["a"]]


def _coefficients(result: Result) -> Dict[str, float]:
    values = ((size_class.text("name", 40), size_class.part("a").number("value")) for size_class in result.part("fit").parts("classes"))
    return {name: value for name, value in values if value is not None}


def _range(values: List[float]) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return "%.2f" % values[0]
    return "%.2f [%.2f, %.2f]" % (statistics.median(values), min(values), max(values))


def lines_of(hosts: Mapping[str, Mapping[str, Any]]) -> List[Tuple[str, List[Tuple[float, float, Optional[float], Optional[float]]]]]:
    """The lines of the plot: for each host a label, and by size megabytes, the flush in units of a read, and the interval's ends."""
    found = []
    for host, one in sorted(hosts.items()):
        try:
            result = Result(one.get("result"))
            points = []
            for size in result.part("fit").parts("sizes"):
                blocks, write = size.number("blocks"), size.part("write")
                value = write.number("value")
                if blocks and value and value > 0:
                    points.append((blocks / 128, value, write.number("low"), write.number("high")))
            if points:
                found.append(("%s: %s" % (printable(host, 40), storage(result.part("measured"))), sorted(points)))
        except OddResultError:
            continue
    return found
