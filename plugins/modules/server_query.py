#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_query
short_description: Run one read-only query
version_added: 0.2.0
description:
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - Runs one C(SELECT), C(VALUES), C(TABLE) or C(WITH) in a read-only transaction and returns its rows. The server decides whether it is a
    single statement that only reads.
  - The search path is C(pg_catalog, pg_temp), whatever the role, the database and the cluster have set. Time zone, date style,
    timeouts and all other settings that could change the result are fixed, too. Qualify names in other schemas.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  query:
    description:
      - The query. Write a parameter as V(%(name\)s). With O(named_args), write a percent sign twice.
    type: str
    required: true
  named_args:
    description:
      - Values of the parameters.
    type: dict
    default: {}
  checkpoint:
    description:
      - Run a C(CHECKPOINT) first, except in check mode.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Never changes anything.
seealso:
  - module: community.postgresql.postgresql_query
"""

EXAMPLES = r"""
- name: List the databases
  pgfleet.cache.server_query:
    query: SELECT datname FROM pg_database WHERE datallowconn AND datname <> %(name)s
    named_args:
      name: postgres
  become: true
  become_user: postgres
  register: found
"""

RETURN = r"""
msg:
  description: The number of rows, in one sentence.
  returned: always
  type: str
  sample: The query has 2 rows.
query_result:
  description: The rows, by the names of their columns. Values without a JSON type are text.
  returned: always
  type: list
  elements: dict
  sample: [{"datname": "sales"}, {"datname": "template1"}]
rowcount:
  description: Number of rows.
  returned: always
  type: int
  sample: 2
queries:
  description: C(CHECKPOINT), if it was run, or would have been in check mode.
  returned: always
  type: list
  elements: str
  sample: []
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish
from ansible_collections.pgfleet.cache.plugins.module_utils._server_query import Options, ask, empty_result


def run(module: AnsibleModule) -> Dict[str, Any]:
    with closing(connect(module.params)) as session:
        return ask(session, options_of(Options, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            query={"type": "str", "required": True},
            named_args={"type": "dict", "default": {}},
            checkpoint={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
