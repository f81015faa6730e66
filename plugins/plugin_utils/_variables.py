# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the roles: their argument specifications, and what these cannot express: ranges, forms and misspelt names."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.validation import check_type_dict
from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _deadline,
    _preload_place,
    _residency_restore,
    _residency_snapshot,
    _units,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _results

ROLES = os.path.normpath(os.path.join(os.path.dirname(__file__), "../../roles"))
OWN_TASKS = "tasks"  # the adapter that includes a task file of the user's
SECONDS = (1, 2147483647)
PERCENT = (0, 100)

# Numbers that no module checks before the first change. Both ends are allowed.
RANGES: Dict[str, Tuple[float, float]] = {
    "cache_cold_test_repeat": (1, 1000),
    "cache_cold_test_timeout": SECONDS,
    "cache_readiness_min_residency": PERCENT,
    "cache_readiness_patience": (0, SECONDS[1]),
    "cache_restart_attempts": (1, 1000),
    "cache_restart_drain_timeout": (0, SECONDS[1]),
    "cache_restart_max_age": SECONDS,
    "cache_restart_min_residency": PERCENT,
    "cache_restart_min_standbys": (0, 1000),
    "cache_restart_pause_timeout": SECONDS,
    "cache_restart_replay_timeout": SECONDS,
    "cache_restart_timeout": SECONDS,
    "cache_snapshot_keep": (1, _residency_snapshot.LARGEST_KEEP),
    "cache_temp_buffer_cost_allocated_blocks": (0, 2147483647),
    "cache_temp_buffer_cost_dirty_blocks": (0, 2147483647),
    "cache_temp_buffer_cost_rows_per_block": (1, 291),  # of an 8 kB page: MaxHeapTuplesPerPage
    "cache_temp_buffer_cost_workers": (1, 1024),
    "pgfleet_login_port": (1, 65535),
}
RANGES.update({"cache_warmup_" + option: ends for option, ends in _residency_restore.RANGES.items()})

# The playbooks' own variables
PLAYBOOKS = (
    "target", "pgfleet_results", "warmup_serial", "snapshot_serial", "install_serial", "cold_test_serial", "physical_io_serial", "temp_buffer_cost_serial",
    "temp_buffer_cost_plot",
)
KEYWORDS = tuple(name for name in PLAYBOOKS if name == "target" or name.endswith("_serial"))  # which only plays read
# Names that playbooks and roles set for themselves; they last until the run ends
OWN = re.compile(
    r"cache_restart_(answers|fleet|host|hosts|lease|left|remark|saved|would)|\w+_result"
    r"|pgfleet_(ended|entry_point|failure|playbook|plot|reached|report|role|run|target|when"
    r"|service_(boots|candidate|commands|evict|server|state|timeout|yields)|traffic_(alone|begun|bound|host|out|places|primary|remark|seen|step|timeout))"
)
_ALIKE = 0.8  # of 1: a variable of this likeness to a known one is a misspelt one


def as_list(value: Any) -> List[Any]:
    """A list as it is; text, as -e name=value gives it, is its parts between commas, or a list in YAML's brackets. None is the empty list."""
    if value is None:
        return []
    if not isinstance(value, str):
        return list(value) if isinstance(value, (list, tuple)) else [value]
    text = value.strip()
    if text.startswith("["):
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError:
            found = None
        if not isinstance(found, list):
            raise TypeError("'%s' starts like a YAML list but is not one." % printable(text, 200))
        return found
    return [one.strip() for one in text.split(",") if one.strip()]


def kinds(contract: str) -> List[str]:
    """The adapters of this contract, each a directory of that name; docs/adapters.md has the contracts."""
    folder = os.path.join(ROLES, "cache_common", "tasks", contract)
    return sorted(one for one in os.listdir(folder) if one != OWN_TASKS and os.path.isdir(os.path.join(folder, one)))


def described(kind: str) -> Dict[str, Any]:
    """What the rolling restart has to know of a kind of traffic: adapter.json of its directory."""
    with open(os.path.join(ROLES, "cache_common", "tasks", "traffic", kind, "adapter.json"), encoding="utf-8") as stream:
        found: Dict[str, Any] = json.load(stream)
    return found


def specification(role: str) -> Dict[str, Dict[str, Any]]:
    """The options of all entry points of a role."""
    with open(os.path.join(ROLES, role, "meta/argument_specs.yml"), encoding="utf-8") as file:
        entry_points = yaml.safe_load(file)["argument_specs"].values()
    return {name: option for one in entry_points for name, option in one["options"].items()}


def known(secrets: bool = True) -> Set[str]:
    """The names of all variables of the collection, with or without the secret ones."""
    found = set(PLAYBOOKS)
    for role in os.listdir(ROLES):
        found.update(name for name, option in specification(role).items() if secrets or not option.get("no_log"))
    return found


