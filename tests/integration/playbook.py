# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-playbook as a user runs it, and what it answers."""

from __future__ import annotations

import functools
import glob
import json
import os
import re
import subprocess

from cluster import LONG, complete

COLLECTION = "pgfleet.cache."
NAMED = [COLLECTION + one for one in ("cold_test", "physical_io", "temp_buffer_cost")]  # what they do is not to befall a group that nobody has named
# what Ansible itself adds to a module's result
_ANSIBLE_ADDS = {"invocation", "warnings", "deprecations", "diff", "failed", "action", "exception", "ansible_facts", "ansible_no_log"}


class Ansible:
    def __init__(self, directory, hosts):
        self.directory = directory
        self.inventory = os.path.join(directory, "inventory.json")
        self.settings = os.path.join(directory, "ansible.cfg")
        with open(self.settings, "w"):
            pass  # Ansible's own defaults, not this machine's
        self.set_hosts(hosts)

    def set_hosts(self, hosts, **group_vars):
        """hosts: {name: variables}"""
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become_method": "ansible.builtin.su",  # root needs no password for it
        }
        common.update(group_vars)
        with open(self.inventory, "w") as file:
            json.dump({"postgresql": {"hosts": hosts, "vars": common}}, file)

    def environment(self, **more):
        """Of ansible-playbook: its defaults, and an output to be read by a program."""
        env = dict(
            os.environ,
            ANSIBLE_LOCALHOST_WARNING="False",
            ANSIBLE_INVENTORY_UNPARSED_WARNING="False",
            ANSIBLE_RETRY_FILES_ENABLED="False",
            ANSIBLE_NOCOLOR="True",
            ANSIBLE_PIPELINING="True",
            ANSIBLE_CONFIG=self.settings,
        )
        env.update(more)
        return env

    def command(self, *arguments, timeout=LONG, **environment):
        """Output and exit status of ansible-playbook, which fails the test after timeout seconds."""
        if any(playbook in arguments for playbook in NAMED) and not any("target=" in str(one) for one in arguments):
            arguments += ("-e", "target=postgresql")
        done = complete(
            ["ansible-playbook", "--inventory", self.inventory, *arguments], timeout, check=False, stdin=subprocess.DEVNULL,
            env=self.environment(**environment),
        )
        return done.stdout, done.returncode

    def write(self, tasks, **play):
        path = os.path.join(self.directory, "play.json")
        play = dict({"hosts": "postgresql", "gather_facts": False, "tasks": tasks}, **play)
        with open(path, "w") as file:
            json.dump([play], file)
        return path

    def tasks(self, tasks, environment=None, register=None, **play):
        """Run the tasks, failed ones too; their results, of one host, in order. ``register`` names the first one's."""
        tasks = [dict(task, ignore_errors=True) for task in tasks]
        if register is not None:
            tasks[0]["register"] = register
        output, dummy = self.command(
            self.write(tasks, **play),
            timeout=LONG + 2 * len(tasks),  # some plays have more than a hundred
            ANSIBLE_STDOUT_CALLBACK="ansible.posix.json",
            **(environment or {})
        )
        try:
            answer = json.loads(output[output.index("{\n"):output.rindex("}") + 1])
        except ValueError:
            raise AssertionError(output) from None
        results = [next(iter(task["hosts"].values())) for one in answer["plays"] for task in one["tasks"]]
        assert len(results) == len(tasks), output
        for result in results:
            assert "Traceback" not in json.dumps(result), result
        return results


def environments(pattern):
    """Virtual environments of build-tools/integration, by their Python's age. Without any, a test that takes them as parameters would be left out."""
    found = sorted(glob.glob(os.path.join(os.environ["HOST_ENVIRONMENTS"], pattern)), key=lambda path: [int(one) for one in re.findall(r"\d+", path)])
    assert found, "There is no %s in %s: build-tools/integration makes it." % (pattern, os.environ["HOST_ENVIRONMENTS"])
    return found


def in_seconds(seconds):
    """A moment as options have it, counted from the beginning of the task."""
    return "{{ '%%Y-%%m-%%d %%H:%%M:%%SZ' | strftime(now().timestamp() + %d, utc=true) }}" % seconds


def recap(output):
    """host -> what the recap counts"""
    lines = output.split("PLAY RECAP")[1].splitlines()[1:]
    return {
        line.split()[0]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for line in lines if " ok=" in line
    }


# What Ansible prints of a play, a task or a handler, also where all hosts skip it
BANNER = re.compile(r"^(?:PLAY|TASK|RUNNING HANDLER) \[.*", re.MULTILINE)


def banners(output):
    return BANNER.findall(output)


def task(module, check=False, diff=False, more=None, **arguments):
    """``more`` has arguments of the module whose names are taken here."""
    name = module if "." in module else COLLECTION + module
    return {name: dict(arguments, **(more or {})), "check_mode": check, "diff": diff}


def four(module, **arguments):
    """In check mode, really, in check mode again, really again; where the host need not be compared in between, unlike test_changes.py."""
    return [task(module, check=check, **arguments) for check in (True, False, True, False)]


def keys(result):
    """The module's own; Ansible's callback adds some that begin with an underscore."""
    return {key for key in result if key not in _ANSIBLE_ADDS and not key.startswith("_")}


@functools.lru_cache(maxsize=None)
def documented(module):
    """The keys that the module's documentation promises on every path."""
    answer = subprocess.run(
        ["ansible-doc", "--json", "--type", "module", COLLECTION + module], check=True, stdout=subprocess.PIPE
    ).stdout
    returned = json.loads(answer)[COLLECTION + module]["return"] or {}
    return {key for key, value in returned.items() if value["returned"] == "always"} | {"changed"}
