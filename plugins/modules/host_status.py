#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_status
short_description: Return the state of a host, and what to do next there
version_added: 1.0.0
description:
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - Reads both caches, the last snapshot, the last restore, the host's record of unfinished work and its lease. It changes nothing.
  - A server that does not run, a missing extension and a damaged record do not fail the task. RV(to_do) has them.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  directory:
    description:
      - Directory of the record and the lease.
    type: path
    required: true
  name:
    description:
      - Name of these files, without the suffixes C(.json) and C(.lease).
    type: str
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Read the state of the host
  pgfleet.cache.host_status:
    directory: /var/lib/pgfleet
    name: "{{ inventory_hostname | pgfleet.cache.file_name }}"
  become: true
  become_user: postgres
  register: status
"""

RETURN = r"""
msg:
  description: What to do next, or that nothing is to be done.
  returned: always
  type: str
  sample: Nothing is to be done on db1.
standby:
  description: Whether the server is a standby. V(null) if it does not run.
  returned: always
  type: bool
  sample: false
total:
  description: Both caches of the cluster, as RV(pgfleet.cache.residency_info#module:total). V(null) without the extension.
  returned: always
  type: dict
  sample: {"blocks": 200000, "in_page_cache": 180000, "in_shared_buffers": 16384, "in_both": 16000, "dirty_in_page_cache": 0,
           "dirty_in_shared_buffers": 12, "percent": 90.19}
snapshot:
  description: The newest usable snapshot; C(age) in seconds, C(residency) in percent. V(null) if there is none.
  returned: always
  type: dict
  sample: {"name": "warm@3", "age": 7200.5, "thin": false, "residency": 94.61}
restore:
  description: The newest restore job; C(ended) in seconds ago, V(null) while it runs or holds. V(null) if there is none.
  returned: always
  type: dict
  sample: {"snapshot": "warm@3", "state": "done", "ended": 600.2}
lease:
  description: The lease of the run that works on the host, or that was interrupted there. V(null) if there is none.
  returned: always
  type: dict
  sample: null
left:
  description: What a run left unfinished on the host.
  returned: always
  type: list
  elements: str
  sample: ["db2 is out of traffic"]
to_do:
  description: What to do next, if no other run is at work. Empty if nothing is to be done.
  returned: always
  type: str
  sample: "Run pgfleet.cache.rolling_restart again: it was not finished, and db2 is out of traffic."
remarks:
  description: What is unusual, and needs no action.
  returned: always
  type: list
  elements: str
  sample: ["warm@3 is older than a day."]
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _host_status
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    name = module.params["name"]
    if not name or "/" in name:
        raise ResidencyError("'%s' is not a file name." % name)
    return _host_status.status(lambda: connect(module.params), module.params["directory"], name)


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            directory={"type": "path", "required": True},
            name={"type": "str", "required": True},
        ),
        supports_check_mode=True,
    )
    finish(module, run, _host_status.empty_result())


if __name__ == "__main__":
    main()
