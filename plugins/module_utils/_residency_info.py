# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report the content of both caches, the snapshots and the jobs, with PostgreSQL running or stopped."""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _caches,
    _data_directory,
    _names,
    _names_file,
    _page_cache,
    _residency,
    _residency_snapshot,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session, data_directory_of, sqlstate
from ansible_collections.pgfleet.cache.plugins.module_utils._data_directory import DataDirectory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import SHARED, Names, Patterns, Place
from ansible_collections.pgfleet.cache.plugins.module_utils._units import (
    BLOCK_BYTES,
    human_blocks,
    human_bytes,
    human_percent,
    human_seconds,
    percent,
)

SUBSETS = ("databases", "relations", "segments", "buffers", "snapshots", "jobs", "capabilities")
LARGEST_LIMIT = 1000

_RESIDENCY = """
SELECT coalesce(sum(wanted), 0)::bigint AS wanted, coalesce(sum(resident), 0)::bigint AS resident,
       coalesce(sum(gone), 0)::bigint AS gone
FROM @extschema@.residency_snapshot_segments(%s::text)
"""
_TIMES = ("started_at", "finished_at", "hold_until", "held_since", "counted_at")
_JOBS = """
SELECT job, snapshot, generation, state, started_at, finished_at, segments, segments_done, wanted, settled, resident,
       loaded, extra, over_budget, gone, failed AS failed_blocks, budget_bytes, rate_bytes, io_class, scheduler, window_bytes, message,
       hold_until, held_since, counted_at, reclaimed, brought_back, reclaim_rate, mapped_bytes,
       coalesce(extract(epoch FROM coalesce(held_since, finished_at, clock_timestamp()) - started_at), 0)::float8 AS seconds
FROM @extschema@.residency_jobs ORDER BY job DESC LIMIT %s
"""
# in one statement: a relation's buffers come and go
_BUFFERS = """
WITH buffers AS MATERIALIZED (SELECT fork, block, dirty, usage_count FROM @extschema@.residency_buffers(%s::oid::regclass))
SELECT fork, block, dirty, usage_count, (SELECT count(*) FROM buffers) AS blocks,
       (SELECT count(*) FROM buffers WHERE dirty) AS dirty_blocks
FROM buffers ORDER BY usage_count DESC, fork, block LIMIT %s
"""
# While strangers' schemas are in the path, which is until the statement ends, only the name of the relation is looked up.
_FIND = """
SELECT pg_catalog.to_regclass(%s::pg_catalog.text)::pg_catalog.oid::pg_catalog.int8 AS oid
FROM pg_catalog.set_config('search_path', pg_catalog.concat('pg_catalog, public, ', %s::pg_catalog.text, ', pg_temp'), true) AS path
"""
_USAGE = "SELECT usage_count, count(*) AS blocks FROM @extschema@.residency_buffers(%s::oid::regclass) GROUP BY usage_count ORDER BY usage_count"

_SNAPSHOT_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})@([1-9][0-9]*)\.snapshot")
_LARGEST_SNAPSHOT = 1 << 30  # bytes


@dataclass(frozen=True)
class Options:
    subset: List[str]
    databases: List[str]
    relations: List[str]
    relation: Optional[str]
    sort: str
    limit: int
    snapshot: Optional[str]
    min_residency: float
    wait: bool
    wait_timeout: int
    wait_sleep: float
    data_directory: Optional[str]

    @property
    def needs_login(self) -> bool:
        """The capabilities of a host need none."""
        return set(self.subset) != {"capabilities"} or self.snapshot is not None


