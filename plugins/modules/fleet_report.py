#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Report and save the results of a run
version_added: 0.2.0
description:
  - The playbooks of this collection run it last. It returns the table for the screen, writes one JSON file for the run and sets the custom stat
    C(pgfleet), which automation controllers store with the job.
  - A host has failed if its result does not have the types documented for its role or module. This does not affect the rows of other hosts.
  - Runs on the controller only.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  playbook:
    description:
      - Name of the playbook.
    type: str
    choices: [cold_test, install, physical_io, rolling_restart, snapshot, temp_buffer_cost, warmup]
    required: true
  hosts:
    description:
      - Outcome of each host, as P(pgfleet.cache.verdicts#filter) returns it.
    type: dict
    required: true
  target:
    description:
      - For O(playbook=rolling_restart), the names of all hosts of the target, including those beyond C(--limit).
    type: list
    elements: str
    default: []
  waits:
    description:
      - For each host that has waited for its turn at shared storage, the hosts before it, as M(pgfleet.cache.check_variables) returns it.
    type: dict
    default: {}
  directory:
    description:
      - Directory on the controller for the file. It is created with mode 0700, and the file has mode 0600. Empty means no file.
      - In check mode there is no file.
    type: str
    default: ""
  plot:
    description:
      - For O(playbook=temp_buffer_cost), draw a PNG beside the file, which needs matplotlib in Ansible's Python on the controller. Without it, the
        table says so.
    type: bool
    default: false
  started:
    description:
      - Start time of the run, in UTC.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Every run writes a new file.
"""

EXAMPLES = r"""
- name: Save the results
  pgfleet.cache.fleet_report:
    playbook: warmup
    hosts: "{{ groups['postgresql'] | pgfleet.cache.verdicts(hostvars, 'cache_warmup_result', 'result') }}"
    directory: ~/pgfleet_results
  run_once: true
  register: report

- name: Show all hosts
  ansible.builtin.debug:
    msg: "{{ report.lines }}"
  run_once: true
"""

RETURN = r"""
lines:
  description: The table, the hosts that have failed, and the path of the file.
  returned: always
  type: list
  elements: str
  sample: ["host  state  residency", "db1   done    100.00 %"]
path:
  description: The file. V(null) if there is none.
  returned: always
  type: str
  sample: /home/ops/pgfleet_results/warmup-20261122T034501Z.json
messages:
  description:
    - For each failed host, the reason. If the file could not be written, C(localhost) is among them, or the first host of the play
      if C(--limit) excludes C(localhost).
  returned: always
  type: dict
  sample:
    db3: "unreachable: Connection timed out"
"""
