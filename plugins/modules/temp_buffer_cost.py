#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: temp_buffer_cost
short_description: Measure what it costs to flush the local buffers of a temporary table
version_added: 0.3.0
description:
  - Measures, for each of O(sizes), how long PostgreSQL takes to flush the local buffers of a temporary table, and to read the table again. Before
    parallel workers can scan a temporary table, its local buffers must be flushed, and a planner needs the price of that in units of a
    sequential read.
  - "One iteration of a size, each statement by C(EXPLAIN (ANALYZE, BUFFERS)) in one session: fill a temporary table that fits into the local
    buffers, flush it, flush again (dry write), evict, read sequentially, read again (dry read), evict, read in random order, dirty all, flush in
    that order (random write)."
  - Checks that each statement did what it is called. A flush writes as many blocks as were dirty, a dry run writes and reads nothing, and after an
    eviction every block is read.
  - Returns what storage is below the temporary tables, and whether writes reached the device or only the page cache. The role
    P(pgfleet.cache.cache_temp_buffer_cost#role) fits the coefficients on the controller.
  - Changes nothing. If the module is ended, the server process of its session ends within a second or with its statement, and the temporary table
    with it. If the connection of Ansible is lost, the module goes on, at most until O(time_limit), or until somebody ends its sessions.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  sizes:
    description:
      - Sizes of the table, at most 100, in blocks of 8 kB, from 128 to 4194304. By default the powers of two from 128 (1 MB) to 262144 (2 GB).
    type: list
    elements: int
  iterations:
    description:
      - Iterations of each size, from 1 to 1000. By default 30. The iterations of different sizes take turns.
    type: int
  quick:
    description:
      - Measure five sizes from 1 MB to 256 MB with 5 iterations, in about a minute. Cannot be used with O(sizes) and O(iterations).
    type: bool
    default: false
  dependents:
    description:
      - Store half of the table apart (TOAST), with an index on the table, and flush, read and evict these too.
    type: bool
    default: false
  reach:
    description:
      - V(page_cache) measures what a statement of PostgreSQL takes, as the published benchmark does. Writes end in the page cache of the kernel,
        and reads come from there.
      - V(device) makes both reach the device. The time of C(fdatasync) for the files of the temporary table is added to a flush, and before reads
        these files are evicted from the page cache. PostgreSQL never syncs temporary tables, so nothing else is written, and no error of a write is
        taken from the checkpointer. The times are those of the storage, and not those that a query meets.
    type: str
    choices: [page_cache, device]
    default: page_cache
  tablespace:
    description:
      - Tablespace of the temporary table. By default the one in C(temp_tablespaces), else the default tablespace of the database.
      - Required if C(temp_tablespaces) names several.
    type: str
  rate:
    description:
      - Bytes per second that the measurement may write on average. It pauses between iterations, never in one. An iteration writes at full speed, up
        to four times its size.
    type: str
    default: 200MB
  time_limit:
    description:
      - Duration after which the measurement ends with what it has, at most 7 days. It ends earlier if O(rate) allows no further iteration before.
        No iteration begins that would take longer than the one before of the same size.
    type: str
    default: 1h
  seed:
    description:
      - Seed of the random order of the first iteration. Each next one has the next seed.
    type: int
    default: 0
  progress:
    description:
      - Name under which the module notes its progress. Set by the action plugin, which shows it every 10 % or 30 s.
    type: str
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
notes:
  - Runs as the operating system user of the cluster on its host, as it looks at the files of its temporary table.
  - The login role needs C(pg_monitor) and the right to create temporary tables in the database. The extension must be in the database.
  - Needs the memory of the largest size twice, as local buffers and in the page cache, and its disk space once. Both are checked before.
  - Uses all the I/O that the host has for a moment. Do not run it on a busy server.
seealso:
  - module: pgfleet.cache.physical_io_info
"""

EXAMPLES = r"""
- name: Measure in about a minute
  pgfleet.cache.temp_buffer_cost:
    quick: true
  become: true
  become_user: postgres

- name: Measure as far as the device, in a tablespace on another disk
  pgfleet.cache.temp_buffer_cost:
    sizes: [1024, 8192, 65536]
    iterations: 10
    reach: device
    tablespace: fast
    time_limit: 20min
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Summary in one or two sentences.
  returned: always
  type: str
  sample: >-
    Measured 5 sizes of 1.00 MB to 256 MB, 5 iterations each in 41 s. At 256 MB a flush took 3.01 us per block, a sequential read 2.61 us: 1.15
    times as long.
server_version:
  description: Version of PostgreSQL.
  returned: always
  type: str
  sample: "15.8"
block_size:
  description: Block size of the server, in bytes.
  returned: always
  type: int
  sample: 8192
checksums:
  description: Whether the cluster has data checksums, which a flush computes and a read verifies.
  returned: always
  type: bool
  sample: false
io_method:
  description: The setting C(io_method), V(sync) before PostgreSQL 18.
  returned: always
  type: str
  sample: sync
database:
  description: Database of the temporary table.
  returned: always
  type: str
  sample: postgres
tablespace:
  description: Tablespace of the temporary table.
  returned: always
  type: str
  sample: pg_default
storage:
  description: What is below it.
  returned: always
  type: dict
  contains:
    path:
      description: Directory of the tablespace.
      type: str
    mount:
      description: Mount point of its file system.
      type: str
    filesystem:
      description: Type of the file system.
      type: str
    kind:
      description:
        - V(rotational), V(solid state), V(nvme), V(virtual) (a hypervisor's disk, whose kind the kernel does not know), V(network), V(memory) or
          V(unknown). Several if there are disks of several kinds.
      type: str
    volumes:
      description: Block devices right below the file system.
      type: list
      elements: str
    layers:
      description: Kinds of the block devices from top to bottom, such as V(lvm), V(partition), V(loop), V(disk).
      type: list
      elements: str
    disks:
      description: The disks, with the kernel's flag C(rotational) and the I/O scheduler. For a loop device, those of its file.
      type: list
      elements: dict
    limits:
      description: Limits of the server's cgroups on these devices, in bytes and requests per second. Limits of a cloud or hypervisor are not visible.
      type: list
      elements: dict
    reason:
      description: Why no disk is known, if there is none.
      type: str
  sample: {
    "path": "/var/lib/postgresql/15/main/base", "mount": "/", "filesystem": "ext4", "kind": "nvme", "volumes": ["nvme0n1p1"],
    "layers": ["partition", "disk"], "disks": [{"name": "nvme0n1", "rotational": false, "scheduler": "none"}], "limits": [], "reason": null
  }
reach:
  description: The option.
  returned: always
  type: str
  sample: page_cache
reached:
  description:
    - Where what was written is when the measured time ends. V(page_cache), V(device), V(partly_device), V(memory) for a file system in memory, or
      V(unknown). V(null) in check mode.
  returned: always
  type: str
  sample: page_cache
dependents:
  description: The option.
  returned: always
  type: bool
  sample: false
sizes:
  description: Blocks of each requested size.
  returned: always
  type: list
  elements: int
  sample: [128, 512, 2048, 8192, 32768]
iterations:
  description: Requested iterations of each size.
  returned: always
  type: int
  sample: 5
disk_bytes:
  description: Disk space that the largest size needs.
  returned: always
  type: int
  sample: 300000000
memory_bytes:
  description: Memory that the largest size needs, as local buffers and in the page cache.
  returned: always
  type: int
  sample: 600000000
seconds:
  description: Duration of the measurement. V(null) in check mode.
  returned: always
  type: float
  sample: 41.3
complete:
  description: Whether every size has all of its iterations.
  returned: always
  type: bool
  sample: true
measurements:
  description: What was measured, by size.
  returned: always
  type: list
  elements: dict
  contains:
    blocks:
      description: The requested size.
      type: int
    iterations:
      description: Completed iterations.
      type: int
    buffers:
      description: Local buffers that the session had allocated, all of which a flush looks at.
      type: int
    written:
      description: Blocks that the first flush wrote. The free space map makes them a few more than the table has.
      type: int
    read:
      description: Blocks that a read of the table read, with O(dependents) those of the TOAST table and of the indexes too.
      type: int
    random_written:
      description: Blocks that the flush in random order wrote.
      type: int
    microseconds:
      description:
        - "For C(write), C(dry_write), C(read), C(dry_read), C(random_read) and C(random_write), microseconds per block: the median, the median
          absolute deviation (C(mad)), the quartiles (C(low), C(high)) and all values. Of C(dry_write), per local buffer."
      type: dict
    written_back_percent:
      description: Percent of the first flush that no longer was in the page cache as unwritten at its end, by C(cachestat). V(null) before Linux 6.5.
      type: float
    device_write_percent:
      description: Bytes that the volumes wrote during the first flush, also for others, in percent of the flush.
      type: float
    device_read_percent:
      description: Bytes that the kernel fetched from the device for the sequential read, in percent of the table. Read-ahead can make it more than 100.
      type: float
    processor_wait_percent:
      description: Percent of the time of an iteration in which the server process could run and waited for a processor. V(null) if the kernel counts none.
      type: float
    swapped_pages:
      description: Pages that the host swapped in and out meanwhile. If there are any, the times are not those of the storage.
      type: int
  sample: [{
    "blocks": 128, "iterations": 1, "buffers": 131, "written": 131, "read": 128, "random_written": 128, "microseconds": {
      "write": {"median": 3.1, "mad": 0.0, "low": 3.1, "high": 3.1, "values": [3.1]}
    }, "written_back_percent": 0.0, "device_write_percent": 0.0, "device_read_percent": 0.0, "processor_wait_percent": 0.4, "swapped_pages": 0
  }]
remarks:
  description: What to know about the figures.
  returned: always
  type: list
  elements: str
  sample: ["writes reached the page cache and not the device"]
"""

from functools import partial
from typing import Any, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish
from ansible_collections.pgfleet.cache.plugins.module_utils._temp_buffer_cost import (
    RATE,
    TIME_LIMIT,
    Options,
    empty_result,
    measure,
)


def run(module: Module) -> Dict[str, Any]:
    return measure(options_of(Options, module.params), partial(connect, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            sizes={"type": "list", "elements": "int"},
            iterations={"type": "int"},
            quick={"type": "bool", "default": False},
            dependents={"type": "bool", "default": False},
            reach={"type": "str", "choices": ["page_cache", "device"], "default": "page_cache"},
            tablespace={"type": "str"},
            rate={"type": "str", "default": RATE},
            time_limit={"type": "str", "default": TIME_LIMIT},
            seed={"type": "int", "default": 0},
            progress={"type": "str"},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
