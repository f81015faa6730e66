# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all playbooks have in common: variables as text, strategies, callbacks, who fails, what a run costs, and its results."""

from __future__ import annotations

import glob
import json
import os
import re
import stat
import subprocess
import threading
import time

import pytest
import yaml
from cluster import GATE, LOOSE, heart, quick, thorough
from conftest import HOSTS
from playbook import banners, recap

ROLES = os.path.join(os.path.dirname(__file__), "../../roles")
PLAYBOOKS = ("install", "snapshot", "status", "warmup", "cold_test", "rolling_restart")
ENTRY_POINTS = {
    "install": {"cache_extension": "main"},
    "snapshot": {"cache_snapshot": "main"},
    "status": {"cache_status": "main"},
    "warmup": {"cache_warmup": "main"},
    "cold_test": {"cache_cold_test": "main"},
    "rolling_restart": {"cache_restart": "main", "cache_snapshot": "main", "cache_warmup": "main"},
}
# As AWX and -e name=value give them
TEXTS = {
    "cache_cold_test_queries": [{"name": "one", "query": "SELECT count(*) FROM passenger"}],  # no text can be a list of dictionaries
    "cache_cold_test_settings": "max_parallel_workers_per_gather=0",
    "cache_cold_test_states": "both_cold,both_warm",
    "cache_cold_test_repeat": "1",
    "cache_extension_databases": "postgres,text",
    # not the defaults: see cluster.LOOSE
    "cache_restart_min_residency": str(LOOSE),
    "cache_warmup_min_residency": str(LOOSE),
}
OLDEST = os.environ["HOST_ENVIRONMENTS"] + "/core-2.18"
os.stat(OLDEST)  # without it the tests on the oldest core would be tests on the newest


def options(playbook):
    found = {}
    for role, entry_point in {"cache_common": "shared", **ENTRY_POINTS[playbook]}.items():
        with open(os.path.join(ROLES, role, "meta/argument_specs.yml"), encoding="utf-8") as file:
            found.update(yaml.safe_load(file)["argument_specs"][entry_point]["options"])
    return found


def as_text(playbook):
    """Every variable of the playbook by -e, with its default as text, but for the login, which the inventory has."""
    given = []
    for name, option in sorted(options(playbook).items()):
        value = TEXTS.get(name, option.get("default"))
        if name.startswith("pgfleet_") or value in (None, "", []) or "{{" in str(value):
            continue
        if name == "cache_cold_test_queries":
            given += ["-e", json.dumps({name: value})]
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
        given += ["-e", "%s='%s'" % (name, text)]
    return given


def common_variables(fleet):
    with open(fleet.inventory) as file:
        return json.load(file)["postgresql"]["vars"]


def results(fleet):
    return [json.loads(path.read_text()) for path in sorted(fleet.results.glob("*.json"))]


def unreachable(name, since):
    """-e: from the moment at which that file is there, this host does not answer."""
    connection = "{{ 'ssh' if inventory_hostname == '%s' and '%s' is exists else 'local' }}" % (name, since)
    return ["-e", json.dumps({"ansible_connection": connection, "ansible_port": 1, "ansible_host": "127.0.0.1"})]


@pytest.mark.parametrize("playbook", heart(["install", "snapshot", "warmup", "cold_test"], {"snapshot", "warmup"}.__contains__))
def test_all_variables_as_text(fleet, cluster, playbook):
    """Checked and run; on the oldest ansible-core that is supported, where there is an environment of it."""
    path = {"PATH": OLDEST + "/bin:" + os.environ["PATH"]}
    cluster.sql("CREATE DATABASE text")
    try:
        for more in (["--check"], []):
            output, status = fleet.command(
                "pgfleet.cache." + playbook, "--limit", "one", *as_text(playbook), *more, **path
            )
            assert status == 0, output
            assert "Traceback" not in output and "Unexpected Exception" not in output
    finally:
        cluster.sql("DROP DATABASE text WITH (FORCE)")
    assert [(one["playbook"], list(one["hosts"]), one["counts"]) for one in results(fleet)] == [(playbook, ["one"], {"done": 1})]


