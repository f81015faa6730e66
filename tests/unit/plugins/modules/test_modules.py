# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that belong to a module, as the table in CONTRIBUTING.md lists them."""

from __future__ import annotations

import dataclasses
import glob
import importlib
import os
import re

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.module_utils import _capabilities, _residency_info, _residency_restore
from ansible_collections.pgfleet.cache.plugins.modules import residency_info, residency_restore, restart_info
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils import test_residency_info, test_restart_info

ROOT = os.path.join(os.path.dirname(residency_info.__file__), "../..")
MODULES = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(ROOT, "plugins/modules/[a-z]*.py")))
ON_THE_CONTROLLER = ("check_variables", "fleet_report", "restart_plan")  # the action plugin does all of it
# Every module may return these.
COMMON = {"changed", "warnings", "msg"}
# On a failure only.
SOMETIMES = {"held_by"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def imported(name):
    return importlib.import_module("ansible_collections.pgfleet.cache.plugins.modules." + name)


@pytest.mark.parametrize("name", MODULES)
def test_an_engine_of_its_name(name):
    """A module that runs on the controller alone has an action plugin instead."""
    engine = "plugins/action/%s.py" if name in ON_THE_CONTROLLER else "plugins/module_utils/_%s.py"
    assert os.path.exists(os.path.join(ROOT, engine % name))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_logs_in_is_in_the_action_group(name):
    """module_defaults of the group are the login."""
    group = yaml.safe_load(read("meta/runtime.yml"))["action_groups"]["residency"]
    assert (name in group) == ("module_argument_spec" in vars(imported(name)))


@pytest.mark.parametrize("name", [name for name in MODULES if name not in (*ON_THE_CONTROLLER, "host_record", "restart_info")])
def test_every_result_is_documented(name):
    """host_record returns what a record has."""
    module = imported(name)
    empty = getattr(module, "empty_result", None) or getattr(module, "_" + name).empty_result
    assert set(empty()) - COMMON == set(yaml.safe_load(module.RETURN)) - COMMON - SOMETIMES


def test_every_answer_is_documented():
    answers = {*test_restart_info.answer(), *test_restart_info.answer(look=test_restart_info.silent)}
    assert answers == set(yaml.safe_load(restart_info.RETURN)["answer"]["contains"])


@pytest.mark.parametrize("name", MODULES)
def test_the_options_of_an_engine_are_its_modules(name):
    """A name that is wrong is an error where the module runs, and not before."""
    module = imported(name)
    options = getattr(module, "Options", getattr(getattr(module, "_" + name, None), "Options", None))
    if options is not None:
        assert {field.name for field in dataclasses.fields(options)} <= set(yaml.safe_load(module.DOCUMENTATION)["options"])


# --- an option of residency_restore ---


def test_the_engine_takes_every_option():
    fields = {field.name for field in dataclasses.fields(_residency_restore.Options)}
    assert fields == set(residency_restore.OPTIONS) - set(residency_restore.LEASE)


def test_every_number_of_the_restore_has_a_range():
    numbers = {name for name, option in residency_restore.OPTIONS.items() if option["type"] in ("int", "float")}
    assert numbers - {"job", "wait_sleep"} == set(_residency_restore.RANGES)


def test_the_role_passes_every_option_of_the_restore():
    [task] = [task for task in yaml.safe_load(read("roles/cache_warmup/tasks/restore.yml")) if "pgfleet.cache.residency_restore" in task]
    passed = task["pgfleet.cache.residency_restore"]
    assert set(residency_restore.OPTIONS) - {"wait_sleep", "lease_id"} == {name for name in passed if not name.startswith("login_")}
    options = yaml.safe_load(read("roles/cache_warmup/meta/argument_specs.yml"))["argument_specs"]["main"]["options"]
    for name in options:
        if name.startswith("cache_warmup_"):
            assert [value for value in passed.values() if name in value], name


# --- a figure in residency_info ---

SAMPLE = {name: one.get("sample", one) for name, one in yaml.safe_load(residency_info.RETURN).items()}


@pytest.mark.parametrize("subset", ["databases", "relations", "segments", "snapshots"])
def test_every_figure_is_in_the_sample(subset):
    result = test_residency_info.look(test_residency_info.server(), test_residency_info.options(subset))
    assert set(result[subset][0]) == set(SAMPLE[subset][0])
    assert subset != "databases" or set(result["total"]) == set(SAMPLE["total"])


def test_every_figure_of_a_job_is_in_the_sample():
    columns = re.match(r"\s*SELECT (.*?)\sFROM @", _residency_info._JOBS, re.DOTALL).group(1)
    while "(" in columns:
        columns = re.sub(r"\([^()]*\)", "", columns)
    assert {column.split()[-1].partition("::")[0] for column in columns.split(",")} == set(SAMPLE["jobs"][0])


def test_every_figure_of_the_host_is_in_the_sample(tmp_path):
    found = _capabilities.collect(str(tmp_path))
    found.pop("warnings")
    sample = {name: one.get("sample") for name, one in SAMPLE["capabilities"]["contains"].items()}
    assert set(found) == set(sample)
    for name, value in found.items():
        if isinstance(value, list):
            value, sample[name] = value[0], sample[name][0]
        if isinstance(value, dict):
            assert set(value) == set(sample[name]), name
