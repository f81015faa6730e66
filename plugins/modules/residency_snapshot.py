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
      - With O(state=absent), V(warm) means all generations of C(warm) and V(warm@3) its third.
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
      - How many generations of this name stay after a new one was saved. Older ones are removed.
    type: int
    default: 2
attributes:
  check_mode:
    support: full
    details:
      - Where the extension is not installed yet, says so in a warning and predicts what happens once it is.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - O(state=present) saves a new generation every time.
seealso:
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
  sample: "Saved warm@3: 1.41 GB of 1.65 GB are cached in 312 segments, a file of 14.2 kB."
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
      sample: 3
    taken_at:
      description: When it was saved.
      type: str
      sample: "2026-11-20T12:41:03.512345+00:00"
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
      sample: "7574833217290718432"
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
      sample: 312
    blocks:
      description: Blocks of 8 KiB in these segments.
      type: int
      sample: 216320
    wanted:
      description: Blocks of 8 KiB that are cached, and that a restore brings back.
      type: int
      sample: 184911
    file_bytes:
      description: Size of the snapshot's file.
      type: int
      sample: 14551
    digest:
      description: SHA-256 of the snapshot's file.
      type: str
      sample: 9f2c1fae1b5b6d7ac58b36b1f0c2a0d2a6c5c4a7cbb1a1a8a4d1ab0b65b0f5f7
    problem:
      description: Why it cannot be used here, V(null) when it can.
      type: str
      sample: null
queries:
  description: Statements that changed something, or would have in check mode.
  returned: always
  type: list
  elements: str
  sample: ["SELECT ... FROM residency_snapshot('warm', 2)"]
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
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, ResidencyError


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    present = params["state"] == "present"
    _snapshot.check_options(params["name"], params["keep"], present)
    try:
        with closing(connect(params)) as session:
            attach_extension(session)
            if present:
                return _snapshot.take(session, params["name"], params["keep"], module.check_mode)
            return _snapshot.drop(session, params["name"], module.check_mode)
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        module.warn(str(error))
        result = _snapshot.empty_result()
        result.update(changed=present, msg="Would %s '%s'." % ("save" if present else "find no", params["name"]))
        return result


def main() -> None:
    module = AnsibleModule(
        argument_spec=module_argument_spec(
            name={"type": "str", "required": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            keep={"type": "int", "default": 2},
        ),
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except ResidencyError as error:
        module.fail_json(**dict(_snapshot.empty_result(), **dict(error.result, msg=str(error))))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
