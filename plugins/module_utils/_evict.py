# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty the page cache of one cluster's relation files, with PostgreSQL running or stopped."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _names, _page_cache, _residency
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, connect
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Place
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES, human_bytes


def evict_cluster(params: Mapping[str, Any], check_mode: bool) -> Dict[str, Any]:
    """The whole of the module cache_evict with scope ``cluster``."""
    given: Optional[str] = params["data_directory"]
    if given is not None:
        major = _page_cache.major_version(given)
        _page_cache.require_owner(given)
        if _page_cache.postmaster_pid(given) is None:
            return _evict(params, given, major, None, check_mode)
    with closing(_connect(params, given)) as session:
        data_directory = _data_directory(session, given)
        major = _page_cache.major_version(data_directory)
        _page_cache.require_owner(data_directory)
        _require_role(session, "pg_checkpoint", "without which what is dirty would stay")
        if check_mode:
            session.record("CHECKPOINT")
        else:
            session.execute("CHECKPOINT")
        return _evict(params, data_directory, major, session, check_mode)


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False,
        "data_directory": None,
        "server": None,
        "files": 0,
        "bytes": 0,
        "resident_bytes_before": 0,
        "resident_bytes_after": 0,
        "relations": [],
        "queries": [],
        "diff": {"before": "", "after": ""},
    }


def _connect(params: Mapping[str, Any], given: Optional[str]) -> Session:
    try:
        return connect(params)
    except NotInstalledError:
        raise
    except ResidencyError as error:
        if given is None:
            if isinstance(error, NotRunningError):
                raise ResidencyError("%s With PostgreSQL stopped, name its data_directory." % error) from error
            raise
        raise ResidencyError(
            "PostgreSQL runs in %s, and without a login for its CHECKPOINT dirty pages would stay. %s" % (given, error)
        ) from error


def _require_role(session: Session, role: str, why: str) -> None:
    """Before anything is done, and in check mode too."""
    row = session.only_row("SELECT current_user AS me, pg_catalog.pg_has_role(%s, 'USAGE') AS held", (role,))
    if not row["held"]:
        raise ResidencyError("Login role %s lacks %s, %s: grant it, or log in as a superuser." % (row["me"], role, why))


def _data_directory(session: Session, given: Optional[str]) -> str:
    _require_role(session, "pg_monitor", "to learn where the files are")
    path: str = session.only_row("SELECT current_setting('data_directory') AS path")["path"]
    if given is not None and os.path.realpath(given) != os.path.realpath(path):
        raise ResidencyError("This login reaches the cluster in %s, and data_directory is %s." % (path, given))
    return path


def _evict(
    params: Mapping[str, Any], data_directory: str, major: int, session: Optional[Session], check_mode: bool
) -> Dict[str, Any]:
    paths = list(_page_cache.relation_files(data_directory, major))
    files_before = _page_cache.count_files(paths)
    files_after = files_before
    if not check_mode:
        _page_cache.evict(paths)
        files_after = _page_cache.count_files(paths)
    before, after = _page_cache.add_up(files_before), _page_cache.add_up(files_after)
    server = "stopped" if session is None else "running"
    relations = compare(files_before, [] if check_mode else files_after)
    if session is None:
        names = _names.load_newest(data_directory)
    else:
        names = _residency.name_places(
            [row["place"] for row in relations], session, lambda database: connect(params, database)
        )
    rows = [dict(_residency.identity(row.pop("place"), names), **row) for row in relations]
    result = empty_result()
    result.update(
        changed=before.resident_bytes > 0 if check_mode else after.resident_bytes < before.resident_bytes,
        data_directory=data_directory,
        server=server,
        files=before.files,
        bytes=before.bytes,
        resident_bytes_before=before.resident_bytes,
        resident_bytes_after=0 if check_mode else after.resident_bytes,
        relations=rows,
        queries=[] if session is None else session.queries,
        msg=_message(before, after, server, check_mode),
        diff=_residency.diff(
            "in the page cache",
            [
                _residency.Change(
                    _residency.label(row),
                    row["bytes"] // BLOCK_BYTES,
                    row["resident_bytes_before"] // BLOCK_BYTES,
                    row["resident_bytes_after"] // BLOCK_BYTES,
                )
                for row in rows
            ],
        ),
    )
    return result


def compare(before: Iterable[_page_cache.File], after: Iterable[_page_cache.File]) -> List[Dict[str, Any]]:
    """The relations that had most in the page cache, before and after."""
    found: Dict[Place, Dict[str, Any]] = {}
    for key, files in (("resident_bytes_before", before), ("resident_bytes_after", after)):
        for file in files:
            place = _page_cache.identify(file.path)[0]
            row = found.setdefault(
                place, {"place": place, "bytes": 0, "resident_bytes_before": 0, "resident_bytes_after": 0}
            )
            row[key] += file.resident_bytes
            if key == "resident_bytes_before":
                row["bytes"] += file.bytes
    rows = [row for row in found.values() if row["resident_bytes_before"]]
    return sorted(rows, key=lambda row: (-row["resident_bytes_before"], row["place"]))[: _residency.LISTED]


def _message(before: _page_cache.Count, after: _page_cache.Count, server: str, check_mode: bool) -> str:
    amount = "%s of %s in %d files" % (human_bytes(before.resident_bytes), human_bytes(before.bytes), before.files)
    if check_mode:
        return "Would evict %s." % amount if before.resident_bytes else "%s are resident: there is nothing to evict." % amount
    text = amount + " were resident"
    text += ", %s are." % human_bytes(after.resident_bytes)
    if after.resident_bytes and server == "running":
        text += " What stays is dirty or in use."
    elif after.resident_bytes:
        text += " What stays is dirty or held by another process."
    return text
