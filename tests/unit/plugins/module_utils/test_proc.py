# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading /proc and /sys, on made-up trees."""

from __future__ import annotations

from ansible_collections.pgfleet.cache.plugins.module_utils import _proc

BLANK = r"36 25 0:31 / /mnt/a\040b rw - ext4 /dev/vdb rw"


def test_mount_of_a_path(system):
    system(
        "proc/self/mountinfo",
        "\n".join(
            [
                "22 1 254:0 / / rw - ext4 /dev/vda rw",
                "23 22 254:1 / /data rw shared:1 - xfs /dev/vdb rw",
                "24 22 254:2 / /data rw - ext4 /dev/vdc rw",
                BLANK,
            ]
        ),
    )
    mounts = _proc.mounts()
    assert _proc.mount_of("/data/base", mounts).source == "/dev/vdc"
    assert _proc.mount_of("/database", mounts).source == "/dev/vda"
    assert _proc.mount_of("/mnt/a b/c", mounts).point == "/mnt/a b"


def test_what_cannot_be_read_is_no_error(system):
    assert _proc.text("/proc/diskstats") is None
    assert _proc.lines("/proc/diskstats") == []
    assert _proc.listed("/proc") == []
    assert _proc.meminfo("MemFree") == 0
    assert _proc.meminfo_or_none("MemFree") is None
    assert _proc.cgroup_of(42, "memory") is None


def test_meminfo_is_in_bytes_where_it_has_a_unit(system):
    system("proc/meminfo", "MemFree:     3 kB\nHugePages_Total:   7")
    assert _proc.meminfo("MemFree") == 3072
    assert _proc.meminfo("HugePages_Total") == 7
