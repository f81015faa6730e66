# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters of the role cache_common: by what a service is stopped and started, and what keeps clients away. docs/adapters.md has the contracts.

An adapter is a directory, ``roles/cache_common/tasks/<contract>/<kind>``, with a task file for each step. A kind that is a path is a task file of
the user's own: it is every step that the directory ``tasks`` has no file for.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import OWN_TASKS, ROLES, as_list, described, kinds

AWAY, WAIT = "away", "wait"  # until a host is warm its clients are elsewhere; while the primary restarts its clients wait

Place = Dict[str, Any]


def file(kind: str, contract: str, step: str) -> str:
    """The file in which this kind does a step: its own, or the one that all kinds share."""
    folder = os.path.join(ROLES, "cache_common", "tasks", contract)
    name = step if "." in step else step + ".yml"
    own = is_own(kind, contract)
    found = os.path.join(folder, OWN_TASKS if own else kind, name)
    if own:
        return found if os.path.isfile(found) else kind
    for path in (found, os.path.join(folder, name)):
        if os.path.isfile(path):
            return path
    raise AnsibleFilterError("The adapter %s of %s has no %s." % (printable(kind, 200), contract, name))


def if_any(kind: str, contract: str, step: str) -> str:
    """The file of a step that an adapter need not have; empty if it has none."""
    found = os.path.join(ROLES, "cache_common", "tasks", contract, kind, step + ".yml")
    return found if not is_own(kind, contract) and os.path.isfile(found) else ""


def is_own(kind: str, contract: str) -> bool:
    """True if the adapter is the user's own task file."""
    return kind not in kinds(contract)


def unit(server: Mapping[str, Any], named: str) -> str:
    """The systemd unit of a server: as its user or an earlier run names it, else as Debian does, or Red Hat."""
    cluster = str(server.get("cluster_name") or "")
    if named or server.get("unit"):
        return str(named or server["unit"])
    return "postgresql@%s" % cluster.replace("/", "-") if "/" in cluster else "postgresql-%d" % (int(server["version_num"]) // 10000)


def no_cluster(server: Mapping[str, Any], manager: str, named: str) -> str:
    """The reason why cluster_name, which the server reports, cannot name the cluster; empty if it can, or if it names nothing."""
    cluster = str(server.get("cluster_name") or "")
    if manager != "pg_ctlcluster" and not (manager == "systemd" and not named and not server.get("unit") and "/" in cluster):
        return ""
    if re.fullmatch(r"[1-9][0-9.]*/[A-Za-z0-9_][A-Za-z0-9_.-]*", cluster):
        return ""
    return (
        "pg_ctlcluster needs a cluster_name such as 15/main, but that of this server is '%s': it was not created by pg_createcluster. Set"
        " pgfleet_service_manager to what starts it." % printable(cluster, 80))


class Way(NamedTuple):
    """A way to keep clients away from a host."""

    kind: str
    moment: str  # AWAY or WAIT
    places: List[Place]


def ways(variables: Mapping[str, Any], host: str, moment: str = "", standbys_only: bool = False) -> List[Dict[str, Any]]:
    """The ways in cache_restart_traffic, in its order: those of a moment, or all; or those that send clients to standbys only.

    The places of a kind are in the variable cache_restart_<kind>; what an entry does not say is as ``place`` of its adapter.json has it.
    """
    found = []
    for kind in map(str, as_list(variables.get("cache_restart_traffic") or [])):
        if kind in kinds("traffic"):
            known = described(kind)
            defaults = {name: host if value == "{host}" else value for name, value in known["place"].items()}
            entries = as_list(variables.get("cache_restart_" + kind) or ([] if known["required"] else [{}]))
            places = [dict(defaults, **dict(entry, kind=kind)) for entry in entries]
        else:
            known, places = {"moment": AWAY}, [{"kind": kind, "host": host}]
        if places and moment in ("", known["moment"]) and (known.get("standbys_only") or not standbys_only):
            found.append(Way(kind, known["moment"], places)._asdict())
    return found


def keys(kind: str) -> List[str]:
    """The keys that identify a place of this kind."""
    known = described(kind) if kind in kinds("traffic") else {"required": [], "place": {}}
    return list(dict.fromkeys(["kind", "host", *known["required"], *known["place"]]))


def identified(place: Mapping[str, Any]) -> Dict[str, Any]:
    """The keys that identify a proxy, pooler or task file."""
    return {name: place[name] for name in keys(str(place.get("kind"))) if name in place}


def places(
    chosen: Sequence[Mapping[str, Any]], seen: Optional[Mapping[str, Sequence[Mapping[str, Any]]]] = None
) -> List[Dict[str, Any]]:
    """The places of these ways, for the record. With what the step ``look`` has ``seen``, those where the host is in traffic, and own files."""
    return [identified(place) for way in chosen for place in (
        seen.get(way["kind"], []) if seen is not None and way["kind"] in kinds("traffic") else way["places"])]


def in_traffic(chosen: Sequence[Mapping[str, Any]], seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The proxies that send a host traffic, by what ``look`` has seen; empty if none does, or if it is unknown."""
    found = []
    for way in chosen:
        hosts = sorted({str(place["host"]) for place in seen.get(way["kind"], []) if place["out"] is False})
        if hosts:
            found.append("%s on %s" % (described(way["kind"])["name"], ", ".join(hosts)))
    return " and ".join(found)


def forgets(chosen: Sequence[Mapping[str, Any]], seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """In parentheses, the ways in which a proxy may have lost the state that the host is out; empty if its adapter names none."""
    reasons = [described(way["kind"]).get("forgets") for way in chosen if in_traffic([way], seen)]
    return " (%s)" % "; ".join(map(str, filter(None, reasons))) if any(reasons) else ""


def back_in(chosen: Sequence[Mapping[str, Any]], seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> List[Mapping[str, Any]]:
    """The ways by which a host may get traffic: where it is not known to be out."""
    return [way for way in chosen if any(not place["out"] for place in seen.get(way["kind"], []))]


def where(place: Mapping[str, Any]) -> str:
    """The host of a proxy in a record, or the path of the user's own file."""
    kind = str(place.get("kind"))
    return str(place.get("host")) if kind in kinds("traffic") else kind
