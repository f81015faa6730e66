"""What the tests share: a play of the user's, on these hosts."""

from __future__ import annotations

import json
import os
import subprocess

import pytest


@pytest.fixture(name="play")
def fixture_play(request, tmp_path):
    """Run a play, given as in YAML; what ansible-playbook did."""

    def play(**one):
        path = tmp_path / "play.json"
        path.write_text(json.dumps([dict({"gather_facts": False}, **one)]))
        return subprocess.run(
            ["ansible-playbook", "--inventory", request.config.getoption("ansible_inventory"), str(path)], check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ),
        )

    return play
