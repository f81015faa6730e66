# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _storage, _variables

ONE = {"a": ("san1", 1), "b": ("san1", 1), "c": ("san1", 1)}
TWO = dict.fromkeys("abcde", ("san1", 2))
BOTH = {"a": ("san1", 1), "b": ("san1", 1), "c": ("san2", 2), "d": ("san2", 2), "e": ("san2", 2)}


def test_shares():
    given = {"a": {"pgfleet_storage_group": "san1", "pgfleet_storage_limit": "2"}, "b": {"pgfleet_storage_group": 7}, "c": {}}
    found = _storage.shares(["a", "b", "c"], {"given": given, "defaults": _variables.defaults()})
    assert found == {"a": ("san1", 2), "b": ("7", 1)}


@pytest.mark.parametrize(
    ("batches", "shared", "parts"),
    [
        ([], {}, []),
        ([["a", "b"], ["c"]], {}, [["a", "b"], ["c"]]),
        ([["x", "a", "b", "y", "c"]], ONE, [["x", "a", "y"], ["b"], ["c"]]),
        ([["a", "b"], ["c", "x"]], ONE, [["a"], ["b"], ["c", "x"]]),
        ([list("abcde")], TWO, [["a", "b"], ["c", "d"], ["e"]]),
        ([list("abcdex")], BOTH, [["a", "c", "d", "x"], ["b", "e"]]),
        ([["a", "b"]], {"a": ["san1", 1], "b": ["san2", 1]}, [["a", "b"]]),
    ],
)
def test_split(batches, shared, parts):
    assert _storage.split(batches, shared) == parts


@pytest.mark.parametrize(
    ("hosts", "shared", "turns"),
    [
        ([], {}, [{"wait": [], "start": []}]),
        (["a", "x"], {}, [{"wait": ["a", "x"], "start": []}]),
        (["a", "x"], ONE, [{"wait": ["a", "x"], "start": []}]),  # its neighbours are not in this run
        (["x", "a", "b", "c"], ONE, [{"wait": ["a"], "start": ["b"]}, {"wait": ["b"], "start": ["c"]}, {"wait": ["x", "c"], "start": []}]),
        (list("abcde"), TWO, [{"wait": ["a", "b"], "start": ["c", "d"]}, {"wait": ["c", "d"], "start": ["e"]}, {"wait": ["e"], "start": []}]),
        # a group that is through is waited for at the end
        (list("abcde"), dict(BOTH, d=("san1", 1)), [
            {"wait": ["a"], "start": ["b"]}, {"wait": ["b"], "start": ["d"]}, {"wait": ["c", "d", "e"], "start": []}]),
    ],
)
def test_turns(hosts, shared, turns):
    assert _storage.turns(hosts, shared) == turns


@pytest.mark.parametrize("shared", [{}, ONE, TWO, BOTH], ids=["none", "one", "two", "both"])
def test_every_host_is_started_and_waited_for_once(shared):
    hosts = list("xabcdey")
    turns, later = _storage.turns(hosts, shared), _storage.waits(hosts, shared)
    started = [host for host in hosts if host not in later] + [host for turn in turns for host in turn["start"]]
    assert sorted(started) == sorted(hosts) and sorted(host for turn in turns for host in turn["wait"]) == sorted(hosts)
    running = {host for host in hosts if host not in later}
    for turn in turns:
        assert set(turn["wait"]) <= running
        running = (running - set(turn["wait"])) | set(turn["start"])
        for group, limit in set(shared.values()):
            assert len([host for host in running if host in shared and shared[host][0] == group]) <= limit
    assert not running


def test_waits():
    assert _storage.waits(list("xabc"), {}) == {}
    assert _storage.waits(list("xabc"), ONE) == {
        "b": {"storage": "san1", "number": 2, "behind": ["a"]}, "c": {"storage": "san1", "number": 3, "behind": ["a", "b"]},
    }
    assert _storage.waits(list("abcde"), BOTH) == {
        "b": {"storage": "san1", "number": 2, "behind": ["a"]}, "e": {"storage": "san2", "number": 2, "behind": ["c", "d"]},
    }


def test_disagreements():
    assert _storage.disagreements(BOTH) == {}
    found = _storage.disagreements(dict(BOTH, b=("san1", 3), x=("san1", 1)))
    assert set(found) == {"a", "b", "x"} and set(found.values()) == {
        "pgfleet_storage_limit is 1 on a, x and 3 on b, which share the storage san1 (pgfleet_storage_group): set the same limit for these hosts."
    }


def test_with_turns():
    waited = _storage.waits(list("abc"), ONE)
    found = _storage.with_turns({"a": {"verdict": "done"}, "b": {"verdict": "failed"}, "c": {"verdict": "not_run"}}, waited)
    assert found == {"a": {"verdict": "done"}, "b": {"verdict": "failed", "turn": waited["b"]}, "c": {"verdict": "not_run"}}


def test_sentence():
    turn = {"storage": "san1", "number": 2, "behind": ["a", "b"]}
    assert _storage.sentence(turn, False) == "Waited for its turn at storage san1 behind a, b."
    assert _storage.sentence(turn, True) == "Would wait for its turn at storage san1 behind a, b."
    assert _storage.sentence(dict(turn, behind=list("abcdefg")), False).endswith(" behind a, b, c, d, e and 2 more.")


@pytest.mark.parametrize(("host", "failure", "result", "task"), [
    ("a", "", {}, "wait"), ("a", "", {"job": 5}, "wait"), ("b", "", {}, "nothing"), ("a", "refused", {}, "nothing"),
    ("a", "", {"unreachable": True}, "nothing"),
])
def test_task_in_turn(host, failure, result, task):
    assert _storage.task_in_turn({"wait": ["a"], "start": ["b"]}, host, failure, result) == task
