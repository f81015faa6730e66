# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a query, and tell what of it came from shared buffers, from the page cache and from the device.

The query is the user's, and means what it means in a session of its own: with the search path of its role and database. So
it may call functions that others own: by an operator, in a view, in the expression of an index. They run with the rights of the login
role, whoever owns them, and no role, transaction or setting can keep a function of a superuser's session from taking these rights.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _host_lock,
    _one_query,
    _others,
    _query_figures,
    _server_io,
    _toast,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import MEANING, Row, Session, sqlstate
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Server
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, human_percent, human_seconds

LARGEST_REPEAT = 1000
LARGEST_FILE = 1024 * 1024  # bytes of a file with a query
LARGEST_TIMEOUT = 2147483  # seconds; the server counts milliseconds in 32 bits

_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, FORMAT JSON) "
_EXPLAIN_RESULT = "EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, SERIALIZE TEXT, FORMAT JSON) "
_EXPLAIN_ONLY = "EXPLAIN (VERBOSE, SETTINGS, FORMAT JSON) "

_OUR_PATH = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
# Rights that a function can turn into all others
_POWERS = "{pg_execute_server_program,pg_write_server_files,pg_read_server_files,pg_read_all_data,pg_write_all_data}"
# Roles that own something in the database or may create something there, other than the login role, superusers and those whom
# the caller trusts. Whatever they plant, before the query or during it, runs with the rights of the login role: a list of objects
# would never be complete. An object of the bootstrap superuser has no owner in pg_shdepend. pg_database_owner has one member,
# whom no catalog names. pg_has_role() says of a superuser that it is a member of every role.
_STRANGERS = """
WITH here AS (
    SELECT oid, datdba, datacl FROM pg_database WHERE datname = current_database()
), holders AS (
    SELECT datdba AS holder FROM here
    UNION SELECT a.grantee FROM here AS h, aclexplode(h.datacl) AS a WHERE a.privilege_type = 'CREATE'
    UNION SELECT a.grantee FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE a.privilege_type = 'CREATE'
    UNION SELECT s.refobjid FROM here AS h JOIN pg_shdepend AS s ON s.dbid = h.oid
    LEFT JOIN pg_class AS c ON s.classid = 'pg_class'::regclass AND c.oid = s.objid
    WHERE s.deptype = 'o' AND s.refclassid = 'pg_authid'::regclass AND c.relpersistence IS DISTINCT FROM 't'
), roles AS (
    SELECT CASE WHEN k.holder = 0 THEN 'PUBLIC' WHEN r.rolname = 'pg_database_owner' THEN o.rolname ELSE r.rolname END AS name,
           CASE WHEN r.rolname = 'pg_database_owner' THEN o.rolsuper ELSE coalesce(r.rolsuper, false) END AS super
    FROM here AS h JOIN pg_roles AS o ON o.oid = h.datdba CROSS JOIN holders AS k LEFT JOIN pg_roles AS r ON r.oid = k.holder
)
SELECT (SELECT string_agg(DISTINCT name, ', ' ORDER BY name) FROM roles WHERE NOT super AND name <> session_user AND name <> ALL (%s::text[]))
       AS names,
       (SELECT string_agg(t.name, ', ') FROM unnest(%s::text[]) AS t (name)
        WHERE t.name <> 'PUBLIC' AND t.name NOT IN (SELECT r.rolname FROM pg_roles AS r)) AS unknown
WHERE EXISTS (SELECT FROM pg_roles AS p WHERE (p.rolsuper OR p.rolcreaterole OR p.rolname = ANY (%s::name[])) AND pg_has_role(p.oid, 'MEMBER'))
"""

_HOW_SURE = {"exact": "", "upper_bound": "at most ", "lower_bound": "at least ", "unknown": "perhaps "}
_NOTHING_SHOWN = "its message may hold values of rows; see the server's log"


class Query(NamedTuple):
    name: str
    text: str
    settings: Dict[str, str]


@dataclass(frozen=True)
class Options:
    query: Optional[str]
    queries: Optional[List[Dict[str, Any]]]
    settings: Dict[str, Any]
    repeat: int
    timeout: int
    plan: bool
    lock: Optional[str]
    trusted_roles: List[str]


def queries_of(options: Options) -> List[Query]:
    """Parse the options ``query``, ``queries`` and ``settings``."""
    common = _settings(options.settings)
    given = options.queries if options.queries is not None else [{"query": options.query}]
    if not given:
        raise ResidencyError("queries is empty: set at least one query.")
    found: List[Query] = []
    for number, entry in enumerate(given, 1):
        name = entry.get("name") or "query %d" % number
        if name in (query.name for query in found):
            raise ResidencyError("Two queries are named '%s': use a different name for each." % name)
        text = _text(name, entry.get("query"), entry.get("path"))
        if "\0" in text:
            raise ResidencyError("%s holds a NUL character." % name)
        found.append(Query(name, text.strip(), dict(common, **_settings(entry.get("settings")))))
    return found


