# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one query that only reads, for roles."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Dict, List

from ansible_collections.pgfleet.cache.plugins.module_utils import _one_query
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


@dataclass(frozen=True)
class Options:
    query: str
    named_args: Dict[str, Any]
    checkpoint: bool


def ask(session: Session, options: Options, check_mode: bool) -> Dict[str, Any]:
    if options.checkpoint:
        if check_mode:
            session.record("CHECKPOINT")
        else:
            session.execute("CHECKPOINT")
    rows = _rows(session, options.query, options.named_args or None)
    return dict(
        empty_result(),
        query_result=[{name: _plain(value) for name, value in row.items()} for row in rows],
        rowcount=len(rows),
        queries=session.queries,
        msg="The query has %d row%s." % (len(rows), "" if len(rows) == 1 else "s"),
    )


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {"changed": False, "query_result": [], "rowcount": 0, "queries": []}


def _rows(session: Session, query: str, named_args: Any) -> List[Dict[str, Any]]:
    if "\0" in session.text_of(query, named_args):
        raise ResidencyError("The query holds a NUL character.")
    session.command("BEGIN READ ONLY")
    try:
        refused = _one_query.refusal(session, session.text_of(query, named_args))
        if refused:
            raise ResidencyError("The query %s" % refused)
        return session.rows(query, named_args)
    finally:
        with suppress(ResidencyError):  # the connection is gone, which was said already
            session.command("ROLLBACK")


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (bytes, memoryview)):
        return "\\x" + bytes(value).hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else str(value)
