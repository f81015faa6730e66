# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of one host of a rolling restart: its server, its record and its lease, read at once.

A server that does not answer and a record that cannot be read are answers: ``problem`` says so, beside what is known.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import closing, suppress
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

Answer = Dict[str, Any]

# started in microseconds since 1970, lsn in bytes
_SERVER = """
SELECT r.in_recovery, s.system_identifier::text AS system_identifier,
       current_setting('server_version_num')::int AS version_num, current_setting('cluster_name') AS cluster_name,
       current_setting('data_directory') AS data_directory, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started,
       split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid,
       (SELECT extversion FROM pg_extension WHERE extname = 'pg_residency') AS extension,
       (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_residency') AS schema,
       CASE WHEN r.in_recovery THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')
            ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') END::bigint AS lsn,
       CASE WHEN r.in_recovery THEN pg_is_wal_replay_paused() ELSE false END AS paused,
       CASE WHEN r.in_recovery THEN nullif(current_setting('recovery_min_apply_delay'), '0') END AS delay,
       coalesce((SELECT max(status) FROM pg_stat_wal_receiver WHERE status = 'streaming'),
                CASE WHEN current_setting('restore_command') <> '' THEN 'archive' ELSE 'none' END) AS receiver,
       pg_current_logfile() AS log, (SELECT max(conninfo) FROM pg_stat_wal_receiver) AS conninfo,
       CASE WHEN current_setting('synchronous_commit') NOT IN ('off', 'local') AND NOT r.in_recovery THEN current_setting('synchronous_standby_names') END
       AS names, t.standbys, t.others
FROM pg_control_system() AS s, (SELECT pg_is_in_recovery()) AS r(in_recovery),
     (SELECT array_agg(application_name::text) FILTER (WHERE sync_priority > 0) AS standbys,
             array_agg(application_name::text) FILTER (WHERE sync_priority = 0) AS others FROM pg_stat_replication WHERE state = 'streaming') AS t"""
_NUMBERS = ("version_num", "started", "pid", "lsn")

_LOG = 1 << 14  # bytes of the end of a log that are read
EVERY = 1  # seconds between two looks at a server that is waited for


def read(connect: Callable[[], Any], directory: str, name: str, waived: bool, rolling_restart: str = "", abort: bool = False) -> Answer:
    return answer(Records(directory).read(name), lambda: server(connect), name, waived, rolling_restart, abort)


def answer(found: Mapping[str, Any], look: Callable[[], Answer], name: str, waived: bool, rolling_restart: str = "", abort: bool = False) -> Answer:
    """The server's row or a ``problem``; the record (``kept``) and the ``lease``; and with ``started`` the ``steps`` that are left.

    ``found`` are the files of the host as Records.read() returns them. ``look`` returns the server's row, or raises ResidencyError.
    """
    said, kept = _record(found)
    pending = kept.get("pending") or {}
    if waived and pending:
        kept = dict(_states.note(kept, "waived", {"by": "This run"}), at=kept.get("at", 0))  # nothing was written yet
    known: Answer = {"kept": kept, "lease": found["lease"]}
    try:
        row = look()
    except ResidencyError as error:
        return dict(known, problem=said or str(error), unread=bool(said))
    if said:  # a primary whose record is damaged is a primary all the same, of the same cluster
        return dict(known, problem=said, unread=True, in_recovery=row["in_recovery"], system_identifier=row["system_identifier"])
    if kept.get("pending") and pending["system_identifier"] != row["system_identifier"]:
        return dict(known, in_recovery=row["in_recovery"], system_identifier=row["system_identifier"], unread=False, problem=(
            "The pending restore belongs to another cluster (system identifier %s; this one is %s). If that cluster is gone, waive it with"
            " -e pgfleet_waive=%s." % (printable(pending["system_identifier"], 30), row["system_identifier"], name)))
    return dict(known, steps=_states.way(kept, row["started"], rolling_restart, abort), **row)


def server(connect: Callable[[], Any]) -> Answer:
    with closing(connect()) as session:
        session.command("SET statement_timeout = '30s'")
        row = session.rows(_SERVER, None)[0]
    found = dict(row, **{name: int(row[name]) for name in _NUMBERS})
    names, standbys, others, conninfo = (found.pop(name) for name in ("names", "standbys", "others", "conninfo"))
    return dict(
        found, log=_logs(found["pid"], row["data_directory"], row["log"]), application_name=_application_name(conninfo or ""),
        synchronous={"needed": _needed(names), "standbys": standbys or [], "others": others or []} if (names or "").strip() else None)


def _application_name(conninfo: str) -> str:
    """By which the primary knows a standby. The server lists keywords and values, unquoted (libpqrcv_get_conninfo())."""
    for keyword in ("application_name", "fallback_application_name"):
        named = re.search(r"(?:^| )%s=(.*?)(?= \w+=|$)" % keyword, conninfo)
        if named:
            return named.group(1)
    return ""


def _needed(names: str) -> int:
    """How many standbys a commit waits for, of synchronous_standby_names (syncrep_gram.y)."""
    number = re.match(r"(?i)\s*(?:(?:first|any)\s+)?'?(\d+)'?\s*\(", names)
    return int(number.group(1)) if number else 1


def _logs(pid: int, data_directory: str, collected: Optional[str]) -> List[str]:
    """The file of the server's standard error, where a start begins, and the directory of the logging collector, which may begin a file then."""
    paths = [os.path.dirname(os.path.join(data_directory, collected))] if collected else []
    with suppress(OSError):
        paths.append(os.readlink("/proc/%d/fd/2" % pid))
    return [path for path in paths if os.path.isfile(path) or os.path.isdir(path)]


