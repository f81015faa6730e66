# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty the caches of a relation, of a cluster or of a whole host, with PostgreSQL running or stopped.

As root, only what _acts() has is done as root; the rest is the cluster's operating system user's, see _privileges.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _buffers,
    _data_directory,
    _drop_caches,
    _hold,
    _names,
    _names_file,
    _page_cache,
    _residency,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import LogIn, Session, attach_extension, data_directory_of
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Patterns, Place
from ansible_collections.pgfleet.cache.plugins.module_utils._privileges import Act, Ask
from ansible_collections.pgfleet.cache.plugins.module_utils._service import Service, Unit
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES, human_bytes

LAYERS = ("page_cache", "shared_buffers")


class State(NamedTuple):
    """The content of both caches, of some relations."""

    files: List[_page_cache.File]
    buffers: Optional[Dict[Place, int]]  # blocks; None if unknown

    @property
    def buffer_bytes(self) -> Optional[int]:
        return None if self.buffers is None else sum(self.buffers.values()) * BLOCK_BYTES


@dataclass(frozen=True)
class Options:
    scope: str
    layers: List[str]
    method: str
    service: Optional[str]
    relations: List[str]
    databases: List[str]
    level: int
    force: bool
    data_directory: Optional[str]


def evict(options: Options, log_in: LogIn, check_mode: bool) -> Dict[str, Any]:
    """The whole of the module cache_evict."""
    _check_options(options)
    given: Optional[str] = options.data_directory
    if given is None and options.scope == "host":
        acts = _acts(options, None)
        return _host(options, check_mode, lambda name, *arguments: acts[name](*arguments))
    if given is None:
        with closing(_connect(log_in, None)) as session:
            where = _where(session)
            _require_role(session, "pg_checkpoint", "without which what is dirty would stay")
    else:
        where = given
    result: Dict[str, Any] = _data_directory.opened(where).run_as_owner(partial(_work, options, log_in, where, check_mode), _acts(options, where))
    return result


def _work(options: Options, log_in: LogIn, data_directory: str, check_mode: bool, ask: Ask) -> Dict[str, Any]:
    by_host = options.scope == "host"
    result = _host(options, check_mode, ask) if by_host else _cluster(options, log_in, data_directory, check_mode, ask)
    return dict(result, warnings=result.get("warnings", []) + _data_directory.opened(data_directory).warnings())


def _acts(options: Options, data_directory: Optional[str]) -> Dict[str, Act]:
    """The actions that only root performs."""

    def prepare_host() -> bool:
        _drop_caches.require_root()
        if not options.force:
            _drop_caches.refuse(None if data_directory is None else _page_cache.postmaster_pid(data_directory))
        return _drop_caches.in_container()

    unit = {} if data_directory is None else Unit(data_directory, options.service).acts
    return dict(unit, **{"prepare host": prepare_host, "drop caches": lambda: _drop_caches.drop(options.level)})


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "scope": None, "data_directory": None, "server": None, "restarted": False, "files": 0, "bytes": 0,
        "resident_bytes_before": 0, "resident_bytes_after": 0, "buffer_bytes_before": None, "buffer_bytes_after": None, "relations": [], "left": [],
        "host": None, "commands": [], "queries": [], "warnings": [], "diff": {"before": "", "after": ""},
    }


def _check_options(options: Options) -> None:
    if not options.layers:
        raise ResidencyError("layers is empty: set page_cache, shared_buffers or both.")
    if (options.scope == "relation") != bool(options.relations):
        raise ResidencyError("scope relation and relations must be used together.")
    if options.databases and options.scope != "relation":
        raise ResidencyError("databases requires scope relation.")
    Patterns("relations", options.relations)
    Patterns("databases", options.databases)
    if options.scope == "relation" and _restarts(options):
        raise ResidencyError("A restart evicts all shared buffers, not those of one relation: with scope relation, set method to functions.")
    if options.scope == "host":
        if options.method == "functions" and "shared_buffers" in options.layers:
            raise ResidencyError("scope host does not log in: set method to restart, or remove shared_buffers from layers.")
    elif options.force:
        raise ResidencyError("force requires scope host: the other scopes evict only the cluster's own files.")


def _restarts(options: Options) -> bool:
    return "shared_buffers" in options.layers and options.method == "restart"


# --- by relation and cluster ---


