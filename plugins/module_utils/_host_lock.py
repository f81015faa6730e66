# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a host: one measurement at a time, because two would each measure the other.

The lock is a symbolic link, because making one is atomic and its target is the owner's name. It is gone with the next boot.
It lies where every user may make it, because the clusters of a host need not have the same user. So any user can hold it,
and a message says whose it is; nobody who holds it gets more than that.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from contextlib import contextmanager
from typing import Iterator, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

PATH = "/dev/shm/pgfleet.cold_test"
COLD_TEST = "cold test of "  # so begins the name of a cold test, which leaves more than the lock when it is interrupted
_OF_A_PROCESS = re.compile(r".*\bprocess (\d+)\b")


@contextmanager
def taken(what: str, held: Optional[str]) -> Iterator[None]:
    """``held`` is the name under which the caller's caller has it already."""
    if held is not None:
        owner = _owner()
        if owner != held:
            raise ResidencyError("%s is not held as '%s', but %s." % (PATH, held, "by '%s'" % printable(owner, 200) if owner else "by nobody"))
        yield
        return
    name = "%s of user %s, process %d, since %s" % (
        what, _user(os.geteuid()), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
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
            if os.path.lexists(PATH):
                break  # no link
            continue
        process = _OF_A_PROCESS.match(owner)
        if not process or os.path.exists("/proc/" + process.group(1)):
            break
        try:
            os.unlink(PATH)  # it was killed
        except OSError:
            break
    what = "Another run is in progress on this host: %s. Wait until it is done; " % printable(owner or "a file", 200)
    if owner and owner.startswith(COLD_TEST):
        raise ResidencyError(what + "if that run no longer exists, run the playbook cold_test on this host, which names the steps.")
    raise ResidencyError(what + "if that run no longer exists, remove %s, owned by user %s." % (PATH, _user(_uid())))


def _owner() -> Optional[str]:
    try:
        return os.readlink(PATH)
    except OSError:
        return None


def _uid() -> int:
    try:
        return os.lstat(PATH).st_uid
    except OSError:
        return os.geteuid()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
