# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts say of themselves becomes no variable, and decides nothing; in every ansible-core that is there: sanity builds all that are supported."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess

import pytest
from cluster import GATE, thorough
from playbook import environments
from test_playbooks import OLDEST, PLAYBOOKS, common_variables, options, results

# Whatever module it is, the answer has these facts as well: of a hostile host, or of the user whom a module runs as.
SAYING = """#!/usr/bin/python3
import json, subprocess, sys
done = subprocess.run(["/usr/bin/python3", *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE, universal_newlines=True)
text = done.stdout
if text.startswith("{") or "\\n{" in text:
    start = 0 if text.startswith("{") else text.index("\\n{") + 1
    try:
        answer, end = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        pass
    else:
        answer["ansible_facts"] = dict(answer.get("ansible_facts") or {}, **json.load(open("@facts@")))
        answer["ansible_stats"] = {"data": {"hosts_stat": 1}, "per_host": False, "aggregate": False}
        text = text[:start] + json.dumps(answer) + text[start + end:]
sys.stdout.write(text)
sys.exit(done.returncode)
"""

# The answer of whatever module it is has the loop's variable as well.
ITEM = """#!/usr/bin/python3
import json, subprocess, sys
done = subprocess.run(["/usr/bin/python3", *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE, universal_newlines=True)
text = done.stdout
if text.lstrip().startswith("{"):
    text = json.dumps(dict(json.loads(text), __cache_restart_each="db1"))
sys.stdout.write(text)
"""

HOME = os.path.dirname(OLDEST)
VENVS = [HOME + "/development", *(path[:-len("/bin/ansible-playbook")] for path in environments("core-*/bin/ansible-playbook"))]
PLAYS = [
    {"hosts": "{{ 'one' | pgfleet.cache.facts_apart }}", "tasks": [
        {"ansible.builtin.command": "true"}, {"ansible.builtin.command": "true"},
        {"ansible.builtin.debug": {"msg": "apart {{ said is defined }} {{ ansible_facts.said is defined }}"}},
    ]},
    {"hosts": "{{ 'one' | pgfleet.cache.facts_as_before }}", "tasks": [
        {"ansible.builtin.debug": {"msg": "after {{ said is defined }} {{ ansible_facts.said is defined }}"}},
        {"ansible.builtin.set_fact": {"now": "kept", "cacheable": True}}, {"ansible.builtin.debug": {"msg": "now {{ now }} {{ ansible_facts.now }}"}},
    ]},
]


@thorough
@pytest.mark.parametrize("setting", ["True", None], ids=["set", "by default"])
@pytest.mark.parametrize("venv", VENVS, ids=os.path.basename)
def test_facts_are_apart(machine, tmp_path, venv, setting):
    """Neither one of a name that nobody knows, nor one that becomes a part of Ansible's next command."""
    marker = os.path.join(machine.directory, "facts-marker")
    interpreter, facts = tmp_path / "python", tmp_path / "facts.json"
    interpreter.write_text(SAYING.replace("@facts@", str(facts)))
    interpreter.chmod(0o755)
    facts.write_text(json.dumps({"said": "by a host", "ansible_remote_tmp": "$(touch %s)" % marker, "__cache_restart_each": "x"}))
    (tmp_path / "inventory.json").write_text(
        json.dumps({"all": {"hosts": {"one": {"ansible_connection": "local", "ansible_python_interpreter": str(interpreter)}}}}))
    (tmp_path / "plays.json").write_text(json.dumps([dict(play, gather_facts=False) for play in PLAYS]))
    environment = {name: value for name, value in os.environ.items() if name not in ("ANSIBLE_INJECT_FACT_VARS", "ANSIBLE_PIPELINING")}
    # ansible-core alone brings no collections
    collections = glob.glob(HOME + "/development/lib/python*/site-packages")
    # a cache, so that what is kept is kept for the run after this one, too
    environment.update(ANSIBLE_CACHE_PLUGIN="jsonfile", ANSIBLE_CACHE_PLUGIN_CONNECTION=str(tmp_path / "facts"))
    environment.update(ANSIBLE_COLLECTIONS_PATH=":".join([environment["ANSIBLE_COLLECTIONS_PATH"], *collections]), ANSIBLE_CONFIG=str(tmp_path / "ansible.cfg"))
    (tmp_path / "ansible.cfg").touch()
    if setting:
        environment["ANSIBLE_INJECT_FACT_VARS"] = setting
    done = subprocess.run(
        [venv + "/bin/ansible-playbook", "-i", str(tmp_path / "inventory.json"), str(tmp_path / "plays.json")], check=False, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )
    assert done.returncode == 0 and '"apart False False"' in done.stdout, done.stdout
    assert '"after False False"' in done.stdout and '"now kept kept"' in done.stdout, "what follows is the user's"
    [kept] = (tmp_path / "facts").glob("*one")
    assert not os.path.exists(marker) and "by a host" not in kept.read_text()


