# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all playbooks have in common: variables as text, strategies, callbacks, who fails, what a run costs, and its results."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time

import pytest
import yaml
from playbook import task

ROLES = os.path.join(os.path.dirname(__file__), "../../roles")
PLAYBOOKS = ("install", "snapshot", "warmup", "cold_test", "rolling_restart")
ENTRY_POINTS = {
    "install": {"cache_extension": "main"},
    "snapshot": {"cache_snapshot": "main"},
    "warmup": {"cache_warmup": "start"},
    "cold_test": {"cache_cold_test": "main"},
    "rolling_restart": {"cache_restart": "main", "cache_warmup": "main"},
}
# As AWX and -e name=value give them
TEXTS = {
    "cache_cold_test_queries": '[{"name": "one", "query": "SELECT count(*) FROM passenger"}]',
    "cache_cold_test_settings": "max_parallel_workers_per_gather=0",
    "cache_cold_test_states": "both_cold,both_warm",
    "cache_cold_test_repeat": "1",
    "cache_extension_databases": "postgres,without",
}
OLDEST = os.environ["HOST_ENVIRONMENTS"] + "/core-2.18"
HOSTS = ("one", "two", "three")


def options(playbook):
    found = {}
    for role, entry_point in ENTRY_POINTS[playbook].items():
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
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
        given += ["-e", "%s='%s'" % (name, text)]
    return given


@pytest.fixture
def fleet(cluster, ansible, tmp_path):
    """Three names of one cluster, which is all that these playbooks' common parts need."""
    ansible.set_hosts(
        {name: {} for name in HOSTS},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_extension_pg_config=cluster.bin + "/pg_config",
        cache_cold_test_results="",
        pgfleet_results=str(tmp_path / "results"),
    )
    ansible.results = tmp_path / "results"
    cluster.sql("SELECT FROM residency_snapshot('warm', 1, true)")
    return ansible


def common_variables(fleet):
    with open(fleet.inventory) as file:
        return json.load(file)["postgresql"]["vars"]


def results(fleet):
    return [json.loads(path.read_text()) for path in sorted(fleet.results.glob("*.json"))]


def recap(output):
    """host -> what the recap counts"""
    lines = output.split("PLAY RECAP")[1].splitlines()[1:]
    return {
        line.split()[0]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for line in lines if " ok=" in line
    }


def banners(output):
    return re.findall(r"^(?:PLAY|TASK|RUNNING HANDLER) \[.*", output, re.MULTILINE)


def unreachable(name, since):
    """-e: from the moment at which that file is there, this host does not answer."""
    connection = "{{ 'ssh' if inventory_hostname == '%s' and '%s' is exists else 'local' }}" % (name, since)
    return ["-e", json.dumps({"ansible_connection": connection, "ansible_port": 1, "ansible_host": "127.0.0.1"})]


@pytest.mark.parametrize("playbook", ["install", "snapshot", "warmup", "cold_test"])
def test_all_variables_as_text(fleet, playbook):
    """Checked, run, and run again; on the oldest ansible-core that is supported, where there is an environment of it."""
    path = {"PATH": OLDEST + "/bin:" + os.environ["PATH"]} if os.path.isdir(OLDEST) else {}
    for more in (["--check"], [], []):
        output, status = fleet.command(
            "pgfleet.cache." + playbook, "--limit", "one", *as_text(playbook), *more, **path
        )
        assert status == 0, output
        assert "Traceback" not in output and "Unexpected Exception" not in output
    assert [(one["playbook"], list(one["hosts"]), one["counts"]) for one in results(fleet)] == [(playbook, ["one"], {"done": 1})] * 2


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_all_variables_are_wrong(fleet, cluster, playbook):
    """One message, of all of them, before anything is done."""
    before = cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()")
    wrong = {
        name: {"list": {"a": 1}, "raw": "none", "bool": "maybe"}.get(option["type"], ["one"])
        for name, option in options(playbook).items()
    }
    output, status = fleet.command("pgfleet.cache." + playbook, "-e", json.dumps(wrong))
    text = " ".join(output.split())
    assert status != 0 and "Nothing was changed." in text
    assert not [name for name in wrong if name + " is " not in text and name + ":" not in text], text
    assert len(banners(output)) == 2 and results(fleet) == []
    assert cluster.sql("SELECT array_agg(name ORDER BY name, generation) FROM residency_snapshots()") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "cache_restart_gate=wiat"], "cache_restart_gate is 'wiat': it has to be fail, warn or wait."),
        (["-e", "cache_restart_primary=Skip"], "cache_restart_primary is 'Skip': it has to be in_place, switchover or skip."),
        (["-e", "cache_restart_gaet=wait"], "cache_restart_gaet is no variable of this collection: did you mean cache_restart_gate?"),
        (["-e", "target="], "No host here is in '': name a group or hosts of the inventory with -e target=..."),
        (["-e", "target=nobody"], "No host here is in 'nobody': name a group or hosts of the inventory with -e target=..."),
    ],
    ids=["choice", "case", "misspelt", "no target", "unknown target"],
)
def test_one_is_wrong(fleet, arguments, message):
    output, status = fleet.command("pgfleet.cache.rolling_restart", *arguments)
    assert status != 0 and message in " ".join(output.split()), output
    assert "Traceback" not in output and len(banners(output)) == 2


