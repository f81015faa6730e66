# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every variable of the argument specifications: wrong values are named, and text that converts is right."""

from __future__ import annotations

import glob
import json
import os
import re

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _variables

ENTRY_POINTS = {
    "cache_cold_test": "main", "cache_extension": "main", "cache_io_workload": "main", "cache_restart": "main", "cache_snapshot": "main",
    "cache_temp_buffer_cost": "main", "cache_warmup": "start",
}
SPEC = _variables.read_spec(ENTRY_POINTS, {})
OPTIONS = sorted(SPEC.options)
# A right value that is not empty, as text, for what has a form of its own
TEXTS = {
    "cache_cold_test_queries": '[{"name": "one", "query": "SELECT 1"}]',
    "cache_cold_test_settings": "work_mem=64MB",
    "cache_io_workload_conf": __file__,
    "cache_io_workload_limit": "2GB",
    "cache_io_workload_load_timeout": "6h",
    "cache_io_workload_run_time": "10min",
    "cache_io_workload_scale": "131072",
    "cache_restart_haproxy": '[{"host": "lb1", "backend": "read"}]',
    "cache_restart_pgbouncer": '[{"host": "lb1", "database": "shop"}]',
    "cache_restart_max_lag": "64MB",
    "cache_restart_min_free": "512MB",
    "cache_restart_serial": "1, 50%",
    "pgfleet_state_directory": "/var/lib/pgfleet",
    "cache_restart_traffic": "haproxy, " + __file__,
    "cache_snapshot_keep_days": "7.5",
    "cache_temp_buffer_cost_rate": "1GB",
    "cache_temp_buffer_cost_sizes": "128, 4194304",
    "cache_temp_buffer_cost_time_limit": "90 min",
    "cache_warmup_budget": "8GB",
    "cache_warmup_max_age": "36h",
    "cache_warmup_rate": "200 MB/s",
    "cache_warmup_deadline": "2099-11-21 06:00+01:00",
    "cache_warmup_hold_until": "2099-11-21 06:30+01:00",
    "cache_warmup_max_io_pressure": "40",
    "pgfleet_service_manager": "pg_ctlcluster",
}


def fault(name, value):
    return _variables.fault_of(name, SPEC.options[name], value)


def right(name):
    option = SPEC.options[name]
    if name in TEXTS:
        return TEXTS[name]
    if "choices" in option:
        return ",".join(option["choices"]) if option["type"] == "list" else option["choices"][0]
    if name in _variables.RANGES:
        return str(_variables.RANGES[name][1])
    return {"bool": "no", "list": "one, two", "str": "warm", "path": "/tmp/x"}[option["type"]]


def wrong(name):
    option = SPEC.options[name]
    if name in ("cache_restart_serial", "cache_warmup_max_io_pressure"):
        return "none of them"
    return {
        "bool": "maybe", "int": "ten", "float": "ninety", "list": {"one": 1}, "dict": "no pair", "str": ["one"], "path": ["one"], "raw": None,
    }[option["type"]]


@pytest.mark.parametrize("name", OPTIONS)
def test_text_that_converts(name):
    assert fault(name, right(name)) is None


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_value_is_named(name):
    found = fault(name, wrong(name))
    assert found is not None and found.startswith(name) and len(found) < 400


@pytest.mark.parametrize("name", OPTIONS)
def test_the_default_is_right(name):
    default = SPEC.options[name].get("default")
    if name == "cache_cold_test_queries":
        assert fault(name, default) == "cache_cold_test_queries is empty: there is nothing to measure."
    elif isinstance(default, str) and "{{" in default:
        assert default.count("{{") == 1
    else:
        assert fault(name, default) is None


@pytest.mark.parametrize("name", [name for name in OPTIONS if "choices" in SPEC.options[name]])
def test_a_misspelt_choice(name):
    option = SPEC.options[name]
    misspelt = option["choices"][0][::-1]
    assert "'%s': " % misspelt in fault(name, misspelt) and " or %s." % option["choices"][-1] in fault(name, misspelt)


