#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: residency_restore
short_description: Restore a snapshot's blocks into the page cache, and check that they are resident
version_added: 0.1.0
description:
  - Starts a restore job in the server, or finds the job that already restores this snapshot, waits for it, and counts
    what is resident afterwards. Resident means in the operating system's page cache or in C(shared_buffers).
  - Fails if less than O(min_residency) is resident or more than O(max_gone) is gone, and names the coldest relations.
  - The job runs in a background worker of PostgreSQL. It needs no connection, and stops after O(wait_timeout) at the latest.
  - A running job that restores the same is waited for. A running job that restores something else, or with other options, is an error. One that the
    server has started by itself, when it started (C(pg_residency.autorestore)), is ended.
  - O(relations) and O(databases) select the part of the snapshot that is restored and counted, and its order. They match
    the names that M(pgfleet.cache.residency_snapshot) saves with a snapshot.
  - While waiting, the module prints a line per host every 10 % or 30 seconds, unless the task is asynchronous.
author:
  - The pgfleet.cache authors (@pgfleet)
extends_documentation_fragment:
  - community.postgresql.postgres
  - pgfleet.cache.attributes
  - pgfleet.cache.attributes.login
options:
  name:
    description:
      - Name of the snapshot. V(warm) means the current generation of C(warm), which is the newest that is not
        thin (M(pgfleet.cache.residency_snapshot)). V(warm@3) means its third. A warning names newer thin generations.
      - Required unless O(job) is given.
    type: str
  lease_file:
    description:
      - File of this host's lease, as M(pgfleet.cache.host_record) keeps it. While a rolling restart, a cold test or an installation holds the
        lease, no job is started. O(job) and check mode ignore it.
    type: path
    version_added: 0.3.0
  lease_id:
    description:
      - The C(id) of the caller's own lease, which does not prevent the job. Set by the action plugin.
    type: str
    default: ""
    version_added: 0.3.0
  take_over:
    description:
      - The C(id) of a lease that does not prevent the job either, because its run is known to have ended.
    type: str
    default: ""
    version_added: 0.3.0
  job:
    description:
      - Wait for this job, whether it still runs or not, and start none.
      - Unless O(relations) or O(databases) are given, the selection that the job was started with is counted.
    type: int
  relations:
    description:
      - Shell patterns (V(*), V(?), V([abc])) for the names of relations, such as V(public.boarding_pass), V(boarding_*) or
        V(reporting.*). Only these relations are restored and counted. An empty list means all.
      - A pattern without a schema matches the relation in any schema. A name that SQL quotes may be given with or without its quotes.
      - A table includes its indexes and its TOAST, a partitioned table its partitions. An index means only itself.
      - A pattern that matches nothing causes a warning, and an error if no pattern matches.
    type: list
    elements: str
    default: []
  databases:
    description:
      - Shell patterns for the names of databases. An empty list means all. The shared catalogs belong to no database; only V(*) matches them.
    type: list
    elements: str
    default: []
  order:
    description:
      - Order in which to load what O(relations) and O(databases) select, in case budget or time do not suffice for all.
      - V(listed) loads what matches the first pattern of O(relations) before what matches the second, and so on, then likewise by
        O(databases), and within one pattern the hottest segments first. V(*) as the last pattern means all the rest.
      - V(hottest) loads the hottest segments first, whichever pattern they match, as without patterns.
    type: str
    choices: [listed, hottest]
    default: listed
  rewritten:
    description:
      - Whether to skip relations rewritten since the snapshot, or to load them whole. C(VACUUM FULL), C(CLUSTER), C(REINDEX),
        C(REFRESH MATERIALIZED VIEW) and C(TRUNCATE) rewrite a relation. A new relation under the same name counts as rewritten, too.
      - With V(skip) their blocks are gone. With V(load) a relation is loaded whole if at least half of it was cached, and counts
        with its present size.
      - The names saved with a snapshot identify the present files of a relation. A snapshot has no
        names of a database that allowed no connections. A warning reports this.
    type: str
    choices: [skip, load]
    default: skip
  fallback_relations:
    description:
      - Shell patterns as in O(relations). As long as no snapshot of this name exists, these relations are loaded whole, in the
        databases that O(databases) select. Otherwise this option has no effect.
    type: list
    elements: str
    default: []
  min_residency:
    description:
      - Percent of the snapshot's existing blocks that must be resident afterwards.
    type: float
    default: 90
  max_gone:
    description:
      - Percent of the snapshot's blocks that may be gone, because a relation was dropped, truncated or rewritten.
    type: float
    default: 20
  digest:
    description:
      - Refuse a snapshot with a digest other than this one, which M(pgfleet.cache.residency_snapshot) returned. A standby that was created
        from its primary since then has the primary's snapshots under the same names.
    type: str
    version_added: 0.3.0
  max_age:
    description:
      - Refuse a snapshot older than this, such as V(36h) or V(7d), before anything is loaded, also in check mode. Units are
        V(s), V(min), V(h), V(d) and V(w); a plain number means seconds.
      - The age is measured by the server's clock. With O(job) it is not checked.
    type: str
    version_added: 0.2.0
  budget:
    description:
      - Load no more than this, such as V(2GB). Units are powers of 1024.
      - This is an upper bound. With or without it, the job never loads more than fits into the memory that is free or easily freed when
        it starts.
    type: str
  rate:
    description:
      - Load no more than this per second, such as V(200MB).
    type: str
  deadline:
    description:
      - Date and time with time zone at which the job stops, complete or not, such as V(2026-11-21 06:00+01:00) or, if the
        host's Python is 3.9 or newer, V(2026-11-21 06:00 Europe/Berlin).
      - The module estimates completion from the rate of the newest three jobs without O(rate). It warns if the job would not meet the
        deadline, or if no former job gives a rate.
      - Restores of several clusters on one host run one after the other. The estimate does not add them up.
    type: str
  aggressive:
    description:
      - Use the full bandwidth of the disk, with the I/O priority of the server; only while the server takes no traffic. Otherwise the job keeps
        few requests in flight while others use the disk, and sends them in the idle I/O class, so that it hardly delays them.
    type: bool
    default: false
  max_io_pressure:
    description:
      - Maximum I/O pressure of the host (C(/proc/pressure/io)), the percent of time in which some task waits for a disk, from 1 to 100.
        Above it the job slows down, to no less than 8 MB per second. Below it the job speeds up again.
    type: int
  shared_buffers:
    description:
      - After the page cache, also fill C(shared_buffers) with the blocks that they held, as far as there are unused
        buffers. One worker per database reads them, the most used first.
    type: bool
    default: false
  hold_until:
    description:
      - Date and time with time zone, as in O(deadline), until which the job keeps in the page cache what it has restored. At most 7 days ahead.
      - The job maps the files, which many kernels spare when they reclaim memory, counts them every O(hold_interval) seconds, and brings back
        what was reclaimed, within O(rate) and the free memory. While it holds, its state is C(holding), and it takes one of the
        server's C(max_worker_processes). The module does not wait for that.
      - Another restore ends the hold, and so do C(SELECT residency_cancel(job)) and M(pgfleet.cache.cache_evict). A relation that is evicted with
        C(residency_evict), dropped or truncated is no longer held.
      - The job is started even if everything is resident already, unless it is held that long already.
    type: str
    version_added: 0.3.0
  hold_interval:
    description:
      - Seconds between two counts of what is held, from 1 to 3600. When what is brought back is reclaimed again, or counting takes more than a
        twentieth of the time, the intervals become longer.
    type: int
    default: 10
    version_added: 0.3.0
  wait:
    description:
      - Whether to wait for the job. If not, the result contains its progress, and O(min_residency) and O(max_gone)
        are checked only if the job has ended or there was nothing to load.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which a job that this task starts stops, and after which the module stops waiting.
    type: int
    default: 3600
  wait_sleep:
    description:
      - Seconds between two checks of the job.
    type: float
    default: 1
  waited:
    description:
      - RV(waited) of the task that started O(job). Without it, the result does not show that the job waited for another restore before this
        task began.
    type: dict
    version_added: 0.2.0