def _cluster(options: Options, log_in: LogIn, data_directory: str, check_mode: bool, ask: Ask) -> Dict[str, Any]:
    given: Optional[str] = options.data_directory
    _page_cache.major_version(data_directory)
    _page_cache.require_owner(data_directory)
    if given is not None and _page_cache.postmaster_pid(given) is None:
        return _without_server(options, given, check_mode)
    if _restarts(options):
        return _by_restart(options, data_directory, check_mode, ask)
    with closing(_connect(log_in, given)) as session:
        _require_same(_where(session), data_directory)
        _require_role(session, "pg_checkpoint", "without which what is dirty would stay")
        return _with_server(options, data_directory, session, check_mode)


def _with_server(options: Options, data_directory: str, session: Session, check_mode: bool) -> Dict[str, Any]:
    by_functions = "shared_buffers" in options.layers
    if by_functions:
        _buffers.require_functions(session)
    chosen, names, warnings = None, None, []
    if options.scope == "relation":
        attach_extension(session)
        names = _names.everything(session, Patterns("databases", options.databases))
        chosen, warnings = choose(names, options)
    _hold.end_any(session, check_mode)
    if check_mode:
        session.record("CHECKPOINT")
    else:
        session.execute("CHECKPOINT")
    paths = _paths(data_directory, chosen)
    before = State(_page_cache.count_files(data_directory, paths), _chosen_of(_buffers.count(session), chosen))
    if by_functions:
        _buffers.evict(session, chosen, check_mode)
    if "page_cache" in options.layers and not check_mode:
        _page_cache.evict(data_directory, paths)
    after = State(_page_cache.count_files(data_directory, paths), _chosen_of(_buffers.count(session), chosen))

    def name(places: Iterable[Place]) -> Names:
        return names or _names_if_told(places, session)

    result = _result(options, data_directory, before, after, "running", name, check_mode)
    result.update(queries=session.queries, warnings=warnings)
    return result


def _without_server(options: Options, data_directory: str, check_mode: bool) -> Dict[str, Any]:
    """The server is stopped: no login is possible, and its shared buffers are gone."""
    names = _names_file.load_newest(data_directory)
    chosen, warnings = choose(names, options) if options.scope == "relation" else (None, [])
    paths = _paths(data_directory, chosen)
    before = State(_page_cache.count_files(data_directory, paths), None)
    if "page_cache" in options.layers and not check_mode:
        _page_cache.evict(data_directory, paths)
    after = State(_page_cache.count_files(data_directory, paths), None)
    result = _result(options, data_directory, before, after, "stopped", lambda dummy: names, check_mode)
    result["warnings"] = warnings
    return result


def _by_restart(options: Options, data_directory: str, check_mode: bool, ask: Ask) -> Dict[str, Any]:
    """The shutdown checkpoint leaves nothing dirty, and between stop and start no process reads."""
    service = Service(data_directory, ask)
    names = _names_file.load_newest(data_directory)
    paths = _paths(data_directory, None)
    before = State(_page_cache.count_files(data_directory, paths), None)
    after = before
    if not check_mode:
        service.stop()
        try:
            paths = _paths(data_directory, None)
            if "page_cache" in options.layers:
                _page_cache.evict(data_directory, paths)
            # before the start, which reads the catalogs again
            after = State(_page_cache.count_files(data_directory, paths), {})
        finally:
            service.start()
    result = _result(options, data_directory, before, after, "running", lambda dummy: names, check_mode)
    result.update(changed=True, restarted=not check_mode, commands=service.commands)
    if check_mode:
        result["buffer_bytes_after"] = 0
    return result


def choose(names: Names, options: Options) -> Any:
    """The places of the relations that are meant, and warnings about patterns that fit none."""
    relations, databases = Patterns("relations", options.relations), Patterns("databases", options.databases)
    ranks = {
        place: relations.rank(relation)
        for place, relation in names.relations.items()
        if databases.rank_database(names.databases.get(place.database)) is not None
    }
    chosen = {place for place, rank in ranks.items() if rank is not None}
    if not chosen:
        why = "" if names.relations else " While PostgreSQL is stopped, only names from snapshots are known, and there are none."
        raise ResidencyError("No relation matches %s.%s" % (", ".join(relations.patterns), why))
    unmatched = relations.unmatched(rank for rank in ranks.values() if rank is not None)
    warnings = ["Nothing matches '%s' of relations." % pattern for pattern in unmatched]
    return chosen, warnings + _names.unnamed_warnings(names)


def _names_if_told(places: Iterable[Place], session: Session) -> Names:
    """A cluster is evicted without the extension too: its relations then stay numbers."""
    try:
        attach_extension(session)
    except ResidencyError:
        return Names()
    return _residency.name_places(places, session)


