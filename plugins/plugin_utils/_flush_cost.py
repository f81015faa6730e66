# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The price of a flush of local buffers, fitted to what temp_buffer_cost has measured on a host: flush_cost = a x dirtied + b x allocated.

The unit is the sequential read of one block at the same size, which is what seq_page_cost prices.

a: the median of write / read over the sizes of a class, each by the medians of its iterations. That is the Theil-Sen estimator through the origin
(the median of all y / x; Theil 1950, Sen 1968). A flush of nothing costs nothing but the scan, which is measured on its own and subtracted. Medians,
because a flush now and then waits for the kernel's writeback: in the published data the mean at 2 GB is 1.9 times the median, and a fit
by least squares would be a fit of these few. Half of the iterations can be such ones before a median moves with them.

b: the slope, by Theil-Sen with an intercept, of the dry flush over the allocated buffers of all sizes. The intercept is what a statement costs
without a buffer; divided by few buffers it would look like a price per buffer. The scan is in memory alone, so sizes of all classes have one slope.

Intervals: percentile bootstrap over the iterations (Efron and Tibshirani 1993), pairs of a write and a read of the same iteration together. They say
how well these iterations determine the figure, and not how the sizes of a class differ, which the ratios by size show.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.module_utils._temp_buffer_cost import MOST_ITERATIONS, MOST_SIZES

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

MISSING = "The fit needs numpy, which Ansible's Python on the controller does not have: install it there (pip install numpy)."
RESAMPLES = 2000
LEVEL = 95  # percent, of the intervals
PUBLISHED = {"a": 1.30, "b": 0.01}
BLOCKS_OF_MB = 128
# name, and the first size that is no longer in it, in blocks
CLASSES: Tuple[Tuple[str, float], ...] = (("below 16 MB", 16 * BLOCKS_OF_MB), ("16 to 256 MB", 256 * BLOCKS_OF_MB + 1), ("above 256 MB", float("inf")))
# PostgreSQL's defaults, of cost.h and costsize.c
CPU_TUPLE, CPU_OPERATOR, PARALLEL_SETUP, PARALLEL_TUPLE, LEADER = 0.01, 0.0025, 1000.0, 0.1, 0.3


class Size:
    """A measurement of temp_buffer_cost, which is of one size."""

    def __init__(self, measurement: Mapping[str, Any]) -> None:
        self.blocks, self.allocated, self.written = (measurement[key] for key in ("blocks", "buffers", "written"))
        phases = ("write", "dry_write", "read", "random_read", "random_write")
        self.values = {phase: list(map(float, measurement["microseconds"][phase]["values"])) for phase in phases}
        if not min(self.blocks, self.allocated, self.written, *self.values["read"]) > 0 or len(set(map(len, self.values.values()))) != 1:
            raise ValueError("incomplete")

    def iterations(self) -> int:
        return len(self.values["read"])


def missing(library: str = "numpy") -> str:
    """A sentence about the library that the controller lacks; empty if it has it. ``library`` is for the filter, which must have an input."""
    return MISSING if library == "numpy" and numpy is None else ""


def of_host(measured: Any, dirtied: int, allocated: int, rows_per_block: float, workers: int) -> Dict[str, Any]:
    """The role's result, from that of its module. In check mode nothing was measured."""
    if not measured.get("measurements"):
        return {"measured": measured, "fit": {}, "plan": {}}
    fitted = fit(measured)
    return {"measured": measured, "fit": fitted, "plan": plan(fitted, dirtied, allocated, rows_per_block, workers)}


def fit(measured: Any, resamples: int = RESAMPLES) -> Dict[str, Any]:
    """The coefficients by class of size, and the ratios by size, from a result of temp_buffer_cost."""
    if numpy is None:
        raise AnsibleFilterError(MISSING)
    try:
        sizes = [Size(measurement) for measurement in measured["measurements"]]
    except (KeyError, TypeError, ValueError):
        raise AnsibleFilterError("A measurement is incomplete: these are not results of temp_buffer_cost.") from None
    if not sizes:
        raise AnsibleFilterError("There is no measurement to fit.")
    # the resamples of more would take the controller's memory
    if len(sizes) > MOST_SIZES or max(size.iterations() for size in sizes) > MOST_ITERATIONS or len({size.blocks for size in sizes}) < len(sizes):
        raise AnsibleFilterError("There are more than %d sizes, or one of them twice: these are not results of temp_buffer_cost." % MOST_SIZES)
    # each with the same random numbers, so that the same data give the same intervals
    generator = numpy.random.default_rng(0)
    draws = [_Draw(size, generator, resamples) for size in sizes]
    scan = _slope([draw.size.allocated for draw in draws], numpy.stack([draw.dry for draw in draws]))
    classes = []
    for number, (name, end) in enumerate(CLASSES):
        begin = CLASSES[number - 1][1] if number else 0
        inside = [draw for draw in draws if begin <= draw.size.blocks < end]
        if inside:
            classes.append(_class(name, inside, scan))
    return {
        "classes": classes,
        "scan_nanoseconds": _interval(scan * 1000),
        "sizes": [
            {
                "blocks": draw.size.blocks, "iterations": draw.size.iterations(), "read_microseconds": _short(draw.read[0]),
                "write": _interval(draw.ratio("write")), "random_write": _interval(draw.ratio("random_write")),
                "random_read": _interval(draw.ratio("random_read")),
                "dry_percent_of_write": _short(100 * draw.dry[0] / (draw.write[0] * draw.size.written)),
            }
            for draw in draws
        ],
        "level": LEVEL,
    }


