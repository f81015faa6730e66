# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller reads in a host's record: why a cold test or a play does not start, what a play has saved, and which proxies are meant."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._states import COLD_TEST, PLAY, ROLLING_RESTART, fault, is_pending
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters


def unfinished(result: Mapping[str, Any], host: str, what: str) -> str:
    """Why a cold test or a user's play (``what``) does not start on this host; ``result`` is that of the module host_record."""
    if result.get("fault"):
        return "%s: check what was begun on %s, then remove the file." % (printable(result["fault"], 300), host)
    record = result.get("record") or {}
    wrong = fault(record)
    if wrong:
        return "The record of %s in pgfleet_state_directory is damaged (%s): check what was begun there, then remove the file." % (host, wrong)
    pending = record.get("pending") or {}
    if record.get("out") or record.get("paused") or pending.get("for") == ROLLING_RESTART:
        return (
            "A rolling restart of %s was not finished%s: run pgfleet.cache.rolling_restart again first, or end it by running it with -e"
            " cache_restart_abort=true." % (host, ", and the host still has to be restored from %s" % printable(pending["snapshot"], 80) if pending else ""))
    if pending.get("for") == COLD_TEST and what != COLD_TEST:
        return (
            "A cold test of %s was not finished: run pgfleet.cache.cold_test again first, which restores %s, or waive that by running it with -e"
            " pgfleet_waive=%s." % (host, printable(pending["snapshot"], 80), host))
    return ""


def not_to_be_measured(record: Optional[Mapping[str, Any]], server: Mapping[str, Any], host: str, waive: Sequence[str]) -> str:
    """Why a cold test stops on this host: a pending restore that is not the test's. ``server`` is the running server."""
    pending = (record or {}).get("pending") or {}
    if not pending or host in waive:
        return ""
    if pending["system_identifier"] != server["system_identifier"]:
        return "The pending restore of %s belongs to another cluster (system identifier %s). If that cluster is gone, waive it with -e pgfleet_waive=%s." % (
            host, printable(pending["system_identifier"], 30), host)
    if pending["for"] == PLAY and is_pending({"pending": pending}, server["started"]):
        return (
            "%s was restarted by a play that saved %s, and is not as warm as before: run that play again, which restores it first, or waive that"
            " with -e pgfleet_waive=%s." % (host, printable(pending["snapshot"], 80), host))
    return ""


def saved_as(snapshot: Mapping[str, Any]) -> Dict[str, Any]:
    """The ``snapshot`` that a play's restart is to bring back, as a record has it: of a thin one the generation that its name still means."""
    if snapshot["thin"]:
        return {"snapshot": snapshot["name"], "digest": "", "wanted": snapshot["wanted"]}
    return {"snapshot": "%s@%s" % (snapshot["name"], snapshot["generation"]), "digest": snapshot["digest"], "wanted": snapshot["wanted"]}


def saved_before(snapshot: Mapping[str, Any]) -> str:
    """The name of what a play has saved before its restart; ``snapshot`` is empty if it has saved nothing."""
    if not snapshot:
        raise AnsibleFilterError(
            "The handler restores what the entry point around of the role pgfleet.cache.cache_warmup has saved: include that before the restart.")
    return str(saved_as(snapshot)["snapshot"])


def forgotten(record: Mapping[str, Any], ways: Sequence[Mapping[str, Any]], host: str) -> str:
    """What has taken this host out of traffic and is no longer configured: the host would never be put back."""
    there = [_adapters.identified(place) for way in ways for place in way["places"]]
    lost = [_name(one) for one in map(_adapters.identified, record.get("traffic") or []) if one not in there]
    if not record.get("out") or not lost:
        return ""
    return (
        "%s was taken out of traffic by %s, which is no longer in cache_restart_traffic or its variables. Add it again or, if it no longer exists,"
        " discard the state of %s with -e pgfleet_waive=%s." % (host, printable(", ".join(lost), 300), host, host))


def recorded(record: Mapping[str, Any], name: str, ways: Sequence[Mapping[str, Any]]) -> Tuple[List[Dict[str, Any]], List[str]]:
    """For the places of ``traffic`` or ``paused`` in the record: the ways to those that are still configured, and the names of the others.

    A record is the host's, and decides nowhere whom else the controller gives orders: the inventory does.
    """
    wanted = [_adapters.identified(one) for one in record.get(name) or []]
    found = [dict(way, places=[one for one in way["places"] if _adapters.identified(one) in wanted]) for way in ways]
    known_ones = [_adapters.identified(one) for way in found for one in way["places"]]
    return [way for way in found if way["places"]], [_name(one) for one in wanted if one not in known_ones]


def _name(place: Mapping[str, Any]) -> str:
    """A task file is its own name; of others the whole place."""
    kind = str(place.get("kind"))
    where = [str(place[name]) for name in ("host", "port", "backend", "database") if place.get(name) not in (None, "")]
    return kind if os.path.isabs(kind) else "%s on %s" % (kind, " ".join(where))
