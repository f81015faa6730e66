# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import Session, snapshot_row


@pytest.mark.parametrize("name", ["warm", "0", "before-2026.11_20", "a" * 63])
def test_names(name):
    _snapshot.check_name(name, generation_allowed=False)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../x", "a b", "a" * 64, "warm\n", "warm@", "warm@0", "warm@x", "@1"])
def test_bad_names(name):
    with pytest.raises(ResidencyError, match="is no name for a snapshot"):
        _snapshot.check_name(name, generation_allowed=True)


def test_a_generation_cannot_be_chosen_for_a_new_snapshot():
    _snapshot.check_name("warm@3", generation_allowed=True)
    with pytest.raises(ResidencyError, match="give the name as 'warm'"):
        _snapshot.check_name("warm@3", generation_allowed=False)


def test_keep_nothing():
    with pytest.raises(ResidencyError, match="keep is 0"):
        _snapshot.check_options("warm", 0, present=True)


def test_name_means_its_newest_generation():
    session = Session(residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)])
    assert _snapshot.find(session, "warm")["generation"] == 3
    assert _snapshot.find(session, "warm@2")["generation"] == 2


def test_unknown_snapshot_names_those_there_are():
    session = Session(residency_snapshots=[snapshot_row(), snapshot_row(name="batch", generation=1)])
    with pytest.raises(ResidencyError, match=r"no snapshot 'wram' here; there is warm@3, batch@1\."):
        _snapshot.find(session, "wram")


def test_unusable_snapshot_says_why():
    session = Session(residency_snapshots=[snapshot_row(problem="damaged: checksum")])
    with pytest.raises(ResidencyError, match=r"Snapshot warm@3 cannot be used here: damaged: checksum\."):
        _snapshot.find(session, "warm")


def test_take():
    session = Session(residency_snapshot=[snapshot_row()])
    result = _snapshot.take(session, "warm", 2, check_mode=False)
    assert result["changed"]
    assert result["snapshot"]["system_identifier"] == "7574833217290718432"
    assert result["snapshot"]["taken_at"] == "2026-11-20T12:00:00+00:00"
    assert result["msg"] == "Saved warm@3: 3.12 MB of 7.81 MB are cached in 4 segments, a file of 300 B."


def test_take_in_check_mode():
    session = Session(residency_segments=[{"blocks": 400}])
    result = _snapshot.take(session, "warm", 2, check_mode=True)
    assert result["changed"] and result["snapshot"] is None
    assert len(result["queries"]) == 1


@pytest.mark.parametrize(("name", "removed"), [("warm", 2), ("warm@2", 1), ("cold", 0)])
def test_drop_in_check_mode_counts(name, removed):
    session = Session(residency_snapshots=[snapshot_row(generation=2), snapshot_row(generation=3)])
    result = _snapshot.drop(session, name, check_mode=True)
    assert result["changed"] is (removed > 0)
    assert len(result["queries"]) == (1 if removed else 0)
    if removed:
        assert "Would remove %d generation" % removed in result["msg"]


def test_every_path_has_the_same_keys():
    session = Session(residency_snapshots=[], residency_snapshot=[snapshot_row()])
    for result in (_snapshot.drop(session, "warm", False), _snapshot.take(session, "warm", 2, False)):
        assert set(result) == set(_snapshot.empty_result()) | {"msg"}
