# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rolling restart: what the hosts have answered, the plan for all of them, and what is in the way of restarting one."""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible.module_utils.common.text.formatters import bytes_to_human, human_to_bytes
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import as_list, checked
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import reason

Answers = Dict[str, Dict[str, Any]]

REPLACED = {
    "cache_warmup_snapshot": "the snapshot is the one that is taken before the restart, cache_restart_snapshot.",
    "cache_warmup_min_residency": "the gate is cache_restart_min_residency.",
    "cache_warmup_max_age": "that snapshot has just been taken.",
}
# Of the answer to __cache_restart_query
_ANSWER: Dict[str, Tuple[type, ...]] = {
    "in_recovery": (bool,), "system_identifier": (str,), "version_num": (int,), "cluster_name": (str,), "data_directory": (str,), "started": (str,),
    "pid": (int,), "extension": (str, type(None)), "schema": (str, type(None)),
}
# What a host keeps of itself; a number can be a text there, from ansible-core 2.18
_KEPT: Dict[str, Tuple[type, ...]] = {
    "out": (bool, type(None)), "finished": (bool, type(None)), "seconds": (dict, type(None)), "remarks": (list, type(None)),
    "state": (str, type(None)), "residency": (int, float, str, type(None)),
    "roll": (str, type(None)), "what": (str, type(None)), "snapshot": (str, type(None)), "before": (str, type(None)),
}
CLOCKS = 600  # seconds by which those of two controllers may differ
MANAGERS = {"patroni": "Patroni", "repmgrd": "repmgr", "pacemakerd": "Pacemaker"}


def answers(servers: Mapping[str, Any], states: Mapping[str, Any], asked: Sequence[str]) -> Answers:
    """Of each host that two tasks have asked in a loop: the server's row and what the host has ``kept``, or a ``problem``.

    Which host a result is of is known by its place: from ansible-core 2.21 a host can return another item of the loop.
    """
    return {host: _answer(server, state) for host, server, state in zip(asked, servers["results"], states["results"])}


def _answer(server: Mapping[str, Any], state: Mapping[str, Any]) -> Dict[str, Any]:
    for one in (server, state):
        if one.get("unreachable"):
            return {"problem": "unreachable: %s" % reason(one)}
    if not server.get("query_result"):
        return {"problem": reason(server)}
    row = server["query_result"][0] if isinstance(server["query_result"], list) else None
    if not isinstance(row, dict) or not all(isinstance(row.get(name), kinds) for name, kinds in _ANSWER.items()):
        return {"problem": "It has answered what cannot be: %s" % printable(server["query_result"], 300)}
    if "content" not in state and "not found" not in str(state.get("msg")):
        # ansible-core 2.19 and newer do not fill in their message
        said = reason(state).replace(": {source}", "")
        if said.lower().startswith("unable to slurp"):
            said = "Cannot read how far this host came (%s): check that cache_restart_state_directory is a directory." % said
        return {"problem": said}
    try:
        kept = json.loads(base64.b64decode(str(state.get("content", "e30="))).decode("utf-8"))
    except (ValueError, RecursionError):
        kept = None
    if not isinstance(kept, dict) or not all(isinstance(kept.get(name), kinds) for name, kinds in _KEPT.items()):
        return {"problem": "%s is damaged: see when the host was restarted, and remove the file." % printable(state.get("source"), 300)}
    return dict({name: row[name] for name in _ANSWER}, kept={name: value for name, value in kept.items() if name in _KEPT})


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


def what(hosts: Sequence[str], check: Mapping[str, Any]) -> Dict[str, str]:
    """What is restarted of each of these hosts: an inventory can name another for some."""
    return {host: str(checked(check, host, "cache_restart_what")) for host in hosts}


