#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: query_io
short_description: Run queries, and measure which cache they read from and how much came from the device
version_added: 0.2.0
description:
  - Runs queries under C(EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, FORMAT JSON)) with C(track_io_timing), each in its own
    read-only transaction. Returns for each run the time, the blocks that PostgreSQL found in its buffers, the blocks
    that it read, and how much of these reads the device served. The rest came from the operating system's page cache,
    which C(EXPLAIN) cannot see.
  - C(EXPLAIN ANALYZE) sends no rows, and so does not read large values that are stored apart (TOAST) and that only the client would see.
    From PostgreSQL 17 on, the module adds C(SERIALIZE TEXT), which reads them. Before, if a column of the result has a variable length, it runs the
    query inside another one that converts each column to text. The planner keeps the plan of the query below that one.
  - The bytes from the device are read from C(/proc/<pid>/io) of all processes of the server, before and after. The backend alone does
    not suffice. What parallel workers read is counted elsewhere when they have ended, and in PostgreSQL 18 and newer I/O workers
    read for the backend (C(io_method=worker), the default). What the devices of the data have served is the upper limit, because processes
    also read program files, such as the library for JIT.
  - RV(runs[].certainty) and RV(runs[].remarks) report whether a figure may include other activity. The counters of the devices
    and of the cgroup are returned for comparison. Other activity is detected by C(pg_stat_activity), which has the sessions and background
    processes that are there afterwards, and by C(pg_stat_database), which counts the sessions that began meanwhile, and what those that have ended
    have read.
  - The module never returns rows of a query.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  query:
    description:
      - The query, one C(SELECT), C(VALUES), C(TABLE) or C(WITH) that only reads. The server decides whether it is one, and whether
        it only reads; for that it plans the query several times before the first run and before each further run. Everything else is refused
        before anything runs, such as C(CREATE TABLE AS), C(SELECT INTO), C(REFRESH MATERIALIZED VIEW) and C(DECLARE).
      - Names, dates and times in O(query) have the same meaning as in a session of O(login_user) in O(login_db), with the
        C(search_path), C(TimeZone), C(IntervalStyle), C(array_nulls) and C(transform_null_equals) of this role and
        database. O(settings) can set other values.
    type: str
  queries:
    description:
      - Several queries.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the query in RV(runs). By default, its number.
        type: str
      query:
        description:
          - The query, one statement.
        type: str
      path:
        description:
          - File on the host that contains the query, at most 1 MB. Root reads it as the owner of the cluster.
          - For a file on the controller, use the lookup P(ansible.builtin.file#lookup) with O(queries[].query).
        type: path
      settings:
        description:
          - PostgreSQL settings for this query, in addition to O(settings).
        type: dict
        default: {}
  settings:
    description:
      - PostgreSQL settings for all queries, such as C(max_parallel_workers_per_gather), until the end of their transaction.
    type: dict
    default: {}
  repeat:
    description:
      - Number of runs of each query, up to 1000. All queries run once before any query runs again.
    type: int
    default: 1
  timeout:
    description:
      - Seconds after which a run is canceled, and the module fails. A C(statement_timeout) in O(settings) takes its place.
    type: int
    default: 600
  plan:
    description:
      - Whether to return the plans.
    type: bool
    default: true
  lock:
    description:
      - Name under which the caller holds the host's lock, as the role C(cache_cold_test) does for a whole test.
        Without it, the module takes the lock itself.
    type: str
  trusted_roles:
    description:
      - Roles whose objects a query may run with the rights of the login role, or V(PUBLIC).
      - A query calls functions through operators, views, foreign tables and index expressions. If the login role is a superuser, may
        create roles, or may read or write all data or files of the host, the module fails if another role, which is not a superuser and not
        in this list, owns an object in the database or the database itself, or may create objects in it. If possible, log in as a role that
        has only the rights that the query needs instead.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    details:
      - Plans the queries and returns their plans. Does not run them, because that would fill the caches.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Changes only the contents of the caches.
notes:
  - Run it on the server's host as the cluster's operating system user, or as root. The kernel shows the reads of a process to no other user.
  - Root must log in over the Unix socket. The module becomes the user that listens there, and measures as that user.
  - No extension is needed. With the rights of C(pg_monitor), the module detects and reports whether other sessions were active.
  - Temporary files are not part of RV(runs[].read_bytes). RV(runs[].temp_written) and RV(runs[].temp_read) count their blocks.
  - RV(runs[].read_milliseconds) is the sum over parallel workers, and may exceed RV(runs[].milliseconds).
seealso:
  - module: pgfleet.cache.cache_evict
"""

EXAMPLES = r"""
- name: Measure how much a query reads from the disk
  pgfleet.cache.query_io:
    login_db: postgres_air
    query: >-
      SELECT count(*) FROM passenger AS p JOIN boarding_pass AS b USING (passenger_id) WHERE b.seat = '8E'
    settings:
      max_parallel_workers_per_gather: 0
  become: true
  become_user: postgres
  register: cold

- name: Run several queries from files on the controller, three times each
  pgfleet.cache.query_io:
    login_db: postgres_air
    queries:
      - name: daily report
        query: "{{ lookup('ansible.builtin.file', 'daily.sql') }}"
      - name: monthly report
        query: "{{ lookup('ansible.builtin.file', 'monthly.sql') }}"
        settings:
          work_mem: 256MB
    repeat: 3
    plan: false
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Summary of the last run in one sentence.
  returned: always
  type: str
  sample: "query 1: 0.4 s, read 160 MB, of which 160 MB came from the device and at least 0 % from the page cache."
data_directory:
  description: The data directory.
  returned: always
  type: str
  sample: /var/lib/postgresql/18/main
database:
  description: The database.
  returned: always
  type: str
  sample: postgres_air
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
shared_buffers_blocks:
  description: Size of C(shared_buffers), in blocks of the server.
  returned: always
  type: int
  sample: 16384
runs:
  description: One element for each run, in order. Counts are in blocks of the server, all other sizes in bytes.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the query.
      type: str
    repetition:
      description: Number of the repetition.
      type: int
    milliseconds:
      description: Execution time. Includes the conversion of the result to text, except for results whose columns have fixed lengths before PostgreSQL 17.
      type: float
    planning_milliseconds:
      description: Planning time.
      type: float
    serialization_milliseconds:
      description: Part of RV(runs[].milliseconds) in which the result was read and converted to text. V(null) before PostgreSQL 17.
      type: float
    shared_hit:
      description: Blocks found in shared buffers.
      type: int
    shared_read:
      description: Blocks of tables and indexes that were not in shared buffers.
      type: int
    local_hit:
      description: As RV(runs[].shared_hit), for temporary tables.
      type: int
    local_read:
      description: As RV(runs[].shared_read), for temporary tables.
      type: int
    temp_read:
      description: Blocks read from temporary files, such as those of a sort that exceeds C(work_mem). Not in RV(runs[].read_bytes).
      type: int
    temp_written:
      description: Blocks written to temporary files.
      type: int
    planning_read:
      description: Blocks that planning read.
      type: int
    read_milliseconds:
      description: Time that all processes of the query spent on reads, without those of temporary files. V(null) if it was not measured.
      type: float
    workers_launched:
      description: Number of parallel workers.
      type: int
    read_bytes:
      description: Bytes of tables, indexes and TOAST that PostgreSQL read, including planning, without temporary files.
      type: int
    device_bytes:
      description:
        - Bytes that the devices of the data directory and the tablespaces served to the query. RV(runs[].certainty) states whether this figure is
          exact.
      type: int
    page_cache_bytes:
      description:
        - Lower bound of the bytes that came from the page cache, RV(runs[].read_bytes) minus RV(runs[].device_bytes), and at least 0.
          With read-ahead, more came from the page cache.
      type: int
    page_cache_percent:
      description: The same in percent of RV(runs[].read_bytes). V(null) if nothing was read.
      type: float
    over_read_bytes:
      description:
        - Bytes that the device served beyond RV(runs[].read_bytes), such as read-ahead, temporary files, and program files that are on the same device.
      type: int
    certainty:
      description:
        - V(exact) if RV(runs[].device_bytes) is what the query read, V(upper_bound) if it may include other reads, V(lower_bound) if the query
          also read what is not counted, V(unknown) if both may be, or if the kernel does not account for reads of this file system.
        - Where the data and PostgreSQL's programs share a device, pages of programs that the kernel had taken back are read again during the query.
          Page faults that waited for such a read make it V(upper_bound). Read-ahead that the kernel adds to them is not detected alone.
        - RV(runs[].remarks) has the reasons.
      type: str
    remarks:
      description: Reasons why the figure is not exact, and what else may have cost time.
      type: list
      elements: str
    backend_bytes:
      description: Bytes that the kernel charged to the session's own process, without the work of other processes for it.
      type: int
    io_worker_bytes:
      description: Bytes that the kernel charged to PostgreSQL's I/O workers.
      type: int
    ended_bytes:
      description: Bytes that the kernel charged to processes that have ended, such as parallel workers, and to the postmaster.
      type: int
    other_bytes:
      description: Bytes that the kernel charged to other processes of the server.
      type: int
    elsewhere_bytes:
      description:
        - Bytes that the kernel charged to the processes of the query, and that no device of the data served, such as a library for JIT on another
          device. Not in RV(runs[].device_bytes).
      type: int
    disks:
      description: What the devices of the data directory and tablespaces served during the run, to any process.
      type: list
      elements: dict
    cgroup_bytes:
      description: Bytes that the devices served to PostgreSQL's cgroup. V(null) if nothing counts for this cgroup alone.
      type: int
    jit:
      description: Functions that JIT compiled in all processes of the query, and the time. V(null) without JIT.
      type: dict
    settings:
      description: Settings that influence the planner and differ from their defaults.
      type: dict
    plan:
      description: The plan, PostgreSQL's JSON format.
      type: dict
  sample:
    - {
        name: query 1, repetition: 1, milliseconds: 439.1, planning_milliseconds: 0.4, serialization_milliseconds: 0.011, shared_hit: 0,
        shared_read: 20409, local_hit: 0, local_read: 0, temp_read: 0, temp_written: 0, planning_read: 3, read_milliseconds: 301.2,
        workers_launched: 0, read_bytes: 167215104, device_bytes: 167321600, page_cache_bytes: 0, page_cache_percent: 0.0,
        over_read_bytes: 106496, certainty: exact, remarks: [], backend_bytes: 0, io_worker_bytes: 167321600, ended_bytes: 0, other_bytes: 0,
        elsewhere_bytes: 0, disks: [{device: sda, reads: 1306, bytes: 167325696}], cgroup_bytes: 167321600, jit: null,
        settings: {max_parallel_workers_per_gather: "0"}, plan: null
      }
queries:
  description: First 500 characters of the statements that were run, or would have been in check mode.
  returned: always
  type: list
  elements: str
  sample: ["EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, SERIALIZE TEXT, FORMAT JSON) SELECT count(*) FROM t"]
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._query_io import Options, check_options, empty_result, measure_as_owner
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    options = options_of(Options, module.params)
    check_options(options)
    with closing(connect(module.params, own_meaning=True)) as session:
        return measure_as_owner(session, options, module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            query={"type": "str"},
            queries={
                "type": "list",
                "elements": "dict",
                "options": {
                    "name": {"type": "str"},
                    "query": {"type": "str"},
                    "path": {"type": "path"},
                    "settings": {"type": "dict", "default": {}},
                },
            },
            settings={"type": "dict", "default": {}},
            repeat={"type": "int", "default": 1},
            timeout={"type": "int", "default": 600},
            plan={"type": "bool", "default": True},
            lock={"type": "str"},
            trusted_roles={"type": "list", "elements": "str", "default": []},
        ),
        mutually_exclusive=[("query", "queries")],
        required_one_of=[("query", "queries")],
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
