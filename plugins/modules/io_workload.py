#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: io_workload
short_description: Load and run a workload that drives I/O, by the SLOB method
version_added: 0.3.0
description:
  - Creates tables with one row in each block of 8 kB, and reads ranges of their keys through an index, so that a range of
    O(work_unit) keys is as many blocks at random. Nearly all the work is I/O, as with pgio, the SLOB method for PostgreSQL.
  - O(state=present) loads the tables if they are not there, in parallel. Tables of the same O(scale) are reused, those of another scale
    or of an interrupted load are replaced. The free space is checked before anything is changed.
  - O(state=run) runs the sessions with C(pgbench) for O(run_time), and returns what each of them did. pgbench's log is read in memory
    while it grows, so the run writes nothing but what the updates write.
  - Runs on the host independently of the connection of Ansible. If that is lost, a load or run goes on to its end.
    Only one load or run at a time works in a database.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  state:
    description:
      - V(present) loads what is missing, V(run) runs the workload on loaded tables, V(absent) removes all of them with their schema.
    type: str
    choices: [present, run, absent]
    default: present
  schema:
    description:
      - Schema of the tables C(pgio1), C(pgio2) and so on. Must belong to the login role, or not exist.
      - Must be for the load alone, where no other role has rights, and not be C(public).
    type: str
    default: pgfleet_io
  schemas:
    description:
      - Number of tables, which pgio calls schemas.
    type: int
    default: 4
    aliases: [num_schemas]
  scale:
    description:
      - Size of each of them, as a number of blocks of 8 kB, or in C(M), C(G) or C(T). At least 1024 blocks.
    type: str
    default: 1G
  sessions:
    description:
      - Sessions on each table. All connections together must fit into C(max_connections).
    type: int
    default: 1
    aliases: [num_threads]
  load_sessions:
    description:
      - Tables that are loaded at the same time.
    type: int
    default: 2
  load_timeout:
    description:
      - Duration after which a load ends with an error. Tables that are complete by then remain, and the next load adds the others.
    type: str
    default: 6h
  run_time:
    description:
      - Duration of a run, such as V(120s) or V(10min). A plain number is in seconds.
    type: str
    default: 120s
  work_unit:
    description:
      - Blocks that a C(SELECT) reads.
    type: int
    default: 255
  update_pct:
    description:
      - Percentage of transactions that are an C(UPDATE).
    type: int
    default: 0
  update_work_unit:
    description:
      - Blocks that an C(UPDATE) changes.
    type: int
    default: 8
  seed:
    description:
      - Seed of the random ranges. The same seed gives each session the same sequence of ranges.
    type: int
    default: 0
  pgbench:
    description:
      - Path of C(pgbench) on the host. By default, that of the server's major version, else the one in C(PATH).
    type: path
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
    support: partial
    details: Loading and removing are idempotent. A run with updates changes rows each time.
notes:
  - The login role needs the right to create a schema, and C(pg_checkpoint) or superuser for the checkpoint after a load.
  - In O(state=run) without updates, the host may be a standby.
seealso:
  - module: pgfleet.cache.page_cache_limit
  - name: SLOB, the method
    description: pgio, the SLOB method for PostgreSQL.
    link: https://github.com/therealkevinc/pgio
"""

EXAMPLES = r"""
- name: Load 16 schemas of 8 GB
  pgfleet.cache.io_workload:
    login_db: pgio
    schemas: 16
    scale: 8G
    load_sessions: 8

- name: Run 8 sessions on each of them for two minutes
  pgfleet.cache.io_workload:
    state: run
    login_db: pgio
    schemas: 16
    scale: 8G
    sessions: 8
    run_time: 120s
    update_pct: 10
  register: load

- name: Remove them
  pgfleet.cache.io_workload:
    state: absent
    login_db: pgio
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
  returned: always
  type: str
  sample: >-
    4 sessions on 4 schemas of 128 MB each in 10.0 s: 6480 selects, 0 updates, 1652400 blocks touched, 165240 per second; the slowest
    select took 12 ms.
state:
  description: The requested state.
  returned: always
  type: str
  sample: run
schemas:
  description: Number of tables. With O(state=absent), of those that were complete.
  returned: always
  type: int
  sample: 4
