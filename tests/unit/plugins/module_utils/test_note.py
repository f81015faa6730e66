# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._note import Note

NAME = "0123456789abcdef"


def test_names_are_of_the_action_plugin_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_ASYNC_DIR", str(tmp_path))
    with pytest.raises(ResidencyError, match="set by the action plugin alone"):
        Note("../../x")
    note = Note(NAME)
    note("loading, 3.0 %")
    note("loading, 4.0 %")  # too soon
    assert (tmp_path / ("pgfleet." + NAME)).read_text() == '{"text": "loading, 3.0 %%", "pid": %d}' % os.getpid()
    note.remove()
    assert not list(tmp_path.iterdir())
    note.remove()


def test_without_a_name():
    note = Note(None)
    note("nothing")
    note.remove()


def test_what_cannot_be_written_ends_no_run(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_ASYNC_DIR", str(tmp_path / "gone"))
    note = Note(NAME)
    note("loading, 3.0 %")
    note.remove()
