# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a rolling restart of one cluster: the batches of standbys, then the primary, or why nothing is restarted."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._rolling_restart import Answers, commits_wait, half_done, identifier, is_open, may_start, restarts

CLOCKS = 600  # seconds by which the clocks of two controllers may differ


class Options(NamedTuple):
    """Variables of the role, whose names begin with cache_restart_."""

    only: Sequence[str] = ()
    primary: str = "in_place"
    candidate: str = ""
    switchover_tasks: str = ""
    serial: Sequence[Any] = (1,)
    min_standbys: int = 1
    commits_may_wait: bool = False
    abort: bool = False
    resume: bool = True
    max_age: int = 86400


def answers_of(host: str, variables: Mapping[str, Mapping[str, Any]]) -> Answers:
    """What a host has registered last: the answers of hosts that it has asked."""
    results = (variables[host].get("cache_restart_answers") or {}).get("results") or []
    return {str(one["__cache_restart_each"]): dict(one["answer"]) for one in results if one.get("answer")}


def gathered(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], waived: Sequence[str]) -> Dict[str, Any]:
    """The newest answer of each host, and the hosts on which something cannot wait for its turn; ``variables`` are Ansible's hostvars."""
    found = {host: answers_of(host, variables).get(host) or {"problem": "unreachable: it was not read", "kept": {}, "lease": None} for host in hosts}
    return {
        "answers": found,
        "reached": [host for host in hosts if not str(found[host].get("problem", "")).startswith("unreachable")],
        "half_done": [host for host in hosts if half_done(found[host], host in waived)],
        "problem": "", "batches": [], "last": "", "switchover": "", "check": [],
    }


def planned(
    hosts: Sequence[str], now: float, variables: Mapping[str, Mapping[str, Any]], options: Options, waived: Sequence[str] = (), foretold: bool = False
) -> Dict[str, Any]:
    """The plan for ``hosts``. ``problem`` is why nothing is restarted. ``variables`` are Ansible's hostvars.

    ``foretold`` (check mode): what an interrupted run has stopped counts as started, which a run does before it plans.
    """
    there = gathered(hosts, variables, waived)
    found: Answers = there["answers"]
    if foretold:
        found = there["answers"] = {host: _as_started(found, host) if host in (options.only or hosts) else found[host] for host in found}
    what = {host: str((variables[host].get("cache_restart_host") or {}).get("what") or "postgresql") for host in hosts}
    one = plan_of(hosts, found, now, options, what)
    problem = _unread(hosts, found) or _strange(hosts, options.only, waived) or _several(hosts, found) or one["problem"]
    if problem:
        return dict(there, **dict(one, problem=problem, batches=[], last="", check=[]))
    switchover = one["last"] if options.primary == "switchover" and not one["abort"] and restarts(found.get(one["last"]) or {}, one) else ""
    return dict(there, **dict(one, switchover=switchover))


def _as_started(found: Answers, host: str) -> Dict[str, Any]:
    """The answer of a server that this run would start first."""
    answer = found[host]
    if "problem" not in answer or answer.get("unread") or not _states.is_stopped(answer["kept"]) or may_start(found, host):
        return answer
    kept = answer["kept"]
    known = {name: value for name, value in answer.items() if name not in ("problem", "msg")}
    server = dict({"standby": False, "version_num": 0, "cluster_name": ""}, **(kept.get("server") or {}))
    return dict(
        known, stopped=True, in_recovery=server["standby"], version_num=server["version_num"], cluster_name=server["cluster_name"], started=0, lsn=0,
        system_identifier=_states.identifier(kept), paused=False, delay=None, receiver="streaming", extension="", schema="", data_directory="", pid=0)


def _several(hosts: Sequence[str], found: Answers) -> str:
    """A host that does not answer belongs to the cluster of its record; without a record, it could belong to any."""
    clusters: Dict[str, List[str]] = {}
    for host in hosts:
        if identifier(found.get(host, {})):
            clusters.setdefault(identifier(found[host]), []).append(host)
    if len(clusters) < 2:
        return ""
    return "target has %d clusters, and a rolling restart has one. Run the playbook once for each: %s." % (
        len(clusters), ", ".join("-e target=%s" % ":".join(members) for members in clusters.values()))


def _unread(hosts: Sequence[str], found: Answers) -> str:
    """A record that cannot be read would be written over."""
    return next(("%s: %s" % (host, found[host]["problem"]) for host in hosts if host in found and found[host].get("unread")), "")


def _strange(hosts: Sequence[str], only: Sequence[str], waived: Sequence[str]) -> str:
    for name, named in (("cache_restart_only", only), ("pgfleet_waive", waived)):
        strange = sorted(set(named) - set(hosts))
        if strange:
            return "%s names hosts that are not in target: %s." % (name, printable(", ".join(strange), 200))
    return ""


