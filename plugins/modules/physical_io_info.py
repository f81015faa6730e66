#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: physical_io_info
short_description: Measure how many of the reads that PostgreSQL counts the disks serve
version_added: 0.3.0
description:
  - PostgreSQL reads through the page cache, so that only a part of the reads that it counts reaches a disk. Over a window, the module
    compares PostgreSQL's statistics with the kernel's counters of the disks below the data directory, the WAL and each tablespace.
  - The window is a duration, or everything that a play does between O(state=begin) and O(state=end).
  - The disks are found through partitions, LVM, dm-crypt, MD RAID and multipath, and through the devices of a btrfs. A file system
    without a disk that this kernel counts (overlay, tmpfs, NFS and others) is named in RV(locations[].unmeasurable) and RV(gaps). Its figures are
    V(null), and not 0.
  - If a counter began anew inside the window, the figures that need it are V(null), and RV(gaps) names the reason. Such reasons are a restart or a
    crash of PostgreSQL, a reset of its statistics, a dropped database, a device that went away or was exchanged, and a counter that wrapped.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  duration:
    description:
      - Length of the window, from 1 second to 30 minutes, such as V(60s) or V(5 min). For a longer window, use O(state).
    type: str
  state:
    description:
      - V(begin) reads all counters and returns them in RV(reading).
      - V(end) reads them again and returns the figures since O(reading).
    type: str
    choices: [begin, end]
  reading:
    description:
      - RV(reading) of the task with O(state=begin), for O(state=end). The host keeps no file.
    type: dict
  settle:
    description:
      - Seconds to wait at most at each end of the window until PostgreSQL's statistics are complete, from 0 to 60.
      - A session reports its counts to the statistics when a transaction ends, but at most once per second, and what is left 10 seconds after it
        has become idle. The module waits for sessions that have been idle for less than 10 seconds. It does not wait while a session runs a
        statement, because that session would report reads after the window. RV(remarks) names what may be missing.
      - If other sessions run statements while the module waits at the end, their reads arrive too. The window then ends with the wait, for all counters.
    type: int
    default: 11
attributes:
  check_mode:
    support: full
    details:
      - Measures as without check mode.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Never changes anything.
notes:
  - Run it on the server's host as the cluster's operating system user, or as root. The kernel shows the reads of a process to no other user.
  - Root must log in over the Unix socket. The module becomes the user that listens there, and measures as that user.
  - The login role needs C(pg_monitor) to see whether the statistics of other sessions are complete. No extension is needed.
  - Reads of others on the same disks are detected in bytes, from three counters that include each other, those of the disks, those of
    the volumes that the cluster's file systems are on, and those of the server's processes in C(/proc/<pid>/io). The kernel does not count requests
    by process. If the server has a cgroup of its own, RV(cgroup) has its requests, before the kernel merged them.
  - The kernel counts RV(writes.server_bytes) when a process writes to the page cache. The bytes reach the disk later, possibly after the window.
seealso:
  - module: pgfleet.cache.query_io
  - module: pgfleet.cache.page_cache_limit
"""

EXAMPLES = r"""
- name: Measure for one minute
  pgfleet.cache.physical_io_info:
    duration: 60s
  become: true
  become_user: postgres
  register: physical

- name: Show how many of the counted reads the disks served
  ansible.builtin.debug:
    msg: "{{ physical.reads.riops }} reads/s counted, {{ physical.reads.rpiops }} served: {{ physical.msg }}"

- name: Begin a window
  pgfleet.cache.physical_io_info:
    state: begin
  become: true
  become_user: postgres
  register: begun

- name: Run a report
  ansible.builtin.command: /usr/local/bin/nightly-report
  changed_when: true

- name: End the window
  pgfleet.cache.physical_io_info:
    state: end
    reading: "{{ begun.reading }}"
  become: true
  become_user: postgres
  register: physical
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
  returned: always
  type: str
  sample: "In 2 min 0 s, PostgreSQL counted 436964 reads/s and the disks served 301599/s; at least 30.97 % of its bytes came from the page cache."
data_directory:
  description: The data directory.
  returned: always
  type: str
  sample: /var/lib/postgresql/18/main
server_version:
  description: Version of PostgreSQL.
  returned: always
  type: str
  sample: "18.6"
io_method:
  description: The server's I/O method. V(sync), each process reads for itself, before PostgreSQL 18.
  returned: always
  type: str
  sample: worker
reading:
  description: With O(state=begin) all counters, for O(state=end). Its content may differ between versions of the collection.
  returned: always
  type: dict
  sample: null
window:
  description: Begin and end of the window, and its length in seconds.
  returned: always
  type: dict
  sample: {"begin": "2026-11-24 06:00:00Z", "end": "2026-11-24 06:02:00Z", "seconds": 120.004}
