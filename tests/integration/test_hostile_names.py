# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts call their databases and tables reaches no terminal as it is, and what an inventory calls hosts leaves no directory."""

from __future__ import annotations

import pytest
from cluster import thorough
from test_rolling_restart import RESTART

NAMES = ("evil\x1b]0;owned\x07\nok: [db1]\x9b31m", "bidi\u202egpj")
CLOSED = "closed\x9b31m\u202e"  # which is named in warnings


@pytest.fixture(scope="module")
def named(machine, cluster):
    """A cluster whose databases and tables have such names."""
    one = machine("names")
    one.sql("CREATE EXTENSION pg_residency")
    for name in NAMES:
        one.sql('CREATE DATABASE "%s"' % name)
        for table in "t", name:
            one.sql("CREATE TABLE \"%s\" AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)" % table, name)
    one.sql("CREATE DATABASE door")
    one.sql('CREATE TABLE "%s" AS SELECT 1 AS one; CREATE VIEW behind AS SELECT * FROM "%s"' % (NAMES[1], NAMES[1]), "door")
    one.sql('CREATE DATABASE "%s" ALLOW_CONNECTIONS false' % CLOSED)
    yield one
    one.stop("immediate")


@pytest.fixture
def warm(named):
    for name in NAMES:
        for table in "t", name:
            named.warm(named.file_of('"%s"' % table, name))
    return named


@pytest.fixture
def fleet(warm, ansible, machine):
    """Runs a playbook there: output and status."""
    service = machine.directory + "/names_service.yml"
    with open(service, "w") as file:
        file.write(RESTART.format(bin=warm.bin))

    def play(playbook, *arguments, **variables):
        login = {"pgfleet_login_port": warm.port, "pgfleet_login_unix_socket": warm.socket}
        ansible.set_hosts({"db1": {"data": warm.data}}, **dict(login, pgfleet_service_manager=service, **variables))
        return ansible.command("pgfleet.cache." + playbook, "--diff", "-v", *arguments)

    return play


def check(raw):
    for bad in ("\x1b", "\x07", "\x9b", "\u202e", "\nok: [db1]\\x9b"):
        assert bad not in raw, raw[max(0, raw.index(bad) - 300):][:600]


def test_modules(warm, ansible):
    login = {"login_port": warm.port, "login_unix_socket": warm.socket}
    play = ansible.write(
        [
            {"pgfleet.cache.residency_snapshot": dict(login, name="hostile")},
            {"pgfleet.cache.residency_restore": dict(login, name="hostile", databases=["evil*", "bidi*", "no\x1b[31m"], min_residency=0)},
            {"pgfleet.cache.cache_evict": dict(login, scope="relation", relations=["t"])},
            {"pgfleet.cache.residency_restore": dict(login, name="hostile", deadline="2099-01-01 00:00Z", min_residency=0)},
            {"pgfleet.cache.residency_info": dict(login, subset=["relations"], databases=["no\x1b[31m"]), "ignore_errors": True},
            {"pgfleet.cache.residency_snapshot": dict(login, name="hostile", state="absent")},
        ],
        become=True, become_user="postgres",
    )
    raw, status = ansible.command(play, "--diff", ANSIBLE_CALLBACK_RESULT_FORMAT="yaml")
    assert status == 0, raw
    check(raw)
    assert "in evil\\x1b]0;owned\\x07\\nok: [db1]\\x9b31m: " in raw