def last_words(logs: Sequence[str]) -> str:
    """A sentence with the last lines of the newest log: those that tell of a failure, if there are any. Empty without a log."""
    newest = []
    for path in logs:
        with suppress(OSError):
            files = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else [path]
            newest += [(os.stat(file).st_mtime, file) for file in files if os.path.isfile(file)]
    if not newest:
        return ""
    path = max(newest)[1]
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return "Its log %s cannot be read: %s." % (printable(path, 300), error.strerror)
    stops = [number for number, line in enumerate(lines) if line.endswith("database system is shut down")]
    if stops and stops[-1] + 1 < len(lines):
        lines = lines[stops[-1] + 1 :]  # of the start, and not of the stop before it
    failures = [line for line in lines if re.search(r"\b(FATAL|PANIC|could not)\b", line)]
    return "Its log %s ends with: %s" % (printable(path, 300), " / ".join(printable(line.strip(), 300) for line in (failures or lines)[-3:]))


def elsewhere(found: Mapping[str, Any]) -> str:
    """Why the server that has answered is not this host's; empty if it is. A login by TCP, or what the host's resolver says, may lead to another one."""
    with suppress(PermissionError):  # of a server with more capabilities than this process
        try:
            if os.path.samestat(os.stat("/proc/%d/cwd" % found["pid"]), os.stat(found["data_directory"])):
                return ""
        except (FileNotFoundError, NotADirectoryError):
            pass
        return "The server that answers (process %d in %s) does not run on this host: correct pgfleet_login_host, pgfleet_login_port or" \
            " pgfleet_login_unix_socket." % (found["pid"], printable(found["data_directory"], 300))
    return ""


def still_runs(data_directory: str) -> str:
    """A sentence on a server that neither answers nor has ended: the processes that a stop waits for. Empty if it has ended.

    A fast shutdown ends the sessions, and then waits until each walsender has sent all WAL and its receiver has confirmed it, and until the archiver
    has archived what there is (postmaster.c, PM_SHUTDOWN_2; WalSndDone()).
    """
    try:
        with open(os.path.join(data_directory, "postmaster.pid"), encoding="ascii", errors="replace") as file:
            postmaster = int(file.readline())
    except (OSError, ValueError):
        return ""
    left = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError), open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == postmaster:
                with open("/proc/%s/cmdline" % name, encoding="utf-8", errors="replace") as file:
                    title = re.sub(r"^postgres: ", "", file.read().replace("\0", " ").strip())
                if re.search(r"\b(walsender|archiver|startup)\b", title):
                    left.append("%s (process %s)" % (printable(title, 120), name))
    if not left:
        return ""
    remedy = " End the receiver of each walsender, or run kill on the process: then the server stops." if any("walsender" in one for one in left) else ""
    return "It has not ended yet, and waits for: %s.%s" % ("; ".join(left[:5]), remedy)


def _record(found: Mapping[str, Any]) -> Any:
    """Why the record cannot be used, and the record."""
    if found["fault"]:
        if "directory" in found["fault"].rpartition(": ")[2]:
            return "%s: check that pgfleet_state_directory is a directory." % found["fault"], {}
        if os.strerror(errno.EACCES) in found["fault"]:
            return "%s. Make pgfleet_state_directory readable for pgfleet_become_user (0755), or correct it." % found["fault"], {}
        return "%s: check when the host was restarted and what is in traffic, then remove the file." % found["fault"], {}
    record = found["record"] or {}
    wrong = _states.fault(record)
    if wrong:
        return "The record of the host in pgfleet_state_directory is damaged (%s): check when the host was restarted, then remove the file." % wrong, {}
    return "", _states.known(record)


def wait_restarted(connect: Callable[[], Any], host: str, before: int, seconds: int) -> str:
    """Wait until a process answers that was not started at ``before``. Return why there is none; empty if there is."""
    def look() -> Optional[str]:
        try:
            started = server(connect)["started"]
        except ResidencyError as error:
            return "PostgreSQL on %s does not accept connections %d s after its restart: %s. Check its log." % (host, seconds, str(error).rstrip("."))
        return "" if started != before else "PostgreSQL on %s was not restarted: the same process still runs. Check its log." % host

    return _waited(look, seconds)


def wait_replayed(connect: Callable[[], Any], host: str, target: int, primary: str, seconds: int) -> str:
    """Wait until a standby has replayed ``target``, in bytes, of its ``primary``. Return why it has not. Paused and delayed replay end the wait at once."""
    def look() -> Optional[str]:
        try:
            row = server(connect)
        except ResidencyError as error:
            return str(error)
        if not row["in_recovery"] or (row["lsn"] >= target and row["receiver"] != "none"):
            return ""
        says = "%s has not caught up with %s: " % (host, primary)
        behind = "it is %s behind. " % bytes_to_human(max(0, target - row["lsn"]))
        if row["paused"]:
            raise ResidencyError(says + behind + "Replay is paused: run SELECT pg_wal_replay_resume().")
        if row["delay"]:
            raise ResidencyError(says + behind + "It replays WAL %s late by design (recovery_min_apply_delay): leave it out of target, or set that to 0."
                                 % printable(row["delay"], 30))
        if row["receiver"] != "streaming":
            return "%safter %d s %sIt receives no WAL: check its primary_conninfo and its log." % (says, seconds, behind)
        return "%safter %d s %sIt receives WAL but replays it slowly: wait, or raise cache_restart_replay_timeout." % (says, seconds, behind)

    try:
        return _waited(look, seconds)
    except ResidencyError as error:
        return str(error)


def _waited(look: Callable[[], Optional[str]], seconds: int) -> str:
    until = time.monotonic() + seconds
    while True:
        why = look()
        if not why or time.monotonic() > until:
            return why or ""
        time.sleep(EVERY)
