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
  - Drops the pages of relations, or of all of a cluster's, from the operating system's page cache, file by file, and counts
    them before and after. Other clusters and programs on the host keep theirs. That needs no root.
  - With PostgreSQL running, O(scope=relation) needs the extension in O(login_db), which knows the names of all databases. Other
    scopes work without it, and then return relations by their numbers.
  - With PostgreSQL running it asks for a C(CHECKPOINT) first, because dirty pages cannot be dropped. With PostgreSQL
    stopped it needs no login.
  - Empties C(shared_buffers) too where it is asked to, by functions that PostgreSQL has from 17 on, or by a restart.
  - It never calls C(fsync) on a file. A write error that was reported here would be hidden from PostgreSQL.
  - With O(scope=host) it drops the page cache of the whole machine, which slows down everybody there.
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
      - V(host) means everything on the machine, by C(sync) and C(/proc/sys/vm/drop_caches). It takes root, does not log in, and is
        refused while other clusters run, or clients are connected, unless O(force) is set. In a container it means the
        machine that the container is on.
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
      - How C(shared_buffers) are emptied. V(functions) means C(pg_buffercache_evict), which needs PostgreSQL 17 or newer, the extension
        C(pg_buffercache) in O(login_db), in a schema that belongs to a superuser, and a login role that is one.
      - V(restart) means a restart of PostgreSQL, and that the page cache is emptied while it is stopped. With O(data_directory)
        nobody logs in for it. Where PostgreSQL runs as a unit of systemd it takes root, otherwise C(pg_ctl) is used.
    type: str
    choices: [functions, restart]
    default: functions
  service:
    description:
      - The unit of systemd to restart. Without it, the one that PostgreSQL runs in.
    type: str
  relations:
    description:
      - Shell patterns for the relations to evict, as in M(pgfleet.cache.residency_restore). A table means its indexes and TOAST too.
      - With PostgreSQL stopped, their names are those that the newest snapshot has with it.
    type: list
    elements: str
    default: []
  databases:
    description:
      - Shell patterns for the databases of O(relations). None mean all.
    type: list
    elements: str
    default: []
  level:
    description:
      - What O(scope=host) writes to C(drop_caches). V(1) means the page cache, V(2) the kernel's directory entries and inodes, V(3) both.
    type: int
    choices: [1, 2, 3]
    default: 3
  force:
    description:
      - Whether O(scope=host) is carried out although other clusters run or clients are connected.
    type: bool
    default: false
  data_directory:
    description:
      - The cluster's data directory. Required when PostgreSQL is stopped in it, which then nobody logs in to.
      - While a server runs in it, the login has to reach that one.
      - With O(scope=host), the cluster that is meant to be there; it is counted, and restarted if O(method=restart) says so.
      - For root, no link in the path may be one that another user can have made.
      - Required for root where the login is over TCP. Over a Unix socket the kernel names the process that listens there, and without this
        option root checks that this process runs in the directory that the server names.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Evicts nothing, restarts nothing, counts, and says what is in the caches by relation.
  diff_mode:
    support: full
    details:
      - Shows how much of each relation was and is in the page cache, of the 20 that had most in it.
  idempotent:
    support: partial
    details:
      - A running PostgreSQL reads its files meanwhile, so that a second run may find pages to drop again. A restart, and
        dropping all of a host's page cache, are always a change.
notes:
  - Run it as the owner of the data directory, or as root. The kernel tells everyone else that every page is resident.
  - A storage system or a hypervisor may cache too. This module cannot see that.
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

- name: Drop the page cache of a host of which nothing else is asked
  pgfleet.cache.cache_evict:
    scope: host
    data_directory: /var/lib/postgresql/15/main
  become: true
"""

RETURN = r"""
msg:
  description: What happened, in one sentence.
  returned: always
  type: str
  sample: 337 MB of 496 MB in 1582 files were resident, 0 B are.
scope:
  description: What was evicted.
  returned: always
  type: str
  sample: cluster
data_directory:
  description: The data directory; V(null) when none was named with O(scope=host).
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
  description: Their size.
  returned: always
  type: int
  sample: 520282112
resident_bytes_before:
  description: What of it was in the page cache.
  returned: always
  type: int
  sample: 353464320
resident_bytes_after:
  description: What of it is in the page cache now or, in check mode, would be.
  returned: always
  type: int
  sample: 0
buffer_bytes_before:
  description: What of it was in C(shared_buffers); V(null) when no extension in O(login_db) told, or nobody logged in.
  returned: always
  type: int
  sample: 104857600
buffer_bytes_after:
  description: What of it is in C(shared_buffers) now or, in check mode, would be.
  returned: always
  type: int
  sample: 1187840
relations:
  description: At most 20 relations, those first that had most in the caches.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description:
        - Schema and name, as SQL spells them. With PostgreSQL stopped, as the newest snapshot has them; V(null) when it has not.
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
      description: What of it was in the page cache.
      type: int
    resident_bytes_after:
      description: What of it is in the page cache now or, in check mode, would be.
      type: int
    buffer_bytes_before:
      description: What of it was in C(shared_buffers).
      type: int
    buffer_bytes_after:
      description: What of it is in C(shared_buffers) now or, in check mode, would be.
      type: int
  sample:
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      bytes: 252157952
      resident_bytes_before: 141983744
      resident_bytes_after: 0
      buffer_bytes_before: 104857600
      buffer_bytes_after: 0
left:
  description: What would not go, at most 20 relations, as in RV(relations), with the reason.
  returned: always
  type: list
  elements: dict
  contains:
    reason:
      description: V(dirty) when the kernel has still to write pages, V(in use) when they are mapped, pinned or were read again.
      type: str
  sample: []
host:
  description: What the page cache held of all files of the machine, in bytes, before and after, with O(scope=host).
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

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._evict import LAYERS, empty_result, evict
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return evict(module.params, module.check_mode)


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
