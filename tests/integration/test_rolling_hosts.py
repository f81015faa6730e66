# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens to one host of a rolling restart: its steps, its traffic, the user's own checks, and its loss in the middle."""

from __future__ import annotations

import os
import threading

import pytest
from cluster import thorough
from proxies import HAProxy
from test_rolling_restart import fresh, is_restored, primary_and_standbys, row, warm


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    return primary_and_standbys(machine, "host")


@pytest.fixture
def fleet(ansible, clusters, machine):
    yield from fresh(ansible, clusters, machine)


@thorough
def test_a_batch_of_hosts_that_have_different_steps_left(fleet, clusters):
    """db2 is out, restarted and cold; db3 is as it was. Each takes its own steps, in its own order."""
    for one in clusters.values():
        warm(one)
    steer = fleet.write("steer.yml", "- name: Steer {{ pgfleet_traffic_step }}\n  ansible.builtin.debug: {msg: '{{ inventory_hostname }}'}\n")
    steered = {"cache_restart_traffic": [steer], "cache_restart_min_standbys": 0, "cache_restart_primary": "skip"}
    output, status = fleet.run(per_host={"db2": {"cache_warmup_budget": "1MB"}}, **steered)
    assert status != 0 and fleet.kept("db2")["out"] and fleet.kept("db3")["state"] == "planned", output
    between = fleet.started()
    output, status = fleet.run(cache_restart_serial=2, **steered)
    assert status == 0, output
    after = fleet.started()
    assert after["db2"] == between["db2"] and after["db3"] != between["db3"]
    for name in ("db2", "db3"):
        kept = fleet.kept(name)
        assert kept["state"] == "done" and not kept["out"] and is_restored(clusters[name], kept), name


@thorough
def test_standbys_behind_haproxy(fleet, clusters, tmp_path):
    """One after the other is out, and never both; who is put back meanwhile, as by a reload, is taken out again, and the report names that one alone."""
    proxy = HAProxy(str(tmp_path), {name: clusters[name] for name in ("db2", "db3")})
    found, over, forgotten = [], threading.Event(), []

    def watch():
        while not over.wait(0.05):
            seen = proxy.statuses()
            if not forgotten and "db2.json" in fleet.left() and fleet.kept("db2").get("out") and not fleet.kept("db2")["intent"]:
                forgotten.append(proxy.ask("set server read/db2 state ready"))
            found.append(seen)

    thread = threading.Thread(target=watch)
    try:
        for one in clusters.values():
            warm(one)
        before = fleet.started()
        thread.start()
        output, status = fleet.run(
            cache_restart_traffic=["haproxy"], cache_restart_primary="skip",
            cache_restart_haproxy=[{"host": "db1", "backend": "read", "socket": proxy.socket}],
        )
        assert status == 0, output
        assert set(proxy.statuses().values()) == {"UP"}
        assert [name for name, started in fleet.started().items() if started != before[name]] == ["db2", "db3"]
    finally:
        over.set()
        if thread.ident:
            thread.join()
        proxy.stop()
    for name in ("db2", "db3"):
        assert any(one[name].startswith("DRAIN") for one in found), name
    assert not [one for one in found if "UP" not in one.values()], "nobody served"
    text = {name: row(output, name) for name in ("db2", "db3")}
    assert "HAProxy on db1 had put it back into traffic (a reload" in text["db2"] and "had put it back" not in text["db3"], output


@thorough
def test_a_host_that_is_lost_in_the_middle(fleet, clusters, tmp_path):
    """While its server restarts. Nothing more begins, and the report has it; back again, it is finished and not restarted twice."""
    for one in clusters.values():
        warm(one)
    lost, losing = tmp_path / "lost", tmp_path / "ssh"
    losing.write_text('#!/bin/sh\nfor last; do :; done\n[ ! -e "%s" ] || exit 255\nexec sh -c "$last"\n' % lost)
    losing.chmod(0o755)
    ssh = {"ansible_connection": "ssh", "ansible_ssh_executable": str(losing), "ansible_ssh_transfer_method": "piped"}
    with open(fleet.tasks) as file:
        off = fleet.write("off.yml", file.read() + "\n- name: Switch its network off\n  ansible.builtin.file: {path: %s, state: touch}\n" % lost)
    before = fleet.started()
    output, status = fleet.run(per_host={"db2": dict(ssh, pgfleet_service_manager=off)})
    between = fleet.started()
    assert status != 0 and "unreachable: " in row(output, "db2"), output
    assert "Unreachable: db2." in output and "Not done: db1, db2, db3." in output, output
    assert between["db2"] != before["db2"] and (between["db1"], between["db3"]) == (before["db1"], before["db3"])
    os.unlink(lost)
    output, status = fleet.run()
    assert status == 0, output
    assert fleet.started()["db2"] == between["db2"] and is_restored(clusters["db2"], fleet.kept("db2"))


@thorough
def test_your_checks_before_a_host_goes_in(fleet, clusters):
    """They see a warm host that is still out; one that they do not like stays out, and its cache is restored all the same."""
    for one in clusters.values():
        warm(one)
    steer = fleet.write("steer.yml", "- name: Steer {{ pgfleet_traffic_step }}\n  ansible.builtin.debug: {msg: '{{ inventory_hostname }}'}\n")
    smoke = fleet.write("smoke.yml", "- name: Smoke test\n  ansible.builtin.assert: {that: inventory_hostname != bad, fail_msg: It smokes.}\n")
    steered = {"cache_restart_traffic": [steer], "cache_restart_before_in": smoke}
    output, status = fleet.run(bad="db2", **steered)
    assert status != 0 and "It smokes." in row(output, "db2"), output
    kept = fleet.kept("db2")
    assert kept["out"] and kept["state"] == "restarted" and is_restored(clusters["db2"], kept["pending"]) and "Steer in" not in output
    between = fleet.started()
    # an earlier run has restarted it: without its pending restore, it is still not as it was
    output, status = fleet.run("-e", "pgfleet_waive=db2", bad="db2", **steered)
    assert status != 0 and "It smokes." in row(output, "db2") and "Steer in" not in output, output
    assert fleet.kept("db2")["out"] and fleet.kept("db2")["state"] != "planned"
    output, status = fleet.run(bad="", **steered)
    assert status == 0, output
    assert fleet.started()["db2"] == between["db2"] and not fleet.kept("db2")["out"]
    assert output.index("Smoke test") < output.index("Steer in")
