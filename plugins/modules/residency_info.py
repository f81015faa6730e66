#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_info
short_description: See what both caches of a PostgreSQL cluster hold, what is saved and what is being restored
version_added: 0.1.0
description:
  - Tells what of each database, relation and segment is in the operating system's page cache, in C(shared_buffers) and in
    both, of all databases in one task, and which snapshots and restore jobs there are.
  - Waits, if asked to, until enough of a snapshot is resident, so that a play goes on, or a load balancer's probe succeeds,
    only where it is warm.
  - With PostgreSQL stopped and O(data_directory) named, it tells by file what the page cache holds. That needs neither a login
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
      - What to tell. V(databases) means both caches by database, V(relations) and V(segments) those of which most is cached,
        V(buffers) the shared buffers of one O(relation), V(snapshots) and V(jobs) what is saved and restored.
      - V(capabilities) means what this host offers and limits, which are the kernel, the file systems and devices below the
        data, and the memory that PostgreSQL's cgroup may use. It has to run on that host, as the owner of the data directory or as
        root. Where the module may not enter the data directory, a warning says why, and the devices below it are V(null).
    type: list
    elements: str
    choices: [databases, relations, segments, buffers, snapshots, jobs, capabilities]
    default: [databases, relations, snapshots, jobs]
  databases:
    description:
      - Shell patterns for the names of the databases to tell about. None mean all. The shared catalogs belong to no database, and
        fit only V(*).
      - With V(buffers) in O(subset), the one database of O(relation). It has to have the extension. Without it, O(login_db).
    type: list
    elements: str
    default: []
  relations:
    description:
      - Shell patterns for the names of the relations to tell about in RV(relations) and RV(segments), as in
        M(pgfleet.cache.residency_restore). None mean all.
      - With them every relation has to be named first, which takes some seconds where there are 100,000.
    type: list
    elements: str
    default: []
  relation:
    description:
      - The relation whose buffers to tell, as SQL spells it.
    type: str
  sort:
    description:
      - What of RV(relations) and RV(segments) comes first. V(page_cache) and V(shared_buffers) mean that of which most is there,
        V(percent) that of which the largest part is in either, V(dirty) that of which most is dirty.
      - Segments are sorted by the page cache where V(shared_buffers) is asked for.
    type: str
    choices: [page_cache, shared_buffers, percent, dirty]
    default: page_cache
  limit:
    description:
      - At most this many relations, segments, buffers and jobs, up to 1000.
    type: int
    default: 20
  snapshot:
    description:
      - A snapshot whose RV(residency) is to be told. V(warm) means the generation of C(warm) that the server calls current, which is
        the newest that is not thin. V(warm@3) means its third.
    type: str
  min_residency:
    description:
      - Percent of the blocks of O(snapshot) that still exist which are enough.
    type: float
    default: 90
  wait:
    description:
      - Whether to wait until O(min_residency) of O(snapshot) is resident, and to fail if it is not by then.
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
      - The cluster's data directory. Only needed when PostgreSQL is stopped, and for V(capabilities) without a login.
      - Required for root that asks for V(capabilities) with a login over TCP, where the server's word would be all there is. Over a Unix
        socket the kernel names the process that listens there, and root checks that this process runs in the directory that the server
        names.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Changes nothing anyway. Where the extension is not installed yet, says so in a warning and tells nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
notes:
  - It needs the rights of C(pg_monitor). By file, and for V(capabilities), run it as the owner of the data directory.
seealso:
  - module: pgfleet.cache.residency_restore
  - module: pgfleet.cache.residency_snapshot
"""

EXAMPLES = r"""
- name: Look into both caches, all databases, the ten relations of which most is in shared buffers
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

- name: The buffers of one relation
  pgfleet.cache.residency_info:
    subset: [buffers]
    databases: [postgres_air]
    relation: public.boarding_pass
  become: true
  become_user: postgres

- name: What survived the shutdown in the page cache
  pgfleet.cache.residency_info:
    data_directory: /var/lib/postgresql/15/main
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: What there is, in a sentence or two.
  returned: always
  type: str
  sample: "176 MB of 496 MB are in the page cache, 64.0 MB in shared buffers, 992 kB in both. 2 snapshots. 1 job."
