# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runs of an I/O workload side by side: the reads that PostgreSQL counted, and those that the devices served."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Column, Result, Row, Table, human

COLUMNS = (
    Column("page cache", -10), Column("blocks/s", 9), Column("RIOPS", 9), Column("RPIOPS", 9), Column("ratio", 7), Column("from cache", 10),
    Column("device/s", 9), Column("latency", 8), Column("busy", 5),
)
_NOTE = (
    "blocks/s: blocks of tables touched. RIOPS: reads per second that PostgreSQL counted. RPIOPS: reads per second that the devices served."
    " from cache: share of the counted bytes that came from the page cache at least. Counts are of the window, which begins before the run and ends after it;"
    " rates are these counts per second of the run."
)


class Run(NamedTuple):
    """The figures of a run that the table shows."""

    limit: str
    touched: Optional[float]
    riops: Optional[float]
    rpiops: Optional[float]
    ratio: Optional[float]
    cached: Optional[float]  # percent
    device: Optional[float]  # bytes per second
    latency: Optional[float]  # milliseconds
    busy: Optional[float]  # percent
    certainty: str
    remarks: List[str]


def table(result: Mapping[str, Any], host: str) -> List[str]:
    """The lines of one host, as its result has them."""
    found = Result(result)
    load = found.part("load")
    first = Result((result.get("runs") or [{}])[0]).part("load")
    lines = ["%s: %s, %d schemas of %s, %d sessions, page cache %s at the beginning" % (
        printable(host), found.text("database", 100), load.number("schemas") or 0, human((load.number("blocks") or 0) * 8192), first.count("sessions"),
        {"as_found": "as it was found"}.get(found.text("start", 20), found.text("start", 20)),
    )]
    shape = "  %%-%ds" % -COLUMNS[0].width + "".join("  %%%ds" % column.width for column in COLUMNS[1:])
    lines.append(shape % tuple(column.title for column in COLUMNS))
    every = runs(found)
    lines += [shape % tuple(_cells(one)) + ("" if one.certainty == "exact" else "  *") for one in every]
    lines += ["", _NOTE]
    lines.append("The tables (%s) stay: run this again with -e cache_io_workload_state=absent to remove them." % human(
        (load.number("blocks") or 0) * (load.number("schemas") or 0) * 8192))
    for one in every:
        lines += [printable("%s%s: %s." % ("" if one.certainty == "exact" else "* ", one.limit, remark)) for remark in one.remarks]
    return lines + list(filter(None, [gain(every), small(every)]))


def runs(result: Result) -> List[Run]:
    found = []
    for part in result.parts("runs"):
        io, load = part.part("io"), part.part("load")
        reads, total = io.part("reads"), io.part("total")
        # A busy controller needs as long for the tasks around the run as the run itself.
        longer = (io.part("window").number("seconds") or 0) / (load.number("seconds") or 1) or 1.0
        busy = _times(total.number("utilisation_percent"), longer)
        found.append(Run(
            part.text("limit", 20) or "as it is", load.number("blocks_per_second"), _times(reads.number("riops"), longer),
            _times(reads.number("rpiops"), longer), reads.number("ratio"), reads.number("page_cache_percent"),
            _times(total.number("read_bytes_per_second"), longer), total.number("read_milliseconds"), None if busy is None else min(100.0, busy),
            io.text("certainty", 20), [*io.texts("gaps"), *io.texts("remarks")],
        ))
    return found


def _times(value: Optional[float], factor: float) -> Optional[float]:
    return None if value is None else value * factor


def gain(every: List[Run]) -> str:
    """The summary of the runs in one sentence."""
    if not every or every[0].riops is None or every[0].rpiops is None:
        return ""
    first, last = every[0], every[-1]
    text = "PostgreSQL counted %.0f reads/s where the devices served %.0f/s" % (first.riops or 0, first.rpiops or 0)
    if first.cached is not None:
        text += ": %g %% of the bytes came from the page cache" % first.cached
    if len(every) > 1 and last.riops is not None and last.rpiops is not None:
        text += "; with %s of page cache, %.0f counted and %.0f served" % (last.limit, last.riops, last.rpiops)
    return text + "."


def small(every: List[Run]) -> str:
    """A sentence if the run read less than half of the blocks that it touched, since shared_buffers had the others."""
    if not every or every[0].riops is None or not every[0].touched or every[0].riops > every[0].touched / 2:
        return ""
    return (
        "shared_buffers had %.0f %% of the blocks that the run touched, so these figures are of few reads: make the tables larger than shared_buffers with"
        " cache_io_workload_scale or cache_io_workload_schemas." % (100 * (1 - every[0].riops / every[0].touched))
    )


def row(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    """A row of the fleet's table: the first run, and the ratio of the last one if there are two."""
    words = str(host["message"])
    every = runs(result)
    if not words and (check_mode or not every):
        words = " ".join(filter(None, [result.text("msg"), result.part("load").text("msg") if not result.text("msg") else ""]))
    if not every:
        return ["-"] * len(COLUMNS), words
    cells = _cells(every[0])[1:]
    limited = "-" if len(every) < 2 or every[-1].ratio is None else "%.3f" % every[-1].ratio
    doubts = [remark for run in every if run.certainty != "exact" for remark in run.remarks]
    return [*cells, limited], " ".join(filter(None, [words, "; ".join(dict.fromkeys(doubts))]))


TABLE = Table((*COLUMNS[1:], Column("limited", 7)), row)  # of the fleet


def _cells(run: Run) -> Tuple[str, ...]:
    def shown(value: Optional[float], form: str) -> str:
        return "-" if value is None else form % value

    return (
        run.limit, shown(run.touched, "%.0f"), shown(run.riops, "%.0f"), shown(run.rpiops, "%.0f"), shown(run.ratio, "%.3f"), shown(run.cached, "%.1f %%"),
        "-" if run.device is None else human(run.device), shown(run.latency, "%.2f ms"), shown(run.busy, "%.0f %%"),
    )
