# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a rolling restart, the hosts out of traffic, and the command to continue: from the variables set by its plays."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _plan, _rolling_restart, _tables
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Column, Result

PHASES = (("snapshot", 8), ("out", 5), ("restart", 7), ("pause", 5), ("replay", 6), ("restore", 7), ("in", 5))
COLUMNS = [
    Column("role", -7), Column("state", -10), Column("residency", 9), *(Column(*phase) for phase in PHASES), Column("traffic", -7)
]


class Rolling:
    """``hosts`` are all of the target; ``variables`` are Ansible's hostvars."""

    def __init__(self, hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], check_mode: bool) -> None:
        self.hosts = [str(host) for host in hosts]
        self.check_mode = check_mode
        self._variables = {host: variables[host] for host in self.hosts}
        self._fleet = _rolling_restart.fleet_of(self.hosts, self._variables)
        self._problem = str(self._fleet.get("problem") or "")
        self._promoted = [one.get("__cache_restart_switched") for one in self._variables.values()]  # it is asked by others only
        self._failed = [host for host in self.hosts if self._failure(host)]

    def lines(self, ended: Mapping[str, Mapping[str, Any]]) -> Tuple[List[str], Dict[str, str]]:
        found, odd = _tables.lines(COLUMNS, self.hosts, self._row, ended)
        unreachable = [host for host in self._failed if self._failure(host).startswith(("unreachable", "lost"))]
        found.append("")
        if unreachable:
            found.append("Unreachable: %s." % _names(unreachable))
        for host in self.hosts:
            if self._out(host):
                found.append("Out of traffic now: %s (%s)." % (printable(host), _names(self._out(host))))
            found += self._pending(host)
        return [*found, *self._what_is_left(unreachable)], odd

    def _what_is_left(self, unreachable: List[str]) -> List[str]:
        if self._problem or (self.check_mode and self._failed):
            return [" ".join(filter(None, [printable(self._problem), "Nothing would be restarted." if self.check_mode else "Nothing was restarted."]))]
        if self.check_mode:
            return self._preview()
        left = _rolling_restart.left(self.hosts, self._variables)
        if self._fleet.get("abort") and not left:
            return ["What was begun is put back, and no other host was restarted."]
        skipped = [host for host in self.hosts if host not in _rolling_restart.restarted(self.hosts, self._variables)] if not left else []
        if skipped:
            return ["All hosts but the primary %s (cache_restart_primary=skip) are restarted: the rolling restart is finished." % _names(skipped)]
        if not left:
            return ["All hosts are restarted: the rolling restart is finished."]
        if not set(left) & set(map(str, self._fleet.get("only") or left)):
            return ["All hosts of cache_restart_only are restarted. Not done: %s. Run the playbook again, without it, to continue." % _names(left)]
        text = "Not done: %s. Run the playbook again, with the same variables, to continue." % _names(left)
        others = [host for host in self.hosts if host not in unreachable]
        without = " To go on without %s, add -e cache_restart_only=%s." % (_names(unreachable), printable(",".join(others)))
        return [text + (without if unreachable and others else "")]

    def _preview(self) -> List[str]:
        batches = [list(map(str, batch)) for batch in self._fleet.get("batches") or []]
        primary, last = str(self._fleet.get("primary") or ""), str(self._fleet.get("last") or "")
        order = [host for batch in batches for host in batch] + ([last] if last else [])
        steps = ["  %s: %s" % (printable(host), would) for host in order for would in [self._variables[host].get("cache_restart_would")] if would]
        if self._fleet.get("abort"):
            return ["Would put back what was begun on %s, and restart no other host." % (_names(order) if order else "no host"), *steps]
        found = ["Would restart no standby."]
        if batches:
            found = ["Would first restart the batches %s." % "; ".join(map(_names, batches))]
        if last:
            found.append("Would then restart the primary %s%s." % (printable(primary), " after a switchover" if self._fleet.get("switchover") else ""))
        elif primary and self._fleet.get("skipped"):
            found.append("Would not restart the primary %s." % printable(primary))
        return found + steps

    def _failure(self, host: str) -> str:
        return str(self._variables[host].get("pgfleet_failure") or "")

    def _out(self, host: str) -> List[str]:
        """Where the host is out of traffic, by its record: hosts of proxies, or the user's own task files."""
        record = (self._variables[host].get("cache_restart_result") or {}).get("record") or self._answer(host).get("kept") or {}
        if _states.fault(record) or not record.get("out"):
            return []
        return list(dict.fromkeys(_adapters.where(place) for place in record.get("traffic") or []))

    def _pending(self, host: str) -> List[str]:
        """The pending restore of the host, from its record."""
        answer = self._answer(host)
        record = self._record(host) or answer.get("kept") or {}
        if _states.fault(record):
            return []
        pending = record.get("pending") or {}
        # after its restart the answer is that of before
        if not _states.is_pending(record, answer.get("started")) and record.get("state") not in ("restarting", "restarted"):
            return []
        size = bytes_to_human(pending["wanted"] * 8192) if pending else ""
        return ["Not as warm as before its restart: %s (%s, %s, since %s)." % (
            printable(host), printable(pending["snapshot"], 80), size, printable(pending["since"], 30))] if pending else []

    def _row(self, host: str) -> _tables.Row:
        answers = Result(self._answer(host), "its answer's ")
        recovering = answers.truth("in_recovery") if host not in self._promoted else False
        result = Result(self._record(host))
        residency, seconds = result.figure("residency"), result.part("seconds")
        if residency is None:  # what a host that missed its gate has reached
            residency = Result(self._variables[host].get("__cache_restart_reached") or {}).figure("residency")
        phases = [seconds.figure(name) for name, dummy in PHASES]
        words = [self._failure(host) or answers.text("problem", 500), *result.texts("remarks")]
        remark = str(self._variables[host].get("cache_restart_remark") or "")
        words += [remark] if remark not in words else []
        if self.check_mode and self._fleet and not self._problem and not self._failed:
            words.append(_rolling_restart.preview(host, self._variables[host], self._fleet))
        return [
            "-" if recovering is None else "standby" if recovering else "primary",
            "failed" if self._failure(host) else result.text("state", 20) or "-",
            "%.2f %%" % residency if residency is not None else "-",
            *("-" if one is None else "%g" % one for one in phases),
            "out" if self._out(host) or result.truth("out") else "-" if recovering is None else "in",
        ], " ".join(filter(None, words))

    def _answer(self, host: str) -> Mapping[str, Any]:
        """The host's own answer, else the one of the plan, which in check mode has started what is stopped."""
        planned: Mapping[str, Any] = (self._fleet.get("answers") or {}).get(host) or {}
        return planned if self.check_mode and planned else _plan.answers_of(host, self._variables).get(host) or planned

    def _record(self, host: str) -> Mapping[str, Any]:
        return _rolling_restart.record_of(host, self._variables, self._fleet)


def _names(names: Sequence[Any]) -> str:
    return printable(", ".join(map(str, names)))