server:
  description: Whether PostgreSQL is V(running) or V(stopped).
  returned: always
  type: str
  sample: running
data_directory:
  description: The data directory, where it was named or asked for. Otherwise V(null).
  returned: always
  type: str
  sample: null
total:
  description: All databases of O(databases) together. V(null) unless databases, relations or segments are told.
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
      description: Blocks of these that are not yet written to disk, V(null) where the kernel does not tell.
      type: int
    dirty_in_shared_buffers:
      description: Blocks of these that are not yet written to the page cache.
      type: int
    percent:
      description: Percent of the blocks that are in either cache.
      type: float
  sample:
    blocks: 63511
    in_page_cache: 22550
    in_shared_buffers: 8192
    in_both: 124
    dirty_in_page_cache: 0
    dirty_in_shared_buffers: 0
    percent: 48.2
databases:
  description: The databases, those first of which most is cached. Each has the keys of RV(total), and these.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Its name, V(null) where it has none.
      type: str
    database_oid:
      description: Its OID, 0 for the shared catalogs, V(null) for buffers that hold nothing.
      type: int
    kind:
      description: C(database), C(shared catalogs) or C(unused buffers).
      type: str
  sample:
    - database: postgres_air
      database_oid: 16384
      kind: database
      blocks: 53545
      in_page_cache: 22452
      in_shared_buffers: 4724
      in_both: 40
      dirty_in_page_cache: 0
      dirty_in_shared_buffers: 0
      percent: 50.67
    - database: null
      database_oid: 0
      kind: shared catalogs
      blocks: 62
      in_page_cache: 0
      in_shared_buffers: 58
      in_both: 0
      dirty_in_page_cache: 0
      dirty_in_shared_buffers: 0
      percent: 93.54
relations:
  description:
    - At most O(limit) relations with all their forks, sorted as O(sort) says. Each has the keys of RV(total), and these.
    - With PostgreSQL stopped they are called what they were when the newest snapshot was taken.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description: Schema and name, as SQL spells them. V(null) when nobody knows.
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
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      blocks: 30781
      in_page_cache: 17332
      in_shared_buffers: 97
      in_both: 0
      dirty_in_page_cache: 0
      dirty_in_shared_buffers: 0
      percent: 56.62
segments:
  description: At most O(limit) segment files. Each has the keys that name a relation in RV(relations), and these.
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
      description: Blocks of these that are not yet written to disk, V(null) where the kernel does not tell.
      type: int
    percent:
      description: Percent of the blocks that are in the page cache.
      type: float
  sample:
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      fork: main
      segment: 0
      blocks: 30770
      in_page_cache: 17332
      dirty_in_page_cache: 0
      percent: 56.32
buffers:
  description: The shared buffers that hold O(relation). V(null) unless asked for.
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
      description: How many blocks have which usage count, from 0 to 5. The clock sweep counts it down, and evicts at 0.
      type: list
      elements: dict
      sample: [{usage_count: 2, blocks: 1}, {usage_count: 3, blocks: 8}, {usage_count: 5, blocks: 6}]
    buffers:
      description: At most O(limit) of the buffers, those first that are used most.
      type: list
      elements: dict
      sample: [{fork: main, block: 0, dirty: false, usage_count: 5}]