def plan_of(hosts: Sequence[str], found: Answers, now: float, chosen: Options, what: Mapping[str, str]) -> Dict[str, Any]:
    """The order of restarts; ``problem`` is why there is none. ``what`` has each host's cache_restart_what."""
    mine = chosen.only or hosts
    known = {host: found[host] for host in hosts if host in found and "problem" not in found[host]}
    primaries = sorted(host for host, one in known.items() if not one["in_recovery"])
    standbys = [host for host in known if known[host]["in_recovery"]]
    primary = primaries[0] if primaries else ""
    records = [found[host]["kept"] for host in hosts if host in found]  # also of those whose server is down
    begun = _begun(records, now - chosen.max_age, now + CLOCKS) if chosen.resume or chosen.abort else ""
    name = begun or str(int(now))
    kept = {host: one["kept"] for host, one in known.items() if begun and one["kept"].get("rolling_restart") == begun}
    done = sorted(host for host, record in kept.items() if record.get("state") == "done" and not is_open(known[host]))
    if chosen.abort:
        done = [host for host in known if not is_open(known[host]) and not known[host]["kept"].get("pending")]
    left = [host for host in standbys if host in mine and host not in done]
    batches = _batches(sorted(left, key=lambda host: not is_open(known[host])), chosen.serial)
    last = primary if primary in mine and primary not in done and (chosen.primary != "skip" or chosen.abort) else ""
    silent = {host: str(found[host]["problem"]) for host in hosts if host in found and host not in known}
    away = [host for host in standbys if host not in mine and is_open(known[host])]
    problem = _cold_tests(known, mine) or _one_primary(list(known), primaries, silent)
    if not problem and not chosen.abort:
        begun_here = {host: record for host, record in kept.items() if host in mine}
        problem = _who_serves(primary, standbys, batches, last, away, silent, chosen) or _other_way(begun_here, what) or _who_takes_over(standbys, chosen)
        cluster = {"rolling_restart": name, "standbys": standbys, "commits_may_wait": chosen.commits_may_wait}
        problem = problem or next(filter(None, (commits_wait(found, cluster, batch, primary, True) for batch in batches)), "")
    return {
        "hosts": list(hosts), "only": list(mine), "primary": primary, "standbys": standbys, "rolling_restart": name, "resumed": bool(begun),
        "done": done, "batches": batches, "last": last, "problem": problem, "abort": chosen.abort,
        "commits_may_wait": chosen.commits_may_wait or chosen.abort, "skipped": primary if chosen.primary == "skip" else "",
        "check": [] if chosen.abort else [host for host in known if host in mine and host not in done and not known[host].get("stopped")],
        "ways": {host: _states.way(one["kept"], one["started"], name, chosen.abort) for host, one in known.items()},
    }


def _cold_tests(known: Answers, mine: Sequence[str]) -> str:
    """Only the cold test can restore what it has evicted; a rolling restart would save what is left of the caches."""
    for host, one in known.items():
        pending = one["kept"].get("pending") or {}
        if pending.get("for") == _states.COLD_TEST and host in mine:
            return (
                "A cold test of %s was not finished; %s has what its caches held before. Run pgfleet.cache.cold_test again, which restores that"
                " first, or waive it with -e pgfleet_waive=%s." % (host, printable(pending["snapshot"], 80), host)
            )
    return ""


def _begun(kept: Sequence[Mapping[str, Any]], since: float, until: float) -> str:
    """The rolling restart that most hosts have, the newest of these, if it is neither finished nor too old, nor of the future; its name is when it began.

    It is written, and closed, on all hosts alike: what a single one of them says of it decides nothing.
    """
    names = (str(one.get("rolling_restart")) for one in kept)
    hosts = Counter(name for name in names if re.fullmatch("[0-9]{1,12}", name) and since <= int(name) <= until)
    found = max(hosts, key=lambda name: (hosts[name], int(name)), default="")
    finished = sum(1 for one in kept if found and one.get("rolling_restart") == found and one.get("finished"))
    return "" if 2 * finished >= hosts[found] else found


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
        return "No primary found among %s: name the whole fleet with target, and the hosts to restart with cache_restart_only." % ", ".join(hosts)
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
    """``away`` are not in cache_restart_only, and out of traffic since an earlier run; hosts that are ``silent`` are taken for standbys that are down."""
    wanted = chosen.min_standbys
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
        because = ["%s has been out of traffic, or not as warm as before, since an earlier run: name it in cache_restart_only, too." % host for host in away]
        because += map(_no_answer, silent, silent.values())
        return (
            "While %s restarts, %d of %d standbys would serve, but cache_restart_min_standbys is %d. %s Or reduce that number."
            % (", ".join(largest) if short else last, max(0, stay), every, wanted, " ".join(because))
        )
    return ""


def _other_way(kept: Mapping[str, Mapping[str, Any]], what: Mapping[str, str]) -> str:
    """Half a fleet rebooted and the other half restarted is no rolling restart that is finished."""
    other = sorted(
        host for host, record in kept.items() if record.get("state", "planned") != "planned" and record.get("what", what[host]) != what[host])
    if not other:
        return ""
    begun = printable(kept[other[0]]["what"], 20)
    return (
        "The unfinished rolling restart has cache_restart_what=%s (on %s), but this run has %s. Finish it with -e cache_restart_what=%s, or start a"
        " new one with -e cache_restart_resume=false." % (begun, ", ".join(other), what[other[0]], begun)
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