def test_one_host_is_refused(fleet):
    common = common_variables(fleet)
    fleet.set_hosts({"one": {}, "two": {"cache_snapshot_keep": "none"}}, **common)
    output, status = fleet.command("pgfleet.cache.snapshot")
    assert status != 0
    [result] = results(fleet)
    assert {host: one["verdict"] for host, one in result["hosts"].items()} == {"one": "done", "two": "refused"}
    assert result["hosts"]["two"]["message"] == "cache_snapshot_keep is 'none': it has to be a whole number from 1 to 1000000."
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == {"one": 0, "two": 1}


@pytest.mark.parametrize("limit", [[], ["--limit", "postgresql"]], ids=["all", "limited"])
@pytest.mark.parametrize("playbook", ["snapshot", "warmup"])
def test_all_are_lost(fleet, playbook, limit):
    """The table is printed all the same, and each of them has failed."""
    nowhere = json.dumps({"ansible_connection": "ssh", "ansible_port": 1, "ansible_host": "127.0.0.1"})
    output, status = fleet.command("pgfleet.cache." + playbook, *limit, "-e", nowhere)
    assert status != 0
    [result] = results(fleet)
    assert result["counts"] == {"unreachable": 3} and set(result["hosts"]) == set(HOSTS)
    assert "3 of 3 hosts failed: one, two, three. The table says why." in output
    assert {host: counted["failed"] for host, counted in recap(output).items() if host != "localhost"} == dict.fromkeys(HOSTS, 1)


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
    assert "1 of 3 hosts failed: one. The table says why." in output


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
            "pgfleet.cache.warmup", "-e", "cache_warmup_snapshot=together", "-e", "cache_warmup_rate=8MB",
            "-e", "cache_warmup_min_residency=0", ANSIBLE_FORKS="6"
        )
        assert status == 0, output
        assert len({one["result"]["job"] for one in results(fleet)[-1]["hosts"].values()} - {None}) == 1


@pytest.mark.parametrize("playbook", ["snapshot", "warmup", "rolling_restart"])
@pytest.mark.parametrize("strategy", ["free", "host_pinned"])
def test_strategies(fleet, playbook, strategy):
    output, status = fleet.command("pgfleet.cache." + playbook, "--check", ANSIBLE_STRATEGY=strategy)
    # three names of one primary are no fleet, which is what the last one has to say
    assert (status == 0) is (playbook != "rolling_restart"), output
    assert output.count("TASK [Show all hosts]") == 1 and "has no attribute" not in output


@pytest.mark.parametrize("callback", ["ansible.posix.json", "minimal", "ansible.builtin.oneline", "yaml"])
def test_callbacks(fleet, callback):
    environment = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"} if callback == "yaml" else {"ANSIBLE_STDOUT_CALLBACK": callback}
    output, status = fleet.command("pgfleet.cache.warmup", ANSIBLE_SHOW_CUSTOM_STATS="True", **environment)
    assert status == 0 and "The results are in %s" % fleet.results in output, output
    if callback.endswith("json"):
        answer = json.loads(output[output.index("{\n"):output.rindex("}") + 1])
        assert answer["global_custom_stats"]["pgfleet"]["counts"] == {"done": 3}
        assert answer["global_custom_stats"]["pgfleet"]["hosts"]["two"] == {"verdict": "done", "message": ""}


@pytest.mark.parametrize("arguments", [["--tags", "nothing"], ["--start-at-task", "Keep the results"]], ids=lambda one: one[0])
def test_a_part_that_leaves_out_the_work(fleet, arguments):
    output, status = fleet.command("pgfleet.cache.warmup", *arguments)
    assert status != 0 and "is undefined" not in output, output
    assert "nothing was done" in output and {one: counted["failed"] for one, counted in recap(output).items() if one in HOSTS} == dict.fromkeys(HOSTS, 1)


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
    output, status = fleet.command("pgfleet.cache.snapshot", "pgfleet.cache.warmup", "-e", "cache_snapshot_keep=2", ANSIBLE_INJECT_FACT_VARS=inject, **cached)
    assert status == 0, output


