#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_restore
short_description: Bring a snapshot's blocks back into the page cache, and check that they are there
version_added: 0.1.0
description:
  - Starts a restore job in the server, or finds the one that restores this snapshot already, waits for it, and counts
    what is resident afterwards. Resident means in the operating system's page cache or in C(shared_buffers).
  - Fails when less than O(min_residency) is resident or more than O(max_gone) is gone, and names the coldest relations.
  - The job runs in a background worker of PostgreSQL. It needs no connection, and ends with O(wait_timeout) at the latest.
  - One that restores the same already is waited for. One that restores something else, or in another way, is an error.
  - O(relations) and O(databases) choose what of the snapshot is brought back, and counted, and in which order. They go by
    the names that M(pgfleet.cache.residency_snapshot) keeps with a snapshot.
  - While it waits, it prints a line per host every 10 % or 30 seconds, unless the task is asynchronous.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  name:
    description:
      - Name of the snapshot. V(warm) means the generation of C(warm) that the server calls current, which is the newest that is not
        thin (M(pgfleet.cache.residency_snapshot)). V(warm@3) means its third. Newer thin ones are named in a warning.
      - Required unless O(job) is given.
    type: str
  job:
    description:
      - Wait for this job, whether it still runs or not, and start none.
      - What it was started for is counted then, unless O(relations) or O(databases) choose.
    type: int
  relations:
    description:
      - Shell patterns (V(*), V(?), V([abc])) for the names of relations, such as V(public.boarding_pass), V(boarding_*) or
        V(reporting.*). Only these are restored, and only these count. None mean all.
      - A pattern without a schema fits the relation in any. A name that SQL quotes may be given with its quotes or without.
      - A table means its indexes and its TOAST too, a partitioned table its partitions. An index means only itself.
      - A pattern that fits nothing is a warning; it is an error when all of them do.
    type: list
    elements: str
    default: []
  databases:
    description:
      - Shell patterns for the names of databases. None mean all. The shared catalogs belong to no database, and fit only V(*).
    type: list
    elements: str
    default: []
  order:
    description:
      - What comes first of what O(relations) and O(databases) choose, should budget or time not reach for all.
      - V(listed) means what fits the first pattern of O(relations) before what fits the second, and so on, then likewise by
        O(databases), and the hottest segments first among those of one pattern. V(*) as the last pattern means all the rest.
      - V(hottest) means the hottest segments first whichever pattern they fit, as is done without patterns.
    type: str
    choices: [listed, hottest]
    default: listed
  rewritten:
    description:
      - What to do about relations whose files are others now, because of C(VACUUM FULL), C(CLUSTER), C(REINDEX),
        C(REFRESH MATERIALIZED VIEW), C(TRUNCATE) or because they were made anew under the same name.
      - With V(skip) their blocks are gone. With V(load) they are loaded whole, if at least half of them was cached, and count
        with the size that they have now.
      - The names that are saved with a snapshot tell which relation has which files now. One that was taken before version 0.3.0 of
        the extension has none, and neither has one of a database that allowed no connections. A warning says so.
    type: str
    choices: [skip, load]
    default: skip
  fallback_relations:
    description:
      - Shell patterns as in O(relations). As long as there is no snapshot of this name, these relations are loaded whole, of the
        databases that O(databases) choose. Otherwise they mean nothing.
    type: list
    elements: str
    default: []
  min_residency:
    description:
      - Percent of the snapshot's blocks that still exist which must be resident afterwards.
    type: float
    default: 90
  max_gone:
    description:
      - Percent of the snapshot's blocks that may be gone, because a relation was dropped, truncated or rewritten.
    type: float
    default: 20
  max_age:
    description:
      - Refuse a snapshot that is older than this, such as V(36h) or V(7d), before anything is loaded, in check mode too. The units are
        V(s), V(min), V(h), V(d) and V(w); a plain number is of seconds.
      - The age is by the clock of the server. With O(job) it is not checked.
    type: str
    version_added: 0.2.0
  budget:
    description:
      - Load no more than this, such as V(2GB). Units are powers of 1024.
      - It is an upper bound. The job never loads more than what fits into the memory that is free or easily freed, as measured when it
        starts, with this option or without.
    type: str
  rate:
    description:
      - Load no more than this per second, such as V(200MB).
    type: str
  deadline:
    description:
      - A date and time with its zone at which the job ends, complete or not, such as V(2026-11-21 06:00+01:00) or, where the
        host's Python is 3.9 or newer, V(2026-11-21 06:00 Europe/Berlin).
      - Beforehand it is said whether a job will be done by then, at the rate that the newest three jobs without a O(rate) had, or that
        no former job tells a rate. Unless it will be, that is a warning.
      - Restores of several clusters on one machine come one after the other, which nobody adds up here.
    type: str
  aggressive:
    description:
      - Whether nobody needs the disk yet, so that the job may take all of it. Otherwise it keeps little in flight while others
        use the disk too, and they hardly notice.
    type: bool
    default: false
  max_io_pressure:
    description:
      - Percent of the time that anybody on the host may wait for a disk (C(/proc/pressure/io)), from 1 to 100. Beyond that the job
        slows down, to 8 MB a second at the least, and goes faster again when it can.
    type: int
  shared_buffers:
    description:
      - Whether C(shared_buffers) are to be filled again too, after the page cache, with what they held, as far as there are unused
        buffers. A worker per database reads them, what had been used most first.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait for the job. If not, the result says how far it is, and neither O(min_residency) nor O(max_gone)
        is checked, unless the job has ended or there was nothing to load.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which a job that is started here ends by itself, and after which this module stops waiting.
    type: int
    default: 3600
  wait_sleep:
    description:
      - Seconds between two looks at the job.
    type: float
    default: 1
  waited:
    description:
      - RV(waited) of the task that started O(job). Without it, a job that waited for another restore before this task began does not
        know that any more.
    type: dict
    version_added: 0.2.0
