# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only numbers decide; the rest is in tests/integration/test_rolling_restart.py, with real servers."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _restart_check
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

TOTAL = {"in_page_cache": 1000, "in_shared_buffers": 500, "in_both": 300}  # 9.38 MB


def test_memory():
    _restart_check._check_memory("db1", TOTAL, 1 << 30, 90)
    _restart_check._check_memory("db1", TOTAL, 8000000, 50)
    with pytest.raises(ResidencyError) as caught:
        _restart_check._check_memory("db1", TOTAL, 8000000, 90)
    assert str(caught.value) == (
        "9.38 MB are resident, but there is memory for only 7.63 MB of page cache: cache_restart_min_residency (90 %) cannot be reached after a restart."
        " Give db1 more memory, or lower it.")


def test_what_the_role_sets_cannot_be_set():
    for name, value in (("cache_warmup_snapshot", "warm"), ("cache_warmup_min_residency", 50)):
        with pytest.raises(ResidencyError, match="%s is given with -e and would override what the rolling restart sets" % name):
            _restart_check.check(lambda: None, "db1", "postgres", {}, {"replaced": {name: value}}, False)
