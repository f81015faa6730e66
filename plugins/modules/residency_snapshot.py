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
  - Saves under a name which blocks of all databases of a cluster are cached now, in the operating system's page cache or in
    C(shared_buffers). Or removes snapshots.
  - The snapshot is a file in C(pg_residency/) below the data directory. It stays on the host; only counts and a digest
    are returned.
  - The server saves the names of relations with the snapshot, for all databases that allow connections; a warning names the
    others. M(pgfleet.cache.residency_restore) selects by these names, and detects by them which relations were rewritten since.
  - A snapshot is thin if it holds less than half of what still exists of the fullest generation of its name. A thin snapshot is saved,
    but the current generation of O(name) does not change, and no fuller generation is removed for a thin one.
    So a snapshot taken while the caches are cold does not replace a good one.
  - The module returns the difference to the previously current generation by relation.
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
      - With O(state=absent), V(warm) means all generations of C(warm), and V(warm@3) its third. Patterns
        (V(*), V(?)) are allowed, such as V(nightly-*).
    type: str
    required: true
  state:
    description:
      - V(present) always saves a new generation, because the contents of the caches change.
      - V(absent) removes the snapshot.
    type: str
    choices: [present, absent]
    default: present
  keep:
    description:
      - Number of generations of O(name) to keep after a new one was saved. Older ones are removed. The fullest one also stays until a
        new one holds as much. A thin one causes only the removal of thin ones.
      - With O(state=absent), number of the newest generations to keep of all that O(name) matches, whatever their names. Thin ones are
        removed before others.
      - The default is 2, and 0 with O(state=absent).
    type: int
  keep_days:
    description:
      - Age in days, decimals allowed, after which generations of O(name) are also removed when a new one was saved.
      - The fullest one stays until a new one holds as much. A thin one removes none by age.
      - With O(state=absent), only older generations are removed, and none of the newest O(keep). Nothing else protects them.
        A generation that cannot be read has no age, and stays.
      - The age is measured by the server's clock. Without this option, there is no limit.
    type: float
    version_added: 0.2.0
  force:
    description:
      - Make the new generation current, however little it holds. Later generations are compared with it, not with
        those before it.
      - Set it once when the working set has become smaller, not in scheduled snapshots.
    type: bool
    default: false
    version_added: 0.2.0
  record_file:
    description:
      - File of this host's record, as M(pgfleet.cache.host_record) keeps it. While the record has a pending restore,
        nothing is saved, because the caches do not hold what they held before. O(force) overrides this.
      - Without this option, no record is checked.
    type: path
    version_added: 0.3.0
attributes:
  check_mode:
    support: full
    details:
      - Saves nothing, and reports what would be saved, of which relations, and whether that would be thin.
      - If the extension is not installed yet, warns and predicts what happens once it is.
  diff_mode:
    support: full
    details:
      - Shows the blocks of the relations that differ most between the generation before and the new one, or the
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

- name: Show how much that is
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

- name: Remove all but the newest seven of the snapshots with a date in their names
  pgfleet.cache.residency_snapshot:
    name: nightly-*
    state: absent
    keep: 7
  become: true
  become_user: postgres

- name: Save a snapshot, and keep at most seven generations, none older than a week
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
  description: Summary in one sentence.
  returned: always
  type: str
  sample: "Saved warm@1: 359 MB of 496 MB are cached in 1262 segments, a file of 68.4 kB."
snapshot:
  description: The new generation. V(null) with O(state=absent), in check mode and on failure.
  returned: always
  type: dict
  contains:
    name:
      description: Name of the snapshot.
      type: str
      sample: warm
    generation:
      description: Number of the generation. The name, C(@) and this number identify it.
      type: int
      sample: 1
    taken_at:
      description: Time at which it was saved.
      type: str
      sample: "2026-11-20T13:48:14.391331+00:00"
    origin:
      description: Name of the host that saved it.
      type: str
      sample: db1
    in_recovery:
      description: Whether that host was a standby at that time.
      type: bool
      sample: false
    system_identifier:
      description: System identifier of the cluster and its physical replicas, from C(pg_control_system(\)).
      type: str
      sample: "7710248028700251915"
    timeline:
      description: Timeline on which it was saved.
      type: int
      sample: 1
    server_version_num:
      description: Version of PostgreSQL.
      type: int
      sample: 150020
    segments:
      description: Segment files that have cached blocks.
      type: int
      sample: 1262
    blocks:
      description: Blocks of 8 KiB in these segments.
      type: int
      sample: 63511
    wanted:
      description: Blocks of 8 KiB that are cached, and that a restore loads.
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
      description: Reason why it cannot be used on this server. V(null) if it can.
      type: str
      sample: null
    thin:
      description: Whether it holds less than half of RV(snapshot.measure). A generation saved with C(force) is never thin.
      type: bool
      sample: false
    current:
      description: Whether it is the generation that the name without a number means.
      type: bool
      sample: true
    measure:
      description:
        - Blocks of 8 KiB of the fullest earlier generation that still existed when this one was taken, as far back as the last forced one.
          V(null) if there was none.
      type: int
      sample: 44102
    age:
      description: Seconds since it was taken, by the server's clock. V(null) if it cannot be read.
      type: float
      sample: 0.041
