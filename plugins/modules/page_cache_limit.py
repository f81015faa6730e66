#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: page_cache_limit
short_description: Leave only so much memory to the page cache, for a test, and give it back
version_added: 0.2.0
description:
  - Takes memory away from the page cache, either of the whole host, by reserving huge pages that nobody uses, or of PostgreSQL
    alone, by a limit on its cgroup. So a query can be measured as on a host with less memory, without taking any out.
  - Writes down what was set before, in C(/var/lib/pgfleet/page_cache_limit.json), so that O(state=absent) restores it also
    in another play, after a failed one. A reboot takes the limit away by itself; O(state=absent) knows.
  - Tells what the page cache really can have afterwards.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  state:
    description:
      - Whether there is a limit.
    type: str
    choices: [present, absent]
    default: present
  size:
    description:
      - What is left to the page cache, such as V(4GB). Units are powers of 1024.
    type: str
  method:
    description:
      - V(huge_pages) means all of the host. Never are fewer of them left than there were, because a server with
        C(huge_pages = on) may need these.
      - V(cgroup) means the cluster in O(data_directory), by the property C(MemoryMax) of its systemd unit, or by its cgroup's own
        file where it has no unit, of version 1 or 2. The limit is what PostgreSQL holds, with all of C(shared_buffers), and O(size).
        As long as it has not touched all of these, the page cache can have more, and RV(page_cache_bytes) says so.
    type: str
    choices: [huge_pages, cgroup]
    default: huge_pages
  data_directory:
    description:
      - The cluster's data directory. Needed with O(method=cgroup). No link in the path may be one that a user other than root can
        have made.
    type: path
  service:
    description:
      - The unit of systemd to limit. Without it, the one that PostgreSQL runs in. PostgreSQL has to be its main process.
    type: str
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
notes:
  - It takes root and no login.
  - A cluster with C(huge_pages = try), PostgreSQL's default, that is started under O(method=huge_pages) takes its shared buffers
    from the reserved pages, which then limit less. Start it before.
  - Memory that programs want on top, such as C(work_mem), comes out of what is left to the page cache.
seealso:
  - module: pgfleet.cache.query_io
"""

EXAMPLES = r"""
- name: Measure behind a page cache of 2 GB
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
    - name: Give it back
      pgfleet.cache.page_cache_limit:
        method: cgroup
        data_directory: /var/lib/postgresql/15/main
        state: absent
"""

RETURN = r"""
msg:
  description: What happened, in one sentence or two.
  returned: always
  type: str
  sample: >-
    Limited the host to leave 2.00 GB to the page cache: 9472 huge pages of 2.00 MB, before it was 0 huge pages of 2.00 MB.
    It can have 2.00 GB now.
method:
  description: How it is limited.
  returned: always
  type: str
  sample: huge_pages
state:
  description: The state that was asked for.
  returned: always
  type: str
  sample: present
size_bytes:
  description: What was asked for; V(null) when nothing is, or was, limited.
  returned: always
  type: int
  sample: 2147483648
page_cache_bytes:
  description: What the page cache can have now. V(null) in check mode when it would be changed.
  returned: always
  type: int
  sample: 2147102720
reached:
  description: Whether that is no more than a tenth above what was asked for.
  returned: always
  type: bool
  sample: true
before:
  description: What was set before the limit, which is the number of huge pages, or the cgroup's limit in bytes (4611686018427387904 means none).
  returned: always
  type: int
  sample: 0
after:
  description: What is set now. V(null) in check mode when it would be changed.
  returned: always
  type: int
  sample: 9472
state_file:
  description: Where the host keeps what was set before, as long as there is a limit.
  returned: always
  type: str
  sample: /var/lib/pgfleet/page_cache_limit.json
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._limit import apply, empty_result
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return apply(module.params, module.check_mode)


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
