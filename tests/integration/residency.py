# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the page cache holds of a file, and what the kernel has reclaimed of it by itself.

DAMON reclaims pages that no process has mapped and that are idle for a minute, at times sooner. Where Linux reclaims a page, it leaves a
mark. cachestat(2) counts the marks, and POSIX_FADV_DONTNEED, with which this collection evicts, removes them. This separates what the
kernel has reclaimed from what was evicted or never loaded. Not on overlayfs, whose inodes hold no pages, nor where a cgroup has a limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import subprocess

PAGE = mmap.PAGESIZE
_CACHESTAT = 451  # on every architecture, since Linux 6.5
_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Pages(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def there(path):
    """Bytes of the file that are in the page cache, or were until the kernel reclaimed them. Before Linux 6.5 those in the page cache."""
    pages = _Pages()
    with open(path, "rb") as file:
        if _libc.syscall(ctypes.c_long(_CACHESTAT), file.fileno(), ctypes.byref(_Range(0, 0)), ctypes.byref(pages), 0) != 0:
            if ctypes.get_errno() == errno.ENOSYS:
                return int(subprocess.check_output(["fincore", "--bytes", "--noheadings", "--output", "RES", path], timeout=60))
            raise OSError(ctypes.get_errno(), "cachestat: " + os.strerror(ctypes.get_errno()), path)
    return PAGE * (pages.cached + pages.evicted)


def is_there(path, wanted=None):
    """Whether at least 95 % of the file, or of the wanted bytes, are there, but for what the kernel has reclaimed."""
    wanted = os.path.getsize(path) if wanted is None else wanted
    return wanted > 0 and there(path) >= 0.95 * wanted


@contextlib.contextmanager
def held(*paths, length=0):
    """All of these files, or their first bytes, in the page cache and mapped: neither the kernel nor an eviction takes such pages."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            file = stack.enter_context(open(path, "rb"))
            pages = stack.enter_context(mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ))
            if length:
                pages.madvise(mmap.MADV_RANDOM)  # else the kernel reads on behind them, and later than this ends
            pages[::PAGE]  # touches each
        yield
