#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_info
short_description: Return what both caches of a PostgreSQL cluster hold, its snapshots and its restore jobs
version_added: 0.1.0
description:
  - Returns how much of each database, relation and segment is in the operating system's page cache, in C(shared_buffers) and in
    both, for all databases in one task. Also returns the snapshots and the restore jobs.
  - With O(wait), waits until enough of a snapshot is resident, so that a play continues, or a load balancer's probe succeeds,
    only if the host is warm.
  - If PostgreSQL is stopped and O(data_directory) is set, returns by file what the page cache holds. This needs neither a login
    nor the extension.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  subset:
    description:
      - Which information to return. V(databases) means both caches by database, V(relations) and V(segments) those with the most cached,
        V(buffers) the shared buffers of one O(relation), V(snapshots) the snapshots, and V(jobs) the restore jobs.
      - V(capabilities) means the capabilities and limits of this host, that is the kernel, the file systems and devices of the
        data, and the memory that PostgreSQL's cgroup may use. The module must run on that host, as the owner of the data directory or as
        root. If it may not enter the data directory, a warning gives the reason, and the devices are V(null).
    type: list
    elements: str
    choices: [databases, relations, segments, buffers, snapshots, jobs, capabilities]
    default: [databases, relations, snapshots, jobs]
  databases:
    description:
      - Shell patterns for the names of the databases to return. An empty list means all. The shared catalogs belong to no database;
        only V(*) matches them.
      - With V(buffers) in O(subset), the single database of O(relation), which must have the extension. By default, O(login_db).
    type: list
    elements: str
    default: []
  relations:
    description:
      - Shell patterns for the names of the relations to return in RV(relations) and RV(segments), as in
        M(pgfleet.cache.residency_restore). An empty list means all.
      - With patterns, the module looks up the names of all relations first, which takes some seconds for 100,000 relations.
    type: list
    elements: str
    default: []
  relation:
    description:
      - Relation whose buffers to return, as SQL spells it.
    type: str
  sort:
    description:
      - Sort order of RV(relations) and RV(segments), descending. V(page_cache) and V(shared_buffers) sort by the blocks in that cache,
        V(percent) by the percentage in either cache, V(dirty) by the dirty blocks.
      - With V(shared_buffers), segments are sorted by the page cache.
    type: str
    choices: [page_cache, shared_buffers, percent, dirty]
    default: page_cache
  limit:
    description:
      - Maximum number of relations, segments, buffers and jobs, up to 1000.
    type: int
    default: 20
  snapshot:
    description:
      - Snapshot whose RV(residency) to return. V(warm) means the current generation of C(warm), which is
        the newest that is not thin. V(warm@3) means its third.
    type: str
  min_residency:
    description:
      - Percent of the existing blocks of O(snapshot) that must be resident.
    type: float
    default: 90
  wait:
    description:
      - Wait until O(min_residency) of O(snapshot) is resident. Fail if it is not after O(wait_timeout).
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds after which waiting fails.
    type: int
    default: 3600
  wait_sleep:
    description:
      - Seconds between two counts.
    type: float
    default: 1
  data_directory:
    description:
      - The cluster's data directory. Only needed if PostgreSQL is stopped, and for V(capabilities) without a login.
      - Required if root requests V(capabilities) with a login over TCP, because only the server could name the directory. Over a Unix
        socket, the kernel identifies the listening process, and root checks that this process runs in the directory that the server
        names.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - The module never changes anything. If the extension is not installed yet, it warns and returns no information.
  diff_mode:
    support: none
  idempotent:
    support: full
notes:
  - Requires the rights of C(pg_monitor). To read files, and for V(capabilities), run it as the owner of the data directory.
seealso:
  - module: pgfleet.cache.residency_restore
  - module: pgfleet.cache.residency_snapshot
"""

EXAMPLES = r"""
- name: Show both caches of all databases, and the ten relations with the most blocks in shared buffers
  pgfleet.cache.residency_info:
    subset: [databases, relations]
    sort: shared_buffers
    limit: 10
  become: true
  become_user: postgres
  register: caches