attributes:
  check_mode:
    support: full
    details:
      - Starts nothing, and reports what would be loaded, from which relations, and how long that would take.
      - If the extension is not installed yet, warns and predicts a change.
  diff_mode:
    support: full
    details:
      - Shows how much of each relation was and is, or would be, resident, for at most 20 relations.
  idempotent:
    support: full
    details:
      - Starts no job if all existing blocks are resident, unless O(shared_buffers) are to be filled.
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

- name: Refuse a snapshot older than 36 hours
  pgfleet.cache.residency_restore:
    name: warm
    max_age: 36h
  become: true
  become_user: postgres

- name: Restore slowly, during production traffic
  pgfleet.cache.residency_restore:
    name: warm
    rate: 100MB
    budget: 8GB
  become: true
  become_user: postgres

- name: Restore both caches at full bandwidth, before the server takes traffic
  pgfleet.cache.residency_restore:
    name: warm
    aggressive: true
    shared_buffers: true
  become: true
  become_user: postgres

- name: Restore the tables of tonight's reports first, then everything else, before six
  pgfleet.cache.residency_restore:
    name: warm
    databases: [postgres_air]
    relations: [boarding_pass, public.passenger, "*"]
    deadline: "2026-11-21 06:00+01:00"
  become: true
  become_user: postgres

