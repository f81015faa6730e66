#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: patroni_traffic
short_description: Take a standby out of the traffic of load balancers that ask Patroni
version_added: 1.0.0
description:
  - Internal. The role P(pgfleet.cache.cache_restart#role) calls it if C(cache_restart_traffic) has V(patroni), and its options may change with every
    version.
  - Sets or removes the tag C(noloadbalance) in the configuration of the member's own Patroni, lets Patroni reload it, and waits until C(/replica) answers
    accordingly. A tag that is there already is left alone.
  - With V(out), waits then until the sessions of clients on the server have ended.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  data_directory:
    description:
      - Data directory of the server.
    type: str
    required: true
  state:
    description:
      - Whether the member is out of traffic, or only to look.
    type: str
    choices: [seen, out, in]
    default: seen
  timeout:
    description:
      - Seconds to wait for the sessions of clients.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
requirements:
  - PyYAML
notes:
  - Runs as the operating system user that owns the cluster, who has to be able to write the configuration of Patroni.
"""

EXAMPLES = r"""
- name: Take a standby out of traffic
  pgfleet.cache.patroni_traffic:
    data_directory: /var/lib/postgresql/15/main
    state: out
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: Whether the member is in traffic, in one sentence.
  returned: always
  type: str
  sample: db2 is out of traffic.
member:
  description: Name of the member of the cluster.
  returned: always
  type: str
  sample: db2
out:
  description: Whether the member is out of traffic by this module. V(null) if the user has set the tag.
  returned: always
  type: bool
  sample: true
problem:
  description: Why the tag could not be set. Only with O(state=seen).
  returned: always
  type: str
  sample: ""
sessions:
  description: Number of clients' sessions that have not ended in time. V(null) if none were awaited.
  returned: always
  type: int
  sample: 0
others:
  description: Names of the other standbys in traffic.
  returned: always
  type: list
  elements: str
  sample: [db3]
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_traffic import described, empty_result, manage, sessions_left
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    asked = (module.params["data_directory"], module.params["state"], module.check_mode)
    if module.check_mode or module.params["state"] != "out":
        result = manage(*asked)
    else:
        with closing(connect(module.params)) as session:
            result = manage(*asked)
            result["sessions"] = sessions_left(session, module.params["timeout"], result["changed"])
    return dict(result, msg=described(result))


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            data_directory={"type": "str", "required": True},
            state={"type": "str", "choices": ["seen", "out", "in"], "default": "seen"},
            timeout={"type": "int", "default": 60},
        ),
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
