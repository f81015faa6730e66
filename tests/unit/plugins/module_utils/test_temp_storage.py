# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _proc
from ansible_collections.pgfleet.cache.plugins.module_utils import _temp_storage as storage
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.machines import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(_proc, "_SYSTEM", str(tmp_path))
    return Machine(str(tmp_path))


def described(monkeypatch, device, postmaster=77):
    monkeypatch.setattr(_devices, "number_of", lambda path: device)
    return storage.describe("/data/base", postmaster)


@pytest.mark.parametrize(("name", "rotational", "kind"), [
    ("sda", "1", "rotational"), ("sda", "0", "solid state"), ("nvme0n1", "0", "nvme"), ("vda", "1", "virtual"), ("xvdf", "0", "virtual"),
    ("rbd0", "1", "network"), ("nbd1", "0", "network"), ("ram0", "0", "memory"),
])
def test_kind(machine, monkeypatch, name, rotational, kind):
    """A hypervisor's disk says rotational by default, whatever it is on."""
    machine.disk(name, "8:0", queue__rotational=rotational, queue__scheduler="none [mq-deadline] kyber")
    machine.mount("8:0", "/data", "ext4", "/dev/" + name)
    found = described(monkeypatch, "8:0")
    assert (found["kind"], found["filesystem"], found["volumes"]) == (kind, "ext4", [name])
    assert found["disks"] == [{"name": name, "rotational": rotational == "1", "scheduler": "mq-deadline"}]


def test_a_loop_device_is_on_the_disk_of_its_file(machine, monkeypatch):
    machine.disk("sda", "8:0", queue__rotational="1")
    machine.device("loop3", "7:3", loop__backing_file="/images/x", queue__rotational="0")
    machine.mount("8:0", "/", "ext4", "/dev/sda")
    machine.mount("7:3", "/data", "xfs", "/dev/loop3")
    found = described(monkeypatch, "7:3")
    assert (found["kind"], found["layers"], found["volumes"]) == ("rotational", ["loop"], ["loop3"])


@pytest.mark.parametrize(("filesystem", "kind"), [("tmpfs", "memory"), ("nfs4", "network"), ("fuse.sshfs", "network"), ("overlay", "unknown")])
def test_without_a_disk(machine, monkeypatch, filesystem, kind):
    machine.mount("0:44", "/data", filesystem, "x")
    found = described(monkeypatch, "0:44")
    assert found["kind"] == kind and found["disks"] == [] and found["reason"]


def test_several_kinds(machine, monkeypatch):
    machine.disk("sda", "8:0", queue__rotational="1")
    machine.disk("sdb", "8:16", queue__rotational="0")
    machine.device("md0", "9:0", on=["sda", "sdb"], md__level="raid1")
    machine.mount("9:0", "/data", "ext4", "/dev/md0")
    assert described(monkeypatch, "9:0")["kind"] == "rotational and solid state"


@pytest.mark.parametrize("version", [1, 2])
def test_limits(machine, monkeypatch, version):
    """The tightest limit of the cgroup and those above it, without other devices."""
    machine.disk("sda", "8:0", queue__rotational="1")
    machine.partition("sda1", "8:1", "sda")
    machine.mount("8:1", "/data", "ext4", "/dev/sda1")
    if version == 1:
        machine.mount("0:30", "/sys/fs/cgroup/blkio", "cgroup", "cgroup", "rw,blkio")
        machine.write("/proc/77/cgroup", "9:blkio:/db/one")
        machine.write("/sys/fs/cgroup/blkio/db/one/blkio.throttle.read_iops_device", "8:0 3000\n8:16 5")
        machine.write("/sys/fs/cgroup/blkio/db/blkio.throttle.read_iops_device", "8:0 2000")
        machine.write("/sys/fs/cgroup/blkio/db/blkio.throttle.write_bps_device", "8:0 125000000")
    else:
        machine.mount("0:30", "/sys/fs/cgroup", "cgroup2", "cgroup2")
        machine.write("/proc/77/cgroup", "0::/db/one")
        machine.write("/sys/fs/cgroup/db/one/io.max", "8:0 rbps=max wbps=125000000 riops=3000 wiops=max\n8:16 riops=5")
        machine.write("/sys/fs/cgroup/db/io.max", "8:0 riops=2000")
    found = described(monkeypatch, "8:1")
    assert found["limits"] == [{"device": "sda", "read_bps": None, "write_bps": 125000000, "read_iops": 2000, "write_iops": None}]


def test_no_limits(machine, monkeypatch):
    machine.disk("sda", "8:0", queue__rotational="1")
    machine.mount("8:0", "/data", "ext4", "/dev/sda")
    assert described(monkeypatch, "8:0")["limits"] == []


def test_files_of(tmp_path):
    """Forks and segments of one relation, and nothing that only begins alike."""
    own = ["t3_100", "t3_100.1", "t3_100_fsm", "t3_100_vm", "t3_100_fsm.1"]
    for name in [*own, "t3_1001", "t3_100_init", "t3_100.x", "xt3_100", "t13_100"]:
        (tmp_path / name).write_text("")
    assert sorted(os.path.basename(path) for path in storage.files_of([str(tmp_path / "t3_100")])) == sorted(own)


def test_no_link_is_followed(tmp_path):
    (tmp_path / "other").write_text("x")
    (tmp_path / "t3_1").symlink_to(tmp_path / "other")
    for work in (storage.sync, storage.evict):
        with pytest.raises(OSError, match="symbolic links"):
            work([str(tmp_path / "t3_1")])


def test_counters_of_the_kernel(system):
    system("proc/vmstat", "nr_free_pages 5\npswpin 7\npswpout 9")
    system("proc/12/schedstat", "760927 2500000000 2")
    assert storage.swapped() == 16 and storage.queued(12) == 2.5 and storage.queued(13) is None