attributes:
  check_mode:
    support: full
    details:
      - Starts nothing and says what would be loaded, from which relations, and how long that would take.
      - Where the extension is not installed yet, says so in a warning and predicts a change.
  diff_mode:
    support: full
    details:
      - Shows how much of each relation was and is resident, or would be, of at most 20.
  idempotent:
    support: full
    details:
      - No job is started when everything that still exists is resident, unless O(shared_buffers) are to be filled.
  async:
    description: Supports being used with the C(async) keyword.
    support: full
seealso:
  - module: pgfleet.cache.residency_info
  - module: pgfleet.cache.residency_snapshot
"""

EXAMPLES = r"""
- name: Restore the page cache, and fail below 95 %
  pgfleet.cache.residency_restore:
    name: warm
    min_residency: 95
  become: true
  become_user: postgres

- name: Restore only what was saved since yesterday noon, and refuse anything older
  pgfleet.cache.residency_restore:
    name: warm
    max_age: 36h
  become: true
  become_user: postgres

- name: Restore gently, beside production traffic
  pgfleet.cache.residency_restore:
    name: warm
    rate: 100MB
    budget: 8GB
  become: true
  become_user: postgres

- name: As fast as the disk gives, before clients are let in, shared buffers too
  pgfleet.cache.residency_restore:
    name: warm
    aggressive: true
    shared_buffers: true
  become: true
  become_user: postgres

- name: The tables of tonight's reports first, then everything else, before six
  pgfleet.cache.residency_restore:
    name: warm
    databases: [postgres_air]
    relations: [boarding_pass, public.passenger, "*"]
    deadline: "2026-11-21 06:00+01:00"
  become: true
  become_user: postgres

- name: Also where tables were rewritten overnight, and where nobody has taken a snapshot yet
  pgfleet.cache.residency_restore:
    name: warm
    rewritten: load
    fallback_relations: [boarding_pass, passenger]
  become: true
  become_user: postgres

- name: Start the job
  pgfleet.cache.residency_restore:
    name: warm
    wait: false
  become: true
  become_user: postgres
  register: started

- name: Wait for that job
  pgfleet.cache.residency_restore:
    name: warm
    job: "{{ started.job | default(omit, true) }}"
    waited: "{{ started.waited | default(omit, true) }}"
  become: true
  become_user: postgres
"""

RETURN = r"""
msg:
  description: What happened, in a sentence or two.
  returned: always
  type: str
  sample: "warm@3: 100 % of 396 MB is resident; loaded 88.8 MB in 0.2 s, 535 MB/s."
changed:
  description:
    - Whether blocks were loaded while this task started or waited for the job or, when the job is not waited for, whether it
      was started.
  returned: always
  type: bool
  sample: true
snapshot:
  description: The snapshot, with its generation. V(null) when there is none and RV(relations) are O(fallback_relations).
  returned: always
  type: str
  sample: warm@3
snapshot_age:
  description: Seconds since RV(snapshot) was taken, by the clock of the server. V(null) without one.
  returned: always
  type: float
  sample: 93784.2
snapshot_thin:
  description:
    - Whether RV(snapshot) is thin, as only a generation that is asked for by its number is, or one without a better one. V(null) without one.
  returned: always
  type: bool
  sample: false
