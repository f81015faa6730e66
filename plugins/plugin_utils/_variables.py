# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a host's variables against the argument specifications of the roles and the ranges here.

A value on the command line (-e name=value) is text: it is right if it converts to the type of the variable.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.validation import (
    check_type_bool,
    check_type_dict,
    check_type_float,
    check_type_int,
    check_type_str,
)
from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _connection,
    _deadline,
    _io_workload,
    _residency_restore,
    _residency_snapshot,
    _temp_buffer_cost,
    _units,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

ROLES = os.path.normpath(os.path.join(os.path.dirname(__file__), "../../roles"))
OWN_TASKS = "tasks"  # the adapter that includes a task file of the user's
PORTS = (1, 65535)
SECONDS = (1, 2147483647)
PERCENT = (0, 100)

# Both ends are allowed. Every variable of a role that is a number is here.
RANGES: Dict[str, Tuple[float, float]] = {
    "cache_cold_test_repeat": (1, 1000),
    "cache_cold_test_timeout": SECONDS,
    "cache_io_workload_load_sessions": (1, _io_workload.MOST_SCHEMAS),
    "cache_io_workload_schemas": (1, _io_workload.MOST_SCHEMAS),
    "cache_io_workload_seed": (0, 2147483647),
    "cache_io_workload_sessions": (1, _io_workload.MOST_SESSIONS),
    "cache_io_workload_update_pct": PERCENT,
    "cache_io_workload_update_work_unit": (1, _io_workload.LARGEST_SCALE),
    "cache_io_workload_work_unit": (1, _io_workload.LARGEST_SCALE),
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
    "cache_temp_buffer_cost_iterations": (1, _temp_buffer_cost.MOST_ITERATIONS),
    "cache_temp_buffer_cost_rows_per_block": (1, 291),  # of an 8 kB page: MaxHeapTuplesPerPage
    "cache_temp_buffer_cost_seed": (0, 2147483647),
    "cache_temp_buffer_cost_workers": (1, 1024),
    "pgfleet_login_port": PORTS,
    "pgfleet_storage_limit": (1, 1000),
}
RANGES.update({"cache_warmup_" + option: ends for option, ends in _residency_restore.RANGES.items()})


def _size(name: str, value: str) -> None:
    _units.parse_bytes(name, value)


def _snapshot_name(name: str, value: str) -> None:
    _named(name, value, _residency_snapshot.check_name, False)


def _snapshot_or_generation(name: str, value: str) -> None:
    _named(name, value, _residency_snapshot.check_name, True)


def _named(name: str, value: str, check: Callable[..., Any], *arguments: Any) -> None:
    """Run the check, which does not know the variable, and add the variable's name to its error."""
    try:
        check(value, *arguments)
    except ResidencyError as error:
        raise ResidencyError("%s: %s" % (name, error)) from None


def _moment(option: str) -> Callable[[str, str], None]:
    return lambda name, value: _named(name, value, lambda text: _deadline.seconds_left(_deadline.parse(text, option), option=option))


