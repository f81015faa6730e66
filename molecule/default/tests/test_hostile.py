"""What the OS user postgres plants, beside real units of systemd: root restarts, limits, reads and runs nothing for it.

One play does all of it on one host; the tests look at its results and, before and after, at the units.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

pytestmark = pytest.mark.thorough

HOST = "pg-b"  # which has pipelining: much faster
testinfra_hosts = ["ansible://" + HOST]

REAL = "/var/lib/postgresql/15/main"
HOME = "/var/lib/postgresql/hostile"
FAKE = HOME + "/data"
MARKER = HOME + "/ran"
NEIGHBOURS = "/home/operator/data"
OWN = "postgresql@15-main.service"
FOREIGN = ["bystander.service", "neighbour.service", "jobs.service"]
BOTH = ["page_cache", "shared_buffers"]

# bystander is root's. neighbour is a server of another user's, as far as a module looks. jobs is root's as cron is, and runs
# what postgres has told it to run, in the directory that postgres has made.
PLANT = f"""
set -e
install -d -o postgres -g postgres -m 0700 {HOME} {FAKE} {FAKE}/base {FAKE}/global
install -d -o operator -g operator -m 0700 {NEIGHBOURS} {NEIGHBOURS}/base {NEIGHBOURS}/global
for folder in {FAKE} {NEIGHBOURS}; do
    echo 15 >$folder/PG_VERSION
    echo '{HOME}/postgres "-D" "{FAKE}"' >$folder/postmaster.opts
