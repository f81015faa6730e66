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
from typing import Any, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable


def fault(directory: str) -> str:
    """Why no file can be written to this directory, as far as that is known beforehand; empty if nothing is against it. Changes nothing."""
    path = os.path.abspath(os.path.expanduser(directory)) if directory else "/"
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not directory or (os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)):
        return ""
    return "The results cannot be written: %s is not a directory that you may write to. Correct pgfleet_results; empty means no file." % printable(path)


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
