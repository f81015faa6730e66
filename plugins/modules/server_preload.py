#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_preload
short_description: Preload pg_residency with its parameters, and verify its worker
version_added: 1.0.0
description:
  - Internal. The role P(pgfleet.cache.cache_unattended#role) calls it, and its options may change with every version.
  - Adds the library to C(shared_preload_libraries), beside the libraries that are there, and sets its parameters, with C(ALTER SYSTEM), in a file, or
    in the configuration of a Patroni cluster. Restarts nothing. If the server has loaded the library, waits until its worker has saved.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  state:
    description:
      - Whether the server preloads the library.
    type: str
    choices: [present, absent]
    default: present
  parameters:
    description:
      - The parameters C(pg_residency.*), by their names without the prefix. Those that are not named, or empty, are not set in this place.
    type: dict
    default: {}
  file:
    description:
      - Absolute path of the configuration file to write on the host. Empty means C(ALTER SYSTEM).
    type: str
    default: ""
  manager:
    description:
      - What keeps PostgreSQL running, as in C(pgfleet_service_manager). With V(patroni), the settings are made in the configuration of the whole cluster,
        by the REST API of the member, and the module waits up to 60 s until Patroni has applied them on this host.
    type: str
    default: ""
  members:
    description:
      - With O(manager=patroni), the values RV(member) of the hosts on which the library is known to be. The module refuses to add the library to the
        configuration of a cluster that has another member. If omitted, that is not checked.
    type: list
    elements: dict
  wait_timeout:
    description:
      - Seconds to wait until the worker of a server that has loaded the library has saved.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
requirements:
  - PyYAML, with O(manager=patroni)
notes:
  - The login role must be a superuser. With O(file), the module runs as an operating system user who may write there, with O(manager=patroni) as the
    one that Patroni runs as.
"""

EXAMPLES = r"""
- name: Save both caches every two minutes
  pgfleet.cache.server_preload:
    parameters:
      autosave: 2min
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
  returned: always
  type: str
  sample: The worker is waiting, autosave@3 is saved.
standby:
  description: Whether the server is a standby.
  returned: always
  type: bool
  sample: false
server_version:
  description: Version of PostgreSQL.
  returned: always
  type: str
  sample: "15.9"
restart:
  description: Whether PostgreSQL has to be restarted, after this run or since an earlier one.
  returned: always
  type: bool
  sample: false
parameters:
  description: The settings that are, or would be, in this place.
  returned: always
  type: dict
  sample: {"pg_residency.autosave": "2min", "shared_preload_libraries": "pg_stat_statements, pg_residency"}
worker:
  description: The worker, if the server has loaded the library. Empty in check mode.
  returned: always
  type: dict
  contains:
    state:
      description: What it does, as in the view C(residency_worker).
      type: str
    generation:
      description: The newest generation of its snapshot C(autosave). V(null) if nothing is saved yet.
      type: int
    next_save_at:
      description: Time of the next save. V(null) if none is planned.
      type: str
  sample: {"state": "waiting", "generation": 3, "next_save_at": "2026-11-28 10:05:00.12+00"}
member:
  description: With O(manager=patroni), what O(members) needs of this host. Otherwise empty, also if it is not yet a member of its cluster.
  returned: always
  type: dict
  contains:
    name:
      description: Name of the member.
      type: str
    api_url:
      description: Address of its REST API in the cluster.
      type: str
    libraries:
      description: Other libraries that its configuration files preload, which the list in the cluster's configuration would replace.
      type: list
      elements: str
  sample: {"name": "db1", "api_url": "http://10.0.0.1:8008/patroni", "libraries": []}
queries:
  description: Statements that changed something, or would have in check mode; with Patroni the request.
  returned: always
  type: list
  elements: str
  sample: ["ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements', 'pg_residency'"]
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish
from ansible_collections.pgfleet.cache.plugins.module_utils._server_preload import Options, empty_result, manage


def run(module: AnsibleModule) -> Dict[str, Any]:
    with closing(connect(module.params)) as session:
        return manage(session, options_of(Options, module.params), module.check_mode)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            parameters={"type": "dict", "default": {}},
            file={"type": "str", "default": ""},
            manager={"type": "str", "default": ""},
            members={"type": "list", "elements": "dict"},
            wait_timeout={"type": "int", "default": 30},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
