# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a path to its disks, on trees of /sys of many layouts."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _io_reading, _proc, _processes
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.machines import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(_proc, "_SYSTEM", str(tmp_path))
    return Machine(str(tmp_path))


def beneath(device, path="/data/base"):
    return _devices.beneath(path, device, _proc.mounts())


def kinds(found):
    return [(layer.name, layer.kind) for layer in found.layers]


def test_a_whole_disk(machine):
    machine.disk("vda", "254:0")
    machine.mount("254:0", "/", "ext4", "/dev/root")
    found = beneath("254:0")
    assert (found.mount, found.filesystem, found.source) == ("/", "ext4", "/dev/root")
    assert (found.volumes, found.disks, found.reason) == (("vda",), ("vda",), None)


def test_a_partition(machine):
    machine.disk("sda", "8:0")
    machine.partition("sda2", "8:2", "sda", "2")
    machine.mount("8:2", "/", "xfs", "/dev/sda2")
    found = beneath("8:2")
    assert (found.volumes, found.disks) == (("sda2",), ("sda",))
    assert kinds(found) == [("sda2", "partition"), ("sda", "disk")]
    assert _devices.whole("sda2") == _devices.whole("sda") == "sda"


def test_a_partition_of_nvme(machine):
    machine.device("nvme0n1", "259:0", "pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0")
    machine.partition("nvme0n1p3", "259:3", "nvme0n1", "3")
    machine.mount("259:3", "/", "ext4", "/dev/nvme0n1p3")
    assert beneath("259:3").disks == ("nvme0n1",)


def test_nvme_by_several_paths(machine):
    """The paths are hidden, and have no number: what counts is the head."""
    machine.device("nvme1n1", "259:1", "virtual/nvme-subsystem/nvme-subsys1")
    machine.write("/sys/devices/pci0000:00/0000:00:1d.0/nvme/nvme1/nvme1c0n1/hidden", "1")
    machine.mount("259:1", "/data", "xfs", "/dev/nvme1n1")
    assert beneath("259:1").disks == ("nvme1n1",)


def test_a_logical_volume_on_two_disks(machine):
    machine.disk("sdb", "8:16")
    machine.disk("sdc", "8:32")
    machine.partition("sdc1", "8:33", "sdc")
    machine.mapped("dm-0", "253:0", ["sdb", "sdc1"], "LVM-uVgz4kBOAwL2", "vg-data")
    machine.mount("253:0", "/data", "ext4", "/dev/mapper/vg-data")
    found = beneath("253:0")
    assert (found.volumes, found.disks) == (("dm-0",), ("sdb", "sdc"))
    assert found.layers[0] == ("dm-0", "lvm", "vg-data")
    assert kinds(found)[1:] == [("sdb", "disk"), ("sdc1", "partition"), ("sdc", "disk")]


def test_a_thin_volume(machine):
    """Its pool is on volumes for data and metadata, which are on the same disk: that counts once."""
    machine.disk("sdb", "8:16")
    machine.mapped("dm-0", "253:0", ["sdb"], "LVM-aaaa-tmeta", "vg-pool_tmeta")
    machine.mapped("dm-1", "253:1", ["sdb"], "LVM-aaaa-tdata", "vg-pool_tdata")
    machine.mapped("dm-2", "253:2", ["dm-0", "dm-1"], "LVM-aaaa-tpool", "vg-pool-tpool")
    machine.mapped("dm-3", "253:3", ["dm-2"], "LVM-aaaabbbb", "vg-data")
    machine.mount("253:3", "/data", "xfs", "/dev/mapper/vg-data")
    found = beneath("253:3")
    assert found.disks == ("sdb",)
    assert [name for name, dummy in kinds(found)] == ["dm-3", "dm-2", "dm-0", "dm-1", "sdb"]


