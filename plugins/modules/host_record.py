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
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - Reads and writes the record of a host (the unfinished work and the pending restore of a rolling restart, a cold test or a play) and the lease of the current
    run. It does not need PostgreSQL.
  - Each is a JSON file in O(directory), replaced as a whole and synced. Only the run that holds the lease may write the record, and an event that the
    record does not allow is refused.
  - A lease has no time limit. It ends when its run releases it, when its run has ended on the same controller, or when an operator takes it over.
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
      - V(read) changes nothing.
      - V(held) changes nothing, and fails unless this run holds the lease.
      - V(free) changes nothing, and fails if another run holds the lease.
      - V(leased) takes the lease, and fails if another run holds it.
      - V(written) applies O(event) to the record. The run must hold the lease; with O(what) it takes the lease for this event only.
      - V(released) releases the lease of this run, if it exists.
    type: str
    choices: [read, held, free, leased, written, released]
    default: read
  event:
    description:
      - The event that has happened, or is about to happen, with O(state=written). docs/restarts.md has the events.
    type: str
    choices: [begin, go_on, save, going_out, out, pausing, stopping, restarted, resumed, going_in, in, warm, done, ended, left, waived, put_back,
              finished]
  facts:
    description:
      - What belongs to the event.
    type: dict
    default: {}
  remarks:
    description:
      - Sentences for the report, added to the record.
    type: list
    elements: str
    default: []
  phase:
    description:
      - The phases that end with this event, separated by blanks. Their seconds count from the previous event.
    type: str
    default: ""
  announce:
    description:
      - A line that is printed on the controller before the event is recorded, such as what waits if the run is interrupted now.
    type: str
    default: ""
  what:
    description:
      - What the run does, for other runs that find its lease. V(cold_test) and V(play) are refused on a host with other unfinished work.
    type: str
    default: ""
  take_over:
    description:
      - The C(id) of another run whose lease is taken over, as the message of the refused run names it.
    type: str
    default: ""
  at:
    description:
      - The C(at) of the record that the caller has read, with O(state=leased). If the record is a newer one, the lease is not taken.
    type: float
  data_directory:
    description:
      - Data directory of the server, with O(state=leased). A lease of the same server under another name prevents this one.
    type: str
    default: ""
  lease:
    description:
      - Content of the lease of this run. Set by the action plugin.
    type: dict
    default: {}
  replace:
    description:
      - The ids of leases that are taken over. Set by the action plugin.
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
  sample: {"state": "restarted", "out": true, "pending": {"snapshot": "restart@5"}}
lease:
  description: The lease of any holder; null if there is none.
  returned: always
  type: dict
  sample: {"owner": "alice", "controller": "ctl1", "pid": 4711, "what": "rolling_restart"}
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
remark:
  description: A sentence for the report about the lease that was taken over; empty if none was.
  returned: always
  type: str
  sample: "This run has taken over the lease of alice on ctl1 (rolling_restart, process 4711, since 2026-11-22T03:45:01Z)."
"""

import os
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._host_record import Records
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish

READING = ("read", "held", "free")
EMPTY = {"changed": False, "record": None, "lease": None, "fault": "", "held_by": None, "taken_over": None, "remark": ""}


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    name = params["name"]
    if not name or "/" in name or name.startswith("."):
        raise ResidencyError("'%s' is not a file name." % name)
    if params["state"] not in READING and not params["lease"].get("id"):
        raise ResidencyError("A lease needs an id.")
    records = Records(params["directory"])
    done: Dict[str, Any] = {}
    if not module.check_mode:
        if params["state"] in ("leased", "written"):
            records.prepare()
        if params["state"] not in READING and not (params["state"] == "released" and not os.path.isdir(params["directory"])):
            with records.locked():
                done = _change(records, name, params)
    elif params["state"] == "leased":
        done = records.holder(name, params["lease"], params["replace"])
    found = records.read(name)
    if params["state"] == "held":
        records.require(found["lease"], params["lease"].get("id"))
    return dict(EMPTY, **dict(found, **done))


def _change(records: Records, name: str, params: Dict[str, Any]) -> Dict[str, Any]:
    if params["state"] == "leased":
        done = records.take(name, params["lease"], params["replace"])
        if not done["held_by"] and params["at"] is not None and (records.read(name)["record"] or {}).get("at", 0) != params["at"]:
            records.release(name, params["lease"]["id"])
            raise ResidencyError("another run has changed the state of this host in the meantime. Run the playbook again.")
        return done
    if params["state"] == "released":
        records.release(name, params["lease"]["id"])
    else:
        records.event(name, params["lease"]["id"], params["event"], params["facts"], params["remarks"], params["phase"])
    return {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["read", "held", "free", "leased", "written", "released"], "default": "read"},
            "event": {"type": "str", "choices": list(_states.EVENTS)},
            "facts": {"type": "dict", "default": {}},
            "remarks": {"type": "list", "elements": "str", "default": []},
            "phase": {"type": "str", "default": ""},
            "announce": {"type": "str", "default": ""},
            "what": {"type": "str", "default": ""},
            "take_over": {"type": "str", "default": ""},
            "at": {"type": "float"},
            "data_directory": {"type": "str", "default": ""},
            "lease": {"type": "dict", "default": {}},
            "replace": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "written", ["event"])],
        supports_check_mode=True,
    )
    finish(module, run, EMPTY)


if __name__ == "__main__":
    main()
