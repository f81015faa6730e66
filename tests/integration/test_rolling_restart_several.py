# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two clusters in one rolling restart, each a primary and its standby, as test_rolling_restart.py has them."""

from __future__ import annotations

import pytest
from cluster import thorough
from conftest import TABLES
from test_rolling_restart import Fleet, is_restored, row, says, warm

SEVERAL = ("db1", "db2", "db6", "db7")


@pytest.fixture(scope="module")
def clusters(machine, cluster):
    """db1 and its standby db2, db6 and its standby db7. The fixture cluster has installed the extension's files."""
    found = {}
    for primary, standby in (("db1", "db2"), ("db6", "db7")):
        found[primary] = machine("several_" + primary)
        found[primary].sql(TABLES)
        found[primary].sql("CREATE EXTENSION pg_residency; CHECKPOINT")
        found[standby] = machine("several_" + standby, found[primary])
    return found


@pytest.fixture
def several(ansible, clusters, machine):
    fleet = Fleet(ansible, clusters, machine.directory)
    fleet.forget()
    for one in clusters.values():
        warm(one)
    yield fleet
    fleet.forget()


@thorough
def test_several_clusters_one_after_the_other(several):
    before = several.started()
    output, status = several.run("--check", hosts=SEVERAL)
    assert status == 0 and several.started() == before, output
    says(
        output, "Cluster db6: Would first restart the batches db7. Would then restart the primary db6.*2 clusters, one after the other: db2; db1;"
        " db7; db6."
    )
    output, status = several.run(hosts=SEVERAL)
    assert status == 0, output
    after = several.started()
    assert all(before[name] < after[name] for name in SEVERAL)
    assert after["db2"] < after["db1"] < after["db7"] < after["db6"], output
    for name, one in several.clusters.items():
        kept = several.kept(name)
        assert kept["state"] == "done" and kept["finished"] and is_restored(one, kept), name
        assert kept["system_identifier"] == one.sql("SELECT system_identifier FROM pg_control_system()")
    assert [row(output, name).strip(' "-').split()[1:3] for name in SEVERAL] == [
        ["db1", "primary"], ["db1", "standby"], ["db6", "primary"], ["db6", "standby"]], output
    assert "All hosts of 2 clusters are restarted: the rolling restart is finished." in output and "WARNING" not in output, output


@thorough
def test_several_clusters_side_by_side(several):
    """The gate of db2 fails, and neither primary is begun; the next runs go on, first with one cluster."""
    before = several.started()
    output, status = several.run(
        hosts=SEVERAL, per_host={"db2": {"cache_warmup_budget": "1MB"}}, cache_restart_side_by_side=True)
    assert status != 0
    between = several.started()
    assert {name for name in SEVERAL if between[name] != before[name]} == {"db2", "db7"}, output
    assert "1 of 4 hosts failed: db2. The table shows why." in output and several.kept("db7")["state"] == "done"
    says(output, "Not done in 2 of 2 clusters: db1, db2, db6. Continue with:")

    output, status = several.run("--limit", "db1,db2", hosts=SEVERAL, cache_restart_side_by_side=True)
    assert status == 0, output
    says(output, "Not done in 1 of 2 clusters: db6. Continue with:")
    output, status = several.run(hosts=SEVERAL, cache_restart_side_by_side=True)
    assert status == 0, output
    after = several.started()
    assert (after["db2"], after["db7"]) == (between["db2"], between["db7"])
    assert between["db1"] < after["db1"] < after["db6"], output
    assert all(several.kept(name)["finished"] for name in SEVERAL)

    for one in several.clusters.values():
        warm(one)
    output, status = several.run(hosts=SEVERAL, cache_restart_side_by_side=True)
    assert status == 0, output
    end = several.started()
    assert max(end["db2"], end["db7"]) < min(end["db1"], end["db6"]), output
    assert all(after[name] < end[name] and is_restored(several.clusters[name], several.kept(name)) for name in SEVERAL)


@thorough
def test_several_clusters_and_a_problem_of_one(several):
    """Nothing is changed on the others. A host that was not meant is a cluster of its own."""
    before = several.started()
    said = "Cluster db6 (db6): db6 has no standby, so no host would serve while it restarts."
    output, status = several.run(hosts=("db1", "db2", "db6"))
    assert status != 0
    says(output, said)
    output, status = several.run(hosts=SEVERAL, per_host={"db7": {"cache_restart_min_free": "1PB"}})
    assert status != 0
    says(output, "less than cache_restart_min_free (1PB)")
    assert several.started() == before and several.left() == []
    # beyond --limit the other cluster does not matter
    output, status = several.run("--check", "--limit", "db1,db2", hosts=("db1", "db2", "db6"))
    assert status == 0, output
    says(output, "2 clusters, one after the other: db2; db1.")
