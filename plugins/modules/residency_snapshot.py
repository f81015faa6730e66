#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_snapshot
short_description: Save which blocks of a PostgreSQL cluster are cached
version_added: 0.1.0
description:
  - Saves which blocks of every database of a cluster are cached now, in the operating system's page cache or in
    C(shared_buffers), under a name, or removes what was saved under a name.
  - The snapshot is a file in C(pg_residency/) below the data directory. It stays on the host; only counts and a digest
    are returned.
  - The server keeps the names of its relations with it, of all databases that can be connected to; the others are named in a
    warning. M(pgfleet.cache.residency_restore) chooses by them, and finds by them what was rewritten since.
  - A snapshot that holds less than half of what still exists of the fullest generation of its name is saved too, and is
    thin. O(name) goes on meaning the generation that it meant before, and no fuller generation is removed for a thin one.
    So a snapshot that was taken while the caches were cold does not take the place of a good one.
  - What is different from the generation that O(name) meant before is shown by relation.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  name:
    description:
      - Name of the snapshot. Letters, digits, C(_), C(.) and C(-), at most 63, beginning with a letter or digit.
      - With O(state=absent), V(warm) means all generations of C(warm) and V(warm@3) its third. It may be a pattern then
        (V(*), V(?)), such as V(nightly-*).
    type: str
    required: true
  state:
    description:
      - V(present) saves a new generation, whether there is one or not, because what is cached has changed since.
      - V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  keep:
    description:
      - How many generations of O(name) stay after a new one was saved. Older ones are removed. The fullest one stays as well, until a
        new one holds as much, and a thin one makes only thin ones go.
      - With O(state=absent) the newest so many stay of all that O(name) means, whatever their names. Thin ones are removed
        before others.
      - The default is 2, and 0 with O(state=absent).
    type: int
  keep_days:
    description:
      - Generations of O(name) that are older than this many days are removed too, after a new one was saved. Decimals are allowed.
      - The fullest one stays, until a new one holds as much, and a thin one removes none by age.
      - With O(state=absent) only generations that are older are removed, and of these none of the newest O(keep). Nothing else protects them
        then. One that cannot be read has no age, and stays.
      - The age is by the clock of the server. Without this option the age does not matter.
    type: float
    version_added: 0.2.0
  force:
    description:
      - Whether the new generation is what O(name) means from now on, however little it holds. Later ones are compared with it,
        and no more with those before it.
      - Set it once when the working set has become smaller, not in scheduled snapshots.
    type: bool
    default: false
    version_added: 0.2.0
attributes:
  check_mode:
    support: full
    details:
      - Saves nothing, and says what would be saved, of which relations, and whether that would be thin.
      - Where the extension is not installed yet, says so in a warning and predicts what happens once it is.
  diff_mode:
    support: full
    details:
      - Shows the blocks of relations in the generation before and in the new one, of those that differ most, or the
        snapshots before and after a removal.
  idempotent:
    support: partial
    details:
      - O(state=present) saves a new generation every time.
seealso:
  - module: pgfleet.cache.residency_info
  - module: pgfleet.cache.residency_restore
"""

EXAMPLES = r"""
- name: Save what is cached now
  pgfleet.cache.residency_snapshot:
    name: warm
  become: true
  become_user: postgres
  register: snapshot

- name: Say how much that is
  ansible.builtin.debug:
    msg: "{{ snapshot.msg }}"

- name: Save a working set that has become much smaller
  pgfleet.cache.residency_snapshot:
    name: warm
    force: true
  become: true
  become_user: postgres

- name: Keep a week of nightly snapshots
  pgfleet.cache.residency_snapshot:
    name: nightly
    keep: 7
  become: true
  become_user: postgres

- name: Remove all but the newest seven of the snapshots that carry a date in their names
  pgfleet.cache.residency_snapshot:
    name: nightly-*
    state: absent
    keep: 7
  become: true
  become_user: postgres

- name: Keep what is not older than a week, and at most seven generations
  pgfleet.cache.residency_snapshot:
    name: nightly
    keep: 7
    keep_days: 7
  become: true
  become_user: postgres

- name: Remove all generations of a snapshot
  pgfleet.cache.residency_snapshot:
    name: before_upgrade
    state: absent
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: What happened, in one sentence.
  returned: always
  type: str
  sample: "Saved warm@1: 359 MB of 496 MB are cached in 1262 segments, a file of 68.4 kB."
