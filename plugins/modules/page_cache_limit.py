#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: page_cache_limit
short_description: Limit the memory of the page cache for a test, and remove the limit
version_added: 0.2.0
description:
  - Limits the page cache, either of the whole host, by reserving huge pages that stay unused, or of PostgreSQL
    alone, by a limit on its cgroup. So a query can be measured as on a host with less memory.
  - Saves the previous setting in C(/var/lib/pgfleet/page_cache_limit.json), so that O(state=absent) also restores it
    in a later play, after a failed one. A reboot removes the limit, which O(state=absent) detects.
  - Returns the memory that the page cache can actually use afterwards.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  state:
    description:
      - Whether to set or to remove the limit.
    type: str
    choices: [present, absent]
    default: present
  size:
    description:
      - Memory to leave to the page cache, such as V(4GB). Units are powers of 1024.
    type: str
  method:
    description:
      - V(huge_pages) limits the whole host. The number of huge pages never falls below the previous number, because a server with
        C(huge_pages = on) may need those.
      - V(cgroup) limits the cluster in O(data_directory), by the property C(MemoryMax) of its systemd unit, or, without a unit, by the
        file of its cgroup, version 1 or 2. The limit is the memory that PostgreSQL holds, including all of C(shared_buffers), plus O(size).
        Until PostgreSQL has touched all of C(shared_buffers), the page cache can use more, as RV(page_cache_bytes) shows.
    type: str
    choices: [huge_pages, cgroup]
    default: huge_pages
  data_directory:
    description:
      - The cluster's data directory. Required with O(method=cgroup). The path must not contain a symbolic link that a user other than root
        can have made.
    type: path
  service:
    description:
      - systemd unit to limit. By default, the unit that PostgreSQL runs in. PostgreSQL must be its main process.
    type: str
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
notes:
  - Requires root, but no login.
  - Start the cluster before setting a limit with O(method=huge_pages). With C(huge_pages = try), PostgreSQL's default, a cluster started
    afterwards takes its shared buffers from the reserved pages, which then limit less.
  - Additional memory of programs, such as C(work_mem), reduces the memory left to the page cache.
seealso:
  - module: pgfleet.cache.query_io
"""

EXAMPLES = r"""
- name: Measure with a page cache of 2 GB
  become: true
  block:
    - name: Leave 2 GB to this cluster's page cache
      pgfleet.cache.page_cache_limit:
        method: cgroup
        data_directory: /var/lib/postgresql/15/main
        size: 2GB

    - name: Measure
      pgfleet.cache.query_io:
        login_db: postgres_air
        query: SELECT count(*) FROM boarding_pass
      become_user: postgres
  always:
    - name: Remove the limit
      pgfleet.cache.page_cache_limit:
        method: cgroup
        data_directory: /var/lib/postgresql/15/main
        state: absent
"""

RETURN = r"""
msg:
  description: Summary in one or two sentences.
  returned: always
  type: str
  sample: >-
    Limited the host to leave 2.00 GB to the page cache: 9472 huge pages of 2.00 MB, before it was 0 huge pages of 2.00 MB.
    It can have 2.00 GB now.
method:
  description: Method of the limit.
  returned: always
  type: str
  sample: huge_pages
state:
  description: The requested state.
  returned: always
  type: str
  sample: present
size_bytes:
  description: The requested size. V(null) if nothing is, or was, limited.
  returned: always
  type: int
  sample: 2147483648
page_cache_bytes:
  description: Memory that the page cache can use now. V(null) in check mode if it would be changed.
  returned: always
  type: int
  sample: 2147102720
reached:
  description: Whether RV(page_cache_bytes) exceeds the requested size by no more than a tenth.
  returned: always
  type: bool
  sample: true
before:
  description: Setting before the limit, the number of huge pages, or the cgroup's limit in bytes (4611686018427387904 means none).
  returned: always
  type: int
  sample: 0
after:
  description: Present setting. V(null) in check mode if it would be changed.
  returned: always
  type: int
  sample: 9472
state_file:
  description: File on the host with the previous setting, as long as there is a limit.
  returned: always
  type: str
  sample: /var/lib/pgfleet/page_cache_limit.json
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._page_cache_limit import Options, apply, empty_result
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return apply(options_of(Options, module.params), module.check_mode)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "size": {"type": "str"},
            "method": {"type": "str", "choices": ["huge_pages", "cgroup"], "default": "huge_pages"},
            "data_directory": {"type": "path"},
            "service": {"type": "str"},
        },
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