@quick
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_all_variables_are_wrong(fleet, cluster, playbook):
    """One message with all of them for each host, before the host is changed."""
    before = cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()")
    wrong = {}
    for name, option in options(playbook).items():
        if option["type"] in ("int", "float", "bool") or "choices" in option:
            wrong[name] = "maybe"
    output, status = fleet.command("pgfleet.cache." + playbook, "-e", json.dumps(wrong))
    assert status != 0 and "Traceback" not in output and results(fleet), output
    [result] = results(fleet)
    assert result["counts"] == {"failed": 3}, output
    for one in result["hosts"].values():
        assert not [name for name in wrong if name not in one["message"]], one["message"]
        assert "class '" not in one["message"] and len(one["message"]) < 200 * len(wrong), one["message"]
    assert output.count(sorted(wrong)[0] + " is maybe") + output.count(sorted(wrong)[0] + ": value of") <= 2 + 2 * len(result["hosts"]), output
    assert cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "cache_restart_gate=wiat"], "value of cache_restart_gate must be one of: fail, warn, wait, got: wiat"),
        pytest.param(["-e", "cache_restart_primary=Skip"], "value of cache_restart_primary must be one of: in_place, switchover, skip, got: Skip",
                     marks=thorough),
        (["-e", "cache_restart_gaet=wait"], "cache_restart_gaet is not a variable of this collection: did you mean cache_restart_gate?"),
        (["-e", "cache_restart_min_residency=900"], "cache_restart_min_residency is 900: it must be a number from 0 to 100."),
        pytest.param(["-e", "target="], "No host of this run is in '': set a group or hosts of the inventory with -e target=...", marks=thorough),
        (["-e", "target=nobody"], "No host of this run is in 'nobody': set a group or hosts of the inventory with -e target=..."),
    ],
    ids=["choice", "case", "misspelt", "range", "no target", "unknown target"],
)
def test_one_is_wrong(fleet, arguments, message):
    output, status = fleet.command("pgfleet.cache.rolling_restart", *arguments)
    assert status != 0 and message in " ".join(output.split()), output
    assert "Traceback" not in output and "Query the servers for their state" not in output


@pytest.mark.parametrize("name", ["warmup_serial", "target"])
def test_a_variable_of_the_inventory_that_no_play_sees(fleet, name):
    """Ansible would take the default without a word."""
    fleet.set_hosts({"one": {}, "two": {name: "1"}}, **common_variables(fleet))
    output, status = fleet.command("pgfleet.cache.warmup", "--check")
    assert status != 0 and recap(output)["one"]["failed"] == 0 and recap(output)["two"]["failed"] == 1, output
    assert "%s is set in the inventory, which a play does not see: give it with -e %s=..." % (name, name) in table(output)["two"], output


@pytest.mark.parametrize(("variables", "arguments", "message"), [
    ({"ansible_become_user": "postgres"}, [], "ansible_become_user is set, which takes the place of root and of pgfleet_become_user"),
    ({}, ["--become-user", "postgres"], "--become-user postgres would take root's place: leave it out."),
])
def test_a_user_that_takes_the_place_of_each_task_s(fleet, variables, arguments, message):
    fleet.set_hosts({"one": {}, "two": variables}, **common_variables(fleet))
    output, status = fleet.command("pgfleet.cache.snapshot", "--check", *arguments)
    assert status != 0 and message in " ".join(output.split()) and "Traceback" not in output, output


@quick
def test_one_host_is_refused(fleet):
    common = common_variables(fleet)
    fleet.set_hosts({"one": {}, "two": {"cache_snapshot_keep": "none"}}, **common)
    output, status = fleet.command("pgfleet.cache.snapshot")
    assert status != 0
    [result] = results(fleet)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "done", "two": "failed"}
    assert "cache_snapshot_keep" in result["hosts"]["two"]["message"]
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == {"one": 0, "two": 1}