@pytest.mark.parametrize("name", [name for name in OPTIONS if SPEC.options[name]["type"] in ("int", "float")])
def test_every_number_has_a_range(name):
    low, high = _variables.RANGES[name]
    assert fault(name, low) is None and fault(name, str(high)) is None
    for value in (low - 1, str(high + 1), "nan", "inf", True, "", None, [1]):
        assert fault(name, value).startswith(name + " is "), value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache_temp_buffer_cost_sizes", "128, 256, 0128", "cache_temp_buffer_cost_sizes has one size twice, or more than 100: name each once."),
        ("cache_temp_buffer_cost_time_limit", "8d", "cache_temp_buffer_cost_time_limit is 8d: it must be at most 7 days."),
        ("cache_restart_gate", "wiat", "cache_restart_gate is 'wiat': it must be fail, warn or wait."),
        ("cache_restart_primary", "Skip", "cache_restart_primary is 'Skip': it must be in_place, switchover or skip."),
        ("cache_snapshot_keep", "0", "cache_snapshot_keep is '0': it must be a whole number from 1 to 1000000."),
        ("cache_warmup_rate", "fast", "cache_warmup_rate is 'fast': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
        ("cache_warmup_snapshot", "a b", "cache_warmup_snapshot: invalid snapshot name 'a b': use letters, digits, '_', '.' and '-', at most 63,"
            " starting with a"
         " letter or digit, and @ with a number for one generation."),
        ("cache_restart_max_lag", "10 minutes",
         "cache_restart_max_lag is '10 minutes': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
        ("cache_restart_abort", "abort", "cache_restart_abort is 'abort': it must be true or false."),
        ("pgfleet_waive", "[db2", "pgfleet_waive: '[db2' starts like a YAML list but is not one."),
        ("pgfleet_waive", "db2, db3", None),
        ("pgfleet_take_over", ["alice"], "pgfleet_take_over is '['alice']': it must be text."),
        ("pgfleet_state_directory", "pgfleet", "pgfleet_state_directory is 'pgfleet': it must be an absolute path."),
        ("cache_restart_serial", "1,x", "cache_restart_serial is 1,x: it must be a number, a percentage such as 30%, or a list of these."),
        ("cache_restart_serial", [], "cache_restart_serial is []: it must be a number, a percentage such as 30%, or a list of these."),
        ("cache_cold_test_states", "both_cold,cold", "cache_cold_test_states has 'cold': each must be both_cold, buffers_cold,"
         " restored_page_cache, restored or both_warm."),
        ("cache_cold_test_queries", "select 1",
         "cache_cold_test_queries has 'select 1': each must be a dictionary with name, query, path, settings."),
        ("cache_restart_traffic", "[haproxy", "cache_restart_traffic: '[haproxy' starts like a YAML list but is not one."),
        ("pgfleet_service_manager", "/nowhere/x.yml",
         "Task file /nowhere/x.yml does not exist on the controller: correct pgfleet_service_manager, or use pg_ctlcluster or systemd."),
        ("pgfleet_login_password", ["s3cret"], "pgfleet_login_password is a secret: it must be text."),
        ("pgfleet_login_db", "x", None),
        ("cache_warmup_deadline", "tonight", "cache_warmup_deadline: deadline is 'tonight': it must be a date and time with a zone, such as"
         " '2026-11-21 06:00+01:00' or '2026-11-21 06:00 Europe/Berlin'."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_messages(name, value, expected):
    assert fault(name, value) == expected


@pytest.mark.parametrize(("value", "right"), [(1, True), ("50%", True), ([1, "100%"], True), ("abc", False), (0, False)], ids=str)
def test_the_batches_of_a_cold_test(value, right):
    """Anything else would end in a traceback of Ansible's."""
    assert (_variables.fault_of("cold_test_serial", {"type": "raw"}, value) is None) is right


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        (1, [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("2", [["a", "b"], ["c", "d"], ["e"]]),
        ("50%", [["a", "b"], ["c", "d"], ["e"]]),
        ("1%", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ([1, "100%"], [["a"], ["b", "c", "d", "e"]]),
        ("1,3", [["a"], ["b", "c", "d"], ["e"]]),
        (None, [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("none", [["a"], ["b"], ["c"], ["d"], ["e"]]),
    ],
    ids=str,
)
def test_batches(serial, expected):
    assert _variables.batches(list("abcde"), serial) == expected and _variables.batches([], serial) == []


def test_control_characters_are_shown():
    assert fault("cache_restart_gate", "\x1b[2J\u202e") == "cache_restart_gate is '\\x1b[2J\\u202e': it must be fail, warn or wait."


class Variables(dict):
    """As hostvars: a template that cannot be evaluated raises when it is asked for."""

    def __getitem__(self, name):
        value = super().__getitem__(name)
        if isinstance(value, Exception):
            raise value
        return value


def test_all_faults_of_a_host():
    variables = Variables({
        "cache_restart_gate": "wiat", "cache_restart_gaet": "wait", "cache_restart_timeout": ValueError("'x' is undefined"),
        "pgfleet_login_password": ValueError("s3cret"), "cache_restart_result": {}, "pgfleet_own": 1, "unrelated": ValueError("never asked"),
    })
    assert _variables.faults(SPEC, variables, list(variables)) == [
        "cache_restart_gate is 'wiat': it must be fail, warn or wait.",
        "cache_restart_timeout cannot be evaluated: 'x' is undefined",
        "pgfleet_login_password cannot be evaluated",
        "cache_restart_gaet is not a variable of this collection: did you mean cache_restart_gate?",
    ]


@pytest.mark.parametrize(("facts", "count"), [({}, 0), ({"cache_restart_gate": "wait"}, 1), ({"cache_restart_gate": "other"}, 1)], ids=str)
def test_a_fact_is_no_variable(facts, count):
    """Whatever value the variable has: a fact called ansible_cache_restart_gate gives it another."""
    variables = {"cache_restart_gate": "wait", "ansible_facts": facts}
    expected = "cache_restart_gate is set as a fact, which is not accepted: remove it from the fact cache."
    assert _variables.faults(SPEC, variables, list(variables)) == [expected] * count


def test_a_template_that_is_left_as_it_is():
    variables = {"cache_restart_gate": "{{ later }}"}
    assert _variables.faults(SPEC, variables, list(variables)) == ["cache_restart_gate cannot be evaluated: it is '{{ later }}'"]


def test_what_was_checked_is_used():
    check = {"given": {"db1": {"cache_restart_gate": "warn"}, "db2": {}}, "defaults": {"cache_restart_gate": "fail"}}
    assert _variables.checked(check, "db1", "cache_restart_gate") == "warn"
    assert _variables.checked(check, "db2", "cache_restart_gate") == "fail"
    assert _variables.checked(check, "db2", "cache_restart_gate", "wait") == "wait"
    for unchecked in (check, {}, {"given": "x"}):
        with pytest.raises(AnsibleFilterError, match="The variables of db3 were not checked"):
            _variables.checked(unchecked, "db3", "cache_restart_gate")


def test_how_a_host_is_asked():
    check = {"given": {"db1": {"pgfleet_login_port": 5433}}, "defaults": _variables.defaults()}
    facts = {"pgfleet_login_port": 1, "pgfleet_become_user": "root", "pgfleet_login_password": "s3cret"}
    known = _variables.asked(check, "db1", {"db1": facts})
    assert (known["pgfleet_login_port"], known["pgfleet_become_user"], known["pgfleet_login_password"]) == (5433, "postgres", "s3cret")
    assert known["pgfleet_state_directory"] == "/var/lib/pgfleet"
    assert _variables.asked(check, "db2", {"db2": {"pgfleet_login_port": 5434, "other": 1}}) == {"pgfleet_login_port": 5434}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache_restart_pgbouncer", [{"host": "lb1", "databse": "shop"}],
         "cache_restart_pgbouncer has an entry with databse: there can be host, port, socket, user, become_user, database."),
        ("cache_restart_pgbouncer", [{}], "cache_restart_pgbouncer has an entry without host."),
        ("cache_restart_haproxy", [{"host": "", "socket": "/s"}], "cache_restart_haproxy has an entry without host and backend."),
        ("cache_restart_pgbouncer", [{"host": "lb1", "port": "abc"}], "port of an entry of cache_restart_pgbouncer is 'abc': it must be a whole number."),
        ("cache_restart_pgbouncer", '[{"host": "lb1", "port": "6433"}]', None),
        ("cache_restart_haproxy", "", None),
    ],
)
def test_places(name, value, expected):
    assert fault(name, value) == expected


def test_traffic_without_places():
    """Not an undrained restart without a word."""
    def found(**variables):
        return _variables.faults(SPEC, variables, list(variables))

    assert found(cache_restart_traffic="pgbouncer,haproxy", cache_restart_haproxy=[]) == [
        "cache_restart_traffic has pgbouncer, but cache_restart_pgbouncer is not set: name its places there, or set it to [] for a host that is"
        " behind none."]
    assert found(cache_restart_traffic=[]) == found(cache_restart_traffic=__file__) == []


def test_secrets_are_not_given():
    variables = {"pgfleet_login_password": "s3cret", "cache_restart_gate": "fail", "other": 1, "cache_warmup_rate": ValueError("undefined")}
    assert _variables.given(SPEC, Variables(variables), list(variables)) == {"cache_restart_gate": "fail"}
    assert "pgfleet_login_password" not in _variables.defaults()


def test_every_variable_is_taken_as_it_was_checked():
    """playbooks/vars/checked.json: all but secrets, each by its own name; a default that is a template is there."""
    contents = []
    for name in ("checked.json", "unset.yml"):
        with open(os.path.join(_variables.ROLES, "../playbooks/vars", name), encoding="utf-8") as file:
            contents.append(yaml.safe_load(file))
    found, unset = contents
    expected = {}
    for role in os.listdir(_variables.ROLES):
        for entry_point in _variables._entry_points(role).values():
            for name, option in entry_point["options"].items():
                if not option.get("no_log"):
                    other = re.match(r"{{ (\w+)", str(option.get("default")))
                    more = ", %s" % other.group(1) if other else ""
                    expected[name] = "{{ pgfleet_check | default({}) | pgfleet.cache.checked(inventory_hostname, '%s'%s) }}" % (name, more)
    assert found == expected
    # what a role asks for before it has set it
    used = set()
    for path in glob.glob(os.path.join(_variables.ROLES, "*/*/**/*.yml"), recursive=True):
        with open(path, encoding="utf-8") as file:
            used.update(re.findall(r"(__cache_\w+) \| default\((?!\{\})", file.read()))
    assert used <= set(unset)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), ("", []), ("a", ["a"]), ("a, b,", ["a", "b"]), ("[1, x]", [1, "x"]), ([1], [1]), ((1, 2), [1, 2]), (3, [3])],
    ids=str,
)
def test_as_list(value, expected):
    assert _variables.as_list(value) == expected


