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
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _variables

ROLES = sorted(os.listdir(_variables.ROLES))
OPTIONS = {name: option for role in ROLES for name, option in _variables.specification(role).items()}
# A right value that is not empty, as text, for what has a form of its own
TEXTS = {
    "cache_cold_test_queries": '[{"name": "one", "query": "SELECT 1"}]',
    "cache_cold_test_settings": "work_mem=64MB",
    "cache_io_workload_conf": __file__,
    "cache_restart_before_in": __file__,
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
    "cache_readiness_agent": "[::1]:8433",
    "cache_readiness_http": "10.0.0.1:8432",
    "cache_unattended_autosave": "5min",
    "cache_unattended_autosave_keep": "3",
    "cache_unattended_budget": "16GB",
    "cache_unattended_file": "/etc/postgresql/15/main/conf.d/pg_residency.conf",
    "cache_unattended_hold": "1h",
    "cache_unattended_max_io_pressure": "40",
    "cache_unattended_rate": "200 MB",
    "cache_warmup_max_age": "36h",
    "cache_warmup_rate": "200 MB/s",
    "cache_warmup_deadline": "2099-11-21 06:00+01:00",
    "cache_warmup_hold_until": "2099-11-21 06:30+01:00",
    "cache_warmup_max_io_pressure": "40",
    "pgfleet_service_manager": "pg_ctlcluster",
}


def fault(name, value):
    return _variables.fault_of(name, OPTIONS[name], value)


def right(name):
    option = OPTIONS[name]
    if name in TEXTS:
        return TEXTS[name]
    if "choices" in option:
        return ",".join(option["choices"]) if option["type"] == "list" else option["choices"][0]
    if name in _variables.RANGES:
        return str(_variables.RANGES[name][1])
    return {"bool": "no", "list": "one, two", "str": "warm", "path": "/tmp/x", "int": "1", "float": "1.5"}[option["type"]]


@pytest.mark.parametrize("name, value, words", [
    ("autosave", "soon", "it must be a time such as 5min, or 0 or -1."),
    ("autosave", "300", "it must be a time such as 5min, or 0 or -1."),  # seconds or minutes
    ("autosave_keep", 0, "it must be a number from 1 to 1000."),
    ("rate", "fast", "it must be a size such as 50MB."),
    ("budget", "-1", "it must be a size such as 50MB."),
    ("max_io_pressure", "101", "it must be a number from 0 to 100."),
    ("hold", -1, "it must be a time such as 5min."),
    ("hold", "8d", "which is more than PostgreSQL accepts."),
    ("rate", "4TB", "which is more than PostgreSQL accepts."),
    ("autosave", "30d", "which is more than PostgreSQL accepts."),
    ("autorestore_snapshot", "a b", "invalid snapshot name 'a b'"),
])
def test_a_parameter_of_the_server_that_cannot_be(name, value, words):
    """PostgreSQL would start with the default in its place, and only its log would say so."""
    found = fault("cache_unattended_" + name, value)
    assert found.startswith("cache_unattended_%s: " % name) and words in found


@pytest.mark.parametrize("value", ["localhost:8432", "8432:", "0", "70000", "::1:8432", "10.0.0:8432", "[10.0.0.1", "http"])
def test_no_address_for_systemd(value):
    assert "it must be a port, or an IP address and a port" in fault("cache_readiness_http", value)


@pytest.mark.parametrize("value", [False, "off", "both"])
def test_yamls_off(value):
    assert fault("cache_unattended_autorestore", value) is None


def test_a_relative_task_file():
    """In a role it could be one of the role's own."""
    assert fault("cache_restart_before_in", "main.yml") == "cache_restart_before_in is 'main.yml': it must be an absolute path."


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_text_that_converts(name):
    assert fault(name, right(name)) is None


