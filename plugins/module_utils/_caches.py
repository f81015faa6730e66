# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The content of both caches, in total, by database and by relation, from one walk over the cluster's files."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES, percent

COUNTS = ("blocks", "in_page_cache", "in_shared_buffers", "in_both", "dirty_in_page_cache", "dirty_in_shared_buffers")

_CACHED = "in_page_cache + in_shared_buffers - in_both"
ORDERS = {
    "page_cache": "in_page_cache",
    "shared_buffers": "in_shared_buffers",
    "percent": "(%s)::float8 / greatest(blocks, 1)" % _CACHED,
    "dirty": "coalesce(dirty_in_page_cache, 0) + dirty_in_shared_buffers",
}

# The functions are set-returning: a join of what they return is a hash join, its cost grows with the files.
_BY_RELATION = """
WITH page_cache AS (
    SELECT tablespace, database, relfilenumber,
           sum(blocks) AS blocks, sum(resident) AS resident, sum(dirty) AS dirty
    FROM @extschema@.residency_segments(NULL::oid) GROUP BY tablespace, database, relfilenumber
), buffers AS (
    SELECT tablespace, database, relfilenumber,
           sum(blocks) AS blocks, sum(in_page_cache) AS in_page_cache, sum(dirty) AS dirty
    FROM @extschema@.residency_shared_buffers(true) GROUP BY tablespace, database, relfilenumber
), relations AS MATERIALIZED (
    SELECT database, tablespace, relfilenumber,
           coalesce(p.blocks, b.blocks) AS blocks,
           coalesce(p.resident, 0) AS in_page_cache,
           coalesce(b.blocks, 0) AS in_shared_buffers,
           coalesce(b.in_page_cache, 0) AS in_both,
           p.dirty AS dirty_in_page_cache,
           coalesce(b.dirty, 0) AS dirty_in_shared_buffers
    FROM page_cache AS p FULL JOIN buffers AS b USING (tablespace, database, relfilenumber)
    WHERE %(where)s
)
"""
_PLACE = "database::bigint, tablespace::bigint, relfilenumber::bigint"
_SUMS = ", ".join("sum({0})::bigint AS {0}".format(count) for count in COUNTS)
_PLAIN = ", ".join("{0}::bigint AS {0}".format(count) for count in COUNTS)

_SUMMARY = """
SELECT 'database' AS what, database::bigint, NULL::bigint AS tablespace, NULL::bigint AS relfilenumber, %(sums)s
FROM relations GROUP BY database
UNION ALL
(SELECT 'relation', %(place)s, %(plain)s FROM relations
 ORDER BY %(order)s DESC, blocks DESC, database, tablespace, relfilenumber LIMIT %%s)
"""

_SEGMENTS = """
SELECT database::bigint, tablespace::bigint, relfilenumber::bigint, fork, segment, blocks, resident AS in_page_cache,
       dirty AS dirty_in_page_cache
FROM @extschema@.residency_segments(NULL::oid)
WHERE %(where)s
ORDER BY %(order)s DESC, blocks DESC, database, tablespace, relfilenumber, fork, segment LIMIT %%s
"""
_SEGMENT_ORDERS = {"percent": "resident::float8 / greatest(blocks, 1)", "dirty": "coalesce(dirty, 0)"}


def by_relation(
    session: Session, order: str = "page_cache", limit: Optional[int] = None, databases: Optional[Sequence[int]] = None
) -> Tuple[List[Row], List[Row]]:
    """Rows by database, and rows by relation in the order asked for."""
    where, params = _where(databases)
    sql = _BY_RELATION % {"where": where} + _SUMMARY % {"sums": _SUMS, "plain": _PLAIN, "place": _PLACE, "order": ORDERS[order]}
    rows = session.rows(sql, [*params, limit])
    return [row for row in rows if row["what"] == "database"], [row for row in rows if row["what"] == "relation"]


def by_segment(session: Session, order: str, limit: Optional[int], databases: Optional[Sequence[int]] = None) -> List[Row]:
    where, params = _where(databases)
    return session.rows(_SEGMENTS % {"where": where, "order": _SEGMENT_ORDERS.get(order, "resident")}, [*params, limit])


def _where(databases: Optional[Sequence[int]]) -> Tuple[str, List[Any]]:
    if databases is None:
        return "true", []
    return "database = ANY (%s::bigint[]::oid[])", [list(databases)]


def cached(row: Row) -> int:
    blocks: int = row["in_page_cache"] + row["in_shared_buffers"] - row["in_both"]
    return blocks


def counts(row: Row) -> Dict[str, Any]:
    """The counts of a row, as every list of a result has them."""
    result = {count: row[count] for count in COUNTS}
    result["percent"] = percent(min(cached(row), row["blocks"]), row["blocks"]) if row["blocks"] else 0.0
    return result


def total(rows: Iterable[Row]) -> Dict[str, Any]:
    added: Dict[str, Any] = dict.fromkeys(COUNTS, 0)
    for row in rows:
        for count in COUNTS:
            if row[count] is None:
                added[count] = None  # the kernel does not tell
            elif added[count] is not None:
                added[count] += row[count]
    return counts(added)


def buffers_of_the_server(session: Session) -> int:
    size: int = session.only_row("SELECT (pg_size_bytes(current_setting('shared_buffers')) / %s)::bigint AS blocks", (BLOCK_BYTES,))["blocks"]
    return size