def check_options(options: Options) -> None:
    if not 1 <= options.limit <= LARGEST_LIMIT:
        raise ResidencyError("limit is %d: it must be from 1 to %d." % (options.limit, LARGEST_LIMIT))
    if not 0 <= options.min_residency <= 100:
        raise ResidencyError("min_residency is %g: it must be a percentage from 0 to 100." % options.min_residency)
    for option in ("wait_timeout", "wait_sleep"):
        value = getattr(options, option)
        if value <= 0:
            raise ResidencyError("%s is %g: it must be more than 0." % (option, value))
    if options.snapshot is not None:
        _residency_snapshot.check_name(options.snapshot, generation_allowed=True)
    elif options.wait:
        raise ResidencyError("wait needs the option snapshot.")
    if ("buffers" in options.subset) != (options.relation is not None):
        raise ResidencyError("subset buffers and relation must be used together.")
    Patterns("databases", options.databases)
    Patterns("relations", options.relations)
    if not options.subset and options.snapshot is None:
        raise ResidencyError("subset is empty: set at least one of %s." % ", ".join(SUBSETS))


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "server": None, "data_directory": None, "total": None, "databases": [], "relations": [], "segments": [], "buffers": None,
        "snapshots": [], "jobs": [], "capabilities": None, "residency": None, "reached": None, "queries": [], "warnings": [],
    }


# --- with PostgreSQL running ---


def of_server(
    session: Session,
    options: Options,
    connect_with_extension: Callable[[str], Session],
    capabilities: Callable[[str], Dict[str, Any]],
) -> Dict[str, Any]:
    result = empty_result()
    result["server"] = "running"
    sentences: List[str] = []
    if options.snapshot is not None:
        sentences.append(_wait(session, options, result))
    if {"databases", "relations", "segments"} & set(options.subset):
        sentences.append(_look(session, options, result))
    if "buffers" in options.subset:
        sentences.append(_buffers(options, result, connect_with_extension, session))
    if "snapshots" in options.subset:
        snapshots = _residency_snapshot.list_all(session)
        result["snapshots"] = [_residency_snapshot.plain(snapshot) for snapshot in snapshots]
        sentences.append("%s." % _plural(len(snapshots), "snapshot"))
    if "jobs" in options.subset:
        result["jobs"] = [
            dict(row, seconds=round(row["seconds"], 3), **{key: row[key].isoformat() if row[key] else None for key in _TIMES})
            for row in session.rows(_JOBS, (options.limit,))
        ]
        sentences.append("%s." % _plural(len(result["jobs"]), "job"))
    if "capabilities" in options.subset:
        path = options.data_directory or data_directory_of(session)
        result["data_directory"] = path
        _add_capabilities(result, path, capabilities)
        sentences.append("The capabilities of this host.")
    result["msg"] = " ".join(sentences)
    return result


def _add_capabilities(result: Dict[str, Any], path: str, capabilities: Callable[[str], Dict[str, Any]]) -> None:
    if not os.path.isdir(path):
        raise ResidencyError(
            "There is no %s on this host: the subset capabilities must run on PostgreSQL's host, as its owner." % path
        )
    found = capabilities(path)
    result["warnings"] += found.pop("warnings", [])
    result["capabilities"] = found


def amount(session: Session, snapshot: str) -> _residency.Amount:
    """How much of a snapshot is resident now."""
    row = session.only_row(_RESIDENCY, (snapshot,))
    return _residency.Amount(row["wanted"], row["resident"], row["gone"])


def _wait(session: Session, options: Options, result: Dict[str, Any]) -> str:
    snapshot = _residency_snapshot.find(session, options.snapshot or "")
    result["warnings"] += snapshot["warnings"]
    name = _residency_snapshot.full_name(snapshot)
    end = time.monotonic() + options.wait_timeout
    while True:
        counted = amount(session, name)
        reached = counted.residency >= options.min_residency
        left = end - time.monotonic()
        if reached or not options.wait or left <= 0:
            break
        time.sleep(min(options.wait_sleep, left))
    counts = ("wanted", "resident", "missing", "gone", "residency", "gone_percent")
    result["residency"] = {"snapshot": name, **{count: getattr(counted, count) for count in counts}}
    result["reached"] = reached
    sentence = "%s: %s of %s is resident" % (name, human_percent(counted.residency), human_blocks(counted.wanted - counted.gone))
    if reached or not options.wait:
        return sentence + "."
    result["msg"] = "%s after %s, less than min_residency of %s." % (
        sentence, human_seconds(options.wait_timeout), human_percent(options.min_residency))
    raise ResidencyError(result["msg"], result)


