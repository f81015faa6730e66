# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment variables by which libpq chooses another server or another kind of session.

A host's /etc/environment, or what becoming a user sets, is for the people who work there: PGSERVICE or PGHOSTADDR would lead a session of ours to
another server, PGTARGETSESSIONATTRS=read-write would refuse a standby, and PGOPTIONS would be refused by pgbouncer. So an option that is empty means
libpq's compiled default. What identifies a user (PGPASSWORD, PGPASSFILE) and what secures a connection (PGSSL..., PGGSS..., PGREQUIRE...) stays.
"""

from __future__ import annotations

import os
from typing import List

# PQconninfoOptions and EnvironmentOptions in fe-connect.c, 13 to 18; PGSYSCONFDIR has pg_service.conf
CHOICES = (
    "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGTARGETSESSIONATTRS", "PGLOADBALANCEHOSTS",
    "PGOPTIONS", "PGAPPNAME", "PGCONNECT_TIMEOUT", "PGCLIENTENCODING", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGMINPROTOCOLVERSION", "PGMAXPROTOCOLVERSION",
)


def forget_choices() -> None:
    """For this process, and those that it starts."""
    for name in CHOICES:
        os.environ.pop(name, None)


def without_choices() -> List[str]:
    """The begin of a command line of a program that uses libpq."""
    return ["env", *("--unset=" + name for name in CHOICES)]
