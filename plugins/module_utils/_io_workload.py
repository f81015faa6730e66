# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A load that drives I/O and not processors, by the SLOB method: tables with one row per block, read through an index at random.

The tables are ``pgio1`` to ``pgioN`` in a schema of their own; what pgio calls a schema is such a table. The rows of a table lie in an order
that has nothing to do with their keys, so that a range of W keys is W blocks at random. The table ``pgio_set`` says which of them are whole:
a load that was interrupted leaves tables that it does not name, and the next one replaces them.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _pgbench
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import LogIn, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._note import Note
from ansible_collections.pgfleet.cache.plugins.module_utils._units import (
    BLOCK_BYTES,
    human_blocks,
    human_bytes,
    human_seconds,
    parse_seconds,
)

LEAST_SCALE = 1024  # blocks
LARGEST_SCALE = 2**31 - 1  # blocks: a key is an integer
MOST_SCHEMAS = 1024
MOST_SESSIONS = 10000
LOAD_TIMEOUT = "6h"
RUN_TIME = "120s"
CHUNK = 4096  # rows, which are blocks, of one transaction of the load
INDEX_BYTES = 24  # of an entry for a key, with what its page has beside them
BASE_BYTES = 64  # of a row of pgio_base and its key
RESERVE = 1.05  # of the space that is computed
SELECT, UPDATE = 0, 1  # the scripts
LOOK = 1.0  # seconds between two notes of the progress of a load
_LOCK = 0x7067696F  # "pgio": one load or run per database at a time
# The owner of the database can set these for its sessions: then a statement reads the whole table, and not what is reported.
PLAN = {"enable_seqscan": "off", "enable_indexscan": "on", "enable_bitmapscan": "on", "max_parallel_workers_per_gather": "0", "jit": "off"}
# A database can slow down VACUUM. A server goes on with a statement whose client was killed, and holds its table, unless it looks.
LOADING = {"vacuum_cost_delay": "0", "client_connection_check_interval": "10s"}
_SCALE = re.compile(r"([0-9]+) ?([MGT]?)B?", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    state: str
    schema: str
    schemas: int
    scale: str
    sessions: int
    load_sessions: int
    load_timeout: str
    run_time: str
    work_unit: int
    update_pct: int
    update_work_unit: int
    seed: int
    pgbench: Optional[str]
    progress: Optional[str]

    @property
    def place(self) -> str:
        """The schema as SQL has it: its name may be a word of the language."""
        return '"%s"' % self.schema


@dataclass(frozen=True)
class _Set:
    """The tables that there are: ``whole`` has their blocks by number, ``others`` those that a load has not finished.

    ``ours``: the schema has pgio_set, which is made with it and removed last.
    """

    exists: bool
    ours: bool
    whole: Mapping[int, int]
    others: List[str]


Client = Callable[[int, Mapping[str, str]], Tuple[str, Mapping[str, str]]]


def empty_result() -> Dict[str, Any]:
    return {
        "msg": "", "changed": False, "state": None, "schemas": None, "blocks": None, "bytes": None, "loaded": 0, "seconds": None,
        "sessions": [], "selects": None, "updates": None, "select_blocks": None, "update_blocks": None, "blocks_per_second": None,
        "slowest_select_ms": None, "slowest_update_ms": None, "failed_transactions": None, "queries": [], "warnings": [],
    }


def workload(options: Options, log_in: LogIn, client: Client, check_mode: bool) -> Dict[str, Any]:
    """``client`` is :func:`_connection.for_libpq` of the login."""
    scale = blocks_of(options.scale)
    _check(options, scale)
    note = Note(options.progress)
    note("preparing")
    session = log_in(None)
    try:
        result = dict(empty_result(), state=options.state, schemas=options.schemas, blocks=scale, bytes=options.schemas * scale * BLOCK_BYTES)
        _lock(session)
        found = _found(session, options.schema)
        if options.state == "absent":
            _remove(session, options, found, check_mode, result)
        elif options.state == "present":
            _load(session, options, scale, found, log_in, note, check_mode, result)
        else:
            _run(session, options, scale, found, client, note, check_mode, result)
        result["queries"] = session.queries
        return result
    finally:
        session.close()
        note.remove()


# --- what is asked for ---


def blocks_of(scale: str) -> int:
    """``131072`` blocks of 8 KiB, or ``1G``: bytes, as pgio.conf has them. In blocks."""
    found = _SCALE.fullmatch(scale.strip())
    if not found:
        raise ResidencyError("scale is '%s': it must be a number of blocks of 8 kB such as 131072, or a size such as 512M, 1G or 1T." % scale)
    unit = {"": BLOCK_BYTES, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[found.group(2).upper()]
    blocks = int(found.group(1)) * unit // BLOCK_BYTES
    if not LEAST_SCALE <= blocks <= LARGEST_SCALE:
        raise ResidencyError("scale is %s, which are %d blocks: it must be from 1024 blocks (8M) to 2147483647 blocks (16T less one block)." % (scale, blocks))
    return blocks


def _check(options: Options, scale: int) -> None:
    for name, least, most in (
        ("schemas", 1, MOST_SCHEMAS), ("sessions", 1, MOST_SESSIONS), ("load_sessions", 1, MOST_SCHEMAS), ("work_unit", 1, scale),
        ("update_pct", 0, 100), ("update_work_unit", 1, scale), ("seed", 0, 2**31 - 1),
    ):
        value = getattr(options, name)
        if not least <= value <= most:
            reason = ", the blocks of a schema" if name.endswith("work_unit") else ""
            raise ResidencyError("%s is %d: it must be from %d to %d%s." % (name, value, least, most, reason))
    parse_seconds("run_time", options.run_time)
    parse_seconds("load_timeout", options.load_timeout)
    if parse_seconds("run_time", options.run_time) < 1:
        raise ResidencyError("run_time is %s: it must be at least 1 s." % options.run_time)
    if parse_seconds("run_time", options.run_time) >= 2**31:
        raise ResidencyError("run_time is %s: pgbench runs at most 68 years." % options.run_time)
    if options.schema in ("public", "information_schema"):
        raise ResidencyError("schema is %s, which is everybody's: set one that is for the load alone." % options.schema)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", options.schema) or options.schema.startswith("pg_"):
        raise ResidencyError("schema is '%s': it must be a name of small letters, digits and _ that does not begin with pg_." % options.schema)


# --- what is there ---


def _lock(session: Session) -> None:
    """Take the lock of the load, until the connection ends. Raises an error if another session has it."""
    if not session.only_row("SELECT pg_try_advisory_lock(%s::bigint) AS got", (_LOCK,))["got"]:
        other = session.row(
            "SELECT a.pid, a.application_name, date_trunc('second', a.backend_start)::text AS since FROM pg_locks AS l"
            " JOIN pg_stat_activity AS a USING (pid) WHERE l.locktype = 'advisory' AND l.granted AND l.objid = %s::oid"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())", (_LOCK,),
        )
        raise ResidencyError(
            "Another load or run works on these tables%s: wait for its end, or end it with pg_terminate_backend."
            % (" (process %(pid)s, since %(since)s)" % other if other else "")
        )


def _found(session: Session, schema: str) -> _Set:
    """The tables of a load. Raises an error if another role owns one, or has a trigger, rule, policy or right on it: a superuser reads and writes them."""
    owner = session.row(
        "SELECT n.nspowner = r.oid AS mine, o.rolname AS owner FROM pg_namespace AS n JOIN pg_roles AS o ON o.oid = n.nspowner,"
        " pg_roles AS r WHERE n.nspname = %s AND r.rolname = current_user", (schema,),
    )
    if owner is None:
        return _Set(False, False, {}, [])
    if not owner["mine"]:
        raise ResidencyError("Schema %s belongs to %s: set another schema, or log in as its owner." % (schema, owner["owner"]))
    _require_alone(session, schema)
    blocks: Dict[str, int] = {}
    for one in session.rows(
        "SELECT c.relname AS name, c.relkind::text AS kind, r.rolname = current_user AS mine,"
        " c.relhastriggers OR c.relhasrules OR c.relrowsecurity OR c.relhassubclass OR c.relchecks > 0"
        " OR EXISTS (SELECT FROM pg_attrdef AS d WHERE d.adrelid = c.oid)"
        " OR EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)) AS more,"
        # without its index, or emptied by somebody who may, it would not do what is reported
        " CASE WHEN EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid)"
        " AND c.relkind = 'r' THEN pg_relation_size(c.oid) / %s ELSE 0 END AS blocks"
        " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_roles AS r ON r.oid = c.relowner"
        " WHERE n.nspname = %s AND c.relkind <> 'i'", (BLOCK_BYTES, schema),
    ):
        if not re.fullmatch(r"pgio([1-9][0-9]*|_set|_base)", one["name"]):
            continue
        if one["kind"] != "r" or not one["mine"] or one["more"]:
            raise ResidencyError(
                "%s.%s is no plain table of the login role: somebody has changed it. Remove it, or set another schema." % (schema, one["name"])
            )
        blocks[one["name"]] = one["blocks"] or 0
    whole: Dict[int, int] = {}
    if "pgio_set" not in blocks:
        if blocks:
            raise ResidencyError("Schema %s has a table %s that this module has not made: set another schema." % (schema, min(blocks)))
        return _Set(True, False, {}, [])
    for one in session.rows('SELECT number, blocks FROM "%s".pgio_set' % schema):
        if blocks.get("pgio%d" % one["number"], 0) >= one["blocks"]:
            whole[one["number"]] = one["blocks"]
    return _Set(True, True, whole, [one for one in blocks if one == "pgio_base" or (one != "pgio_set" and int(one[4:]) not in whole)])


def _require_alone(session: Session, schema: str) -> None:
    """Raise an error if another role has rights in the schema, as by default privileges; with TRIGGER it writes what a superuser runs."""
    others = session.only_row(
        "SELECT string_agg(DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ') AS names FROM pg_namespace AS n"
        " CROSS JOIN LATERAL aclexplode(n.nspacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee WHERE n.nspname = %s AND a.grantee <> n.nspowner",
        (schema,),
    )["names"]
    if others:
        raise ResidencyError(
            'Others have rights in schema %s: take them away with REVOKE ALL ON SCHEMA "%s" FROM %s, or set another schema.' % (schema, schema, others)
        )


# --- loading ---


def _load(
    session: Session, options: Options, scale: int, found: _Set, log_in: LogIn, note: Note, check_mode: bool, result: Dict[str, Any]
) -> None:
    _require_primary(session, "loaded")
    wanted = range(1, options.schemas + 1)
    if not found.exists and not session.only_row("SELECT has_database_privilege(current_database(), 'CREATE') AS allowed")["allowed"]:
        database = session.only_row("SELECT current_database() AS name")["name"]
        raise ResidencyError("PostgreSQL says: permission denied for database %s. Grant the login role CREATE on it." % database)
    missing = [number for number in wanted if found.whole.get(number) != scale]
    replaced = [number for number in missing if number in found.whole]
    each = human_blocks(scale)
    if not missing and not found.others:
        result["msg"] = "%s of %s each are there." % (_schemas(options.schemas), each)
        return
    if missing:
        _require_connections(session, options.load_sessions if options.load_sessions < len(missing) else len(missing), "Loading")
    result["changed"] = True
    if not missing:
        if not check_mode:
            for name in found.others:
                session.execute("DROP TABLE %s.%s" % (options.place, name))
        result["msg"] = "%s of %s each are there. %s what a load left that was interrupted." % (
            _schemas(options.schemas), each, "Would remove" if check_mode else "Removed",
        )
        return
    needed = int((len(missing) * scale * (BLOCK_BYTES + INDEX_BYTES) + scale * BASE_BYTES) * RESERVE)
    _require_space(session, needed - sum(found.whole[one] for one in replaced) * BLOCK_BYTES, result)
    what = "%s of %s each, %s of disk space%s" % (
        _schemas(len(missing)), each, human_bytes(needed),
        ", in the place of %d of another scale" % len(replaced) if replaced else "",
    )
    if check_mode:
        result["msg"] = "Would load %s." % what
        return
    begun = time.monotonic()
    until = begun + parse_seconds("load_timeout", options.load_timeout)
    loader = _Loader(options.place, scale, until, log_in)
    try:
        _prepare(session, options, scale, found, missing)
        loader.run(missing, min(options.load_sessions, len(missing)), note)
        session.execute("DROP TABLE %s.pgio_base" % options.place)
    except ResidencyError as error:
        raise ResidencyError(str(error), dict(result, loaded=len(loader.loaded), queries=session.queries + loader.queries)) from error
    result["loaded"] = len(loader.loaded)
    session.queries += loader.queries
    try:
        session.command("CHECKPOINT")  # so that nothing of the load is written while something is measured
    except ResidencyError:
        result["warnings"].append("The login role may not run CHECKPOINT: what was loaded is written while the next tasks run.")
    seconds = time.monotonic() - begun
    result["seconds"] = round(seconds, 1)
    result["msg"] = "Loaded %s of %s each in %s, %s/s." % (
        _schemas(len(missing)), each, human_seconds(seconds), human_bytes(len(missing) * scale * BLOCK_BYTES / seconds)
    )


def _prepare(session: Session, options: Options, scale: int, found: _Set, missing: List[int]) -> None:
    schema = options.place
    # in one statement, so that what has no pgio_set is never ours
    table = "CREATE TABLE %spgio_set (number integer PRIMARY KEY, blocks integer NOT NULL)"
    if not found.exists:
        session.execute("CREATE SCHEMA %s %s" % (schema, table % ""))
        _require_alone(session, options.schema)
    elif not found.ours:
        session.execute(table % (schema + "."))
    session.change("DELETE FROM %s.pgio_set WHERE number = ANY (%%s::integer[]) RETURNING number" % schema, (missing,))
    for name in found.others:
        session.execute("DROP TABLE %s.%s" % (schema, name))
    # The order in which rows are written, once for all tables: the same for every load of this scale.
    session.execute(
        "CREATE UNLOGGED TABLE %s.pgio_base AS SELECT (row_number() OVER (ORDER BY hashint4(mykey), mykey))::integer AS place, mykey"
        " FROM generate_series(1, %d) AS mykey" % (schema, scale)
    )
    session.execute("ALTER TABLE %s.pgio_base ADD PRIMARY KEY (place)" % schema)
    session.execute("ANALYZE %s.pgio_base" % schema)


class _Loader:
    """Some sessions, each of which loads one table after the other."""

    def __init__(self, schema: str, scale: int, until: float, log_in: LogIn) -> None:
        self._schema, self._scale, self._until, self._log_in = schema, scale, until, log_in
        self._waiting: "queue.Queue[int]" = queue.Queue()
        self._lock = threading.Lock()
        self._blocks = 0
        self._failures: List[BaseException] = []
        self.loaded: List[int] = []
        self.queries: List[str] = []

    def run(self, numbers: List[int], sessions: int, note: Note) -> None:
        for number in numbers:
            self._waiting.put(number)
        threads = [threading.Thread(target=self._work, daemon=True) for dummy in range(sessions)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        whole = len(numbers) * self._scale
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(LOOK / sessions)
            seconds = time.monotonic() - begun
            speed = self._blocks / seconds
            left = human_seconds((whole - self._blocks) / speed) if speed else "unknown time"
            note("loading, %.1f %%, %s of %s, %s/s, %s left" % (
                100 * self._blocks / whole, human_blocks(self._blocks), human_blocks(whole), human_blocks(int(speed)),
                left if self._blocks < whole else "indexes and VACUUM",
            ))
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        try:
            session = self._log_in(None)
            try:
                for name, value in LOADING.items():  # what this version has of it
                    session.only_row(
                        "SELECT (SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s) AS value", (value, name)
                    )
                while not self._failures:
                    try:
                        number = self._waiting.get_nowait()
                    except queue.Empty:
                        break
                    self._table(session, number)
            finally:
                self.queries += session.queries
                session.close()
        except BaseException as error:  # for the thread that waits
            self._failures.append(error)

    def _table(self, session: Session, number: int) -> None:
        schema, name = self._schema, "%s.pgio%d" % (self._schema, number)
        session.execute("DROP TABLE IF EXISTS %s" % name)
        # a tenth of a block is less than two of these rows
        session.execute("CREATE TABLE %s (mykey integer NOT NULL, scratch integer NOT NULL, filler character(1024)) WITH (fillfactor = 10)" % name)
        session.record("INSERT INTO %s SELECT mykey, place, 'x' FROM %s.pgio_base" % (name, schema))
        for first in range(0, self._scale, CHUNK):
            if self._failures:
                return
            if time.monotonic() > self._until:
                raise ResidencyError("The load was not done within load_timeout. What is loaded stays: run it again, with a longer one.")
            session.command(
                "INSERT INTO %s SELECT mykey, place, 'x' FROM %s.pgio_base WHERE place > %d AND place <= %d ORDER BY place"
                % (name, schema, first, first + CHUNK)
            )
            with self._lock:
                self._blocks += min(CHUNK, self._scale - first)
        session.execute("CREATE UNIQUE INDEX ON %s (mykey)" % name)
        session.execute("VACUUM (FREEZE, ANALYZE) %s" % name)
        blocks = session.only_row("SELECT pg_relation_size(%s::regclass) / %s AS blocks", (name, BLOCK_BYTES))["blocks"]
        if blocks != self._scale:
            raise ResidencyError("%s has %d blocks and %d rows: this server's blocks are not of 8 kB." % (name, blocks, self._scale))
        session.change("INSERT INTO %s.pgio_set VALUES (%%s::integer, %%s::integer) RETURNING number" % schema, (number, self._scale))
        self.loaded.append(number)


def _require_primary(session: Session, verb: str) -> None:
    if session.only_row("SELECT pg_is_in_recovery() AS standby")["standby"]:
        raise ResidencyError("This is a standby, where nothing can be %s: do that on its primary, and run here without updates." % verb)


def _require_space(session: Session, needed: int, result: Dict[str, Any]) -> None:
    """Raise an error if new tables of this database lack space. WAL is not counted: the server limits it."""
    where = session.only_row(
        "SELECT coalesce(nullif(pg_tablespace_location(coalesce(t.oid, d.dattablespace)), ''), current_setting('data_directory', true)) AS path"
        # an unknown name there is ignored
        " FROM pg_database AS d LEFT JOIN pg_tablespace AS t ON t.spcname = current_setting('default_tablespace')"
        " WHERE d.datname = current_database()"
    )["path"]
    try:
        found = os.statvfs(where)
    except (OSError, TypeError) as error:
        result["warnings"].append("The free space could not be checked: %s." % error)
        return
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise ResidencyError(
            "The load needs %s in %s, where %s are free: set a smaller scale or fewer schemas." % (human_bytes(needed), where, human_bytes(free))
        )


def _require_connections(session: Session, count: int, doing: str) -> int:
    """The server's major version."""
    free = session.only_row(
        "SELECT current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer"
        " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS free,"
        " current_setting('server_version_num')::integer / 10000 AS major"
    )
    if count > free["free"]:
        raise ResidencyError(
            "%s needs %d connections, and the server has %d left: set fewer, or raise max_connections." % (doing, count, max(0, free["free"]))
        )
    major: int = free["major"]
    return major


# --- running ---


def _run(
    session: Session, options: Options, scale: int, found: _Set, client: Client, note: Note, check_mode: bool, result: Dict[str, Any]
) -> None:
    seconds = round(parse_seconds("run_time", options.run_time))
    if options.update_pct:
        _require_primary(session, "updated")
    missing = [number for number in range(1, options.schemas + 1) if found.whole.get(number) != scale]
    what = "%d sessions on %s of %s each for %s" % (
        options.sessions * options.schemas, _schemas(options.schemas), human_blocks(scale), human_seconds(seconds)
    )
    if missing and not check_mode:
        raise ResidencyError(
            "%d of %s of %s each are not loaded: load them first (state: present)." % (len(missing), _schemas(options.schemas), human_blocks(scale))
        )
    doing = "%d sessions for each of %s" % (options.sessions, _schemas(options.schemas))
    major = _require_connections(session, options.sessions * options.schemas, "Running " + doing)
    program = _pgbench.find(major, options.pgbench)
    # reading alone changes nothing that anybody would miss
    result["changed"] = bool(options.update_pct)
    if check_mode:
        result["msg"] = "Would run %s%s." % (what, "; they would be loaded first" if missing else "")
        return

    def progress(so_far: _pgbench.Run, elapsed: float) -> None:
        blocks = _totals(so_far, options)["select_blocks"] + _totals(so_far, options)["update_blocks"]
        # pgbench writes its log in pieces of 4 kB: on a slow device the first one takes seconds
        far = ", at least %s of blocks touched, %s/s" % (human_blocks(blocks), human_blocks(int(blocks / elapsed))) if blocks else ""
        note("running, %.1f %%, %s of %s%s" % (
            min(100.0, 100 * elapsed / seconds), human_seconds(min(elapsed, seconds)), human_seconds(seconds), far
        ))

    groups = [
        _pgbench.Group(scripts(options, scale, number), options.sessions, (options.seed + number) % 2**31)
        for number in range(1, options.schemas + 1)
    ]
    try:
        done = _pgbench.run(program, *client(major, PLAN), groups, seconds, progress)
    except ResidencyError as error:
        raise ResidencyError(str(error), result) from error
    totals = _totals(done, options)
    result.update(totals, seconds=round(done.seconds, 2), sessions=[_session(one, options) for one in done.sessions])
    touched = totals["select_blocks"] + totals["update_blocks"]
    if not touched:
        raise ResidencyError("Not one transaction ended in %s: set a longer run_time or a smaller work_unit." % human_seconds(seconds), result)
    result["blocks_per_second"] = round(touched / done.seconds) if done.seconds else None
    slowest = ["the slowest %s took %s" % (kind, _milliseconds(totals["slowest_%s_ms" % kind])) for kind in ("select", "update") if totals[kind + "s"]]
    result["msg"] = "%d sessions on %s of %s each in %s: %d selects, %d updates, %d blocks touched, %s per second; %s." % (
        len(done.sessions), _schemas(options.schemas), human_blocks(scale), human_seconds(done.seconds), totals["selects"], totals["updates"],
        touched, result["blocks_per_second"], " and ".join(slowest),
    )
    if totals["failed_transactions"]:
        result["warnings"].append("%d transactions failed, and are not among those counted." % totals["failed_transactions"])


def scripts(options: Options, scale: int, number: int) -> List[Tuple[str, int]]:
    """Texts and weights, for SELECT and UPDATE. Every percentage of updates is possible, also those from 51 to 99 that pgio refuses."""
    name = "%s.pgio%d" % (options.place, number)
    select = "\\set first random(1, %d)\nSELECT sum(scratch) FROM %s WHERE mykey BETWEEN :first AND :first + %d;\n" % (
        scale - options.work_unit + 1, name, options.work_unit - 1
    )
    update = "\\set first random(1, %d)\nUPDATE %s SET scratch = (scratch + 1) %% 1000000000 WHERE mykey BETWEEN :first AND :first + %d;\n" % (
        scale - options.update_work_unit + 1, name, options.update_work_unit - 1
    )
    return [(select, 100 - options.update_pct), (update, options.update_pct)]


def _session(session: _pgbench.Session, options: Options) -> Dict[str, Any]:
    selects, updates = session.done.get(SELECT, 0), session.done.get(UPDATE, 0)
    return {
        "schema": session.group + 1, "session": session.number + 1, "selects": selects, "updates": updates, "select_blocks": selects * options.work_unit,
        "update_blocks": updates * options.update_work_unit, "slowest_select_ms": session.slowest.get(SELECT), "slowest_update_ms": session.slowest.get(UPDATE),
        "failed_transactions": session.failed,
    }


def _totals(done: _pgbench.Run, options: Options) -> Dict[str, Any]:
    sessions = [_session(one, options) for one in done.sessions]
    found: Dict[str, Any] = {
        name: sum(one[name] for one in sessions) for name in ("selects", "updates", "select_blocks", "update_blocks", "failed_transactions")
    }
    for name in ("slowest_select_ms", "slowest_update_ms"):
        found[name] = max((one[name] for one in sessions if one[name] is not None), default=None)
    return found


# --- removing ---


def _remove(session: Session, options: Options, found: _Set, check_mode: bool, result: Dict[str, Any]) -> None:
    result.update(schemas=len(found.whole), blocks=None, bytes=sum(found.whole.values()) * BLOCK_BYTES)
    if not found.exists:
        result["msg"] = "There is no schema %s." % options.schema
        return
    if not found.ours:
        result["msg"] = "Schema %s has no tables of a load." % options.schema
        return
    _require_primary(session, "removed")
    result["changed"] = True
    what = "%s with %s" % (_schemas(len(found.whole)), human_bytes(result["bytes"]))
    if check_mode:
        result["msg"] = "Would remove %s." % what
        return
    try:
        _drop(session, options, found)
    except ResidencyError as error:
        raise ResidencyError(str(error), dict(result, queries=session.queries)) from error
    result["msg"] = "Removed %s." % what


def _drop(session: Session, options: Options, found: _Set) -> None:
    for name in [*found.others, *("pgio%d" % number for number in sorted(found.whole))]:
        session.execute("DROP TABLE %s.%s" % (options.place, name))
    session.execute("DROP TABLE IF EXISTS %s.pgio_set" % options.place)
    session.execute("DROP SCHEMA %s" % options.place)  # not if somebody else has put something there


# --- words ---


def _schemas(count: int) -> str:
    return "1 schema" if count == 1 else "%d schemas" % count


def _milliseconds(value: Optional[float]) -> str:
    return "unknown time" if value is None else human_seconds(value / 1000)