@pytest.mark.parametrize(("playbook", "limit"), heart([("warmup", []), ("warmup", ["--limit", "postgresql"]), ("snapshot", [])], ("warmup", []).__eq__))
def test_all_are_lost(fleet, playbook, limit):
    """The table is printed all the same, and each of them has failed."""
    nowhere = json.dumps({"ansible_connection": "ssh", "ansible_port": 1, "ansible_host": "127.0.0.1"})
    output, status = fleet.command("pgfleet.cache." + playbook, *limit, "-e", nowhere)
    assert status != 0
    [result] = results(fleet)
    assert result["counts"] == {"unreachable": 3} and set(result["hosts"]) == set(HOSTS)
    assert "3 of 3 hosts failed: one, two, three. The table shows why." in output
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == dict.fromkeys(HOSTS, 1)


# the controller's network, after the first module has run on each of the three
ONCE = """#!/bin/sh
/usr/bin/python3 "$@"
status=$?
echo >>@count@
[ $(wc -l <@count@) -lt 3 ] || touch @lost@
exit $status
"""


@thorough
@pytest.mark.parametrize("playbook", ["install", "warmup", "cold_test"])
def test_all_are_lost_midway(fleet, playbook):
    folder = os.path.join(fleet.directory, "midway-" + playbook)
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    python, count, lost = (os.path.join(folder, name) for name in ("python", "count", "lost"))
    with open(python, "w") as file:
        file.write(ONCE.replace("@count@", count).replace("@lost@", lost))
    os.chmod(python, 0o755)
    fleet.set_hosts(
        {one: {"ansible_python_interpreter": python} for one in HOSTS}, **common_variables(fleet),
        cache_cold_test_queries=[{"name": "one", "query": "SELECT count(*) FROM passenger"}], cold_test_serial=3,
    )
    connection = "{{ 'ssh' if '%s' is exists and inventory_hostname != 'localhost' else 'local' }}" % lost
    output, status = fleet.command(
        "pgfleet.cache." + playbook, "-e", json.dumps({"ansible_connection": connection, "ansible_port": 1, "ansible_host": "127.0.0.1"}),
        ANSIBLE_PIPELINING="True", ANSIBLE_FORKS="3",
    )
    assert status != 0 and os.path.exists(lost)
    [result] = results(fleet)
    assert set(result["hosts"]) == set(HOSTS) and result["counts"].get("done", 0) == 0, output
    assert "3 of 3 hosts failed: one, two, three. The table shows why." in output
    assert {host: counted["failed"] + counted["unreachable"] for host, counted in recap(output).items() if host != "localhost"} == dict.fromkeys(HOSTS, 1)


@thorough
def test_one_is_lost_midway(fleet, cluster, tmp_path):
    """While its restore runs: the others come to their end, the table says that the job goes on, and the right host fails."""
    path, lost = cluster.file_of("passenger"), str(tmp_path / "lost")
    cluster.warm(path)
    cluster.sql("SELECT FROM residency_snapshot('midway', 1, true)")
    cluster.cool(path)
    jobs = "SELECT count(*) FROM residency_jobs WHERE state IN ('starting', 'waiting', 'running')"

    def lose():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and cluster.sql(jobs) == "0":
            time.sleep(0.1)
        open(lost, "w").close()

    thread = threading.Thread(target=lose)
    thread.start()
    output, status = fleet.command(
        "pgfleet.cache.warmup", *unreachable("one", lost), "-e", "cache_warmup_snapshot=midway", "-e", "cache_warmup_rate=4MB",
        "-e", "cache_warmup_min_residency=0", ANSIBLE_FORKS="1"
    )
    thread.join()
    [result] = results(fleet)
    assert status != 0 and os.path.exists(lost)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "unreachable", "two": "done", "three": "done"}, output
    assert re.search(r"Job \d+ does not depend on the connection: it goes on there\.", result["hosts"]["one"]["message"])
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == {"one": 1, "two": 0, "three": 0}
    assert "1 of 3 hosts failed: one. The table shows why." in output


