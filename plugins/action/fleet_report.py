# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a run on the screen, and the same and more in a file and in the stats of the run.

The table is displayed as it is: the result of a debug task is JSON with quotes and escapes, and display_ok_hosts=false hides it.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible import constants
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import (
    _cold_test_report,
    _lease,
    _physical_io,
    _results,
    _status_table,
    _tables,
    _verdicts,
)
from ansible_collections.pgfleet.cache.plugins.plugin_utils._rolling_table import Rolling

RESULTS = "~/.local/state/pgfleet/results"
# What these do to each host is not to befall a whole group because nobody has named one.
NAMED = {
    "cold_test": "evicts the caches and restarts PostgreSQL", "physical_io": "loads tables and drives the disks",
    "temp_buffer_cost": "writes temporary tables of gigabytes",
}
# The figures of one host that was measured, from its result and its name: a task that is ok would hide them where display_ok_hosts is false
FIGURES = {"cold_test": lambda result, dummy: _cold_test_report.table(result), "physical_io": _physical_io.table}
TABLES = dict(_tables.TABLES, physical_io=_physical_io.TABLE, status=_status_table.TABLE)
display = Display()
SCHEMA = 1  # of the file; a key that goes or changes its meaning makes it one more


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        variables = task_vars or {}
        arguments = self._task.args
        hosts_of_run = list(map(str, arguments["hosts"]))
        directory = str(arguments.get("directory", "" if arguments["playbook"] == "status" else RESULTS) or "")
        if arguments.get("state") == "begun":
            result.update(self._begun(hosts_of_run))
            return result
        verdicts = _verdicts.verdicts(hosts_of_run, variables["hostvars"], arguments["playbook"])
        lines, odd = self._table(verdicts, variables)
        hosts = _tables.judged(verdicts, odd)
        counts: Dict[str, int] = {}
        for one in hosts.values():
            counts[one["verdict"]] = counts.get(one["verdict"], 0) + 1
        written = {
            "schema": SCHEMA,
            "playbook": arguments["playbook"],
            "started": _lease.began(),
            "finished": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "check_mode": bool(self._task.check_mode),
            "counts": counts,
            "hosts": _results.plain(hosts),
        }
        bad = _verdicts.not_done(hosts)
        messages = {host: hosts[host]["message"] for host in bad}
        to_do = [host for host in bad if hosts[host]["verdict"] == _verdicts.TO_DO]
        failed = [host for host in bad if host not in to_do]
        if to_do:
            lines.append("Something is to be done on %d of %d hosts: %s." % (len(to_do), len(hosts), printable(", ".join(to_do))))
        if failed:
            lines.append("%d of %d hosts failed: %s. The table shows why." % (len(failed), len(hosts), printable(", ".join(failed))))
        path = None
        if directory and not self._task.check_mode:
            try:
                path = _results.write(directory, written)
                lines.append("The results are in %s." % printable(path))
                lines += self._plot(written["hosts"], path)
            except OSError as error:
                lost = "The results could not be written: %s. Correct pgfleet_results." % printable(error)
                lines.append(lost)
                first = hosts_of_run[0]
                messages[first] = " ".join(filter(None, [messages.get(first), lost]))
        if "json" not in constants.DEFAULT_STDOUT_CALLBACK:  # what reads that finds them in the result
            for line in lines:
                display.display(line)
        result.update(
            changed=False,
            lines=lines,
            path=path,
            messages=messages,
            ansible_stats={
                "data": {"pgfleet": {
                    "playbook": written["playbook"], "path": path, "counts": counts,
                    "hosts": {host: {"verdict": one["verdict"], "message": one["message"]} for host, one in hosts.items()},
                }},
                "per_host": False,
                "aggregate": False,
            },
        )
        return result

    def _begun(self, hosts: List[str]) -> Dict[str, Any]:
        playbook, target = str(self._task.args["playbook"]), str(self._task.args.get("target", ""))
        if playbook in NAMED and not boolean(self._task.args.get("named", True)):
            return {"failed": True, "msg": "%s %s: name its hosts with -e target=... Nothing was changed." % (playbook, NAMED[playbook])}
        if not hosts or not target.strip():  # to Ansible, no pattern is every host
            return {"failed": True, "msg": "No host of this run is in '%s': set a group or hosts of the inventory with -e target=..." % printable(target)}
        return {"changed": False}

    def _table(self, hosts: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any]) -> Tuple[List[str], Dict[str, str]]:
        check_mode = bool(self._task.check_mode)
        playbook = self._task.args["playbook"]
        if playbook == "temp_buffer_cost":
            from ansible_collections.pgfleet.cache.plugins.plugin_utils import _flush_cost_report  # and numpy, for this playbook alone

            lines, odd = _tables.table(_flush_cost_report.TABLE, hosts, check_mode)
            return lines + _flush_cost_report.by_storage(hosts), odd
        if playbook != "rolling_restart":
            known = TABLES[playbook]
            lines, odd = _tables.table(known, hosts, check_mode)
            return lines + _figures(playbook, hosts), odd
        return Rolling(list(hosts), variables["hostvars"], check_mode).lines(hosts)

    def _plot(self, hosts: Mapping[str, Mapping[str, Any]], path: str) -> List[str]:
        """Draw the plot beside the file. Returns the lines to show."""
        if self._task.args["playbook"] != "temp_buffer_cost" or not boolean(self._task.args.get("plot", False), strict=False):
            return []
        from ansible_collections.pgfleet.cache.plugins.plugin_utils import _flush_cost_plot, _flush_cost_report  # and matplotlib

        found = _flush_cost_report.lines_of(hosts)
        if not found or _flush_cost_plot.missing():
            return [_flush_cost_plot.missing()] if found else []
        try:
            return ["The plot is in %s." % printable(_flush_cost_plot.draw(found, path[: -len("json")] + "png"))]
        except Exception as error:  # of matplotlib or of the disk: the table and the results are there
            return ["There is no plot, since it could not be drawn: %s." % printable(" ".join(str(error).split()) or type(error).__name__, 300)]


def _figures(playbook: str, hosts: Mapping[str, Mapping[str, Any]]) -> List[str]:
    lines: List[str] = []
    for name, one in hosts.items():
        if playbook in FIGURES and (one["result"] or {}).get("runs"):
            try:
                lines += ["", *FIGURES[playbook](one["result"], name)]
            except (_tables.OddResultError, AttributeError, KeyError, TypeError, ValueError):  # a host may return anything
                lines += ["", "%s: its figures have unexpected types." % printable(name)]
    return lines
