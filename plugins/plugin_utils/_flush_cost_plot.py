# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flush cost against the size of the table, a line for each host."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import Any, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.plugin_utils._flush_cost import LEVEL, PUBLISHED

try:
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError:
    FigureCanvasAgg = None  # type: ignore[assignment,misc]

MISSING = (
    "There is no plot: Ansible's Python on the controller has no matplotlib. Install it there (pip install matplotlib), or set"
    " temp_buffer_cost_plot to false."
)
MOST = 20  # hosts in one plot: more lines cannot be told apart
# distinct also for those who do not see red and green apart (Okabe and Ito)
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX*"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200)

Points = Sequence[Tuple[float, float, Optional[float], Optional[float]]]


def missing() -> str:
    return MISSING if FigureCanvasAgg is None else ""


def draw(hosts: Sequence[Tuple[str, Points]], path: str) -> str:
    """Write the PNG, complete or not at all. ``hosts`` have labels and points (megabytes, ratio, low, high). Returns the path."""
    # the same everywhere: a matplotlibrc, also one in the current directory, could have hosts' words set by TeX
    with style.context("default", after_reset=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font has not
        return _draw(hosts, path)


def _draw(hosts: Sequence[Tuple[str, Points]], path: str) -> str:
    figure = Figure(figsize=(10, 5.5 + 0.22 * min(len(hosts), MOST)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (label, points) in enumerate(hosts[:MOST]):
        # beside each other, so that intervals of hosts that agree stay visible
        _line(axes, number, label, points, 2 ** (0.25 * ((number + 0.5) / min(len(hosts), MOST) - 0.5)))
    axes.axhline(PUBLISHED["a"], color="#888888", linestyle="--", linewidth=1.2, label="published: %.2f (NVMe laptop, page cache)" % PUBLISHED["a"], zorder=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _scales(axes, [point for dummy, points in hosts[:MOST] for point in points])
    axes.set_xlabel("size of the temporary table")
    axes.set_ylabel("flush of a dirty block / sequential read of a block")
    axes.set_title("Flush of local buffers in units of a sequential read%s" % (" (%d of %d hosts)" % (MOST, len(hosts)) if len(hosts) > MOST else ""))
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    legend = figure.legend(loc="outside lower left", fontsize=9, frameon=False, title="Medians, with %d %% intervals" % LEVEL, alignment="left")
    for text in legend.get_texts():
        text.set_parse_math(False)  # the words are a host's, and $ no formula
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            figure.savefig(file, format="png")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def _line(axes: Any, number: int, label: str, points: Points, shift: float) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    x = [point[0] * shift for point in points]
    y = [point[1] for point in points]
    low = [max(0.0, value - (end if end is not None else value)) for dummy, value, end, dummy2 in points]
    high = [max(0.0, (end if end is not None else value) - value) for dummy, value, dummy2, end in points]
    axes.errorbar(
        x, y, yerr=[low, high], color=colour, marker=_MARKERS[number % len(_MARKERS)], markersize=5, linewidth=1.4, elinewidth=1, capsize=2.5,
        linestyle=("-", "--", ":")[number // len(_COLOURS) % 3],
        label=" " + label if label.startswith("_") else label,  # which would leave it out of the legend
        zorder=3,
    )


def _scales(axes: Any, points: Points) -> None:
    sizes = sorted({point[0] for point in points})
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, dummy: "%g GB" % (value / 1024) if value >= 1024 else "%g MB" % value))
    # by the medians: an interval of few iterations may be longer than the rest of the picture is high
    low = min([0.6, *(point[1] / 1.3 for point in points)])
    high = max([2.2, *(1.3 * point[1] for point in points)])
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if low <= tick <= high]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, dummy: "%g" % value))
