# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a host cannot be restarted, and what a snapshot of it would hold. Nothing is changed."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human, human_to_bytes
from ansible_collections.pgfleet.cache.plugins.module_utils import _caches, _next_start, _residency_snapshot, _states
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session, attach_extension
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES

# Options of the restore that the role sets itself; extra variables would override them
REPLACED = {
    "cache_warmup_snapshot": "the snapshot to restore is the one taken before the restart (cache_restart_snapshot).",
    "cache_warmup_min_residency": "the gate is cache_restart_min_residency.",
    "cache_warmup_max_age": "the snapshot is new.",
}

# Work that takes hours and begins anew. A session that has begun a backup by hand is idle until it ends it.
_ENDS = """
SELECT (SELECT string_agg(DISTINCT application_name, ', ') FROM pg_stat_activity WHERE application_name ~ '^(pg_dump|pg_dumpall|pg_restore|pg_repack)$'
        ) AS tools,
       (SELECT count(*) FROM pg_stat_progress_basebackup) AS base_backups,
       (SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state ~ '^idle' AND query ~* '\\mpg_(backup_start|start_backup)\\M'
        ) AS backups,
       (SELECT count(*) FROM pg_replication_slots WHERE temporary) AS slots,
       (SELECT count(*) FROM pg_stat_progress_vacuum) + (SELECT count(*) FROM pg_stat_progress_create_index) AS maintenance,
       (SELECT count(*) FROM pg_prepared_xacts) AS prepared, (SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL) AS subscriptions"""

_SERVER = """
SELECT greatest(0, least(memory_available_bytes, cgroup_headroom_bytes) - reserve_bytes) AS bytes,
       j.job, j.snapshot || '@' || j.generation AS restores, j.unattended
FROM @extschema@.residency_budget()
LEFT JOIN @extschema@.residency_jobs AS j ON j.state IN ('starting', 'running', 'waiting')
ORDER BY j.job DESC LIMIT 1"""


# A walsender's receiver confirms at least every 10 s (wal_receiver_status_interval, pg_recvlogical --status-interval). Of a base backup none is waited for.
# reply_time is of the receiver's clock, and of no clock at all with pgjdbc before 42.7.9 (System.nanoTime()).
_WAITS = """
SELECT pid, application_name AS name, coalesce(host(client_addr), 'local') AS client, state,
       pg_wal_lsn_diff(here.lsn, coalesce(flush_lsn, write_lsn, sent_lsn))::bigint AS behind,
       coalesce(reply_time::text, '') || ' ' || coalesce(flush_lsn::text, '') AS reply,
       extract(epoch FROM clock_timestamp() - coalesce(reply_time, backend_start))::bigint AS silent,
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout') AS timeout
FROM pg_stat_replication, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) AS here (lsn)
WHERE state IN ('catchup', 'streaming')"""
SILENT = 20  # seconds
_ARCHIVING = """
SELECT (SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name ~ '[.]ready$') AS ready,
       (SELECT coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) FROM pg_stat_archiver) AS fails
WHERE current_setting('archive_mode') = 'always' OR (current_setting('archive_mode') = 'on' AND NOT pg_is_in_recovery())"""
READY = 3  # segments that are archived while a server stops


def check(
    connect: Callable[[], Session], host: str, database: str, answer: Mapping[str, Any], wanted: Mapping[str, Any], reboots: bool
) -> Dict[str, Any]:
    """The result of residency_snapshot in check mode. Raise ResidencyError if the host cannot be restarted.

    ``answer`` is _restart_info's; ``wanted`` has snapshot, min_residency (percent), min_free and max_lag (sizes) and replaced: the values of REPLACED,
    "" if the role's own are in effect. ``database`` is the one that has been logged in to.
    """
    for name, other in REPLACED.items():
        if wanted["replaced"].get(name, "") != "":
            raise ResidencyError("%s is given with -e and would override what the rolling restart sets. Remove it: %s" % (name, other))
    _residency_snapshot.check_name(wanted["snapshot"], generation_allowed=False)
    if answer["extension"] is None:
        raise ResidencyError(
            "Extension pg_residency is not installed in database %s. Run the playbook pgfleet.cache.install, or set pgfleet_login_db to the database"
            " that has it." % database)
    pending = answer["kept"]["pending"] if _states.is_pending(answer["kept"], answer["started"]) else {}
    with closing(connect()) as session:
        attach_extension(session)
        if answer["steps"]["restart"]:
            _next_start.check(session, host, answer, reboots)
        if pending:
            _check_pending(session, host, pending)
        snapshot = _residency_snapshot.take(session, wanted["snapshot"], _residency_snapshot.KEEP, False, check_mode=True)
        ends = _ends(session, host) + _stop_waits(session, host, int(human_to_bytes(wanted["max_lag"]))) if answer["steps"]["restart"] else []
        total = _caches.total(_caches.by_relation(session)[0])
        server = session.only_row(_SERVER)
    # one that nobody asked for ends for the restore that is pending
    gives_way = server["unattended"] and "snapshot" in pending
    if server["job"] is not None and server["restores"] != pending.get("snapshot") and not gives_way:
        raise ResidencyError("Restore job %d is running on %s: wait until it ends, or stop it with SELECT residency_cancel(%d)." % (
            server["job"], host, server["job"]))
    _check_memory(host, total, server["bytes"], float(wanted["min_residency"]))
    _check_room(answer["data_directory"], wanted["min_free"])
    return dict(snapshot, warnings=snapshot["warnings"] + ends)


