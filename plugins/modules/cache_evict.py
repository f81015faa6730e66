#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cache_evict
short_description: Empty the caches of a relation, a PostgreSQL cluster or a whole host
version_added: 0.1.0
description:
  - Drops the pages of some or all relations of a cluster from the operating system's page cache, file by file, and counts
    them before and after. Pages of other clusters and programs on the host stay. This does not require root.
  - While PostgreSQL runs, O(scope=relation) needs the extension in O(login_db), which provides the names of all databases. Other
    scopes work without it, but then return relations by their numbers.
  - While PostgreSQL runs, the module runs a C(CHECKPOINT) first, because dirty pages cannot be dropped. If PostgreSQL
    is stopped, no login is needed.
  - With O(layers), also empties C(shared_buffers), by functions of PostgreSQL 17 and newer, or by a restart.
  - Never calls C(fsync) on a file. A write error reported to this module would be hidden from PostgreSQL.
  - O(scope=host) drops the page cache of the whole host, which slows down everything on it.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  scope:
    description:
      - What to evict. V(relation) means O(relations), V(cluster) all databases and tablespaces of one cluster.
      - V(host) means everything on the host, by C(sync) and C(/proc/sys/vm/drop_caches). It requires root, does not log in, and is
        refused while other clusters run or clients are connected, unless O(force) is set. In a container, it affects the
        host of the container.
    type: str
    choices: [relation, cluster, host]
    default: cluster
  layers:
    description:
      - Which caches to empty.
    type: list
    elements: str
    choices: [page_cache, shared_buffers]
    default: [page_cache]
  method:
    description:
      - How to empty C(shared_buffers). V(functions) calls C(pg_buffercache_evict), which needs PostgreSQL 17 or newer, the extension
        C(pg_buffercache) in O(login_db), in a schema owned by a superuser, and a superuser as login role.
      - V(restart) restarts PostgreSQL, and empties the page cache while it is stopped. With O(data_directory),
        no login is needed. If PostgreSQL runs as a systemd unit, root is required; otherwise C(pg_ctl) is used.
    type: str
    choices: [functions, restart]
    default: functions
  service:
    description:
      - systemd unit to restart. By default, the unit that PostgreSQL runs in.
    type: str
  relations:
    description:
      - Shell patterns for the relations to evict, as in M(pgfleet.cache.residency_restore). A table includes its indexes and TOAST.
      - If PostgreSQL is stopped, their names are those in the newest snapshot.
    type: list
    elements: str
    default: []
  databases:
    description:
      - Shell patterns for the databases of O(relations). An empty list means all.
    type: list
    elements: str
    default: []
  level:
    description:
      - Value that O(scope=host) writes to C(drop_caches). V(1) means the page cache, V(2) the kernel's directory entries and inodes, V(3) both.
    type: int
    choices: [1, 2, 3]
    default: 3
  force:
    description:
      - Carry out O(scope=host) even if other clusters run or clients are connected.
    type: bool
    default: false
  data_directory:
    description:
      - The cluster's data directory. Required if PostgreSQL is stopped; then the module does not log in.
      - While a server runs in it, the login must reach that server.
      - With O(scope=host), the cluster that is measured and, with O(method=restart), restarted.
      - For root, the path must not contain a symbolic link that another user can have made.
      - Required for root with a login over TCP. Over a Unix socket, the kernel identifies the listening process, and without this
        option root checks that this process runs in the directory that the server names.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Evicts nothing and restarts nothing. Counts, and reports by relation what is in the caches.
  diff_mode:
    support: full
    details:
      - Shows how much of each relation was and is in the page cache, for the 20 relations with the most pages in it.
  idempotent:
    support: partial
    details:
      - A running PostgreSQL continues to read its files, so that a second run may find pages to drop. A restart, and
        dropping all of a host's page cache, always count as a change.
notes:
  - Run it as the owner of the data directory, or as root. To other users the kernel reports every page as resident.
  - A storage system or a hypervisor may have its own cache, which this module cannot see.
"""

EXAMPLES = r"""
- name: Evict a running cluster
  pgfleet.cache.cache_evict:
  become: true
  become_user: postgres

- name: Evict a cluster that is stopped
  pgfleet.cache.cache_evict:
    data_directory: /var/lib/postgresql/15/main
  become: true
  become_user: postgres

- name: Evict one table, its indexes and its TOAST from both caches, PostgreSQL 17 or newer
  pgfleet.cache.cache_evict:
    scope: relation
    relations: [public.boarding_pass]
    databases: [postgres_air]
    layers: [page_cache, shared_buffers]
  become: true
  become_user: postgres