snapshots:
  description:
    - All snapshots, with the keys of RV(pgfleet.cache.residency_snapshot#module:snapshot).
    - With PostgreSQL stopped, only what their files tell, which is name, generation, file_bytes and digest; the rest is V(null).
  returned: always
  type: list
  elements: dict
  sample:
    - name: warm
      generation: 1
      taken_at: "2026-11-20T13:48:14.391331+00:00"
      origin: vm
      in_recovery: false
      system_identifier: "7710248028700251915"
      timeline: 1
      server_version_num: 150020
      segments: 1262
      blocks: 63511
      wanted: 45927
      in_page_cache: 43143
      in_shared_buffers: 8192
      in_both: 5408
      file_bytes: 70081
      digest: 48dc94af295fcbef0382d08076da9dd4226e5fb185d5469915346a1d4063970b
      problem: null
      thin: false
      current: true
      measure: null
      age: 42.7
jobs:
  description:
    - At most O(limit) restore jobs, the newest first, or V(null) with PostgreSQL stopped. Counts are blocks of 8 KiB, as in
      M(pgfleet.cache.residency_restore). RV(ignore:wanted) are those that the whole job is to bring back, RV(ignore:settled) those of
      them that have come to an end so far. RV(ignore:planned) is an older name of RV(ignore:wanted).
  returned: always
  type: list
  elements: dict
  sample:
    - job: 1
      snapshot: warm
      generation: 1
      state: done
      started_at: "2026-11-20T13:48:17.701457+00:00"
      finished_at: "2026-11-20T13:48:18.062592+00:00"
      seconds: 0.361
      segments: 6
      segments_done: 6
      planned: 26521
      wanted: 26521
      settled: 26521
      resident: 26521
      loaded: 26421
      extra: 1651
      over_budget: 0
      gone: 0
      failed_blocks: 0
      budget_bytes: 20154574976
      rate_bytes: null
      message: null
capabilities:
  description:
    - What this host offers and limits. V(null) unless asked for.
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
        - The data directory and each tablespace outside it, with file system and device, read-ahead, how much of one
          request to read ahead the kernel serves, and whether C(cachestat(2\)) is there and tells the truth.
      type: list
      elements: dict
      sample:
        - path: /var/lib/postgresql/15/main
          tablespace: null
          mount: /
          filesystem: ext4
          source: /dev/vda
          device: vda
          scheduler: mq-deadline
          read_ahead_bytes: 8388608
          willneed_bytes: 8388608
          cachestat: true
          cachestat_honest: true
          large_folios: null
    cgroup:
      description: PostgreSQL's cgroup, which is charged for the page cache that it fills, and its limits.
      type: dict
      sample:
        version: 1
        path: /system.slice/postgresql
        pid: 29907
        limit_bytes: null
        high_bytes: null
        high_set_by: null
        high_used_bytes: null
        limited_by: null
        used_bytes: 2430033920
    proactive_reclaim:
      description: What takes pages out of the page cache although nobody needs the memory.
      type: dict
      sample: {kdamonds: 1, memory_high_bytes: null}
residency:
  description: How much of O(snapshot) is resident, which is in either cache. V(null) without it.
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
      description: Blocks of these that do not exist any more.
      type: int
      sample: 14304
    residency:
      description: Percent of the blocks that still exist which are resident.
      type: float
      sample: 92.43
    gone_percent:
      description: Percent of the snapshot that is gone.
      type: float
      sample: 22.52
reached:
  description: Whether that is at least O(min_residency). V(null) without O(snapshot).
  returned: always
  type: bool
  sample: true
queries:
  description: Statements that changed something, of which there are none.
  returned: always
  type: list
  elements: str
  sample: []
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _data_directory, _info, _page_cache
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
        "choices": list(_info.SUBSETS),
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
    options = _info.Options(**{option: params[option] for option in OPTIONS})
    _info.check_options(options)
    if options.data_directory is not None:
        if not options.needs_login:
            return _info.of_host(options.data_directory, _capabilities.collect)
        if _page_cache.postmaster_pid(options.data_directory) is None:
            directory = _data_directory.opened(options.data_directory)
            return dict(directory.run_as_owner(lambda dummy: _info.of_files(directory.path, options, _capabilities.collect), {}))
    try:
        with closing(_connect(params)) as session:
            attach_extension(session)
            return _info.of_server(
                session,
                options,
                lambda database: connect_with_extension(params, database),
                _capabilities.collect,
            )
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        return dict(_info.empty_result(), msg="Nothing can be seen before the extension is installed.", warnings=[str(error)])


def _connect(params: Dict[str, Any]) -> Session:
    try:
        return connect(params)
    except NotRunningError as error:
        if params["data_directory"] is not None:
            raise
        raise ResidencyError("%s With PostgreSQL stopped, name its data_directory." % error) from error


def main() -> None:
    module = Module(argument_spec=module_argument_spec(**OPTIONS), supports_check_mode=True)
    finish(module, run, _info.empty_result())


if __name__ == "__main__":
    main()