def table(output):
    """host -> its line of the report"""
    return {line.split()[0]: line for line in output.split("PLAY RECAP")[0].splitlines() if re.match("(%s) " % "|".join(HOSTS), line)}


@thorough
def test_a_snapshot_that_is_too_old(fleet, cluster):
    """Refused in check mode too, and before anything is loaded."""
    jobs = "SELECT count(*), max(job) FROM residency_jobs"
    aged = "SELECT bool_and(taken_at < now() - interval '1 s') FROM residency_snapshots() WHERE name = 'warm'"
    before, deadline = cluster.sql(jobs), time.monotonic() + 60
    while cluster.sql(aged) != "t" and time.monotonic() < deadline:
        time.sleep(0.1)
    path = cluster.file_of("passenger")
    for more in (["--check", "--diff"], []):
        cluster.cool(path)
        output, status = fleet.command("pgfleet.cache.warmup", "-e", "cache_warmup_max_age=1s", *more)
        assert status != 0, output
        for line in table(output).values():
            assert re.search(r"failed .* Snapshot warm@\d+ is from \d+ s ago, and max_age is 1\.0 s: save a new one", line), output
            assert "cache_warmup_max_age" in line
        assert cluster.sql(jobs) == before and cluster.resident(path) < 1 << 20
    for one in results(fleet)[-1]["hosts"].values():
        assert 1 < one["result"]["snapshot_age"] < 3600 and one["result"]["snapshot"].startswith("warm@")
    output, status = fleet.command("pgfleet.cache.warmup", "-e", "cache_warmup_max_age=1d", *GATE)
    assert status == 0, output


@thorough
def test_thin_generations_are_in_the_table(fleet, cluster):
    """Newer ones that the name does not mean, and one that is asked for by its number."""
    for relation in ("passenger", '"Boarding Pass"'):
        cluster.warm(cluster.file_of(relation))
    full = int(cluster.sql("SELECT generation FROM residency_snapshot('layers', 1, true)"))
    for relation in ("passenger", '"Boarding Pass"', "passenger_id"):
        cluster.cool(cluster.file_of(relation))
    assert cluster.sql("SELECT thin FROM residency_snapshot('layers', 1)") == "t"
    for asked, said in (
        ("layers", r"'layers' means layers@%d, from \d+ s ago: layers@%d is newer and thin" % (full, full + 1)),
        ("layers@%d" % (full + 1), r"layers@%d is thin: it holds .* 'layers' means layers@%d, from " % (full + 1, full)),
    ):
        for more in (["--check"], []):
            output, dummy = fleet.command("pgfleet.cache.warmup", "-e", "cache_warmup_snapshot=" + asked, "-e", "cache_warmup_min_residency=0", *more)
            assert set(table(output)) == set(HOSTS) and re.search("^(All hosts|%s).*%s" % ("|".join(HOSTS), said), output, re.MULTILINE), output
    for relation in ("passenger", '"Boarding Pass"', "passenger_id"):
        cluster.cool(cluster.file_of(relation))
    output, status = fleet.command("pgfleet.cache.snapshot", "--check", "--limit", "one", "-e", "cache_snapshot_name=layers")
    assert status == 0 and "Would save " in output and "The new generation would be thin" in table(output)["one"], output


