# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart: what the hosts have answered, the plan for one cluster, and what is in the way of restarting one host."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.text.formatters import bytes_to_human, human_to_bytes
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _states, _storage
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import as_list
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import reason

Answers = Dict[str, Dict[str, Any]]

REPLACED = {
    "cache_warmup_snapshot": "the snapshot to restore is the one taken before the restart (cache_restart_snapshot).",
    "cache_warmup_min_residency": "the gate is cache_restart_min_residency.",
    "cache_warmup_max_age": "the snapshot is new.",
}
# Of the answer to __cache_restart_query: started in microseconds since 1970, lsn in bytes
_ANSWER: Dict[str, Tuple[type, ...]] = {
    "in_recovery": (bool,), "system_identifier": (str,), "version_num": (int,), "cluster_name": (str,), "data_directory": (str,), "started": (int,),
    "pid": (int,), "extension": (str, type(None)), "schema": (str, type(None)), "lsn": (int,), "paused": (bool,), "receiver": (str,),
}
CLOCKS = 600  # seconds by which those of two controllers may differ


def answers(servers: Mapping[str, Any], records: Mapping[str, Any], asked: Sequence[str], waived: Sequence[str] = (), by: str = "") -> Answers:
    """Of each host that two tasks have asked in a loop: the server's row or a ``problem``; its record, ``kept``, and ``lease``, also without a server.

    Which host a result is of is known by its place: from ansible-core 2.21 a host can return another item of the loop. Of hosts that are
    ``waived`` nothing is owed any more.
    """
    return {
        host: _answer(host, server, record, by if host in waived else "")
        for host, server, record in zip(asked, servers["results"], records["results"])
    }


def _answer(host: str, server: Mapping[str, Any], record: Mapping[str, Any], waived_by: str) -> Dict[str, Any]:
    for one in (server, record):
        if one.get("unreachable"):
            return {"problem": "unreachable: %s" % reason(one), "kept": {}, "lease": None}
    said, kept = _kept(record)
    debt = kept.get("debt") or {}
    if debt and waived_by:
        kept = _states.note(kept, "waived", {"by": waived_by})
    found: Dict[str, Any] = {"kept": kept, "lease": record["lease"] if isinstance(record.get("lease"), dict) else None}
    if not server.get("query_result"):
        return dict(found, problem=said or reason(server), unread=bool(said))
    row = server["query_result"][0] if isinstance(server["query_result"], list) else None
    if not isinstance(row, dict) or not row.get("system_identifier") or not all(
            isinstance(row.get(name), kinds) and (kinds != (int,) or _states.is_bounded(row[name])) for name, kinds in _ANSWER.items()):
        return dict(found, problem=said or "The server returned an invalid answer: %s" % printable(server["query_result"], 300))
    # a primary whose record is damaged is a primary all the same, of the same cluster
    found.update(in_recovery=row["in_recovery"], system_identifier=row["system_identifier"])
    if said:
        return dict(found, problem=said, unread=True)
    if kept.get("debt") and debt["system_identifier"] != row["system_identifier"]:
        return dict(found, problem=(
            "The pending restore belongs to another cluster (system identifier %s; this one is %s). If that cluster is gone, waive it with"
            " -e pgfleet_waive=%s." % (printable(debt["system_identifier"], 30), printable(row["system_identifier"], 30), host)))
    return dict(found, **{name: row[name] for name in _ANSWER})


