# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clusters of one rolling restart: told apart by their system identifiers, a plan for each, and the order of all batches."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Mapping, Sequence

from ansible.module_utils.common.validation import check_type_bool
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _roll, _storage
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import checked

# Variables that each cluster has for itself, from its first host in this run; their names begin with cache_restart_
_OF_A_CLUSTER = ("primary", "candidate", "switchover_tasks", "serial", "min_standbys", "max_age")
_OF_ALL = ("side_by_side", "abort", "resume")


def plan(
    hosts: Sequence[str], found: _roll.Answers, limited: Sequence[str], now: float, check: Mapping[str, Any], waive: Sequence[str] = ()
) -> Dict[str, Any]:
    """The plan of every cluster of ``hosts``, and in ``steps`` who is restarted at the same time. ``problem`` is what is wrong with any of them.

    ``limited`` are the hosts of this run, and ``check`` has their variables. A cluster with no host in this run has a plan without a problem:
    nothing of it is changed.
    """
    side_by_side, abort, resume = (check_type_bool(checked(check, limited[0], "cache_restart_" + name)) for name in _OF_ALL)
    shared = _storage.shares(limited, check)
    clusters = []
    for members in apart(hosts, found):
        mine = [host for host in members if host in limited]
        options = {name: checked(check, (mine or limited)[0], "cache_restart_" + name) for name in _OF_A_CLUSTER}
        what = {host: str(checked(check, host, "cache_restart_what")) for host in mine}
        one = _roll.plan(members, found, limited, now, what=what, abort=abort, resume=resume, storage=shared, **options)
        clusters.append(dict(one, name=one["primary"] or members[0], problem=one["problem"] if mine else "", in_run=bool(mine)))
    steps = _storage.split(_steps(clusters, side_by_side), shared)  # also side by side
    problem = (
        _unread(hosts, found) or _waived(hosts, waive) or _disagreement(check, limited, _OF_ALL)
        or next(filter(None, (_disagreement(check, [host for host in one["hosts"] if host in limited], _OF_A_CLUSTER) for one in clusters)), "")
        or " ".join(_problem(one, len(clusters) > 1) for one in clusters if one["problem"])
    )
    return {
        "hosts": list(hosts), "clusters": clusters, "steps": steps, "side_by_side": side_by_side, "done": [host for one in clusters for host in one["done"]],
        "problem": problem, "abort": abort,
    }


def apart(hosts: Sequence[str], found: _roll.Answers) -> List[List[str]]:
    """The hosts of each cluster, in the order of ``hosts``.

    A host that does not answer belongs to the cluster of its record. Without a record it could belong to any, so it counts for each.
    """
    identifiers = {host: _roll.identifier(found.get(host, {})) for host in hosts}
    known = list(dict.fromkeys(filter(None, identifiers.values())))
    return [[host for host in hosts if identifiers[host] in ("", one)] for one in known] or [list(hosts)]


def what(kept: Mapping[str, Any], host: str, check: Mapping[str, Any]) -> str:
    """What of this host is restarted, as its record is to have it: beyond --limit, where nothing is, what it has in it already."""
    return str(checked(check, host, "cache_restart_what") if host in check["given"] else kept.get("what") or "postgresql")


def cluster(fleet: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """The plan of this host's cluster; empty without a plan."""
    return next((one for one in fleet.get("clusters", ()) if host in one["hosts"]), {})


def concerned(hosts: Sequence[str], fleet: Mapping[str, Any]) -> List[str]:
    """Those of ``hosts`` whose cluster has a host in this run: the records of others tell of rolls of their own."""
    return [host for host in hosts if cluster(fleet, host).get("in_run", True)]


def _steps(clusters: Sequence[Mapping[str, Any]], side_by_side: bool) -> List[List[str]]:
    """The batches of all clusters: of one cluster after the other, or the first batches of all, then the second ones.

    A primary always has a step for itself: its clients wait, and would wait for the slowest host of the step.
    """
    primaries = [[[one["last"]]] if one["last"] else [] for one in clusters]
    if not side_by_side:
        return [list(batch) for one, last in zip(clusters, primaries) for batch in [*one["batches"], *last]]
    batches = itertools.zip_longest(*(one["batches"] for one in clusters), fillvalue=())
    return [[host for batch in step for host in batch] for step in batches] + [batch for last in primaries for batch in last]


def _problem(one: Mapping[str, Any], several: bool) -> str:
    return ("Cluster %s (%s): %s" % (one["name"], ", ".join(one["hosts"]), one["problem"])) if several else str(one["problem"])


def _unread(hosts: Sequence[str], found: _roll.Answers) -> str:
    """A record that cannot be read would be written over, also beyond --limit."""
    return next(("%s: %s" % (host, found[host]["problem"]) for host in hosts if host in found and found[host].get("unread")), "")


def _disagreement(check: Mapping[str, Any], hosts: Sequence[str], names: Sequence[str]) -> str:
    """Of hosts that are planned together, the plan would have the value of one, and what is done with the others their own."""
    for name in names:
        values: Dict[str, str] = {}
        for host in hosts:
            value = checked(check, host, "cache_restart_" + name)
            values.setdefault(str(check_type_bool(value) if name in _OF_ALL else value), host)
        if len(values) > 1:
            (one, there), (other, elsewhere) = sorted(values.items(), key=lambda item: hosts.index(item[1]))[:2]
            return "cache_restart_%s is '%s' on %s, but '%s' on %s: set the same for all hosts %s." % (
                name, printable(one, 60), there, printable(other, 60), elsewhere,
                "of this run, such as with -e" if name in _OF_ALL else "of this cluster")
    return ""


def _waived(hosts: Sequence[str], waive: Sequence[str]) -> str:
    strange = sorted(set(waive) - set(hosts))
    return "pgfleet_waive names hosts that are not in target: %s." % printable(", ".join(strange), 200) if strange else ""
