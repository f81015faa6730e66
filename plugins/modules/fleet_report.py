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
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - The playbooks of this collection run it first and last. First (O(state=begun)), it checks that the target has hosts. Last (O(state=ended)), it shows the
    table on the screen, returns it (RV(lines)), writes one JSON file for the run and sets the custom stat C(pgfleet), which automation controllers store
    with the job.
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
    choices: [cold_test, install, physical_io, rolling_restart, snapshot, status, temp_buffer_cost, warmup]
    required: true
  state:
    description:
      - Whether the run begins or has ended.
    type: str
    choices: [begun, ended]
    default: ended
  hosts:
    description:
      - Names of the hosts of the run. Their results are read from the variables that roles and playbooks set on them.
    type: list
    elements: str
    required: true
  target:
    description:
      - With O(state=begun), the pattern that selects the hosts, for the message if it matches none.
    type: str
    default: ""
  directory:
    description:
      - Directory on the controller for the file. It is created with mode 0700, and the file has mode 0600. Empty means no file.
      - In check mode there is no file.
      - Default is C(~/.local/state/pgfleet/results), and no file for O(playbook=status), which may be run every minute.
    type: str
  plot:
    description:
      - For O(playbook=temp_buffer_cost), draw a PNG beside the file, which needs matplotlib in Ansible's Python on the controller. Without it, the
        table says so.
    type: bool
    default: false
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
    hosts: "{{ ansible_play_hosts_all }}"
    directory: ~/pgfleet_results
  run_once: true
"""

RETURN = r"""
lines:
  description: The table, the hosts that have failed, and the path of the file.
  returned: when O(state=ended)
  type: list
  elements: str
  sample: ["host  state  residency", "db1   done    100.00 %"]
path:
  description: The file. V(null) if there is none.
  returned: when O(state=ended)
  type: str
  sample: /home/ops/pgfleet_results/warmup-20261122T034501Z.json
messages:
  description:
    - For each failed host the reason, and for each host with something to do what that is. If the file could not be
      written, the first host of the play is among them.
  returned: when O(state=ended)
  type: dict
  sample:
    db3: "unreachable: Connection timed out"
"""