def _kept(result: Mapping[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """Why the record cannot be used, and the record."""
    if result.get("failed"):
        return reason(result), {}
    if result.get("fault"):
        text = printable(result["fault"], 300)
        if "directory" in text.rpartition(": ")[2]:
            return "%s: check that pgfleet_state_directory is a directory." % text, {}
        return "%s: check when the host was restarted and what is in traffic, then remove the file." % text, {}
    record = result.get("record")
    if record is None:
        return "", {}
    wrong = _states.fault(record)
    if wrong:
        return "The record of the host in pgfleet_state_directory is damaged (%s): check when the host was restarted, then remove the file." % wrong, {}
    return "", _states.known(record)


def changed_meanwhile(
    leases: Sequence[Mapping[str, Any]], hosts: Sequence[str], found: Answers, waived: Sequence[str], by: str
) -> str:
    """Why this run does not start: the record of a leased host has changed since this run read it."""
    for host, one in zip(hosts, leases):
        said, kept = _kept(one) if "record" in one else ("", found[host]["kept"])
        if host in waived and kept.get("debt"):
            kept = _states.note(kept, "waived", {"by": by})
        if not said and kept != found[host]["kept"]:
            return "Another run has changed the state of %s in the meantime. Run the playbook again." % host
    return ""


def gathered(found: Mapping[str, Any], hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> Answers:
    """The newest answer of each host: for hosts of this run, that of their own fact; ``variables`` are Ansible's hostvars."""
    own = {host: variables[host].get("cache_restart_answers") or {} for host in hosts}
    return dict(found, **{host: answer[host] for host, answer in own.items() if host in answer})


class Options(NamedTuple):
    """Variables of the role, whose names begin with cache_restart_."""

    what: Mapping[str, str]  # of each host of this run
    primary: str
    candidate: str
    switchover_tasks: str
    serial: Any
    min_standbys: Any
    resume: bool
    max_age: Any
    abort: bool = False
    storage: Mapping[str, Sequence[Any]] = {}  # of _storage.shares


def plan(hosts: Sequence[str], found: Answers, limited: Sequence[str], now: float, **options: Any) -> Dict[str, Any]:
    """The order of restarts in one cluster, ``hosts``; ``problem`` is why it cannot be restarted. ``limited`` are the hosts of this run."""
    chosen = Options(**options)
    known = {host: found[host] for host in hosts if host in found and "problem" not in found[host]}
    primaries = sorted(host for host, one in known.items() if not one["in_recovery"])
    standbys = [host for host in known if known[host]["in_recovery"]]
    primary = primaries[0] if primaries else ""
    records = [found[host]["kept"] for host in hosts if host in found]  # also of those whose server is down
    begun = _begun(records, now - int(chosen.max_age), now + CLOCKS) if chosen.resume or chosen.abort else ""
    mine = {host: one["kept"] for host, one in known.items() if begun and one["kept"].get("roll") == begun}
    done = sorted(host for host, kept in mine.items() if kept.get("state") == "done" and not _open(known[host]))
    if chosen.abort:
        done = [host for host in known if not _open(known[host]) and not known[host]["kept"].get("debt")]
    left = [host for host in standbys if host in limited and host not in done]
    batches = _batches(sorted(left, key=lambda host: not _open(known[host])), as_list(chosen.serial))
    batches = _storage.split(batches, chosen.storage)
    last = primary if primary in limited and primary not in done and (chosen.primary != "skip" or chosen.abort) else ""
    silent = {host: str(found[host]["problem"]) for host in hosts if host in found and host not in known}
    away = [host for host in standbys if host not in limited and _open(known[host])]
    problem = _cold_tests(known, limited) or _one_primary(list(known), primaries, silent)
    if not problem and not chosen.abort:
        problem = _who_serves(primary, standbys, batches, last, away, silent, chosen) or _other_way(mine, chosen) or _who_takes_over(standbys, chosen)
    return {
        "hosts": list(hosts), "primary": primary, "standbys": standbys, "roll": begun or str(int(now)), "resumed": bool(begun),
        "done": done, "batches": batches, "last": last, "problem": problem, "abort": chosen.abort,
    }


def identifier(answer: Mapping[str, Any]) -> str:
    """Of the cluster of this host, from its answer or else its record; empty if neither has it."""
    return str(answer.get("system_identifier") or _states.identifier(answer.get("kept") or {}))


def _same_cluster(found: Answers, host: str) -> Answers:
    """The answers of this host's cluster, and those of hosts that could belong to it."""
    mine = identifier(found[host])
    return {one: answer for one, answer in found.items() if not mine or identifier(answer) in ("", mine)}


def _open(answer: Mapping[str, Any]) -> bool:
    return _states.open_ends(answer["kept"], answer.get("started"))


def half_done(answer: Mapping[str, Any], waive: Sequence[str], host: str) -> bool:
    """Whether something on the host cannot wait for its turn: it is down, its clients are paused, or its pending restore is waived."""
    kept = answer.get("kept") or {}
    down = "problem" in answer and _states.is_stopped(kept)
    return bool(kept) and bool(down or kept.get("paused") or (host in waive and "problem" not in answer))


def _cold_tests(known: Answers, limited: Sequence[str]) -> str:
    """Only the cold test can restore what it has evicted; a rolling restart would save what is left of the caches."""
    for host, one in known.items():
        debt = one["kept"].get("debt") or {}
        if debt.get("for") == _states.COLD_TEST and host in limited:
            return (
                "A cold test of %s was not finished; %s has what its caches held before. Run pgfleet.cache.cold_test again, which restores that"
                " first, or waive it with -e pgfleet_waive=%s." % (host, printable(debt["snapshot"], 80), host)
            )
    return ""


def _begun(kept: Sequence[Mapping[str, Any]], since: float, until: float) -> str:
    """The roll that most hosts have, the newest of these, if it is neither finished nor too old, nor of the future; its name is when it began.

    It is written, and closed, on all hosts alike: what a single one of them says of it decides nothing.
    """
    rolls = Counter(str(one["roll"]) for one in kept if re.fullmatch("[0-9]{1,12}", str(one.get("roll"))) and since <= int(one["roll"]) <= until)
    found = max(rolls, key=lambda one: (rolls[one], int(one)), default="")
    finished = sum(1 for one in kept if found and one.get("roll") == found and one.get("finished"))
    return "" if 2 * finished >= rolls[found] else found


def closed(host: str, variables: Mapping[str, Mapping[str, Any]], found: Answers, roll: str) -> Mapping[str, Any]:
    """The record of a host of a roll in which all are done; ``variables`` are Ansible's hostvars."""
    result = variables[host].get("cache_restart_result")
    if not isinstance(result, Mapping) or result.get("roll") != roll:
        kept = found[host]["kept"] if host in found else {}
        result = _states.note(kept, "begin", {"roll": roll, "what": str(kept.get("what") or "postgresql")})
    return _states.note(result, "finished")


def _batches(hosts: Sequence[str], sizes: Sequence[Any]) -> List[List[str]]:
    batches: List[List[str]] = []
    left = list(hosts)
    while left:
        size = str(sizes[min(len(batches), len(sizes) - 1)])
        count = max(1, int(size[:-1]) * len(hosts) // 100 if size.endswith("%") else int(size))
        batches.append(left[:count])
        left = left[count:]
    return batches


def _one_primary(hosts: Sequence[str], primaries: Sequence[str], silent: Mapping[str, str]) -> str:
    if not primaries and silent:
        return "No primary found among %s. %s" % (", ".join(hosts) or "the hosts that answer", " ".join(map(_no_answer, silent, silent.values())))
    if not primaries:
        return "No primary found among %s: name the whole fleet with target, and select hosts with --limit." % ", ".join(hosts)
    if len(primaries) > 1:
        return (
            "%s are primaries of the same cluster: a standby was promoted. Find out which one the clients use, and make the other its standby again"
            " (pg_rewind)." % " and ".join(primaries)
        )
    return ""


def _no_answer(host: str, problem: str) -> str:
    return "%s does not answer: %s." % (host, problem.rstrip("."))


def _who_serves(
    primary: str, standbys: Sequence[str], batches: Sequence[Sequence[str]], last: str, away: Sequence[str], silent: Mapping[str, str], chosen: Options
) -> str:
    """``away`` are beyond --limit, and out of traffic since an earlier run; hosts that are ``silent`` are taken for standbys that are down."""
    wanted = int(chosen.min_standbys)
    if not standbys and wanted:
        return " ".join([
            "%s has no standby, so no host would serve while it restarts. Add the standbys to target, or set cache_restart_min_standbys to 0."
            % primary, *map(_no_answer, silent, silent.values())
        ])
    largest = max(batches, key=len, default=[])
    there = len(standbys) - len(away)  # what is out and in this run comes back before others go
    every = len(standbys) + len(silent)
    short = largest and there - len(largest) < min(wanted, every - 1)
    if short and not away and not silent:
        stay = there - len(largest)
        return (
            "A batch of %s would take %s standbys out of traffic: %d of %d would stay, but cache_restart_min_standbys is %d. Reduce"
            " cache_restart_serial." % (", ".join(largest), "too many" if stay else "all", stay, every, wanted)
        )
    if short or (last and there < min(wanted, every)):
        stay = there - len(largest) if short else there
        because = ["%s has been out of traffic, or not as warm as before, since an earlier run: include it in --limit." % host for host in away]
        because += map(_no_answer, silent, silent.values())
        return (
            "While %s restarts, %d of %d standbys would serve, but cache_restart_min_standbys is %d. %s Or reduce that number."
            % (", ".join(largest) if short else last, max(0, stay), every, wanted, " ".join(because))
        )
    return ""


def _other_way(mine: Mapping[str, Mapping[str, Any]], chosen: Options) -> str:
    """Half a fleet rebooted and the other half restarted is no rolling restart that is finished."""
    other = sorted(
        host for host, kept in mine.items()
        if host in chosen.what and kept.get("state", "planned") != "planned" and kept.get("what", chosen.what[host]) != chosen.what[host]
    )
    if not other:
        return ""
    begun = printable(mine[other[0]]["what"], 20)
    return (
        "The unfinished rolling restart has cache_restart_what=%s (on %s), but this run has %s. Finish it with -e cache_restart_what=%s, or start a"
        " new one with -e cache_restart_resume=false." % (begun, ", ".join(other), chosen.what[other[0]], begun)
    )


def _who_takes_over(standbys: Sequence[str], chosen: Options) -> str:
    if chosen.primary != "switchover":
        return ""
    if chosen.candidate and chosen.candidate not in standbys:
        return "cache_restart_candidate is %s, which is not a standby; there %s %s." % (
            chosen.candidate, "is" if len(standbys) == 1 else "are", ", ".join(standbys))
    if not chosen.switchover_tasks:
        return (
            "cache_restart_primary is switchover: set cache_restart_switchover_tasks to the task file that makes cache_restart_candidate the primary."
        )
    if not os.path.isfile(chosen.switchover_tasks):
        return "Task file %s does not exist on the controller: correct cache_restart_switchover_tasks." % chosen.switchover_tasks
    return ""


def restarted(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The hosts that are restarted and warm, in this run or an earlier one of the same roll; ``variables`` are Ansible's hostvars."""
    found = []
    fleet = fleet_of(hosts, variables)
    for host in hosts:
        result = variables[host].get("cache_restart_result")
        if host in fleet.get("done", ()) or (isinstance(result, Mapping) and result.get("state") == "done"):
            found.append(host)
    return found


def left(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The hosts that this roll has yet to restart; a primary that is to be skipped is none."""
    there = restarted(hosts, variables)
    fleet = fleet_of(hosts, variables)
    primaries = [one["primary"] for one in fleet.get("clusters", ())]
    if fleet.get("abort"):
        return [host for host in hosts if host not in there and (variables[host].get("pgfleet_failure") or _begun_beyond_limit(host, hosts, variables))]
    return [
        host for host in hosts
        if host not in there and not (host in primaries and variables[host].get("cache_restart_primary") == "skip")
    ]


def _begun_beyond_limit(host: str, hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether something is begun on a host that this run has not reached; every host of the run has its answer."""
    found: Answers = next((variables[one]["cache_restart_answers"] for one in hosts if variables[one].get("cache_restart_answers")), {})
    return host in found and not variables[host].get("cache_restart_result") and _open(found[host])


def fleet_of(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plans of all clusters; a host beyond --limit does not know them."""
    return next((variables[host]["cache_restart_fleet"] for host in hosts if variables[host].get("cache_restart_fleet")), {})


def anybody_out(hosts: Sequence[str], found: Answers) -> bool:
    """Whether a rolling restart of these hosts has begun: one is out of traffic, and goes back before others are taken out."""
    return any(found.get(host, {}).get("kept", {}).get("out") for host in hosts)


def in_the_way(
    host: str, me: Mapping[str, Any], info: Mapping[str, Any], server: Mapping[str, Any], room: Sequence[str],
    min_residency: Any, min_free: Any, replaced: Mapping[str, Any],
) -> str:
    """Why this host itself cannot be restarted; empty if it can.

    ``replaced`` are the variables that the role sets to others, and in a test to nothing: extra variables go before them.
    """
    for name, other in REPLACED.items():
        if replaced[name] != "":
            return "%s is given with -e and would override what the rolling restart sets. Remove it: %s" % (name, other)
    if server.get("job") is not None and not (me.get("kept") or {}).get("debt"):  # of an earlier run of this roll it may be the restore
        return "Restore job %d is running on %s: wait until it ends, or stop it with SELECT residency_cancel(%d)." % (
            server["job"], host, server["job"])
    memory = server["bytes"]
    total = info["total"]
    resident = (total["in_page_cache"] + total["in_shared_buffers"] - total["in_both"]) * 8192
    if resident * float(min_residency) / 100 > memory:
        return (
            "%s are resident, but there is memory for only %s of page cache: cache_restart_min_residency (%s %%) cannot be reached after a restart."
            " Give %s more memory, or lower it." % (bytes_to_human(resident), bytes_to_human(memory), min_residency, host)
        )
    free = min(map(int, room), default=0)
    if free < human_to_bytes(min_free):
        return (
            "The file system of %s or its pg_wal has %s free, less than cache_restart_min_free (%s). Free some space for the snapshot and for the WAL"
            " that is kept while a standby restarts." % (printable(me["data_directory"], 300), bytes_to_human(free), min_free)
        )
    return ""


def preview(host: str, variables: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """The report of --check for a host; ``cluster`` is the plan of its cluster."""
    if host in cluster.get("done", ()):
        return "Already restarted and warm: would not be restarted again."
    if host == cluster.get("primary") and not cluster.get("last"):
        return ""
    answer = variables.get("cache_restart_answers")
    answer = answer.get(host) or {} if isinstance(answer, Mapping) else {}
    kept, started = answer.get("kept") or {}, answer.get("started")
    if started is not None:
        plan_of = _states.way(kept, started, str(cluster.get("roll")), bool(cluster.get("abort")))
        debt = printable((kept.get("debt") or {}).get("snapshot"), 100)
        if not plan_of["save"] and not plan_of["restart"]:
            return "Already restarted: would only be restored from %s." % debt if plan_of["restore"] else "Would be put back into traffic."
        if not plan_of["save"]:
            return "Not as warm as before: would be restarted and then restored from %s." % debt
    saved = variables.get("__cache_restart_saved")
    return printable(saved.get("msg") or "") if isinstance(saved, Mapping) else ""


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
    changed = roles_changed(found, host, primary)
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


def _why_not(answer: Mapping[str, Any], primary: Mapping[str, Any], max_lag: int) -> str:
    """Why this standby cannot serve clients."""
    if "problem" in answer:
        return "does not answer: %s" % answer["problem"]
    if answer["kept"].get("out"):
        return "is out of traffic"
    if _states.owes(answer["kept"], answer["started"]):
        return "is not as warm as it was before its restart"
    if answer["paused"]:
        return "has replay paused: run SELECT pg_wal_replay_resume()"
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
    if _states.owes(record, found[host]["started"]) and record.get("after") != found[host]["started"]:
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
    others = sorted(one for one, answer in there.items() if one != host and "problem" in answer and not _was_standby(answer))
    if others:
        return (
            "%s was the primary when it was stopped, but %s may have been promoted and does not answer: it was not started, because there could be"
            " two primaries. Start the one that was promoted last, or remove %s from target, and run the playbook again." % (
                host, " or ".join(others), " and ".join(others)))
    return ""


def _was_standby(answer: Mapping[str, Any]) -> bool:
    """Whether a server that does not answer is a standby that a rolling restart has stopped, and that was not started since."""
    return _states.is_stopped(answer["kept"]) and bool((answer["kept"].get("server") or {}).get("standby"))


def written(result: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """The record as the host has it now."""
    if result.get("unreachable"):
        raise AnsibleFilterError("%s is unreachable: %s" % (host, printable(result.get("msg") or "", 300)))
    if result.get("failed"):
        raise AnsibleFilterError(printable(result.get("msg"), 500))
    record: Mapping[str, Any] = result["record"]
    return record


def behind(asked: Mapping[str, Any], replay: Mapping[str, Any], host: str, primary: str, seconds: Any) -> str:
    """Why a standby has not replayed what the primary had written; empty if it has.

    ``asked`` is the result of the task that asked the primary for its position, ``replay`` that of the standby's.
    """
    if asked.get("rowcount", 0) != 1:
        return "%s %s: %s" % (
            primary, "is unreachable" if asked.get("unreachable") else "does not answer", printable(" ".join(str(asked.get("msg", "")).split())))
    row = replay["query_result"][0]
    if row["caught_up"]:
        return ""
    why = (
        "Replay is paused: run SELECT pg_wal_replay_resume()." if row["paused"]
        else "It receives no WAL: check its primary_conninfo and its log." if row["receiver"] != "streaming"
        else "It receives WAL but replays it slowly: wait, or raise cache_restart_replay_timeout."
    )
    return "%s has not caught up with %s: after %s s it is at %s, %s behind. %s" % (
        host, primary, seconds, printable(row["replayed"], 30), bytes_to_human(int(row["behind"] or 0)), why)
