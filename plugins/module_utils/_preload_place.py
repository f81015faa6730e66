# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library in shared_preload_libraries, and its parameters: what they can be, and what the configuration files of a server say of them.

The view pg_file_settings has all of them as the next start reads them, the last line of a name wins.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import EXTENSION, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

LIBRARIES = "shared_preload_libraries"
_TIME = (r"0|[0-9]+ ?(s|min|h|d)", "a time such as 5min")
_SIZE = (r"0|[0-9]+ ?(kB|MB|GB|TB)", "a size such as 50MB")
UNITS = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86400, "kB": 1, "MB": 1 << 10, "GB": 1 << 20, "TB": 1 << 30}  # seconds, kB
# Of each parameter, what it can be: a server that has not loaded the library takes anything, and its next start ignores what is wrong.
PARAMETERS = {
    "autosave": (r"-1|" + _TIME[0], _TIME[1] + ", or 0 or -1"),
    "autosave_keep": ("[1-9][0-9]{0,2}|1000", "a number from 1 to 1000"),
    "autorestore": ("off|page_cache|both", "off, page_cache or both"),
    "autorestore_snapshot": (".*", "the name of a snapshot"),
    "rate": _SIZE,
    "budget": _SIZE,
    "max_io_pressure": ("[0-9]|[1-9][0-9]|100", "a number from 0 to 100"),
    "hold": _TIME,
}
# The most that src/settings.c accepts: seconds, or kB
_MOST = {"autosave": 2147483, "hold": 7 * 86400, "rate": 2147483647, "budget": 2147483647 << 10}

_LINES = """
SELECT sourcefile AS file, sourceline AS line, lower(name) AS name, setting FROM pg_catalog.pg_file_settings
WHERE lower(name) = %s OR lower(name) LIKE %s ORDER BY seqno
"""


class Line(NamedTuple):
    """Of a configuration file."""

    file: str
    number: int
    value: str


class Place:
    """Where our settings are: a file, of which Cluster is another kind. Also what all other files say of them."""

    def __init__(self, session: Session, path: str, automatic: str) -> None:
        self.path = path
        self.automatic = automatic  # what ALTER SYSTEM writes
        lines = [
            (row["name"], Line(os.path.realpath(row["file"]), row["line"], row["setting"] or ""))
            for row in session.rows(_LINES, (LIBRARIES, EXTENSION + ".%"))
        ]
        self.ours: Dict[str, str] = {name: line.value for name, line in lines if line.file == path}
        self.outside: Dict[str, Line] = {name: line for name, line in lines if line.file != path}
        self.last: Dict[str, Line] = dict(lines)

    def present(self, parameters: Mapping[str, Any]) -> Dict[str, str]:
        """The settings with which the next start preloads the library."""
        wanted = prefixed(parameters)
        there = self.last.get(LIBRARIES)
        if there and there.file != self.path and has_ours(there.value):
            return wanted  # another file sees to it
        if there and there.file == self.automatic != self.path:
            raise ResidencyError(
                "ALTER SYSTEM has set %s, which %s cannot change: leave the file out, or run ALTER SYSTEM RESET %s, and set the libraries in postgresql.conf."
                % (LIBRARIES, printable(self.path), LIBRARIES))
        return dict(wanted, **{LIBRARIES: with_ours(names(there.value if there else ""))})

    def absent(self) -> Dict[str, str]:
        """The settings without those of this collection. Other libraries stay in this place, unless another file has the same ones."""
        outside = self.outside.get(LIBRARIES)
        kept = without_ours(self.ours.get(LIBRARIES))
        if kept and kept != names(outside.value if outside else ""):
            return {LIBRARIES: listed(kept)}
        self.refuse_outside()
        return {}

    def refuse_outside(self) -> None:
        """Raise ResidencyError if another file has the library."""
        outside = self.outside.get(LIBRARIES)
        if outside and has_ours(outside.value):
            raise ResidencyError("%s line %d has %s in %s: %s." % (
                printable(outside.file), outside.number, EXTENSION, LIBRARIES, "leave the file out" if outside.file == self.automatic else "remove it there"))


def _is_ours(library: str) -> bool:
    """With a directory too, such as $libdir."""
    return os.path.basename(library) == EXTENSION


def has_ours(libraries: Optional[str]) -> bool:
    return any(map(_is_ours, names(libraries)))


def without_ours(libraries: Optional[str]) -> List[str]:
    return [name for name in names(libraries) if not _is_ours(name)]


def with_ours(libraries: Iterable[str]) -> str:
    return listed([*(name for name in libraries if not _is_ours(name)), EXTENSION])


def names(value: Optional[str]) -> List[str]:
    """The libraries of a list of them. ALTER SYSTEM writes an empty list as "", a library without a name, with which the server does not start."""
    return [name for name in (part.strip().strip('"') for part in (value or "").split(",")) if name]


def listed(libraries: Iterable[str]) -> str:
    return ", ".join(name if re.fullmatch("[a-z_][a-z0-9_]*", name) else '"%s"' % name for name in libraries)


def prefixed(parameters: Mapping[str, Any]) -> Dict[str, str]:
    """Those that are set, with their whole names and as text."""
    return {"%s.%s" % (EXTENSION, name): check_parameter(name, value) for name, value in parameters.items() if value not in (None, "")}


def same(name: str, one: Optional[str], other: Optional[str]) -> bool:
    if name != LIBRARIES or one is None or other is None:
        return one == other
    return names(one) == names(other) and '""' not in one


def check_parameter(name: str, value: Any) -> str:
    """The value as text; ResidencyError if it cannot be one of this parameter."""
    text = "off" if value is False else str(value)  # YAML's off is a boolean
    if name not in PARAMETERS:
        raise ResidencyError("%s has no parameter %s: there are %s." % (EXTENSION, printable(name, 100), ", ".join(PARAMETERS)))
    pattern, what = PARAMETERS[name]
    if not re.fullmatch(pattern, text):
        raise ResidencyError("%s.%s is '%s': it must be %s." % (EXTENSION, name, printable(text, 100), what))
    number = re.match("([0-9]+) ?(.*)", text)
    if name in _MOST and number and int(number.group(1)) * UNITS[number.group(2)] > _MOST[name]:
        raise ResidencyError("%s.%s is '%s', which is more than PostgreSQL accepts." % (EXTENSION, name, printable(text, 100)))
    if name == "autorestore_snapshot":
        _residency_snapshot.check_name(text, True)
    return text
