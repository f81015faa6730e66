# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/sys and /proc of machines with other disks than this one's: directories and links as the kernel lays them out."""

from __future__ import annotations

import os


class Machine:
    def __init__(self, root):
        self.root = root
        self.mounts = []

    def write(self, path, text):
        path = os.path.join(self.root, path.lstrip("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text + "\n")

    def link(self, path, target):
        """Relative, as in /sys: the tree may be anywhere."""
        path, target = (os.path.join(self.root, one.lstrip("/")) for one in (path, target))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.relpath(target, os.path.dirname(path)), path)

    def device(self, name, number, place=None, on=(), **files):
        """``place`` is its directory below /sys/devices, ``on`` what is below it, ``files`` as dm__uuid for dm/uuid."""
        folder = "/sys/devices/%s/%s" % (place or "virtual/block", name)
        for file, text in dict({"dev": number, "queue/iostats": "1"}, **{key.replace("__", "/"): value for key, value in files.items()}).items():
            if file != "queue/iostats" or "partition" not in files:
                self.write("%s/%s" % (folder, file), text)
        self.link("/sys/class/block/" + name, folder)
        self.link("/sys/dev/block/" + number, folder)
        os.makedirs(os.path.join(self.root, folder.lstrip("/"), "slaves"), exist_ok=True)
        for below in on:
            real = os.path.realpath(os.path.join(self.root, "sys/class/block", below))
            self.link("%s/slaves/%s" % (folder, below), os.path.relpath(real, self.root))
        return folder

    def disk(self, name, number, **files):
        return self.device(name, number, "pci0000:00/0000:00:05.0/host2/target2:0:0/2:0:0:0/block", **files)[len("/sys/devices/"):]

    def partition(self, name, number, disk, index="1"):
        """Its directory is inside its disk's."""
        real = os.path.realpath(os.path.join(self.root, "sys/class/block", disk))
        return self.device(name, number, os.path.relpath(real, os.path.join(self.root, "sys/devices")), partition=index)

    def mapped(self, name, number, on, uuid, alias):
        self.device(name, number, on=on, dm__uuid=uuid, dm__name=alias)
        self.write("/dev/" + name, "")
        self.link("/dev/mapper/" + alias, "/dev/" + name)

    def mount(self, device, point, kind, source, options="rw", root="/"):
        self.mounts.append("%d 1 %s %s %s rw,relatime - %s %s %s" % (30 + len(self.mounts), device, root, point, kind, source, options))
        self.write("/proc/self/mountinfo", "\n".join(self.mounts))

    def diskstats(self, **counts):
        """name=(reads, bytes), _ for a slash: of what is not of interest, something."""
        line = "   8       0 %s %d 3 %d %d 5 1 64 9 0 %d %d 0 0 0 0 1 1"
        lines = [line % (name.replace("_", "/"), reads, size // 512, reads, reads, 2 * reads) for name, (reads, size) in counts.items()]
        self.write("/proc/diskstats", "\n".join(lines))