locations:
  description: Where the data directory, the WAL and each tablespace are.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: V(data), V(wal) or V(tablespace).
      type: str
    path:
      description: The directory, without links.
      type: str
    tablespace:
      description: OID of the tablespace.
      type: int
    mount:
      description: Mount point of its file system.
      type: str
    filesystem:
      description: Type of its file system.
      type: str
    source:
      description: Source of the mount, as the table of mounts has it.
      type: str
    volumes:
      description: Devices that the file system is on. Several with btrfs.
      type: list
      elements: str
    disks:
      description: Disks below them.
      type: list
      elements: str
    layers:
      description: All devices from top to bottom, with their kind, such as V(lvm) or V(raid1), and the name or the file that is known to users.
      type: list
      elements: dict
    unmeasurable:
      description: Reason why no disk is known. V(null) if one is.
      type: str
  sample:
    - kind: data
      path: /var/lib/postgresql/18/main
      tablespace: null
      mount: /var/lib/postgresql
      filesystem: xfs
      source: /dev/mapper/vg-data
      volumes: [dm-0]
      disks: [sda, sdb]
      layers:
        - {device: dm-0, kind: lvm, alias: vg-data}
        - {device: md0, kind: raid1, alias: null}
        - {device: sda, kind: disk, alias: null}
        - {device: sdb, kind: disk, alias: null}
      unmeasurable: null
reads:
  description: Reads of the server and of its disks. V(null) for O(state=begin).
  returned: always
  type: dict
  contains:
    counted:
      description: Blocks that PostgreSQL read in all databases (C(blks_read) of C(pg_stat_database)), also those that the page cache had.
      type: int
    counted_bytes:
      description: The same in bytes.
      type: int
    riops:
      description: The same per second. SLOB and pgio call it RIOPS.
      type: float
    hits:
      description: Blocks found in the buffers of PostgreSQL.
      type: int
    hit_percent:
      description: Share of RV(reads.hits) in all blocks that were needed.
      type: float
    served:
      description: Reads that the disks completed, for any process.
      type: int
    served_bytes:
      description: Their bytes.
      type: int
    rpiops:
      description: RV(reads.served) per second.
      type: float
    ratio:
      description: RV(reads.counted) divided by RV(reads.served).
      type: float
    server_bytes:
      description: Bytes that the kernel charged to the server's processes. The page cache had the rest of what they read.
      type: int
    page_cache_bytes:
      description:
        - Lower bound of the counted bytes that came from the page cache, RV(reads.counted_bytes) minus RV(reads.server_bytes), and at least 0.
      type: int
    page_cache_percent:
      description: The same in percent of RV(reads.counted_bytes). V(null) if nothing was read.
      type: float
    over_read_bytes:
      description: Bytes that the server's processes got beyond RV(reads.counted_bytes), such as read-ahead, WAL and temporary files.
      type: int
    temp_bytes:
      description: Bytes of temporary files that were written. PostgreSQL does not count reads of these.
      type: int
  sample: {
    counted: 52437427, counted_bytes: 429567401984, riops: 436964.0, hits: 1254380, hit_percent: 2.33, served: 36193086, served_bytes: 296493760512,
    rpiops: 301599.0, ratio: 1.449, server_bytes: 296493301760, page_cache_bytes: 133074100224, page_cache_percent: 30.97, over_read_bytes: 0,
    temp_bytes: 0
  }
writes:
  description: Writes likewise. V(null) for O(state=begin).
  returned: always
  type: dict
  contains:
    counted:
      description:
        - Blocks of relations that PostgreSQL wrote or added (C(pg_stat_io), before PostgreSQL 16 C(pg_stat_bgwriter)), without WAL.
      type: int
    counted_bytes:
      description: The same in bytes.
      type: int
    wiops:
      description: The same per second.
      type: float
    wal_bytes:
      description: Bytes of WAL that were generated.
      type: int
    served:
      description: Writes that the disks completed, for any process.
      type: int
    served_bytes:
      description: Their bytes. Each copy of a RAID counts.
      type: int
    wpiops:
      description: RV(writes.served) per second.
      type: float
    ratio:
      description: RV(writes.counted) divided by RV(writes.served).
      type: float
    server_bytes:
      description:
        - Bytes of the page cache that the server's processes made dirty, without those that were removed before they reached a disk. What
          is written again before it reaches the disk counts once.
      type: int
  sample: {
    counted: 1024, counted_bytes: 8388608, wiops: 8.5, wal_bytes: 10485760, served: 650, served_bytes: 19922944, wpiops: 5.4, ratio: 1.575,
    server_bytes: 19005440
  }
others:
  description:
    - Reads of other processes from the same disks. V(null) if they cannot be told apart, because a figure is unknown or not all files are on disks
      that can be measured.
  returned: always
  type: dict
  contains:
    read_bytes:
      description: Bytes from the disks that were not charged to the server's processes.
      type: int
    read_percent:
      description: The same in percent of all that the disks served.
      type: float
    elsewhere_bytes:
      description: The part for other file systems, such as another partition or logical volume.
      type: int
    same_filesystems_bytes:
      description: The part in the cluster's file systems.
      type: int
  sample: {"read_bytes": 458752, "read_percent": 0.0, "elsewhere_bytes": 0, "same_filesystems_bytes": 458752}
