# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A query whose result is read as a client would read it, large values that are stored apart (TOAST) included.

EXPLAIN ANALYZE sends no rows, so it reads no value that only the client would see. From PostgreSQL 17 on its option SERIALIZE TEXT
does. Before, an outer query does, which converts each column to text. It calls random(), which is parallel restricted and volatile:
so the planner evaluates the outer query in the leader and above the query, where a session would convert, and keeps the query's own plan.
Every column is an argument, since the planner drops what nobody uses, joins included.
"""

from __future__ import annotations

from typing import Iterator, Sequence

SERIALIZES = 170000  # server_version_num
NOT_MEASURED = "large values that are stored apart (TOAST) and read when the result is sent are not counted: PostgreSQL refused to read them in an outer query"
_CUTS = 50  # semicolons at which a query may be tried to end
_ARGUMENTS = 90  # of one function, which may have 100


def readings(text: str, columns: Sequence[bool]) -> Iterator[str]:
    """The query in one that reads its result, in forms of which the first that the server can parse is right.

    ``columns`` tells which are of variable length; without any, there is nothing to read, and no form. Where the query ends, only the
    server's parser knows. Its last semicolon outside of a comment may have more comments behind it; with it, no form is accepted.
    """
    if not any(columns):
        return
    names = ["c%d" % number for number in range(1, len(columns) + 1)]
    values = ["pg_catalog.format('%%s', q.%s)" % name if variable else "q." + name for name, variable in zip(names, columns)]
    calls = ", ".join(
        "pg_catalog.num_nonnulls(pg_catalog.random(), %s)" % ", ".join(values[first:first + _ARGUMENTS]) for first in range(0, len(values), _ARGUMENTS)
    )
    end = len(text)
    for _attempt in range(_CUTS):
        yield "SELECT %s FROM (\n%s\n) AS q (%s)" % (calls, text[:end], ", ".join(names))
        end = text.rfind(";", 0, end)
        if end < 0:
            return
