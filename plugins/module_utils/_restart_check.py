# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a host cannot be restarted, and what a snapshot of it would hold. Nothing is changed."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, Callable, Dict, Mapping

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

_SERVER = """
SELECT greatest(0, least(memory_available_bytes, cgroup_headroom_bytes) - reserve_bytes) AS bytes,
       j.job, j.snapshot || '@' || j.generation AS restores
FROM @extschema@.residency_budget()
LEFT JOIN @extschema@.residency_jobs AS j ON j.state IN ('starting', 'running', 'waiting')
ORDER BY j.job DESC LIMIT 1"""


def check(connect: Callable[[], Session], host: str, database: str, answer: Mapping[str, Any], wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """The result of residency_snapshot in check mode. Raise ResidencyError if the host cannot be restarted.

    ``answer`` is _restart_info's; ``wanted`` has snapshot, min_residency (percent), min_free (a size) and replaced: the values of REPLACED, "" if the
    role's own are in effect. ``database`` is the one that has been logged in to.
    """
    for name, other in REPLACED.items():
        if wanted["replaced"].get(name, "") != "":
            raise ResidencyError("%s is given with -e and would override what the rolling restart sets. Remove it: %s" % (name, other))
    _residency_snapshot.check_name(wanted["snapshot"], generation_allowed=False)
    if answer["extension"] is None:
        raise ResidencyError(
            "Extension pg_residency is not installed in database %s. Run the playbook pgfleet.cache.install, or set pgfleet_login_db to the database"
            " that has it." % database)
    debt = answer["kept"]["debt"] if _states.owes(answer["kept"], answer["started"]) else {}
    with closing(connect()) as session:
        attach_extension(session)
        if answer["steps"]["restart"]:
            _next_start.check(session, host, answer)
        if debt:
            _check_debt(session, host, debt)
        snapshot = _residency_snapshot.take(session, wanted["snapshot"], _residency_snapshot.KEEP, False, check_mode=True)
        total = _caches.total(_caches.by_relation(session)[0])
        server = session.only_row(_SERVER)
    if server["job"] is not None and server["restores"] != debt.get("snapshot"):
        raise ResidencyError("Restore job %d is running on %s: wait until it ends, or stop it with SELECT residency_cancel(%d)." % (
            server["job"], host, server["job"]))
    _check_memory(host, total, server["bytes"], float(wanted["min_residency"]))
    _check_room(answer["data_directory"], wanted["min_free"])
    return snapshot


def _check_debt(session: Session, host: str, debt: Mapping[str, Any]) -> None:
    """Without its snapshot, the host would be restarted and could never pass its gate."""
    try:
        snapshot = _residency_snapshot.find(session, debt["snapshot"])
        if debt["digest"] and debt["digest"] != snapshot["digest"]:
            raise ResidencyError("Snapshot %s is not the one that was saved on this host: its digest differs." % debt["snapshot"])
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
    file_systems = [os.statvfs(path) for path in (data_directory, os.path.join(data_directory, "pg_wal"))]
    free = min(one.f_bavail * one.f_frsize for one in file_systems)
    if free < human_to_bytes(min_free):
        raise ResidencyError(
            "The file system of %s or its pg_wal has %s free, less than cache_restart_min_free (%s). Free some space for the snapshot and for the WAL"
            " that is kept while a standby restarts." % (printable(data_directory, 300), bytes_to_human(free), min_free))
