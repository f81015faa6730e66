# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text of hosts and servers, made safe for a terminal, a log and the name of a file."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Mapping, Match

LIMIT = 4000  # characters of a message


def printable(text: Any, limit: int = LIMIT) -> str:
    """Show what is no printable character, such as ESC, a newline or a change of direction, by its escape sequence."""
    text = str(text)
    kept = "".join(character if character.isprintable() else escaped(character) for character in text[:limit])
    return kept if len(text) <= limit else "%s... (%d more characters)" % (kept, len(text) - limit)


def printable_lines(text: Any, limit: int = 50 * LIMIT) -> str:
    """For a text of several lines, such as a diff."""
    return "\n".join(printable(line) for line in str(text)[:limit].split("\n"))


def shown(value: Any) -> Any:
    """A result, of which each text and key shows by its escape sequence what Ansible would write to a terminal as it is.

    Ansible prints results as JSON, which escapes nothing but what is below a blank. U+009B begins a command to the terminal as
    ESC [ does, and U+202E turns the line around that stands after a name.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(one if _is_shown(one) else escaped(one) for one in value)
    if isinstance(value, Mapping):
        return {shown(key): shown(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    return value


def _is_shown(character: str) -> bool:
    return character.isprintable() or character < " " or unicodedata.category(character) == "Zs"


def escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def file_name(text: Any) -> str:
    """A name of one file, and never of a directory, from that of an inventory host; different for different hosts."""
    return re.sub(r"^\.|[^A-Za-z0-9_.:@+-]", _hexadecimal, str(text))


def _hexadecimal(found: Match[str]) -> str:
    return "".join("%%%02X" % byte for byte in found.group().encode("utf-8", "surrogateescape"))