def check_options(options: Options) -> None:
    for option, largest in (("repeat", LARGEST_REPEAT), ("timeout", LARGEST_TIMEOUT)):
        value = getattr(options, option)
        if not 1 <= value <= largest:
            raise ResidencyError("%s is %d: it must be from 1 to %d." % (option, value, largest))


def measure_as_owner(session: Session, options: Options, check_mode: bool) -> Dict[str, Any]:
    """As measure(). Root reads no file of queries, which a link of the owner's could lead to root's own."""
    return _server_io.run_as_server_user(session, lambda: measure(session, options, queries_of(options), check_mode))


def measure(session: Session, options: Options, queries: List[Query], check_mode: bool) -> Dict[str, Any]:
    """``repeat`` rounds over all queries, so that none profits more from what another has left in the caches."""
    backend, server = _server_io.processes_of(session)
    facts = session.only_row(
        "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,"
        " current_setting('io_method', true) AS io_method,"
        " current_setting('block_size')::int AS block_size, current_database() AS database,"
        " (SELECT s.setting::int FROM pg_settings AS s WHERE s.name = 'shared_buffers') AS shared_buffers"
    )
    result = empty_result()
    result.update(
        data_directory=server.data_directory,
        database=facts["database"],
        server_version=facts["version"].split()[0],
        io_method=facts["io_method"] or "sync",
        shared_buffers_blocks=facts["shared_buffers"],
        queries=session.queries,
    )
    _refuse_strangers(session, facts["database"], options.trusted_roles)
    with _host_lock.taken("query_io", options.lock):
        for number in range(1, (1 if check_mode else options.repeat) + 1):
            for query in queries:
                try:
                    if check_mode:
                        run = _planned(session, query, options.timeout)
                    else:
                        run = _run(session, server, backend, query, options.timeout, facts["number"], facts["block_size"])
                except ResidencyError as error:
                    error.result = dict(result, **error.result)
                    raise
                run.update(name=query.name, repetition=number)
                if not options.plan:
                    run["plan"] = None
                result["runs"].append({key: run.get(key) for key in _query_figures.RUN_KEYS})
    result["msg"] = _message(result, check_mode)
    return result


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "data_directory": None, "database": None, "server_version": None, "io_method": None, "shared_buffers_blocks": None,
        "runs": [], "queries": [], "warnings": [],
    }


def _refuse_strangers(session: Session, database: str, trusted: Sequence[str]) -> None:
    """A login role without such rights runs what it runs each day."""
    found = session.row(_STRANGERS, (list(trusted), list(trusted), _POWERS)) or {"names": None, "unknown": None}
    if found["unknown"]:
        raise ResidencyError("Role %s does not exist: correct trusted_roles." % found["unknown"])
    if found["names"]:
        raise ResidencyError(
            "In database %s, objects belong to %s or can be created by them, and a query can run such objects with the rights of the login role:"
            " log in as a role that has no more rights than the query needs, or name those whom you trust with all of them in"
            " trusted_roles (of the role cache_cold_test: cache_cold_test_trusted_roles)." % (database, found["names"])
        )


def _planned(session: Session, query: Query, timeout: int) -> Dict[str, Any]:
    try:
        _begin(session, query, timeout)
        return {"plan": _explain(session, query, _EXPLAIN_ONLY + query.text, timeout)["Plan"]}
    finally:
        _roll_back(session)


def _run(session: Session, server: Server, backend: int, query: Query, timeout: int, version: int, block_size: int) -> Dict[str, Any]:
    noted = _others.before(session, version)
    try:
        columns = _begin(session, query, timeout)
        statement, not_measured = _statement(session, query.text, columns, version)
        before = _server_io.sample(server)
        explained = _explain(session, query, statement, timeout)
        after = _server_io.sample_served(server, before)
        reads = _server_io.compare(before, after, server, backend)
        reads.programs = _server_io.program_devices(backend)
        reads.ahead = _server_io.read_ahead(reads.programs)
        session.rows(_OUR_PATH)
        others = _others.after(session, noted)
        return dict(_query_figures.figures(explained, reads, others, block_size, not_measured), plan=explained["Plan"])
    finally:
        _roll_back(session)


def _statement(session: Session, text: str, columns: List[bool], version: int) -> Tuple[str, List[str]]:
    """The query to run, which also reads the TOAST values that a client would, and a remark if that is impossible."""
    if version >= _toast.SERIALIZES:
        return _EXPLAIN_RESULT + text, []
    if not any(columns):
        return _EXPLAIN + text, []
    for reading in _toast.readings(text, columns):
        if _one_query.columns(session, reading) is not None:
            return _EXPLAIN + reading, []
    return _EXPLAIN + text, [_toast.NOT_MEASURED]


