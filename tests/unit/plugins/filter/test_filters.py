# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.filter import adapters, rolling_restart


@pytest.mark.parametrize("filters", [adapters, rolling_restart], ids=lambda filters: filters.__name__.rsplit(".", 1)[-1])
def test_the_documentation_has_every_decision(filters):
    with open(os.path.splitext(filters.__file__)[0] + ".yml", encoding="utf-8") as file:
        documentation = yaml.safe_load(file)["DOCUMENTATION"]
    assert documentation["options"]["decision"]["choices"] == sorted(filters.DECISIONS)
