#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: patroni
short_description: Restart PostgreSQL through Patroni, or switch over
version_added: 1.0.0
description:
  - Internal. The roles call it if C(pgfleet_service_manager) is V(patroni), and its options may change with every version.
  - Finds the Patroni that keeps a server running by its process, and its REST API by its configuration, as C(patronictl) would. Refuses to restart
    a member of a cluster that is paused, without a leader, or in the middle of something else.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  data_directory:
    description:
      - Data directory of the server.
    type: str
    required: true
  state:
    description:
      - Whether to restart PostgreSQL, to make another member the leader, or only to check that PostgreSQL could be restarted. The check includes
        the password of the API.
    type: str
    choices: [checked, restarted, switched_over]
    default: checked
  role:
    description:
      - The role that PostgreSQL has. With another one, Patroni restarts nothing. If omitted, the role that Patroni reports.
    type: str
    choices: [primary, replica]
  candidate:
    description:
      - Name of the member that becomes the leader, with V(switched_over), or that is to become it later, with V(checked).
    type: str
    default: ""
  reboots:
    description:
      - Whether the host is about to be rebooted.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the start may take. For the stop before it, Patroni has no limit.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: N/A
requirements:
  - PyYAML
notes:
  - Runs as the operating system user that owns the cluster, as which Patroni has to run too.
"""

EXAMPLES = r"""
- name: Restart a standby
  pgfleet.cache.patroni:
    data_directory: /var/lib/postgresql/15/main
    state: restarted
    role: replica
  become: true
  become_user: postgres
"""

RETURN = r"""
member:
  description: Name of the member of the cluster.
  returned: always
  type: str
  sample: db1
role:
  description: Its role for Patroni, V(primary) or V(replica).
  returned: always
  type: str
  sample: replica
url:
  description: Address of the REST API.
  returned: always
  type: str
  sample: http://10.0.0.1:8008
refused:
  description: Of one that failed, whether Patroni has refused or was not asked, so that it does nothing later either.
  returned: always
  type: bool
  sample: false
unit:
  description: The systemd unit that runs Patroni. V(null) if none does.
  returned: always
  type: str
  sample: patroni.service
version:
  description: Version of Patroni.
  returned: always
  type: str
  sample: 4.1.5
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni import empty_result, manage
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return manage(check_mode=module.check_mode, **module.params)


def main() -> None:
    module = Module(
        argument_spec={
            "data_directory": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["checked", "restarted", "switched_over"], "default": "checked"},
            "role": {"type": "str", "choices": ["primary", "replica"]},
            "candidate": {"type": "str", "default": ""},
            "reboots": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
