# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count in a window the reads of PostgreSQL and those that the devices served.

PostgreSQL's own counters arrive late: a session adds its counts to the statistics at the end of a transaction, but not more than once
a second, and what is left when it becomes idle 10 seconds later. So before the statistics are read, idle sessions get that time.
A session that works is not waited for, because it would go on counting what is after the window.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Collection, Dict, List, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _capabilities,
    _data_directory,
    _devices,
    _io_reading,
    _io_report,
    _io_window,
    _proc,
    _processes,
    _server_io,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import LogIn, Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._io_report import Location
from ansible_collections.pgfleet.cache.plugins.module_utils._io_window import Database, Object, Reading, Sessions, Statistics
from ansible_collections.pgfleet.cache.plugins.module_utils._server_io import Server
from ansible_collections.pgfleet.cache.plugins.module_utils._units import parse_seconds

LONGEST = 1800  # seconds: less than root waits for a process that works for it (_privileges.LONGEST_SILENCE)
LARGEST_SETTLE = 60
_PAUSE = 0.2  # seconds between two looks at the sessions

_FACTS = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
       current_setting('io_method', true) AS io_method, current_setting('block_size')::int AS block_size, session_user::text AS who,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all
"""
# The checkpointer begins again only with the server or after a crash of one of its processes.
_RECOVERED = "SELECT min(backend_start)::text AS recovered FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
_DATABASES = """
SELECT datid::bigint AS oid, coalesce(datname, '') AS name, blks_read, blks_hit, temp_bytes, stats_reset::text AS reset FROM pg_stat_database
"""
# A call of the kernel may read many blocks from 18 on, and has bytes of its own.
_OBJECTS_16 = """
SELECT object, coalesce(sum(reads), 0)::bigint AS reads, coalesce(sum(reads * op_bytes), 0)::bigint AS read_bytes,
       (coalesce(sum(writes), 0) + coalesce(sum(extends), 0))::bigint AS writes,
       (coalesce(sum(writes * op_bytes), 0) + coalesce(sum(extends * op_bytes), 0))::bigint AS write_bytes,
       max(stats_reset)::text AS reset
FROM pg_stat_io GROUP BY object
"""
_OBJECTS_18 = """
SELECT object, coalesce(sum(reads), 0)::bigint AS reads, coalesce(sum(read_bytes), 0)::bigint AS read_bytes,
       (coalesce(sum(writes), 0) + coalesce(sum(extends), 0))::bigint AS writes,
       (coalesce(sum(write_bytes), 0) + coalesce(sum(extend_bytes), 0))::bigint AS write_bytes,
       max(stats_reset)::text AS reset
FROM pg_stat_io GROUP BY object
"""
_WRITTEN_15 = "SELECT buffers_checkpoint + buffers_clean + buffers_backend AS written, stats_reset::text AS reset FROM pg_stat_bgwriter"
_WAL = "SELECT wal_bytes::bigint AS bytes, stats_reset::text AS reset FROM pg_stat_wal"
# idle_stats of 10 seconds, and some time to write them
_SESSIONS = """
SELECT count(*) FILTER (WHERE state NOT IN ('idle', 'idle in transaction', 'idle in transaction (aborted)', 'disabled')) AS working,
       count(*) FILTER (WHERE state = 'idle' AND state_change > clock_timestamp() - interval '10.5 s') AS pending,
       count(*) FILTER (WHERE state <> 'idle' AND xact_start IS NOT NULL) AS open,
       max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (WHERE state <> 'idle')::float8 AS oldest,
       count(*) FILTER (WHERE state = 'disabled') AS unknown,
       count(*) FILTER (WHERE greatest(backend_start, query_start, state_change) > %s::timestamptz) AS worked,
       (SELECT sum(sessions)::bigint FROM pg_stat_database) AS sessions
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'autovacuum worker', 'parallel worker')
"""
_EDGE = "SELECT clock_timestamp()::text AS clock, (SELECT sum(sessions)::bigint FROM pg_stat_database) AS sessions"


@dataclass(frozen=True)
class Options:
    duration: Optional[str]
    state: Optional[str]
    reading: Optional[Dict[str, Any]]
    settle: int

    @property
    def seconds(self) -> float:
        return 0.0 if self.duration is None else parse_seconds("duration", self.duration)


def check_options(options: Options) -> None:
    if options.duration is not None and not 1 <= options.seconds <= LONGEST:
        raise ResidencyError("duration is %s: it must be from 1 s to 30 min. For a longer window, use state begin and end." % options.duration.strip())
    if not 0 <= options.settle <= LARGEST_SETTLE:
        raise ResidencyError("settle is %d: it must be from 0 to %d." % (options.settle, LARGEST_SETTLE))
    if options.reading is not None and options.state != "end":
        raise ResidencyError("reading requires state end.")
    if options.reading is not None:
        _io_window.parsed(options.reading)


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "data_directory": None, "server_version": None, "io_method": None, "reading": None, "locations": [], **_io_report.nothing(),
        "warnings": [],
    }


def look_as_owner(log_in: LogIn, options: Options) -> Dict[str, Any]:
    """The result of look(), which root gets as the server's user."""
    with closing(log_in(None)) as session:
        return _server_io.run_as_server_user(session, lambda: look(session, log_in, options))