@thorough
def test_results_of_modules(warm, ansible):
    """Of which JSON escapes only what is below a blank; a name that a result shows means the relation again."""
    login = {"login_port": warm.port, "login_unix_socket": warm.socket}
    play = ansible.write(
        [
            {"pgfleet.cache.residency_info": dict(login, subset=["databases", "relations", "segments"], limit=1000), "register": "found"},
            {"pgfleet.cache.cache_evict": dict(
                login, scope="relation", databases=["{{ found.databases | map(attribute='database') | select('match', 'bidi') | first }}"],
                relations=["{{ found.relations | map(attribute='relation') | select('search', 'bidi') | first }}"])},
            {"pgfleet.cache.cache_evict": dict(login, scope="relation", relations=["*bidi*"])},
            {"pgfleet.cache.residency_snapshot": dict(login, name="hostile")},
            {"pgfleet.cache.residency_restore": dict(login, name="hostile", databases=["evil*", "bidi*"], min_residency=0)},
            {"pgfleet.cache.residency_info": dict(login, subset=["buffers"], databases=[NAMES[1]], relation='"%s"' % NAMES[1]),
             "ignore_errors": True},
            {"pgfleet.cache.residency_extension": dict(login, databases=list(NAMES))},
            {"pgfleet.cache.residency_info": dict(login, subset=["buffers"], databases=[NAMES[1]], relation='"%s"' % NAMES[1])},
            {"pgfleet.cache.residency_extension": dict(login, databases=list(NAMES), state="absent")},
            {"pgfleet.cache.query_io": dict(login, login_db=NAMES[0], queries=[{"name": "zero", "query": "SELECT 1 / 0"}]),
             "ignore_errors": True},
            {"pgfleet.cache.server_query": dict(login, login_db=NAMES[0], query="SELECT chr(155) AS one")},
        ],
        become=True, become_user="postgres",
    )
    results, status = ansible.command(play, "-v")
    assert status == 0, results
    check(results.replace('"one": "\x9b"', "", 1))
    assert '"relations": [{' in results and 'public.\\"bidi\\\\u202egpj\\"' in results
    assert '"one": "\x9b"' in results, "what a query returned is as it is"
    assert '"database": "evil\\u001b]0;owned\\u0007\\nok: [db1]\\\\x9b31m"' in results and "fatal: [db1]" in results


def test_snapshot_and_warmup(fleet):
    for playbook in ("snapshot", "warmup"):
        # of the options Ansible itself writes what the operator has set
        raw, dummy = fleet(playbook, cache_warmup_databases=["no\x1b[31m"])
        check(raw)
        assert "TASK [Write the report]" in raw


@thorough
def test_install(fleet, warm):
    raw, status = fleet("install", "--check", cache_extension_pg_config=warm.bin + "/pg_config", cache_extension_databases="all")
    assert status == 0, raw
    check(raw)
    assert "bidi\\u202egpj" in raw


@thorough
@pytest.mark.parametrize("mode", [["--check"], []], ids=["check", "real"])
def test_rolling_restart(fleet, state_directory, mode):
    raw, status = fleet(
        "rolling_restart", *mode, pgfleet_state_directory=state_directory, cache_restart_min_standbys=0, cache_restart_min_free="1MB",
        cache_restart_min_residency=0,
    )
    assert status == 0, raw
    check(raw)
    assert "closed\\x9b31m\\u202e" in raw


@thorough
@pytest.mark.parametrize("mode", [["--check"], []], ids=["check", "real"])
def test_cold_test(fleet, state_directory, mode):
    """A plan has the names of tables, of which the operator's query says nothing, and so has a server's error."""
    arguments = {
        "cache_cold_test_states": ["both_cold", "restored"], "cache_cold_test_repeat": 1, "cache_cold_test_database": "door",
        "pgfleet_state_directory": state_directory,
    }
    raw, status = fleet("cold_test", *mode, cache_cold_test_queries=[{"name": "all", "query": "SELECT count(*) FROM behind"}], **arguments)
    assert status == 0, raw
    check(raw)
    assert mode or "bidi\\u202egpj" in raw
    failing = "SELECT relname::int FROM pg_class WHERE relname LIKE 'bidi%'"
    raw, status = fleet("cold_test", *mode, cache_cold_test_queries=[{"name": "all", "query": failing}], **arguments)
    check(raw)
    assert mode or (status != 0 and "SQLSTATE 22P02" in raw), raw


@thorough
def test_host_names_stay_below_a_directory(ansible, tmp_path):
    """Of an inventory that somebody else names hosts in."""
    ansible.set_hosts({"../../x\x1bc": {}})
    play = ansible.write([{"ansible.builtin.copy": {
        "content": "x", "dest": str(tmp_path) + "/{{ inventory_hostname | pgfleet.cache.file_name }}.json", "mode": "0600"}}])
    output, status = ansible.command(play)
    assert status == 0, output
    assert (tmp_path / "%2E.%2F..%2Fx%1Bc.json").exists()