thin:
  description: Whether the new generation is thin, or would be in check mode. V(null) with O(state=absent) and on failure.
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
  description: At most 20 relations, those with the most blocks saved, or to be saved in check mode, first.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description: Schema and name, as SQL spells them. V(null) if its database allows no connection.
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
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, wanted: 21594
      }
difference:
  description: Difference to the previously current generation. V(null) if there was none.
  returned: always
  type: dict
  contains:
    snapshot:
      description: The previously current generation, with its number.
      type: str
      sample: warm@1
    wanted_before:
      description: Blocks of 8 KiB in the previous one.
      type: int
      sample: 45927
    wanted:
      description: Blocks of 8 KiB in the new one.
      type: int
      sample: 30618
    relations:
      description: At most 20 relations, those that differ most first. Each has the keys of RV(relations), and these.
      type: list
      elements: dict
      contains:
        wanted_before:
          description: Its blocks in the previous generation.
          type: int
      sample:
        - {
            database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
            relfilenumber: 16392, wanted_before: 21594, wanted: 17429
          }
remarks:
  description:
    - What reclaims pages on this host although memory is free (DAMON, C(memory.high)), if this is the server's host. What was reclaimed before is not
      in the snapshot.
  returned: always
  type: list
  elements: str
  sample:
    - "DAMON runs on this host: the kernel reclaims pages that are not read for a while, although memory is free. Save snapshots while the working
      set is in use."
queries:
  description: Statements that changed something, or would have in check mode; long ones are truncated.
  returned: always
  type: list
  elements: str
  sample:
    - SELECT name, generation, taken_at, ... FROM residency_snapshot('warm', 2, false)
diff:
  description: Blocks by relation in the previous generation and in the new one.
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

import os
from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import (
    Session,
    attach_extension,
    connect,
    module_argument_spec,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish
from ansible_collections.pgfleet.cache.plugins.module_utils._states import COLD_TEST, is_pending

_STARTED = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started"


def _require_warm(session: Session, path: str) -> None:
    """Refuse while a restore is pending: the caches hold less than before."""
    directory, name = os.path.split(path)
    found = Records(directory).read(os.path.splitext(name)[0], ("record",))
    if found["fault"]:
        raise ResidencyError(
            "Cannot check for a pending restore of this host: %s. Nothing was saved. Make pgfleet_state_directory readable for the cluster's user"
            " (0755), or correct it."
            % found["fault"])
    record = found["record"] or {}
    pending = record.get("pending")
    if not isinstance(pending, dict):
        return
    try:
        cold = is_pending(record, (session.row(_STARTED) or {}).get("started"))
    except (KeyError, TypeError):  # damaged, which stops the run that continues it
        return
    if cold:
        raise ResidencyError(
            "This host is not as warm as before a %s: %s has not been restored. Nothing was saved. Finish that first, or waive it"
            " (pgfleet_waive)." % ("cold test" if pending["for"] == COLD_TEST else "restart", printable(pending.get("snapshot"), 80)))


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    present = params["state"] == "present"
    keep = params["keep"]
    _residency_snapshot.check_options(params["name"], keep, present, params["keep_days"])
    try:
        with closing(connect(params)) as session:
            attach_extension(session)
            if present:
                if params["record_file"] and not params["force"]:
                    _require_warm(session, params["record_file"])
                keep = _residency_snapshot.KEEP if keep is None else keep
                return _residency_snapshot.take(session, params["name"], keep, params["force"], module.check_mode, params["keep_days"])
            return _residency_snapshot.drop(session, params["name"], keep or 0, module.check_mode, params["keep_days"])
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        result = _residency_snapshot.empty_result()
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
            record_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    finish(module, run, _residency_snapshot.empty_result())


if __name__ == "__main__":
    main()