def unread(host: Mapping[str, Any], given: Mapping[str, Any], user: Optional[str]) -> List[str]:
    """A sentence for each variable that a playbook of this collection would not see, or that would take the place of its own. ``host`` has the variables
    of the inventory and ``given``, those of the command line, ``user`` is that of --become-user."""
    found = [
        "%s is set in the inventory, which a play does not see: give it with -e %s=..., or remove it." % (name, name)
        for name in KEYWORDS if name in host and name not in given
    ]
    if user not in (None, "", "root"):
        found.append("--become-user %s would take root's place: leave it out. The owner of the cluster is pgfleet_become_user." % printable(user, 100))
    if "ansible_become_user" in host:
        found.append("ansible_become_user is set, which takes the place of root and of pgfleet_become_user in every task: remove it.")
    fault = _results.fault(str(host.get("pgfleet_results") or ""))
    return found + ([fault] if fault else [])


def faults(roles: Sequence[str], names: Sequence[str], value: Callable[[str], Any]) -> List[str]:
    """A sentence for each wrong variable of these roles. ``names`` are those that the host has, ``value`` evaluates one of them."""
    options = {name: option for role in (*roles, "cache_common") for name, option in specification(role).items()}
    found = []
    values = {}
    for name in sorted(set(options) & set(names)):
        try:
            values[name] = value(name)
            if isinstance(values[name], str) and "{{" in values[name]:  # ansible-core 2.18 leaves it as it is
                raise ValueError(values.pop(name))
        except Exception as error:  # whatever a template of the user's can end with
            values.pop(name, None)
            text = "" if options[name].get("no_log") else ": %s" % printable(" ".join(str(error).split()), 300)
            found.append("%s cannot be evaluated%s." % (name, text.rstrip(".")))
    for name, one in values.items():
        fault = fault_of(name, options[name], one)
        if fault:
            found.append(fault)
    return found + _without_places(values) + misspelt(names)


def fault_of(name: str, option: Mapping[str, Any], value: Any) -> Optional[str]:
    """A sentence on what is wrong with this value; None if nothing is."""
    kind = option.get("type", "str")
    try:
        given = as_list(value) if kind == "list" and isinstance(value, str) and value.startswith("[") else value
    except TypeError as error:
        return "%s: %s" % (name, error)
    spec = {name: {key: one for key, one in option.items() if key in ("type", "elements", "choices", "options", "no_log")}}
    wrong = ArgumentSpecValidator(spec).validate({name: given}).error_messages
    if wrong:
        kind_wanted = re.search(r"unable to convert to (\w+)", wrong[0])
        if kind_wanted:  # in fewer words than Ansible's, which lists all values of a boolean
            return "%s is %s: it must be of type %s." % (name, "a secret" if option.get("no_log") else printable(value, 100), kind_wanted.group(1))
        return "%s: %s." % (name, printable(" ".join(wrong[0].split()).rstrip("."), 300))
    if value in ("", None):  # not set
        return None
    try:
        if name in RANGES and not RANGES[name][0] <= float(value) <= RANGES[name][1]:
            raise ValueError
    except (TypeError, ValueError):
        return "%s is %s: it must be a number from %d to %d." % (name, printable(value, 100), *RANGES[name])
    try:
        if name in FORMS:
            FORMS[name](name, value)
    except (ResidencyError, TypeError) as error:
        return printable(error, 500)
    return None


def misspelt(names: Sequence[str]) -> List[str]:
    """Variables whose names look like one of the collection's, and are none."""
    every = known()
    prefix = re.compile("(%s|pgfleet)_" % "|".join(map(re.escape, os.listdir(ROLES))))
    found = []
    for name in sorted(names):
        if prefix.match(name) and name not in every and not OWN.fullmatch(name):
            alike = difflib.get_close_matches(name, every, 1, _ALIKE)
            if alike:
                found.append("%s is not a variable of this collection: did you mean %s?" % (printable(name, 100), alike[0]))
    return found


def _without_places(values: Mapping[str, Any]) -> List[str]:
    """A host that would be taken for out of traffic, and would not be."""
    return [
        "cache_restart_traffic has %s, but cache_restart_%s is not set: name its places there, or set it to [] for a host that is behind none." % (one, one)
        for one in map(str, as_list(values.get("cache_restart_traffic")))
        if one in kinds("traffic") and described(one)["required"] and values.get("cache_restart_" + one) is None
    ]


def _named(name: str, value: str, check: Callable[..., Any], *arguments: Any) -> None:
    """Run the check, which does not know the variable, and add the variable's name to its error."""
    try:
        check(value, *arguments)
    except ResidencyError as error:
        raise ResidencyError("%s: %s" % (name, error)) from None