- name: Restore before the reports, and keep that in the page cache while they run
  pgfleet.cache.residency_restore:
    name: warm
    deadline: "2026-11-21 05:40+01:00"
    hold_until: "2026-11-21 06:30+01:00"
  become: true
  become_user: postgres

- name: Load rewritten tables whole, and two tables where no snapshot exists yet
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
  description: Summary in one or two sentences.
  returned: always
  type: str
  sample: "warm@3: 100 % of 396 MB is resident; loaded 88.8 MB in 0.2 s, 535 MB/s, idle I/O class (mq-deadline)."
changed:
  description:
    - Whether blocks were loaded while this task started or waited for the job. If the task does not wait, whether it started the
      job.
  returned: always
  type: bool
  sample: true
snapshot:
  description: The snapshot, with its generation. V(null) if there is none and RV(relations) are O(fallback_relations).
  returned: always
  type: str
  sample: warm@3
snapshot_age:
  description: Seconds since RV(snapshot) was taken, by the server's clock. V(null) without a snapshot.
  returned: always
  type: float
  sample: 93784.2
snapshot_thin:
  description:
    - Whether RV(snapshot) is thin. Only a generation requested by its number, or one without a better one, can be. V(null) without a snapshot.
  returned: always
  type: bool
  sample: false
job:
  description: Number of the job. V(null) if there was nothing to load, and in check mode.
  returned: always
  type: int
  sample: 4
state:
  description: State of the job, one of C(starting), C(waiting), C(running), C(holding), C(done), C(failed), C(canceled) and C(interrupted).
  returned: always
  type: str
  sample: done
reached:
  description: Whether both O(min_residency) and O(max_gone) hold. V(null) as long as the job runs, and in check mode.
  returned: always
  type: bool
  sample: true
progress:
  description: Progress of the job in percent.
  returned: always
  type: float
  sample: 100.0
wanted:
  description:
    - Blocks of 8 KiB of the snapshot that O(relations) and O(databases) select; while the job runs, the blocks that it
      is to restore.
  returned: always
  type: int
  sample: 50689
resident:
  description: Blocks of RV(wanted) that are resident, counted after the job. V(null) while it runs.
  returned: always
  type: int
  sample: 50689
gone:
  description: Blocks of RV(wanted) that no longer exist. V(null) while the job runs.
  returned: always
  type: int
  sample: 0
missing:
  description: Blocks of RV(wanted) that exist and are not resident. In check mode, the blocks that would be loaded.
  returned: always
  type: int
  sample: 0
loaded:
  description: Blocks that the job has loaded.
  returned: always
  type: int
  sample: 11366
extra:
  description: Unwanted blocks that the job loaded because they lie between wanted ones.
  returned: always
  type: int
  sample: 120
buffers_wanted:
  description: Blocks of RV(wanted) that were in C(shared_buffers). V(null) without O(shared_buffers).
  returned: always
  type: int
  sample: 8192
buffers_resident:
  description: Blocks of RV(buffers_wanted) that are in C(shared_buffers) again. In check mode, those that are there now, counted by relation.
  returned: always
  type: int
  sample: 8192
buffers_loaded:
  description: Blocks of RV(buffers_wanted) that the job has read into C(shared_buffers).
  returned: always
  type: int
  sample: 8140
over_budget:
  description: Blocks that the job left out because they did not fit the memory budget.
  returned: always
  type: int
  sample: 0
rewritten:
  description: Blocks of RV(gone) whose relation was rewritten. V(null) while the job runs.
  returned: always
  type: int
  sample: 0
failed_blocks:
  description: Blocks that the job could not read, or that were evicted before the job had counted them. RV(msg) states which.
  returned: always
  type: int
  sample: 0
reclaimed:
  description: Blocks of RV(missing) that were resident during the restore and that the kernel has reclaimed since. V(null) while the job runs.
  returned: always
  type: int
  sample: 0
