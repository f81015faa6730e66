# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a result could have Ansible do is taken out of it, for every module."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils._orders import without_orders

PLUGINS = os.path.join(os.path.dirname(__file__), "../../../../plugins")
PYTHON = {"discovered_interpreter_python": "/usr/bin/python3"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"changed": False}, {"changed": False}),
        ({"ansible_facts": {"target": "x"}, "add_host": {"host_name": "x"}, "add_group": "x", "ansible_stats": {"data": {}}, "msg": "m"}, {"msg": "m"}),
        ({"ansible_facts": dict(PYTHON, target="x")}, {"ansible_facts": PYTHON}),
        ({"ansible_facts": {"discovered_interpreter_python": {"a": "b"}}}, {}),
        ({"ansible_facts": "x"}, {}),
        ({"results": [{"unreachable": "x"}], "ansible_loop_var": "x", "__cache_restart_each": "db9", "_ansible_no_log": True}, {"_ansible_no_log": True}),
        ({"warnings": ["\x1b[31mhi\x07"], "msg": "\x1b"}, {"warnings": ["\\x1b[31mhi\\x07"], "msg": "\x1b"}),
        ({"deprecations": [{"msg": "a\x9b"}], "exception": "line 1\nline\x1b 2"}, {"deprecations": [{"msg": "a\\x9b"}], "exception": "line 1\nline\\x1b 2"}),
    ],
    ids=str,
)
def test_orders(result, expected):
    assert without_orders(result) == expected


@dataclasses.dataclass(frozen=True)
class Event:
    msg: str
    chain: object = None


def test_what_is_written_to_the_terminal():
    """What ansible-core has in place of a text."""
    assert without_orders({"warnings": [Event("a\x1b", Event("b\x9b"))]}) == {"warnings": [Event("a\\x1b", Event("b\\x9b"))]}


def test_what_is_nested_too_deeply():
    value = []
    for dummy in range(1000):
        value = [value]
    assert str(without_orders({"deprecations": value})["deprecations"]).count("[") == 20
    said = without_orders({"relations": value, "row": {"a": [1, {"b": 2}]}})
    assert said["row"] == {"a": [1, {"b": 2}]} and str(said["relations"]).count("[") == 20


def test_every_module_has_it():
    """meta/runtime.yml could redirect them to one; but then module_defaults of that one were all modules'."""
    own, modules = ({name for name in os.listdir(os.path.join(PLUGINS, folder)) if name.endswith(".py")} for folder in ("action", "modules"))
    assert own == modules
    for name in sorted(own - {"check_variables.py", "fleet_report.py"}):
        with open(os.path.join(PLUGINS, "action", name), encoding="utf-8") as file:
            assert re.search(r"_orders import (ActionModule|without_orders)\n|_followed import Followed\n", file.read()), name
    with open(os.path.join(PLUGINS, "plugin_utils", "_followed.py"), encoding="utf-8") as file:
        assert file.read().count("return without_orders(") == 2
