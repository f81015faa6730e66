# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of a test's own: loop devices, of which nobody else reads, with a file system and a cluster on it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time

from cluster import OWNER, Cluster, run

MIB = 1 << 20
_ADD, _REMOVE = 0x4C80, 0x4C81  # of /dev/loop-control
_CONTROL = 10, 237  # its number


class Disk:
    """Reads past the page cache of its file: what it counts is what it was asked for."""

    def __init__(self, directory, name, mebibytes=512):
        self.file = os.path.join(directory, name + ".disk")
        self.point = os.path.join(directory, name)
        with open(self.file, "wb") as file:
            file.truncate(mebibytes * MIB)
        self.directory = directory
        self.number = _new_number(directory)
        self.name = "loop%d" % self.number
        self.device = self._node(self.name)
        self.mounted = False
        run("losetup", "--direct-io=on", self.device, self.file)

    def make(self, kind, device=None):
        """A file system, mounted, where the server's user may write."""
        device = device or self.device
        options = {"ext4": ["-q", "-E", "lazy_itable_init=0"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}[kind]
        run("mkfs." + kind, *options, device)
        os.makedirs(self.point, exist_ok=True)
        run("mount", "-t", kind, device, self.point)
        self.mounted = True
        shutil.chown(self.point, OWNER, OWNER)
        return self

    def halves(self):
        run("sfdisk", "--quiet", "--no-reread", self.device, text="label: gpt\nsize=%d\n,\n" % (384 * MIB // 512))
        run("partx", "--update", self.device)
        return [self._node("%sp%d" % (self.name, number)) for number in (1, 2)]

    def _node(self, name):
        with open("/sys/class/block/%s/dev" % name) as file:
            major, minor = file.read().split(":")
        return _node(self.directory, name, stat.S_IFBLK, int(major), int(minor))

    def counted(self):
        """Reads and bytes, from a file of its own that the collection does not read."""
        with open("/sys/block/%s/stat" % self.name) as file:
            fields = [int(one) for one in file.read().split()]
        return fields[0], fields[2] * 512

    def unmount(self):
        if self.mounted:
            run("umount", self.point)
            self.mounted = False

    def remove(self):
        """Also from /proc/diskstats."""
        self.unmount()
        if os.path.exists("/sys/block/%s/loop/backing_file" % self.name):
            run("losetup", "--detach", self.device)
        for _attempt in range(50):  # until the kernel has let go of the file
            if not os.path.exists("/sys/block/" + self.name) or _control(self.directory, _REMOVE, self.number):
                break
            time.sleep(0.1)
        if os.path.exists(self.file):
            os.unlink(self.file)


def _node(directory, name, kind, major, minor):
    """The one of /dev; in a root file system without it, one of the test's own."""
    path = "/dev/" + name
    if not os.path.exists(path):
        path = os.path.join(directory, name + ".node")
        if not os.path.exists(path):
            os.mknod(path, kind | 0o600, os.makedev(major, minor))
    return path


def _new_number(directory):
    """Of a device that no other test has, and that is not there without us."""
    return next(number for number in range(100, 200) if _control(directory, _ADD, number))


def _control(directory, request, number):
    try:
        with open(_node(directory, "loop-control", stat.S_IFCHR, *_CONTROL)) as control:
            fcntl.ioctl(control, request, number)
        return True
    except OSError:
        return False


def cluster_on(disk, machine, name):
    """Its WAL is on the same disk."""
    one = Cluster(machine.bin, os.path.join(machine.directory, "run"), name)
    one.data = os.path.join(disk.point, "data")
    one.create()
    return one
