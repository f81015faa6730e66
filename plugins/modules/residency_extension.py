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
  - Creates or updates the extension in databases, creates the role C(residency_admin), grants it the functions that change something,
    and compares the version of the extension with that of the library. Or drops the extension, without CASCADE.
  - On a standby, changes nothing and waits until the primary's changes are replicated.
  - The files of the extension must be on the host. The role P(pgfleet.cache.cache_extension#role) installs them, and calls this module.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  state:
    description:
      - Whether the databases should have the extension.
    type: str
    choices: [present, absent]
    default: present
  databases:
    description:
      - The databases, or V(all), which means those that allow connections and are not templates. RV(left_out) names the others.
      - A database that fails does not stop the others. The module fails at the end, and names each failed database with its reason.
    type: list
    elements: str
    default: [postgres]
  schema:
    description:
      - Schema of the extension. A missing schema is created, and an extension in another schema is moved.
      - By default, an existing extension stays in its schema, unless that schema is not owned by a superuser. Then it is moved to V(residency).
        A new extension is created in V(public) if only superusers may create or replace objects there,
        otherwise in V(residency), with a warning.
      - A schema in which other roles may create or replace objects is refused. With an object of the same name as one of the extension's,
        they could run code with the rights of the roles that use the extension.
    type: str
  functions:
    description:
      - Functions that the extension must have.
    type: list
    elements: str
    default: []
  purge:
    description:
      - With O(state=absent), also drop the role C(residency_admin) if no database has the extension any more.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds that a standby waits for the primary's changes, for all databases together.
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
  - The login role must be a superuser, because the extension is a library in C.
"""

EXAMPLES = r"""
- name: Create or update the extension in every database
  pgfleet.cache.residency_extension:
    databases: [all]
  become: true
  become_user: postgres

- name: Drop the extension from one database
  pgfleet.cache.residency_extension:
    databases: [sales]
    state: absent
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
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
  sample: 1.0.0
databases:
  description: The extension in each database.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: The database.
      type: str
    schema_before:
      description: Previous schema of the extension. V(null) if the database did not have it.
      type: str
    schema:
      description: Schema of the extension. V(null) if the database does not have it.
      type: str
    version_before:
      description: Previous version. V(null) if the database did not have it.
      type: str
    version:
      description: Present version, or the version that would be present.
      type: str
    changed:
      description: Whether the extension was, or would be, created, updated, moved or dropped.
      type: bool
    problem:
      description: Reason of a failure in this database.
      type: str
  sample:
    - {database: sales, schema_before: null, schema: public, version_before: null, version: 1.0.0, changed: true, problem: null}
left_out:
  description: With V(all), the databases that are templates or allow no connections.
  returned: always
  type: list
  elements: str
  sample: [template0, template1]
needed_by:
  description: With O(state=absent), the databases that still have the extension, or that cannot be queried.
  returned: always
  type: list
  elements: str
  sample: []
queries:
  description: Statements that changed something, or would have in check mode.
  returned: always
  type: list
  elements: str
  sample: ["CREATE EXTENSION pg_residency SCHEMA public"]
"""

from functools import partial
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._residency_extension import Options, empty_result, manage
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return manage(options_of(Options, module.params), partial(connect, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            databases={"type": "list", "elements": "str", "default": ["postgres"]},
            schema={"type": "str"},
            functions={"type": "list", "elements": "str", "default": []},
            purge={"type": "bool", "default": False},
            wait_timeout={"type": "int", "default": 30},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
