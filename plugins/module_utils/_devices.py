# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a path to the block devices beneath it, layer by layer, as /sys and the table of mounts have them.

A volume is what a file system is on, such as a partition, a logical volume or a RAID. Disks are what is left when no further layer
can be taken away. A file system without a disk that this kernel counts is named with the reason: its figures are unknown, and not 0.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _proc

_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs", "rootfs")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs", "coda", "ncpfs")
_OF_THE_HOST = ("9p", "virtiofs", "vboxsf", "vmhgfs")
_STACKED = ("overlay", "aufs", "ecryptfs", "unionfs", "mergerfs", "fuse.fuse-overlayfs")
# how device mapper marks its tables' owners
_MAPPED = (("LVM-", "lvm"), ("CRYPT-", "crypt"), ("mpath-", "multipath"), ("part", "partition"), ("DMRAID-", "raid"), ("VDO-", "vdo"))


class Layer(NamedTuple):
    name: str  # as the kernel has it
    kind: str
    alias: Optional[str]  # the name that people know, or the file of a loop device


class Beneath(NamedTuple):
    """The devices below a path. Without volumes, ``reason`` is the cause."""

    mount: Optional[str]
    filesystem: Optional[str]
    source: Optional[str]
    volumes: Tuple[str, ...]
    disks: Tuple[str, ...]
    layers: Tuple[Layer, ...]  # from top to bottom
    reason: Optional[str]


def number_of(path: str) -> Optional[str]:
    """major:minor of the file system of a path; None if there is no such path, or it is closed to this user."""
    try:
        return number(os.stat(path).st_dev)
    except OSError:
        return None


def number(device: int) -> str:
    return "%d:%d" % (os.major(device), os.minor(device))


def names() -> List[str]:
    """Every block device of this kernel, as /sys calls it."""
    try:
        return sorted(os.listdir(_proc.where("/sys/class/block")))
    except OSError:
        return []


def name_of(device: Optional[str]) -> Optional[str]:
    """The name of major:minor. None for the number of a file system without a block device of its own (tmpfs, overlay, NFS, btrfs)."""
    if device is None:
        return None
    link = _proc.where("/sys/dev/block/" + device)
    return os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None


def volumes_of(device: Optional[str], path: str, mounts: Sequence[_proc.Mount]) -> List[str]:
    name = name_of(device)
    if name is not None:
        return [name]
    mount = _proc.mount_of(path, list(mounts))
    if mount is None:
        return []
    sources = [found for found in map(_of_source, _sources(mount)) if found is not None]
    if mount.type == "btrfs":
        return _of_btrfs(sources)
    return sorted(set(sources))


def beneath(path: str, device: Optional[str], mounts: Sequence[_proc.Mount]) -> Beneath:
    """``device`` is the number of the file system of ``path``."""
    mount = _proc.mount_of(path, list(mounts))
    volumes = volumes_of(device, path, mounts)
    layers = layers_of(volumes)
    disks = disks_of(volumes)
    kind = mount.type if mount else None
    return Beneath(
        mount.point if mount else None,
        kind,
        mount.source if mount else None,
        tuple(volumes),
        tuple(disks),
        tuple(layers),
        None if disks else _reason(kind, device),
    )


def disks_of(volumes: Sequence[str]) -> List[str]:
    return sorted({name for name in _down(volumes) if not _below(name)})


def layers_of(volumes: Sequence[str]) -> List[Layer]:
    return [Layer(name, kind_of(name), alias_of(name)) for name in _down(volumes)]


def below(name: str, mounts: Sequence[_proc.Mount]) -> List[str]:
    """The next layer; of a loop device the volumes that its file is on."""
    file = _proc.text(_in_sys(name, "loop/backing_file"))
    mount = _proc.mount_of(file, list(mounts)) if file is not None else None
    return _below(name) if file is None or mount is None else volumes_of(mount.device, file, mounts)


def counted_as(name: str) -> str:
    """The name in /proc/diskstats: in /sys a name holds no slash."""
    return name.replace("!", "/")


def whole(name: str) -> str:
    """The disk of a partition, and every other device itself: cgroups count by this."""
    return _parent(name) or name


def number_of_name(name: str) -> Optional[str]:
    return _proc.text(_in_sys(name, "dev"))


def counts(name: str) -> bool:
    """True if the kernel keeps statistics of the device: an administrator can switch them off."""
    return _proc.text(_in_sys(whole(name), "queue/iostats")) != "0"