def _paths(data_directory: str, chosen: Optional[Collection[Place]]) -> List[str]:
    paths = _page_cache.relation_files(data_directory, _page_cache.major_version(data_directory))
    return [path for path in paths if chosen is None or _page_cache.identify(path)[0] in chosen]


def _chosen_of(buffers: Optional[Dict[Place, int]], chosen: Optional[Collection[Place]]) -> Optional[Dict[Place, int]]:
    if buffers is None or chosen is None:
        return buffers
    return {place: blocks for place, blocks in buffers.items() if place in chosen}


def _connect(log_in: LogIn, given: Optional[str]) -> Session:
    try:
        return log_in(None)
    except NotInstalledError:
        raise
    except ResidencyError as error:
        if given is None:
            if isinstance(error, NotRunningError):
                raise ResidencyError("%s If PostgreSQL is stopped, set data_directory." % error) from error
            raise
        raise ResidencyError(
            "PostgreSQL runs in %s, and dirty pages would stay without a login for CHECKPOINT. %s" % (given, error)
        ) from error


def _require_role(session: Session, role: str, why: str) -> None:
    """Check before any change, in check mode too."""
    row = session.only_row("SELECT current_user AS me, pg_catalog.pg_has_role(%s, 'USAGE') AS held", (role,))
    if not row["held"]:
        raise ResidencyError("Login role %s lacks %s, %s: grant it, or log in as a superuser." % (row["me"], role, why))


def _where(session: Session) -> str:
    _require_role(session, "pg_monitor", "to learn where the files are")
    return data_directory_of(session)


def _require_same(path: str, data_directory: str) -> None:
    """Raise an error unless both paths lead to the same directory."""
    try:
        status = os.stat(path)
        same = (status.st_dev, status.st_ino) == _data_directory.opened(data_directory).identity
    except OSError:
        same = False
    if not same:
        raise ResidencyError("This login reaches the cluster in %s, but data_directory is %s." % (path, data_directory))


# --- the whole host ---


def _host(options: Options, check_mode: bool, ask: Ask) -> Dict[str, Any]:
    """Empty the page cache of the host, as root, who does not log in: running servers are found through /proc."""
    given: Optional[str] = options.data_directory
    if given is not None:
        _page_cache.major_version(given)
    own = None if given is None else _page_cache.postmaster_pid(given)
    running = own is not None
    if _restarts(options) and not running:
        raise ResidencyError("method restart needs the data_directory of a running cluster.")
    in_container = ask("prepare host")
    service = Service(given, ask) if given is not None and _restarts(options) else None
    paths = _paths(given, None) if given is not None else []
    host_before = _drop_caches.cached_bytes()
    before = State(_counted(given, paths), None)
    after, host_after = before, 0
    if not check_mode:
        if service is not None:
            service.stop()
        try:
            ask("drop caches")
            after = State(_counted(given, paths), None if service is None else {})
            host_after = _drop_caches.cached_bytes()
        finally:
            if service is not None:
                service.start()
    names = _names_file.load_newest(given) if given is not None else Names()
    server = None if given is None else "running" if running else "stopped"
    result = _result(options, given, before, after, server, lambda dummy: names, check_mode)
    warnings = [_drop_caches.ALL_CONTAINERS] if in_container else []
    if running and service is None:
        warnings.append("PostgreSQL runs in %s: its dirty buffers stay in shared buffers, and a checkpoint writes them to the page cache." % given)
    result.update(
        changed=True,
        restarted=service is not None and not check_mode,
        host={"cached_bytes_before": host_before, "cached_bytes_after": host_after},
        commands=(service.commands[:1] if service else [])
        + ["sync", "echo %d > /proc/sys/vm/drop_caches" % options.level]
        + (service.commands[1:] if service else []),
        msg="%s the page cache of the whole %s: %s before, %s after."
        % (
            "Would drop" if check_mode else "Dropped",
            "machine, every container's" if in_container else "host",
            human_bytes(host_before),
            "little" if check_mode else human_bytes(host_after),
        ),
        warnings=warnings,
    )
    return result


def _counted(data_directory: Optional[str], paths: List[str]) -> List[_page_cache.File]:
    return [] if data_directory is None else _page_cache.count_files(data_directory, paths)


# --- results ---