def would_not_start(connect: Callable[[], Session], host: str, answer: Mapping[str, Any], reboots: bool) -> str:
    """Why PostgreSQL would not start again, or not stop; empty if it would."""
    try:
        with closing(connect()) as session:
            _next_start.check(session, host, answer, reboots)
            _stop_waits(session, host, 1 << 62)  # how much there is to send was checked before it left traffic
    except ResidencyError as error:
        return str(error)
    return ""


def _stop_waits(session: Session, host: str, most: int) -> List[str]:
    """What a fast shutdown waits for. Raise ResidencyError if that has no end, or more than ``most`` bytes to send."""
    found = []
    rows = session.rows(_WAITS)
    silent = _silent(session, rows)
    for row in rows:
        who = "walsender %s of %s (process %d, %s)" % (
            printable(row["name"] or "without a name", 80), printable(row["client"], 60), row["pid"], row["state"])
        behind = bytes_to_human(max(0, row["behind"]))
        if row["pid"] in silent and not row["timeout"]:
            raise ResidencyError(
                "PostgreSQL on %s would not stop: its %s has been silent for %d s, with %s to confirm, and wal_sender_timeout is 0. End its receiver, or set"
                " wal_sender_timeout and reload." % (host, who, silent[row["pid"]], behind))
        if row["behind"] > most:
            raise ResidencyError(
                "PostgreSQL on %s would stop only when its %s has confirmed %s, more than cache_restart_max_lag (%s). Wait, end its receiver, or raise that."
                % (host, who, behind, bytes_to_human(most)))
        if row["pid"] in silent:
            found.append("The stop of %s waits up to %d s (wal_sender_timeout) for its %s, which has been silent for %d s." % (
                host, row["timeout"] // 1000, who, silent[row["pid"]]))
    again = session.only_row(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), redo_lsn)::bigint END AS bytes FROM pg_control_checkpoint()")
    if (again["bytes"] or 0) > most:
        found.append("%s would replay %s again after a restart: before that, a checkpoint is run on the primary." % (host, bytes_to_human(again["bytes"])))
    archive = session.row(_ARCHIVING)
    if archive and (archive["ready"] > READY or archive["fails"]):
        found.append("The stop of %s waits for its archiver, which has %d segments to archive%s." % (
            host, archive["ready"], " and has failed last time" if archive["fails"] else ""))
    return found


def _silent(session: Session, rows: Sequence[Mapping[str, Any]]) -> Dict[int, int]:
    """Seconds for which walsenders have heard nothing, by process. One that seems silent by its receiver's clock, or confirms in the future, is watched."""
    odd = {row["pid"]: row for row in rows if not 0 <= row["silent"] + 1 <= SILENT + 1}
    until = time.monotonic() + SILENT
    while odd and time.monotonic() < until:
        time.sleep(1)
        now = {row["pid"]: row["reply"] for row in session.rows(_WAITS)}
        odd = {pid: row for pid, row in odd.items() if now.get(pid) == row["reply"]}
    return {pid: max(SILENT, row["silent"]) for pid, row in odd.items()}


def _check_pending(session: Session, host: str, pending: Mapping[str, Any]) -> None:
    """Without its snapshot, the host would be restarted and could never pass its gate."""
    try:
        snapshot = _residency_snapshot.find(session, pending["snapshot"])
        if pending["digest"] and pending["digest"] != snapshot["digest"]:
            raise ResidencyError("Snapshot %s is not the one that was saved on this host: its digest differs." % pending["snapshot"])
    except ResidencyError as error:
        raise ResidencyError(
            "The restore that %s still needs after an earlier restart is not possible: %s Give it up with -e pgfleet_waive=%s."
            % (host, error, host)) from error


def _check_memory(host: str, total: Row, memory: int, min_residency: float) -> None:
    resident = (total["in_page_cache"] + total["in_shared_buffers"] - total["in_both"]) * BLOCK_BYTES
    if resident * min_residency / 100 > memory:
        raise ResidencyError(
            "%s are resident, but there is memory for only %s of page cache: cache_restart_min_residency (%g %%) cannot be reached after a restart."
            " Give %s more memory, or lower it." % (bytes_to_human(resident), bytes_to_human(memory), min_residency, host))


def _check_room(data_directory: str, min_free: str) -> None:
    try:
        file_systems = [os.statvfs(path) for path in (data_directory, os.path.join(data_directory, "pg_wal"))]
    except OSError as error:
        raise ResidencyError("The free space of %s or its pg_wal is unknown: %s." % (printable(data_directory, 300), error.strerror)) from error
    free = min(one.f_bavail * one.f_frsize for one in file_systems)
    if free < human_to_bytes(min_free):
        raise ResidencyError(
            "The file system of %s or its pg_wal has %s free, less than cache_restart_min_free (%s). Free some space for the snapshot and for the WAL"
            " that is kept while a standby restarts." % (printable(data_directory, 300), bytes_to_human(free), min_free))


_ENDED = {
    "base_backups": "base backups", "backups": "idle sessions that have begun a backup", "slots": "temporary replication slots",
    "maintenance": "VACUUM and CREATE INDEX",
}
_KEPT = {"prepared": "prepared transactions stay open, with their locks", "subscriptions": "subscriptions connect again"}


def _ends(session: Session, host: str) -> List[str]:
    """What long work a restart ends, and what goes on after it: a sentence for each."""
    found = session.only_row(_ENDS)
    ends = [printable(found["tools"], 200)] if found["tools"] else []
    ends += ["%s (%s)" % (what, found[name]) for name, what in _ENDED.items() if int(found[name])]
    kept = ["%s %s" % (found[name], what) for name, what in _KEPT.items() if int(found[name])]
    return [
        *(["The restart of %s ends: %s." % (host, ", ".join(ends))] if ends else []),
        *(["After the restart of %s, %s." % (host, " and ".join(kept))] if kept else []),
    ]
