#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Keep the results of a run
version_added: 0.2.0
description:
  - The playbooks of this collection run it last. It returns the table for the screen, writes one JSON file for the run and sets the custom stat
    C(pgfleet), which automation controllers keep with the job.
  - A host whose result is not of the types that its role or module promises has failed. The rows of the others do not depend on it.
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
    choices: [cold_test, install, rolling_restart, snapshot, warmup]
    required: true
  hosts:
    description:
      - For each host how it ended, as P(pgfleet.cache.verdicts#filter) returns it.
    type: dict
    required: true
  target:
    description:
      - For O(playbook=rolling_restart), the names of all hosts of the target, also of those beyond C(--limit).
    type: list
    elements: str
    default: []
  directory:
    description:
      - Directory on the controller for the file. It is created with mode 0700, and the file has mode 0600. Empty means no file.
      - In check mode there is no file.
    type: str
    default: ""
  started:
    description:
      - When the run began, in UTC.
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
      - Every run has a file of its own.
"""

EXAMPLES = r"""
- name: Keep the results
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
  description: The table, which hosts have failed, and where the file is.
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
    - For each host on which something went wrong, why. If the file could not be written, C(localhost) is among them, or the first host of the play
      if C(--limit) leaves C(localhost) out.
  returned: always
  type: dict
  sample:
    db3: "unreachable: Connection timed out"
"""
