# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of pgio.conf, the configuration of pgio, for the options of io_workload."""

from __future__ import annotations

import re
import shlex
from typing import Any, Dict, List, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

# pgio loads NUM_THREADS schemas at a time, and runs as many sessions on each
NAMES: Mapping[str, List[str]] = {
    "UPDATE_PCT": ["update_pct"], "RUN_TIME": ["run_time"], "NUM_SCHEMAS": ["schemas"], "NUM_THREADS": ["sessions", "load_sessions"],
    "WORK_UNIT": ["work_unit"], "UPDATE_WORK_UNIT": ["update_work_unit"], "SCALE": ["scale"], "DBNAME": ["login_db"],
}
# CONNECT_STRING is the database again, or what the login variables are; there is always a base table while tables are loaded
IGNORED = ("CONNECT_STRING", "CREATE_BASE_TABLE")
_NUMBERS = ("UPDATE_PCT", "NUM_SCHEMAS", "NUM_THREADS", "WORK_UNIT", "UPDATE_WORK_UNIT")


def parse(text: str, name: str) -> Dict[str, Any]:
    """Options of the module from the shell assignments of a pgio.conf; ``name`` is the file's, for messages."""
    found: Dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = "%s, line %d" % (printable(name, 200), number)
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise AnsibleFilterError("%s: %s." % (where, error)) from None
        if words[:1] == ["export"]:
            del words[0]
        if not words:
            continue
        assignment = re.fullmatch(r"([A-Z_]+)=(.*)", words[0])
        if assignment is None or len(words) > 1 or "$" in line or "`" in line:
            raise AnsibleFilterError("%s: '%s' is no assignment of a value, such as SCALE=1G." % (where, printable(line.strip(), 100)))
        key, value = assignment.groups()
        if key in IGNORED:
            continue
        if key not in NAMES:
            raise AnsibleFilterError("%s: %s is not known: there can be %s." % (where, key, ", ".join([*NAMES, *IGNORED])))
        if key in _NUMBERS and not re.fullmatch(r"[0-9]{1,10}", value):
            raise AnsibleFilterError("%s: %s is '%s': it must be a whole number." % (where, key, printable(value, 100)))
        for option in NAMES[key]:
            found[option] = int(value) if key in _NUMBERS else value
    return found


def options(given: Mapping[str, Any], text: str = "", name: str = "") -> Dict[str, Any]:
    """Options of io_workload: the variables of the role, and what pgio.conf sets in their place. Empty ones are not set."""
    found = {key: value for key, value in given.items() if value not in ("", None)}
    return dict(found, **parse(text, name))