- name: Restart a cluster cold, any version
  pgfleet.cache.cache_evict:
    layers: [page_cache, shared_buffers]
    method: restart
    data_directory: /var/lib/postgresql/15/main
  become: true

- name: Drop the page cache of a host that has no other work
  pgfleet.cache.cache_evict:
    scope: host
    data_directory: /var/lib/postgresql/15/main
  become: true
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
  returned: always
  type: str
  sample: 337 MB of 496 MB in 1582 files were resident, 0 B are.
scope:
  description: What was evicted.
  returned: always
  type: str
  sample: cluster
data_directory:
  description: The data directory. V(null) if none was set with O(scope=host).
  returned: always
  type: str
  sample: /var/lib/postgresql/15/main
server:
  description: Whether PostgreSQL was V(running) or V(stopped).
  returned: always
  type: str
  sample: running
restarted:
  description: Whether PostgreSQL was restarted.
  returned: always
  type: bool
  sample: false
files:
  description: Relation files of the cluster.
  returned: always
  type: int
  sample: 1582
bytes:
  description: Size of these files.
  returned: always
  type: int
  sample: 520282112
resident_bytes_before:
  description: Bytes of RV(bytes) that were in the page cache.
  returned: always
  type: int
  sample: 353464320
resident_bytes_after:
  description: Bytes of RV(bytes) that are in the page cache now or, in check mode, would be.
  returned: always
  type: int
  sample: 0
buffer_bytes_before:
  description: Bytes of RV(bytes) that were in C(shared_buffers). V(null) without a login, or without an extension in O(login_db) that reports them.
  returned: always
  type: int
  sample: 104857600
buffer_bytes_after:
  description: Bytes of RV(bytes) that are in C(shared_buffers) now or, in check mode, would be.
  returned: always
  type: int
  sample: 1187840
relations:
  description: At most 20 relations, those with the most in the caches first.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description:
        - Schema and name, as SQL spells them. If PostgreSQL is stopped, from the newest snapshot; V(null) if it does not contain them.
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
    bytes:
      description: Size of its files.
      type: int
    resident_bytes_before:
      description: Bytes of these that were in the page cache.
      type: int
    resident_bytes_after:
      description: Bytes of these that are in the page cache now or, in check mode, would be.
      type: int
    buffer_bytes_before:
      description: Bytes of these that were in C(shared_buffers).
      type: int
    buffer_bytes_after:
      description: Bytes of these that are in C(shared_buffers) now or, in check mode, would be.
      type: int
  sample:
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, bytes: 252157952, resident_bytes_before: 141983744, resident_bytes_after: 0, buffer_bytes_before: 104857600,
        buffer_bytes_after: 0
      }
left:
  description: At most 20 relations whose pages could not be dropped, as in RV(relations), with the reason.
  returned: always
  type: list
  elements: dict
  contains:
    reason:
      description: V(dirty) if the kernel still has to write pages, V(in use) if they are mapped, pinned or were read again.
      type: str
  sample: []
host:
  description: With O(scope=host), bytes of all files of the host in the page cache, before and after.
  returned: always
  type: dict
  sample: null
commands:
  description: Commands that were run on the host, or would have been in check mode.
  returned: always
  type: list
  elements: str
  sample: []
queries:
  description: Statements that were run, or would have been in check mode.
  returned: always
  type: list
  elements: str
  sample: [CHECKPOINT]
diff:
  description: How much of each relation is in the page cache, before and after.
  returned: with C(--diff)
  type: dict
  sample:
    before_header: in the page cache
    after_header: in the page cache
    before: |
      table public.boarding_pass in postgres_air: 135 MB of 240 MB, 56.2 %
    after: |
      table public.boarding_pass in postgres_air: 0 B of 240 MB, 0 %
"""

from functools import partial
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._cache_evict import LAYERS, Options, empty_result, evict
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return evict(options_of(Options, module.params), partial(connect, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            scope={"type": "str", "choices": ["relation", "cluster", "host"], "default": "cluster"},
            layers={"type": "list", "elements": "str", "choices": list(LAYERS), "default": ["page_cache"]},
            method={"type": "str", "choices": ["functions", "restart"], "default": "functions"},
            service={"type": "str"},
            relations={"type": "list", "elements": "str", "default": []},
            databases={"type": "list", "elements": "str", "default": []},
            level={"type": "int", "choices": [1, 2, 3], "default": 3},
            force={"type": "bool", "default": False},
            data_directory={"type": "path"},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
