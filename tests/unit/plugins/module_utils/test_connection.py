# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import glob
import os
import re

from ansible_collections.pgfleet.cache.plugins.module_utils import _connection


def test_unknown_refusal_keeps_what_libpq_said():
    assert _connection.explain_connection("something new\n") == "Cannot connect to PostgreSQL: something new."


PLUGINS = os.path.join(os.path.dirname(_connection.__file__), "..")


def texts(path):
    with open(path, encoding="utf-8") as file:
        return [node.value for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_there_is_one_door():
    for path in glob.glob(PLUGINS + "/mod*/*.py"):
        if os.path.basename(path) != "_connection.py":
            with open(path, encoding="utf-8") as file:
                assert not re.search(r"psycopg\w*\.connect|connect_to_db|import psycopg", file.read()), path
    for path in glob.glob(PLUGINS + "/../roles/*/tasks/**/*.yml", recursive=True):
        with open(path, encoding="utf-8") as file:
            assert "community.postgresql." not in file.read(), path


def test_statements_name_the_schema_of_the_extension():
    """In the search path it is not, and a call without it would fail only when it is reached."""
    statements = [text for path in glob.glob(PLUGINS + "/module_utils/*.py") for text in texts(path) if re.search(r"\b(SELECT|FROM)\b", text)]
    assert len(statements) > 50
    for text in statements:
        # what a message tells the operator to run is not ours
        for found in re.finditer(r"(\S*)\bresidency_(?!cancel)\w+\(|FROM (\S*)residency_jobs", text):
            assert (found.group(1) or found.group(2) or "").lstrip("(") in ("@extschema@.", "%s."), text
