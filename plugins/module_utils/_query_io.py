# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a query, and tell what of it came from shared buffers, from the page cache and from the device."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _server_io, _turn
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Reads, Server
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, human_percent, human_seconds, percent

LARGEST_REPEAT = 1000
LARGEST_TIMEOUT = 2147483  # seconds; the server counts milliseconds in 32 bits

_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, FORMAT JSON) "
_EXPLAIN_ONLY = "EXPLAIN (VERBOSE, SETTINGS, FORMAT JSON) "

# Whoever was at work since then: its state, or one of its queries, has begun after it.
_ACTIVE = """
SELECT count(*) FILTER (WHERE state = 'active' OR state_change >= %s OR backend_start >= %s) AS active,
       bool_and(state IS NOT NULL) AS seen
FROM pg_catalog.pg_stat_activity
WHERE backend_type IN ('client backend', 'autovacuum worker', 'parallel worker') AND pid <> pg_catalog.pg_backend_pid()
      AND leader_pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
"""

_COUNTS = tuple(
    "%s_%s" % (layer, what) for layer in ("shared", "local", "temp") for what in ("hit", "read") if (layer, what) != ("temp", "hit")
)
_NOTHING_SHOWN = "its message may hold a row's values, and is in the server's log"


class Query(NamedTuple):
    name: str
    text: str
    settings: Dict[str, str]


def queries_of(params: Mapping[str, Any]) -> List[Query]:
    """What the options ``query``, ``queries`` and ``settings`` mean."""
    common = _settings(params["settings"])
    given = params["queries"] if params["queries"] is not None else [{"query": params["query"]}]
    if not given:
        raise ResidencyError("queries is empty: name at least one query.")
    found: List[Query] = []
    for number, one in enumerate(given, 1):
        name = one.get("name") or "query %d" % number
        if name in (query.name for query in found):
            raise ResidencyError("Two queries are called '%s': each needs a name of its own." % name)
        text = _text(name, one.get("query"), one.get("path"))
        found.append(Query(name, _single(name, text), dict(common, **_settings(one.get("settings")))))
    return found


def check_options(params: Mapping[str, Any]) -> None:
    for option, largest in (("repeat", LARGEST_REPEAT), ("timeout", LARGEST_TIMEOUT)):
        if not 1 <= params[option] <= largest:
            raise ResidencyError("%s is %d: it has to be from 1 to %d." % (option, params[option], largest))


def measure(session: Session, params: Mapping[str, Any], queries: List[Query], check_mode: bool) -> Dict[str, Any]:
    """``repeat`` rounds over all queries, so that none profits more from what another has left in the caches."""
    backend = session.only_row("SELECT pg_catalog.pg_backend_pid() AS pid")["pid"]
    server = _server_io.server_of(backend)
    facts = session.only_row(
        "SELECT current_setting('server_version') AS version, current_setting('io_method', true) AS io_method,"
        " current_setting('block_size')::int AS block_size, current_database() AS database"
    )
    result = empty_result()
    result.update(
        data_directory=server.data_directory,
        database=facts["database"],
        server_version=facts["version"].split()[0],
        io_method=facts["io_method"] or "sync",
        queries=session.queries,
    )
    with _turn.taken("query_io", params["lock"]):
        for number in range(1, (1 if check_mode else params["repeat"]) + 1):
            for query in queries:
                try:
                    run = _run(session, server, backend, query, params["timeout"], check_mode)
                except ResidencyError as error:
                    error.result = dict(result, **error.result)
                    raise
                run.update(name=query.name, repetition=number)
                if not check_mode:
                    run.update(_figures(run.pop("explained"), run.pop("reads"), run.pop("active"), facts["block_size"]))
                if not params["plan"]:
                    run["plan"] = None
                result["runs"].append({key: run.get(key) for key in RUN_KEYS})
    result["msg"] = _message(result, check_mode)
    return result


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False,
        "data_directory": None,
        "database": None,
        "server_version": None,
        "io_method": None,
        "runs": [],
        "queries": [],
        "warnings": [],
    }


