# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restarts that are cut anywhere, go on, are begun anew or given up, while others restart, promote and start servers."""

from __future__ import annotations

import itertools
import os

import pytest
from ansible_collections.pgfleet.cache.tests.unit.plugins.plugin_utils.restarts import HOSTS, MAX_AGE, Broken, Run, World
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

HOST = st.sampled_from(HOSTS)
DEED = st.sampled_from(["restart", "crash", "start", "promote", "rejoin"])


class Restarts(RuleBasedStateMachine):
    @initialize(steered=st.booleans(), pooled=st.booleans())
    def begin(self, steered, pooled):
        self.world = World(steered, pooled)

    @rule(deed=DEED, host=HOST)
    def others(self, deed, host):
        self.world.do(deed, host)

    @rule()
    def time_goes_by(self):
        self.world.ticks += MAX_AGE + 1

    # from its beginning more is done between two points than later: small numbers are likely enough
    @rule(
        cut=st.one_of(st.just(0), st.integers(1, 120)),
        limit=st.sampled_from([[], [], ["db1"], ["db2"], ["db3"], ["db2", "db3"], ["db4", "db5"], ["db2", "db5"]]),
        resume=st.booleans(), abort=st.booleans(),
        gate=st.sampled_from(["reached", "reached", "fail"]), pause=st.sampled_from(["well", "well", "fails"]),
        others=st.dictionaries(st.integers(1, 60), st.lists(st.tuples(DEED, HOST), min_size=1, max_size=2), max_size=2),
        waive=st.sampled_from([[], [], [], ["db1"], ["db2"]]),
    )
    def run(self, **options):
        Run(self.world, **options).run()

    @rule(resume=st.booleans(), abort=st.booleans(), waive=st.sampled_from([[], [], ["db2"]]))
    def run_where_nothing_is_in_the_way(self, **options):
        if self.world.settled():
            Run(self.world, **options).run().all_is_well()


def test_restarts():
    """EXAMPLES=5000 looks longer."""
    run_state_machine_as_test(Restarts, settings=settings(
        max_examples=int(os.environ.get("EXAMPLES", "400")), stateful_step_count=12, derandomize=True, deadline=None, database=None,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        # shrinking takes longer than looking
        phases=[Phase.generate, Phase.shrink] if "EXAMPLES" in os.environ else [Phase.generate],
    ))


@pytest.mark.parametrize("options", [{}, {"resume": False}, {"abort": True}], ids=str)
def test_every_cut_and_one_thing_that_others_do(options):
    """All of them, and a run where nothing is in the way at the end."""
    for cut in range(1, Run(World()).run().points + 1):
        for deed in (None, *itertools.product(["restart", "crash", "promote"], HOSTS)):
            world = World()
            Run(world, cut=cut).run()
            if deed:
                getattr(world, deed[0])(deed[1])
            try:
                run = Run(world, **options)
                if world.settled():
                    run.run().all_is_well()
                else:
                    run.run()
            except Broken as error:
                raise AssertionError("cut at %d, %s" % (cut, deed)) from error


# --- the shortest ways to what was wrong once ---


@pytest.mark.parametrize("steered", [True, False])
@pytest.mark.parametrize("pooled", [True, False])
def test_a_plain_run(steered, pooled):
    world = World(steered, pooled)
    Run(world).run().all_is_well()
    assert sorted(host for dummy, host in world.restarts) == HOSTS and not any(one.promised for one in world.hosts.values())


@pytest.mark.parametrize("abort", [True, False])
@pytest.mark.parametrize("cut", [
    "after db2 save", "after db2 going_out", "after db2 out", "after db2 stopping", "after db2 is stopped", "after db2 restarted", "after db2 is restored",
    "after db2 warm", "after db2 going_in", "before db2 in", "after db2 in", "before db1 stopping", "before the pause", "after the pause",
    "after db1 is stopped", "after db1 is started", "after resuming", "after db1 resumed", "after db1 going_in", "after db1 in",
])
def test_cut_and_gone_on_with(cut, abort):
    world = World()
    assert not Run(world, cut=cut).run().ended
    Run(world, abort=abort).run().all_is_well()
    if not abort:
        assert set(world.restarts.values()) == {1}


def test_given_up_where_others_have_restarted_what_was_only_saved():
    world = World()
    Run(world, cut="after db2 save").run()
    world.restart("db2")
    Run(world, abort=True).run().all_is_well()


def test_restarted_by_others_where_it_is_just_left_alone():
    """Between the look and the record."""
    Run(World(steered=False, pooled=False), limit=["db3"], others={1: [("crash", "db1")], "before db3 left": [("restart", "db3")]}).run()


def test_given_up_after_the_roll_is_too_old():
    world = World()
    Run(world, cut="after db2 restarted").run()
    world.ticks += MAX_AGE + 1
    Run(world, abort=True).run().all_is_well()


def test_it_cannot_be_paused():
    world = World()
    run = Run(world, pause="fails").run()
    assert run.failures["db1"] == "pgbouncer could not be paused" and not world.hosts["db1"].out
    Run(world).run().all_is_well()


def test_another_roll_begins_beside_a_host_that_is_down():
    world = World()
    Run(world, cut="after db2 is stopped").run()
    Run(world, limit=["db3"], resume=False).run()
    Run(world).run().all_is_well()


def test_nobody_waits_for_a_primary_that_cannot_be_started():
    world = World()
    Run(world, cut="after db1 is stopped").run()
    world.promote("db2")
    run = Run(world).run()
    assert "now db2 is" in run.failures["db1"] and not world.paused


def test_two_former_primaries_that_are_down():
    world = World(pooled=False)
    Run(world, cut="after db1 is stopped").run()
    world.promote("db2")
    Run(world, limit=["db2"], resume=False, cut="after db2 is stopped").run()
    assert world.primaries() == []
    Run(world).run()
    assert world.primaries() == []


def test_promoted_between_the_snapshot_and_the_stop():
    """What it was when it was saved does not tell what it is when it is down."""
    world = World(steered=False, pooled=False)
    Run(world, cut="after db2 save").run()
    world.restart("db2")
    world.promote("db2")
    world.rejoin("db1")
    Run(world, limit=["db2"], cut="after db2 is stopped").run()
    world.promote("db3")
    run = Run(world).run()
    assert "now db3 is" in run.failures["db2"] and world.primaries() == ["db3"]


def test_a_standby_that_is_down_and_waived():
    """The report says both."""
    world = World()
    Run(world, cut="after db2 is stopped").run()
    run = Run(world, waive=["db2"]).run()
    run.all_is_well()
    remarks = " ".join(run.record("db2")["remarks"])
    assert "It was started first." in remarks and "alice waived the restore" in remarks


def test_what_is_warm_and_in_traffic_stays_there():
    world = World()
    Run(world, cut="after db2 in").run()
    world.crash("db3")
    Run(world, limit=["db2"]).run()
    assert not world.hosts["db2"].out
