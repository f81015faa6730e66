#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_package
short_description: Check the library that a build has made, and assemble a Debian package of it
version_added: 0.2.0
description:
  - The role P(pgfleet.cache.cache_extension#role) runs it. There is no need to call it in a play.
  - A build on a host contributes one file, the library. On that host, with O(library), this module reads it without following
    a link or waiting for a pipe, and returns it. On the controller, with O(content), it writes it to O(dest) or assembles O(package).
    Both check that it is a shared object of at most 8 MiB.
  - With O(package) it assembles a Debian package. All but the library comes from O(sources) on the controller. The package has
    no maintainer script, no configuration file and no trigger, and root owns its files. The same input gives the same bytes.
  - With O(package) alone it verifies a package that was kept. It takes the library in it, assembles the package again, and
    compares the bytes.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  library:
    description:
      - File with the library that was built. Without O(package), the module returns it as RV(content).
      - Mutually exclusive with O(content).
    type: path
  content:
    description:
      - The library in Base64, as the module returned it on the host that built it. Requires O(dest) or O(package).
    type: str
  dest:
    description:
      - File to write O(content) to. Mutually exclusive with O(package).
    type: path
  package:
    description:
      - File of the Debian package. A verified package that is there already is kept.
      - Without O(library) and O(content) it is verified.
    type: path
  sources:
    description:
      - Directory of the extension's sources, C(files/pg_residency) of this collection. Required with O(package).
    type: path
  name:
    description:
      - Name of the package. Required with O(package).
    type: str
  version:
    description:
      - Version of the package. Required with O(package).
    type: str
  major:
    description:
      - Major version of PostgreSQL. Required with O(package).
    type: str
  architecture:
    description:
      - Architecture of the package, in C(dpkg)'s words. Required with O(package); the library has to be for it.
    type: str
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the files of the package and their digests.
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Read a library that was built
  pgfleet.cache.residency_package:
    library: /tmp/pg_residency.so
  become: true
  become_user: nobody
  no_log: true
  register: built

- name: Assemble a package of it on the controller
  pgfleet.cache.residency_package:
    content: "{{ built.content }}"
    package: ~/.cache/pgfleet/postgresql-15-pg-residency_0.3.0_amd64.deb
    sources: files/pg_residency
    name: postgresql-15-pg-residency
    version: 0.3.0
    major: "15"
    architecture: amd64
  delegate_to: localhost

- name: Verify a package that was kept
  pgfleet.cache.residency_package:
    package: ~/.cache/pgfleet/postgresql-15-pg-residency_0.3.0_amd64.deb
    sources: files/pg_residency
    name: postgresql-15-pg-residency
    version: 0.3.0
    major: "15"
    architecture: amd64
  delegate_to: localhost
"""

RETURN = r"""
msg:
  description: What was found or made, in one sentence.
  returned: always
  type: str
  sample: /root/.cache/pgfleet/postgresql-15-pg-residency_0.3.0_amd64.deb is verified.
verified:
  description: Whether the package is there, and is what this collection makes of its library. V(false) in check mode when it would be made.
  returned: always
  type: bool
  sample: true
sha256:
  description: SHA-256 of the package, or of the library where no package was asked for. V(null) when it is not verified.
  returned: always
  type: str
  sample: 46917a74d3d9ac7b2e5d7b0b7ce9d17b24c2f9d91b1b8d9a1ab4bc6a31e7f1c5
content:
  description: The library in Base64. V(null) unless O(library) was given without O(package).
  returned: always
  type: str
  sample: f0VMRgIBAQAAAAAAAAAAAAMAPgABAAAA
md5sums:
  description: MD5 and path of each file in the package, as C(dpkg) keeps them.
  returned: always
  type: list
  elements: str
  sample:
    - 2f1c1b6e1a3ad2cbb1a2f4b5c2d4f6d1  usr/lib/postgresql/15/lib/pg_residency.so
diff:
  description: The files of the package before and after.
  returned: with C(--diff)
  type: dict
  sample:
    before_header: no package
    after_header: postgresql-15-pg-residency_0.3.0_amd64.deb
    before: ""
    after: |
      2f1c1b6e1a3ad2cbb1a2f4b5c2d4f6d1  usr/lib/postgresql/15/lib/pg_residency.so
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._package import KIND_OPTIONS, empty_result, package
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return package(module.params, module.check_mode)


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            {option: {"type": "str"} for option in KIND_OPTIONS},
            library={"type": "path"},
            # no secret, but megabytes that no log is to have
            content={"type": "str", "no_log": True},
            dest={"type": "path"},
            package={"type": "path"},
            sources={"type": "path"},
        ),
        required_one_of=[("library", "dest", "package")],
        mutually_exclusive=[("library", "content"), ("library", "dest"), ("dest", "package")],
        required_by={"package": ("sources", *KIND_OPTIONS), "dest": "content"},
        supports_check_mode=True,
    )
    finish(module, run, empty_result())


if __name__ == "__main__":
    main()
