"""The adapter systemd does the steps of its contract (docs/adapters.md), beside the real unit: the machine is asked what runs."""

from __future__ import annotations

import pytest

HOST = "pg-b"  # which has pipelining: much faster
testinfra_hosts = ["ansible://" + HOST]

REAL = "/var/lib/postgresql/15/main"
UNIT = "postgresql@15-main.service"


def pid(host):
    """Of the unit's main process, 0 where there is none."""
    return int(host.run_expect([0], f"systemctl show --property=MainPID --value {UNIT}").stdout)


@pytest.fixture(name="step")
def fixture_step(host, play):
    def step(name, **variables):
        server = {"pid": pid(host), "cluster_name": "15/main", "version_num": 150000, "data_directory": REAL}
        return play(
            hosts=HOST,
            tasks=[{"ansible.builtin.include_role": {"name": "pgfleet.cache.cache_common", "tasks_from": f"service/systemd/{name}.yml"}}],
            vars=dict({
                "pgfleet_service_server": server, "pgfleet_service_timeout": 60,
                "pgfleet_service_evict": {"layers": ["page_cache", "shared_buffers"], "scope": "cluster", "force": False},
            }, **variables),
        )

    return step


def test_the_steps_of_a_service(host, step):
    first = pid(host)
    for name in ("look", "plan"):
        done = step(name)
        assert done.returncode == 0 and pid(host) == first != 0, done.stdout
    done = step("restart")
    second = pid(host)
    assert done.returncode == 0 and second not in (0, first), done.stdout
    done = step("stop")
    assert done.returncode == 0 and pid(host) == 0, done.stdout
    done = step("start")
    third = pid(host)
    assert done.returncode == 0 and third not in (0, second), done.stdout
    done = step("cold")
    assert done.returncode == 0 and pid(host) not in (0, third), done.stdout


def test_another_s_unit(host, step):
    before = pid(host)
    done = step("look", pgfleet_service_name="cron.service")
    assert done.returncode != 0 and "systemd's unit cron.service does not run this server" in " ".join(done.stdout.split()), done.stdout
    assert pid(host) == before