def test_luks_on_lvm_on_raid_on_partitions(machine):
    for name, number in (("sda", "8:0"), ("sdb", "8:16")):
        machine.disk(name, number)
        machine.partition(name + "2", "8:%d" % (int(number[2:]) + 2), name, "2")
    machine.device("md127", "9:127", on=["sda2", "sdb2"], md__level="raid1")
    machine.mapped("dm-0", "253:0", ["md127"], "LVM-uVgz", "vg-data")
    machine.mapped("dm-1", "253:1", ["dm-0"], "CRYPT-LUKS2-1234-secret", "secret")
    machine.mount("253:1", "/data", "ext4", "/dev/mapper/secret")
    found = beneath("253:1")
    assert found.disks == ("sda", "sdb")
    assert kinds(found) == [("dm-1", "crypt"), ("dm-0", "lvm"), ("md127", "raid1"), ("sda2", "partition"), ("sda", "disk"),
                            ("sdb2", "partition"), ("sdb", "disk")]


def test_a_partition_of_a_raid(machine):
    machine.disk("sda", "8:0")
    machine.disk("sdb", "8:16")
    machine.device("md0", "9:0", on=["sda", "sdb"], md__level="raid10")
    machine.partition("md0p1", "259:4", "md0")
    machine.mount("259:4", "/data", "ext4", "/dev/md0p1")
    assert kinds(beneath("259:4")) == [("md0p1", "partition"), ("md0", "raid10"), ("sda", "disk"), ("sdb", "disk")]


def test_a_partition_of_a_multipath_device(machine):
    """Two ways to one disk: each request goes one of them."""
    machine.disk("sda", "8:0")
    machine.disk("sdb", "8:16")
    machine.mapped("dm-0", "253:0", ["sda", "sdb"], "mpath-3600140", "mpatha")
    machine.mapped("dm-1", "253:1", ["dm-0"], "part1-mpath-3600140", "mpatha1")
    machine.mount("253:1", "/data", "xfs", "/dev/mapper/mpatha1")
    found = beneath("253:1")
    assert kinds(found) == [("dm-1", "partition"), ("dm-0", "multipath"), ("sda", "disk"), ("sdb", "disk")]
    assert found.disks == ("sda", "sdb")


def test_a_loop_device(machine):
    """Below it is a file with a page cache of its own: the kernel knows no disk of it."""
    machine.device("loop3", "7:3", loop__backing_file="/srv/disk.img", loop__dio="0")
    machine.device("loop4", "7:4", loop__backing_file="/srv/direct.img", loop__dio="1")
    machine.mount("7:3", "/data", "ext4", "/dev/loop3")
    assert beneath("7:3").layers == (("loop3", "loop", "/srv/disk.img"),)
    assert beneath("7:3").disks == ("loop3",)
    assert [_devices.cached_file(name) for name in ("loop3", "loop4")] == ["/srv/disk.img", None]


def test_a_name_with_a_slash(machine):
    machine.disk("cciss!c0d0", "104:0")
    machine.mount("104:0", "/data", "ext4", "/dev/cciss/c0d0")
    assert beneath("104:0").disks == ("cciss!c0d0",)
    machine.diskstats(cciss_c0d0=(7, 4096))
    assert _io_reading.disks(["cciss!c0d0"])["cciss!c0d0"].reads == 7


def btrfs(machine, source):
    machine.disk("sda", "8:0")
    machine.disk("sdb", "8:16")
    machine.partition("sdb1", "8:17", "sdb")
    machine.disk("sdc", "8:32")
    machine.mapped("dm-0", "253:0", ["sda"], "CRYPT-LUKS2-1", "luks")
    for uuid, devices in (("0a", ["dm-0", "sdb1"]), ("0b", ["sdc"])):
        for name in devices:
            machine.link("/sys/fs/btrfs/%s/devices/%s" % (uuid, name), "/sys/class/block/" + name)
    machine.write("/sys/fs/btrfs/features/raid56", "0")
    machine.mount("0:45", "/data", "btrfs", source, root="/@data")


@pytest.mark.parametrize("source", ["/dev/mapper/luks", "/dev/dm-0", "/dev/sdb1"])
def test_btrfs_on_two_devices(machine, source):
    """The table of mounts names one of them, and the number of the file system is that of none."""
    btrfs(machine, source)
    found = beneath("0:47")
    assert (found.volumes, found.disks) == (("dm-0", "sdb1"), ("sda", "sdb"))


