# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A job that holds what it has restored, and its end."""

from __future__ import annotations

import time

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, attach_extension
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

HOLDING = "holding"  # its state
LONGEST = 7 * 86400  # seconds
INTERVAL = (1, 3600)  # seconds
PATIENCE = 10  # seconds that its worker may take to end
PAUSE = 0.05

CANCEL = "SELECT @extschema@.residency_cancel(%s) AS canceled"
_STATE = "SELECT state FROM @extschema@.residency_jobs WHERE job = %s"


def end(session: Session, job: int) -> None:
    session.change(CANCEL, (job,))
    until = time.monotonic() + PATIENCE
    while session.only_row(_STATE, (job,))["state"] == HOLDING:
        if time.monotonic() > until:
            raise ResidencyError("Job %d, which holds what it has restored, does not end: see the server's log." % job)
        time.sleep(PAUSE)


def end_any(session: Session, check_mode: bool) -> None:
    """Before an eviction: the kernel does not evict what a job has mapped. Without the extension in this database no job is known."""
    try:
        attach_extension(session)
        found = session.row("SELECT job FROM @extschema@.residency_jobs WHERE state = %s", (HOLDING,))
    except ResidencyError:
        return  # what stays is reported as in use
    if found is not None and check_mode:
        session.record(CANCEL, (found["job"],))
    elif found is not None:
        end(session, found["job"])