def _days(name: str, value: Any) -> None:
    try:
        days = check_type_float(str(value) if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise ResidencyError("%s is %s: it must be a number of days." % (name, _shown(value, {}))) from None
    _residency_snapshot.check_days(name, days)


def _no_connection_string(name: str, value: str) -> None:
    if _connection.CONNECTION_STRING.search(str(value)):
        raise ResidencyError("%s is a connection string: give its parts as variables, and the password as pgfleet_login_password." % name)


def _batches(name: str, value: Any) -> None:
    sizes = value if isinstance(value, list) else as_list(value)
    if not sizes or not all(re.fullmatch("[1-9][0-9]*%?", str(one)) for one in sizes):
        raise ResidencyError("%s is %s: it must be a number, a percentage such as 30%%, or a list of these." % (name, value))


def batches(hosts: Sequence[str], serial: Any) -> List[List[str]]:
    """The batches of Ansible's ``serial``: a number, a percentage, or a list of these whose last one repeats."""
    sizes = [str(one) for one in (serial if isinstance(serial, list) else as_list(serial))]
    found: List[List[str]] = []
    begun = 0
    while begun < len(hosts):
        size = sizes[min(len(found), len(sizes) - 1)] if sizes else "1"
        number = re.fullmatch("([1-9][0-9]*)(%?)", size)
        count = int(number.group(1)) if number else 1
        if number and number.group(2):
            count = max(1, count * len(hosts) // 100)
        found.append(list(hosts[begun : begun + count]))
        begun += count
    return found


def kinds(contract: str) -> List[str]:
    """The adapters of this contract, each a directory of that name; docs/adapters.md has the contracts."""
    folder = os.path.join(ROLES, "cache_common", "tasks", contract)
    return sorted(one for one in os.listdir(folder) if one != OWN_TASKS and os.path.isdir(os.path.join(folder, one)))


def described(kind: str) -> Dict[str, Any]:
    """What the rolling restart has to know of a kind of traffic: adapter.json of its directory."""
    with open(os.path.join(ROLES, "cache_common", "tasks", "traffic", kind, "adapter.json"), encoding="utf-8") as stream:
        found: Dict[str, Any] = json.load(stream)
    return found


def _places(kind: str) -> Callable[[str, Any], None]:
    """The entries of cache_restart_<kind>: a misspelt key would leave the default, such as all databases instead of one."""
    known = described(kind)

    def check(name: str, value: Any) -> None:
        for entry in map(check_type_dict, as_list(value)):
            strange = sorted(set(map(str, entry)) - {*known["required"], *known["place"]})
            if strange:
                raise ResidencyError("%s has an entry with %s: there can be %s." % (
                    name, printable(", ".join(strange), 200), ", ".join([*known["required"], *known["place"]])))
            missing = [key for key in known["required"] if entry.get(key) in (None, "")]
            if missing:
                raise ResidencyError("%s has an entry without %s." % (name, " and ".join(missing)))
            for key, default in known["place"].items():
                if isinstance(default, int):
                    _number("%s of an entry of %s" % (key, name), entry.get(key, default), check_type_int)

    return check


def _adapter(contract: str) -> Callable[[str, Any], None]:
    """A kind, or a task file of the user's; where several can be, each of them."""

    def check(name: str, value: Any) -> None:
        known = kinds(contract)
        for one in map(str, as_list(value) if contract == "traffic" else [value]):
            if one not in known and not os.path.isfile(one):
                raise ResidencyError("Task file %s does not exist on the controller: correct %s, or use %s." % (
                    printable(one, 200), name, _either(known)))

    return check


def _blocks(name: str, value: Any) -> None:
    low, high = _temp_buffer_cost.LEAST, _temp_buffer_cost.LARGEST
    sizes = list(map(str, as_list(value)))
    for one in sizes:
        if not re.fullmatch("[0-9]{1,9}", one) or not low <= int(one) <= high:
            raise ResidencyError("%s has '%s': each must be a whole number from %d to %d." % (name, printable(one, 100), low, high))
    if len(set(map(int, sizes))) < len(sizes) or len(sizes) > _temp_buffer_cost.MOST_SIZES:
        raise ResidencyError("%s has one size twice, or more than %d: name each once." % (name, _temp_buffer_cost.MOST_SIZES))


def _absolute(name: str, value: str) -> None:
    if not os.path.isabs(value):
        raise ResidencyError("%s is '%s': it must be an absolute path." % (name, printable(value, 200)))


def _file(name: str, value: str) -> None:
    if not os.path.isfile(value):
        raise ResidencyError("%s is '%s': there is no such file on the controller." % (name, printable(value, 200)))


# Values whose form the type does not tell; an empty text means that there is none
FORMS: Dict[str, Callable[[str, Any], Any]] = {
    "cache_io_workload_conf": _file,
    "cache_io_workload_limit": _size,
    "cache_io_workload_load_timeout": _units.parse_seconds,
    "cache_io_workload_run_time": _units.parse_seconds,
    "cache_io_workload_scale": lambda name, value: _named(name, value, _io_workload.blocks_of),
    "cache_restart_max_lag": _size,
    "cache_restart_min_free": _size,
    "cache_restart_serial": _batches,
    "cache_temp_buffer_cost_rate": _size,
    "cache_temp_buffer_cost_sizes": _blocks,
    "cache_temp_buffer_cost_time_limit": _temp_buffer_cost.parse_time_limit,
    "cold_test_serial": _batches,
    "physical_io_serial": _batches,
    "temp_buffer_cost_serial": _batches,
    "cache_restart_snapshot": _snapshot_name,
    "cache_restart_traffic": _adapter("traffic"),
    "cache_cold_test_snapshot": _snapshot_or_generation,
    "cache_snapshot_keep_days": _days,
    "cache_snapshot_name": _snapshot_name,
    "cache_warmup_deadline": _moment("deadline"),
    "cache_warmup_hold_until": _moment("hold_until"),
    "cache_warmup_max_io_pressure": lambda name, value: _number(name, value, check_type_int),
    "cache_warmup_snapshot": _snapshot_or_generation,
    "pgfleet_login_db": _no_connection_string,
    "pgfleet_login_host": _no_connection_string,
    "pgfleet_service_manager": _adapter("service"),
    "pgfleet_state_directory": _absolute,
}
FORMS.update({"cache_warmup_" + option: parse for option, parse in _residency_restore.FORMS.items()})
FORMS.update({"cache_restart_" + kind: _places(kind) for kind in kinds("traffic")})
REQUIRED = ("cache_cold_test_queries", "cache_cold_test_states")  # lists that cannot be empty

# The playbooks' own variables, and names that playbooks and roles set for themselves: they last until the run ends
PLAYBOOKS = ("target", "cold_test_serial", "physical_io_serial", "temp_buffer_cost_serial", "temp_buffer_cost_plot", "pgfleet_results")
OWN = re.compile(
    r"cache_restart_(answers|cluster|fleet|held|hosts|lease|out|primary_now|problem|remark|roll|takeover)|\w+_result"
    r"|pgfleet_(batch|begun|check|entry_point|failure|fleet_batch|hosts|items|known|plot|problem|reached|report|role|target|turn|verdicts"
    r"|service_(commands|evict|server|state|timeout)|traffic_(alone|begun|host|out|places|primary|remark|seen|step|timeout))"
)

# What it takes to ask a host what it is, and to have its clients go on
ASKED = (
    "pgfleet_become_user", "pgfleet_login_db", "pgfleet_login_user", "pgfleet_login_password", "pgfleet_login_host", "pgfleet_login_port",
    "pgfleet_login_unix_socket", "pgfleet_state_directory", "cache_restart_traffic", *("cache_restart_" + kind for kind in kinds("traffic")),
)

# In the words of a message
_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "path": "a path",
    "list": "a list",
    "dict": "a dictionary",
}
_ALIKE = 0.8  # of 1: a variable of this likeness to a known one is a misspelt one


class Spec(NamedTuple):
    """The variables of one playbook."""

    options: Dict[str, Dict[str, Any]]
    known: Set[str]  # every variable of the collection, also of its other roles


def as_list(value: Any) -> List[Any]:
    """A list as it is; text is one in YAML's brackets, or its parts between commas. None and the empty text are the empty list."""
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


def read_spec(roles: Mapping[str, str], extra: Mapping[str, Dict[str, Any]]) -> Spec:
    """The specification of these roles, each with its entry point, and of the playbook's own variables."""
    options: Dict[str, Dict[str, Any]] = {}
    known: Set[str] = {*extra, *PLAYBOOKS}
    for role in sorted(os.listdir(ROLES)):
        entry_points = _entry_points(role)
        for spec in entry_points.values():
            known.update(spec["options"])
        if role in roles:
            options.update(entry_points[roles[role]]["options"])
    options.update(extra)
    return Spec(options, known)


def _entry_points(role: str) -> Dict[str, Any]:
    with open(os.path.join(ROLES, role, "meta/argument_specs.yml"), encoding="utf-8") as file:
        found: Dict[str, Any] = yaml.safe_load(file)["argument_specs"]
    return found


def shown() -> Set[str]:
    """Every variable of the collection that is no secret."""
    found = set(PLAYBOOKS)
    for role in os.listdir(ROLES):
        for entry_point in _entry_points(role).values():
            found.update(name for name, option in entry_point["options"].items() if not option.get("no_log"))
    return found


class Imported(Mapping[str, Any]):
    """A host's variables, with those of a playbook that imports the collection's, which it has not: ``template`` evaluates them for this host."""

    def __init__(self, host: Mapping[str, Any], imported: Mapping[str, Any], template: Callable[[Any], Any]) -> None:
        self._host, self._imported, self._template = host, imported, template

    def __getitem__(self, name: str) -> Any:
        return self._template(self._imported[name]) if name in self._imported else self._host[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*map(str, self._host), *self._imported]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def faults(spec: Spec, variables: Mapping[str, Any], names: Sequence[str]) -> List[str]:
    """One sentence for each wrong variable. ``names`` are those that the host has, ``variables`` evaluates one of them.

    """
    found = []
    for name in sorted(facts_of(variables, names) & set(spec.options)):
        found.append("%s is set as a fact, which is not accepted: remove it from the fact cache." % name)
    for name in sorted(spec.options):
        if name not in names:
            continue
        option = spec.options[name]
        try:
            value = variables[name]
        except Exception as error:  # whatever a template of the user's can end with
            text = "" if option.get("no_log") else ": %s" % printable(" ".join(str(error).split()), 300)
            found.append("%s cannot be evaluated%s" % (name, text))
            continue
        if isinstance(value, str) and "{{" in value:  # ansible-core 2.18 leaves it as it is
            found.append("%s cannot be evaluated: it is %s" % (name, _shown(value, option)))
            continue
        fault = fault_of(name, option, value)
        if fault:
            found.append(fault)
    return found + _without_places(spec, variables, names) + misspelt(spec, names)


def _without_places(spec: Spec, variables: Mapping[str, Any], names: Sequence[str]) -> List[str]:
    """A host that is believed to go out of traffic, and does not."""
    try:
        ways = as_list(variables["cache_restart_traffic"]) if "cache_restart_traffic" in spec.options and "cache_restart_traffic" in names else []
    except Exception:  # a fault already
        return []
    return [
        "cache_restart_traffic has %s, but cache_restart_%s is not set: name its places there, or set it to [] for a host that is behind none." % (one, one)
        for one in ways if one in kinds("traffic") and "cache_restart_" + one not in names
    ]


def facts_of(variables: Mapping[str, Any], names: Sequence[str]) -> Set[str]:
    """Names of what this host has returned as a fact, in an earlier run with a cache of facts or in a playbook before."""
    facts = variables["ansible_facts"] if "ansible_facts" in names else {}
    return {str(name) for name in facts}


def given(spec: Spec, variables: Mapping[str, Any], names: Sequence[str]) -> Dict[str, Any]:
    """The values of all variables of the collection that the host has, but secrets, and those that cannot be evaluated."""
    found = {}
    for name in sorted(shown() & spec.known & set(names)):
        try:
            found[name] = variables[name]
        except Exception:  # of this playbook's it is a fault, and of others' none
            continue
    return found


def defaults() -> Dict[str, Any]:
    """The defaults of all variables of the collection that are not secret and whose default is not a template."""
    found: Dict[str, Any] = {}
    for role in sorted(os.listdir(ROLES)):
        for entry_point in _entry_points(role).values():
            for name, option in entry_point["options"].items():
                if not option.get("no_log") and "{{" not in str(option.get("default")):
                    found[name] = option.get("default")
    return found


def checked(check: Mapping[str, Any], host: str, name: str, *default: Any) -> Any:
    """The value of a variable as it was when check_variables saw it. Later a host can have returned a fact of that name."""
    hosts = check.get("given")
    if not isinstance(hosts, Mapping) or host not in hosts:
        raise AnsibleFilterError(
            "The variables of %s were not checked: --start-at-task skipped the first task, 'Check the hosts and their variables'."
            % printable(host)
        )
    if name in hosts[host]:
        return hosts[host][name]
    return default[0] if default else check["defaults"][name]


def asked(check: Mapping[str, Any], host: str, variables: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """How to ask a host, which can be beyond --limit; ``variables`` are Ansible's hostvars, for secrets and for hosts that were not checked."""
    there = variables[host]
    known = isinstance(check.get("given"), Mapping) and host in check["given"]
    return {
        name: checked(check, host, name) if known and name in check["defaults"] else there[name]
        for name in ASKED if (known and name in check["defaults"]) or name in there
    }


def misspelt(spec: Spec, names: Sequence[str]) -> List[str]:
    """Variables that look like one of the collection's. Facts and results of an earlier run have names of their own."""
    found = []
    for name in sorted(names):
        if not re.match("(%s|pgfleet)_" % "|".join(map(re.escape, os.listdir(ROLES))), name) or name in spec.known or OWN.fullmatch(name):
            continue
        alike = difflib.get_close_matches(name, spec.known, 1, _ALIKE)
        if alike:
            found.append("%s is not a variable of this collection: did you mean %s?" % (printable(name, 100), alike[0]))
    return found


def fault_of(name: str, option: Mapping[str, Any], value: Any) -> Optional[str]:
    """What is wrong with this value, as a sentence; None if nothing is."""
    try:
        _check(name, option, value)
    except ResidencyError as error:
        return printable(error, 500)
    return None


def _check(name: str, option: Mapping[str, Any], value: Any) -> None:
    kind = option.get("type", "str")
    if value is None:
        raise ResidencyError("%s is empty: it must be %s." % (name, _TYPES.get(kind, "a value")))
    if kind == "list":
        _check_list(name, option, value)
    elif kind == "dict":
        _converted(name, kind, value, check_type_dict, option)
    elif kind == "bool":
        _converted(name, kind, value, check_type_bool, option)
    elif kind in ("int", "float"):
        _number(name, value, check_type_int if kind == "int" else check_type_float)
    elif kind in ("str", "path"):
        if isinstance(value, (list, dict)):
            raise ResidencyError("%s is %s: it must be text." % (name, _shown(value, option)))
        value = _converted(name, kind, value, check_type_str, option)
    if "choices" in option and kind != "list" and value not in option["choices"]:
        raise ResidencyError("%s is %s: it must be %s." % (name, _shown(value, option), _either(option["choices"])))
    if name in FORMS and value != "":
        FORMS[name](name, value)


def _check_list(name: str, option: Mapping[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        raise ResidencyError("%s is a dictionary: it must be a list." % name)
    try:
        elements = as_list(value)
    except TypeError as error:
        raise ResidencyError("%s: %s" % (name, error)) from None
    if not elements and name in REQUIRED:
        raise ResidencyError("%s is empty: there is nothing to measure." % name)
    for element in elements:
        if "choices" in option and element not in option["choices"]:
            raise ResidencyError("%s has %s: each must be %s." % (name, _shown(element, option), _either(option["choices"])))
        if option.get("elements") == "dict":
            if not isinstance(element, dict):
                raise ResidencyError("%s has %s: each must be a dictionary%s." % (name, _shown(element, option), _keys(option)))
            if option.get("options"):
                wrong = ArgumentSpecValidator({key: _plain(one) for key, one in option["options"].items()}).validate(element).error_messages
                if wrong:
                    raise ResidencyError("%s: %s%s." % (name, wrong[0].rstrip("."), _keys(option)))
        elif isinstance(element, (list, dict)):
            raise ResidencyError("%s has %s: each must be text." % (name, _shown(element, option)))


def _number(name: str, value: Any, convert: Callable[[Any], Any]) -> None:
    low, high = RANGES.get(name, (-math.inf, math.inf))
    words = "a whole number" if convert is check_type_int else "a number"
    words += " from %d to %d" % (low, high) if name in RANGES else ""
    try:
        # which a boolean would be too
        number = convert(str(value) if isinstance(value, bool) else value)
        right = math.isfinite(number) and low <= number <= high
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right:
        raise ResidencyError("%s is %s: it must be %s." % (name, _shown(value, {}), words))


def _converted(name: str, kind: str, value: Any, convert: Callable[[Any], Any], option: Mapping[str, Any]) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise ResidencyError("%s is %s: it must be %s." % (name, _shown(value, option), _TYPES[kind])) from None


def _plain(option: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in option.items() if key in ("type", "elements", "choices", "required", "options", "no_log")}


def _shown(value: Any, option: Mapping[str, Any]) -> str:
    return "a secret" if option.get("no_log") else "'%s'" % printable(value, 200)


def _either(choices: Sequence[Any]) -> str:
    return " or ".join(filter(None, [", ".join(map(str, choices[:-1])), str(choices[-1])]))


def _keys(option: Mapping[str, Any]) -> str:
    return " with %s" % ", ".join(option["options"]) if option.get("options") else ""