def plan(hosts: Sequence[str], found: Answers, limited: Sequence[str], now: float, **options: Any) -> Dict[str, Any]:
    """Who is restarted when; ``problem`` is what is wrong with the fleet as a whole. ``limited`` are the hosts of this run."""
    chosen = Options(**options)
    known = {host: found[host] for host in hosts if host in found and "problem" not in found[host]}
    primaries = sorted(host for host, one in known.items() if not one["in_recovery"])
    standbys = [host for host in known if known[host]["in_recovery"]]
    primary = primaries[0] if primaries else ""
    begun = _begun([one["kept"] for one in known.values()], now - int(chosen.max_age), now + CLOCKS) if chosen.resume else ""
    mine = {host: one["kept"] for host, one in known.items() if begun and one["kept"].get("roll") == begun}
    done = sorted(host for host, kept in mine.items() if kept.get("state") == "done")
    left = [host for host in standbys if host in limited and host not in done]
    batches = _batches(sorted(left, key=lambda host: not known[host]["kept"].get("out")), as_list(chosen.serial))
    last = primary if primary in limited and primary not in done and chosen.primary != "skip" else ""
    silent = {host: str(found[host]["problem"]) for host in hosts if host in found and host not in known}
    away = [host for host in standbys if host not in limited and known[host]["kept"].get("out")]
    problem = (
        _strangers(known) or _one_primary(list(known), primaries, silent) or _who_serves(primary, standbys, batches, last, away, silent, chosen)
        or _other_way(mine, chosen) or _who_takes_over(standbys, chosen)
    )
    return {
        "hosts": list(hosts), "primary": primary, "standbys": standbys, "roll": begun or str(int(now)), "resumed": bool(begun),
        "done": done, "batches": batches, "last": last, "problem": problem,
    }


def _begun(kept: Sequence[Mapping[str, Any]], since: float, until: float) -> str:
    """The newest roll that is neither finished nor too old, nor of the future; its name is when it began."""
    rolls = {str(one["roll"]) for one in kept if re.fullmatch("[0-9]{1,12}", str(one.get("roll"))) and int(one["roll"]) <= until}
    finished = {str(one["roll"]) for one in kept if one.get("finished") and "roll" in one}
    return max((one for one in rolls - finished if int(one) >= since), key=int, default="")


def _batches(hosts: Sequence[str], sizes: Sequence[Any]) -> List[List[str]]:
    batches: List[List[str]] = []
    left = list(hosts)
    while left:
        size = str(sizes[min(len(batches), len(sizes) - 1)])
        count = max(1, int(size[:-1]) * len(hosts) // 100 if size.endswith("%") else int(size))
        batches.append(left[:count])
        left = left[count:]
    return batches


def _strangers(known: Answers) -> str:
    identifiers = Counter(one["system_identifier"] for one in known.values())
    most = max(sorted(identifiers), key=lambda one: identifiers[one], default="")
    foreign = sorted(host for host, one in known.items() if one["system_identifier"] != most)
    if not foreign:
        return ""
    one = len(foreign) == 1
    return "%s %s not belong to this fleet: the system identifier is another. Leave %s out of target." % (
        ", ".join(foreign), "does" if one else "do", "it" if one else "them")


def _one_primary(hosts: Sequence[str], primaries: Sequence[str], silent: Mapping[str, str]) -> str:
    if not primaries and silent:
        return "There is no primary among %s. %s" % (", ".join(hosts) or "those that answer", " ".join(map(_no_answer, silent, silent.values())))
    if not primaries:
        return "There is no primary among %s: name the whole fleet with target, and choose hosts of it with --limit." % ", ".join(hosts)
    if len(primaries) > 1:
        return (
            "%s are primaries, of the same cluster: somebody has promoted a standby. Find out which one the clients use, and make the other"
            " its standby again (pg_rewind)." % " and ".join(primaries)
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
            "There is no standby of %s: nobody would serve while it restarts. Add the standbys to target, or accept that with"
            " cache_restart_min_standbys 0." % primary, *map(_no_answer, silent, silent.values())
        ])
    largest = max(batches, key=len, default=[])
    there = len(standbys) - len(away)
    every = len(standbys) + len(silent)
    short = largest and there - len(largest) < min(wanted, every - 1)
    if short and not away and not silent:
        stay = there - len(largest)
        return (
            "A batch of %s would take %s standbys out of traffic: %d of %d would stay, and cache_restart_min_standbys is %d."
            " Make cache_restart_serial smaller." % (", ".join(largest), "too many" if stay else "all", stay, every, wanted)
        )
    if short or (last and there < min(wanted, every)):
        stay = there - len(largest) if short else there
        because = ["%s is out of traffic since an earlier run: take it into --limit." % host for host in away]
        because += map(_no_answer, silent, silent.values())
        return (
            "While %s restarts, %d of %d standbys would serve, and cache_restart_min_standbys is %d. %s Or accept that with a smaller number."
            % (", ".join(largest) if short else last, max(0, stay), every, wanted, " ".join(because))
        )
    return ""