snapshot:
  description: The generation that was saved. V(null) for O(state=absent), in check mode and on failure.
  returned: always
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: warm
    generation:
      description: Its generation. The name, C(@) and this number mean exactly this one.
      type: int
      sample: 1
    taken_at:
      description: When it was saved.
      type: str
      sample: "2026-11-20T13:48:14.391331+00:00"
    origin:
      description: Name of the host that saved it.
      type: str
      sample: db1
    in_recovery:
      description: Whether that host was a standby then.
      type: bool
      sample: false
    system_identifier:
      description: The cluster and its physical replicas, as C(pg_control_system(\)) names them.
      type: str
      sample: "7710248028700251915"
    timeline:
      description: The timeline it was saved on.
      type: int
      sample: 1
    server_version_num:
      description: PostgreSQL's version.
      type: int
      sample: 150020
    segments:
      description: Segment files with something cached.
      type: int
      sample: 1262
    blocks:
      description: Blocks of 8 KiB in these segments.
      type: int
      sample: 63511
    wanted:
      description: Blocks of 8 KiB that are cached, and that a restore brings back.
      type: int
      sample: 45927
    in_page_cache:
      description: Blocks of these that are in the page cache.
      type: int
      sample: 43143
    in_shared_buffers:
      description: Blocks of these that are in shared buffers.
      type: int
      sample: 8192
    in_both:
      description: Blocks of these that are in both.
      type: int
      sample: 5408
    file_bytes:
      description: Size of the snapshot's file.
      type: int
      sample: 70081
    digest:
      description: SHA-256 of the snapshot's file.
      type: str
      sample: 48dc94af295fcbef0382d08076da9dd4226e5fb185d5469915346a1d4063970b
    problem:
      description: Why it cannot be used here, V(null) when it can.
      type: str
      sample: null
    thin:
      description: Whether it holds less than half of RV(snapshot.measure). C(force) makes one that does not count as thin.
      type: bool
      sample: false
    current:
      description: Whether it is what its bare name means.
      type: bool
      sample: true
    measure:
      description:
        - Blocks of 8 KiB that still existed, when it was taken, of the fullest generation before it, as far back as the last forced one.
          V(null) when there was none, or when pg_residency took it before version 0.3.0.
      type: int
      sample: 44102
    age:
      description: Seconds since it was taken, by the clock of the server. V(null) when it cannot be read.
      type: float
      sample: 0.041
thin:
  description: Whether the new generation is thin, or would be in check mode. V(null) for O(state=absent) and on failure.
  returned: always
  type: bool
  sample: false
removed:
  description: Generations that were removed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [warm@1]
relations:
  description: At most 20 relations, those first of which most is saved, or would be in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description: Schema and name, as SQL spells them. V(null) when its database cannot be connected to.
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
    wanted:
      description: Blocks of 8 KiB that are cached.
      type: int
  sample:
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      wanted: 21594
difference:
  description: What is different from the generation that the name meant before. V(null) when there is none.
  returned: always
  type: dict
  contains:
    snapshot:
      description: The generation that the name meant before, with its number.
      type: str
      sample: warm@1
    wanted_before:
      description: Blocks of 8 KiB in that.
      type: int
      sample: 45927
    wanted:
      description: Blocks of 8 KiB in the new one.
      type: int
      sample: 30618
    relations:
      description: At most 20 relations, those first that differ most. Each has the keys of RV(relations), and these.
      type: list
      elements: dict
      contains:
        wanted_before:
          description: Its blocks in the generation before.
          type: int
      sample:
        - database: postgres_air
          relation: public.boarding_pass
          kind: table
          belongs_to: null
          database_oid: 16384
          tablespace: 1663
          relfilenumber: 16392
          wanted_before: 21594
          wanted: 17429
queries:
  description: Statements that changed something, or would have in check mode; long ones cut short.
  returned: always
  type: list
  elements: str
  sample:
    - SELECT name, generation, taken_at, ... FROM residency_snapshot('warm', 2, false)
diff:
  description: Blocks by relation in the generation before and in the new one.
  returned: with C(--diff)
  type: dict
  sample:
    before_header: warm@1
    after_header: warm@2
    before: |
      table public.boarding_pass in postgres_air: 169 MB
    after: |
      table public.boarding_pass in postgres_air: 136 MB
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import (
    attach_extension,
    connect,
    module_argument_spec,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    present = params["state"] == "present"
    keep = params["keep"]
    _snapshot.check_options(params["name"], keep, present, params["keep_days"])
    try:
        with closing(connect(params)) as session:
            attach_extension(session)
            if present:
                keep = _snapshot.KEEP if keep is None else keep
                return _snapshot.take(session, params["name"], keep, params["force"], module.check_mode, params["keep_days"])
            return _snapshot.drop(session, params["name"], keep or 0, module.check_mode, params["keep_days"])
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        result = _snapshot.empty_result()
        result.update(
            changed=present,
            msg="Would %s '%s'." % ("save" if present else "find no", params["name"]),
            warnings=[str(error)],
        )
        return result


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            name={"type": "str", "required": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            keep={"type": "int"},
            keep_days={"type": "float"},
            force={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    finish(module, run, _snapshot.empty_result())


if __name__ == "__main__":
    main()
