# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that share storage: no more of a group than its limit restore at the same time.

Turns are in lockstep, and decided before the first begins: a host that waits for its turn has no task, and occupies no process of the controller.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import checked
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import NOT_RUN

NAMED = 5  # hosts in a sentence

Shares = Mapping[str, Sequence[Any]]  # host -> its group, and the limit of it


def shares(hosts: Sequence[str], check: Mapping[str, Any]) -> Dict[str, Tuple[str, int]]:
    """For each host that shares storage, its group and limit, as seen by check_variables."""
    found = {}
    for host in hosts:
        group = str(checked(check, host, "pgfleet_storage_group"))
        if group:
            found[str(host)] = (group, int(checked(check, host, "pgfleet_storage_limit")))
    return found


def disagreements(shared: Shares) -> Dict[str, str]:
    """A message for each host of a group with more than one limit."""
    limits: Dict[str, Dict[int, List[str]]] = {}
    for host, (group, limit) in shared.items():
        limits.setdefault(group, {}).setdefault(limit, []).append(host)
    found = {}
    for group, by_limit in limits.items():
        if len(by_limit) > 1:
            different = " and ".join("%d on %s" % (limit, _names(hosts)) for limit, hosts in sorted(by_limit.items()))
            text = "pgfleet_storage_limit is %s, which share the storage %s (pgfleet_storage_group): set the same limit for these hosts." % (
                different, printable(group, 100))
            found.update({host: text for hosts in by_limit.values() for host in hosts})
    return found


def split(batches: Sequence[Sequence[str]], shared: Shares) -> List[List[str]]:
    """The batches, each divided so that none has more hosts of a group than its limit; every host comes as early as it can."""
    found: List[List[str]] = []
    for batch in batches:
        parts: List[List[str]] = []
        there: Dict[str, int] = {}  # hosts of each group in this batch so far
        for host in batch:
            number = 0
            if host in shared:
                group, limit = shared[host]
                number = there.get(group, 0) // limit
                there[group] = there.get(group, 0) + 1
            while len(parts) <= number:
                parts.append([])
            parts[number].append(host)
        found += filter(None, parts)
    return found


def turns(hosts: Sequence[str], shared: Shares) -> List[Dict[str, List[str]]]:
    """The steps after the start of the hosts that need no turn: for each, the hosts to ``wait`` for, and the hosts to ``start`` then.

    The last step starts none. Until then a host is waited for only if another one needs its place: hosts that share no storage delay nobody.
    """
    waves = split([hosts], shared)
    found = []
    before: Set[str] = set()
    for wave, following in zip(waves, waves[1:]):
        groups = {shared[host][0] for host in following}
        wait = [host for host in wave if host in shared and shared[host][0] in groups]
        found.append({"wait": wait, "start": following})
        before.update(wait)
    return [*found, {"wait": [host for host in hosts if host not in before], "start": []}]


def task_in_turn(turn: Mapping[str, Sequence[str]], host: str, failure: str, result: Mapping[str, Any]) -> str:
    """The task file of a host in one turn: ``wait``, or ``nothing`` if it has no restore to wait for. One that has failed keeps its result."""
    lost = failure or result.get("unreachable")
    return "wait" if host in turn["wait"] and not lost else "nothing"


def waits(hosts: Sequence[str], shared: Shares) -> Dict[str, Dict[str, Any]]:
    """For each host that does not start at once: the ``storage``, the ``number`` of its turn there, and the hosts ``behind`` which it waits."""
    found = {}
    earlier: Dict[str, List[str]] = {}
    for number, wave in enumerate(split([hosts], shared), 1):
        mine = [host for host in wave if host in shared]
        if number > 1:
            found.update({host: {"storage": shared[host][0], "number": number, "behind": list(earlier[shared[host][0]])} for host in mine})
        for host in mine:
            earlier.setdefault(shared[host][0], []).append(host)
    return found


def with_turns(verdicts: Mapping[str, Mapping[str, Any]], waited: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The verdicts of all hosts; of one that has waited and begun, with its ``turn``."""
    return {host: dict(one, turn=dict(waited[host])) if host in waited and one["verdict"] != NOT_RUN else dict(one) for host, one in verdicts.items()}


def sentence(turn: Mapping[str, Any], check_mode: bool) -> str:
    """The remark in the table."""
    return "%s for its turn at storage %s behind %s." % (
        "Would wait" if check_mode else "Waited", printable(turn["storage"], 100), _names(turn["behind"]))


def _names(hosts: Sequence[str]) -> str:
    more = len(hosts) - NAMED
    return ", ".join(map(printable, hosts[:NAMED])) + (" and %d more" % more if more > 0 else "")
