# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One who measures at a time on a host: two would each measure the other.

The lock is a symbolic link, because making one is atomic and its target is the owner's name. It is gone with the next boot.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from contextlib import contextmanager
from typing import Iterator, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

PATH = "/dev/shm/pgfleet.cold_test"
_OF_A_PROCESS = re.compile(r".*\bprocess (\d+)\b")


@contextmanager
def taken(what: str, held: Optional[str]) -> Iterator[None]:
    """``held`` is the name under which the caller's caller has it already."""
    if held is not None:
        owner = _owner()
        if owner != held:
            raise ResidencyError("%s is not held as '%s', but %s." % (PATH, held, "by '%s'" % owner if owner else "by nobody"))
        yield
        return
    name = "%s of user %s, process %d, since %s" % (
        what, _user(), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    )
    _take(name)
    try:
        yield
    finally:
        if _owner() == name:
            os.unlink(PATH)


def _take(name: str) -> None:
    for _attempt in range(3):
        try:
            return os.symlink(name, PATH)
        except FileExistsError:
            owner = _owner()
        if owner is None:
            continue
        process = _OF_A_PROCESS.match(owner)
        if not process or os.path.exists("/proc/" + process.group(1)):
            break
        try:
            os.unlink(PATH)  # it was killed
        except OSError:
            break
    raise ResidencyError(
        "Another run is in progress on this host: %s. Wait until it is done; if it is gone without a trace, remove %s." % (owner, PATH)
    )


def _owner() -> Optional[str]:
    try:
        return os.readlink(PATH)
    except OSError:
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