RUN_KEYS = (
    "name",
    "repetition",
    "milliseconds",
    "planning_milliseconds",
    *_COUNTS,
    "planning_read",
    "read_milliseconds",
    "workers_launched",
    "read_bytes",
    "device_bytes",
    "page_cache_bytes",
    "page_cache_percent",
    "over_read_bytes",
    "certainty",
    "remarks",
    "backend_bytes",
    "io_worker_bytes",
    "ended_bytes",
    "other_bytes",
    "disks",
    "cgroup_bytes",
    "plan",
)


def _run(session: Session, server: Server, backend: int, query: Query, timeout: int, check_mode: bool) -> Dict[str, Any]:
    session.command("BEGIN READ ONLY")
    try:
        settings = dict({"track_io_timing": "on", "statement_timeout": "%ds" % timeout}, **query.settings)
        settings["standard_conforming_strings"] = "on"  # as _single() has read the query
        for name, value in settings.items():
            _set(session, query, name, value)
        statement = (_EXPLAIN_ONLY if check_mode else _EXPLAIN) + query.text
        if check_mode:
            return {"plan": _explain(session, query, statement, timeout)["Plan"]}
        # whoever may not set it sees no timing; the server's own setting may be on
        began = session.only_row("SELECT pg_catalog.clock_timestamp() AS now")["now"]
        before = _server_io.sample(server)
        explained = _explain(session, query, statement, timeout)
        after = _server_io.sample(server)
        row = session.only_row(_ACTIVE, (began, began))
        active = row["active"] if row["seen"] is not False else None
        return {
            "explained": explained,
            "plan": explained["Plan"],
            "reads": _server_io.compare(before, after, server, backend),
            "active": active,
        }
    finally:
        _roll_back(session)


def _roll_back(session: Session) -> None:
    with suppress(ResidencyError):  # the connection is gone, which was said already
        session.command("ROLLBACK")