certainty:
  description:
    - V(exact) if RV(reads.served) has at most 1 % or 1 MB of others, V(upper_bound) if it has more, V(unknown) if something in RV(gaps) prevents an
      answer. V(null) for O(state=begin).
  returned: always
  type: str
  sample: exact
gaps:
  description: What is unknown, and why.
  returned: always
  type: list
  elements: str
  sample: []
remarks:
  description: What to consider with the figures.
  returned: always
  type: list
  elements: str
  sample: []
disks:
  description: What each disk served, to any process.
  returned: always
  type: list
  elements: dict
  contains:
    device:
      description: Name of the device.
      type: str
    kind:
      description: V(disk), V(partition), V(lvm), V(crypt), V(multipath), V(loop), the level of a RAID or another kind.
      type: str
    alias:
      description: Name in C(/dev/mapper), or file of a loop device.
      type: str
    reads:
      description: Reads that were completed.
      type: int
    reads_per_second:
      description: The same per second.
      type: float
    reads_merged:
      description: Reads that the kernel merged into others.
      type: int
    read_bytes:
      description: Bytes read.
      type: int
    read_bytes_per_second:
      description: The same per second.
      type: float
    read_request_bytes:
      description: Mean size of a read.
      type: int
    read_milliseconds:
      description: Mean time of a read, including the time in the queue.
      type: float
    writes:
      description: As RV(disks[].reads), for writes. So are the further keys.
      type: int
    queue:
      description: Mean number of requests under way.
      type: float
    utilisation_percent:
      description: Share of the time with at least one request under way. A device that works on several at once can do more at 100.
      type: float
  sample:
    - {
        device: sda, kind: disk, alias: null, reads: 18096543, reads_per_second: 150799.5, reads_merged: 112, read_bytes: 148246880256,
        read_bytes_per_second: 1235349522.2, read_request_bytes: 8192, read_milliseconds: 0.21, writes: 650, writes_per_second: 5.4,
        writes_merged: 210, write_bytes: 19922944, write_bytes_per_second: 166018.9, write_request_bytes: 30650, write_milliseconds: 0.8,
        queue: 31.67, utilisation_percent: 100.0
      }
volumes:
  description: The same for the devices that the file systems are on. Equal to RV(disks) for a file system on a whole disk.
  returned: always
  type: list
  elements: dict
  sample: []
total:
  description: The sum of RV(disks), with the highest utilisation of all. Its figures are V(null) if those of one disk are.
  returned: always
  type: dict
  sample: {"reads": 36193086, "read_milliseconds": 0.21, "queue": 63.3, "utilisation_percent": 100.0}
cgroup:
  description:
    - What the kernel counted for the server's cgroup at RV(volumes), and the processes in it that are not the server's. V(null) if nothing counts
      for this cgroup alone.
  returned: always
  type: dict
  sample: {"reads": 36193198, "read_bytes": 296493301760, "writes": 860, "write_bytes": 19922944, "foreign_processes": 0}
pg_stat_io:
  description: Difference of C(pg_stat_io) by object, writes with extensions. V(null) before PostgreSQL 16.
  returned: always
  type: list
  elements: dict
  sample:
    - {object: relation, reads: 52437427, read_bytes: 429567401984, writes: 1024, write_bytes: 8388608}
databases:
  description: Databases that were used in the window, those with the most reads first, at most 20.
  returned: always
  type: list
  elements: dict
  sample: [{"name": "pgio", "counted": 52437301, "hits": 1254100, "temp_bytes": 0}]
memory:
  description:
    - Of the whole host. Pages of files that were read again soon after the kernel had reclaimed them, and page faults that needed a read. Many
      refaults mean that the page cache is smaller than the working set.
  returned: always
  type: dict
  sample: {"refaulted_pages": 9120, "major_faults": 3}
pressure:
  description: Share of the window in which some or all tasks of the host waited for I/O or memory.
  returned: always
  type: dict
  sample: {"io_some_percent": 83.1, "io_full_percent": 41.7, "memory_some_percent": 0.2, "memory_full_percent": 0.1}
"""

from typing import Any, Dict, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._physical_io_info import Options, check_options, empty_result, look_as_owner
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    options = options_of(Options, module.params)
    check_options(options)

    def log_in(database: Optional[str]) -> Session:
        return connect(module.params, database)

    return look_as_owner(log_in, options)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            duration={"type": "str"},
            state={"type": "str", "choices": ["begin", "end"]},
            reading={"type": "dict"},
            settle={"type": "int", "default": 11},
        ),
        mutually_exclusive=[("duration", "state")],
        required_one_of=[("duration", "state")],
        required_if=[("state", "end", ["reading"])],
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