def _other_way(mine: Mapping[str, Mapping[str, Any]], chosen: Options) -> str:
    """Half a fleet rebooted and the other half restarted is no rolling restart that is finished."""
    other = sorted(host for host, kept in mine.items() if host in chosen.what and kept.get("what", chosen.what[host]) != chosen.what[host])
    if not other:
        return ""
    begun = printable(mine[other[0]]["what"], 20)
    return (
        "The rolling restart that was begun has cache_restart_what=%s (on %s), and this run has %s. Finish it with -e cache_restart_what=%s,"
        " or begin a new one with -e cache_restart_resume=false." % (begun, ", ".join(other), chosen.what[other[0]], begun)
    )


def _who_takes_over(standbys: Sequence[str], chosen: Options) -> str:
    if chosen.primary != "switchover":
        return ""
    if chosen.candidate and chosen.candidate not in standbys:
        return "cache_restart_candidate is %s, which is no standby; there %s %s." % (
            chosen.candidate, "is" if len(standbys) == 1 else "are", ", ".join(standbys))
    if not chosen.switchover_tasks:
        return (
            "cache_restart_primary is switchover: name the task file that makes cache_restart_candidate the primary with"
            " cache_restart_switchover_tasks."
        )
    if not os.path.isfile(chosen.switchover_tasks):
        return "There is no task file %s on the controller: correct cache_restart_switchover_tasks." % chosen.switchover_tasks
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
    primary = fleet_of(hosts, variables).get("primary")
    return [
        host for host in hosts
        if host not in there and not (host == primary and variables[host].get("cache_restart_primary") == "skip")
    ]


