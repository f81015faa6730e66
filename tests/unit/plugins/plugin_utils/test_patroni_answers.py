# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is decided from the answers of patroni_traffic."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _patroni

PLACES = [{"kind": "patroni", "host": "db2"}]


def test_a_host_is_its_own_place():
    ways = _adapters.ways({"cache_restart_traffic": ["patroni"]}, "db2")
    assert ways == [{"kind": "patroni", "moment": "away", "places": PLACES}]
    assert _adapters.places(ways) == PLACES
    assert _adapters.ways({"cache_restart_traffic": ["patroni", "/t.yml"]}, "db2", "away", True) == ways


@pytest.mark.parametrize("answer, stays, seen", [
    ({"member": "m2", "out": False, "others": ["m3"]}, False, [dict(PLACES[0], member="m2", out=False, others=["m3"], problem="")]),
    ({"member": "m2", "out": True, "others": []}, False, [dict(PLACES[0], member="m2", out=True, others=[], problem="")]),
    ({"out": None}, False, []), ({"out": False}, True, []),
])
def test_seen(answer, stays, seen):
    assert _patroni.patroni(answer, PLACES, stays) == seen


@pytest.mark.parametrize("out, others, begun, alone, fits", [
    (False, ["db3"], False, False, True), (False, [], False, False, False), (False, [], True, False, True), (False, [], False, True, True),
    (True, [], False, False, True),
])
def test_unfit(out, others, begun, alone, fits):
    assert (_patroni.patroni_unfit([{"out": out, "others": others, "problem": ""}], begun, alone) == "") is fits
    assert _patroni.patroni_unfit([{"out": out, "others": others, "problem": "no"}], begun, alone) == "no"


@pytest.mark.parametrize("others, fits", [(["m3"], False), (["m3", "m4"], True)])
def test_those_that_leave_at_the_same_time_do_not_serve(others, fits):
    """Nor does a standby with the tag of its user, which is in no answer's others."""
    seen = [[{"member": name, "out": False, "others": [one for one in ("m2", *others) if one != name], "problem": ""}] for name in ("m2", "m3")]
    assert [_patroni.patroni_unfit(one, False, False, ["m2", "m3"]) == "" for one in seen] == [fits, fits]


def test_cut():
    assert _patroni.patroni_cut(2, False, 60).startswith("2 sessions did not end within")
    assert _patroni.patroni_cut(0, False, 60) == _patroni.patroni_cut(2, True, 60) == ""