def _look(session: Session, options: Options, result: Dict[str, Any]) -> str:
    of_databases = Patterns("databases", options.databases)
    of_relations = Patterns("relations", options.relations)
    known = _names.databases(session)
    chosen = None
    if of_databases:
        chosen = _names.fitting(known, of_databases)
        if not chosen:
            raise ResidencyError(
                "No database matches %s; there are %s."
                % (", ".join(options.databases), ", ".join(sorted(known.values())[:_residency.LISTED]))
            )
        result["warnings"] += _nothing_fits("databases", options.databases, lambda pattern: bool(_names.fitting(known, pattern)))
    # with patterns for their names, all of them have to be named first
    limit = None if of_relations else options.limit
    databases, relations = _caches.by_relation(session, options.sort, limit, chosen)
    result["total"] = _caches.total(databases)
    if "databases" in options.subset:
        result["databases"] = _describe_databases(databases, known)
        if chosen is None:
            unused = _caches.buffers_of_the_server(session) - sum(row["in_shared_buffers"] for row in databases)
            result["databases"].append(_unused(unused))
    segments = _caches.by_segment(session, options.sort, limit, chosen) if "segments" in options.subset else []
    if "relations" not in options.subset:
        relations = []
    names = _residency.name_places([_residency.place_of(row) for row in relations + segments], session)
    if of_relations:
        named = [names.relations.get(_residency.place_of(row)) for row in relations + segments]
        unused = _nothing_fits("relations", options.relations, lambda pattern: any(pattern.rank(relation) is not None for relation in named))
        relations, segments = _fitting(relations, names, of_relations), _fitting(segments, names, of_relations)
        if not relations and not segments and {"relations", "segments"} & set(options.subset):
            raise ResidencyError("No relation matches %s." % ", ".join(options.relations))
        if {"relations", "segments"} & set(options.subset):
            result["warnings"] += unused
    result["warnings"] += _names.unnamed_warnings(names)
    result["relations"] = [
        dict(_residency.identity(_residency.place_of(row), names), **_caches.counts(row)) for row in relations[:options.limit]
    ]
    result["segments"] = [_describe_segment(row, names) for row in segments[:options.limit]]
    total = result["total"]
    return "%s of %s are in the page cache, %s in shared buffers, %s in both." % (
        human_blocks(total["in_page_cache"]),
        human_blocks(total["blocks"]),
        human_blocks(total["in_shared_buffers"]),
        human_blocks(total["in_both"]),
    )


def _nothing_fits(option: str, patterns: Sequence[str], fits: Callable[[Patterns], bool]) -> List[str]:
    """A warning for each pattern that matches nothing, also if another pattern means the same."""
    return ["Nothing matches '%s' of %s." % (pattern, option) for pattern in patterns if not fits(Patterns(option, [pattern]))]


def _fitting(rows: Iterable[Row], names: Names, patterns: Patterns) -> List[Row]:
    return [row for row in rows if patterns.rank(names.relations.get(_residency.place_of(row))) is not None]


def _describe_databases(rows: Iterable[Row], known: Dict[int, str]) -> List[Dict[str, Any]]:
    described = [
        dict(
            database=known.get(row["database"]),
            database_oid=row["database"],
            kind="shared catalogs" if row["database"] == SHARED else "database",
            **_caches.counts(row)
        )
        for row in rows
    ]
    return sorted(described, key=lambda row: (-row["in_page_cache"] - row["in_shared_buffers"], row["database_oid"]))


