# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty the page cache of one cluster's relation files, with PostgreSQL running or stopped."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _page_cache
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, connect
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes


def evict_cluster(params: Mapping[str, Any], check_mode: bool) -> Dict[str, Any]:
    """The whole of the module cache_evict with scope ``cluster``."""
    given: Optional[str] = params["data_directory"]
    if given is not None:
        major = _page_cache.major_version(given)
        _page_cache.require_owner(given)
        if _page_cache.postmaster_pid(given) is None:
            return _evict(given, major, "stopped", [], check_mode)
    with closing(_connect(params, given)) as session:
        data_directory = _data_directory(session, given)
        major = _page_cache.major_version(data_directory)
        _page_cache.require_owner(data_directory)
        if check_mode:
            session.record("CHECKPOINT")
        else:
            session.execute("CHECKPOINT")
        return _evict(data_directory, major, "running", session.queries, check_mode)


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
        "queries": [],
    }


def _connect(params: Mapping[str, Any], given: Optional[str]) -> Session:
    try:
        return connect(params)
    except NotInstalledError:
        raise
    except ResidencyError as error:
        if given is None:
            raise ResidencyError("%s With PostgreSQL stopped, name its data_directory." % error) from error
        raise ResidencyError(
            "PostgreSQL runs in %s, and without a login for its CHECKPOINT dirty pages would stay. %s" % (given, error)
        ) from error


def _data_directory(session: Session, given: Optional[str]) -> str:
    path: str = session.only_row("SELECT current_setting('data_directory') AS path")["path"]
    if given is not None and os.path.realpath(given) != os.path.realpath(path):
        raise ResidencyError("This login reaches the cluster in %s, and data_directory is %s." % (path, given))
    return path


def _evict(data_directory: str, major: int, server: str, queries: List[str], check_mode: bool) -> Dict[str, Any]:
    paths = list(_page_cache.relation_files(data_directory, major))
    before = _page_cache.count(paths)
    after = before
    if not check_mode:
        _page_cache.evict(paths)
        after = _page_cache.count(paths)
    result = empty_result()
    result.update(
        changed=before.resident_bytes > 0 if check_mode else after.resident_bytes < before.resident_bytes,
        data_directory=data_directory,
        server=server,
        files=before.files,
        bytes=before.bytes,
        resident_bytes_before=before.resident_bytes,
        resident_bytes_after=after.resident_bytes,
        queries=queries,
        msg=_message(before, after, server, check_mode),
    )
    return result


def _message(before: _page_cache.Count, after: _page_cache.Count, server: str, check_mode: bool) -> str:
    text = "%s of %s in %d files %s resident" % (
        human_bytes(before.resident_bytes),
        human_bytes(before.bytes),
        before.files,
        "are" if check_mode else "were",
    )
    if check_mode:
        return text + "."
    text += ", %s are." % human_bytes(after.resident_bytes)
    if after.resident_bytes and server == "running":
        text += " What stays is dirty or in use."
    elif after.resident_bytes:
        text += " What stays is dirty or held by another process."
    return text
