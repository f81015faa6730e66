#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Check the variables of all hosts before anything is changed
version_added: 0.2.0
description:
  - The playbooks of this collection run it first. It checks the variables of their roles on every host for type, choice and range, against the
    argument specifications of the roles. Text, as C(-e name=value) gives, is valid if it converts.
  - A variable whose name is similar to one of this collection is invalid, too.
  - Creates the directory for the results and writes to it, so that a run whose results would be lost does not start. In check mode,
    it leaves nothing behind.
  - Runs on the controller only. Fails if there is no host, if no host's variables are valid, or if the results cannot be written. Otherwise
    RV(refused) has the hosts whose variables are invalid.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  hosts:
    description:
      - Names of the hosts.
    type: list
    elements: str
    required: true
  target:
    description:
      - The pattern that selects the hosts, for the message if it matches none.
    type: str
    default: ""
  roles:
    description:
      - Roles that the playbook runs, each with its entry point.
    type: dict
    default: {}
  variables:
    description:
      - Specifications of the playbook's own variables, as in the argument specification of a role.
    type: dict
    default: {}
  together:
    description:
      - Fail if the variables of any host are invalid.
    type: bool
    default: false
  serial:
    description:
      - Number of hosts to work on at a time, as in the keyword C(serial) of a play, for RV(batches).
    type: raw
    default: 1
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Check the variables
  pgfleet.cache.check_variables:
    hosts: "{{ groups['postgresql'] }}"
    target: postgresql
    roles:
      cache_warmup: start
  run_once: true
  register: pgfleet_check
"""

RETURN = r"""
refused:
  description: The hosts whose variables are invalid, each with the reason.
  returned: when there is a host
  type: dict
  sample:
    db2: "cache_warmup_min_residency is 'ninety': it must be a number from 0 to 100."
hosts:
  description: The names of the hosts.
  returned: when there is a host
  type: list
  elements: str
  sample: [db1, db2]
batches:
  description: The hosts whose variables are valid, in the batches and the order in which to work on them.
  returned: when there is a host
  type: list
  elements: list
  sample: [[db1], [db2]]
turns:
  description:
    - Steps in which hosts that share storage (C(pgfleet_storage_group)) restore, after the start of those that are not in RV(waits). Each step
      lists the hosts whose restores to wait for, and the hosts to start then. The last step starts none.
  returned: when there is a host
  type: list
  elements: dict
  sample: [{"wait": [db1], "start": [db2]}, {"wait": [db2, db3], "start": []}]
waits:
  description: Hosts that wait for their turn, each with its storage, the number of its turn there, and the hosts before it.
  returned: when there is a host
  type: dict
  sample:
    db2: {"storage": san1, "number": 2, "behind": [db1]}
directory:
  description: Directory for the results on the controller, C(pgfleet_results) of the first host that is not refused.
  returned: when there is a host
  type: str
  sample: ~/.local/state/pgfleet/results
given:
  description: For each host that is not refused, the collection's variables that are set and their values, without secrets.
  returned: success
  type: dict
  sample:
    db1: {cache_warmup_snapshot: nightly}
defaults:
  description: The default of every variable of the collection that is no secret.
  returned: success
  type: dict
  sample:
    cache_warmup_aggressive: false
lease:
  description: Who runs this, for the leases of hosts.
  returned: when there is a host
  type: dict
  sample: {"owner": "alice", "controller": "ctl1", "pid": 4711, "since": "2026-11-22T03:45:01Z"}
started:
  description: The time in UTC.
  returned: when there is a host
  type: str
  sample: "2026-11-22T03:45:01Z"
"""
