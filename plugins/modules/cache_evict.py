#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cache_evict
short_description: Drop a PostgreSQL cluster's files from the page cache
version_added: 0.1.0
description:
  - Drops the pages of a cluster's relation files from the operating system's page cache, file by file, and counts them
    before and after. Other clusters and programs on the host keep theirs. It needs neither root nor the extension.
  - With PostgreSQL running it asks for a C(CHECKPOINT) first, because dirty pages cannot be dropped. With PostgreSQL
    stopped it needs no login.
  - It never syncs a file. A write error that was reported here would be hidden from PostgreSQL.
  - It does not empty C(shared_buffers). For a cold cluster, stop PostgreSQL, evict and start it again.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  scope:
    description:
      - What to drop. V(cluster) means all databases and tablespaces of one cluster.
    type: str
    choices: [cluster]
    default: cluster
  data_directory:
    description:
      - The cluster's data directory. Required when PostgreSQL is stopped in it, which then nobody logs in to.
      - While a server runs in it, the login has to reach that one.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Evicts nothing, counts, and says what is in the page cache by relation.
  diff_mode:
    support: full
    details:
      - Shows how much of each relation was and is in the page cache, of the 20 that had most in it.
  idempotent:
    support: partial
    details:
      - A running PostgreSQL reads its files meanwhile, so that a second run may find pages to drop again.
notes:
  - Run it as the owner of the data directory, or as root. The kernel tells everyone else that every page is resident.
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
"""

RETURN = r"""
msg:
  description: What happened, in one sentence.
  returned: always
  type: str
  sample: 337 MB of 496 MB in 1582 files were resident, 0 B are.
data_directory:
  description: The data directory.
  returned: always
  type: str
  sample: /var/lib/postgresql/15/main
server:
  description: Whether PostgreSQL was V(running) or V(stopped).
  returned: always
  type: str
  sample: running
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
relations:
  description: At most 20 relations, those first that had most in the page cache.
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
from ansible_collections.pgfleet.cache.plugins.module_utils._evict import empty_result, evict_cluster
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return evict_cluster(module.params, module.check_mode)


def main() -> None:
    module = AnsibleModule(
        argument_spec=module_argument_spec(
            scope={"type": "str", "choices": ["cluster"], "default": "cluster"},
            data_directory={"type": "path"},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
