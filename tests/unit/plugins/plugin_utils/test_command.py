# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils._command import command


@pytest.mark.parametrize(
    ("cli", "without", "expected"),
    [
        ({}, [], "ansible-playbook pgfleet.cache.rolling_restart"),
        ({"inventory": ("hosts",), "subset": "db2"}, [], "ansible-playbook -i hosts pgfleet.cache.rolling_restart --limit db2"),
        ({}, ["db1", "db3"], "ansible-playbook pgfleet.cache.rolling_restart --limit 'all:!db1:!db3'"),
        ({"subset": "eu"}, ["db1"], "ansible-playbook pgfleet.cache.rolling_restart --limit 'eu:!db1'"),
        ({"inventory": ["my hosts"], "extra_vars": ("cache_restart_what=host", "@vault.yml", "a='b c'")}, [],
         "ansible-playbook -i 'my hosts' pgfleet.cache.rolling_restart -e cache_restart_what=host -e @vault.yml -e 'a='\"'\"'b c'\"'\"''"),
        ({"extra_vars": ["pgfleet_login_password=x", "target=a"]}, [],
         "ansible-playbook pgfleet.cache.rolling_restart -e target=a # and the variables that are secret"),
    ],
    ids=["nothing", "limit", "without", "both", "quoted", "secret"],
)
def test_command(cli, without, expected):
    assert command(cli, "rolling_restart", without) == expected
