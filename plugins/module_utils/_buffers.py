# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared buffers by relation, and how they are emptied without a restart."""

from __future__ import annotations

from typing import Collection, Dict, List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, find_extension
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Place
from ansible_collections.pgfleet.cache.plugins.module_utils._residency import place_of

_BUFFERS = (
    "SELECT reldatabase::bigint AS database, reltablespace::bigint AS tablespace, relfilenode::bigint AS relfilenumber,"
    " count(*)::bigint AS blocks FROM %s.pg_buffercache WHERE relfilenode IS NOT NULL"
    " GROUP BY reldatabase, reltablespace, relfilenode"
)
_RESIDENCY = (
    "SELECT database::bigint, tablespace::bigint, relfilenumber::bigint, sum(blocks)::bigint AS blocks"
    " FROM %s.residency_shared_buffers(false) GROUP BY database, tablespace, relfilenumber"
)
_EVICT = "SELECT count(*) AS tried, count(*) FILTER (WHERE %s) AS evicted FROM %s.pg_buffercache WHERE relfilenode IS NOT NULL"
_CHOSEN = " AND (reldatabase, reltablespace, relfilenode) IN (SELECT * FROM unnest(%s::bigint[]::oid[], %s::bigint[]::oid[], %s::bigint[]::oid[]))"
_MAJOR = "SELECT current_setting('server_version_num')::int / 10000 AS major"


def count(session: Session) -> Optional[Dict[Place, int]]:
    """Blocks by relation; None where no extension tells."""
    for extension, sql in (("pg_buffercache", _BUFFERS), ("pg_residency", _RESIDENCY)):
        schema = _schema(session, extension)
        if schema is not None:
            return {place_of(row): row["blocks"] for row in session.rows(sql % schema)}
    return None


def require_functions(session: Session) -> None:
    """Check before any change, in check mode too."""
    version = session.only_row(_MAJOR)["major"]
    if version < 17:
        raise ResidencyError("PostgreSQL %d empties its shared buffers only by a restart: set method to restart." % version)
    found = find_extension(session, "pg_buffercache")
    if found["schema"] is None:
        raise ResidencyError(
            "Extension pg_buffercache, which empties shared buffers, is not in database %s: CREATE EXTENSION pg_buffercache there,"
            " or set method to restart." % found["database"]
        )
    if found["stranger"] is not None:
        raise ResidencyError(
            "In database %s extension pg_buffercache is in schema %s, owned by %s, who could replace the extension's objects: ALTER EXTENSION"
            " pg_buffercache SET SCHEMA to one of a superuser's, or set method to restart."
            % (found["database"], found["schema"], found["stranger"])
        )
    if not session.only_row("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user")["rolsuper"]:
        raise ResidencyError("Only a superuser may evict from shared buffers: log in as one, or set method to restart.")


def evict(session: Session, places: Optional[Collection[Place]], check_mode: bool) -> None:
    """Pinned buffers stay."""
    major = session.only_row(_MAJOR)["major"]
    schema = _schema(session, "pg_buffercache")
    call = "%s.pg_buffercache_evict(bufferid)" % schema
    # from 18 on it tells more than whether the buffer went
    sql = _EVICT % (call if major < 18 else "(%s).buffer_evicted" % call, schema)
    params: List[List[int]] = []
    if places is not None:
        sql += _CHOSEN
        chosen = sorted(places)
        params = [
            [place.database for place in chosen], [place.tablespace for place in chosen], [place.relfilenumber for place in chosen]
        ]
    if check_mode:
        session.record(sql, params)
    else:
        session.change(sql, params)


def _schema(session: Session, extension: str) -> Optional[str]:
    """None also where who owns the schema could put another view in the place of the extension's."""
    found = find_extension(session, extension)
    schema: Optional[str] = found["schema"] if found["stranger"] is None else None
    return schema