@thorough
def test_every_line_that_is_not_perfect_says_why(fleet, cluster):
    """Below max_gone and above min_residency: nothing has failed, and the table tells."""
    cluster.sql("CREATE TABLE dropped AS SELECT repeat('x', 1000) AS a FROM generate_series(1, 800); CREATE TABLE \"Re written\" AS TABLE dropped")
    for relation in ("dropped", '"Re written"', "passenger"):
        cluster.warm(cluster.file_of(relation))
    cluster.sql("SELECT FROM residency_snapshot('imperfect', 1, true)")
    cluster.sql('DROP TABLE dropped; VACUUM FULL "Re written"; CHECKPOINT')
    try:
        output, status = fleet.command("pgfleet.cache.warmup", "-e", "cache_warmup_snapshot=imperfect", "-e", "cache_warmup_min_residency=0")
    finally:
        cluster.sql('DROP TABLE "Re written"')
    assert status == 0, output
    assert set(table(output)) == set(HOSTS)
    [line] = re.findall(r"^All hosts: .* of the snapshot is gone \(\d[0-9.]* %\): .*", output, re.MULTILINE)
    assert 'table public."Re written" in postgres (9' in line and ", rewritten)" in line, output
    assert "table public.dropped in postgres (9" in line and ", dropped or truncated)" in line, output
    for one in results(fleet)[-1]["hosts"].values():
        assert one["result"]["remarks"] and one["verdict"] == "done"


# as a host could change what its modules return
ODD = """#!/bin/sh
/usr/bin/python3 "$@" | sed -E 's/"(residency|generation)": [0-9.]+/"\\1": "\\\\u001b[2Jall of it"/g'
"""


@thorough
@pytest.mark.parametrize("playbook", ["snapshot", "warmup"])
def test_a_result_of_odd_types(fleet, cluster, playbook):
    """It costs its own row, not the table."""
    path = os.path.join(fleet.directory, "odd-python")  # where the cluster's user can run it
    with open(path, "w") as file:
        file.write(ODD)
    os.chmod(path, 0o755)
    cluster.warm(cluster.file_of("pg_database"))
    fleet.set_hosts(dict({name: {} for name in HOSTS}, two={"ansible_python_interpreter": path}), **common_variables(fleet))
    output, status = fleet.command("pgfleet.cache." + playbook)
    assert status != 0 and "Traceback" not in output
    [result] = results(fleet)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "done", "two": "failed", "three": "done"}, output
    assert result["hosts"]["two"]["message"].startswith("Its result has unexpected types: ")
    assert "1 of 3 hosts failed: two. The table shows why." in output and "\x1b[2J" not in output
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == {"one": 0, "two": 1, "three": 0}


ODD_NAMES = ["a:b", "db[1]", "!x", "~x", "&y", "db*", "::1", "db1", "db10"]


@thorough
@pytest.mark.parametrize("path", [OLDEST + "/bin:", ""], ids=["oldest", "newest"])
def test_odd_names(fleet, tmp_path, path):
    """They are patterns, too: the right ones fail."""
    inventory = {
        "postgresql": {"hosts": ODD_NAMES, "vars": common_variables(fleet)},
        "_meta": {"hostvars": {name: {"cache_snapshot_keep": "none"} for name in ODD_NAMES[::2]}},
    }
    script = tmp_path / "inventory"
    script.write_text("#!/bin/sh\ncat <<'EOF'\n%s\nEOF\n" % json.dumps(inventory))
    script.chmod(0o755)
    fleet.inventory = str(script)
    output, status = fleet.command("pgfleet.cache.snapshot", PATH=path + os.environ["PATH"])
    assert status != 0
    [result] = results(fleet)
    expected = {name: int(number % 2 == 0) for number, name in enumerate(ODD_NAMES)}
    assert {host: int(one["verdict"] == "failed") for host, one in result["hosts"].items()} == expected, output
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == expected, output


@thorough
@pytest.mark.parametrize("check", [[], ["--check"]], ids=["real", "check"])
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_results_that_cannot_be_written(fleet, cluster, tmp_path, playbook, check):
    """Known before anything is done."""
    (tmp_path / "file").write_text("")
    before = cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()")
    output, status = fleet.command("pgfleet.cache." + playbook, *as_text(playbook), "-e", "pgfleet_results=%s/file/results" % tmp_path, *check)
    assert status != 0 and "Correct pgfleet_results; empty means no file." in " ".join(output.split()), output
    assert cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()") == before


@thorough
def test_the_dry_run_leaves_no_directory(fleet):
    output, status = fleet.command("pgfleet.cache.snapshot", "--check")
    assert status == 0, output
    assert not fleet.results.exists()