class _Draw:
    """Medians of a size: first the measured ones, then those of the resamples."""

    def __init__(self, size: Size, generator: Any, resamples: int) -> None:
        self.size = size
        count = size.iterations()
        chosen = generator.integers(count, size=(resamples if count > 1 else 0, count))
        self._medians = {}
        for phase, values in size.values.items():
            all_values = numpy.array(values)
            drawn = numpy.median(all_values[chosen], axis=1) if len(chosen) else numpy.full(resamples, numpy.nan)
            self._medians[phase] = numpy.concatenate([[numpy.median(all_values)], drawn])
        self.read, self.write = self._medians["read"], self._medians["write"]
        self.dry = self._medians["dry_write"] * size.allocated  # of a whole flush

    def ratio(self, phase: str) -> Any:
        return self._medians[phase] / self.read

    def price(self, phase: str) -> Any:
        """The price of a dirty block, without the scan, which has a price of its own."""
        return (self._medians[phase] - self.dry / self.size.written) / self.read


def _class(name: str, inside: Sequence[_Draw], scan: Any) -> Dict[str, Any]:
    read = numpy.median(numpy.stack([draw.read for draw in inside]), axis=0)
    found = {
        "name": name,
        "blocks": [draw.size.blocks for draw in inside],
        "iterations": min(draw.size.iterations() for draw in inside),
        "read_microseconds": _interval(read),
    }
    for key, values in (("a", "write"), ("a_random", "random_write")):
        found[key] = _interval(numpy.median(numpy.stack([draw.price(values) for draw in inside]), axis=0))
    found["b"] = _interval(scan / read)
    found["random_read"] = _interval(numpy.median(numpy.stack([draw.ratio("random_read") for draw in inside]), axis=0))
    return found


def _slope(buffers: Sequence[float], dry: Any) -> Any:
    """Theil-Sen, for every resample; with one size its mean, which has the statement's own cost in it."""
    if len(buffers) < 2:
        return dry[0] / buffers[0]
    slopes = [
        (dry[second] - dry[first]) / (buffers[second] - buffers[first])
        for first in range(len(buffers)) for second in range(first + 1, len(buffers)) if buffers[first] != buffers[second]
    ]
    return numpy.median(numpy.stack(slopes), axis=0)


def _interval(values: Any) -> Dict[str, Optional[float]]:
    """``values`` has the estimate first. Without a second iteration there is no interval."""
    drawn = values[1:]
    if not len(drawn) or numpy.isnan(drawn).any():
        return {"value": _short(values[0]), "low": None, "high": None}
    low, high = numpy.percentile(drawn, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return {"value": _short(values[0]), "low": _short(low), "high": _short(high)}


def _short(value: Any) -> float:
    return float("%.4g" % value)


# --- what it means for a planner ---


def plan(fitted: Mapping[str, Any], dirtied: int, allocated: int, rows_per_block: float, workers: int) -> Dict[str, Any]:
    """Costs of one table of ``allocated`` blocks in local buffers, of which ``dirtied`` are dirty, by PostgreSQL's default parameters.

    A scan that counts the rows with one condition, whose result the workers do not send by rows: parallel workers share the processor's part,
    and PostgreSQL's model has them share no I/O. The coefficients are those of the class that the table is in, else of the nearest.
    """
    allocated = max(allocated, dirtied)
    size_class = class_of(fitted, allocated)
    flush = size_class["a"]["value"] * dirtied + size_class["b"]["value"] * allocated
    processor = allocated * rows_per_block * (CPU_TUPLE + CPU_OPERATOR)
    divisor = workers + max(0.0, 1 - LEADER * workers)
    serial, parallel = allocated + processor, allocated + processor / divisor + PARALLEL_SETUP
    gain = serial - parallel
    return {
        "dirtied": dirtied, "allocated": allocated, "class": size_class["name"], "flush_cost": _short(flush),
        "flush_cost_low": _end(size_class, "low", dirtied, allocated), "flush_cost_high": _end(size_class, "high", dirtied, allocated),
        "published_flush_cost": _short(PUBLISHED["a"] * dirtied + PUBLISHED["b"] * allocated),
        "serial_scan_cost": _short(serial), "parallel_scan_cost": _short(parallel), "workers": workers,
        "scans_to_pay": _short(flush / gain) if gain > 0 else None,
    }


def class_of(fitted: Mapping[str, Any], blocks: int) -> Mapping[str, Any]:
    """The one with the measured size that is nearest to this one, by its factor."""
    nearest: Mapping[str, Any] = min(
        fitted["classes"], key=lambda size_class: min(max(blocks, size) / max(1, min(blocks, size)) for size in size_class["blocks"]))
    return nearest


def _end(size_class: Mapping[str, Any], end: str, dirtied: int, allocated: int) -> Optional[float]:
    if size_class["a"][end] is None or size_class["b"][end] is None:
        return None
    return _short(size_class["a"][end] * dirtied + size_class["b"][end] * allocated)
