# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a rolling restart, the hosts out of traffic, and the command to continue: from the variables set by its plays."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.module_utils import _states
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _plan, _roll, _tables
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Column, Result

PHASES = (("snapshot", 8), ("out", 5), ("restart", 7), ("pause", 5), ("replay", 6), ("restore", 7), ("in", 5))
COLUMNS = [
    Column("role", -7), Column("state", -10), Column("residency", 9), *(Column(*phase) for phase in PHASES), Column("traffic", -7)
]


class Rolling:
    """``hosts`` are all of the target, also beyond --limit; ``variables`` are Ansible's hostvars."""

    def __init__(self, hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], check_mode: bool) -> None:
        self.hosts = [str(host) for host in hosts]
        self.check_mode = check_mode
        self._variables = {host: variables[host] for host in self.hosts}
        # the others were beyond --limit
        self._known = [host for host in self.hosts if "pgfleet_failure" in self._variables[host]]
        self._fleet = self._first("cache_restart_fleet")
        self._problem = next((str(one) for one in (self._variables[host].get("cache_restart_problem") for host in self._known) if one), "")
        self._failed = [host for host in self._known if self._failure(host)]

    def _first(self, name: str) -> Mapping[str, Any]:
        """The first value of a variable that the plan has set for all hosts alike."""
        found = (self._variables[host].get(name) for host in self._known)
        return next((one for one in found if isinstance(one, Mapping) and one), {})

    def lines(self, ended: Mapping[str, Mapping[str, Any]], again: Callable[[List[str], bool], str]) -> Tuple[List[str], Dict[str, str]]:
        """``again`` returns the command to go on with, without these hosts, and with --limit as it was given or not."""
        found, odd = _tables.lines(COLUMNS, self.hosts, self._row, ended)
        unreachable = [host for host in self._known if self._failure(host).startswith(("unreachable", "lost"))]
        found.append("")
        if unreachable:
            found.append("Unreachable: %s." % _names(unreachable))
        for host in self.hosts:
            if self._out(host):
                found.append("Out of traffic now: %s (%s)." % (printable(host), _names(self._out(host))))
            elif self._away(host):
                found.append("Out of traffic since an earlier run: %s. Run the playbook for this host." % printable(host))
            found += self._debt(host)
        return [*found, *self._what_is_left(unreachable, again)], odd

    def _what_is_left(self, unreachable: List[str], again: Callable[[List[str], bool], str]) -> List[str]:
        if self._problem or (self.check_mode and self._failed):
            return [" ".join(filter(None, [printable(self._problem), "Nothing would be restarted." if self.check_mode else "Nothing was restarted."]))]
        if self.check_mode:
            return self._preview()
        left = _roll.left(self.hosts, self._variables)
        if self._fleet.get("abort") and not left:
            return ["What was begun is put back, and no other host was restarted."]
        skipped = [host for host in self.hosts if host not in _roll.restarted(self.hosts, self._variables)] if not left else []
        if skipped:
            return ["All hosts but the primary %s (cache_restart_primary=skip) are restarted: the rolling restart is finished." % _names(skipped)]
        if not left:
            return ["All hosts are restarted: the rolling restart is finished."]
        # keep --limit as long as it covers a host that is left
        limited = any(host in self._known for host in left)
        text = "Not done: %s. Continue with: %s" % (_names(left), printable(again(unreachable, limited)))
        return [text + (" (or without --limit, once they are reachable)" if unreachable else "")]

    def _preview(self) -> List[str]:
        if self._fleet.get("abort"):
            back = [host for step in _list(self._fleet.get("steps")) for host in _list(step)]
            return ["Would put back what was begun on %s, and restart no other host." % (_names(back) if back else "no host")]
        batches = _list(self._fleet.get("batches"))
        found = ["Would restart no standby."]
        if batches:
            found = ["Would first restart the batches %s." % "; ".join(_names(_list(batch)) for batch in batches)]
        primary = str(self._fleet.get("primary") or "")
        way = str(Result(self._variables.get(primary, {}).get("cache_restart_given") or {}).text("cache_restart_primary") or "in_place")
        if self._fleet.get("last"):
            found.append("Would then restart the primary %s%s." % (printable(primary), " after a switchover" if way == "switchover" else ""))
        elif primary and way == "skip":
            found.append("Would not restart the primary %s." % printable(primary))
        return found

    def _failure(self, host: str) -> str:
        return str(self._variables[host].get("pgfleet_failure") or "")

    def _out(self, host: str) -> List[Any]:
        return _list(self._variables[host].get("cache_restart_out"))

    def _away(self, host: str) -> bool:
        """Whether any earlier run has left the host out of traffic, and this one has not reached it."""
        answer = self._answer(host)
        return not self._variables[host].get("cache_restart_result") and answer.get("kept", {}).get("out") is True

    def _debt(self, host: str) -> List[str]:
        """The pending restore of the host, from its record."""
        answer = self._answer(host)
        record = self._record(host) or answer.get("kept") or {}
        if _states.fault(record):
            return []
        debt = record.get("debt") or {}
        # after its restart the answer is that of before
        if not _states.owes(record, answer.get("started")) and record.get("state") not in ("restarting", "restarted"):
            return []
        size = bytes_to_human(debt["wanted"] * 8192) if debt else ""
        return ["Not as warm as before its restart: %s (%s, %s, since %s)." % (
            printable(host), printable(debt["snapshot"], 80), size, printable(debt["since"], 30))] if debt else []

    def _row(self, host: str) -> _tables.Row:
        answers = Result(self._answer(host), "its answer's ")
        recovering = answers.truth("in_recovery")
        result = Result(self._record(host))
        residency, seconds = result.figure("residency"), result.part("seconds")
        if residency is None:  # what a host that missed its gate has reached
            residency = Result(self._variables[host].get("__cache_restart_reached") or {}).figure("residency")
        phases = [seconds.figure(name) for name, dummy in PHASES]
        words = [self._failure(host) or answers.text("problem", 500), *result.texts("remarks")]
        remarks = [str(self._variables[host].get(name) or "") for name in ("cache_restart_remark", "cache_restart_closing")]
        words += [remark for remark in remarks if remark and remark not in words]
        if self.check_mode and self._fleet and not self._problem and not self._failed:
            words.append(_roll.preview(host, self._variables[host], self._fleet))
        return [
            "-" if recovering is None else "standby" if recovering else "primary",
            "failed" if self._failure(host) else result.text("state", 20) or "-",
            "%.2f %%" % residency if residency is not None else "-",
            *("-" if one is None else "%g" % one for one in phases),
            "out" if self._out(host) or result.truth("out") or self._away(host) else "-" if recovering is None else "in",
        ], " ".join(filter(None, words))

    def _answer(self, host: str) -> Mapping[str, Any]:
        """The host's own answer, else the one of the plan: a host beyond --limit has none of its own."""
        planned: Mapping[str, Any] = (self._fleet.get("answers") or {}).get(host) or {}
        return planned if self.check_mode and planned else _plan.answers_of(host, self._variables).get(host) or planned

    def _record(self, host: str) -> Mapping[str, Any]:
        return _roll.record_of(host, self._variables, self._fleet)


def _list(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _names(names: Sequence[Any]) -> str:
    return printable(", ".join(map(str, names)))
