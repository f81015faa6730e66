# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A primary and two standbys of this machine, restarted by a user's own task file; and what is refused, word for word.

HAProxy, pgbouncer, systemd and reboots are molecule/fleet's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time

import pytest
from conftest import TABLES

NAMES = ("db1", "db2", "db3")
RESTART = """
- name: Stop it, and empty its page cache as a reboot would
  ansible.builtin.command: {bin}/pg_ctl stop --wait --mode=fast --pgdata={{{{ data }}}}
  become: true
  become_user: postgres
  changed_when: true

- name: Empty its page cache
  pgfleet.cache.cache_evict:
    scope: cluster
    data_directory: "{{{{ data }}}}"
  become: true
  become_user: postgres
  when: cold | default(true)

- name: Start it
  ansible.builtin.command: {bin}/pg_ctl start --wait --silent --pgdata={{{{ data }}}} --log={{{{ data }}}}.log
  become: true
  become_user: postgres
  changed_when: true
"""


class Fleet:
    def __init__(self, ansible, clusters, directory):
        self.ansible = ansible
        self.clusters = clusters
        self.directory = directory
        self.tasks = os.path.join(directory, "restart.yml")
        self.write("restart.yml", RESTART.format(bin=clusters["db1"].bin))

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def run(self, *arguments, hosts=NAMES, per_host=None, **variables):
        """Output and status of the playbook; the inventory has these hosts."""
        self.ansible.set_hosts(
            {
                name: dict(
                    {"pgfleet_login_port": self.clusters[name].port, "pgfleet_login_unix_socket": self.clusters[name].socket,
                     "data": self.clusters[name].data},
                    **(per_host or {}).get(name, {})
                )
                for name in hosts
            },
            **dict(
                {"pgfleet_service_manager": self.tasks, "cache_restart_state_directory": os.path.join(self.directory, "state"),
                 "cache_restart_min_free": "1MB", "cache_restart_replay_timeout": 20},
                **variables
            )
        )
        return self.ansible.command("pgfleet.cache.rolling_restart", *arguments)

    def kept(self, name):
        with open(os.path.join(self.directory, "state", name + ".json")) as file:
            return json.load(file)

    def started(self):
        return {name: one.sql("SELECT pg_postmaster_start_time()") for name, one in self.clusters.items()}

    def forget(self):
        shutil.rmtree(os.path.join(self.directory, "state"), ignore_errors=True)


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    primary = machine("db1")
    primary.sql(TABLES)
    primary.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    return {"db1": primary, "db2": machine("db2", primary), "db3": machine("db3", primary)}


@pytest.fixture
def fleet(ansible, clusters, machine):
    fleet = Fleet(ansible, clusters, machine.directory)
    fleet.forget()
    yield fleet
    fleet.forget()


def row(output, name):
    """A host's line in the table at the end."""
    return re.search(r"^ *(?:- |\")?%s  .*?\"?,?$" % name, output, re.MULTILINE).group()


def warm(one):
    one.warm(one.file_of("passenger"))


def resident(one):
    path = one.file_of("passenger")
    return one.resident(path) / os.path.getsize(path)


def test_all_are_restarted_and_warm(fleet, clusters):
    for one in clusters.values():
        warm(one)
    before = fleet.started()
    output, status = fleet.run()
    assert status == 0, output
    after = fleet.started()
    assert all(before[name] < after[name] for name in NAMES)
    # standbys first, one after the other, the primary last
    assert after["db2"] < after["db3"] < after["db1"]
    for name, one in clusters.items():
        assert resident(one) > 0.8, name  # the kernel takes some back
        assert fleet.kept(name)["state"] == "done" and fleet.kept(name)["finished"]
    assert "All are restarted: the roll is finished." in output
