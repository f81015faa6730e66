# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure the cost of flushing the local buffers of a temporary table, and of reading the table again.

Each measurement of a size has a session of its own, as in the published benchmark: local buffers are never given back, and a flush looks at all
that the session has. One round measures every size once. So all sizes meet the same neighbours, and a time limit takes iterations from the
largest sizes first.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _proc, _server_io, _temp_storage
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import LogIn, Session, attach_extension, sqlstate
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._note import Note
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._units import (
    BLOCK_BYTES,
    human_blocks,
    human_bytes,
    human_seconds,
    parse_bytes,
    parse_seconds,
)

SIZES = [2**power for power in range(7, 19)]  # blocks: 1 MB to 2 GB
ITERATIONS = 30
QUICK_SIZES, QUICK_ITERATIONS = [128, 512, 2048, 8192, 32768], 5
LEAST, LARGEST = 128, 2**22  # blocks
MOST_ITERATIONS = 1000
MOST_SIZES = 100
LONGEST = 7 * 86400  # seconds
TIME_LIMIT = "1h"
RATE = "200MB"
PHASES = ("write", "dry_write", "read", "dry_read", "random_read", "random_write")
PASSES = 4  # writes of the table in an iteration: when it is extended, filled, flushed, and flushed again
BUSY = 10  # percent of the time that a process waits for a processor, from where on it is said
RESERVE = 1.1  # of the space that is computed
_LOCK = 0x70677463  # "pgtc": one measurement per database at a time
_CANCELED = "57014"

_FACTS = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
       current_setting('block_size')::int AS block_size, current_setting('data_checksums') = 'on' AS checksums,
       current_setting('io_method', true) AS io_method, current_setting('temp_tablespaces') AS temp_tablespaces, pg_is_in_recovery() AS standby,
       current_database() AS database, has_database_privilege(current_database(), 'TEMPORARY') AS allowed
"""
_TABLESPACE = """
SELECT t.oid::bigint AS oid, t.spcname AS name, pg_tablespace_location(t.oid) AS location,
       t.oid = d.dattablespace OR has_tablespace_privilege(t.oid, 'CREATE') AS allowed
FROM pg_database AS d JOIN pg_tablespace AS t ON CASE WHEN %s = '' THEN t.oid = d.dattablespace ELSE t.spcname = %s END
WHERE d.datname = current_database()
"""
# Nothing of the role's or the database's may change what is measured; a session whose module has ended must not go on.
_SETTINGS = {"track_io_timing": "off", "jit": "off", "client_connection_check_interval": "1s", "max_parallel_workers_per_gather": "0"}
_RELATIONS = """
SELECT c.oid::regclass::text AS name, pg_relation_filepath(c.oid) AS path, pg_relation_size(c.oid) / %s AS blocks
FROM pg_class AS t JOIN pg_class AS c
     ON c.oid = t.oid OR %s AND (c.oid = t.reltoastrelid OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (t.oid, t.reltoastrelid)))