def _result(
    options: Options,
    data_directory: Optional[str],
    before: State,
    after: State,
    server: Optional[str],
    name: Callable[[Iterable[Place]], Names],
    check_mode: bool,
) -> Dict[str, Any]:
    if check_mode:
        after = State(
            [] if "page_cache" in options.layers else before.files,
            before.buffers if "shared_buffers" not in options.layers else None if before.buffers is None else {},
        )
    rows = compare(before, after)
    listed = rank(rows, "before")
    left = rank(rows, "after")
    names = name([row["place"] for row in listed + left])
    reasons = _reasons({row["place"] for row in left}, after.files, data_directory)
    left = [dict(_describe(row, names), reason=reasons.get(row["place"], "in use")) for row in left]
    listed = [_describe(row, names) for row in listed]
    total = _page_cache.add_up(before.files)
    resident = _page_cache.add_up(after.files).resident_bytes
    result = empty_result()
    result.update(
        scope=options.scope,
        data_directory=data_directory,
        server=server,
        files=total.files,
        bytes=total.bytes,
        resident_bytes_before=total.resident_bytes,
        resident_bytes_after=resident,
        buffer_bytes_before=before.buffer_bytes,
        buffer_bytes_after=after.buffer_bytes,
        relations=listed,
        left=left,
        diff=_residency.diff("in the page cache", [
            _residency.Change(_residency.label(row), *(row[key] // BLOCK_BYTES for key in ("bytes", "resident_bytes_before", "resident_bytes_after")))
            for row in listed
        ]),
    )
    result["changed"] = resident < total.resident_bytes or (result["buffer_bytes_after"] or 0) < (result["buffer_bytes_before"] or 0)
    result["msg"] = _message(result, options.layers, check_mode)
    return result


def compare(before: State, after: State) -> List[Dict[str, Any]]:
    """Every relation of which anything was or is cached."""
    found: Dict[Place, Dict[str, Any]] = {}

    def at(place: Place) -> Dict[str, Any]:
        return found.setdefault(place, {
            "place": place, "bytes": 0, "resident_bytes_before": 0, "resident_bytes_after": 0,
            "buffer_bytes_before": None if before.buffers is None else 0, "buffer_bytes_after": None if after.buffers is None else 0,
        })

    for moment, state in (("before", before), ("after", after)):
        for file in state.files:
            row = at(_page_cache.identify(file.path)[0])
            row["resident_bytes_" + moment] += file.resident_bytes
            if moment == "before":
                row["bytes"] += file.bytes
        for place, blocks in (state.buffers or {}).items():
            at(place)["buffer_bytes_" + moment] += blocks * BLOCK_BYTES
    return list(found.values())


def rank(rows: Iterable[Dict[str, Any]], moment: str) -> List[Dict[str, Any]]:
    """At most 20 relations, those with the most cached bytes first."""

    def cached(row: Dict[str, Any]) -> int:
        return int(row["resident_bytes_" + moment]) + int(row["buffer_bytes_" + moment] or 0)

    return sorted((row for row in rows if cached(row)), key=lambda row: (-cached(row), row["place"]))[: _residency.LISTED]


def _describe(row: Dict[str, Any], names: Names) -> Dict[str, Any]:
    return dict(_residency.identity(row["place"], names), **{key: value for key, value in row.items() if key != "place"})


def _reasons(places: Collection[Place], files: Iterable[_page_cache.File], data_directory: Optional[str]) -> Dict[Place, str]:
    """Dirty if the kernel reports it; otherwise a process has it mapped, or has read it again."""
    return {
        _page_cache.identify(file.path)[0]: "dirty"
        for file in files
        if file.resident_bytes and _page_cache.identify(file.path)[0] in places and _page_cache.dirty(data_directory or "", file.path)
    }


def _message(result: Mapping[str, Any], layers: Collection[str], check_mode: bool) -> str:
    resident, left = result["resident_bytes_before"], result["resident_bytes_after"]
    amount = "%s of %s in %d files" % (human_bytes(resident), human_bytes(result["bytes"]), result["files"])
    buffers = result["buffer_bytes_before"]
    if check_mode:
        parts = []
        if "page_cache" in layers and resident:
            parts.append(amount)
        if "shared_buffers" in layers and result["server"] == "running":
            parts.append("shared buffers" if buffers is None else "%s of shared buffers" % human_bytes(buffers))
        return "Would evict %s." % " and ".join(parts) if parts else "%s are resident: there is nothing to evict." % amount
    text = "%s were resident, %s are." % (amount, human_bytes(left))
    if buffers is not None and result["buffer_bytes_after"] is not None:
        text += " Shared buffers held %s, and hold %s." % (human_bytes(buffers), human_bytes(result["buffer_bytes_after"]))
    if left and "page_cache" in layers:
        text += " What stays is dirty or %s." % ("in use" if result["server"] == "running" else "held by another process")
    return text
