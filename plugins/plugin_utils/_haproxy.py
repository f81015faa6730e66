# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host in HAProxy, from the answers to the queries of the adapter haproxy."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import message


def haproxy_question(place: Mapping[str, Any], condition: Sequence[str]) -> List[str]:
    """The command line of haproxy/servers.py: for all servers at the socket of a place, or until its own meets a ``condition``, in seconds."""
    waits = [place["backend"], place["server"], *condition] if condition else []
    return ["python3", "-I", "-", place["socket"], *waits]


def haproxy(results: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]], primary: bool) -> List[Dict[str, Any]]:
    """The state of a host in each queried HAProxy. A backend without another server that is up does not count for a primary.

    Whom to ask, and for what, is the inventory's, in the order of the answers; of an answer no more is taken than how a server is.
    """
    found = []
    for entry, answer in zip(asked, results):
        ran = answer.get("rc", 1) == 0
        rows = _rows(str(answer.get("stdout") or "")) if ran else None
        backend = [row for row in rows or () if row["backend"] == entry["backend"]]
        mine = next((row for row in backend if row["server"] == entry["server"]), None)
        up = [row for row in backend if row["server"] != entry["server"] and row["up"]]
        others = [row["server"] for row in up if not row["out"]]
        if rows is not None and primary and not (mine and others):
            continue
        error = "unexpected answer" if ran else (str(answer.get("stderr") or "").splitlines() or [""])[-1] or message(answer)
        state = mine or {"out": None, "up": False, "sessions": 0, "status": ""}
        found.append({
            **entry, **{name: state[name] for name in ("out", "up", "sessions", "status")},
            "answered": rows is not None, "error": "" if rows is not None else error, "known": mine is not None,
            "servers": [row["server"] for row in backend], "others": others, "up_there": [row["server"] for row in up],
            "beside": [row["backend"] for row in rows or () if mine and row["address"] == mine["address"] and row["up"] and not row["out"]],
        })
    return found


_ROW = {"backend": str, "server": str, "address": str, "out": bool, "up": bool, "sessions": int, "status": str}


def _rows(text: str) -> Optional[List[Mapping[str, Any]]]:
    """The rows printed by haproxy/servers.py; None if the text is something else."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and all(isinstance(row.get(key), kind) for key, kind in _ROW.items()) for row in rows):
        return None
    return rows


def haproxy_unfit(seen: Sequence[Mapping[str, Any]], begun: bool, ours: bool) -> str:
    """The reason why a host cannot be taken out of traffic, checked before anything is changed.

    Where a rolling restart has ``begun`` with others, those that it has out come back before others go. The host itself may be out if that is ``ours``.
    """
    for place in seen:
        where = "HAProxy on %s" % place["host"]
        if not place["answered"]:
            return (
                "%s does not answer at %s: %s. It needs 'stats socket %s level admin' in its global section; set its address in cache_restart_haproxy."
                % (where, place["socket"], printable(place["error"]), place["socket"]))
        if not place["known"]:
            there = ", which has %s" % printable(", ".join(place["servers"])) if place["servers"] else ": there is no such backend"
            return "%s has no server %s in backend %s%s. Correct cache_restart_haproxy." % (where, place["server"], place["backend"], there)
        if not place["up_there" if begun else "others"]:
            return (
                "In backend %s of %s no server but %s is up, so none would serve while it restarts. Bring the others back first."
                % (place["backend"], where, place["server"]))
        if place["out"] and not ours:
            return (
                "%s has %s in state %s already, which this playbook did not set and would undo. Set the server to ready first, or leave the host out"
                " with cache_restart_only." % (where, place["server"], printable(place["status"])))
    return ""


def haproxy_cut(seen: Sequence[Mapping[str, Any]], primary: bool, seconds: Any) -> str:
    """The report's remark on sessions that the restart will end; a primary is not drained, so it has none."""
    if primary:
        return ""
    sessions = sum(place["sessions"] for place in seen)
    found = ["%d sessions did not end within cache_restart_drain_timeout (%s s); a restart cuts them." % (sessions, seconds)] if sessions else []
    named = {(place["host"], place["socket"], place["backend"]) for place in seen}
    beside = {(place["host"], backend) for place in seen for backend in place["beside"] if (place["host"], place["socket"], backend) not in named}
    found += ["Backend %s of HAProxy on %s sends it traffic too, and is not in cache_restart_haproxy: a restart cuts its sessions." % (
        printable(backend, 100), host) for host, backend in sorted(beside)]
    return " ".join(found)
