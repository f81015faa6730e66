# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restart PostgreSQL through Patroni, and what stands in the way of that. Of Patroni 3.0.2 and later.

The codes and texts are those of patroni/api.py: four different answers are 503, and only their text tells them apart.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _patroni_node
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_node import Node
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

_PRIMARY = ("master", "primary")  # before 4.0, and since
_REACHED = 60  # seconds since Patroni has last reached its configuration store
_STOP = 600  # seconds: how long the stop of a restart may take, for which Patroni has no limit of its own

Answer = Dict[str, Any]


def empty_result() -> Answer:
    """The keys of every result, also of one that fails."""
    return {"changed": False, "member": None, "role": None, "url": None, "version": None, "unit": None, "refused": False}


def manage(
    data_directory: str, state: str, role: Optional[str], candidate: str, reboots: bool, timeout: int, check_mode: bool
) -> Answer:
    """The whole of the module patroni. ``role`` is the one that PostgreSQL reports, if that is known, ``timeout`` in seconds."""
    node = _patroni_node.of(data_directory)
    status, cluster = node.read("/patroni"), node.read("/cluster")
    result = dict(
        empty_result(), member=node.name, role="primary" if status.get("role") in _PRIMARY else "replica", url=node.url,
        version=str((status.get("patroni") or {}).get("version") or ""), unit=_patroni_node.unit(node))
    role = role or result["role"]
    why = obstacle(node.name, status, cluster, role, reboots)
    if candidate or state == "switched_over":
        why = why or (cannot_lead if state == "switched_over" else never_leads)(candidate, cluster)
    if why:
        raise ResidencyError("%s Nothing was restarted." % why, dict(result, refused=True))
    if state == "checked":
        _check_access(node)
        return result
    if state == "restarted" and not check_mode:
        _restart(node, str(status["role"]), timeout, result)
    elif not check_mode:
        _switch_over(node, candidate, result)
    return dict(result, changed=True)


def obstacle(name: str, status: Answer, cluster: Answer, role: str, reboots: bool) -> str:
    """Why PostgreSQL of this member cannot be restarted now; empty if it can. ``status`` is GET /patroni, ``cluster`` GET /cluster."""
    members: List[Mapping[str, Any]] = cluster.get("members") or []
    own = next((one for one in members if one.get("name") == name), {})
    leader = next((one for one in members if one.get("role") in _patroni_node.LEADERS), {})
    state = printable(status.get("state"), 40)
    if status.get("pause") or cluster.get("pause"):
        return "The cluster of %s is paused: somebody works on it. Run patronictl resume when that is done." % name
    if not own:
        return "%s is not yet a member of its cluster: see patronictl list." % name
    if not leader or status.get("cluster_unlocked"):
        return "The cluster of %s has no leader: see patronictl list and the log of Patroni." % name
    if time.time() - float(status.get("dcs_last_seen") or time.time()) > _REACHED:
        return "Patroni of %s has not reached its configuration store for more than %d s: repair that first." % (name, _REACHED)
    if leader.get("role") == "standby_leader":
        return "%s belongs to a standby cluster, of which there is no primary to compare with: restart it with patronictl restart." % name
    if cluster.get("scheduled_switchover"):
        return "A switchover is scheduled in the cluster of %s (%s): wait for it, or take it back with patronictl flush CLUSTER switchover." % (
            name, printable((cluster["scheduled_switchover"] or {}).get("at"), 40))
    if status.get("scheduled_restart") or own.get("scheduled_restart"):
        return "A restart of %s is scheduled: wait for it, or take it back with patronictl flush CLUSTER restart." % name
    if state != "running":
        return "PostgreSQL of %s is '%s' for Patroni: wait, or repair the member, with patronictl reinit if it can no longer follow." % (name, state)
    if (status.get("role") in _PRIMARY) != (role == "primary"):
        return "%s is '%s' for Patroni and a %s for PostgreSQL: a failover has begun. Wait for its end, and run the playbook again." % (
            name, printable(status.get("role"), 40), role)
    if reboots and role == "primary":
        return "%s leads its cluster, and Patroni would fail over when its host stops: switch over first, or leave it out with cache_restart_primary." % name
    return ""


