# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart: what the hosts have answered, and what is in the way of restarting one host."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence

from ansible.module_utils.common.text.formatters import bytes_to_human, human_to_bytes
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

Answers = Dict[str, Dict[str, Any]]


def identifier(answer: Mapping[str, Any]) -> str:
    """Of the cluster of this host, from its answer or else its record; empty if neither has it."""
    return str(answer.get("system_identifier") or _states.identifier(answer.get("kept") or {}))


def _same_cluster(found: Answers, host: str) -> Answers:
    """The answers of this host's cluster, and those of hosts that could belong to it."""
    mine = identifier(found[host])
    return {one: answer for one, answer in found.items() if not mine or identifier(answer) in ("", mine)}


def is_open(answer: Mapping[str, Any]) -> bool:
    return _states.open_ends(answer["kept"], answer.get("started"))


def half_done(answer: Mapping[str, Any], waived: bool) -> bool:
    """Whether something on the host cannot wait for its turn: it is down, its clients are paused, or its pending restore is waived."""
    kept = answer.get("kept") or {}
    down = "problem" in answer and _states.is_stopped(kept)
    return bool(kept) and bool(down or kept.get("paused") or (waived and "problem" not in answer))


def record_of(host: str, variables: Mapping[str, Mapping[str, Any]], fleet: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a host as this run has last written it, else as an earlier run of the same rolling restart has left it."""
    written = (variables[host].get("cache_restart_result") or {}).get("record")
    if written and written.get("rolling_restart") == fleet.get("rolling_restart", written.get("rolling_restart")):
        return dict(written)
    kept = ((fleet.get("answers") or {}).get(host) or {}).get("kept") or {}
    return kept if kept.get("rolling_restart", "") == fleet.get("rolling_restart", "-") else {}


def restarted(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The hosts that are restarted and warm, in this run or an earlier one of the same rolling restart; ``variables`` are Ansible's hostvars."""
    fleet = fleet_of(hosts, variables)
    return [host for host in hosts if host in fleet.get("done", ()) or record_of(host, variables, fleet).get("state") == "done"]


def left(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The hosts that this rolling restart has yet to restart, without a primary that is to be skipped; when it is aborted, those that are not put back."""
    there, fleet = restarted(hosts, variables), fleet_of(hosts, variables)
    if fleet.get("abort"):
        return [host for host in hosts if host not in there and (variables[host].get("pgfleet_failure") or _is_open_still(host, hosts, variables))]
    return [host for host in hosts if host not in there and host != fleet.get("skipped")]


def _is_open_still(host: str, hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether something is still begun on a host, by its record as this run has last written it, or else has read it."""
    found = fleet_of(hosts, variables).get("answers") or {}
    written = (variables[host].get("cache_restart_result") or {}).get("record")
    return host in found and is_open(dict(found[host], kept=written or found[host]["kept"]))


def fleet_of(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan."""
    return next((variables[host]["cache_restart_fleet"] for host in hosts if variables[host].get("cache_restart_fleet")), {})


def anybody_out(hosts: Sequence[str], found: Answers) -> bool:
    """Whether a rolling restart of these hosts has begun: one is out of traffic, and goes back before others are taken out."""
    return any(found.get(host, {}).get("kept", {}).get("out") for host in hosts)


def preview(host: str, variables: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The report of --check for a host."""
    answer = (plan.get("answers") or {}).get(host) or {}
    first = "PostgreSQL is stopped since an interrupted run and would be started first. " if answer.get("stopped") else ""
    return (first + _preview(host, variables, plan, answer)).strip()


def _preview(host: str, variables: Mapping[str, Any], plan: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    if host in plan.get("done", ()):
        return "Already restarted and warm: would not be restarted again."
    if host == plan.get("primary") and not plan.get("last"):
        return ""
    kept, started = answer.get("kept") or {}, answer.get("started")
    if started is not None:
        steps = _states.way(kept, started, str(plan.get("rolling_restart")), bool(plan.get("abort")))
        pending = printable((kept.get("pending") or {}).get("snapshot"), 100)
        if not steps["save"] and not steps["restart"]:
            return "Already restarted: would only be restored from %s." % pending if steps["restore"] else "Would be put back into traffic."
        if not steps["save"]:
            return "Not as warm as before: would be restarted and then restored from %s." % pending
    return printable(variables.get("cache_restart_saved") or "")


def roles_changed(found: Answers, host: str, primary: str) -> str:
    """Why this host is not restarted after all: the roles are not those of the plan, or a host does not answer.

    A third one that was promoted counts too: a primary that is restarted then comes back beside it.
    """
    asked = sorted({host, primary})
    for one in asked:
        if "problem" in found[one]:
            return "%s no longer answers: %s %s was not restarted." % (one, found[one]["problem"], host)
    primaries = sorted(one for one, answer in _same_cluster(found, host).items() if answer.get("in_recovery") is False)
    if primaries == [primary]:
        return ""
    return (
        "%s was the primary%s when this run began; now the primary is %s: the roles have changed. %s was not restarted. Run the playbook again when"
        " the roles are stable." % (
            primary, "" if host == primary else " and %s a standby" % host, " and ".join(primaries) or "none of them", host)
    )


def may_go_out(found: Answers, host: str, cluster: Mapping[str, Any], batch: Sequence[str], primary: str, min_standbys: Any, max_lag: Any) -> str:
    """Why this host is not taken out of traffic and restarted now; ``found`` are the answers of a moment ago, of all hosts.

    It serves who answers as a standby of this ``cluster``, is in traffic and as warm as it was, and follows the primary; of the host's own
    ``batch`` nobody does.
    """
    changed = roles_changed(found, host, primary) or commits_wait(found, cluster, batch, primary)
    wanted = int(min_standbys)
    if changed or not wanted:
        return changed
    there = _same_cluster(found, host)
    others = [one for one in cluster["hosts"] if one not in (primary, host) and (one in there or one not in found)]
    why = {one: _why_not(found.get(one) or {"problem": "it was not queried"}, found[primary], human_to_bytes(str(max_lag))) for one in others}
    serving = [one for one in others if not why[one] and one not in batch]
    every = len(others) + (host != primary)
    if len(serving) >= min(wanted, len(others)):
        return ""
    return (
        "%s was neither taken out of traffic nor restarted: %d of %d standbys would serve meanwhile, but cache_restart_min_standbys is %d. %s Or"
        " reduce that number.") % (
        host, len(serving), every, wanted,
        " ".join("%s %s." % (one, (why[one] or "restarts at the same time").rstrip(".")) for one in others if one not in serving))


def commits_wait(found: Answers, cluster: Mapping[str, Any], batch: Sequence[str], primary: str, planned: bool = False) -> str:
    """Why commits on the primary would hang while this batch restarts; empty if they would not, do so already, or may.

    When the batches are ``planned``, ``standbys`` of the cluster that are not connected yet count as if they were: before a restart that is seen.
    """
    synchronous = (found.get(primary) or {}).get("synchronous")
    if not synchronous or cluster.get("commits_may_wait"):
        return ""
    batch = [one for one in batch if restarts(found.get(one) or {}, cluster)]
    stay = list(synchronous["standbys"])
    if planned:
        names = Counter(str((found.get(one) or {}).get("application_name")) for one in cluster["standbys"])
        stay += (names - Counter(stay) - Counter(synchronous["others"])).elements()
    for one in batch:
        name = str((found.get(one) or {}).get("application_name"))
        if name in stay:
            stay.remove(name)
    needed = int(synchronous["needed"])
    if len(stay) >= needed or len(stay) == len(synchronous["standbys"]):
        return ""
    return (
        "While %s restart%s, all commits on %s would wait: synchronous_standby_names needs %d, and %d would be connected. Reduce cache_restart_serial,"
        " change synchronous_standby_names meanwhile, or let them wait with -e cache_restart_commits_may_wait=true." % (
            ", ".join(batch), "" if len(batch) > 1 else "s", primary, needed, len(stay)))


def restarts(answer: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether a host is restarted when its turn comes, and not only restored; ``cluster`` has the rolling restart."""
    return "started" not in answer or _states.way(answer["kept"], answer["started"], str(cluster.get("rolling_restart")), False)["restart"]


def _why_not(answer: Mapping[str, Any], primary: Mapping[str, Any], max_lag: int) -> str:
    """Why this standby cannot serve clients."""
    if "problem" in answer:
        return "does not answer: %s" % answer["problem"]
    if answer["kept"].get("out"):
        return "is out of traffic"
    if _states.is_pending(answer["kept"], answer["started"]):
        return "is not as warm as it was before its restart"
    if answer["paused"]:
        return "has replay paused: run SELECT pg_wal_replay_resume()"
    if answer["delay"]:
        return "replays WAL %s late by design (recovery_min_apply_delay)" % printable(answer["delay"], 30)
    if answer["receiver"] not in ("streaming", "archive"):
        return "receives no WAL"
    if primary["lsn"] - answer["lsn"] > max_lag:
        return "is %s behind, more than cache_restart_max_lag (%s)" % (bytes_to_human(primary["lsn"] - answer["lsn"]), bytes_to_human(max_lag))
    return ""


def may_go_in(found: Answers, host: str, primary: str, record: Mapping[str, Any]) -> str:
    """Why this host is not put into traffic after all; ``found`` are the answers of a moment ago."""
    changed = roles_changed(found, host, primary)
    if changed:
        stays = "%s stays out of traffic." % host if host != primary or record.get("out") else "It was restarted."
        return changed.replace("%s was not restarted." % host, stays)
    if _states.is_pending(record, found[host]["started"]) and record.get("after") != found[host]["started"]:
        return "%s was restarted again during its restore: it is cold, and stays out of traffic. Run the playbook again." % host
    if found[host]["paused"]:
        return "%s has replay paused and stays out of traffic. Run SELECT pg_wal_replay_resume()." % host
    return ""


def may_start(found: Answers, host: str) -> str:
    """Why a server that was stopped for its restart is not started again; it is down, so only its record is known."""
    if (found[host]["kept"].get("server") or {}).get("standby"):
        return ""
    there = _same_cluster(found, host)
    primaries = sorted(one for one, answer in there.items() if one != host and answer.get("in_recovery") is False)
    if primaries:
        return (
            "%s was the primary when it was stopped, but now %s is: it was not started, because there would be two primaries. Make it a standby"
            " (pg_rewind), and"
            " run the playbook again." % (host, " and ".join(primaries)))
    # one whose record alone cannot be read says what it is
    others = sorted(one for one, answer in there.items() if one != host and "problem" in answer and "in_recovery" not in answer and not _was_standby(answer))
    if others:
        return (
            "%s was the primary when it was stopped, but %s may have been promoted and does not answer: it was not started, because there could be"
            " two primaries. Start the one that was promoted last, or remove %s from target, and run the playbook again." % (
                host, " or ".join(others), " and ".join(others)))
    return ""


def _was_standby(answer: Mapping[str, Any]) -> bool:
    """Whether a server that does not answer is a standby that a rolling restart has stopped, and that was not started since."""
    return _states.is_stopped(answer["kept"]) and bool((answer["kept"].get("server") or {}).get("standby"))
