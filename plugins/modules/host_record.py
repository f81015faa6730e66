#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_record
short_description: Read and write a host's record of unfinished work and its lease
version_added: 0.3.0
description:
  - Reads and writes the record of a host (the unfinished work and the debt of a rolling restart or a cold test) and the lease of the current run.
    The roles C(cache_restart) and C(cache_cold_test) use it. It does not need PostgreSQL.
  - Each is a JSON file in O(directory), replaced as a whole and synced. Only the holder of the lease may write the record, which renews the lease.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  directory:
    description:
      - Directory of the files. It is created if missing. Only root and the user that runs the module may be able to replace it.
    type: path
    required: true
  name:
    description:
      - Name of the files, without the suffixes C(.json) and C(.lease).
    type: str
    required: true
  state:
    description:
      - V(read) changes nothing except that it renews O(lease_id), if given.
      - V(leased) takes O(lease), unless another run holds it. Then RV(held_by) names the holder, and the module does not fail.
      - V(written) replaces the record with O(record). O(lease_id) must hold the lease.
      - V(released) releases the lease O(lease_id), if it exists.
    type: str
    choices: [read, leased, written, released]
    default: read
  record:
    description:
      - Content of the record.
    type: dict
    default: {}
  lease:
    description:
      - Content of the lease. Its keys include C(id), and C(silent), the number of seconds without renewal after which the lease is stale.
    type: dict
    default: {}
  lease_id:
    description:
      - The C(id) of the caller's own lease.
    type: str
    default: ""
  silent:
    description:
      - Seconds without renewal after which the caller's lease becomes stale, from now on.
    type: int
  replace:
    description:
      - The ids of leases to take over, stale or not.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    details:
      - Writes nothing, and does not take, renew or release a lease.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - The record and the lease are the collection's own notes, and do not count as a change of the host.
"""

EXAMPLES = r"""
- name: Read whether a rolling restart is unfinished on this host
  pgfleet.cache.host_record:
    directory: /var/lib/pgfleet
    name: "{{ inventory_hostname | pgfleet.cache.file_name }}"
  become: true
  register: found
"""

RETURN = r"""
record:
  description: The record; null if there is none. See docs/restarts.md for its keys.
  returned: always
  type: dict
  sample: {"state": "restarted", "out": true, "debt": {"snapshot": "restart@5"}}
lease:
  description: The lease of any holder; null if there is none.
  returned: always
  type: dict
  sample: {"owner": "alice", "controller": "ctl1", "pid": 4711, "what": "rolling_restart"}
stale:
  description: Whether the lease was not renewed in time.
  returned: always
  type: bool
  sample: false
fault:
  description: Reason why one of the files cannot be read; empty otherwise.
  returned: always
  type: str
  sample: ""
held_by:
  description: With O(state=leased), the lease that another run holds; else null.
  returned: always
  type: dict
  sample: null
taken_over:
  description: With O(state=leased), the lease that was taken over from another run; else null.
  returned: always
  type: dict
  sample: null
"""

import os
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records, stale
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish

EMPTY = {"changed": False, "record": None, "lease": None, "stale": False, "fault": "", "held_by": None, "taken_over": None}


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    name = params["name"]
    if not name or "/" in name or name.startswith("."):
        raise ResidencyError("'%s' is not a file name." % name)
    if params["state"] == "leased" and not (params["lease"].get("id") and params["lease"].get("silent")):
        raise ResidencyError("A lease needs id and silent.")
    records = Records(params["directory"])
    done: Dict[str, Any] = {}
    if not module.check_mode:
        if params["state"] in ("leased", "written"):
            records.prepare()
        if (params["state"] != "read" or params["lease_id"]) and not (params["state"] == "released" and not os.path.isdir(params["directory"])):
            with records.locked():
                done = _change(records, name, params)
    elif params["state"] == "leased":
        done = records.holder(name, params["lease"], params["replace"])
    found = records.read(name)
    return dict(EMPTY, **dict(found, stale=bool(found["lease"]) and stale(found["lease"]), **done))


def _change(records: Records, name: str, params: Dict[str, Any]) -> Dict[str, Any]:
    if params["state"] == "leased":
        return records.take(name, params["lease"], params["replace"])
    if params["state"] == "released":
        records.release(name, params["lease_id"])
        return {}
    records.renew(name, params["lease_id"], params["silent"])
    if params["state"] == "written":
        records.write(name, params["record"])
    return {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["read", "leased", "written", "released"], "default": "read"},
            "record": {"type": "dict", "default": {}},
            "lease": {"type": "dict", "default": {}},
            "lease_id": {"type": "str", "default": ""},
            "silent": {"type": "int"},
            "replace": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    finish(module, run, EMPTY)


if __name__ == "__main__":
    main()
