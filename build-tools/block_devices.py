"""Runs in the machine of build-tools/block_devices: whether the disks that _devices finds below a path are those that its reads go to.

The kernel's own counters decide: a file is written past the page cache, read again, and the disks that have counted that are the true ones.
"""

from __future__ import annotations

import mmap
import os
import sys
import traceback
from typing import Callable, Dict, List, Set, Tuple

sys.path.insert(0, "/machine")
from ansible_collections.pgfleet.cache.plugins.module_utils import _devices, _io_reading, _proc

MIB = 1 << 20
SIZE = 16 * MIB
NOISE = MIB

# directory, volumes, kinds from top to bottom, disks
LAYOUTS: Tuple[Tuple[str, List[str], List[str], List[str]], ...] = (
    ("/data", ["crypt"], ["crypt", "lvm", "raid1", "partition", "disk", "partition", "disk"], ["vda", "vdb"]),
    ("/partition", ["partition"], ["partition", "disk"], ["vda"]),
    ("/loop", ["loop"], ["loop"], ["loop0"]),
    ("/btrfs/data", ["crypt", "disk"], ["crypt", "disk", "disk"], ["vdc", "vdd"]),
    ("/thin", ["lvm"], ["lvm", "lvm", "lvm", "lvm", "disk"], ["nvme0n1"]),
    ("/paths", ["multipath"], ["multipath", "disk", "disk"], ["sda", "sdb"]),
)
NOWHERE = (("/overlay", "overlay shows files"), ("/memory", "tmpfs is in memory"))


def beneath(path: str) -> _devices.Beneath:
    return _devices.beneath(path, _devices.number_of(path), _proc.mounts())


def write(path: str) -> str:
    path = os.path.join(path, "file")
    with open(path, "wb") as file:
        for _part in range(SIZE // MIB):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())
    return path


def read(path: str) -> None:
    """Past the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, MIB)
    try:
        while os.readv(descriptor, [buffer]):
            pass
    finally:
        os.close(descriptor)


def counted() -> Dict[str, int]:
    """Bytes read from each device that is on no other, from /sys/block/*/stat, which _io_reading does not use."""
    found = {}
    for name in os.listdir("/sys/block"):
        if not os.listdir("/sys/block/%s/slaves" % name):
            with open("/sys/block/%s/stat" % name, encoding="ascii") as file:
                found[name] = int(file.read().split()[2]) * 512
    return found


def test_layout(path: str, volumes: List[str], kinds: List[str], disks: List[str]) -> None:
    found = beneath(path)
    equal([_devices.kind_of(name) for name in found.volumes], volumes)
    equal([layer.kind for layer in found.layers], kinds)
    equal(list(found.disks), disks)
    file = write(path)
    before, readings = counted(), [_io_reading.disks(found.disks)]
    read(file)
    after = counted()
    readings.append(_io_reading.disks(found.disks))
    served: Set[str] = {name for name, size in after.items() if size - before[name] > NOISE}
    if path == "/loop":  # its file is on the disks of /data, where the kernel counts it once more
        served -= set(beneath("/data").disks)
    # a mirror is read on one side, or on both
    equal(served <= set(disks) and bool(served), True)
    total = sum(readings[1][name].read_bytes - readings[0][name].read_bytes for name in disks)
    equal(SIZE <= total <= SIZE + NOISE, True)
    equal(sum(after[name] - before[name] for name in disks), total)


def test_nowhere(path: str, reason: str) -> None:
    found = beneath(path)
    equal((found.disks, found.volumes), ((), ()))
    equal((found.reason or "").startswith(reason), True)


def test_cgroup(path: str) -> None:
    """A cgroup counts a read once for each layer."""
    folder = "/sys/fs/cgroup/test"
    os.makedirs(folder, exist_ok=True)
    put("/sys/fs/cgroup/cgroup.subtree_control", "+io")
    volumes = beneath(path).volumes
    file = write(path)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            put(folder + "/cgroup.procs", str(os.getpid()))
            before = _io_reading.cgroup(os.getpid(), volumes) or {}
            read(file)
            after = _io_reading.cgroup(os.getpid(), volumes) or {}
            served = sum(one.read_bytes - (before[name].read_bytes if name in before else 0) for name, one in after.items())
            with open(folder + "/io.stat", encoding="ascii") as lines:
                content = lines.read()
            if SIZE <= served <= SIZE + NOISE:
                status = 0
            else:
                print("  %s: %d of %d\n  %s" % (path, served, SIZE, content.replace("\n", "\n  ")))
        finally:
            sys.stdout.flush()
            os._exit(status)
    equal(os.waitpid(child, 0)[1], 0)


def put(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError("%r, and not %r" % (found, expected))


def main() -> None:
    tests: List[Tuple[str, Callable[[], None]]] = []
    for layout in LAYOUTS:
        tests.append((layout[0], lambda layout=layout: test_layout(*layout)))  # type: ignore[misc]
        tests.append(("cgroup on " + layout[0], lambda layout=layout: test_cgroup(layout[0])))  # type: ignore[misc]
    for nowhere in NOWHERE:
        tests.append((nowhere[0], lambda nowhere=nowhere: test_nowhere(*nowhere)))  # type: ignore[misc]
    failed = 0
    for name, test in tests:
        try:
            test()
            print("ok      " + name)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print("FAILED  %s\n  %s" % (name, traceback.format_exc().replace("\n", "\n  ")))
    print("== %d passed, %d failed" % (len(tests) - failed, failed), flush=True)


main()