@pytest.mark.parametrize("venv", VENVS, ids=os.path.basename)
def test_a_host_is_asked_for_itself(machine, tmp_path, venv):
    """From ansible-core 2.21 a result can have another item of its loop: whom it is of, its place says."""
    interpreter = tmp_path / "python"
    interpreter.write_text(ITEM)
    interpreter.chmod(0o755)
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": {
        name: {"ansible_connection": "local", "ansible_python_interpreter": str(interpreter) if name == "db2" else "/usr/bin/python3"}
        for name in ("db1", "db2")}}}))
    ask = {"ansible.builtin.command": "true", "loop": "{{ asked }}", "loop_control": {"loop_var": "__cache_restart_each"},
           "delegate_to": "{{ __cache_restart_each }}", "register": "said"}
    (tmp_path / "plays.json").write_text(json.dumps([{"hosts": "db1", "gather_facts": False, "vars": {"asked": ["db1", "db2"]}, "tasks": [
        ask, {"ansible.builtin.debug": {"msg": "{{ said | pgfleet.cache.roll('answers', said, asked) | list }}"}}]}]))
    collections = glob.glob(HOME + "/development/lib/python*/site-packages")
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=":".join([os.environ["ANSIBLE_COLLECTIONS_PATH"], *collections]))
    done = subprocess.run(
        [venv + "/bin/ansible-playbook", "-i", str(tmp_path / "inventory.json"), str(tmp_path / "plays.json")], check=False, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )
    assert done.returncode == 0 and re.search(r'"msg": \[\s*"db1",\s*"db2"\s*\]', done.stdout), done.stdout


def test_without_it_nothing_begins(fleet):
    """As in an ansible-core in which it could not be had."""
    play = fleet.write([{"pgfleet.cache.check_variables": {"target": "all", "hosts": ["one"]}}], hosts="one")
    for setting, refused in (("True", True), ("False", False)):
        output, status = fleet.command(play, ANSIBLE_INJECT_FACT_VARS=setting)
        assert (status != 0) == refused and ("set inject_facts_as_vars = False in the section [defaults] of ansible.cfg" in output) == refused, output


