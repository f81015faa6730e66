# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host of the test's own."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _proc


@pytest.fixture
def system(tmp_path, monkeypatch):
    """write(path, text): a file below another root."""
    root = tmp_path / "system"
    root.mkdir()
    monkeypatch.setattr(_proc, "_SYSTEM", str(root))

    def write(path, text):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")

    return write
