# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The other sessions and background processes of the server that were at work while a query ran.

pg_stat_activity has those that are there afterwards. Those that came and went meanwhile left their counts in pg_stat_database, which
a process writes at its end.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session

_COUNTS_AT_ONCE = 150000  # server_version_num; before, a collector process received the counts at some time

# This session's own start is counted now, not while the query runs.
_FLUSH = "SELECT pg_catalog.pg_stat_force_next_flush()"
_COUNTS = "(SELECT sum(d.sessions)::bigint FROM pg_stat_database AS d) AS sessions, (SELECT sum(d.blks_read)::bigint FROM pg_stat_database AS d) AS blocks"
_BEFORE = "SELECT clock_timestamp()::text AS moment"
# The query may have read these statistics, which then stay as they were until the transaction ends.
_CLEAR = "SELECT pg_catalog.pg_stat_clear_snapshot()"

# Whoever was at work since then: its state, or one of its queries, has begun after it. A background worker need not tell a state.
# Of another role's session, a role without pg_monitor sees nothing but that it is there.
# Left out are processes that every server has and that read relations for no one but recovery and replication; what they read by themselves,
# is charged to them.
_ACTIVE = """
SELECT count(*) FILTER (WHERE a.state = 'active' OR a.state_change >= %s::timestamptz OR a.backend_start >= %s::timestamptz
                        OR a.backend_type <> 'client backend' AND a.state IS NULL AND coalesce(a.wait_event_type, '') NOT IN ('Activity', 'Extension')
       ) AS active,
       bool_and(a.backend_type IS NOT NULL) AS seen
FROM pg_stat_activity AS a
WHERE coalesce(a.backend_type, '') NOT IN (
          'archiver', 'autovacuum launcher', 'background writer', 'checkpointer', 'io worker', 'logger', 'logical replication launcher',
          'slotsync worker', 'startup', 'walreceiver', 'walsender', 'walsummarizer', 'walwriter')
      AND a.pid <> pg_backend_pid() AND a.leader_pid IS DISTINCT FROM pg_backend_pid()
"""


class Noted(NamedTuple):
    moment: str
    sessions: Optional[int]  # that have begun in all databases; None where the server does not tell at once
    blocks: Optional[int]  # that ended and idle processes have read


class Others(NamedTuple):
    active: Optional[int]  # sessions and background workers; None without the right to see them
    came: Optional[int]  # sessions that have begun, and may have ended; None if unknown
    blocks: Optional[int]  # read by processes that have told their counts, parallel workers of the query's included; None if unknown


def before(session: Session, version: int) -> Noted:
    """Outside of a transaction: counts are written between two of them."""
    if version < _COUNTS_AT_ONCE:
        return Noted(session.only_row(_BEFORE)["moment"], None, None)
    session.rows(_FLUSH)
    found = session.only_row("%s, %s" % (_BEFORE, _COUNTS))
    return Noted(found["moment"], found["sessions"], found["blocks"])


def after(session: Session, noted: Noted) -> Others:
    """The others since ``noted``. Call it in the query's transaction, before this session's own counts are written."""
    row = session.only_row(_ACTIVE, (noted.moment, noted.moment))
    active = row["active"] if row["seen"] is not False else None
    if noted.sessions is None:
        return Others(active, None, None)
    session.rows(_CLEAR)
    now = session.only_row("SELECT " + _COUNTS)
    return Others(active, _grown(noted.sessions, now["sessions"]), _grown(noted.blocks, now["blocks"]))


def _grown(former: Optional[int], now: Optional[int]) -> Optional[int]:
    """None if the statistics were reset meanwhile."""
    return now - former if former is not None and now is not None and now >= former else None
