# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names that a snapshot has with it, for when PostgreSQL is stopped and cannot be asked.

src/names.c of pg_residency describes the file. Its checksum is not looked at: in Python that takes seconds for a large
database, and a name serves only as a label and for patterns.
"""

from __future__ import annotations

import re
import struct
from typing import Iterator, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row
from ansible_collections.pgfleet.cache.plugins.module_utils._data_directory import DataDirectory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, collect

MAGIC = b"PGRNAMES"
VERSION = 1
LARGEST = 1 << 26  # bytes
TRIED = 8  # files: as many as there are generations of some names

_HEAD = struct.Struct("<8sII")
_DATABASE = struct.Struct("<I")
_RELATION = struct.Struct("<6I")
_LENGTH = struct.Struct("<H")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*@[0-9]+\.names")
_KINDS = {"r": "table", "i": "index", "m": "materialized view", "S": "sequence", "t": "toast", "T": "toast index"}


def load_newest(data_directory: str) -> Names:
    """The names of the newest snapshot whose names can be read."""
    try:
        directory = _data_directory.opened(data_directory)
        files = [name for name in directory.listed("pg_residency") if _FILE.fullmatch(name)]
        newest = sorted(((_modified(directory, name), name) for name in files), reverse=True)
    except ResidencyError:
        return Names()
    for dummy, name in newest[:TRIED]:
        data = _read(directory, name)
        names = None if data is None else load(data)
        if names is not None:
            return names
    return Names()


def load(data: bytes) -> Optional[Names]:
    """None for what is no file of names of this version."""
    try:
        magic, version, dummy = _HEAD.unpack_from(data)
        return collect(_rows(data)) if (magic, version) == (MAGIC, VERSION) else None
    except (struct.error, UnicodeDecodeError, IndexError, KeyError):
        return None


def _rows(data: bytes) -> Iterator[Row]:
    at = _HEAD.size

    def text() -> str:
        nonlocal at
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            raise IndexError
        return data[begin:at].decode("utf-8")

    while at < len(data):
        kind = chr(data[at])
        at += 1
        if kind == "D":
            (database,) = _DATABASE.unpack_from(data, at)
            at += _DATABASE.size
            yield {"kind": "database", "database": database, "name": text(), "problem": text() or None}
            continue
        database, tablespace, relfilenumber, oid, owner_oid, pages = _RELATION.unpack_from(data, at)
        at += _RELATION.size
        row = {
            "kind": _KINDS[kind], "database": database, "tablespace": tablespace, "relfilenumber": relfilenumber, "oid": oid,
            "owner_oid": owner_oid or None, "pages": pages, "name": text() or "?", "owner": text() or None,
        }
        count = data[at]
        at += 1
        row["partition_of"] = [text() for dummy in range(count)]
        yield row


def _modified(directory: DataDirectory, name: str) -> float:
    try:
        return directory.status("pg_residency/" + name).st_mtime
    except OSError:  # it changes just now
        return 0.0


def _read(directory: DataDirectory, name: str) -> Optional[bytes]:
    try:
        data = directory.read("pg_residency/" + name, LARGEST)
    except (OSError, ResidencyError):
        return None
    return data if data.startswith(MAGIC) else None
