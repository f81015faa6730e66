# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A device of a test's own: nobody else reads from it, so that what it counts is what was read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager

from cluster import run

_GET_FREE = 0x4C82  # LOOP_CTL_GET_FREE of <linux/loop.h>
_CONTROL, _LOOP = (10, 237), 7  # numbers of /dev/loop-control and of loop devices


class Device:
    def __init__(self, name, mount):
        self.name = name  # as /proc/diskstats has it
        self.mount = mount

    def count(self):
        """Bytes that were read from it so far."""
        with open("/sys/block/%s/stat" % self.name) as file:
            return int(file.read().split()[2]) * 512


@contextmanager
def device(folder, size, read_ahead_kb=None):
    """A file with ext4 as a block device, mounted. It goes with its last mount, also if this process is killed."""
    image, mount = folder + ".image", folder
    os.mkdir(mount)
    run("truncate", "--size", str(size), image)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-m", "0", image)
    node, name = _attach(folder, image)
    setting = "/sys/block/%s/queue/read_ahead_kb" % name
    with open(setting) as file:
        former = file.read()
    try:
        try:
            run("mount", node, mount)
        finally:
            run("losetup", "--detach", node)  # now, if it is not mounted; else when it is no longer
        if read_ahead_kb is not None:
            with open(setting, "w") as file:
                file.write(str(read_ahead_kb))
        yield Device(name, mount)
    finally:
        with open(setting, "w") as file:
            file.write(former)
        run("umount", "--lazy", mount, check=False)
        os.unlink(node)
        os.unlink(image)
        os.rmdir(mount)


def _attach(folder, image):
    """Nodes of its own: a root file system may have none."""
    control = folder + ".control"
    os.mknod(control, stat.S_IFCHR | 0o600, os.makedev(*_CONTROL))
    try:
        descriptor = os.open(control, os.O_RDWR | os.O_CLOEXEC)
        try:
            for _attempt in range(20):
                number = fcntl.ioctl(descriptor, _GET_FREE)
                node = "%s.loop%d" % (folder, number)
                os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(_LOOP, number))
                # without the page cache of the file below; another test may have taken the number meanwhile
                if "failed" not in run("losetup", "--direct-io=on", node, image, check=False):
                    return node, "loop%d" % number
                os.unlink(node)
        finally:
            os.close(descriptor)
    finally:
        os.unlink(control)
    raise OSError(errno.EBUSY, "no loop device is free")
