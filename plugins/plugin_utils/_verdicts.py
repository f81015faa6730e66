# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict of a playbook on each host, from the variables set by its plays."""

from __future__ import annotations

import errno
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease, _rolling_restart

DONE, FAILED, UNREACHABLE, LOST, NOT_RUN = "done", "failed", "unreachable", "lost", "not_run"
NOT_BEGUN = "not_begun"  # because something else went wrong
TO_DO = "to_do"  # of status: nothing went wrong, but the operator has to act
# what Ansible adds to a result, and what is no one's business beyond it
_ADDED = ("invocation", "ansible_facts", "failed", "exception", "deprecations")

STDERR = 500  # characters of what a command has said
_REMEDIES = (
    (r"set permissions on the temporary files|unprivileged user|setfacl|chmod: invalid mode",
     "Install the package acl on the host, or set pipelining = true, so that one unprivileged user can become another."),
    (r"sudo[^ ]*: (command )?not found|sudo: No such file", "Install sudo on the host, or choose another ansible_become_method."),
    (r"a password is required|missing sudo password|incorrect (sudo|su) password|timeout .* waiting for privilege escalation",
     "Give the password with --ask-become-pass, or use another ansible_become_method."),
    (r"unknown user|user .* does not exist|no passwd entry", "Set pgfleet_become_user to the operating system user that owns the cluster."),
)


# The fact with the result of each playbook's role
RESULTS = {
    "cold_test": "cache_cold_test_result", "install": "cache_extension_result", "physical_io": "cache_io_workload_result",
    "rolling_restart": "cache_restart_result", "snapshot": "cache_snapshot_result", "status": "cache_status_result",
    "temp_buffer_cost": "cache_temp_buffer_cost_result", "unattended": "cache_unattended_result", "warmup": "cache_warmup_result",
}


def verdict(host: str, variables: Mapping[str, Any], playbook: str) -> Dict[str, Any]:
    """``verdict`` and ``message`` of one host, and its ``result`` without what Ansible adds."""
    result = variables.get(RESULTS[playbook])
    begun = result is not None or (playbook == "rolling_restart" and variables.get("cache_restart_host"))
    result = result if isinstance(result, Mapping) and not result.get("skipped") else {}
    if playbook == "rolling_restart":
        result = _rolling_restart.record_of(host, {host: variables}, variables.get("cache_restart_fleet") or {})
    ended, message = _judge(host, variables, result, playbook, bool(begun))
    return {"verdict": ended, "message": message, "result": without_additions(result)}


def _judge(host: str, variables: Mapping[str, Any], result: Mapping[str, Any], playbook: str, begun: bool) -> Tuple[str, str]:
    failure = str(variables.get("pgfleet_failure") or "")
    if failure:
        return UNREACHABLE if failure.startswith("unreachable") else LOST if failure.startswith("lost") else FAILED, failure
    if result.get("unreachable"):
        return UNREACHABLE, "unreachable: %s" % _one_line(result.get("msg", ""))
    if result.get("failed"):
        return FAILED, _one_line(result.get("msg", ""))
    if not begun:
        return NOT_RUN, "nothing was done: excluded by --tags, --skip-tags or --start-at-task, or another host ended the run"
    fleet = variables.get("cache_restart_fleet") or {}
    if playbook == "rolling_restart" and not variables.get("ansible_check_mode") and result.get("state") != "done" and fleet.get("skipped") != host:
        beside = host not in fleet.get("only", [host])
        return NOT_BEGUN, _one_line(fleet.get("problem") or ("not in cache_restart_only" if beside else "not started: another host has failed"))
    to_do = _to_do(result) if playbook == "status" else ""
    return (TO_DO, to_do) if to_do else (DONE, "")


def _to_do(result: Mapping[str, Any]) -> str:
    """What to do next on a host, from the result of host_status; nothing while another run is at work."""
    lease = result.get("lease")
    if _lease.at_work(lease):
        return ""
    what = lease.get("what") if isinstance(lease, Mapping) else None
    ended = "Run pgfleet.cache.%s again: it was interrupted." % what if isinstance(what, str) and what in RESULTS else ""
    return _one_line(result.get("to_do") or "") or ended


def verdicts(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], playbook: str) -> Dict[str, Dict[str, Any]]:
    """The verdict of each host; ``variables`` are Ansible's hostvars."""
    return {host: verdict(host, variables[host], playbook) for host in hosts}


def reason(failed: Mapping[str, Any]) -> str:
    """The reason why a task, or each failed item of its loop, has failed, and the remedy if the connection to the host is the cause."""
    items = [item for item in failed.get("results") or [failed] if isinstance(item, Mapping)]
    wrong = [item for item in items if item.get("failed")] or items
    texts = list(dict.fromkeys(message(item) for item in wrong))
    text = " ".join(filter(None, [*texts, str(failed.get("stderr") or "")[:STDERR]])) or "failed: see above"
    return _one_line(text + remedy("%s %s" % (text, failed.get("module_stderr") or "")))


def message(result: Mapping[str, Any]) -> str:
    """The message of a result, with what Ansible keeps elsewhere: the program that is missing, and what the host printed instead of a result."""
    text, command = str(result.get("msg") or "").strip(), result.get("cmd")
    if result.get("rc") == errno.ENOENT and re.search("Error executing command|No such file or directory", text) and command:
        program = command[0] if isinstance(command, list) else str(command).partition(" ")[0]
        return "There is no program %s on the host, or it is not in the PATH: install it." % program
    said = str(result.get("module_stderr") or "").strip()
    return "%s %s" % (text, said[-STDERR:]) if said and said not in text else text


def remedy(text: str) -> str:
    """The remedy if becoming another user has failed; otherwise empty."""
    return next((" " + what for pattern, what in _REMEDIES if re.search(pattern, text, re.IGNORECASE)), "")


def without_additions(result: Mapping[str, Any]) -> Dict[str, Any]:
    return {str(key): value for key, value in result.items() if key not in _ADDED and not str(key).startswith("_ansible")}


def not_done(found: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """The hosts on which something went wrong."""
    return [host for host, one in found.items() if one["verdict"] not in (DONE, NOT_BEGUN)]


def _one_line(text: Any) -> str:
    return printable(" ".join(str(text).split()))
