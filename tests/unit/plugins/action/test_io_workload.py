# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.action.io_workload import read_note


@pytest.mark.parametrize(("text", "expected"), [
    ('{"text": "loading, 12.5 %, 1.00 GB"}', (12.5, "loading, 12.5 %, 1.00 GB")),
    ('{"text": "loading"}', (0.0, "loading")),
    ("", (0.0, "")),
    ("cat: no such file", (0.0, "")),
    ("[1]", (0.0, "")),
    ('{"text": "%s"}' % ("x" * 900), (0.0, "x" * 200)),
])
def test_read_note(text, expected):
    assert read_note(text) == expected