- name: Wait until the working set is warm
  pgfleet.cache.residency_info:
    subset: []
    snapshot: warm
    min_residency: 95
    wait: true
    wait_timeout: 600
  become: true
  become_user: postgres

- name: Show the buffers of one relation
  pgfleet.cache.residency_info:
    subset: [buffers]
    databases: [postgres_air]
    relation: public.boarding_pass
  become: true
  become_user: postgres

- name: Show what is in the page cache after a shutdown
  pgfleet.cache.residency_info:
    data_directory: /var/lib/postgresql/15/main
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Summary in one or two sentences.
  returned: always
  type: str
  sample: "176 MB of 496 MB are in the page cache, 64.0 MB in shared buffers, 992 kB in both. 2 snapshots. 1 job."
server:
  description: Whether PostgreSQL is V(running) or V(stopped).
  returned: always
  type: str
  sample: running
data_directory:
  description: The data directory, if it was set or requested. Otherwise V(null).
  returned: always
  type: str
  sample: null
total:
  description: Sum of all databases in O(databases). V(null) unless databases, relations or segments are returned.
  returned: always
  type: dict
  contains:
    blocks:
      description: Blocks of 8 KiB in files.
      type: int
    in_page_cache:
      description: Blocks of these in the page cache.
      type: int
    in_shared_buffers:
      description: Blocks of these in shared buffers.
      type: int
    in_both:
      description: Blocks of these in both.
      type: int
    dirty_in_page_cache:
      description: Blocks of these that are not yet written to disk. V(null) if the kernel does not report it.
      type: int
    dirty_in_shared_buffers:
      description: Blocks of these that are not yet written to the page cache.
      type: int
    percent:
      description: Percent of the blocks that are in either cache.
      type: float
  sample: {
    blocks: 63511, in_page_cache: 22550, in_shared_buffers: 8192, in_both: 124, dirty_in_page_cache: 0, dirty_in_shared_buffers: 0, percent: 48.2
  }
databases:
  description: The databases, those with the most cached first. Each has the keys of RV(total), and these.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Name of the database. V(null) if there is none.
      type: str
    database_oid:
      description: OID of the database, 0 for the shared catalogs, V(null) for unused buffers.
      type: int
    kind:
      description: C(database), C(shared catalogs) or C(unused buffers).
      type: str
  sample:
    - {
        database: postgres_air, database_oid: 16384, kind: database, blocks: 53545, in_page_cache: 22452, in_shared_buffers: 4724, in_both: 40,
        dirty_in_page_cache: 0, dirty_in_shared_buffers: 0, percent: 50.67
      }
    - {
        database: null, database_oid: 0, kind: shared catalogs, blocks: 62, in_page_cache: 0, in_shared_buffers: 58, in_both: 0,
        dirty_in_page_cache: 0, dirty_in_shared_buffers: 0, percent: 93.54
      }
relations:
  description:
    - At most O(limit) relations with all their forks, sorted by O(sort). Each has the keys of RV(total), and these.
    - If PostgreSQL is stopped, their names are those in the newest snapshot.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description: Schema and name, as SQL spells them. V(null) if unknown.
      type: str
    kind:
      description: Kind of relation.
      type: str
    belongs_to:
      description: The table that an index or TOAST belongs to.
      type: str
    database_oid:
      description: OID of its database, 0 for shared catalogs.
      type: int
    tablespace:
      description: OID of its tablespace.
      type: int
    relfilenumber:
      description: Number of its files.
      type: int
  sample:
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, blocks: 30781, in_page_cache: 17332, in_shared_buffers: 97, in_both: 0, dirty_in_page_cache: 0,
        dirty_in_shared_buffers: 0, percent: 56.62
      }
segments:
  description: At most O(limit) segment files. Each has the keys that identify a relation in RV(relations), and these.
  returned: always
  type: list
  elements: dict
  contains:
    fork:
      description: Fork of the relation.
      type: str
    segment:
      description: Number of the segment in the fork.
      type: int
    blocks:
      description: Blocks of 8 KiB in the file.
      type: int
    in_page_cache:
      description: Blocks of these in the page cache.
      type: int
    dirty_in_page_cache:
      description: Blocks of these that are not yet written to disk. V(null) if the kernel does not report it.
      type: int
    percent:
      description: Percent of the blocks that are in the page cache.
      type: float
  sample:
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, fork: main, segment: 0, blocks: 30770, in_page_cache: 17332, dirty_in_page_cache: 0, percent: 56.32
      }