def test_btrfs_without_a_known_device(machine):
    """It may be either of two file systems."""
    btrfs(machine, "/dev/root")
    found = beneath("0:47")
    assert (found.volumes, found.disks) == ((), ())
    assert found.reason == "btrfs does not name its disks to the kernel"


def test_bcachefs(machine):
    machine.disk("sda", "8:0")
    machine.disk("sdb", "8:16")
    machine.mount("0:45", "/data", "bcachefs", "/dev/sda:/dev/sdb")
    assert beneath("0:45").disks == ("sda", "sdb")


def test_bcache(machine):
    machine.disk("sda", "8:0")
    machine.device("nvme0n1", "259:0")
    machine.device("bcache0", "252:0", on=["nvme0n1", "sda"])
    machine.mount("252:0", "/data", "ext4", "/dev/bcache0")
    assert kinds(beneath("252:0")) == [("bcache0", "bcache"), ("nvme0n1", "disk"), ("sda", "disk")]


def test_the_mapper_has_no_link_in_a_container(machine):
    machine.disk("sda", "8:0")
    machine.device("dm-7", "253:7", on=["sda"], dm__uuid="LVM-x", dm__name="vg-btrfs")
    machine.mount("0:45", "/data", "btrfs", "/dev/mapper/vg-btrfs")
    assert beneath("0:46").disks == ("sda",)


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("overlay", "overlay", "overlay shows files of other file systems, and does not name their disks"),
        ("tmpfs", "tmpfs", "tmpfs is in memory"),
        ("nfs4", "filer:/export", "nfs4 is a network file system, and this host does not see its disks"),
        ("cifs", "//filer/export", "cifs is a network file system, and this host does not see its disks"),
        ("fuse.sshfs", "me@there:", "fuse.sshfs is a network file system, and this host does not see its disks"),
        ("virtiofs", "share", "virtiofs is a file system of the host of this virtual machine, and its disks are there"),
        ("zfs", "tank/data", "zfs does not name its disks to the kernel"),
        ("fuse.something", "/srv/file", "fuse.something does not name its disks to the kernel"),
    ],
)
def test_what_cannot_be_measured_is_named(machine, kind, source, reason):
    machine.disk("sda", "8:0")
    machine.mount("8:0", "/", "ext4", "/dev/sda")
    machine.mount("0:45", "/data", kind, source)
    found = beneath("0:45")
    assert (found.filesystem, found.volumes, found.disks, found.layers) == (kind, (), (), ())
    assert found.reason == reason


def test_a_device_that_sys_does_not_have(machine):
    machine.mount("8:0", "/", "ext4", "/dev/sda")
    assert beneath("8:0").reason == "/sys does not have its device 8:0"
    assert beneath(None).disks == ()


def test_counters(machine):
    machine.disk("sda", "8:0", diskseq="11")
    machine.partition("sda1", "8:1", "sda")
    machine.disk("sdb", "8:16", queue__iostats="0")
    machine.write("/proc/diskstats", "\n".join([
        "   8       0 sda 100 20 3000 400 50 6 700 80 2 1000 2000 1 2 3 4 5 6",
        "   8       1 sda1 10 2 300 40 5 6 70 8 0 100 200",
        "   8      16 sdb 0 0 0 0 0 0 0 0 0 0 0",
    ]))
    found = _io_reading.disks(["sda", "sda1", "sdb", "gone"])
    assert sorted(found) == ["sda", "sda1"], "what is not counted is not 0"
    assert found["sda"] == (100, 20, 3000 * 512, 400, 50, 6, 700 * 512, 80, 1000, 2000, 11)
    assert found["sda1"].read_bytes == 300 * 512
    assert found["sda1"].sequence == 11


# --- what a cgroup was served ---


def layered(machine, files):
    """A server on a logical volume on a partition; and what a loop device of its files would be."""
    machine.disk("sda", "8:0")
    machine.partition("sda1", "8:1", "sda")
    machine.mapped("dm-0", "253:0", ["sda1"], "LVM-x", "vg-data")
    machine.device("loop0", "7:0", loop__backing_file="/data/disk.img")
    for path, text in files.items():
        machine.write(path, text)