def _unused(blocks: int) -> Dict[str, Any]:
    """The buffers that belong to no database because they hold nothing."""
    row: Dict[str, Any] = dict.fromkeys(_caches.COUNTS, 0)
    row["in_shared_buffers"] = max(0, blocks)
    return dict(database=None, database_oid=None, kind="unused buffers", **_caches.counts(row))


def _describe_segment(row: Row, names: Names) -> Dict[str, Any]:
    return dict(
        _residency.identity(_residency.place_of(row), names),
        percent=percent(row["in_page_cache"], row["blocks"]),
        **{name: row[name] for name in ("fork", "segment", "blocks", "in_page_cache", "dirty_in_page_cache")}
    )


def _buffers(
    options: Options, result: Dict[str, Any], connect_with_extension: Callable[[str], Session], here: Session
) -> str:
    """Block, dirty, usage count. The relation's own database has to have the extension."""
    relation = options.relation or ""
    databases = options.databases
    if len(databases) > 1 or (databases and re.search(r"[*?\[]", databases[0])):
        raise ResidencyError("databases must be the one database of relation '%s'." % relation)
    session = connect_with_extension(databases[0]) if databases else here
    try:
        database = session.only_row("SELECT current_database() AS name")["name"]
        oid = _find(session, relation)
        if oid is None:
            raise ResidencyError(
                "Relation '%s' does not exist in database %s: spell it as in SQL, and set databases to its database." % (relation, database))
        rows = session.rows(_BUFFERS, (oid, options.limit))
        usage = session.rows(_USAGE, (oid,))
    finally:
        if session is not here:
            session.close()
    blocks = rows[0]["blocks"] if rows else 0
    dirty = rows[0]["dirty_blocks"] if rows else 0
    result["buffers"] = {
        "database": database,
        "relation": relation,
        "blocks": blocks,
        "dirty": dirty,
        "usage_counts": [{"usage_count": row["usage_count"], "blocks": row["blocks"]} for row in usage],
        "buffers": [{key: row[key] for key in ("fork", "block", "dirty", "usage_count")} for row in rows],
    }
    return "%s of %s are in shared buffers, %s dirty." % (human_blocks(blocks), relation, human_blocks(dirty))


def _find(session: Session, relation: str) -> Optional[int]:
    """A name without a schema may be one of public, or of the extension's schema."""
    try:
        oid: Optional[int] = session.only_row(_FIND, (relation, session.schema))["oid"]
    except ResidencyError as error:
        if sqlstate(error.__cause__) == "42602":  # invalid_name
            return None
        raise
    return oid


# --- with PostgreSQL stopped: by file ---


def of_host(data_directory: str, capabilities: Callable[[str], Dict[str, Any]]) -> Dict[str, Any]:
    """Only the capabilities, which need no login."""
    try:
        server = "stopped" if _page_cache.postmaster_pid(data_directory) is None else "running"
    except ResidencyError:
        server = None  # its directory is not accessible to this user
    result = dict(empty_result(), data_directory=data_directory, server=server, msg="The capabilities of this host.")
    _add_capabilities(result, data_directory, capabilities)
    return result


def of_files(data_directory: str, options: Options, capabilities: Callable[[str], Dict[str, Any]]) -> Dict[str, Any]:
    result = empty_result()
    result.update(server="stopped", data_directory=data_directory)
    major = _page_cache.major_version(data_directory)
    _page_cache.require_owner(data_directory)
    for option in ("snapshot", "relation", "relations", "databases"):
        if getattr(options, option):
            raise ResidencyError("PostgreSQL is stopped in %s: %s needs it running." % (data_directory, option))
    result["jobs"] = None
    sentences = ["PostgreSQL is stopped."]
    if {"databases", "relations", "segments"} & set(options.subset):
        files = _page_cache.count_files(data_directory, _page_cache.relation_files(data_directory, major))
        _look_at_files(files, options, result, _names_file.load_newest(data_directory))
        counted = _page_cache.add_up(files)
        sentences.append(
            "%s of %s in %d files are in the page cache."
            % (human_bytes(counted.resident_bytes), human_bytes(counted.bytes), counted.files)
        )
    if "snapshots" in options.subset:
        result["snapshots"] = snapshot_files(data_directory)
        sentences.append("%s." % _plural(len(result["snapshots"]), "snapshot"))
    if "capabilities" in options.subset:
        _add_capabilities(result, data_directory, capabilities)
    result["warnings"] += [warning for warning in _data_directory.opened(data_directory).warnings() if warning not in result["warnings"]]
    result["msg"] = " ".join(sentences)
    return result


