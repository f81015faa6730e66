# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check with the server that a text is one query that only reads: only its parser knows where a statement ends."""

from __future__ import annotations

from contextlib import suppress
from typing import List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, sqlstate
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

NO_QUERY = "is not a query that only reads: it must be one SELECT, VALUES, TABLE or WITH."
NOT_READING = NO_QUERY + " %s"

# Opens the text as a read-only cursor, and does not run it. It needs a server with libxml, as all packages of PostgreSQL are;
# others fail after the cursor was opened, with the SQLSTATE of what is not supported.
_OPEN = "SELECT 1 AS opened FROM pg_catalog.query_to_xmlschema(%s::pg_catalog.text, true, false, ''::pg_catalog.text)"


def refusal(session: Session, text: str) -> Optional[str]:
    """The fault of the query, or None. Runs in a transaction, which an error ends. Other errors are the server's."""
    try:
        session.rows(_OPEN, (text,))
    except ResidencyError as error:
        state = sqlstate(error.__cause__)
        if state not in ("42P11", "0A000", "25006"):  # invalid_cursor_definition, feature_not_supported, read_only_sql_transaction
            raise
        if state == "42P11" and _opens(session, "SELECT 1;\n" + text) is None:
            return "is empty."
        if state == "42P11" and _opens(session, "EXPLAIN " + text) == "42P11":
            return "holds more than one statement: make each a separate query."
        return NOT_READING % error
    return None


def columns(session: Session, text: str) -> Optional[List[bool]]:
    """For each column of the query's result, True if it is of variable length; None if the query is no SELECT, VALUES, TABLE or WITH.

    After refusal(), which lets SHOW, EXPLAIN and others pass that return rows, too. Runs in a transaction, and leaves it as it was. Other
    errors than the parser's are the server's.
    """
    session.command("SAVEPOINT pgfleet_query")
    try:
        # the parser accepts nothing else after FOR; the cursor is planned, and not run
        session.command("DECLARE pgfleet_query NO SCROLL CURSOR FOR " + text, users=True)
        return session.columns("FETCH 0 FROM pgfleet_query")
    except ResidencyError as error:
        if (sqlstate(error.__cause__) or "")[:2] != "42":
            raise
        return None
    finally:
        with suppress(ResidencyError):  # the connection is gone, or the transaction was ended by an error that is raised
            session.command("ROLLBACK TO pgfleet_query")


def _opens(session: Session, text: str) -> Optional[str]:
    """None, or the SQLSTATE of why not."""
    session.command("ROLLBACK")
    session.command("BEGIN READ ONLY")
    try:
        session.rows(_OPEN, (text,))
    except ResidencyError as error:
        return sqlstate(error.__cause__)
    return None