job:
  description: Number of the job, V(null) when there was nothing to load and in check mode.
  returned: always
  type: int
  sample: 4
state:
  description: State of the job, one of C(starting), C(waiting), C(running), C(done), C(failed), C(canceled) and C(interrupted).
  returned: always
  type: str
  sample: done
reached:
  description: Whether both O(min_residency) and O(max_gone) hold. V(null) as long as the job runs, and in check mode.
  returned: always
  type: bool
  sample: true
progress:
  description: Percent of what the job has to do that it has done.
  returned: always
  type: float
  sample: 100.0
wanted:
  description:
    - Blocks of 8 KiB of the snapshot, as far as O(relations) and O(databases) choose them, or those that the job is to bring
      back as long as it runs.
  returned: always
  type: int
  sample: 50689
resident:
  description: Blocks of these that are resident, counted after the job. V(null) as long as it runs.
  returned: always
  type: int
  sample: 50689
gone:
  description: Blocks of these that do not exist any more. V(null) as long as the job runs.
  returned: always
  type: int
  sample: 0
missing:
  description: Blocks of these that exist and are not resident. In check mode, what would be loaded.
  returned: always
  type: int
  sample: 0
loaded:
  description: Blocks that the job has loaded.
  returned: always
  type: int
  sample: 11366
extra:
  description: Blocks that it loaded although nobody wanted them, because they lay between wanted ones.
  returned: always
  type: int
  sample: 120
buffers_wanted:
  description: Blocks of these that were in C(shared_buffers). V(null) without O(shared_buffers).
  returned: always
  type: int
  sample: 8192
buffers_resident:
  description: Blocks of RV(buffers_wanted) that are in C(shared_buffers) again.
  returned: always
  type: int
  sample: 8192
buffers_loaded:
  description: Blocks of RV(buffers_wanted) that the job has brought there.
  returned: always
  type: int
  sample: 8140
over_budget:
  description: Blocks that it left out because they did not fit the memory budget.
  returned: always
  type: int
  sample: 0
rewritten:
  description: Blocks of RV(gone) whose relation has other files now. V(null) as long as the job runs.
  returned: always
  type: int
  sample: 0
failed_blocks:
  description: Blocks that it could not read, or that were evicted again before it had counted them; RV(msg) says which.
  returned: always
  type: int
  sample: 0
reclaimed:
  description: Blocks of RV(missing) that were resident during the restore, and that the kernel has reclaimed since. V(null) as long as the job runs.
  returned: always
  type: int
  sample: 0
not_reached:
  description: Blocks of RV(missing) that were not loaded before the job ended. V(null) as long as it runs.
  returned: always
  type: int
  sample: 0
waited:
  description: For what the job waited before its turn came. V(null) if it did not wait, or before this task looked at it.
  returned: always
  type: dict
  contains:
    reason:
      description: The restore that was in front, by its data directory and the process that works on it.
      type: str
      sample: waits for the restore of "/var/lib/postgresql/15/other" (pid 4711)
    since:
      description: When the wait began, in seconds since 1970.
      type: float
      sample: 1795332010.5
    seconds:
      description: How long it was, or has been so far.
      type: float
      sample: 12.3
remarks:
  description:
    - What is not perfect, and why, a sentence each. RV(msg) has them too.
    - All reasons why RV(residency) is below 100, what is gone, for whom the job waited, and what takes pages away on this host although
      memory is free (DAMON, C(memory.high)), as far as it is the server's host.
  returned: always
  type: list
  elements: str
  sample:
    - "8.13 MB was in memory during the restore, and the kernel has reclaimed it since."
residency:
  description: Percent of the blocks that still exist which are resident. V(null) as long as the job runs.
  returned: always
  type: float
  sample: 100.0
gone_percent:
  description: Percent of the snapshot that is gone. V(null) as long as the job runs.
  returned: always
  type: float
  sample: 0.0
budget_bytes:
  description: The memory budget of the job or, in check mode, the one that it would get.
  returned: always
  type: int
  sample: 20154574976
seconds:
  description: Duration of the job.
  returned: always
  type: float
  sample: 0.158
bytes_per_second:
  description: What it loaded, over its duration.
  returned: always
  type: int
  sample: 560989091
expected_seconds:
  description:
    - What the job was expected to take, at the rate of a former one. V(null) when no former job tells a rate, and when the
      job was not started here.
  returned: always
  type: float
  sample: 0.173