def look(session: Session, log_in: LogIn, options: Options) -> Dict[str, Any]:
    begun = None if options.reading is None else _io_window.parsed(options.reading)
    facts = _facts(session)
    result = empty_result()
    result.update(server_version=facts["version"].split()[0], io_method=facts["io_method"] or "sync")
    if begun is None:
        begun, places = _read(session, facts, options.settle)
        result.update(data_directory=begun.data_directory, locations=[_io_report.location(place) for place in places])
        if options.state == "begin":
            result.update(reading=_io_window.plain(begun), msg=_io_report.BEGUN)
            return result
        time.sleep(options.seconds)
        try:
            session.only_row("SELECT 1 AS one")
        except ResidencyError:  # the server was restarted meanwhile
            session = log_in(None)
            facts = _facts(session)
    ended, places = _read(session, facts, options.settle, begun)
    if (begun.host, begun.data_directory) != (ended.host, ended.data_directory):
        raise ResidencyError(
            "reading is of %s on host %s, but this is %s on host %s: give the one that was registered on this host."
            % (begun.data_directory, begun.host, ended.data_directory, ended.host)
        )
    result.update(data_directory=ended.data_directory, locations=[_io_report.location(place) for place in places])
    result.update(_io_report.report(begun, ended, places, _foreign(ended)))
    result["warnings"] += _data_directory.opened(ended.data_directory).warnings()
    return result


def _facts(session: Session) -> Row:
    facts = session.only_row(_FACTS)
    if not facts["sees_all"]:
        raise ResidencyError(
            "Login role %s lacks pg_monitor, to learn whether the statistics of other sessions are complete: grant it, or log in as a superuser."
            % facts["who"]
        )
    return facts


def _read(session: Session, facts: Row, settle: int, begun: Optional[Reading] = None) -> Tuple[Reading, List[Location]]:
    """The kernel's counters at the edge of the window, PostgreSQL's when they are complete.

    At the beginning what sessions counted before has to arrive first, at the end it is what they counted until then. If sessions go on meanwhile,
    what they count then arrives too, and the window ends with the wait.
    """
    dummy, server = _server_io.processes_of(session)
    edge = session.only_row(_EDGE)
    kernel, places = ({}, []) if begun is None else _kernel(server, {*begun.disks, *begun.volumes})
    sessions, worked = _settled(session, settle, edge)
    statistics = _statistics(session, facts["major"])
    if begun is None or worked:
        kernel, places = _kernel(server, () if begun is None else {*begun.disks, *begun.volumes})
    recovered = session.only_row(_RECOVERED)["recovered"]
    return Reading(statistics=statistics, sessions=sessions, recovered=recovered, block_size=facts["block_size"], **kernel), places


def _settled(session: Session, settle: int, edge: Row) -> Tuple[Sessions, bool]:
    """The other sessions, and True if one has worked since the edge, also one that came and went."""
    end = time.monotonic() + settle
    while True:
        row = session.only_row(_SESSIONS, (edge["clock"],))
        left = end - time.monotonic()
        if row["working"] or not row["pending"] or left <= 0:
            worked = row["worked"] > 0 or row["sessions"] != edge["sessions"]
            return Sessions(row["working"], row["pending"], row["open"], row["oldest"], row["unknown"]), worked
        time.sleep(min(_PAUSE, left))


def _statistics(session: Session, major: int) -> Statistics:
    databases = {
        str(row["oid"]): Database(row["name"], row["blks_read"], row["blks_hit"], row["temp_bytes"], row["reset"]) for row in session.rows(_DATABASES)
    }
    objects = written = None
    if major >= 16:
        objects = session.rows(_OBJECTS_18 if major >= 18 else _OBJECTS_16)
    else:
        written = session.only_row(_WRITTEN_15)
    wal = session.only_row(_WAL)
    return Statistics(
        databases,
        None if objects is None else {row["object"]: Object(row["reads"], row["read_bytes"], row["writes"], row["write_bytes"]) for row in objects},
        None if not objects else max((row["reset"] or "" for row in objects), default=None),
        None if written is None else written["written"],
        None if written is None else written["reset"],
        wal["bytes"],
        wal["reset"],
    )


def _kernel(server: Server, also: Collection[str]) -> Tuple[Dict[str, Any], List[Location]]:
    """``also`` are devices that held data at the beginning of the window."""
    places = _places(server.data_directory)
    volumes = _together(place.beneath.volumes for place in places)
    disks = _together(place.beneath.disks for place in places)
    process = _processes.look(server.postmaster)
    if process is None:
        raise ResidencyError("PostgreSQL in %s has ended meanwhile." % server.data_directory)
    kernel = {
        "host": os.uname().nodename,
        "boot": _io_reading.boot(),
        "data_directory": server.data_directory,
        "postmaster": (process.pid, process.started),
        "volumes": volumes,
        "disks": disks,
        # at the same moment, as far as possible
        "clock": time.time(),
        "seconds": time.monotonic(),
        "counters": _io_reading.disks({*volumes, *disks, *also}),
        "charged": _io_reading.charged(server.postmaster),
        "cgroup": _io_reading.cgroup(server.postmaster, volumes),
        "memory": _io_reading.refaults(),
        "pressure": _io_reading.pressure(),
    }
    return kernel, places


def _together(names: Any) -> Tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))


def _places(data_directory: str) -> List[Location]:
    """The locations of the cluster's files. This user owns them, so that links below them are its own."""
    mounts = _proc.mounts()
    found = [(place.path, place.tablespace, "data" if place.tablespace is None else "tablespace", place.device)
             for place in _capabilities.places(data_directory)]
    wal = os.path.realpath(os.path.join(data_directory, "pg_wal"))
    found.insert(1, (wal, None, "wal", _devices.number_of(wal)))
    return [Location(kind, path, tablespace, _devices.beneath(path, device, mounts)) for path, tablespace, kind, device in found]


def _foreign(reading: Reading) -> Optional[int]:
    """Processes of others in the server's cgroup; None where there is no cgroup that counts."""
    place = _io_reading.cgroup_folder(reading.postmaster[0]) if reading.cgroup is not None else None
    return None if place is None else _io_reading.foreign(reading.postmaster[0], place)
