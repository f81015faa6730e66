#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: query_io
short_description: Run queries and tell which cache they read from, and how much came from the device
version_added: 0.2.0
description:
  - Runs queries under C(EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, FORMAT JSON)) with C(track_io_timing), each in a
    read-only transaction of its own, and tells for each run the time, the blocks that PostgreSQL found in its buffers and
    those that it read, and how much of these reads the device served. The rest came from the operating system's page cache,
    which C(EXPLAIN) cannot see.
  - What the device served is taken from C(/proc/<pid>/io) of all of the server's processes, before and after. The backend's own is
    not enough, since what parallel workers read is counted elsewhere when they have ended, and from PostgreSQL 18 on I/O workers
    read in its place (C(io_method=worker), the default).
  - Where other activity may be in a figure, RV(runs[].certainty) and RV(runs[].remarks) say so. The counters of the devices
    and of the cgroup are told beside it.
  - No row of a query is ever returned.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  query:
    description:
      - The query, one C(SELECT), C(VALUES), C(TABLE) or C(WITH) that only reads. The server decides whether it is. It also plans the query for
        that, before the first run and before each further one.
      - What O(query) means by names, dates and times is what it means in a session of O(login_user) in O(login_db), with the
        C(search_path), C(TimeZone), C(IntervalStyle), C(array_nulls) and C(transform_null_equals) that this role and
        database have. O(settings) can set others.
    type: str
  queries:
    description:
      - Several queries.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - What it is called in RV(runs). Without it, by its number.
        type: str
      query:
        description:
          - The query, one statement.
        type: str
      path:
        description:
          - A file on the host that holds it, of 1 MB at most. As root it is read as the owner of the cluster.
          - For one on the controller, use the lookup P(ansible.builtin.file#lookup) with O(queries[].query).
        type: path
      settings:
        description:
          - PostgreSQL's settings for this query, on top of O(settings).
        type: dict
        default: {}
  settings:
    description:
      - PostgreSQL's settings for all queries, such as C(max_parallel_workers_per_gather), until their transaction ends.
    type: dict
    default: {}
  repeat:
    description:
      - How many times to run each, up to 1000. All queries run once before any runs again.
    type: int
    default: 1
  timeout:
    description:
      - Seconds after which a run is ended, and the module fails.
    type: int
    default: 600
  plan:
    description:
      - Whether to return the plans.
    type: bool
    default: true
  lock:
    description:
      - The name under which the caller holds the host's lock. The role C(cache_cold_test) does, for all it does on a host.
        Without it, the module takes the lock for itself.
    type: str
  trusted_roles:
    description:
      - Roles whose objects a query may run with the rights of the login role, or V(PUBLIC).
      - A query calls functions by its operators, in views, in foreign tables and in the expressions of indexes. When the login role is a superuser, may
        create roles, or may read or write all data or files of the host, the module fails if another role that is no superuser owns an object
        in the database, the database itself, or may create objects there, and is not named here. Where possible, log in as a role that has no
        more rights than the query needs instead.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    details:
      - Plans the queries and returns their plans, and does not run them, because that would fill the caches.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Nothing is ever changed but what the caches hold.
notes:
  - Run it on the server's host as the cluster's operating system user, or as root. The kernel tells nobody else what a process reads.
  - Root has to log in over the Unix socket. It becomes the user who listens there, and measures as that user.
  - It needs no extension. With the rights of C(pg_monitor) it sees whether other sessions were active, and says so.
  - The times of parallel workers add up in RV(runs[].read_milliseconds), which may be more than RV(runs[].milliseconds).
seealso:
  - module: pgfleet.cache.cache_evict
"""

EXAMPLES = r"""
- name: How much of this query is disk?
  pgfleet.cache.query_io:
    login_db: postgres_air
    query: >-
      SELECT count(*) FROM passenger AS p JOIN boarding_pass AS b USING (passenger_id) WHERE b.seat = '8E'
    settings:
      max_parallel_workers_per_gather: 0
  become: true
  become_user: postgres
  register: cold

- name: Several, three times each, from files of the controller
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
  description: What the last run was like, in one sentence.
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
  description: PostgreSQL's version.
  returned: always
  type: str
  sample: "18.6"
io_method:
  description: Who reads. V(sync) before PostgreSQL 18, which means each process for itself.
  returned: always
  type: str
  sample: worker
shared_buffers_blocks:
  description: Size of C(shared_buffers), in blocks of the server.
  returned: always
  type: int
  sample: 16384
runs:
  description: A row for each run, in their order. Counts are in blocks of the server, all else is in bytes.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The query.
      type: str
    repetition:
      description: Which time it was.
      type: int
    milliseconds:
      description: Execution time.
      type: float
    planning_milliseconds:
      description: Planning time.
      type: float
    shared_hit:
      description: Blocks found in shared buffers.
      type: int
    shared_read:
      description: Blocks of tables and indexes that were not.
      type: int
    local_hit:
      description: The same for temporary tables.
      type: int
    local_read:
      description: The same for temporary tables.
      type: int
    temp_read:
      description: Blocks read from temporary files.
      type: int
    planning_read:
      description: Blocks that planning read.
      type: int
    read_milliseconds:
      description: Time spent on reads, of all processes of the query. V(null) when it was not measured.
      type: float
    workers_launched:
      description: Parallel workers.
      type: int
    read_bytes:
      description: What PostgreSQL read, planning included.
      type: int
    device_bytes:
      description: What the device served.
      type: int
    page_cache_bytes:
      description:
        - What at least came from the page cache, which is RV(runs[].read_bytes) without RV(runs[].device_bytes), and never less than 0.
          More, where the device was also read ahead.
      type: int
    page_cache_percent:
      description: The same in percent of RV(runs[].read_bytes); V(null) when nothing was read.
      type: float
    over_read_bytes:
      description: What the device served beyond RV(runs[].read_bytes), for read-ahead, programs and everything else that was not asked for.
      type: int
    certainty:
      description:
        - V(exact) when all of RV(runs[].device_bytes) is the query's, V(upper_bound) when reads of others may be in it, V(unknown) when
          the kernel does not account for reads of this file system.
      type: str
    remarks:
      description: Why it is not exact, and what else may have cost time.
      type: list
      elements: str
    backend_bytes:
      description: What the kernel charged to the session's own process. Of others' work for it this knows nothing.
      type: int
    io_worker_bytes:
      description: What it charged to PostgreSQL's I/O workers.
      type: int
    ended_bytes:
      description: What it charged to processes that have ended, such as parallel workers, and to the postmaster.
      type: int
    other_bytes:
      description: What it charged to other processes of the server.
      type: int
    disks:
      description: What the devices below the data served meanwhile, to whomever.
      type: list
      elements: dict
    cgroup_bytes:
      description: What the devices served to PostgreSQL's cgroup; V(null) where nobody counts for it alone.
      type: int
    plan:
      description: The plan as PostgreSQL tells it in JSON.
      type: dict
  sample:
    - name: query 1
      repetition: 1
      milliseconds: 439.1
      planning_milliseconds: 0.4
      shared_hit: 0
      shared_read: 20409
      local_hit: 0
      local_read: 0
      temp_read: 0
      planning_read: 3
      read_milliseconds: 301.2
      workers_launched: 0
      read_bytes: 167215104
      device_bytes: 167321600
      page_cache_bytes: 0
      page_cache_percent: 0.0
      over_read_bytes: 106496
      certainty: exact
      remarks: []
      backend_bytes: 0
      io_worker_bytes: 167321600
      ended_bytes: 0
      other_bytes: 0
      disks:
        - device: sda
          reads: 1306
          bytes: 167325696
      cgroup_bytes: 167321600
      plan: null
queries:
  description: Statements that were run, or would have been in check mode, their first 500 characters.
  returned: always
  type: list
  elements: str
  sample: ["EXPLAIN (ANALYZE, BUFFERS, TIMING, VERBOSE, SETTINGS, FORMAT JSON) SELECT count(*) FROM t"]
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._query_io import check_options, empty_result, measure_as_owner
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    check_options(module.params)
    with closing(connect(module.params, own_meaning=True)) as session:
        return measure_as_owner(session, module.params, module.check_mode)


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