def never_leads(candidate: str, cluster: Answer) -> str:
    """Why Patroni would not promote this member, whatever its state; empty if it would."""
    tags = [one.get("tags") or {} for one in cluster.get("members") or [] if one.get("name") == candidate]
    if any(one.get("nofailover") for one in tags):
        return "The candidate %s has the tag nofailover: remove it, or set another cache_restart_candidate." % candidate
    return ""


def cannot_lead(candidate: str, cluster: Answer) -> str:
    """Why Patroni would not promote this member now; empty if it would. Without a name, it would promote whom it likes."""
    if not candidate:
        return (
            "The candidate streams no WAL from the primary now, so that its name in Patroni is unknown: see patronictl list, and run the playbook again,"
            " or set another cache_restart_candidate.")
    members: List[Mapping[str, Any]] = cluster.get("members") or []
    found = next((one for one in members if one.get("name") == candidate), {})
    synchronous = [str(one.get("name")) for one in members if one.get("role") == "sync_standby"]
    state = printable(found.get("state"), 40)
    if found.get("state") not in _patroni_node.RUNNING:
        return "The candidate %s is '%s' for Patroni: see patronictl list." % (candidate, state if found else "no member")
    if synchronous and candidate not in synchronous:
        return "The cluster is synchronous, and only %s may take over: set cache_restart_candidate to that host." % printable(", ".join(synchronous), 200)
    return never_leads(candidate, cluster)


def _switch_over(node: Node, candidate: str, result: Answer) -> None:
    status, text = node.ask("POST", "/switchover", {"leader": node.name, "candidate": candidate}, _STOP)
    _raise(not_switched_over(node.name, candidate, status, text), dict(result, refused=is_refused(status, text)))


def not_switched_over(name: str, candidate: str, status: int, text: str) -> str:
    """Why a switchover was not done, by the answer to it; empty if it was."""
    said = printable(text.strip(), 200)
    if status == 200 and "instead of" in text:
        return "Patroni promoted another standby than %s (%s), and %s is its standby: run the playbook again." % (candidate, said, name)
    if status == 200:
        return ""
    if status == 503 and "unknown" in text:
        return "Patroni does not know whether it has switched over to %s (%s): see patronictl list, and run the playbook again." % (candidate, said)
    return "Patroni did not switch over from %s to %s (%d, %s): see its log, and run the playbook again." % (name, candidate, status, said)


def is_refused(status: int, text: str) -> bool:
    """Whether Patroni does nothing after this answer to a switchover or a restart, now or later."""
    return status in (400, 409, 412) or (status == 503 and ("Switchover failed" in text or "conditions are not satisfied" in text))


def _check_access(node: Node) -> None:
    """Whether this user may restart: asked with a request that no member can fulfil."""
    node.ask("POST", "/restart", {"role": "none"})


def _restart(node: Node, role: str, timeout: int, result: Answer) -> None:
    # With the role, as Patroni itself has just called it: after a failover meanwhile it is refused. 3.0.2 takes `primary` for another one than `master`.
    # A timeout would replace the primary_start_timeout of the cluster, after which a leader is demoted: only a standby gets one.
    body = {"role": role} if role in _PRIMARY else {"role": role, "timeout": timeout}
    status, text = node.ask("POST", "/restart", body, timeout + _STOP)
    if "restart failed" in text and node.read("/patroni").get("state") == "starting":
        return  # it failed to start in time, and goes on (Postgresql.start())
    _raise(not_restarted(node.name, role, status, text), dict(result, refused=is_refused(status, text)))


def _raise(why: str, result: Answer) -> None:
    if why:
        raise ResidencyError(why, result)


def not_restarted(name: str, role: str, status: int, text: str) -> str:
    """Why a restart was not done, by the answer to it; empty if it was, or goes on: the caller waits for the new process in any case."""
    said = printable(text.strip(), 200)
    if status == 200 or "still starting" in text:
        return ""
    if "conditions are not satisfied" in text:
        return "%s is no longer a %s: a failover came in between, and Patroni restarted nothing. Run the playbook again." % (name, role)
    if "already in progress" in text:
        return "Patroni of %s restarts or reinitializes PostgreSQL already (%s): wait for its end, and run the playbook again." % (name, said)
    if status == 503:
        return "PostgreSQL of %s does not start (%s): see its log and that of Patroni." % (name, said)
    if status == 409:
        return "A restart of %s was scheduled meanwhile (%s): take it back with patronictl flush CLUSTER restart." % (name, said)
    return "Patroni of %s answers the restart with %d (%s): see its log." % (name, status, said)
