# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands for pgbouncer's console and their results: the adapter pgbouncer, evaluated on the controller."""

from __future__ import annotations

import csv
import io
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._libpq import without_choices
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import message

TIMED_OUT = (124, 137)  # timeout(1): ended, and killed; pause.py


def pgbouncer_console(place: Mapping[str, Any], command: str, seconds: Any) -> List[str]:
    """The command line that sends a command to the console of a place, and gives up after this time: psql itself waits for ever."""
    return [*without_choices(), "timeout", "--kill-after=5", str(seconds), *_psql(place), "--command", command]


def pgbouncer_pause(place: Mapping[str, Any], seconds: Any, poolers: int, bound: Any, settles: Any) -> List[str]:
    """The command line of pgbouncer/pause.py that pauses the database of a place, or all if it names none.

    The restart has to begin when the other ``poolers`` are paused too, and 30 s more. It may take ``bound`` seconds, and its servers ``settles`` seconds
    to be the right ones.
    """
    return _pause("pause", str(seconds), str(int(seconds) * poolers + 30), str(bound), str(settles), place=place)


def pgbouncer_resume(place: Mapping[str, Any], seconds: Any) -> List[str]:
    return _pause("resume", str(seconds), place=place)


def _pause(*words: str, place: Mapping[str, Any]) -> List[str]:
    return [*without_choices(), "python3", "-I", "-", *words, place["database"], *_psql(place)]


def _psql(place: Mapping[str, Any]) -> List[str]:
    return [
        "psql", "--no-psqlrc", "--csv", "--host=%s" % place["socket"], "--port=%s" % place["port"], "--username=%s" % place["user"], "--dbname=pgbouncer",
    ]


def pgbouncer(results: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """The result of SHOW DATABASES for each place; its pause is None if it is unknown."""
    found = []
    for place, answer in zip(places, results):
        answered = answer.get("rc", 1) == 0
        rows = list(csv.DictReader(io.StringIO(str(answer.get("stdout") or "")))) if answered else []
        paused = {row["name"]: row.get("paused") for row in rows if row.get("name") not in (None, "pgbouncer")}
        out = {"0": False, "1": True}.get(str(paused.get(place["database"])))
        found.append({**place, "answered": answered, "error": "" if answered else _said(answer), "databases": list(paused), "out": out})
    return found


def pgbouncer_unfit(seen: Sequence[Mapping[str, Any]]) -> str:
    """The reason why the clients cannot be paused, checked before anything is changed."""
    for place in seen:
        if not place["answered"]:
            return (
                "pgbouncer on %s does not answer at port %s: %s. Its console needs psql on that host and a user in admin_users; set its address in"
                " cache_restart_pgbouncer." % (place["host"], place["port"], place["error"]))
        if place["database"] and place["database"] not in place["databases"]:
            return (
                "pgbouncer on %s has no database %s; it has %s. Correct cache_restart_pgbouncer. (A database of the entry * is there once a client has"
                " used it.)" % (place["host"], place["database"], printable(", ".join(place["databases"]))))
        if place["out"]:
            return "pgbouncer on %s has database %s paused already, which this playbook did not do and would undo. Resume it first." % (
                place["host"], place["database"])
    return ""


def pgbouncer_processes(results: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]]) -> str:
    """Why a pause would not hold all clients: several processes share a port (so_reuseport), and a console is one process's.

    ``results`` are ss's lists of the sockets that listen at the port of each place; without ss, nothing is known.
    """
    for place, answer in zip(places, results):
        addresses = [line.split()[3] for line in str(answer.get("stdout") or "").splitlines() if len(line.split()) > 3]
        processes = max(map(addresses.count, addresses), default=0)
        named = sum(1 for other in places if (other["host"], other["port"]) == (place["host"], place["port"]))
        if answer.get("rc", 1) == 0 and processes > named:
            return (
                "%d processes of pgbouncer on %s share port %s, and a pause is for one: list each in cache_restart_pgbouncer, with its own socket"
                " directory (it has %d)." % (processes, place["host"], place["port"], named))
    return ""


def pgbouncer_not_paused(results: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]], seconds: Any) -> str:
    """The reason why the restart cannot start."""
    for place, answer in zip(places, results):
        if _is_paused_by_others(answer):
            return "pgbouncer on %s is paused by another operator, so nothing was restarted. Resume it first." % place["host"]
        if answer.get("rc", 1) != 0:
            slow = "transactions ran longer than cache_restart_pause_timeout (%s s)" % seconds
            return "pgbouncer on %s could not be paused, so nothing was restarted: %s." % (
                place["host"], slow if answer.get("rc") in TIMED_OUT else _said(answer))
    return ""


def pgbouncer_ours(places: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """The places that no other operator has paused, which are resumed. Without ``results`` of a pause, all."""
    others = {number for number, answer in enumerate(results) if _is_paused_by_others(answer)}
    return [place for number, place in enumerate(places) if number not in others]


def _is_paused_by_others(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("rc", 1) != 0 and "already" in str(answer.get("stderr") or ""))


def pgbouncer_ended(result: Mapping[str, Any]) -> bool:
    """True if another attempt to resume is useless: it is done, or the pooler does not answer."""
    done = result.get("rc", 1) == 0 or "not paused" in str(result.get("stderr") or "")
    return bool(result.get("unreachable")) or done or result.get("rc") in TIMED_OUT


def pgbouncer_not_resumed(results: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]], host: str, bound: Any) -> str:
    """A sentence for the first pooler that was not resumed; "not paused" is no error."""
    for place, answer in zip(places, results):
        if answer.get("rc", 1) != 0 and "not paused" not in str(answer.get("stderr") or ""):
            return (
                "pgbouncer on %s was paused for the restart of %s and could not be resumed from here: %s. It resumes by itself when %s serves again, at the"
                " latest %s s after the pause. If clients still wait then, run 'RESUME%s' in its console."
                % (place["host"], host, _said(answer), host, bound, place["database"] and " " + place["database"]))
    return ""


def _said(result: Mapping[str, Any]) -> str:
    if result.get("rc") in TIMED_OUT:
        return "it did not answer in time"
    return printable(" ".join((str(result.get("stderr") or "") or message(result)).split()))
