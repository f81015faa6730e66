#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Check the variables of all hosts before anything is done
version_added: 0.2.0
description:
  - The playbooks of this collection run it first. It checks the variables of their roles on every host for type, choice and range, by the
    argument specifications of the roles. Text, which is what C(-e name=value) gives, is right if it converts.
  - A variable that is named almost like one of this collection is wrong, too.
  - Also writes to the directory for the results, which it creates, so that a run whose results would be lost does not begin. In check mode nothing
    of that is left.
  - Runs on the controller only. Fails if there is no host, if no host's variables are right, or if the results cannot be written. Otherwise
    RV(refused) has the hosts whose variables are wrong.
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
      - The pattern that was meant to choose them, for the message if there is none.
    type: str
    default: ""
  roles:
    description:
      - The roles that the playbook runs, each with its entry point.
    type: dict
    default: {}
  variables:
    description:
      - Specifications of the playbook's own variables, as in the argument specification of a role.
    type: dict
    default: {}
  together:
    description:
      - Whether to fail if the variables of one host are wrong.
    type: bool
    default: false
  serial:
    description:
      - How many hosts to work on at a time, as in the keyword C(serial) of a play, for RV(batches).
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
  description: The hosts whose variables are wrong, each with the reason.
  returned: when there is a host
  type: dict
  sample:
    db2: "cache_warmup_min_residency is 'ninety': it has to be a number from 0 to 100."
hosts:
  description: The names of the hosts.
  returned: when there is a host
  type: list
  elements: str
  sample: [db1, db2]
batches:
  description: The hosts whose variables are right, in the order and number in which to work on them.
  returned: when there is a host
  type: list
  elements: list
  sample: [[db1], [db2]]
directory:
  description: Where the results of the run go on the controller, C(pgfleet_results) of the first host that is not refused.
  returned: when there is a host
  type: str
  sample: ~/.local/state/pgfleet/results
given:
  description: For each host that is not refused the variables of the collection that it has, and their values, without secrets.
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
started:
  description: The time in UTC.
  returned: when there is a host
  type: str
  sample: "2026-11-22T03:45:01Z"
"""