not_reached:
  description: Blocks of RV(missing) that were not loaded before the job ended. V(null) while it runs.
  returned: always
  type: int
  sample: 0
waited:
  description: The wait of the job for its turn. V(null) if it did not wait, or waited only before this task checked it.
  returned: always
  type: dict
  contains:
    reason:
      description: The restore that was ahead, with its data directory and its process.
      type: str
      sample: waiting for the restore of "/var/lib/postgresql/15/other" (PID 4711)
    since:
      description: Start of the wait, in seconds since 1970.
      type: float
      sample: 1795332010.5
    seconds:
      description: Duration of the wait, so far if it lasts.
      type: float
      sample: 12.3
remarks:
  description:
    - One sentence for each deviation and its cause. RV(msg) contains them, too.
    - All reasons why RV(residency) is below 100, what is gone, which restore the job waited for, and what reclaims pages on this host although
      memory is free (DAMON, C(memory.high)), if this is the server's host.
  returned: always
  type: list
  elements: str
  sample:
    - "8.13 MB was in memory during the restore, and the kernel has reclaimed it within 44 s."
residency:
  description: Percent of the existing blocks that are resident. V(null) while the job runs.
  returned: always
  type: float
  sample: 100.0
gone_percent:
  description: Percent of the snapshot that is gone. V(null) while the job runs.
  returned: always
  type: float
  sample: 0.0
budget_bytes:
  description: Memory budget of the job; in check mode, the budget that it would get.
  returned: always
  type: int
  sample: 20154574976
io_class:
  description:
    - I/O priority of the requests of the job. V(idle) if they gave way to those of other processes, which the schedulers C(mq-deadline) and
      C(bfq) honour. V(normal) if they had the priority of the server, because the scheduler honours no other or O(aggressive) is set.
      V(mixed) if this differed, by device or because the others left the job less than 8 MiB per second for some seconds. V(null) if it made
      no requests.
  returned: always
  type: str
  sample: idle
scheduler:
  description: I/O schedulers of the devices. V(null) if unknown, or if the job made no requests.
  returned: always
  type: str
  sample: mq-deadline
window_bytes:
  description: Bytes that the job had in flight at a time for each device. More while the device was unused otherwise, and less while it gave way.
  returned: always
  type: int
  sample: 524288
hold:
  description:
    - What the job holds since it has restored, or what another job holds if this task started none. V(null) without a hold.
  returned: always
  type: dict
  contains:
    job:
      description: The job that holds.
      type: int
    state:
      description: Its state.
      type: str
    until:
      description: End of the hold.
      type: str
    since:
      description: Begin of the hold.
      type: str
    reclaimed:
      description: Blocks that were missing at a count and not at the one before, in sum. V(null) before the first count, like what follows.
      type: int
    brought_back:
      description: Blocks of these that were read again.
      type: int
    reclaim_rate:
      description: RV(hold.reclaimed) in bytes per minute, over the whole time of the hold.
      type: int
    mapped_bytes:
      description: Bytes that the job had mapped at the last count.
      type: int
  sample: {
    "job": 4, "state": "holding", "until": "2026-11-21T05:30:00Z", "since": "2026-11-21T04:31:12Z", "reclaimed": 12, "brought_back": 12,
    "reclaim_rate": 98304, "mapped_bytes": 415236096
  }
seconds:
  description: Duration of the job.
  returned: always
  type: float
  sample: 0.158
bytes_per_second:
  description: Bytes that the job loaded, divided by its duration.
  returned: always
  type: int
  sample: 560989091
expected_seconds:
  description:
    - Expected duration of the job, at the rate of former jobs. V(null) if no former job gives a rate, or if this task did not start the
      job.
  returned: always
  type: float
  sample: 0.173
relations:
  description: At most 20 relations, those with the most missing blocks first.
  returned: always
  type: list
  elements: dict
  contains:
    database:
      description: Database, V(null) for shared catalogs.
      type: str
    relation:
      description:
        - Schema and name, as SQL spells them. For a dropped or rewritten relation, its name when the snapshot
          was taken; V(null) if unknown.
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
      description: Percent of its existing blocks that are resident. V(null) if none exists.
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
      description: Blocks of these that no longer exist.
      type: int
    over_budget:
      description: Blocks of these that did not fit the memory budget.
      type: int
    loaded:
      description: Blocks of these that the job has loaded.
      type: int
  sample:
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, residency: 100.0, wanted: 30781, resident: 30781, missing: 0, gone: 0, over_budget: 0, loaded: 26
      }
