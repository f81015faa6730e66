#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_package
short_description: Check the library of a build, and assemble a Debian package from it
version_added: 0.2.0
description:
  - The role P(pgfleet.cache.cache_extension#role) runs it. There is no need to call it in a play.
  - A build on a host contributes one file, the library. On that host, with O(library), this module reads it without following
    a link or waiting for a pipe, and returns it. On the controller, with O(content), the module writes it to O(dest) or assembles O(package).
    In both cases the module checks that it is a shared object of at most 8 MiB.
  - O(package) assembles a Debian package. Everything except the library comes from O(sources) on the controller. The package has
    no maintainer script, no configuration file and no trigger, and root owns its files. The same input gives the same bytes.
  - O(package) alone verifies an existing package. The module extracts its library, assembles the package again, and
    compares the bytes.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - pgfleet.cache.attributes
options:
  library:
    description:
      - File of the built library. Without O(package), the module returns it as RV(content).
      - Mutually exclusive with O(content).
    type: path
  content:
    description:
      - The library in Base64, as the module returned it on the build host. Requires O(dest) or O(package).
    type: str
  dest:
    description:
      - File to write O(content) to. Mutually exclusive with O(package).
    type: path
  package:
    description:
      - File of the Debian package. An existing package that passes verification is kept.
      - Without O(library) and O(content), the package is only verified.
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
      - Architecture of the package, as C(dpkg) names it. Required with O(package). The library must be built for it.
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

- name: Assemble a package from it on the controller
  pgfleet.cache.residency_package:
    content: "{{ built.content }}"
    package: ~/.cache/pgfleet/postgresql-15-pg-residency_1.0.0_amd64.deb
    sources: files/pg_residency
    name: postgresql-15-pg-residency
    version: 1.0.0
    major: "15"
    architecture: amd64
  delegate_to: localhost

- name: Verify an existing package
  pgfleet.cache.residency_package:
    package: ~/.cache/pgfleet/postgresql-15-pg-residency_1.0.0_amd64.deb
    sources: files/pg_residency
    name: postgresql-15-pg-residency
    version: 1.0.0
    major: "15"
    architecture: amd64
  delegate_to: localhost
"""

RETURN = r"""
msg:
  description: Summary in one sentence.
  returned: always
  type: str
  sample: /root/.cache/pgfleet/postgresql-15-pg-residency_1.0.0_amd64.deb is verified.
verified:
  description: Whether the package exists and equals what this collection assembles from its library. V(false) in check mode if it would be assembled.
  returned: always
  type: bool
  sample: true
sha256:
  description: SHA-256 of the package, or of the library if no package was requested. V(null) if it is not verified.
  returned: always
  type: str
  sample: 46917a74d3d9ac7b2e5d7b0b7ce9d17b24c2f9d91b1b8d9a1ab4bc6a31e7f1c5
content:
  description: The library in Base64. V(null) unless O(library) was given without O(package).
  returned: always
  type: str
  sample: f0VMRgIBAQAAAAAAAAAAAAMAPgABAAAA
md5sums:
  description: MD5 and path of each file in the package, in C(dpkg)'s format.
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
    after_header: postgresql-15-pg-residency_1.0.0_amd64.deb
    before: ""
    after: |
      2f1c1b6e1a3ad2cbb1a2f4b5c2d4f6d1  usr/lib/postgresql/15/lib/pg_residency.so
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils._options import options_of
from ansible_collections.pgfleet.cache.plugins.module_utils._residency_package import KIND_OPTIONS, Options, empty_result, package
from ansible_collections.pgfleet.cache.plugins.module_utils._result import finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    return package(options_of(Options, module.params), module.check_mode)


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