WHERE t.oid = 'pg_temp.pgfleet_cost'::regclass ORDER BY c.oid
"""


@dataclass(frozen=True)
class Options:
    sizes: Optional[List[int]]
    iterations: Optional[int]
    quick: bool
    dependents: bool
    reach: str
    tablespace: Optional[str]
    rate: str
    time_limit: str
    seed: int
    progress: Optional[str]

    @property
    def blocks(self) -> List[int]:
        return (QUICK_SIZES if self.quick else SIZES) if self.sizes is None else self.sizes

    @property
    def rounds(self) -> int:
        return (QUICK_ITERATIONS if self.quick else ITERATIONS) if self.iterations is None else self.iterations

    @property
    def device(self) -> bool:
        return self.reach == "device"


class Step(NamedTuple):
    """One statement, by EXPLAIN. The counts are of local blocks."""

    microseconds: float
    hit: int
    read: int
    dirtied: int
    written: int


class OutOfTimeError(Exception):
    """The time limit has passed."""


def empty_result() -> Dict[str, Any]:
    return {
        "msg": "", "changed": False, "server_version": None, "block_size": None, "checksums": None, "io_method": None, "database": None, "tablespace": None,
        "storage": {}, "reach": None, "reached": None, "dependents": None, "sizes": [], "iterations": None, "disk_bytes": None, "memory_bytes": None,
        "seconds": None, "complete": False, "measurements": [], "remarks": [], "warnings": [],
    }


def measure(options: Options, log_in: LogIn, check_mode: bool) -> Dict[str, Any]:
    check_options(options)
    if os.geteuid() == 0:
        # whose files and links in the data directory root would follow
        raise ResidencyError("Root does not open the cluster's files: become the cluster's operating system user (become_user: postgres).")
    note = Note(options.progress)
    note("preparing")
    session = log_in(None)
    try:
        result = dict(empty_result(), reach=options.reach, dependents=options.dependents, sizes=options.blocks, iterations=options.rounds)
        run = _prepare(session, options, log_in, result)
        if check_mode:
            result["msg"] = "Would measure %s: up to %s of disk space in %s and %s of memory, %s." % (
                what(options), human_bytes(result["disk_bytes"]), run.place, human_bytes(result["memory_bytes"]), "at most " + options.time_limit,
            )
            return result
        run.all(note)
        return result
    finally:
        session.close()
        note.remove()


def check_options(options: Options) -> None:
    if options.quick and (options.sizes, options.iterations) != (None, None):
        raise ResidencyError("quick has sizes and iterations of its own: set either quick, or sizes and iterations.")
    if not options.blocks:
        raise ResidencyError("sizes is empty: leave it out, or name one.")
    for blocks in options.blocks:
        if not LEAST <= blocks <= LARGEST:
            raise ResidencyError("sizes has %d: each must be from %d to %d blocks of 8 kB." % (blocks, LEAST, LARGEST))
    if len(options.blocks) > MOST_SIZES:
        raise ResidencyError("sizes has %d sizes: it must have at most %d." % (len(options.blocks), MOST_SIZES))
    if len(set(options.blocks)) < len(options.blocks):
        raise ResidencyError("sizes has one of them twice: name each once.")
    if not 1 <= options.rounds <= MOST_ITERATIONS:
        raise ResidencyError("iterations is %d: it must be from 1 to %d." % (options.rounds, MOST_ITERATIONS))
    if not 0 <= options.seed < 2**31:
        raise ResidencyError("seed is %d: it must be from 0 to 2147483647." % options.seed)
    parse_time_limit("time_limit", options.time_limit)
    parse_bytes("rate", options.rate)


def parse_time_limit(option: str, text: str) -> float:
    seconds = parse_seconds(option, text)
    if seconds > LONGEST:
        raise ResidencyError("%s is %s: it must be at most 7 days." % (option, text.strip()))
    return seconds


def buffers_for(blocks: int, dependents: bool) -> int:
    """Local buffers that hold the table with its maps, and with indexes."""
    return blocks + blocks // (20 if dependents else 100) + 32


def what(options: Options) -> str:
    sizes = sorted(options.blocks)
    return "%s of %s%s, %s each%s" % (
        "1 size" if len(sizes) == 1 else "%d sizes" % len(sizes),
        human_blocks(sizes[0]) if len(sizes) == 1 else "%s to %s" % (human_blocks(sizes[0]), human_blocks(sizes[-1])),
        " with TOAST and an index" if options.dependents else "",
        "1 iteration" if options.rounds == 1 else "%d iterations" % options.rounds, ", as far as the device" if options.device else "",
    )


# --- before anything is measured ---


def _prepare(session: Session, options: Options, log_in: LogIn, result: Dict[str, Any]) -> Run:
    attach_extension(session)
    if session.only_row("SELECT to_regprocedure(%s) IS NULL AS missing", (session.schema + ".pg_flush_local_buffers()",))["missing"]:
        raise NotInstalledError("Extension pg_residency has no functions for local buffers in this version: run the playbook pgfleet.cache.install.")
    facts = session.only_row(_FACTS)
    result.update(
        server_version=facts["version"].split()[0], block_size=facts["block_size"], checksums=facts["checksums"], io_method=facts["io_method"] or "sync",
        database=facts["database"],
    )
    if facts["standby"]:
        raise ResidencyError("This is a standby, where no temporary table can be created: measure on the primary.")
    if not facts["allowed"]:
        raise ResidencyError("PostgreSQL says: permission denied for database %s. Grant the login role TEMPORARY on it." % facts["database"])
    if not session.only_row("SELECT pg_try_advisory_lock(%s::bigint) AS got", (_LOCK,))["got"]:
        raise ResidencyError("Another measurement works in database %s: wait for its end." % facts["database"])
    dummy, server = _server_io.processes_of(session)
    tablespace = _tablespace(session, options, facts["temp_tablespaces"])
    # that of a tablespace in place is relative
    place = os.path.realpath(os.path.join(server.data_directory, tablespace["location"] or "base"))
    result["tablespace"] = tablespace["name"]
    result["storage"] = _temp_storage.describe(place, server.postmaster)
    _require_space(place, server.postmaster, options, result)
    return Run(options, session, log_in, server.data_directory, place, tablespace["name"], result)


def _tablespace(session: Session, options: Options, setting: str) -> Dict[str, Any]:
    """The tablespace of temporary tables. Of several in temp_tablespaces, PostgreSQL takes one at random."""
    name = options.tablespace or setting.strip()
    where = "tablespace" if options.tablespace else "temp_tablespaces of the server"
    if options.tablespace is None and "," in name:
        raise ResidencyError("temp_tablespaces is '%s': set tablespace to the one to measure." % printable(name, 100))
    if options.tablespace is None and name.startswith('"') and name.endswith('"'):
        name = name[1:-1].replace('""', '"')
    elif options.tablespace is None:
        name = re.sub("[A-Z]", lambda one: one.group().lower(), name)  # as PostgreSQL reads it
    if name == "pg_global":
        raise ResidencyError("Tablespace pg_global is for PostgreSQL's shared catalogs alone: correct %s." % where)
    found = session.row(_TABLESPACE, (name, name))
    if found is None:
        raise ResidencyError("There is no tablespace %s: correct %s." % (printable(name, 100), where))
    if not found["allowed"]:
        raise ResidencyError("PostgreSQL says: permission denied for tablespace %s. Grant the login role CREATE on it." % printable(name, 100))
    return found


def _require_space(place: str, postmaster: int, options: Options, result: Dict[str, Any]) -> None:
    largest = max(options.blocks)
    needed = int(buffers_for(largest, options.dependents) * BLOCK_BYTES * RESERVE)
    kind = result["storage"]["kind"]
    # the local buffers, and as much in the page cache
    memory = needed if options.device and kind != _temp_storage.MEMORY else 2 * needed
    result.update(disk_bytes=needed, memory_bytes=memory)
    try:
        found = os.statvfs(place)
    except OSError as error:
        raise ResidencyError("%s: %s: become the cluster's operating system user (become_user: postgres)." % (place, error.strerror)) from None
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise ResidencyError("The largest size needs %s in %s, where %s are free: set smaller sizes." % (human_bytes(needed), place, human_bytes(free)))
    available = _proc.meminfo_or_none("MemAvailable")
    limit = _capabilities.memory_limit(postmaster)
    available = min((one for one in (available, limit) if one is not None), default=None)
    if available is not None and memory > available:
        raise ResidencyError(
            "The largest size needs %s of memory, and PostgreSQL has %s: set smaller sizes." % (human_bytes(memory), human_bytes(available))
        )


# --- measuring ---


class Run:
    """All rounds, and what they have found."""

    def __init__(self, options: Options, locked: Session, log_in: LogIn, data: str, place: str, tablespace: str, result: Dict[str, Any]) -> None:
        self.options, self.place, self._log_in, self._data, self._tablespace, self._result = options, place, log_in, data, tablespace, result
        self._locked = locked  # has the lock; who ends it, ends the measurement
        self._begun = time.monotonic()
        self._until = self._begun + parse_seconds("time_limit", options.time_limit)
        self._rate = parse_bytes("rate", options.rate)
        self._written = 0  # bytes so far, for the rate
        self._found: Dict[int, List[Dict[str, Any]]] = {blocks: [] for blocks in options.blocks}
        self._lasted: Dict[int, float] = {}

    def all(self, note: Note) -> None:
        sizes = sorted(self.options.blocks)
        whole = self.options.rounds * sum(sizes)
        done = 0
        stopped = False
        for number in range(self.options.rounds):
            for blocks in sizes:
                self._pause()
                left = self._until - time.monotonic()
                if left <= 0 or self._lasted.get(blocks, 0.0) > left:
                    stopped = True
                    continue
                spent = 100 * (1 - left / (self._until - self._begun))
                note("measuring, %.1f %%, iteration %d of %d, %s" % (
                    max(100 * done / whole, min(99.0, spent)), number + 1, self.options.rounds, human_blocks(blocks)))
                begun = time.monotonic()
                try:
                    self._found[blocks].append(self._iteration(blocks, number))
                except OutOfTimeError:
                    stopped = True
                    continue
                self._lasted[blocks] = time.monotonic() - begun
                self._written += PASSES * blocks * BLOCK_BYTES
                done += blocks
        self._finish(stopped)

    def _pause(self) -> None:
        """Sleep until the average of the bytes written since the beginning is within the rate, or the time limit has passed."""
        end = self._begun + self._written / self._rate
        if end >= self._until:
            self._until = min(self._until, time.monotonic())
        while time.monotonic() < self._until:
            self._locked.command("SELECT")
            wait = end - time.monotonic()
            if wait <= 0:
                return
            time.sleep(min(1.0, wait))

    def _iteration(self, blocks: int, number: int) -> Dict[str, Any]:
        swapped = _temp_storage.swapped()
        session = self._log_in(None)
        try:
            attach_extension(session)
            found = _Table(session, self.options, self._until, self._data, self.place).measure(
                blocks, buffers_for(blocks, self.options.dependents), self._tablespace, (self.options.seed + number) % 2**31,
                self._result["storage"]["volumes"], self._result["storage"]["kind"] == _temp_storage.MEMORY,
            )
        except ResidencyError as error:
            # statement_timeout, which holds for every statement from the first one on that can last
            if sqlstate(error.__cause__) == _CANCELED and time.monotonic() >= self._until:
                raise OutOfTimeError from error
            raise
        finally:
            session.close()
        return dict(found, swapped=_temp_storage.swapped() - swapped)

    def _finish(self, stopped: bool) -> None:
        options, result = self.options, self._result
        result["seconds"] = round(time.monotonic() - self._begun, 1)
        result["measurements"] = [summary(blocks, found) for blocks, found in sorted(self._found.items()) if found]
        result["complete"] = not stopped
        if not result["measurements"]:
            raise ResidencyError(
                "Not one iteration ended within the time_limit of %s: set a longer one, or smaller sizes." % options.time_limit, result)
        result["reached"] = reached(result["measurements"], result["storage"]["kind"])
        result["remarks"] = remarks(result, options)
        last = result["measurements"][-1]
        count, whole = sum(measurement["iterations"] for measurement in result["measurements"]), options.rounds * len(options.blocks)
        asked = what(options) if result["complete"] else "%d of %d iterations (%s)" % (count, whole, what(options))
        result["msg"] = "Measured %s in %s. At %s a flush took %.2f us per block, a sequential read %.2f us: %.2f times as long." % (
            asked, human_seconds(result["seconds"]), human_blocks(last["blocks"]), last["microseconds"]["write"]["median"],
            last["microseconds"]["read"]["median"], last["microseconds"]["write"]["median"] / last["microseconds"]["read"]["median"],
        )


class _Table:
    """The temporary table of one session. With the session it goes, however that ends."""

    def __init__(self, session: Session, options: Options, until: float, data: str, place: str) -> None:
        self._session, self._options, self._until, self._data, self._place = session, options, until, data, place
        self._files: List[str] = []

    def measure(self, blocks: int, buffers: int, tablespace: str, seed: int, volumes: List[str], in_memory: bool) -> Dict[str, Any]:
        device = self._options.device and not in_memory
        dependents = "true" if self._options.dependents else "false"
        self._create(blocks, buffers, tablespace)
        microseconds: Dict[str, float] = {}
        counts = self._session.only_row(
            "SELECT @extschema@.pg_dirtied_local_buffers() AS dirtied, @extschema@.pg_allocated_local_buffers() AS allocated, pg_backend_pid() AS pid")
        dirtied, allocated = counts["dirtied"], counts["allocated"]
        there = sum(one["blocks"] for one in self._relations())
        require(dirtied >= 0.9 * there and there >= 0.9 * blocks, "the table has %d blocks, of which %d are dirty" % (there, dirtied))
        queued, start = _temp_storage.queued(counts["pid"]), time.monotonic()
        # what the extension of the files has written is no part of the flush
        if device:
            _temp_storage.sync(self._files)
        before = _temp_storage.look(self._files, volumes)
        step, microseconds["write"] = self._flush(device, dirtied)
        after = _temp_storage.look(self._files, volumes)
        written = step.written
        step, microseconds["dry_write"] = self._flush(False, 0)
        self._evict(device)
        began = _temp_storage.read_by(counts["pid"])
        step = self._read("false", seed, dependents, there)
        fetched = _temp_storage.read_by(counts["pid"]) - began
        microseconds["read"] = step.microseconds / step.read
        step = self._read("false", seed, dependents, there, again=True)
        microseconds["dry_read"] = step.microseconds / step.hit
        self._evict(device)
        step = self._read("true", seed, dependents, there)
        microseconds["random_read"] = step.microseconds / step.read
        step = self._explain("pg_temp_buffers_dirty('pg_temp.pgfleet_cost'::regclass, %s)" % dependents)
        require(step.dirtied == there and step.read == 0, "dirtying %d blocks dirtied %d and read %d" % (there, step.dirtied, step.read))
        again = self._session.only_row("SELECT @extschema@.pg_dirtied_local_buffers() AS dirtied")["dirtied"]
        require(again == there, "of %d blocks that were dirtied, %d are dirty" % (there, again))
        step, microseconds["random_write"] = self._flush(device, again)
        waited = _temp_storage.queued(counts["pid"])
        microseconds["write"] /= written
        microseconds["dry_write"] /= allocated
        microseconds["random_write"] /= step.written
        return {
            "microseconds": microseconds, "buffers": allocated, "written": written, "read": there, "random_written": step.written,
            "written_back": None if after.unwritten is None else 1 - min(1.0, after.unwritten / (written * BLOCK_BYTES)),
            "device_written": None if before.volumes is None or after.volumes is None else (after.volumes - before.volumes) / (written * BLOCK_BYTES),
            "device_read": fetched / (there * BLOCK_BYTES),
            "queued": None if queued is None or waited is None else min(1.0, (waited - queued) / (time.monotonic() - start)),
        }

    def _create(self, blocks: int, buffers: int, tablespace: str) -> None:
        session = self._session
        for name, value in {**_SETTINGS, "temp_buffers": "%d" % buffers}.items():
            # what this version has, and this role may set
            session.only_row(
                "SELECT (SELECT set_config(name, %s, false) FROM pg_settings"
                " WHERE name = %s AND (context = 'user' OR current_setting('is_superuser') = 'on')) AS value", (value, name),
            )
        self._limit()
        self._begin(buffers - blocks - 8, tablespace)  # 8: their own map, and that of a small table
        # a tenth of a block is less than two of these rows; of a value stored apart there is one to a block of the TOAST table
        rows, more, column = (blocks // 2, ", apart text", ", repeat('x', 7900)") if self._options.dependents else (blocks, "", "")
        session.command(
            'CREATE TEMPORARY TABLE pgfleet_cost (i integer, filler character(1024)%s) USING heap WITH (fillfactor = 10) TABLESPACE "%s"'
            % (more, tablespace.replace('"', '""'))
        )
        if self._options.dependents:
            session.command("ALTER TABLE pg_temp.pgfleet_cost ALTER COLUMN apart SET STORAGE EXTERNAL")
            session.command('CREATE INDEX ON pg_temp.pgfleet_cost (i) TABLESPACE "%s"' % tablespace.replace('"', '""'))
        self._command("INSERT INTO pg_temp.pgfleet_cost SELECT i, 'x'%s FROM generate_series(1, %d) AS i" % (column, rows))
        paths = [os.path.realpath(os.path.join(self._data, relation["path"])) for relation in self._relations()]
        for path in paths:
            if not (path + "/").startswith(self._place + "/"):
                raise ResidencyError("The temporary table is in %s, and not in %s." % (path, self._place))
        self._files = _temp_storage.files_of(paths)

    def _begin(self, spare: int, tablespace: str) -> None:
        """Take from the figures what is paid once in a session.

        The first call of a function loads it and fills caches, and the first use of a buffer takes memory from the kernel. Since buffers are used in
        turn, reads after an eviction begin with those that the table has left over. Both took as long as a flush of some megabytes.
        """
        self._session.command(
            'CREATE TEMPORARY TABLE pgfleet_first (i integer, filler character(1024)) USING heap WITH (fillfactor = 10) TABLESPACE "%s"'
            % tablespace.replace('"', '""'))
        self._command("INSERT INTO pg_temp.pgfleet_first SELECT i, 'x' FROM generate_series(1, %d) AS i" % spare)
        for call in (
            "pg_temp_buffers_dirty(%s, true)", "pg_flush_local_buffers()", "pg_evict_local_buffers(%s, true)",
            "pg_read_temp_relation(%s, true, 0::bigint, true)", "pg_evict_local_buffers(%s, true)",
        ):
            self._explain(call.replace("%s", "'pg_temp.pgfleet_first'::regclass"))

    def _relations(self) -> List[Dict[str, Any]]:
        return self._session.rows(_RELATIONS, (BLOCK_BYTES, self._options.dependents))

    def _limit(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        self._session.command("SET statement_timeout = %d" % math.ceil(1000 * left))

    def _command(self, sql: str) -> None:
        self._limit()
        self._session.command(sql)

    def _explain(self, call: str) -> Step:
        self._limit()
        [row] = self._session.rows("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY ON, FORMAT JSON) SELECT * FROM @extschema@." + call)
        return step_of(next(iter(row.values())))

    def _flush(self, device: bool, expected: int) -> Tuple[Step, float]:
        step = self._explain("pg_flush_local_buffers()")
        microseconds = step.microseconds
        if device:
            begun = time.monotonic()
            _temp_storage.sync(self._files)
            microseconds += 1e6 * (time.monotonic() - begun)
        left = self._session.only_row("SELECT @extschema@.pg_dirtied_local_buffers() AS dirtied")["dirtied"]
        require(step.written == expected and left == 0, "a flush of %d dirty buffers wrote %d blocks, and left %d" % (expected, step.written, left))
        return step, microseconds

    def _evict(self, device: bool) -> None:
        self._limit()
        self._session.only_row("SELECT @extschema@.pg_evict_local_buffers('pg_temp.pgfleet_cost'::regclass, true) AS evicted")
        if device:
            _temp_storage.evict(self._files)

    def _read(self, randomize: str, seed: int, dependents: str, expected: int, again: bool = False) -> Step:
        step = self._explain("pg_read_temp_relation('pg_temp.pgfleet_cost'::regclass, %s, %d::bigint, %s)" % (randomize, seed, dependents))
        hit, read = (expected, 0) if again else (0, expected)
        require((step.hit, step.read, step.written) == (hit, read, 0), "reading %d blocks hit %d, read %d and wrote %d" % (
            expected, step.hit, step.read, step.written))
        return step


def step_of(explained: Any) -> Step:
    """The time and the counts of local blocks in EXPLAIN's JSON."""
    [explained_query] = explained
    plan = explained_query["Plan"]
    return Step(1000 * explained_query["Execution Time"], *(plan.get("Local %s Blocks" % name, 0) for name in ("Hit", "Read", "Dirtied", "Written")))