def _moment(option: str) -> Callable[[str, str], None]:
    return lambda name, value: _named(name, value, lambda text: _deadline.seconds_left(_deadline.parse(text, option), option=option))


def _parameter(option: str) -> Callable[[str, Any], None]:
    return lambda name, value: _named(name, value, partial(_preload_place.check_parameter, option))


def _batches(name: str, value: Any) -> None:
    sizes = as_list(value)
    if not sizes or not all(re.fullmatch("[1-9][0-9]*%?", str(size)) for size in sizes):
        raise ResidencyError("%s is %s: it must be a number, a percentage such as 30%%, or a list of these." % (name, printable(value, 100)))


def _places(kind: str) -> Callable[[str, Any], None]:
    """The entries of cache_restart_<kind>: a misspelt key would leave the default, such as all databases instead of one."""
    adapter = described(kind)

    def check(name: str, value: Any) -> None:
        for entry in map(check_type_dict, as_list(value)):
            strange = sorted(set(map(str, entry)) - {*adapter["required"], *adapter["place"]})
            if strange:
                raise ResidencyError("%s has an entry with %s: there can be %s." % (
                    name, printable(", ".join(strange), 200), ", ".join([*adapter["required"], *adapter["place"]])))
            missing = [key for key in adapter["required"] if entry.get(key) in (None, "")]
            if missing:
                raise ResidencyError("%s has an entry without %s." % (name, " and ".join(missing)))
            for key, default in adapter["place"].items():
                if isinstance(default, int) and not re.fullmatch("[0-9]+", str(entry.get(key, default))):
                    raise ResidencyError("%s of an entry of %s is '%s': it must be a whole number." % (key, name, printable(entry[key], 100)))

    return check


def _adapter(contract: str) -> Callable[[str, Any], None]:
    """A kind, or a task file of the user's; where several can be, each of them."""

    def check(name: str, value: Any) -> None:
        there = kinds(contract)
        for kind in map(str, as_list(value) if contract == "traffic" else [value]):
            if kind not in there and not os.path.isfile(kind):
                raise ResidencyError("Task file %s does not exist on the controller: correct %s, or use %s." % (
                    printable(kind, 200), name, " or ".join(there)))

    return check


def _file(name: str, value: str) -> None:
    if not os.path.isfile(value):
        raise ResidencyError("%s is '%s': there is no such file on the controller." % (name, printable(value, 200)))


def _port(name: str, value: Any) -> None:
    """As systemd's ListenStream has it, which takes no names of hosts."""
    address, dummy, port = str(value).rpartition(":")
    try:
        if address:
            ipaddress.ip_address(address[1:-1] if address.startswith("[") and address.endswith("]") else address if ":" not in address else "")
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise ValueError
    except ValueError:
        raise ResidencyError("%s is '%s': it must be a port, or an IP address and a port such as 10.0.0.1:8432 or [::1]:8432." % (
            name, printable(value, 100))) from None


def _absolute(name: str, value: str) -> None:
    if not os.path.isabs(value):
        raise ResidencyError("%s is '%s': it must be an absolute path." % (name, printable(value, 200)))


def _absolute_file(name: str, value: str) -> None:
    """In a role, a relative name is that of one of its own files first."""
    _absolute(name, value)
    _file(name, value)


# Values whose form no module checks before the first change; an empty text means that there is none
FORMS: Dict[str, Callable[[str, Any], Any]] = {
    "cache_cold_test_snapshot": lambda name, value: _named(name, value, _residency_snapshot.check_name, True),
    "cache_io_workload_conf": _file,
    "cache_io_workload_limit": _units.parse_bytes,
    "cache_readiness_agent": _port,
    "cache_readiness_http": _port,
    "cache_readiness_snapshot": lambda name, value: _named(name, value, _residency_snapshot.check_name, True),
    "cache_restart_max_lag": _units.parse_bytes,
    "cache_restart_min_free": _units.parse_bytes,
    "cache_restart_serial": _batches,
    "cache_restart_snapshot": lambda name, value: _named(name, value, _residency_snapshot.check_name, False),
    "cache_restart_before_in": _absolute_file,
    "cache_restart_traffic": _adapter("traffic"),
    "cache_unattended_file": _absolute,
    "cache_warmup_deadline": _moment("deadline"),
    "cache_warmup_hold_until": _moment("hold_until"),
    "pgfleet_service_manager": _adapter("service"),
    "pgfleet_state_directory": _absolute,
}
FORMS.update({"cache_warmup_" + option: parse for option, parse in _residency_restore.FORMS.items()})
FORMS.update({"cache_unattended_" + name: _parameter(name) for name in _preload_place.PARAMETERS})
FORMS.update({"cache_restart_" + kind: _places(kind) for kind in kinds("traffic")})
