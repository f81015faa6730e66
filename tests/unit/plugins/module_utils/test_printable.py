# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import file_name, printable, printable_lines, shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("warm@3: 40 % of Größe, 价格", "warm@3: 40 % of Größe, 价格"),
        ("a\x1b]0;owned\x07b", "a\\x1b]0;owned\\x07b"),
        ("a\r\nb\tc\x7f", "a\\r\\nb\\tc\\x7f"),
        ("a\x9b31m\x85b", "a\\x9b31m\\x85b"),
        ("a\u202egpj.exe\u2066\u2028", "a\\u202egpj.exe\\u2066\\u2028"),
        ("a\udc9b", "a\\udc9b"),
        (None, "None"),
        ("x" * 11, "xxxxxxxxxx... (1 more characters)"),
    ],
)
def test_printable(text, shown):
    assert printable(text, 10 if shown.endswith(")") else 4000) == shown


def test_lines_stay_lines():
    assert printable_lines("a\nb\x1b\n") == "a\nb\\x1b\n"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("db1.example.com", "db1.example.com"),
        ("x/../../etc/cron.d/x", "x%2F..%2F..%2Fetc%2Fcron.d%2Fx"),
        ("..", "%2E."),
        (".ssh", "%2Essh"),
        ("a%2Fb", "a%252Fb"),
        ("a\x1b\nb c", "a%1B%0Ab%20c"),
        ("größe", "gr%C3%B6%C3%9Fe"),
    ],
)
def test_file_name(host, name):
    assert file_name(host) == name


def test_shown():
    """In keys too, at any depth; what JSON escapes, what is no text, and a blank of any width stays."""
    given = {"a\x9b": ["b\x85", {"c\x7f": "d\x9f\xa0\x1b\n", "e": (1, None, True, 0.5)}], "f\u202e": "Größe 价格 \u2028\u200d\U000e0041\udc9b"}
    assert shown(given) == {
        "a\\x9b": ["b\\x85", {"c\\x7f": "d\\x9f\xa0\x1b\n", "e": [1, None, True, 0.5]}],
        "f\\u202e": "Größe 价格 \\u2028\\u200d\\U000e0041\\udc9b",
    }