def test_the_specification_is_the_defaults():
    """A variable without a default in the role, or in the one on which it depends, is undefined where it is used."""
    with open(os.path.join(_variables.ROLES, "cache_common/defaults/main.yml"), encoding="utf-8") as file:
        common = yaml.safe_load(file)
    for role in ENTRY_POINTS:
        with open(os.path.join(_variables.ROLES, role, "defaults/main.yml"), encoding="utf-8") as file:
            defaults = dict(common, **(yaml.safe_load(file) or {}))
        options = _variables.read_spec({role: ENTRY_POINTS[role]}, {}).options
        assert {name: option.get("default") for name, option in options.items()} == {name: defaults[name] for name in options}, json.dumps(role)


def test_names_that_the_collection_sets_itself():
    """They are there when a second playbook runs, and in a cache of facts."""
    found = set()
    for pattern in ("roles/*/tasks/**/*.yml", "playbooks/*.yml", "playbooks/tasks/*.yml"):
        for path in glob.glob(os.path.join(_variables.ROLES, "..", pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            found.update(re.findall(r"register: (\w+)", text))
            for block in re.findall(r"( *)ansible\.builtin\.set_fact:\n((?:\1 +.*\n)+)", text):
                found.update(re.findall(r"^%s  (\w+):" % block[0], block[1], re.MULTILINE))
    found = {name for name in found if not name.startswith("__")}
    assert len(found) > 10 and _variables.misspelt(SPEC, sorted(found)) == []


def test_names_in_the_demo_and_the_examples():
    """Nor do they look like one: the check would refuse the demo's own."""
    found = set()
    for pattern in ("demo/**/*.yml", "examples/*.yml", "molecule/**/*.yml", "*.md", "docs/*.md", "roles/*/README.md"):
        for path in glob.glob(os.path.join(_variables.ROLES, "..", pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                found.update(re.findall(r"^ *(?:-e )?((?:pgfleet|cache)_\w+)(?::|=)", file.read(), re.MULTILINE))
    assert len(found) > 10 and _variables.misspelt(SPEC, sorted(found)) == []
