# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names that a snapshot has with it, for when PostgreSQL is stopped and cannot be asked.

src/names.c of pg_residency describes the file. Its checksum is not looked at: in Python that takes seconds for a large
database, and a name serves only as a label and for patterns.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from typing import Iterator, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row
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
    """Of the newest snapshot that has names which can be read."""
    paths = []
    try:
        with os.scandir(os.path.join(data_directory, "pg_residency")) as entries:
            for entry in entries:
                if _FILE.fullmatch(entry.name):
                    paths.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except OSError:  # there is no such directory, or it changes just now
        pass
    for dummy, path in sorted(paths, reverse=True)[:TRIED]:
        data = _read(path)
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
            "kind": _KINDS[kind],
            "database": database,
            "tablespace": tablespace,
            "relfilenumber": relfilenumber,
            "oid": oid,
            "owner_oid": owner_oid or None,
            "pages": pages,
            "name": text() or "?",
            "owner": text() or None,
        }
        count = data[at]
        at += 1
        row["partition_of"] = [text() for dummy in range(count)]
        yield row


def _read(path: str) -> Optional[bytes]:
    """Only a regular file: what lies there may be a link or a pipe, and this process may be root's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            head = file.read(_HEAD.size)
            return head + file.read(LARGEST) if head.startswith(MAGIC) else None
    finally:
        os.close(descriptor)