def require(right: bool, found: str) -> None:
    """Raise an error unless the server did exactly what is measured."""
    if not right:
        raise ResidencyError("This is not what was to be measured: %s." % found)


# --- what was found ---


def summary(blocks: int, iterations: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The result for one size, from all its iterations. The numbers of blocks are the same in each."""
    first = iterations[0]
    return {
        "blocks": blocks, "iterations": len(iterations), "buffers": first["buffers"], "written": first["written"], "read": first["read"],
        "random_written": first["random_written"],
        "microseconds": {phase: spread([iteration["microseconds"][phase] for iteration in iterations]) for phase in PHASES},
        "written_back_percent": _percent([iteration["written_back"] for iteration in iterations]),
        "device_write_percent": _percent([iteration["device_written"] for iteration in iterations]),
        "device_read_percent": _percent([iteration["device_read"] for iteration in iterations]),
        "processor_wait_percent": _percent([iteration["queued"] for iteration in iterations]),
        "swapped_pages": sum(iteration["swapped"] for iteration in iterations),
    }


def spread(values: List[float]) -> Dict[str, Any]:
    """Median, median absolute deviation, quartiles, and all values in the order in which they were measured."""
    middle = statistics.median(values)
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [middle] * 3
    return {
        "median": _short(middle), "mad": _short(statistics.median(abs(value - middle) for value in values)), "low": _short(quartiles[0]),
        "high": _short(quartiles[2]), "values": [_short(value) for value in values],
    }


def _short(value: float) -> float:
    return float("%.5g" % value)


def _percent(shares: List[Optional[float]]) -> Optional[float]:
    known = [share for share in shares if share is not None]
    return round(100 * statistics.median(known), 1) if known else None


def reached(measurements: List[Dict[str, Any]], kind: str) -> str:
    """The place that writes have reached when the measured time ends."""
    if kind == _temp_storage.MEMORY:
        return "memory"
    # of its own files the kernel's word, else what the devices wrote meanwhile, which can be others'
    shares = [one["written_back_percent"] if one["written_back_percent"] is not None else one["device_write_percent"] for one in measurements]
    known = [share for share in shares if share is not None]
    if not known:
        return "unknown"
    return "device" if min(known) >= 95 else "page_cache" if max(known) <= 5 else "partly_device"


def remarks(result: Dict[str, Any], options: Options) -> List[str]:
    found = []
    measured = {one["blocks"]: one for one in result["measurements"]}
    missing = [human_blocks(blocks) for blocks in sorted(options.blocks) if blocks not in measured]
    short = ["%d at %s" % (one["iterations"], human_blocks(blocks)) for blocks, one in measured.items() if one["iterations"] < options.rounds]
    limit = "the time limit of %s, with a rate of %s," % (options.time_limit, options.rate)
    if missing:
        found.append("%s left no time for %s" % (limit, ", ".join(missing)))
    if short:
        found.append("%s left time for fewer iterations: %s" % (limit, ", ".join(short)))
    swapped = [human_blocks(blocks) for blocks, one in measured.items() if one["swapped_pages"]]
    if swapped:
        found.append("the host swapped while %s were measured, so that their times are those of the swap too" % ", ".join(swapped))
    waits = [one["processor_wait_percent"] for one in result["measurements"] if one["processor_wait_percent"] is not None]
    if waits and max(waits) > BUSY:
        found.append("the host was busy: the server process waited for a processor %g to %g %% of the time, which widens the intervals" % (
            min(waits), max(waits)))
    kind = result["storage"]["kind"]
    if options.device and kind == _temp_storage.MEMORY:
        found.append("%s is in memory: there is no device to reach" % result["storage"]["mount"])
    elif options.device:
        if result["reached"] != "device":
            found.append("the kernel does not confirm that what was written reached the device")
        if min(one["device_read_percent"] for one in result["measurements"]) < 90:
            found.append("the kernel does not confirm that what was read came from the device")
    elif kind != _temp_storage.MEMORY:
        read = max(one["device_read_percent"] for one in result["measurements"])
        words = {"page_cache": "writes reached the page cache and not the device", "partly_device": "part of the writes reached the device",
                 "device": "writes reached the device", "unknown": "whether writes reached the device is unknown"}
        found.append(words[result["reached"]] + (", and up to %g %% of a sequential read came from it" % read if read >= 1 else ""))
    return found
