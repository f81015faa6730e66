#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Check the variables of a host before it is changed
version_added: 0.2.0
description:
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - The roles of this collection run it first. It checks what an argument specification cannot express, such as ranges, forms of values and task files
    on the controller, and refuses a variable whose name is similar to one of this collection and is none.
  - It also checks the argument specifications of O(roles), for a role that includes other roles later. Text, as C(-e name=value) gives, is valid if it
    converts.
  - Runs on the controller only.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  roles:
    description:
      - Names of the roles whose variables are checked.
    type: list
    elements: str
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
- name: Check the variables
  pgfleet.cache.check_variables:
    roles: [cache_warmup]
"""

RETURN = r"""
msg:
  description: A sentence for each wrong variable.
  returned: failure
  type: str
  sample: "cache_warmup_min_residency is 900: it must be a number from 0 to 100. Nothing was changed."
"""
