# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _io_workload, _pgbench
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

OPTIONS = _io_workload.Options(
    state="run", schema="pgfleet_io", schemas=2, scale="8M", sessions=1, load_sessions=2, load_timeout="6h", run_time="120s", work_unit=255,
    update_pct=0, update_work_unit=8, seed=0, pgbench=None, progress=None,
)


def changed(**options):
    return _io_workload.Options(**dict(OPTIONS.__dict__, **options))


@pytest.mark.parametrize(("scale", "blocks"), [
    ("1024", 1024), ("8M", 1024), ("8m", 1024), ("8 MB", 1024), ("1G", 131072), ("1T", 134217728), ("2147483647", 2147483647),
])
def test_scale(scale, blocks):
    assert _io_workload.blocks_of(scale) == blocks


@pytest.mark.parametrize("scale", ["", "-1", "1.5G", "1023", "7M", "16T", "1P", "many", "1G; x"])
def test_wrong_scale(scale):
    with pytest.raises(ResidencyError, match=r"^scale is "):
        _io_workload.blocks_of(scale)


@pytest.mark.parametrize(("options", "message"), [
    ({"schemas": 0}, "schemas is 0: it must be from 1 to 1024."),
    ({"sessions": 0}, "sessions is 0: it must be from 1 to 10000."),
    ({"update_work_unit": 0}, "update_work_unit is 0: it must be from 1 to 1024, the blocks of a schema."),
    ({"update_pct": 101}, "update_pct is 101: it must be from 0 to 100."),
    ({"seed": -1}, "seed is -1: it must be from 0 to 2147483647."),
    ({"load_timeout": "x"}, "load_timeout is 'x': it must be a duration such as 36h; the units are s, min, h, d and w."),
    ({"run_time": "5000w"}, "run_time is 5000w: pgbench runs at most 68 years."),
    ({"schema": "public"}, "schema is public, which is everybody's: set one that is for the load alone."),
    ({"schema": "pg_io"}, "schema is 'pg_io': it must be a name of small letters, digits and _ that does not begin with pg_."),
])
def test_wrong_options(options, message):
    with pytest.raises(ResidencyError, match="^%s$" % re.escape(message)):
        _io_workload._check(changed(**options), 1024)


@pytest.mark.parametrize("percent", [0, 1, 50, 51, 75, 99, 100])
def test_every_percentage_of_updates(percent):
    _io_workload._check(changed(update_pct=percent), 1024)
    (_text, select), (_other, update) = _io_workload.scripts(changed(update_pct=percent), 1024, 1)
    assert (select, update) == (100 - percent, percent)


def test_ranges_stay_within_the_table():
    """From the first key to the last one, and as many rows as the unit of work."""
    (select, _weight), (update, _other) = _io_workload.scripts(changed(work_unit=1024, update_work_unit=1), 1024, 3)
    assert "random(1, 1)\n" in select and ":first + 1023;" in select and '"pgfleet_io".pgio3 ' in select
    assert "random(1, 1024)\n" in update and ":first + 0;" in update and "UPDATE \"pgfleet_io\".pgio3 " in update


def test_totals():
    run = _pgbench.Run([
        _pgbench.Session(0, 0, {0: 3, 1: 2}, 1, {0: 5.5, 1: 7.0}), _pgbench.Session(1, 0, {0: 1}, 0, {0: 9.0}),
    ], 2.0)
    assert _io_workload._totals(run, OPTIONS) == {
        "selects": 4, "updates": 2, "select_blocks": 4 * 255, "update_blocks": 2 * 8, "failed_transactions": 1, "slowest_select_ms": 9.0,
        "slowest_update_ms": 7.0,
    }
    assert _io_workload._totals(_pgbench.Run([]), OPTIONS)["slowest_select_ms"] is None