def _begin(session: Session, query: Query, timeout: int) -> List[bool]:
    """Begin the query's transaction, with its settings, and refuse what is no query that only reads; the columns of its result."""
    session.command("BEGIN READ ONLY")
    # without the right to set it there is no timing, unless the server's own setting is on
    _set(session, query, "track_io_timing", query.settings.get("track_io_timing", "on"))
    for name in MEANING:
        session.command("SET LOCAL %s TO DEFAULT" % name)
    for name, value in dict({"statement_timeout": "%ds" % timeout}, **query.settings).items():
        _set(session, query, name, value)
    session.command("SET LOCAL standard_conforming_strings TO on")  # the same for the check and for the run
    began = time.monotonic()
    try:
        refused = _one_query.refusal(session, query.text)
        columns = None if refused else _one_query.columns(session, query.text)
    except ResidencyError as error:
        raise ResidencyError(_failure(query, error, timeout, time.monotonic() - began)) from error
    if refused or columns is None:
        raise ResidencyError("%s %s" % (query.name, refused or _one_query.NO_QUERY))
    return columns


def _roll_back(session: Session) -> None:
    with suppress(ResidencyError):  # the connection is gone, which was said already
        session.command("ROLLBACK")


def _set(session: Session, query: Query, name: str, value: str) -> None:
    try:
        session.rows("SELECT pg_catalog.set_config(%s::pg_catalog.text, %s::pg_catalog.text, true)", (name, value))
    except ResidencyError as error:
        if name == "track_io_timing" and name not in query.settings:
            # only superusers may, or who was granted it: then without read timing, unless the server has it on
            _roll_back(session)
            session.command("BEGIN READ ONLY")
            return
        raise ResidencyError("Setting %s of %s: %s" % (name, query.name, error)) from error


def _explain(session: Session, query: Query, statement: str, timeout: int) -> Dict[str, Any]:
    session.record(statement, None)
    began = time.monotonic()
    try:
        rows = session.rows(statement, None)
    except ResidencyError as error:
        raise ResidencyError(_failure(query, error, timeout, time.monotonic() - began)) from error
    explained: Dict[str, Any] = next(iter(rows[0].values()))[0]
    return explained


def _failure(query: Query, error: ResidencyError, timeout: int, seconds: float) -> str:
    cause = error.__cause__
    state = sqlstate(cause)
    if state is None:
        return "%s: %s" % (query.name, error)
    if state == "25006":
        return "%s %s" % (query.name, _one_query.NOT_READING % error)
    # somebody may have canceled it, and the settings may have a timeout of their own
    if state == "57014" and "statement_timeout" not in query.settings and seconds >= timeout:
        return "%s did not end within timeout of %s." % (query.name, human_seconds(timeout))
    if state[:2] in ("21", "22", "23", "38", "39", "P0", "XX"):
        return "%s failed with SQLSTATE %s (%s): %s." % (query.name, state, type(cause).__name__, _NOTHING_SHOWN)
    return "%s: %s" % (query.name, error)


def _message(result: Dict[str, Any], check_mode: bool) -> str:
    runs: List[Row] = result["runs"]
    if check_mode:
        return "Would run %s." % ", ".join(run["name"] for run in runs)
    last = runs[-1]
    text = "%s: %s, read %s, of which %s%s came from the device" % (
        last["name"], human_seconds(last["milliseconds"] / 1000), human_bytes(last["read_bytes"]), _HOW_SURE[last["certainty"]],
        human_bytes(last["device_bytes"])
    )
    if last["page_cache_percent"] is not None:
        text += " and at least %s from the page cache" % human_percent(last["page_cache_percent"])
    return text + (" (the last of %d runs)." % len(runs) if len(runs) > 1 else ".")


def _settings(given: Optional[Mapping[str, Any]]) -> Dict[str, str]:
    """YAML knows numbers and truth, PostgreSQL takes text."""
    return {name: ("on" if value else "off") if isinstance(value, bool) else str(value) for name, value in (given or {}).items()}


def _read(path: str) -> str:
    """A regular file of at most LARGEST_FILE bytes; a pipe would be waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, "it has more than %s" % human_bytes(LARGEST_FILE))
        return file.read(LARGEST_FILE).decode("utf-8")


def _text(name: str, text: Optional[str], path: Optional[str]) -> str:
    if (text is None) == (path is None):
        raise ResidencyError("%s needs either query or path." % name)
    if path is not None:
        try:
            text = _read(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ResidencyError("%s: cannot read %s: %s." % (name, path, getattr(error, "strerror", None) or error)) from None
    return text or ""
