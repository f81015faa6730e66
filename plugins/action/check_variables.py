# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing of this leaves the controller: a host's variables are judged before it is reached."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Set

from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _facts, _lease, _results, _storage, _variables

RESULTS = "~/.local/state/pgfleet/results"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        hosts: List[str] = self._task.args["hosts"]
        target = str(self._task.args.get("target", ""))
        if not hosts or not target.strip():
            result.update(failed=True, msg="No host of this run is in '%s': set a group or hosts of the inventory with -e target=..." % printable(target))
            return result
        if _facts.are_variables():
            result.update(failed=True, msg="Facts of hosts become variables here, and could run commands: set inject_facts_as_vars = False"
                          " in the section [defaults] of ansible.cfg, or ANSIBLE_INJECT_FACT_VARS=False. Nothing was changed.")
            return result
        # these are the same for all hosts, and this host's facts go before them
        said = _variables.facts_of(task_vars or {}, list(task_vars or {})) & set(_variables.PLAYBOOKS)
        if said:
            result.update(failed=True, msg="%s is set as a fact, which is not accepted: remove it from the fact cache."
                          " Nothing was changed." % ", ".join(sorted(said)))
            return result
        spec = _variables.read_spec(self._task.args.get("roles") or {}, self._task.args.get("variables") or {})
        every = (task_vars or {})["hostvars"]
        imported = self._imported(task_vars or {}, spec.known)
        refused = {}
        given = {}
        for host in hosts:
            variables = _variables.Imported(every[host], imported, Templar(loader=self._loader, variables={**every.raw_get(host), **imported}).template)
            names = list(variables)
            found = _variables.faults(spec, variables, names)
            if found:
                refused[host] = " ".join(found)  # and what it was given is not used, and could hold a password in the wrong place
            else:
                given[host] = _variables.given(spec, variables, names)
        shared: Dict[str, Any] = {}
        if "pgfleet_storage_group" in spec.options:
            shared = _storage.shares(list(given), {"given": given, "defaults": _variables.defaults()})
            for host, text in _storage.disagreements(shared).items():
                refused[host] = text
                del given[host], shared[host]
        # fixed here, before any host is reached: later, a host's facts could say something else
        directory = next(iter(given.values()), {}).get("pgfleet_results", RESULTS)
        started = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        result.update(changed=False, refused=refused, hosts=hosts, directory=str(directory or ""), started=started, lease=_lease.mine())
        result["batches"] = _variables.batches(list(given), self._task.args.get("serial"))
        result.update(turns=_storage.turns(list(given), shared), waits=_storage.waits(list(given), shared))
        wrong = []
        if refused and (self._task.args.get("together") or len(refused) == len(hosts)):
            lines = ["%s: %s" % (printable(host), text) for host, text in refused.items()]
            same = len(set(refused.values())) == 1
            wrong.append(refused[next(iter(refused))] if same else " ".join(lines))
        elif result["directory"]:
            try:
                _results.prepare(result["directory"], not self._task.check_mode)
            except OSError as error:
                wrong.append("The results cannot be written: %s. Correct pgfleet_results; empty means no file." % printable(error))
        if wrong:
            result.update(failed=True, msg="%s Nothing was changed." % " ".join(wrong))
        else:  # of 40 hosts that is much to show
            result.update(given=given, defaults=_variables.defaults(), _ansible_verbose_override=True)
        return result

    def _imported(self, here: Mapping[str, Any], known: Set[str]) -> Dict[str, Any]:
        """The collection's variables that a playbook of the user's has set where it imports this one, which hostvars do not have.

        Not templated. What has precedence over the variables of a play, such as -e, is not here, and is in hostvars.
        """
        block = getattr(self._task, "_parent", None)
        own = getattr(getattr(block, "_play", None), "vars", None) or {}
        return {str(name): value for name, value in own.items() if name in known and name in here and here[name] == value}
