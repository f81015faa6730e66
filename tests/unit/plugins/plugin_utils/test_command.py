# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.pgfleet.cache.plugins.plugin_utils._command import command, pattern


@pytest.mark.parametrize(
    ("cli", "without", "expected"),
    [
        ({}, [], "ansible-playbook pgfleet.cache.rolling_restart"),
        ({"inventory": ("hosts",), "subset": "db2"}, [], "ansible-playbook -i hosts pgfleet.cache.rolling_restart --limit db2"),
        ({}, ["db1", "db3"], "ansible-playbook pgfleet.cache.rolling_restart --limit 'all,!db1,!db3'"),
        ({"subset": "eu"}, ["db1"], "ansible-playbook pgfleet.cache.rolling_restart --limit 'eu,!db1'"),
        ({"subset": "db1,db2,db3"}, ["db1"], "ansible-playbook pgfleet.cache.rolling_restart --limit 'db1,db2,db3,!db1'"),
        ({"inventory": ["my hosts"], "extra_vars": ("cache_restart_what=host", "@vault.yml", '{"target": "a b"}')}, [],
         "ansible-playbook -i 'my hosts' pgfleet.cache.rolling_restart -e cache_restart_what=host -e @vault.yml -e '{\"target\": \"a b\"}'"),
        ({"extra_vars": ["ansible_become_pass=hunter2", "target=a", "target=b db_pwd=hunter2", "target=http://me:hunter2@h", '{"api_key": "hunter2"}',
                         "{broken"]}, [],
         "ansible-playbook pgfleet.cache.rolling_restart -e target=a # and the other extra variables"),
        ({"extra_vars": ["pgfleet_waive=db2", '{"pgfleet_take_over": "alice"}', "cache_restart_resume=false target=a", "target=b"]}, [],
         "ansible-playbook pgfleet.cache.rolling_restart -e '{\"target\": \"a\"}' -e target=b"),
    ],
    ids=["nothing", "limit", "without", "both", "commas", "quoted", "secret", "once"],
)
def test_command(cli, without, expected):
    assert command(cli, "rolling_restart", {"target", "cache_restart_what"}, without) == expected


ODD = ["a:b", "db[1]", "!x", "~x", "&y", "a,b", "a b", "*", "db?", "::1", "10.0.0.1", "höst", "a\\b", "x$", "(x", "db1", "db10", "DB1", "host-1.example.org"]


@pytest.mark.parametrize("name", ODD)
def test_pattern(name):
    """Ansible's own reading of it."""
    inventory = InventoryManager(DataLoader(), sources=None)
    inventory.add_group("fleet")
    for one in ODD:
        inventory.add_host(one, "fleet")
    assert [host.name for host in inventory.get_hosts([pattern(name)])] == [name]
    assert [host.name for host in inventory.get_hosts("fleet,!" + pattern(name))] == [one for one in ODD if one != name]