def fleet_of(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan; a host beyond --limit does not know it."""
    return next((variables[host]["cache_restart_fleet"] for host in hosts if variables[host].get("cache_restart_fleet")), {})


def in_the_way(
    host: str, me: Mapping[str, Any], processes: str, user: str, info: Mapping[str, Any], memory: Any, room: Sequence[str],
    min_residency: Any, min_free: Any, replaced: Mapping[str, Any],
) -> str:
    """Why this host cannot be restarted, as far as the host itself is to blame; else nothing.

    ``replaced`` are the variables that the role sets to others, and in a test to nothing: extra variables go before them.
    """
    for name, other in REPLACED.items():
        if replaced[name] != "":
            return "%s is given with -e and would replace what the rolling restart sets itself. Leave it out; %s" % (name, other)
    manager = _manager(processes, user)
    if manager:
        return (
            "%s runs on %s, and would take a restart for a failure: it could promote a standby. There is no adapter for it yet. Restart with its"
            " own tools (patronictl restart, repmgr node service, pcs), with a snapshot before and a warm-up after it." % (manager, host)
        )
    total = info["total"]
    resident = (total["in_page_cache"] + total["in_shared_buffers"] - total["in_both"]) * 8192
    if resident * float(min_residency) / 100 > memory:
        return (
            "%s are resident, and there is memory for %s of page cache: cache_restart_min_residency of %s %% cannot be reached after a restart."
            " Give %s more memory, or ask for less." % (bytes_to_human(resident), bytes_to_human(memory), min_residency, host)
        )
    free = min(map(int, room), default=0)
    if free < human_to_bytes(min_free):
        return (
            "The file system of %s or its pg_wal has %s left, less than cache_restart_min_free of %s: the snapshot, and the WAL that is kept for"
            " a standby while it restarts, need room. Make some." % (printable(me["data_directory"], 300), bytes_to_human(free), min_free)
        )
    return ""


def _manager(processes: str, user: str) -> Optional[str]:
    """A cluster manager among the lines of ``ps -e -o pidns=,user:64=,args=``.

    Processes in containers on this host do not matter: they have a PID namespace of their own. Where that may not be seen, there are none.
    Nor do those of users other than root and the cluster's: anybody may give a process any name.
    """
    own = re.search(r"(?m)^ *([0-9]+) +\S+ +ps -e -o pidns=", processes)
    found = re.search(
        r"(?m)^ *(?:-|%s) +(?:root|%s) +(?:\S*python\S* )?(?:\S*/)?(patroni|repmgrd|pacemakerd)(?= |$)" % (own.group(1) if own else "-", re.escape(user)),
        processes,
    )
    return MANAGERS[found.group(1)] if found else None


def preview(host: str, variables: Mapping[str, Any], fleet: Mapping[str, Any]) -> str:
    """What --check has to say of a host that it would come to."""
    kept = variables.get("cache_restart_result")
    kept = kept if isinstance(kept, Mapping) else {}
    if host in fleet.get("done", ()):
        return "Is restarted and warm already: would not be restarted again."
    if host == fleet.get("primary") and not fleet.get("last"):
        return ""
    answer = variables.get("cache_restart_answers")
    answer = answer.get(host) or {} if isinstance(answer, Mapping) else {}
    if kept.get("before") and kept["before"] != answer.get("started"):
        return "Is restarted already: would not be restarted again, but restored from %s." % printable(kept.get("snapshot"), 100)
    saved = variables.get("__cache_restart_saved")
    return printable(saved.get("msg") or "") if isinstance(saved, Mapping) else ""


def roles_changed(found: Answers, host: str, primary: str) -> str:
    """Why this host is not restarted after all: the roles are not those of the plan, or somebody does not answer."""
    asked = sorted({host, primary})
    for one in asked:
        if "problem" in found[one]:
            return "%s does not answer any more: %s Nothing was restarted on %s." % (one, found[one]["problem"], host)
    primaries = [one for one in asked if not found[one]["in_recovery"]]
    if primaries == [primary]:
        return ""
    return (
        "%s was the primary%s when this roll looked; now the primary is %s: somebody else is at work. Nothing was restarted on %s."
        " Run the playbook again when it is settled." % (
            primary, "" if host == primary else " and %s a standby" % host, " and ".join(primaries) or "none of them", host)
    )


def behind(row: Mapping[str, Any], host: str, primary: str, seconds: Any) -> str:
    """What is wrong with a standby that has not replayed what the primary had written; else nothing."""
    if row["caught_up"]:
        return ""
    why = (
        "Replay is paused: SELECT pg_wal_replay_resume()." if row["paused"]
        else "It receives no WAL: look at its primary_conninfo, and at its log." if row["receiver"] != "streaming"
        else "It receives WAL and replays it slowly: wait, or raise cache_restart_replay_timeout."
    )
    return "%s does not replay what %s writes: after %s s it is at %s, %s behind. %s" % (
        host, primary, seconds, printable(row["replayed"], 30), bytes_to_human(int(row["behind"] or 0)), why)


def proxies(results: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]], standby: bool) -> List[Dict[str, Any]]:
    """How every HAProxy that was asked sees a host. A primary is none of their business where nobody else is up.

    Whom to ask, and for what, is the inventory's, in the order of the answers; of an answer no more is taken than how a server is.
    """
    found = []
    for entry, one in zip(asked, results):
        ran = one.get("rc", 1) == 0
        rows = _rows(str(one.get("stdout") or "")) if ran else None
        backend = [row for row in rows or () if row["backend"] == entry["backend"]]
        mine = next((row for row in backend if row["server"] == entry["server"]), None)
        up = [row for row in backend if row["server"] != entry["server"] and row["up"]]
        others = [row["server"] for row in up if not row["out"]]
        if rows is not None and not standby and not (mine and others):
            continue
        error = "its answer is not what was asked for" if ran else (str(one.get("stderr") or "").splitlines() or [""])[-1] or one.get("msg", "")
        state = mine or {"out": False, "up": False, "sessions": 0, "status": ""}
        found.append({
            **entry, **{name: state[name] for name in ("out", "up", "sessions", "status")},
            "answered": rows is not None, "error": "" if rows is not None else error, "known": mine is not None,
            "servers": [row["server"] for row in backend], "others": others, "up_there": [row["server"] for row in up],
        })
    return found


_ROW = {"backend": str, "server": str, "out": bool, "up": bool, "sessions": int, "status": str}


def _rows(text: str) -> Optional[List[Mapping[str, Any]]]:
    """Of files/haproxy_servers.py; None where it is something else."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and all(isinstance(row.get(key), kind) for key, kind in _ROW.items()) for row in rows):
        return None
    return rows
