# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of results that a run writes on the controller."""

from __future__ import annotations

import json
import math
import os
import tempfile
from contextlib import suppress
from typing import Any, Dict, List

PROBE = bytes(4096)


def prepare(directory: str, keep: bool) -> None:
    """Create the directory and write to it, or raise OSError. Without ``keep`` nothing is left of that."""
    path = os.path.abspath(os.path.expanduser(directory))
    missing: List[str] = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    created: List[str] = []
    written = False
    try:
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another run has just created it
                os.mkdir(folder, 0o700 if folder == missing[0] else 0o777)
                created.append(folder)
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=os.path.expanduser(directory))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(PROBE)
                file.flush()
                os.fsync(file.fileno())
        finally:
            os.unlink(temporary)
        written = True
    finally:
        if not (keep and written):
            for folder in reversed(created):
                with suppress(OSError):  # another run has put something there
                    os.rmdir(folder)


def write(directory: str, content: Dict[str, Any]) -> str:
    """Write one file per run, complete or not at all, with mode 0600: query texts and plans contain literals."""
    directory = os.path.expanduser(directory)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    name = "%s-%s" % (content["playbook"], content["finished"].replace(":", "").replace("-", ""))
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        for number in range(1000):  # two runs may end in the same second
            path = os.path.join(directory, "%s%s.json" % (name, "-%d" % number if number else ""))
            try:
                os.link(temporary, path)
                return path
            except FileExistsError:
                continue
        raise OSError("%s has a thousand results of this second" % directory)
    finally:
        os.unlink(temporary)


def plain(value: Any, depth: int = 100) -> Any:
    """Convert a value to what JSON supports: a host can return NaN, and keys of several types."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not depth:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain(one, depth - 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, depth - 1) for one in value]
    return str(value)