def _look_at_files(
    files: Sequence[_page_cache.File], options: Options, result: Dict[str, Any], names: Names
) -> None:
    by_place: Dict[Place, Row] = {}
    by_database: Dict[int, Row] = {}
    segments: List[Row] = []
    for file in files:
        place, fork, segment = _page_cache.identify(file.path)
        blocks, resident = file.bytes // BLOCK_BYTES, file.resident_bytes // BLOCK_BYTES
        for row in (
            by_place.setdefault(place, _file_row(place)),
            by_database.setdefault(place.database, _file_row(Place(place.database, 0, 0))),
        ):
            row["blocks"] += blocks
            row["in_page_cache"] += resident
        if "segments" in options.subset:
            segments.append(dict(_file_row(place), fork=fork, segment=segment, blocks=blocks, in_page_cache=resident))
    result["total"] = _caches.total(by_database.values())
    if "databases" in options.subset:
        result["databases"] = _describe_databases(by_database.values(), names.databases)
    if "relations" in options.subset:
        result["relations"] = [
            dict(_residency.identity(_residency.place_of(row), names), **_caches.counts(row))
            for row in _sorted(by_place.values(), options)
        ]
    result["segments"] = [_describe_segment(row, names) for row in _sorted(segments, options)]


def _file_row(place: Place) -> Row:
    """An empty row. Without a server there are no shared buffers, and mincore does not report dirty pages."""
    row: Row = dict(place._asdict(), **dict.fromkeys(_caches.COUNTS, 0))
    row["dirty_in_page_cache"] = None
    return row


def _sorted(rows: Iterable[Row], options: Options) -> List[Row]:
    def key(row: Row) -> Tuple[float, int, Place]:
        first = row["in_page_cache"] / max(1, row["blocks"]) if options.sort == "percent" else row["in_page_cache"]
        return (-first, -row["blocks"], _residency.place_of(row))

    return sorted(rows, key=key)[: options.limit]


def snapshot_files(data_directory: str) -> List[Dict[str, Any]]:
    """Name, generation, size and digest of each snapshot file; only the extension reads the rest."""
    directory = _data_directory.opened(data_directory)
    found = []
    for name in directory.listed("pg_residency"):
        match = _SNAPSHOT_FILE.fullmatch(name)
        if match:
            size, digest = _size_and_digest(directory, "pg_residency/" + name)
            row: Dict[str, Any] = dict.fromkeys(_residency_snapshot.COLUMNS)
            row.update(name=match.group(1), generation=int(match.group(2)), file_bytes=size, digest=digest)
            found.append(row)
    return sorted(found, key=lambda row: (row["name"], row["generation"]))


def _size_and_digest(directory: DataDirectory, name: str) -> Tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(directory.open(name), "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_SNAPSHOT:
                raise ResidencyError("%s/%s is larger than %s and not a snapshot. Remove it." % (directory.path, name, human_bytes(_LARGEST_SNAPSHOT)))
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise ResidencyError("Cannot read %s/%s: %s." % (directory.path, name, error.strerror)) from None
    return size, digest.hexdigest()


def _plural(count: int, noun: str) -> str:
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")