@thorough
@pytest.mark.parametrize("path", [OLDEST + "/bin:", ""], ids=["oldest", "newest"])
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_what_hosts_say_of_themselves(fleet, cluster, playbook, path):
    """A variable of the collection that comes back as a fact, from every task: none of them decides anything."""
    interpreter, facts = (os.path.join(fleet.directory, name) for name in ("saying-python", "facts.json"))
    with open(interpreter, "w") as file:
        file.write(SAYING.replace("@facts@", facts))
    os.chmod(interpreter, 0o755)
    said = {name: "said-" + name for name in options(playbook) if "password" not in name}
    said.update({"target": "said-target", "pgfleet_results": "/said-results", "pgfleet_become_user": "nobody", "pgfleet_entry_point": "said",
                 "pgfleet_role": "said", "pgfleet_batch": ["said"], "__cache_restart_asked": "somebody", "__cache_warmup_job": "said-job",
                 "__cache_common_await": ["said"], "pgfleet_traffic_seen": {"haproxy": [{"host": "localhost", "socket": "/said"}]},
                 "pgfleet_traffic_places": [{"host": "localhost"}], "pgfleet_service_server": {"cluster_name": "said"}, "pgfleet_service_commands": ["said"]})
    # Ansible's own, which go into commands as they are
    marker = os.path.join(fleet.directory, "said-marker")
    said.update({"ansible_remote_tmp": "$(touch %s)" % marker, "ansible_su_exe": "touch %s; su" % marker, "ansible_su_flags": "; touch %s;" % marker})
    with open(facts, "w") as file:
        json.dump(said, file)
    cluster.warm(cluster.file_of("pg_database"))
    own = {
        "cache_cold_test_queries": [{"name": "one", "query": "SELECT count(*) FROM passenger"}], "cache_cold_test_states": ["both_cold"],
        "cache_restart_min_standbys": 0, "pgfleet_service_manager": __file__ if playbook == "rolling_restart" else "systemd",
        "cache_warmup_min_residency": 0 if playbook == "warmup" else 90,
    }
    fleet.set_hosts({"one": {"ansible_python_interpreter": interpreter}}, **dict(common_variables(fleet), **own))
    output, status = fleet.command(
        "pgfleet.cache." + playbook, *(["--check"] if playbook == "rolling_restart" else []),
        PATH=path + os.environ["PATH"], ANSIBLE_INJECT_FACT_VARS="True", ANSIBLE_SHOW_CUSTOM_STATS="True",
        ANSIBLE_PIPELINING=str(bool(path)),
    )
    assert not os.path.exists(marker), output
    assert status == 0 and not re.search("said-|-> somebody", output), output
    # what Ansible's own modules return is Ansible's
    assert "hosts_stat" not in output or playbook not in ("snapshot", "warmup")
    assert not os.path.exists("/said-results")


@thorough
@pytest.mark.parametrize("inject", ["True", "False"])
def test_facts_decide_nothing(fleet, inject, tmp_path):
    """A cache of facts, two playbooks in one run, and facts that are no variables."""
    cached = {"ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts")}
    fleet.command("pgfleet.cache.rolling_restart", "--check", ANSIBLE_INJECT_FACT_VARS=inject, **cached)
    common = common_variables(fleet)
    fleet.set_hosts({"one": {}, "two": {"cache_snapshot_keep": "none"}}, **common)
    output, status = fleet.command("pgfleet.cache.snapshot", "pgfleet.cache.warmup", ANSIBLE_INJECT_FACT_VARS=inject, **cached)
    assert status != 0
    result = results(fleet)[-1]
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "done", "two": "refused"}, output
    output, status = fleet.command(
        "pgfleet.cache.snapshot", "pgfleet.cache.warmup", "-e", "cache_snapshot_keep=2", *GATE, ANSIBLE_INJECT_FACT_VARS=inject, **cached
    )
    assert status == 0, output


@thorough
def test_a_fact_names_no_directory(fleet, tmp_path):
    """A host cannot have the controller write somewhere, with a cache of facts that keeps what it said."""
    said = {"pgfleet_results": str(tmp_path / "theirs"), "cacheable": True}
    play = {"hosts": "postgresql", "gather_facts": False, "tasks": [{"name": "Keep a fact", "ansible.builtin.set_fact": said}]}
    (tmp_path / "before.yml").write_text(json.dumps([play]))
    cached = {"ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts")}
    fleet.set_hosts({"one": {}}, **{name: value for name, value in common_variables(fleet).items() if name != "pgfleet_results"})
    output, status = fleet.command(str(tmp_path / "before.yml"), **cached)
    assert status == 0, output
    output, status = fleet.command("pgfleet.cache.snapshot", ANSIBLE_INJECT_FACT_VARS="True", **cached)
    assert status != 0 and not (tmp_path / "theirs").exists()
    assert "pgfleet_results is set as a fact, which is not accepted" in output, output
