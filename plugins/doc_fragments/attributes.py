# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and return the changed status prediction without modifying the target.
  diff_mode:
    description: Returns details of what has changed, or would change, in diff mode.
  idempotent:
    description: When run twice in a row with the same options, the second run changes nothing.
  platform:
    description: Operating systems of the host.
    support: full
    platforms: linux
"""

    LOGIN = r"""
options:
  login_db:
    description:
      - Database to connect to. If the module uses the extension C(pg_residency), this database must have it.
    type: str
    default: postgres
"""