buffers:
  description: The shared buffers that hold O(relation). V(null) unless requested.
  returned: always
  type: dict
  contains:
    database:
      description: Its database.
      type: str
      sample: postgres
    relation:
      description: The relation.
      type: str
      sample: pg_class
    blocks:
      description: Its blocks in shared buffers.
      type: int
      sample: 15
    dirty:
      description: Blocks of these that are dirty.
      type: int
      sample: 0
    usage_counts:
      description: Number of blocks for each usage count, from 0 to 5. The clock sweep decrements the count, and evicts at 0.
      type: list
      elements: dict
      sample: [{usage_count: 2, blocks: 1}, {usage_count: 3, blocks: 8}, {usage_count: 5, blocks: 6}]
    buffers:
      description: At most O(limit) of the buffers, the most used first.
      type: list
      elements: dict
      sample: [{fork: main, block: 0, dirty: false, usage_count: 5}]
snapshots:
  description:
    - All snapshots, with the keys of RV(pgfleet.cache.residency_snapshot#module:snapshot).
    - If PostgreSQL is stopped, only name, generation, file_bytes and digest are known; the rest is V(null).
  returned: always
  type: list
  elements: dict
  sample:
    - {
        name: warm, generation: 1, taken_at: "2026-11-20T13:48:14.391331+00:00", origin: vm, in_recovery: false,
        system_identifier: "7710248028700251915", timeline: 1, server_version_num: 150020, segments: 1262, blocks: 63511, wanted: 45927,
        in_page_cache: 43143, in_shared_buffers: 8192, in_both: 5408, file_bytes: 70081,
        digest: 48dc94af295fcbef0382d08076da9dd4226e5fb185d5469915346a1d4063970b, problem: null, thin: false, current: true, measure: null, age: 42.7
      }
jobs:
  description:
    - At most O(limit) restore jobs, the newest first. V(null) if PostgreSQL is stopped. Counts are blocks of 8 KiB, as in
      M(pgfleet.cache.residency_restore), which describes a hold too. RV(ignore:wanted) are the blocks that the job is to restore,
      RV(ignore:settled) those finished so far, RV(ignore:seconds) the time until then.
  returned: always
  type: list
  elements: dict
  sample: [{
    "job": 1, "snapshot": "warm", "generation": 1, "state": "done", "started_at": "2026-11-20T13:48:17.701457+00:00",
    "finished_at": "2026-11-20T13:48:18.062592+00:00", "seconds": 0.361, "segments": 6, "segments_done": 6, "wanted": 26521,
    "settled": 26521, "resident": 26521, "loaded": 26421, "extra": 1651, "over_budget": 0, "gone": 0, "failed_blocks": 0,
    "budget_bytes": 20154574976, "rate_bytes": null, "io_class": "idle", "scheduler": "mq-deadline", "window_bytes": 524288, "hold_until": null,
    "held_since": null, "counted_at": null, "reclaimed": null, "brought_back": null, "reclaim_rate": null, "mapped_bytes": null, "message": null
  }]
capabilities:
  description:
    - Capabilities and limits of this host. V(null) unless requested.
  returned: always
  type: dict
  contains:
    kernel:
      description: Version of the kernel.
      type: str
      sample: 6.18.44-fc-v657
    page_size:
      description: Bytes in a page of memory.
      type: int
      sample: 4096
    memory_bytes:
      description: Memory of the host.
      type: int
      sample: 25276510208
    swap:
      description: Swap space of the host.
      type: dict
      sample: {total_bytes: 0, free_bytes: 0}
    locations:
      description:
        - The data directory and each tablespace outside it, with file system, device and the disks below it, read-ahead, how much of one
          read-ahead request the kernel serves, and whether V(cachestat(2\)) is available and reports correct counts.
      type: list
      elements: dict
      sample:
        - {
            path: /var/lib/postgresql/15/main, tablespace: null, mount: /, filesystem: ext4, source: /dev/vda, device: vda, disks: [vda],
            scheduler: mq-deadline, read_ahead_bytes: 8388608, willneed_bytes: 8388608, cachestat: true, cachestat_honest: true, large_folios: null
          }
    cgroup:
      description: PostgreSQL's cgroup, to which the page cache that it fills is charged, and the limits of the cgroup.
      type: dict
      sample: {
        version: 1, path: /system.slice/postgresql, pid: 29907, limit_bytes: null, high_bytes: null, high_set_by: null, high_used_bytes: null,
        limited_by: null, used_bytes: 2430033920
      }
    proactive_reclaim:
      description: Mechanisms that reclaim pages although memory is free.
      type: dict
      sample: {kdamonds: 1, memory_high_bytes: null}
residency:
  description: How much of O(snapshot) is resident, that is in either cache. V(null) without O(snapshot).
  returned: always
  type: dict
  contains:
    snapshot:
      description: The snapshot, with its generation.
      type: str
      sample: full@1
    wanted:
      description: Blocks of 8 KiB in it.
      type: int
      sample: 63507
    resident:
      description: Blocks of these that are resident.
      type: int
      sample: 45481
    missing:
      description: Blocks of these that exist and are not resident.
      type: int
      sample: 3722
    gone:
      description: Blocks of these that no longer exist.
      type: int
      sample: 14304
    residency:
      description: Percent of the existing blocks that are resident.
      type: float
      sample: 92.43
    gone_percent:
      description: Percent of the snapshot that is gone.
      type: float
      sample: 22.52
reached:
  description: Whether RV(residency.residency) is at least O(min_residency). V(null) without O(snapshot).
  returned: always
  type: bool
  sample: true
queries:
  description: Statements that changed something. Always empty.
  returned: always
  type: list
  elements: str
  sample: []
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _data_directory, _page_cache, _residency_info
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import (
    Session,
    attach_extension,
    connect,
    connect_with_extension,
    module_argument_spec,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish

OPTIONS: Dict[str, Dict[str, Any]] = {
    "subset": {
        "type": "list",
        "elements": "str",
        "choices": list(_residency_info.SUBSETS),
        "default": ["databases", "relations", "snapshots", "jobs"],
    },
    "databases": {"type": "list", "elements": "str", "default": []},
    "relations": {"type": "list", "elements": "str", "default": []},
    "relation": {"type": "str"},
    "sort": {"type": "str", "choices": ["page_cache", "shared_buffers", "percent", "dirty"], "default": "page_cache"},
    "limit": {"type": "int", "default": 20},
    "snapshot": {"type": "str"},
    "min_residency": {"type": "float", "default": 90},
    "wait": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 3600},
    "wait_sleep": {"type": "float", "default": 1},
    "data_directory": {"type": "path"},
}


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    options = _residency_info.Options(**{option: params[option] for option in OPTIONS})
    _residency_info.check_options(options)
    if options.data_directory is not None:
        if not options.needs_login:
            return _residency_info.of_host(options.data_directory, _capabilities.collect)
        if _page_cache.postmaster_pid(options.data_directory) is None:
            directory = _data_directory.opened(options.data_directory)
            return dict(directory.run_as_owner(lambda dummy: _residency_info.of_files(directory.path, options, _capabilities.collect), {}))
    try:
        with closing(_connect(params)) as session:
            attach_extension(session)
            return _residency_info.of_server(
                session,
                options,
                lambda database: connect_with_extension(params, database),
                _capabilities.collect,
            )
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        return dict(_residency_info.empty_result(), msg="Nothing can be reported before the extension is installed.", warnings=[str(error)])


def _connect(params: Dict[str, Any]) -> Session:
    try:
        return connect(params)
    except NotRunningError as error:
        if params["data_directory"] is not None:
            raise
        raise ResidencyError("%s If PostgreSQL is stopped, set data_directory." % error) from error


def main() -> None:
    module = Module(argument_spec=module_argument_spec(**OPTIONS), supports_check_mode=True)
    finish(module, run, _residency_info.empty_result())


if __name__ == "__main__":
    main()