done
ln -s {NEIGHBOURS} {HOME}/link
printf '#!/bin/sh\\nid -u >>{MARKER}\\n' >{HOME}/pg_ctl
chmod 755 {HOME}/pg_ctl
cp {HOME}/pg_ctl {HOME}/postgres
systemd-run --quiet --unit=bystander sleep 3600
systemd-run --quiet --unit=neighbour --uid=operator --working-directory={NEIGHBOURS} sleep 3600
systemd-run --quiet --unit=jobs --working-directory={FAKE} sh -c 'setpriv --reuid postgres --regid postgres --init-groups sleep 3601 & exec sleep 3600'
systemctl show --property=MainPID --value neighbour >{NEIGHBOURS}/postmaster.pid
timeout 60 sh -c "until pgrep --uid postgres --full 'sleep 360[1]' >/dev/null; do sleep 0.1; done"
chown -R postgres: {HOME}/* && chown -R operator: {NEIGHBOURS}
echo '{HOME}/postgres "-D" "{REAL}"' >{REAL}/postmaster.opts
"""
REMOVE = f"""
systemctl stop {' '.join(FOREIGN)}
rm -rf {HOME} {NEIGHBOURS}
"""


def modules(data):
    """As root."""
    return [
        {"pgfleet.cache.cache_evict": {"data_directory": data, "layers": BOTH, "method": "restart"}},
        {"pgfleet.cache.cache_evict": {"data_directory": data, "layers": BOTH, "method": "restart", "service": FOREIGN[0]}},
        {"pgfleet.cache.page_cache_limit": {"data_directory": data, "method": "cgroup", "size": "1GB"}},
    ]


def named(process):
    """In the fake postmaster.pid."""
    return {"ansible.builtin.shell": f"{process} >{FAKE}/postmaster.pid; chown postgres: {FAKE}/postmaster.pid"}


def main_process(unit):
    return f"systemctl show --property=MainPID --value {unit}"


def role_check(unit):
    """Of the adapter systemd, right before it restarts a unit, with what a server says of itself."""
    return {
        "ansible.builtin.include_role": {"name": "pgfleet.cache.cache_common", "tasks_from": "service/systemd/look.yml", "apply": {"ignore_errors": True}},
        "vars": {
            "pgfleet_service_server": {
                "pid": f"{{{{ pids.results | selectattr('item', 'eq', '{unit}') | map(attribute='stdout') | first }}}}",
                "cluster_name": "15/main",
            },
            "pgfleet_service_name": unit,
        },
    }


def handler(unit, data):
    """The handler of the role cache_extension, which a preloaded library that was replaced notifies."""
    return {
        "hosts": HOST,
        "gather_facts": False,
        "become": True,
        "vars": {
            "__cache_extension_answer": {"data_directory": data, "cluster_name": "15/main"},
            "pgfleet_service_server": "{{ __cache_extension_answer | combine({'pid': __cache_extension_postmaster.stdout_lines | first}) }}",
            "pgfleet_service_name": unit,
            "pgfleet_service_timeout": 600,
            "pgfleet_service_manager": "systemd",
            "pgfleet_become_user": "postgres",
            "pgfleet_state_directory": "/var/lib/pgfleet",
            "pgfleet_take_over": "",
        },
        "roles": ["pgfleet.cache.cache_common"],
        "handlers": [{"ansible.builtin.import_tasks": "handlers.yml"}],
        "tasks": [
            *([named(main_process(unit))] if data == FAKE else []),
            {"ansible.builtin.command": "true", "notify": "Restart PostgreSQL to load pg_residency"},
        ],
    }


def state(host):
    """Of each unit, what a restart or a limit would change."""
    command = f"systemctl show --property=Id,MainPID,NRestarts,MemoryMax,ActiveEnterTimestampMonotonic {' '.join(FOREIGN)}"
    return host.run_expect([0], command).stdout


def one_result(task):
    [result] = task["hosts"].values()
    return result


@pytest.fixture(name="done", scope="module")
def fixture_done(host, request, tmp_path_factory):
    """Results of the modules, and what ansible-playbook said of each handler."""
    folder = tmp_path_factory.mktemp("hostile")
    host.run(REMOVE)
    host.run_expect([0], PLANT)
    inventory = request.config.getoption("ansible_inventory")

    def play(*plays):
        path = folder / "play.json"
        path.write_text(json.dumps(plays))
        return subprocess.run(
            ["ansible-playbook", "--inventory", inventory, str(path)], check=False, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, env=dict(os.environ, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json"),
        )

    with open(os.path.join(os.path.dirname(__file__), "../../../roles/cache_extension/handlers/main.yml"), encoding="utf-8") as file:
        (folder / "handlers.yml").write_text(file.read())
    tasks = [
        named(main_process(FOREIGN[0])), *modules(FAKE),
        named("pgrep --uid postgres --full 'sleep 3601'"), *modules(FAKE),
        *modules(HOME + "/link"),
        # the real one, whose postmaster.opts names another program
        {"pgfleet.cache.cache_evict": {"data_directory": REAL, "layers": BOTH, "method": "restart", "service": FOREIGN[2]}},
        {"pgfleet.cache.cache_evict": {"data_directory": REAL, "layers": BOTH, "method": "restart"}},
        named(main_process(FOREIGN[0])),
        {"ansible.builtin.command": main_process("{{ item }}"), "loop": [*FOREIGN, OWN], "register": "pids"},
        *(role_check(unit) for unit in (*FOREIGN[:2], OWN)),
    ]
    found = {"before": state(host), "started": host.run_expect([0], main_process(OWN)).stdout}
    try:
        common = {"hosts": HOST, "gather_facts": False, "become": True}
        answer = play(dict(common, tasks=[dict(task, ignore_errors=True) for task in tasks]))
        assert answer.stdout.startswith("{"), answer.stdout + answer.stderr
        results = [
            (one_result(task), task["task"]["name"])
            for one in json.loads(answer.stdout)["plays"] for task in one["tasks"]
        ]
        found["modules"] = [one for one, dummy in results if "pgfleet.cache." in one.get("action", "")]
        found["roles"] = [one for one, name in results if name.endswith("Check that systemd runs this server")]
        found["restarted"] = host.run_expect([0], main_process(OWN)).stdout
        found["handlers"] = [play(handler(FOREIGN[0], FAKE)), play(handler(FOREIGN[1], FAKE)), play(handler(OWN, REAL))]
        found["loaded"] = host.run_expect([0], main_process(OWN)).stdout
        found["after"] = state(host)
        marker = host.file(MARKER)
        found["ran"] = marker.content_string if marker.exists else ""
        yield found
    finally:
        host.run(REMOVE)


def test_no_foreign_unit_is_touched(done, host):
    assert done["before"].count("MainPID=") == 3 and "MainPID=0" not in done["before"]
    assert done["after"] == done["before"]
    assert done["ran"] == "", "a program of postgres's has run"
    assert not host.file("/var/lib/pgfleet/page_cache_limit.json").exists


def test_modules_refuse(done):
    messages = [one["msg"] for one in done["modules"]]
    assert [one.get("failed", False) for one in done["modules"]] == [False] * 2 + [True] * 8 + [False], messages
    assert not any(one.get("changed") for one in done["modules"][:10]), messages
    # a process of another user's; one of postgres's own in another unit; a link
    assert [(one["server"], one["restarted"]) for one in done["modules"][:2]] == [("stopped", False)] * 2, messages
    assert f"PostgreSQL is stopped in {FAKE}" in messages[2], messages
    assert all("is not PostgreSQL's own (its main process is" in one for one in messages[3:6]), messages
    assert all(f"{HOME}/link is a link that users other than root may have made" in one for one in messages[6:9]), messages
    assert "Unit jobs.service is not PostgreSQL's own" in messages[9], messages


def test_its_own_unit_is_restarted_by_systemd(done):
    """Whatever postmaster.opts says."""
    assert done["modules"][10]["restarted"] and done["restarted"] not in (done["started"], "0\n")


def test_a_role_refuses_a_unit_of_another_user(done):
    """The server names the right process; it is not of the cluster's user."""
    assert [one.get("failed", False) for one in done["roles"]] == [True, True, False], done["roles"]


def test_the_handler_restarts_its_own_unit_alone(done):
    first, second, own = done["handlers"]
    for one in (first, second):
        assert one.returncode != 0 and "does not run this server" in " ".join(one.stdout.split()), one.stdout
    assert own.returncode == 0, own.stdout
    assert done["loaded"] not in (done["restarted"], "0\n")
