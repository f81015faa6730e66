# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remarks on a restore: a sentence for each cause why not all is resident, or will not stay resident."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _hold
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_blocks, human_bytes, human_percent, human_seconds

NAMED = 5  # relations named in a sentence


@dataclass(frozen=True)
class Missing:
    """Blocks that exist and are not resident, by the reason; together they are all of them."""

    over_budget: int = 0
    not_reached: int = 0  # before the job ended
    failed: int = 0
    reclaimed: int = 0  # since the job had counted them, or while it was at work
    not_planned: int = 0  # no part of the job

    @property
    def total(self) -> int:
        return self.over_budget + self.not_reached + self.failed + self.reclaimed + self.not_planned


@dataclass(frozen=True)
class Lost:
    """The blocks of a relation that are gone."""

    label: str
    blocks: int
    rewritten: bool


@dataclass(frozen=True)
class Budget:
    """The memory budget of a restore, as residency_budget() returns it, in bytes."""

    available: int
    cgroup_headroom: Optional[int]  # None: no cgroup has a limit
    dirty: int
    reserve: int
    hot: int
    restored_elsewhere: int


@dataclass(frozen=True)
class Wait:
    """The wait for another restore on the host, before this one began."""

    reason: str  # as the job has it: waiting for ...
    seconds: float


@dataclass(frozen=True)
class Reclaim:
    """The mechanisms that reclaim pages although memory is free."""

    damon: bool = False
    cgroup: Optional[str] = None  # whose memory.high is nearly reached
    high_bytes: int = 0


@dataclass(frozen=True)
class Facts:
    """The facts about a restore. Without a job, there was nothing to load."""

    missing: Missing = Missing()
    job: Optional[int] = None
    state: str = "done"
    elapsed: float = 0.0  # seconds since the job began
    message: Optional[str] = None  # the job's own
    limit: Optional[str] = None  # the option that ended the job, with its value
    gone: int = 0
    gone_percent: float = 0.0
    lost: Sequence[Lost] = ()
    failures: Dict[str, int] = field(default_factory=dict)  # blocks by the server's words, resident by now or not
    budget_bytes: int = 0
    budget_option: Optional[int] = None
    budget: Optional[Budget] = None
    wait: Optional[Wait] = None
    reclaim: Reclaim = Reclaim()


def remarks(facts: Facts) -> List[str]:
    """The remarks; none if everything that exists is resident, nothing is gone and nothing reclaims pages."""
    found = []
    missing = facts.missing
    reclaim = facts.reclaim if facts.gone_percent < 100 else Reclaim()  # of nothing, nothing can be reclaimed
    if facts.wait is not None:
        found.append("Job %s %s, for %s." % (facts.job, facts.wait.reason.replace("waiting for", "waited for", 1), human_seconds(facts.wait.seconds)))
    if facts.gone:
        found.append("%s of the snapshot is gone (%s): %s." % (human_blocks(facts.gone), _share(facts.gone_percent), _lost(facts)))
    if missing.over_budget:
        found.append(
            "%s did not fit the memory budget of %s%s." % (human_blocks(missing.over_budget), human_bytes(facts.budget_bytes), _limiter(facts))
        )
    if missing.not_reached:
        found.append("%s was not loaded before job %s ended%s." % (human_blocks(missing.not_reached), facts.job, _end(facts)))
    elif facts.message:
        found.append("Job %s, %s: %s." % (facts.job, facts.state, facts.message.rstrip(".")))
    for reason, blocks in sorted(facts.failures.items()):
        found.append("%s failed: %s." % (human_blocks(blocks), reason.rstrip(".")))
    if missing.failed and not facts.failures:
        found.append("%s failed." % human_blocks(missing.failed))
    if missing.reclaimed:
        found.append(
            "%s was in memory during the restore, and the kernel has reclaimed it within %s." % (human_blocks(missing.reclaimed), human_seconds(facts.elapsed))
        )
    if missing.not_planned:
        found.append("%s was not part of job %s." % (human_blocks(missing.not_planned), facts.job))
    return found + of_reclaim(reclaim, "restore shortly before they are needed, or hold them (hold_until)", facts.state != _hold.HOLDING)


def of_reclaim(reclaim: Reclaim, advice: str, needed: bool = True) -> List[str]:
    """The remarks on what reclaims pages, with what to do about it; pages that are held need nothing of DAMON."""
    found = []
    if reclaim.damon:
        found.append(
            "DAMON runs on this host: the kernel reclaims pages that are not read for a while, although memory is free.%s"
            % (" %s." % (advice[0].upper() + advice[1:]) if needed else "")
        )
    if reclaim.cgroup is not None:
        found.append(
            "The server's memory is at memory.high of %s (%s): the kernel reclaims pages that are not read for a while. Raise it, or %s."
            % (human_bytes(reclaim.high_bytes), reclaim.cgroup, advice)
        )
    return found


def _share(percent: float) -> str:
    return human_percent(percent) if percent else "less than 0.01 %"


def _lost(facts: Facts) -> str:
    named = [
        "%s (%s%s)" % (loss.label, human_blocks(loss.blocks), ", rewritten" if loss.rewritten else ", dropped or truncated") for loss in facts.lost[:NAMED]
    ]
    more = facts.gone - sum(loss.blocks for loss in facts.lost[:NAMED])
    return ", ".join(named + (["%s of others" % human_blocks(more)] if more > 0 else []))


def _limiter(facts: Facts) -> str:
    """The limit of the budget (option, server's cgroup or host), and the memory that is set aside."""
    if facts.budget_option is not None and facts.budget_bytes >= facts.budget_option:
        return ", which the option budget sets"
    budget = facts.budget
    if budget is None:
        return ""
    elsewhere = budget.restored_elsewhere
    if budget.cgroup_headroom is not None and budget.cgroup_headroom < budget.available:
        elsewhere = 0  # is set aside of the host's memory only
        source = "the server's memory cgroup, which has room for %s" % human_bytes(budget.cgroup_headroom)
    else:
        source = "the host's memory, of which %s is available" % human_bytes(budget.available)
    aside = [
        (budget.hot, "in active use"),
        (elsewhere, "restored for other clusters"),
        (budget.dirty, "not yet written"),
        (budget.reserve, "kept in reserve"),
    ]
    parts = ["%s %s" % (human_bytes(count), what) for count, what in aside if count > 0]
    return ": the limit is %s%s" % (source, "; %s" % ", ".join(parts) if parts else "")


def _end(facts: Facts) -> str:
    why = (facts.message or facts.state).rstrip(".")
    return " (%s%s)" % (why, ", by %s" % facts.limit if facts.limit else "")
