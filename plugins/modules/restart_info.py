#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: restart_info
short_description: Read the state of a host of a rolling restart
version_added: 1.0.0
description:
  - Internal. The playbooks and roles of this collection call it, and its options may change with every version.
  - Reads the server's role, process and WAL position, the host's record of unfinished work and its lease at once. It can wait for a restarted server,
    or for a standby that has to catch up.
  - A server that does not answer, a damaged record, a wait that ends without success and a host that cannot be reached do not fail the task.
    RV(answer.problem) has the reason. The role C(cache_restart) decides what follows.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  directory:
    description:
      - Directory of the record and the lease.
    type: path
    required: true
  name:
    description:
      - Name of these files, without the suffixes C(.json) and C(.lease).
    type: str
    required: true
  kept:
    description:
      - The record as it was read before. It is returned for a host that cannot be reached.
    type: dict
    default: {}
  waived:
    description:
      - Whether the pending restore of the host is given up. Then RV(answer.kept) has none.
    type: bool
    default: false
  rolling_restart:
    description:
      - The rolling restart for which RV(answer.steps) are returned.
    type: str
    default: ""
  abort:
    description:
      - Whether that rolling restart only finishes or undoes what was begun.
    type: bool
    default: false
  restarted_since:
    description:
      - Wait until a process answers that has another start time than this one, in microseconds since 1970.
    type: int
  replayed:
    description:
      - Wait until the standby has replayed this WAL position, in bytes. Paused and delayed replay end the wait at once.
    type: int
  primary:
    description:
      - Name of the host that O(replayed) is the position of, for the message.
    type: str
    default: the primary
  timeout:
    description:
      - Seconds to wait.
    type: int
    default: 60
  log:
    description:
      - Files and directories of the server's log, from an earlier RV(answer.log). If the server does not answer, RV(answer.problem) is what they end with.
    type: list
    elements: path
    default: []
  data_directory:
    description:
      - Data directory of a server that does not answer, to name what its stop waits for.
    type: path
  starts:
    description:
      - Also check that PostgreSQL would start again with its files as they are now, if RV(answer.steps) has a restart. RV(answer.problem) is why not.
    type: bool
    default: false
  reboots:
    description:
      - Whether the host is rebooted, and gets its huge pages anew.
    type: bool
    default: false
  check:
    description:
      - Also check that the host can be restarted. RV(answer.problem) is the first thing that is in the way.
    type: dict
    suboptions:
      snapshot:
        description:
          - Name of the snapshot that will be taken.
        type: str
        required: true
      min_residency:
        description:
          - Percent of what is resident that there has to be memory for.
        type: float
        required: true
      min_free:
        description:
          - Free space that the file systems of the data directory and of pg_wal must have, a size.
        type: str
        required: true
      max_lag:
        description:
          - Bytes that the server may have to send to its standbys and other receivers before it stops, a size.
        type: str
        required: true
      replaced:
        description:
          - Values of the options of the restore that the rolling restart sets; one that is not empty is given with C(-e), and is refused.
        type: dict
        default: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Read the state of the host
  pgfleet.cache.restart_info:
    directory: /var/lib/pgfleet
    name: "{{ inventory_hostname | pgfleet.cache.file_name }}"
  become: true
  become_user: postgres
  register: state
"""

RETURN = r"""
msg:
  description: The problem, or that there is none.
  returned: always
  type: str
  sample: The server answers.
saved:
  description: What the snapshot would hold; empty without O(check).
  returned: always
  type: str
  sample: Would save 412 MiB that are cached now as 'restart'.