def sequence_of(name: str) -> Optional[int]:
    """Another number when another medium or file is under the same name, from Linux 5.15 on."""
    return _proc.number(_proc.text(_in_sys(whole(name), "diskseq")))


def kind_of(name: str) -> str:
    if _proc.text(_in_sys(name, "partition")) is not None:
        return "partition"
    mapped = _proc.text(_in_sys(name, "dm/uuid"))
    if mapped is not None:
        return next((kind for beginning, kind in _MAPPED if mapped.startswith(beginning)), "device mapper")
    level = _proc.text(_in_sys(name, "md/level"))
    if level is not None:
        return level or "md"
    if _is_loop(name):
        return "loop"
    return "bcache" if name.startswith("bcache") else "disk"


def alias_of(name: str) -> Optional[str]:
    return _proc.text(_in_sys(name, "dm/name")) or _proc.text(_in_sys(name, "loop/backing_file"))


def cached_file(name: str) -> Optional[str]:
    """The file of a loop device that reads through the page cache once more; None for what does not."""
    return _proc.text(_in_sys(name, "loop/backing_file")) if _is_loop(name) and _proc.text(_in_sys(name, "loop/dio")) != "1" else None


# --- layers ---


def _in_sys(name: str, file: str) -> str:
    return "/sys/class/block/%s/%s" % (name, file)


def _is_loop(name: str) -> bool:
    return _proc.text(_in_sys(name, "loop/backing_file")) is not None


def _parent(name: str) -> Optional[str]:
    if _proc.text(_in_sys(name, "partition")) is None:
        return None
    return os.path.basename(os.path.dirname(os.path.realpath(_proc.where("/sys/class/block/" + name))))


def _below(name: str) -> List[str]:
    parent = _parent(name)
    return [parent] if parent else _proc.listed("/sys/class/block/%s/slaves" % name)


def _down(volumes: Sequence[str]) -> List[str]:
    """Every device from these on downwards, each once, and never before one that is on it."""
    order: List[str] = []
    seen = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for below in reversed(_below(name)):
                visit(below)
            order.append(name)

    for volume in reversed(list(volumes)):
        visit(volume)
    return order[::-1]


# --- file systems whose number is not their device's ---


def _sources(mount: _proc.Mount) -> Iterator[str]:
    """bcachefs names all of its devices: /dev/sda:/dev/sdb"""
    if mount.source.startswith("/dev/"):
        yield from mount.source.split(":")


def _of_source(source: str) -> Optional[str]:
    name = os.path.basename(os.path.realpath(_proc.where(source)))
    if os.path.exists(_proc.where("/sys/class/block/" + name)):
        return name
    if source.startswith("/dev/mapper/"):  # a container may not have the link
        return next((one for one in _proc.listed("/sys/class/block") if _proc.text(_in_sys(one, "dm/name")) == os.path.basename(source)), None)
    return None


def _of_btrfs(sources: Sequence[str]) -> List[str]:
    """All devices of a btrfs, of which the table of mounts names one. /dev/root names none."""
    found: Dict[str, List[str]] = {}
    for one in _proc.listed("/sys/fs/btrfs"):
        devices = _proc.listed("/sys/fs/btrfs/%s/devices" % one)
        if devices:
            found[one] = devices
    for devices in found.values():
        if set(sources) & set(devices):
            return devices
    return next(iter(found.values())) if not sources and len(found) == 1 else sorted(set(sources))


def _reason(filesystem: Optional[str], device: Optional[str]) -> str:
    if filesystem is None:
        return "the table of mounts does not have it"
    if filesystem in _IN_MEMORY:
        return "%s is in memory" % filesystem
    if filesystem in _NETWORK or re.match(r"fuse\.(sshfs|s3fs|glusterfs|ceph|rclone|gcsfuse|blobfuse)", filesystem):
        return "%s is a network file system, and this host does not see its disks" % filesystem
    if filesystem in _OF_THE_HOST:
        return "%s is a file system of the host of this virtual machine, and its disks are there" % filesystem
    if filesystem in _STACKED:
        return "%s shows files of other file systems, and does not name their disks" % filesystem
    if device is not None and not device.startswith("0:"):
        return "/sys does not have its device %s" % device
    return "%s does not name its disks to the kernel" % filesystem