relations:
  description: At most 20 of the relations, those first that lack most blocks.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description:
        - Schema and name, as SQL spells them. Of one that was dropped or rewritten, what it was called when the snapshot
          was taken; V(null) when nobody knows.
      type: str
    kind:
      description: Kind of relation.
      type: str
    belongs_to:
      description: The table that an index or TOAST belongs to.
      type: str
    database_oid:
      description: OID of its database, 0 for shared catalogs.
      type: int
    tablespace:
      description: OID of its tablespace.
      type: int
    relfilenumber:
      description: Number of its files.
      type: int
    residency:
      description: Percent of its blocks that still exist which are resident. V(null) when none does.
      type: float
    wanted:
      description: Its blocks in the snapshot.
      type: int
    resident:
      description: Blocks of these that are resident.
      type: int
    missing:
      description: Blocks of these that exist and are not resident.
      type: int
    gone:
      description: Blocks of these that do not exist any more.
      type: int
    over_budget:
      description: Blocks of these that did not fit the memory budget.
      type: int
    loaded:
      description: Blocks of these that the job has loaded.
      type: int
  sample:
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      residency: 100.0
      wanted: 30781
      resident: 30781
      missing: 0
      gone: 0
      over_budget: 0
      loaded: 26
segments:
  description: At most 20 segments, those first that lack most blocks. Each has the keys of RV(relations), and these.
  returned: always
  type: list
  elements: dict
  contains:
    segment_no:
      description: Number of the segment in the snapshot, V(null) when its relation is loaded whole.
      type: int
    fork:
      description: Fork of the relation.
      type: str
    segment:
      description: Number of the segment in the fork.
      type: int
    reason:
      description: Why the job left something out.
      type: str
  sample:
    - database: postgres_air
      relation: public.boarding_pass
      kind: table
      belongs_to: null
      database_oid: 16384
      tablespace: 1663
      relfilenumber: 16392
      segment_no: 788
      fork: main
      segment: 0
      reason: null
      residency: 100.0
      wanted: 30770
      resident: 30770
      missing: 0
      gone: 0
      over_budget: 0
      loaded: 26
queries:
  description: Statements that changed something, or would have in check mode; long ones cut short.
  returned: always
  type: list
  elements: str
  sample:
    - 'SELECT residency_restore_start(''warm@3'', ''{"time_limit": 3600, "segments": [789, 788, 792, 793]}''::jsonb) AS job'
diff:
  description: How much of each relation is resident, before and after.
  returned: with C(--diff)
  type: dict
  sample:
    before_header: resident of warm@3
    after_header: resident of warm@3
    before: |
      table public.passenger in postgres_air: 512 kB of 58.4 MB, 0.85 %
    after: |
      table public.passenger in postgres_air: 58.4 MB of 58.4 MB, 100 %
"""

from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _restore
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import (
    attach_extension,
    connect,
    module_argument_spec,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish
from ansible_collections.pgfleet.cache.plugins.module_utils._units import parse_bytes, parse_seconds

OPTIONS: Dict[str, Dict[str, Any]] = {
    "name": {"type": "str"},
    "job": {"type": "int"},
    "relations": {"type": "list", "elements": "str", "default": []},
    "databases": {"type": "list", "elements": "str", "default": []},
    "order": {"type": "str", "choices": ["listed", "hottest"], "default": "listed"},
    "rewritten": {"type": "str", "choices": ["skip", "load"], "default": "skip"},
    "fallback_relations": {"type": "list", "elements": "str", "default": []},
    "min_residency": {"type": "float", "default": 90},
    "max_gone": {"type": "float", "default": 20},
    "max_age": {"type": "str"},
    "budget": {"type": "str"},
    "rate": {"type": "str"},
    "deadline": {"type": "str"},
    "shared_buffers": {"type": "bool", "default": False},
    "aggressive": {"type": "bool", "default": False},
    "max_io_pressure": {"type": "int"},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": _restore.WAIT_TIMEOUT},
    "wait_sleep": {"type": "float", "default": 1},
    "waited": {"type": "dict"},
}


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    parsed: Dict[str, float] = {option: parse_bytes(option, params[option]) for option in ("budget", "rate") if params[option] is not None}
    if params["max_age"] is not None:
        parsed["max_age"] = parse_seconds("max_age", params["max_age"])
    options = _restore.Options(**dict({option: params[option] for option in OPTIONS}, **parsed))
    _restore.check_options(options)
    try:
        with closing(connect(params)) as session:
            attach_extension(session)
            return _restore.restore(session, options, module.check_mode)
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        result = _restore.empty_result()
        result.update(changed=True, msg="Would restore '%s'." % options.name, warnings=[str(error)])
        return result


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(**OPTIONS),
        required_one_of=[("name", "job")],
        supports_check_mode=True,
    )
    finish(module, run, _restore.empty_result())


if __name__ == "__main__":
    main()