def test_the_results_file(fleet):
    """As docs/results.md has it."""
    output, status = fleet.command("pgfleet.cache.warmup")
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


@pytest.mark.parametrize("count", [3, 40])
def test_what_a_warm_up_of_warm_hosts_costs(fleet, cluster, count):
    """Two remote calls for each, no ping, at most 16 lines of plays and tasks, and no line for a host that says nothing."""
    fleet.set_hosts(
        {"db%d" % number: {} for number in range(count)},
        pgfleet_login_port=cluster.port, pgfleet_login_unix_socket=cluster.socket, pgfleet_results="",
    )
    # one block, so that nothing is taken back by the kernel meanwhile
    cluster.warm(cluster.file_of("pg_database"))
    output, status = fleet.command("pgfleet.cache.warmup", "-vvv", "-e", "cache_warmup_relations=pg_database")
    assert status == 0, output
    calls = re.findall(r"^<(db\d+)> EXEC .*python3", output, re.MULTILINE)
    assert {host: calls.count(host) for host in calls} == {"db%d" % number: 2 for number in range(count)}
    plain = [line for line in output.splitlines() if re.match(r"(ok|changed|skipping|included): ", line)]
    assert len(banners(output)) <= 16 and len(plain) <= 2 * count + 6, "%d banners, %d lines" % (len(banners(output)), len(plain))


@pytest.mark.parametrize("mode", [[], ["--check"]], ids=["real", "check"])
def test_what_an_install_with_nothing_to_do_costs(fleet, mode):
    """It was 17 remote calls, of which two were apt's, and 62 lines of plays and tasks."""
    output, status = fleet.command("pgfleet.cache.install", "-vvv", "--limit", "one", *mode)
    assert status == 0, output
    calls = re.findall(r"^<one> EXEC .*python3", output, re.MULTILINE)
    assert len(calls) <= 17 // 3 and len(banners(output)) <= 42, "%d calls, %d banners" % (len(calls), len(banners(output)))
    assert not [line for line in banners(output) if "ackages" in line] and "AnsiballZ_apt" not in output
    assert recap(output)["one"]["changed"] == 0


def test_an_install_repairs_what_was_removed_by_hand(fleet, cluster):
    """Also where the record beside the library still says that all is there."""
    control = os.path.join(cluster.bin, "../../../../share/postgresql/15/extension/pg_residency.control")
    os.unlink(control)
    output, status = fleet.command("pgfleet.cache.install", "--limit", "one")
    assert status == 0 and os.path.exists(control), output


def test_a_password_is_shown_nowhere(fleet, by_password, cluster):
    """In the options of every module that logs in, with others that are wrong."""
    login = by_password("monitor")
    wrong = [
        task("query_io", queries=["SELECT 1"], **login),
        task("query_io", queries=[{"query": {"a": 1}}], **login),
        task("query_io", queries=[5], **login),
        task("query_io", query="SELECT 1", settings=[1], **login),
        task("residency_info", subset=["nothing"], **login),
        task("residency_restore", name="warm", relations={"a": 1}, nothing=1, **login),
        task("residency_snapshot", name="warm", keep="none", **login),
        task("residency_extension", databases={"a": 1}, **login),
        task("cache_evict", layers=["none"], **login),
        task("server_query", query="SELECT 1", named_args="none", **login),
    ]
    for one in wrong:
        for callback in ("ansible.builtin.default", "ansible.posix.json", "minimal"):
            output, status = fleet.command(
                fleet.write([one], hosts="one"), "-vvv", ANSIBLE_STDOUT_CALLBACK=callback, ANSIBLE_PIPELINING="True"
            )
            assert status != 0 and login["login_password"] not in output, output
    runs = [["snapshot"], ["warmup"], ["cold_test", "-e", "cache_cold_test_queries='select 1'"], ["warmup", "-e", "cache_warmup_rate=x"]]
    for playbook, *more in runs:
        output, dummy = fleet.command(
            "pgfleet.cache." + playbook, "--check", "-vvv", "--limit", "one", "-e", "pgfleet_login_password=%s" % login["login_password"], *more
        )
        found = [line for line in output.splitlines() if login["login_password"] in line]
        assert found == [], found
    for path in fleet.results.glob("*"):
        assert login["login_password"] not in path.read_text()
