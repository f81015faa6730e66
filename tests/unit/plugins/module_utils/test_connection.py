# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import glob
import os
import re

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _connection
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            'unable to connect to database: connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or'
            " directory\n\tIs the server running locally and accepting connections on that socket?\n",
            "Start PostgreSQL",
        ),
        ('FATAL:  Peer authentication failed for user "postgres"', "become_user: postgres"),
        ('FATAL:  password authentication failed for user "x"', "login_password"),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "x", database "y"', "pg_hba.conf"),
        ('FATAL:  database "nowhere" does not exist', "Correct login_db."),
        ('FATAL:  role "nobody" does not exist', "Correct login_user."),
        ("FATAL:  the database system is starting up", "Wait"),
    ],
)
def test_refused_connection_has_one_line_and_a_remedy(text, remedy):
    message = _connection.explain_connection(text)
    assert message.startswith("Cannot connect to PostgreSQL: ")
    assert remedy in message
    assert "\n" not in message


def test_unknown_refusal_keeps_what_libpq_said():
    assert _connection.explain_connection("something new\n") == "Cannot connect to PostgreSQL: something new."


class Diagnosis:
    message_primary = "permission denied for function residency_snapshot"
    message_detail = None
    message_hint = None


class Denied(Exception):
    pgcode = "42501"
    diag = Diagnosis


def test_missing_right_names_the_roles():
    message = _connection._explain_statement(Denied())
    assert message.startswith("PostgreSQL says: permission denied for function residency_snapshot. ")
    assert "residency_admin and pg_monitor" in message


def test_lost_connection_has_no_sqlstate():
    message = _connection._explain_statement(Exception("server closed the connection unexpectedly\n\tThis probably"))
    assert message == (
        "PostgreSQL ended the connection (server closed the connection unexpectedly): it was stopped or restarted meanwhile."
    )


@pytest.mark.parametrize("found", ["0.9.9", "1.0", "1.0.1"])
def test_another_version_than_the_collection(found):
    with pytest.raises(ResidencyError, match=r"pg_residency is version .*, this collection needs 1\.0\.0: update it\."):
        _connection._require_version("Extension", found, "update it")


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