blocks:
  description: Blocks of 8 KiB of each of them. V(null) with O(state=absent).
  returned: always
  type: int
  sample: 16384
bytes:
  description: Size of all of them, without their indexes.
  returned: always
  type: int
  sample: 536870912
loaded:
  description: Number of tables that were loaded by this call.
  returned: always
  type: int
  sample: 0
seconds:
  description: Duration of the load, or of the run, from the begin of the first transaction to the end of the last. V(null) if there was neither.
  returned: always
  type: float
  sample: 10.01
sessions:
  description: What each session did.
  returned: always
  type: list
  elements: dict
  contains:
    schema:
      description: Number of its table.
      type: int
    session:
      description: Number among the sessions on this table.
      type: int
    selects:
      description: Completed C(SELECT) statements.
      type: int
    updates:
      description: Completed C(UPDATE) statements.
      type: int
    select_blocks:
      description: Blocks of 8 KiB that these read, by their work unit. The blocks of the index are not counted.
      type: int
    update_blocks:
      description: Blocks of 8 KiB that these changed, by their work unit.
      type: int
    slowest_select_ms:
      description: Slowest C(SELECT), in milliseconds. V(null) without any.
      type: float
    slowest_update_ms:
      description: Slowest C(UPDATE), in milliseconds. V(null) without any.
      type: float
    failed_transactions:
      description: Transactions that failed, and are not counted above.
      type: int
  sample: [{
    "schema": 1, "session": 1, "selects": 1620, "updates": 0, "select_blocks": 413100, "update_blocks": 0, "slowest_select_ms": 12.4,
    "slowest_update_ms": null, "failed_transactions": 0
  }]
selects:
  description: Completed C(SELECT) statements of all sessions. V(null) without a run.
  returned: always
  type: int
  sample: 6480
updates:
  description: Completed C(UPDATE) statements of all sessions. V(null) without a run.
  returned: always
  type: int
  sample: 0
select_blocks:
  description: Blocks of 8 KiB read by them. V(null) without a run.
  returned: always
  type: int
  sample: 1652400
update_blocks:
  description: Blocks of 8 KiB changed by them. V(null) without a run.
  returned: always
  type: int
  sample: 0
blocks_per_second:
  description: Blocks of 8 KiB read and changed, per second. V(null) without a run.
  returned: always
  type: int
  sample: 165240
slowest_select_ms:
  description: Slowest C(SELECT) of all sessions, in milliseconds. V(null) without any.
  returned: always
  type: float
  sample: 12.4
slowest_update_ms:
  description: Slowest C(UPDATE) of all sessions, in milliseconds. V(null) without any.
  returned: always
  type: float
  sample: null
failed_transactions:
  description: Transactions that failed. V(null) without a run.
  returned: always
  type: int
  sample: 0
queries:
  description: Statements that changed something, in their order. Rows are inserted in parts, of which the first is shown.
  returned: always
  type: list
  elements: str
  sample: ['CREATE SCHEMA "pgfleet_io"']
"""

from functools import partial
from typing import Any, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, for_libpq, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._io_workload import (
    LOAD_TIMEOUT,
    RUN_TIME,
    Options,
    empty_result,
    workload,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: Module) -> Dict[str, Any]:
    return workload(options_of(Options, module.params), partial(connect, module.params), partial(for_libpq, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            state={"type": "str", "choices": ["present", "run", "absent"], "default": "present"},
            schema={"type": "str", "default": "pgfleet_io"},
            schemas={"type": "int", "default": 4, "aliases": ["num_schemas"]},
            scale={"type": "str", "default": "1G"},
            sessions={"type": "int", "default": 1, "aliases": ["num_threads"]},
            load_sessions={"type": "int", "default": 2},
            load_timeout={"type": "str", "default": LOAD_TIMEOUT},
            run_time={"type": "str", "default": RUN_TIME},
            work_unit={"type": "int", "default": 255},
            update_pct={"type": "int", "default": 0},
            update_work_unit={"type": "int", "default": 8},
            seed={"type": "int", "default": 0},
            pgbench={"type": "path"},
            progress={"type": "str"},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