@thorough
@pytest.mark.parametrize("limit", [[], ["--limit", "two,three"]], ids=["all", "limited"])
def test_results_that_become_too_many(fleet, tmp_path, limit):
    """There is room at the beginning, and not at the end: the table is shown, and the run is red."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(directory)], check=True)
    try:
        output, status = fleet.command("pgfleet.cache.snapshot", *limit, "-e", "pgfleet_results=%s" % directory)
        left = list(directory.iterdir())
    finally:
        subprocess.run(["umount", str(directory)], check=True)
    assert status != 0 and left == []
    lost = "The results could not be written: [Errno 28] No space left on device. Correct pgfleet_results."
    assert lost in output.splitlines(), output
    assert {host: counted["failed"] for host, counted in recap(output).items() if counted["failed"]} == {"two" if limit else "one": 1}
    assert "host   snapshot" in output


@thorough
def test_starters_at_the_same_moment(fleet, cluster):
    """Of one snapshot on one cluster: one starts the job, and the others wait for it."""
    path = cluster.file_of("passenger")
    cluster.warm(path)
    cluster.sql("SELECT FROM residency_snapshot('together', 1, true)")
    common = common_variables(fleet)
    fleet.set_hosts({"db%d" % number: {} for number in range(6)}, **common)
    for dummy in range(3):
        cluster.cool(path)
        output, status = fleet.command(
            "pgfleet.cache.warmup", "-e", "cache_warmup_snapshot=together", "-e", "cache_warmup_rate=2MB",
            "-e", "cache_warmup_min_residency=0", ANSIBLE_FORKS="6"
        )
        assert status == 0, output
        assert len({one["result"]["job"] for one in results(fleet)[-1]["hosts"].values()} - {None}) == 1


@thorough
@pytest.mark.parametrize("playbook", ["snapshot", "warmup", "rolling_restart"])
@pytest.mark.parametrize("strategy", ["free", "host_pinned"])
def test_strategies(fleet, playbook, strategy):
    output, status = fleet.command("pgfleet.cache." + playbook, "--check", ANSIBLE_STRATEGY=strategy)
    # three names of one primary are no fleet, which is what the last one has to say
    assert (status == 0) is (playbook != "rolling_restart"), output
    assert output.count("TASK [Write the report]") == 1 and "has no attribute" not in output


@thorough
@pytest.mark.parametrize("callback", ["ansible.posix.json", "minimal", "ansible.builtin.oneline", "yaml"])
def test_callbacks(fleet, callback):
    environment = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"} if callback == "yaml" else {"ANSIBLE_STDOUT_CALLBACK": callback}
    output, status = fleet.command("pgfleet.cache.warmup", *GATE, ANSIBLE_SHOW_CUSTOM_STATS="True", **environment)
    assert status == 0 and "The results are in %s" % fleet.results in output, output
    if callback.endswith("json"):
        answer = json.loads(output[output.index("{\n"):output.rindex("}") + 1])
        assert answer["global_custom_stats"]["pgfleet"]["counts"] == {"done": 3}
        assert answer["global_custom_stats"]["pgfleet"]["hosts"]["two"] == {"verdict": "done", "message": ""}


@thorough
def test_the_report_is_shown_where_few_lines_are_wanted(fleet):
    """As the README has it: tables as they are, without quotation marks, also where Ansible shows changes and failures alone."""
    output, status = fleet.command("pgfleet.cache.warmup", "--check", *GATE, ANSIBLE_DISPLAY_OK_HOSTS="False", ANSIBLE_DISPLAY_SKIPPED_HOSTS="False")
    assert status == 0 and list(table(output)) == list(HOSTS) and "ok: [" not in output, output


@thorough
@pytest.mark.parametrize("arguments", [["--tags", "nothing"], ["--start-at-task", "Write the report"]], ids=lambda one: one[0])
def test_a_part_that_leaves_out_the_work(fleet, arguments):
    output, status = fleet.command("pgfleet.cache.warmup", *arguments)
    assert status != 0 and "is undefined" not in output, output
    assert "nothing was done" in output and {one: counted["failed"] for one, counted in recap(output).items() if one in HOSTS} == dict.fromkeys(HOSTS, 1)


def test_the_results_file(fleet):
    """As docs/results.md has it."""
    output, status = fleet.command("pgfleet.cache.warmup", *GATE)
    assert status == 0, output
    [path] = fleet.results.glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(fleet.results.stat().st_mode) == 0o700
    assert re.fullmatch(r"warmup-\d{8}T\d{6}Z\.json", path.name)
    with open(os.path.join(ROLES, "../docs/results.md"), encoding="utf-8") as file:
        text = file.read()
    result = json.loads(path.read_text())
    assert set(result) == {"schema", "playbook", "started", "finished", "check_mode", "counts", "hosts"}
    assert not [key for key in result if "`%s`" % key not in text]
    for one in result["hosts"].values():
        assert set(one) == {"verdict", "message", "result"} and one["result"]["residency"] >= 0 and "invocation" not in one["result"]
    assert result["schema"] == 1 and result["started"] <= result["finished"]


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=thorough)])
def test_what_a_warm_up_of_warm_hosts_costs(fleet, cluster, count):
    """Two remote calls for each, no ping, at most 16 lines of plays and tasks, and five lines a host: two checks, start, end, no failure."""
    fleet.set_hosts(
        {"db%d" % number: {} for number in range(count)},
        pgfleet_login_port=cluster.port, pgfleet_login_unix_socket=cluster.socket, pgfleet_results="",
    )
    # one block, so that nothing is taken back by the kernel meanwhile
    cluster.warm(cluster.file_of("pg_database"))
    output, status = fleet.command("pgfleet.cache.warmup", "-vvv", "-e", "cache_warmup_relations=pg_database", *GATE)
    assert status == 0, output
    calls = re.findall(r"^<(db\d+)> EXEC .*python3", output, re.MULTILINE)
    assert {host: calls.count(host) for host in calls} == {"db%d" % number: 2 for number in range(count)}
    plain = [line for line in output.splitlines() if re.match(r"(ok|changed|skipping|included): ", line)]
    assert len(banners(output)) <= 16 and len(plain) <= 5 * count + 10, "%d banners, %d lines" % (len(banners(output)), len(plain))


@pytest.mark.parametrize("playbook", heart(PLAYBOOKS, {"warmup"}.__contains__))
def test_task_files_of_the_same_names(fleet, cluster, tmp_path, playbook):
    """Beside a playbook of the user's that imports this one: none of them is taken for the role's."""
    (tmp_path / "tasks").mkdir()
    names = {name for folder in [*glob.glob(os.path.join(ROLES, "*/tasks")), os.path.join(ROLES, "../playbooks/tasks")] for name in os.listdir(folder)}
    foreign = [{"name": "Fail", "ansible.builtin.fail": {"msg": "foreign tasks"}}]
    for name in names:
        for folder in ("", "tasks/"):
            (tmp_path / (folder + name)).write_text(json.dumps(foreign))
    cluster.warm(cluster.file_of("pg_database"))
    own = {
        "target": "postgresql", "cache_cold_test_states": ["both_cold"],
        "cache_cold_test_queries": [{"name": "one", "query": "SELECT count(*) FROM passenger"}],
        "cache_restart_min_standbys": 0, "pgfleet_service_manager": __file__ if playbook == "rolling_restart" else "systemd",
        "cache_warmup_relations": ["{{ relation }}"],
    }
    fleet.set_hosts({"one": {"relation": "pg_database"}}, **common_variables(fleet))
    (tmp_path / "own.yml").write_text(json.dumps([{"name": "Import it", "ansible.builtin.import_playbook": "pgfleet.cache." + playbook, "vars": own}]))
    output, status = fleet.command(str(tmp_path / "own.yml"), *(["--check"] if playbook == "rolling_restart" else []))
    assert status == 0 and "foreign" not in output, output