segments:
  description: At most 20 segments, those with the most missing blocks first. Each has the keys of RV(relations), and these.
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
    - {
        database: postgres_air, relation: public.boarding_pass, kind: table, belongs_to: null, database_oid: 16384, tablespace: 1663,
        relfilenumber: 16392, segment_no: 788, fork: main, segment: 0, reason: null, residency: 100.0, wanted: 30770, resident: 30770, missing: 0,
        gone: 0, over_budget: 0, loaded: 26
      }
held_by:
  description: The lease that another run holds.
  returned: when nothing was restored because of it
  type: dict
  sample: {"owner": "alice", "controller": "ctl1", "pid": 4711, "what": "rolling_restart"}
queries:
  description: Statements that changed something, or would have in check mode; long ones are truncated.
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

import os
from contextlib import closing
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pgfleet.cache.plugins.module_utils import _host_record, _residency_restore
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import (
    attach_extension,
    connect,
    module_argument_spec,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._result import Module, finish

OPTIONS: Dict[str, Dict[str, Any]] = {
    "name": {"type": "str"},
    "job": {"type": "int"},
    "lease_file": {"type": "path"},
    "lease_id": {"type": "str", "default": ""},
    "take_over": {"type": "str", "default": ""},
    "relations": {"type": "list", "elements": "str", "default": []},
    "databases": {"type": "list", "elements": "str", "default": []},
    "order": {"type": "str", "choices": ["listed", "hottest"], "default": "listed"},
    "rewritten": {"type": "str", "choices": ["skip", "load"], "default": "skip"},
    "fallback_relations": {"type": "list", "elements": "str", "default": []},
    "min_residency": {"type": "float", "default": 90},
    "max_gone": {"type": "float", "default": 20},
    "digest": {"type": "str"},
    "max_age": {"type": "str"},
    "budget": {"type": "str"},
    "rate": {"type": "str"},
    "deadline": {"type": "str"},
    "shared_buffers": {"type": "bool", "default": False},
    "aggressive": {"type": "bool", "default": False},
    "max_io_pressure": {"type": "int"},
    "hold_until": {"type": "str"},
    "hold_interval": {"type": "int", "default": 10},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": _residency_restore.WAIT_TIMEOUT},
    "wait_sleep": {"type": "float", "default": 1},
    "waited": {"type": "dict"},
}
LEASE = ("lease_file", "lease_id", "take_over")


def _check_lease(params: Dict[str, Any]) -> None:
    """A restore is lost if another run restarts the server or empties its caches meanwhile, or falsifies what that run measures."""
    directory, name = os.path.split(params["lease_file"])
    found = _host_record.Records(directory).read(os.path.splitext(name)[0], ("lease",))
    lease = found["lease"]
    if found["fault"]:
        raise ResidencyError(
            "Cannot check for other runs on this host: %s. Make pgfleet_state_directory readable for the cluster's user (0755), or correct it."
            % found["fault"])
    if lease is None or lease.get("id") == params["lease_id"] or lease.get("id") == params["take_over"]:
        return
    raise ResidencyError(
        "Another run is at work on this host: the lease is held by %s. %s" % (_host_record.owner(lease), _host_record.way_out(lease)), {"held_by": lease})


def run(module: AnsibleModule) -> Dict[str, Any]:
    params = module.params
    parsed = {option: parse(option, params[option]) for option, parse in _residency_restore.FORMS.items() if params[option] is not None}
    options = _residency_restore.Options(**dict({option: params[option] for option in OPTIONS if option not in LEASE}, **parsed))
    _residency_restore.check_options(options)
    if params["lease_file"] and not params["job"] and not module.check_mode:
        _check_lease(params)
    try:
        with closing(connect(params)) as session:
            attach_extension(session)
            return _residency_restore.restore(session, options, module.check_mode)
    except NotInstalledError as error:
        if not module.check_mode:
            raise
        result = _residency_restore.empty_result()
        result.update(changed=True, msg="Would restore '%s'." % options.name, warnings=[str(error)])
        return result


def main() -> None:
    module = Module(
        argument_spec=module_argument_spec(**OPTIONS),
        required_one_of=[("name", "job")],
        supports_check_mode=True,
    )
    finish(module, run, _residency_restore.empty_result())


if __name__ == "__main__":
    main()