def _set(session: Session, query: Query, name: str, value: str) -> None:
    try:
        session.rows("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
    except ResidencyError as error:
        if name == "track_io_timing" and name not in query.settings:
            # only superusers may, or who was granted it: then without read timing, unless the server has it on
            _roll_back(session)
            session.command("BEGIN READ ONLY")
            return
        raise ResidencyError("Setting %s of %s: %s" % (name, query.name, error)) from error


def _explain(session: Session, query: Query, statement: str, timeout: int) -> Dict[str, Any]:
    session.record(statement, None)
    try:
        rows = session.rows(statement, None)
    except ResidencyError as error:
        raise ResidencyError(_failure(query, error, timeout)) from error
    explained: Dict[str, Any] = next(iter(rows[0].values()))[0]
    return explained


def _failure(query: Query, error: ResidencyError, timeout: int) -> str:
    cause = error.__cause__
    state = getattr(cause, "pgcode", None) or getattr(cause, "sqlstate", None)
    if state is None:
        return "%s: %s" % (query.name, error)
    if state == "25006":
        return "%s writes, and query_io only runs what reads. %s" % (query.name, error)
    if state == "57014":
        return "%s did not end within timeout of %s." % (query.name, human_seconds(timeout))
    if state[:2] in ("21", "22", "23", "38", "39", "P0", "XX"):
        return "%s failed with SQLSTATE %s (%s): %s." % (query.name, state, type(cause).__name__, _NOTHING_SHOWN)
    return "%s: %s" % (query.name, error)


def _figures(explained: Dict[str, Any], reads: Reads, active: Optional[int], block_size: int) -> Dict[str, Any]:
    plan, planning = explained["Plan"], explained.get("Planning", {})
    figures: Dict[str, Any] = {count: plan.get(_buffers(count), 0) for count in _COUNTS}
    workers = sum(node.get("Workers Launched", 0) for node in _nodes(plan))
    # catalogs that planning read came the same way
    read = sum(figures[count] for count in _COUNTS if count.endswith("_read")) + planning.get("Shared Read Blocks", 0)
    device = reads.of_query(workers)
    doubts = _server_io.doubts(reads, workers, active)
    counted = read * block_size
    page_cache = max(0, counted - device)
    figures.update(
        milliseconds=explained["Execution Time"],
        planning_milliseconds=explained["Planning Time"],
        planning_read=planning.get("Shared Read Blocks", 0),
        read_milliseconds=_read_milliseconds(plan),
        workers_launched=workers,
        read_bytes=counted,
        device_bytes=device,
        page_cache_bytes=page_cache,
        page_cache_percent=percent(page_cache, counted) if counted else None,
        over_read_bytes=max(0, device - counted),
        certainty="unknown" if reads.disk_bytes is None else "upper_bound" if doubts else "exact",
        remarks=doubts + _server_io.cross_check(reads, device),
        **_server_io.as_result(reads)
    )
    return figures


def _buffers(count: str) -> str:
    layer, what = count.split("_")
    return "%s %s Blocks" % (layer.capitalize(), what.capitalize())


def _read_milliseconds(plan: Dict[str, Any]) -> Optional[float]:
    """Up to 16 one figure for shared and local blocks; None where track_io_timing is off."""
    found = [plan[key] for key in ("I/O Read Time", "Shared I/O Read Time", "Local I/O Read Time", "Temp I/O Read Time") if key in plan]
    return round(sum(found), 3) if found else None


def _nodes(plan: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _message(result: Dict[str, Any], check_mode: bool) -> str:
    runs: List[Row] = result["runs"]
    if check_mode:
        return "Would run %s." % ", ".join(run["name"] for run in runs)
    last = runs[-1]
    text = "%s: %s, read %s, of which %s came from the device" % (
        last["name"], human_seconds(last["milliseconds"] / 1000), human_bytes(last["read_bytes"]), human_bytes(last["device_bytes"])
    )
    if last["page_cache_percent"] is not None:
        text += " and at least %s from the page cache" % human_percent(last["page_cache_percent"])
    return text + (" (the last of %d runs)." % len(runs) if len(runs) > 1 else ".")


def _settings(given: Optional[Mapping[str, Any]]) -> Dict[str, str]:
    """YAML knows numbers and truth, PostgreSQL takes text."""
    return {
        name: ("on" if value else "off") if isinstance(value, bool) else str(value) for name, value in (given or {}).items()
    }


def _text(name: str, text: Optional[str], path: Optional[str]) -> str:
    if (text is None) == (path is None):
        raise ResidencyError("%s needs either query or path." % name)
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ResidencyError("%s: cannot read %s: %s." % (name, path, getattr(error, "strerror", None) or error)) from None
    return text or ""


# Comments, strings and quoted names, which may hold a semicolon
_QUOTED = re.compile(
    r"--[^\n]*|/\*|(?<![a-zA-Z0-9_])[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
    r"|(?<![a-zA-Z0-9_$])\$([a-zA-Z_]\w*)?\$.*?\$(?(1)\1|)\$|;",
    re.DOTALL,
)


def _single(name: str, text: str) -> str:
    """One statement, without its semicolon: with a second one, EXPLAIN would run that too, and not read-only."""
    ends = [position for token, position in _tokens(text) if token == ";"]
    bare = text[: ends[0]] if ends else text
    if not _without_comments(bare):
        raise ResidencyError("%s is empty." % name)
    if ends and _without_comments(text[ends[0] :].replace(";", " ")):
        raise ResidencyError("%s holds more than one statement: give each a query of its own." % name)
    return bare.strip()


def _tokens(text: str) -> Iterator[Tuple[str, int]]:
    position = 0
    while True:
        found = _QUOTED.search(text, position)
        if not found:
            return
        position = _comment_end(text, found.start()) if found.group() == "/*" else found.end()
        yield found.group(), found.start()


def _comment_end(text: str, start: int) -> int:
    """These nest."""
    depth = 0
    for found in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return start + found.end()
    return len(text)


def _without_comments(text: str) -> str:
    left, end = "", 0
    for token, position in _tokens(text):
        left += text[end:position]
        if token == "/*":
            end = _comment_end(text, position)
        elif token.startswith("--"):
            end = position + len(token)
        else:
            end = position
    return (left + text[end:]).strip()
