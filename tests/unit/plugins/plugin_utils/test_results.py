# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import stat

from ansible_collections.pgfleet.cache.plugins.plugin_utils import _results

CONTENT = {"playbook": "warmup", "finished": "2026-11-22T03:45:09Z"}


def test_it_is_there_and_its_owners_alone(tmp_path):
    path = _results.write(str(tmp_path / "a" / "results"), CONTENT)
    assert path == str(tmp_path / "a" / "results" / "warmup-20261122T034509Z.json")
    assert json.loads((tmp_path / "a" / "results" / "warmup-20261122T034509Z.json").read_text()) == CONTENT
    assert stat.S_IMODE((tmp_path / "a" / "results").stat().st_mode) == 0o700
    assert _results.write(str(tmp_path / "a" / "results"), CONTENT).endswith("09Z-1.json")
    assert len(list((tmp_path / "a" / "results").iterdir())) == 2


def test_a_directory_that_can_be_written(tmp_path):
    assert not [one for one in ("", str(tmp_path), str(tmp_path / "a" / "b"), "~/results") if _results.fault(one)]
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    for one in (tmp_path / "file" / "a" / "b", tmp_path / "file"):
        assert _results.fault(str(one)).startswith("The results cannot be written: %s is not a directory" % (tmp_path / "file"))


def test_plain():
    deep = value = {}
    for dummy in range(2000):
        value["a"] = value = {}
    odd = {"a": float("nan"), 1: (1, 2.5, True, None), "b": {"c": [object]}, "deep": deep}
    found = _results.plain(odd)
    assert found["a"] == "nan" and found["1"] == [1, 2.5, True, None] and found["b"]["c"] == [str(object)]
    json.dumps(found, sort_keys=True, allow_nan=False)