@pytest.mark.parametrize("name", sorted(name for name, option in OPTIONS.items() if option["type"] in ("int", "float", "bool") or "choices" in option))
def test_a_wrong_value_is_named(name):
    found = fault(name, "maybe")
    assert found is not None and found.startswith(name) and len(found) < 400


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_default_is_right(name):
    default = OPTIONS[name].get("default")
    assert "{{" in str(default) or fault(name, default) is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache_restart_abort", "abort", "cache_restart_abort is abort: it must be of type bool."),
        ("cache_restart_gate", "wiat", "cache_restart_gate: value of cache_restart_gate must be one of: fail, warn, wait, got: wiat."),
        ("cache_restart_max_lag", "10 minutes",
         "cache_restart_max_lag is '10 minutes': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
        ("cache_restart_min_residency", "900", "cache_restart_min_residency is 900: it must be a number from 0 to 100."),
        ("cache_restart_serial", "1,x", "cache_restart_serial is 1,x: it must be a number, a percentage such as 30%, or a list of these."),
        ("cache_restart_serial", [], "cache_restart_serial is []: it must be a number, a percentage such as 30%, or a list of these."),
        ("cache_snapshot_keep", "0", "cache_snapshot_keep is 0: it must be a number from 1 to 1000000."),
        ("cache_warmup_deadline", "tonight", "cache_warmup_deadline: deadline is 'tonight': it must be a date and time with a zone, such as"
         " '2026-11-21 06:00+01:00' or '2026-11-21 06:00 Europe/Berlin'."),
        ("cache_warmup_rate", "fast", "cache_warmup_rate is 'fast': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
        ("pgfleet_login_port", "x", "pgfleet_login_port is x: it must be of type int."),
        ("pgfleet_service_manager", "/nowhere/x.yml",
         "Task file /nowhere/x.yml does not exist on the controller: correct pgfleet_service_manager, or use patroni or pg_ctlcluster or systemd."),
        ("pgfleet_state_directory", "pgfleet", "pgfleet_state_directory is 'pgfleet': it must be an absolute path."),
        ("pgfleet_waive", "[db2", "pgfleet_waive: '[db2' starts like a YAML list but is not one."),
        ("pgfleet_waive", "db2, db3", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_messages(name, value, expected):
    assert fault(name, value) == expected


def test_all_faults_of_a_host():
    variables = {
        "cache_warmup_min_residency": "ninety", "cache_warmup_snapshto": "x", "cache_warmup_rate": "{{ nowhere }}", "cache_restart_gate": "of another role",
        "cache_warmup_result": {}, "mine": 1,
    }

    def value(name):
        if "nowhere" in str(variables[name]):
            raise ValueError("'nowhere' is undefined")
        return variables[name]

    assert _variables.faults(["cache_warmup"], list(variables), value) == [
        "cache_warmup_rate cannot be evaluated: 'nowhere' is undefined.", "cache_warmup_min_residency is ninety: it must be of type float.",
        "cache_warmup_snapshto is not a variable of this collection: did you mean cache_warmup_snapshot?",
    ]


def test_a_template_that_is_left_as_it_is():
    """By ansible-core 2.18."""
    assert _variables.faults(["cache_warmup"], ["cache_warmup_rate"], lambda name: "{{ x }}") == ["cache_warmup_rate cannot be evaluated: {{ x }}."]


def test_control_characters_are_shown():
    assert "\\x1b" in str(fault("cache_restart_serial", "\x1b[2J"))


def test_secrets():
    assert "pgfleet_login_password" in _variables.known() and "pgfleet_login_password" not in _variables.known(secrets=False)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cache_restart_pgbouncer", [{"host": "lb1", "databse": "shop"}],
         "cache_restart_pgbouncer has an entry with databse: there can be host, port, socket, user, become_user, database."),
        ("cache_restart_pgbouncer", [{}], "cache_restart_pgbouncer has an entry without host."),
        ("cache_restart_haproxy", [{"host": "", "socket": "/s"}], "cache_restart_haproxy has an entry without host and backend."),
        ("cache_restart_pgbouncer", [{"host": "lb1", "port": "abc"}], "port of an entry of cache_restart_pgbouncer is 'abc': it must be a whole number."),
        ("cache_restart_pgbouncer", '[{"host": "lb1", "port": "6433"}]', None),
    ],
)
def test_places(name, value, expected):
    assert fault(name, value) == expected


def test_traffic_without_places():
    """Not an undrained restart without a word."""
    def found(**variables):
        return _variables.faults(["cache_restart"], list(variables), variables.get)

    assert found(cache_restart_traffic="pgbouncer,haproxy", cache_restart_haproxy=[]) == [
        "cache_restart_traffic has pgbouncer, but cache_restart_pgbouncer is not set: name its places there, or set it to [] for a host that is"
        " behind none."]
    assert found(cache_restart_traffic=[]) == found(cache_restart_traffic=__file__) == []


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
    for role in ROLES:
        with open(os.path.join(_variables.ROLES, role, "defaults/main.yml"), encoding="utf-8") as file:
            defaults = dict(common, **(yaml.safe_load(file) or {}))
        options = _variables.specification(role)
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
    assert len(found) > 10 and _variables.misspelt(sorted(found)) == []


def test_names_in_the_demo_and_the_examples():
    """Nor do they look like one: the check would refuse the demo's own."""
    found = set()
    for pattern in ("demo/**/*.yml", "examples/*.yml", "molecule/**/*.yml", "*.md", "docs/*.md", "roles/*/README.md"):
        for path in glob.glob(os.path.join(_variables.ROLES, "..", pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                found.update(re.findall(r"^ *(?:-e )?((?:pgfleet|cache)_\w+)(?::|=)", file.read(), re.MULTILINE))
    assert len(found) > 10 and _variables.misspelt(sorted(found)) == []


@pytest.mark.parametrize(("host", "given", "user", "start"), [
    ({"warmup_serial": 1}, {}, None, "warmup_serial is set in the inventory, which a play does not see: give it with -e warmup_serial=..., or"),
    ({"target": "x"}, {}, "root", "target is set in the inventory"),
    ({"target": "x"}, {"target": "x"}, None, ""),
    ({}, {}, "postgres", "--become-user postgres would take root's place"),
    ({"ansible_become_user": "root"}, {}, None, "ansible_become_user is set"),
    ({"pgfleet_results": __file__}, {}, None, "The results cannot be written"),
])
def test_what_a_playbook_does_not_see(host, given, user, start):
    found = _variables.unread(host, given, user)
    assert len(found) == bool(start) and "".join(found).startswith(start)
