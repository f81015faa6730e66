# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _facts

VARIABLE = "ANSIBLE_INJECT_FACT_VARS"


@pytest.fixture(autouse=True)
def as_before():
    yield
    _facts.facts_as_before("")


@pytest.mark.parametrize("setting", [None, "True"])
def test_they_are_apart_and_then_as_before(monkeypatch, setting):
    monkeypatch.delenv(VARIABLE, raising=False)
    if setting:
        monkeypatch.setenv(VARIABLE, setting)
    assert _facts.are_variables()
    for dummy in range(2):  # a playbook that another imports
        assert _facts.facts_apart("db1") == "db1"
        assert not _facts.are_variables()
    assert _facts.facts_as_before(["db1"]) == ["db1"]
    assert _facts.are_variables() and os.environ.get(VARIABLE) == setting


def test_nothing_that_is_said_meanwhile_is_kept():
    """Nor by a cache of facts, from which the next run would make variables."""
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=None, parse=False)
    inventory.add_host("db1")
    variables = VariableManager(loader=loader, inventory=inventory)

    def facts():
        return variables.get_vars(host=inventory.get_host("db1"), include_hostvars=False).get("ansible_facts", {})

    variables.set_host_facts("db1", {"before": 1})
    _facts.facts_apart("db1")
    variables.set_host_facts("db1", {"ansible_remote_tmp": "$(id)", "discovered_interpreter_python": "/usr/bin/python3"})
    assert facts() == {"before": 1, "discovered_interpreter_python": "/usr/bin/python3"}
    _facts.facts_as_before("db1")
    variables.set_host_facts("db1", {"after": 2})
    assert facts() == {"before": 1, "discovered_interpreter_python": "/usr/bin/python3", "after": 2}


def test_an_ansible_core_that_has_the_setting_elsewhere(monkeypatch):
    """It is seen by what becomes of a fact, and not by the places that are known."""
    monkeypatch.setattr(_facts, "_PLACES", ())
    monkeypatch.setattr(_facts, "_VARIABLE", "ANSIBLE_ANOTHER_VARIABLE")
    _facts.facts_apart("db1")
    assert _facts.are_variables()


def test_where_it_cannot_be_tried(monkeypatch):
    monkeypatch.setattr(_facts.manager.VariableManager, "get_vars", lambda self, **options: {})
    assert _facts.are_variables()
    monkeypatch.setitem(_facts._before, _facts._SETTING, False)
    assert not _facts.are_variables(), "the user has set it"
    del _facts._before[_facts._SETTING]
