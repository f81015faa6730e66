# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts say of themselves becomes no variable, in every ansible-core that is there; sanity builds all that are supported."""

from __future__ import annotations

import glob
import json
import os
import subprocess

import pytest
from test_playbooks import OLDEST, SAYING

HOME = os.path.dirname(OLDEST)
VENVS = [HOME + "/development", *sorted(path[:-len("/bin/ansible-playbook")] for path in glob.glob(HOME + "/core-*/bin/ansible-playbook"))]
PLAYS = [
    {"hosts": "{{ 'one' | pgfleet.cache.facts_apart }}", "tasks": [
        {"ansible.builtin.command": "true"}, {"ansible.builtin.command": "true"},
        {"ansible.builtin.debug": {"msg": "apart {{ said is defined }} {{ ansible_facts.said }}"}},
    ]},
    {"hosts": "{{ 'one' | pgfleet.cache.facts_as_before }}", "tasks": [{"ansible.builtin.debug": {"msg": "after {{ said is defined }}"}}]},
]


@pytest.mark.parametrize("setting", ["True", None], ids=["set", "by default"])
@pytest.mark.parametrize("venv", VENVS, ids=os.path.basename)
def test_facts_are_apart(machine, tmp_path, venv, setting):
    """Neither one of a name that nobody knows, nor one that becomes a part of Ansible's next command."""
    marker = os.path.join(machine.directory, "facts-marker")
    interpreter, facts = tmp_path / "python", tmp_path / "facts.json"
    interpreter.write_text(SAYING.replace("@facts@", str(facts)))
    interpreter.chmod(0o755)
    facts.write_text(json.dumps({"said": "by a host", "ansible_remote_tmp": "$(touch %s)" % marker}))
    (tmp_path / "inventory.json").write_text(
        json.dumps({"all": {"hosts": {"one": {"ansible_connection": "local", "ansible_python_interpreter": str(interpreter)}}}}))
    (tmp_path / "plays.json").write_text(json.dumps([dict(play, gather_facts=False) for play in PLAYS]))
    environment = {name: value for name, value in os.environ.items() if name not in ("ANSIBLE_INJECT_FACT_VARS", "ANSIBLE_PIPELINING")}
    # ansible-core alone brings no collections
    collections = glob.glob(HOME + "/development/lib/python*/site-packages")
    environment.update(ANSIBLE_COLLECTIONS_PATH=":".join([environment["ANSIBLE_COLLECTIONS_PATH"], *collections]), ANSIBLE_CONFIG=str(tmp_path / "ansible.cfg"))
    (tmp_path / "ansible.cfg").touch()
    if setting:
        environment["ANSIBLE_INJECT_FACT_VARS"] = setting
    done = subprocess.run(
        [venv + "/bin/ansible-playbook", "-i", str(tmp_path / "inventory.json"), str(tmp_path / "plays.json")], check=False, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )
    assert done.returncode == 0 and '"apart False by a host"' in done.stdout, done.stdout
    assert '"after True"' in done.stdout, "what follows is the user's"
    assert not os.path.exists(marker)
