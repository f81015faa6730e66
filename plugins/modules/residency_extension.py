#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_extension
short_description: Create, update, verify or drop the extension pg_residency in the databases of a cluster
version_added: 0.2.0
description:
  - Creates or updates the extension in databases, creates the role C(residency_admin) and grants it the functions that change something,
    and compares the version of the extension with that of the library. Or drops the extension, without CASCADE.
  - On a standby nothing is changed. The module waits until replication has brought what the primary has.
  - The files of the extension have to be on the host. The role P(pgfleet.cache.cache_extension#role) installs them, and calls this module.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  state:
    description:
      - Whether the extension is to be in the databases.
    type: str
    choices: [present, absent]
    default: present
  databases:
    description:
      - The databases, or V(all), which means those that allow connections and are no templates. RV(left_out) names the others.
      - One that fails keeps no other from its turn. The module fails when all had theirs, and names each with its reason.
    type: list
    elements: str
    default: [postgres]
  schema:
    description:
      - Schema of the extension. One that is missing is created, and an extension in another is moved.
      - By default an extension stays where it is, unless that schema does not belong to a superuser. Then it is moved to V(residency).
        A new one comes to V(public) when only superusers may create or replace objects there,
        otherwise to V(residency), with a warning.
      - A schema in which other roles may create or replace objects is refused. By an object with the name of one of the extension's,
        they could run code with the rights of the roles that use the extension.
    type: str
  functions:
    description:
      - Functions that the extension must have.
    type: list
    elements: str
    default: []
  preload:
    description:
      - With O(state=present), add the library to C(shared_preload_libraries) by C(ALTER SYSTEM). PostgreSQL then needs a restart.
    type: bool
    default: false
  purge:
    description:
      - With O(state=absent), drop the role C(residency_admin), too, when no database has the extension any more.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds that a standby waits for what its primary has, for all databases together.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - The login role has to be a superuser, because the extension is a library in C.
"""

EXAMPLES = r"""
- name: Create or update it in every database
  pgfleet.cache.residency_extension:
    databases: [all]
  become: true
  become_user: postgres

- name: Take it away from one
  pgfleet.cache.residency_extension:
    databases: [sales]
    state: absent
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: What was done, in one sentence.
  returned: always
  type: str
  sample: Created or updated the extension in sales.
standby:
  description: Whether the server is a standby.
  returned: always
  type: bool
  sample: false
version:
  description: Version of the extension and of its library.
  returned: always
  type: str
  sample: 0.3.0
databases:
  description: What is in each database.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: The database.
      type: str
    schema_before:
      description: Schema that it was in before. V(null) where it was not.
      type: str
    schema:
      description: Schema of the extension. V(null) where it is not.
      type: str
    version_before:
      description: Version that was there before. V(null) where it was not.
      type: str
    version:
      description: Version that is there now, or would be.
      type: str
    changed:
      description: Whether it was created, updated, moved or dropped, or would be.
      type: bool
    problem:
      description: Why it failed there.
      type: str
  sample:
    - database: sales
      schema_before: null
      schema: public
      version_before: null
      version: 0.3.0
      changed: true
      problem: null
left_out:
  description: With V(all), the databases that are templates or allow no connections.
  returned: always
  type: list
  elements: str
  sample: [template0, template1]
needed_by:
  description: With O(state=absent), the databases that still have the extension, or cannot be asked.
  returned: always
  type: list
  elements: str
  sample: []
preload:
  description: Whether O(preload) needs a restart, after this run or since an earlier one.
  returned: always
  type: bool
  sample: false
queries:
  description: Statements that changed something, or would have in check mode.
  returned: always
  type: list
  elements: str
  sample: ["CREATE EXTENSION pg_residency SCHEMA public"]
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._extension import empty_result, manage
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return manage(module.params, module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            databases={"type": "list", "elements": "str", "default": ["postgres"]},
            schema={"type": "str"},
            functions={"type": "list", "elements": "str", "default": []},
            preload={"type": "bool", "default": False},
            purge={"type": "bool", "default": False},
            wait_timeout={"type": "int", "default": 30},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
