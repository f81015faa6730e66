#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: restart_plan
short_description: Plan a rolling restart
version_added: 1.0.0
description:
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - Returns the batches of standbys and whether the primary follows, or the reason why nothing is restarted. It decides by the answers of
    M(pgfleet.cache.restart_info), which each host has registered.
  - Runs on the controller only.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  hosts:
    description:
      - All hosts of the cluster.
    type: list
    elements: str
    required: true
  waived:
    description:
      - The hosts whose pending restore is given up.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(gathered) only returns RV(answers), RV(reached) and RV(half_done), and plans nothing.
    type: str
    choices: [gathered, planned]
    default: planned
  only:
    description:
      - As C(cache_restart_only) of the role C(cache_restart).
    type: list
    elements: str
    default: []
  primary:
    description:
      - As C(cache_restart_primary) of the role C(cache_restart).
    type: str
    choices: [in_place, switchover, skip]
    default: in_place
  candidate:
    description:
      - As C(cache_restart_candidate) of the role C(cache_restart).
    type: str
    default: ""
  switchover_tasks:
    description:
      - As C(cache_restart_switchover_tasks) of the role C(cache_restart).
    type: str
    default: ""
  serial:
    description:
      - As C(cache_restart_serial) of the role C(cache_restart).
    type: list
    elements: raw
    default: [1]
  min_standbys:
    description:
      - As C(cache_restart_min_standbys) of the role C(cache_restart).
    type: int
    default: 1
  commits_may_wait:
    description:
      - As C(cache_restart_commits_may_wait) of the role C(cache_restart).
    type: bool
    default: false
  abort:
    description:
      - As C(cache_restart_abort) of the role C(cache_restart).
    type: bool
    default: false
  resume:
    description:
      - As C(cache_restart_resume) of the role C(cache_restart).
    type: bool
    default: true
  max_age:
    description:
      - As C(cache_restart_max_age) of the role C(cache_restart).
    type: int
    default: 86400
attributes:
  check_mode:
    support: full
    details:
      - A host that an interrupted run has stopped is planned as if it were started.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Plan the rolling restart
  pgfleet.cache.restart_plan:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: cache_restart_fleet
"""

RETURN = r"""
answers:
  description: The newest answer of each host, as M(pgfleet.cache.restart_info) returns it.
  returned: success
  type: dict
  sample: {"db1": {"in_recovery": false}}
reached:
  description: The hosts that can be reached.
  returned: success
  type: list
  elements: str
  sample: [db1, db2, db3]
half_done:
  description: The hosts on which something cannot wait for their turn. PostgreSQL is stopped, or clients are paused.
  returned: success
  type: list
  elements: str
  sample: []
problem:
  description: Why nothing is restarted; empty if there is no reason.
  returned: success
  type: str
  sample: ""
hosts:
  description: All hosts of the cluster.
  returned: with O(state=planned)
  type: list
  elements: str
  sample: [db1, db2, db3]
only:
  description: The hosts that may be restarted.
  returned: with O(state=planned)
  type: list
  elements: str
  sample: [db1, db2, db3]
batches:
  description: The standbys that are restarted at the same time, in order.
  returned: success
  type: list
  elements: list
  sample: [[db2], [db3]]
switchover:
  description: The primary, if it is switched over before its restart; otherwise empty.
  returned: success
  type: str
  sample: ""
last:
  description: The primary, if it is restarted; otherwise empty.
  returned: success
  type: str
  sample: db1
primary:
  description: The primary.
  returned: with O(state=planned)
  type: str
  sample: db1
standbys:
  description: The standbys that answer.
  returned: with O(state=planned)
  type: list
  elements: str
  sample: [db2, db3]
rolling_restart:
  description: The name of the rolling restart.
  returned: with O(state=planned)
  type: str
  sample: "1795564800"
resumed:
  description: Whether it continues an earlier run.
  returned: with O(state=planned)
  type: bool
  sample: false
done:
  description: The hosts that are restarted and warm already.
  returned: with O(state=planned)
  type: list
  elements: str
  sample: []
commits_may_wait:
  description: Whether standbys restart that C(synchronous_standby_names) needs.
  returned: with O(state=planned)
  type: bool
  sample: false
abort:
  description: Whether this run only finishes or undoes what was begun.
  returned: with O(state=planned)
  type: bool
  sample: false
check:
  description: The hosts that are checked before the first change.
  returned: success
  type: list
  elements: str
  sample: [db1, db2, db3]
skipped:
  description: The primary, if it is to be skipped; otherwise empty.
  returned: with O(state=planned)
  type: str
  sample: ""
ways:
  description: What is left to do for each host that answers, as RV(pgfleet.cache.restart_info#module:answer.steps).
  returned: with O(state=planned)
  type: dict
  sample: {"db1": {"save": true, "restart": true, "restore": true, "again": false}}
"""