answer:
  description: The state of the host.
  returned: always
  type: dict
  contains:
    problem:
      description: Why the host cannot be used as it is.
      returned: if there is a problem
      type: str
      sample: "cannot connect to the server: connection refused"
    unread:
      description: Whether the problem is that the record cannot be read.
      returned: if there is a problem
      type: bool
      sample: false
    kept:
      description: The record; empty if there is none. See docs/restarts.md for its keys.
      returned: success
      type: dict
      sample: {"state": "restarted", "out": true}
    lease:
      description: The lease of any holder; null if there is none.
      returned: success
      type: dict
      sample: null
    steps:
      description: What is left to do on this host in the rolling restart O(rolling_restart).
      returned: if the server answers
      type: dict
      sample: {"save": true, "restart": true, "restore": true, "again": false}
    in_recovery:
      description: Whether the server is a standby.
      returned: if the server answers
      type: bool
      sample: true
    system_identifier:
      description: The system identifier of the cluster.
      returned: if the server answers
      type: str
      sample: "7350119283498234987"
    started:
      description: Start time of the process, in microseconds since 1970.
      returned: if the server answers
      type: int
      sample: 1795564800123456
    lsn:
      description: WAL position, written by a primary and replayed by a standby, in bytes.
      returned: if the server answers
      type: int
      sample: 50331648
    paused:
      description: Whether replay is paused.
      returned: if the server answers
      type: bool
      sample: false
    delay:
      description: The recovery_min_apply_delay of a standby; null without one.
      returned: if the server answers
      type: str
      sample: null
    receiver:
      description: V(streaming), V(archive) with a restore_command, or V(none).
      returned: if the server answers
      type: str
      sample: streaming
    log:
      description: The file of the server's standard error, and the directory of its logging collector. Empty if it logs to the journal.
      returned: if the server answers
      type: list
      elements: str
      sample: [/var/log/postgresql/postgresql-17-main.log]
    application_name:
      description: Name by which its primary knows the standby; empty if it is not connected.
      returned: if the server answers
      type: str
      sample: walreceiver
    synchronous:
      description:
        - For how many standbys commits wait, the connected ones that C(synchronous_standby_names) lists, and the other connected ones. V(null) if they
          wait for none.
      returned: if the server answers
      type: dict
      sample: {"needed": 1, "standbys": ["db2", "db3"], "others": ["db4"]}
    extension:
      description: Version of pg_residency in the database; null if it is not installed there.
      returned: if the server answers
      type: str
      sample: 1.0.0
    schema:
      description: Schema of the extension, quoted; null without it.
      returned: if the server answers
      type: str
      sample: public
    data_directory:
      description: Data directory of the server.
      returned: if the server answers
      type: str
      sample: /var/lib/postgresql/17/main
    cluster_name:
      description: The parameter cluster_name.
      returned: if the server answers
      type: str
      sample: 17/main
    version_num:
      description: The parameter server_version_num.
      returned: if the server answers
      type: int
      sample: 170002
    pid:
      description: Process id of the postmaster.
      returned: if the server answers
      type: int
      sample: 4711
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _restart_check, _restart_info
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session, connect, module_argument_spec
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    if not params["name"] or "/" in params["name"]:
        raise ResidencyError("'%s' is not a file name." % params["name"])

    def login() -> Session:
        return connect(params)

    problem, saved, warnings = "", "", []
    if params["restarted_since"] is not None:
        problem = _restart_info.wait_restarted(login, params["name"], params["restarted_since"], params["timeout"])
    elif params["replayed"] is not None:
        problem = _restart_info.wait_replayed(login, params["name"], params["replayed"], params["primary"], params["timeout"])
    found = _restart_info.read(login, params["directory"], params["name"], params["waived"], params["rolling_restart"], params["abort"])
    problem = problem or found.get("problem", "")
    if problem and "started" not in found:
        waits = _restart_info.still_runs(params["data_directory"]) if params["data_directory"] else ""
        problem = " ".join(filter(None, [_restart_info.last_words(params["log"]) or problem, waits]))
    if not problem:
        problem = _restart_info.elsewhere(found)
    if not problem and params["starts"] and found["steps"]["restart"]:
        problem = _restart_check.would_not_start(login, params["name"], found, params["reboots"])
    if params["check"] and not problem:
        try:
            snapshot = _restart_check.check(login, params["name"], params["login_db"], found, params["check"], params["reboots"])
            saved, warnings = snapshot["msg"], snapshot["warnings"]
        except ResidencyError as error:
            problem = str(error)
    if problem:
        found["problem"] = problem
    return {"changed": False, "answer": found, "saved": saved, "msg": problem or "The server answers.", "warnings": warnings}


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(
            directory={"type": "path", "required": True},
            name={"type": "str", "required": True},
            kept={"type": "dict", "default": {}},
            waived={"type": "bool", "default": False},
            rolling_restart={"type": "str", "default": ""},
            abort={"type": "bool", "default": False},
            restarted_since={"type": "int"},
            replayed={"type": "int"},
            primary={"type": "str", "default": "the primary"},
            timeout={"type": "int", "default": 60},
            log={"type": "list", "elements": "path", "default": []},
            data_directory={"type": "path"},
            starts={"type": "bool", "default": False},
            reboots={"type": "bool", "default": False},
            check={
                "type": "dict",
                "options": {
                    "snapshot": {"type": "str", "required": True},
                    "min_residency": {"type": "float", "required": True},
                    "min_free": {"type": "str", "required": True},
                    "max_lag": {"type": "str", "required": True},
                    "replaced": {"type": "dict", "default": {}},
                },
            },
        ),
        supports_check_mode=True,
    )
    finish(module, run, {"changed": False, "answer": {}, "saved": ""})


if __name__ == "__main__":
    main()