V2 = {
    "/proc/self/mountinfo": "36 25 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/proc/42/cgroup": "0::/system.slice/postgresql.service",
    "/sys/fs/cgroup/system.slice/postgresql.service/io.stat": "\n".join([
        "8:0 rbytes=1000 wbytes=10 rios=5 wios=1 dbytes=0 dios=0",
        "253:0 rbytes=1000 wbytes=12 rios=6 wios=2 dbytes=0 dios=0",
        "7:0 rbytes=400 wbytes=0 rios=2 wios=0 dbytes=0 dios=0",
        "8:16 ",
    ]),
}
V1 = {
    "/proc/self/mountinfo": "36 25 0:31 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio",
    "/proc/42/cgroup": "7:blkio:/postgresql\n0::/",
    "/sys/fs/cgroup/blkio/postgresql/blkio.throttle.io_service_bytes_recursive": "\n".join(
        "%s Read %d\n%s Write %d\n%s Total 9" % (number, read, number, written, number)
        for number, read, written in (("8:0", 1000, 10), ("253:0", 1000, 12), ("7:0", 400, 0))
    ) + "\nTotal 27",
    "/sys/fs/cgroup/blkio/postgresql/blkio.throttle.io_serviced_recursive": "8:0 Read 5\n8:0 Write 1\n253:0 Read 6\n253:0 Write 2\nTotal 14",
}


@pytest.mark.parametrize("files", [V1, V2], ids=["version 1", "version 2"])
def test_a_cgroup_counts_each_layer_and_we_one(machine, files):
    layered(machine, files)
    assert _io_reading.cgroup(42, ["dm-0"]) == {"dm-0": (6, 1000, 2, 12)}
    assert _io_reading.cgroup(42, ["sda1"]) == {"sda": (5, 1000, 1, 10)}, "the line is its disk's"
    assert _io_reading.cgroup(42, []) == {"sda": (5, 1000, 1, 10)}, "unknown: at the disks, and not again at loop devices"


@pytest.mark.parametrize("volume", ["dm-0", "loop0"])
def test_a_layer_without_a_count(machine, volume):
    """Linux 6.10 counts for version 1 only at devices that once had a limit."""
    layered(machine, {name: "\n".join(line for line in text.splitlines() if line[:1] not in "27") for name, text in V1.items()})
    machine.write("/proc/42/cgroup", V1["/proc/42/cgroup"])
    machine.write("/proc/self/mountinfo", V1["/proc/self/mountinfo"] + "\n40 1 8:1 / /data rw - ext4 /dev/sda1 rw")
    assert _io_reading.cgroup(42, [volume]) == {"sda": (5, 1000, 1, 10)}
    assert _io_reading.cgroup(42, ["sda1", volume]) == {"sda": (5, 1000, 1, 10)}, "once"


def test_no_cgroup_of_its_own(machine):
    layered(machine, dict(V2, **{"/proc/42/cgroup": "0::/"}))
    assert _io_reading.cgroup(42, ["dm-0"]) is None
    machine.write("/proc/42/cgroup", "0::/elsewhere")
    assert _io_reading.cgroup(42, ["dm-0"]) is None


def test_processes_of_others_in_the_cgroup(machine, monkeypatch):
    layered(machine, V2)
    machine.write("/sys/fs/cgroup/system.slice/postgresql.service/cgroup.procs", "42\n43\n77")
    machine.write("/sys/fs/cgroup/system.slice/postgresql.service/below/cgroup.procs", "78")
    monkeypatch.setattr(_processes, "everyone", lambda: [_processes.Process(pid, 1, parent, "postgres", "") for pid, parent in ((42, 1), (43, 42), (77, 1))])
    assert _io_reading.foreign(42, _io_reading.cgroup_folder(42)) == 2


def test_pressure_and_refaults(machine):
    machine.write("/proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=40967787\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=20733933")
    machine.write("/proc/vmstat", "pgpgin 5\npgmajfault 8\nworkingset_refault_anon 3\nworkingset_refault_file 7")
    assert _io_reading.pressure() == {"io_some": 40967787, "io_full": 20733933}
    assert _io_reading.refaults() == {"refaulted_pages": 7, "major_faults": 8}
    machine.write("/proc/vmstat", "workingset_refault 7")
    assert _io_reading.refaults() == {"refaulted_pages": 7}
