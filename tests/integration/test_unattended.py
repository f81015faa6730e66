# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role cache_unattended and its module: one line of configuration, and a worker that has saved."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from cluster import LOOSE, OWNER, run, thorough
from conftest import HOSTS
from playbook import documented, keys, recap, task
from proxies import wait_until
from test_install import RESTART
from test_playbooks import OLDEST

PRELOAD = "server_preload"
# The first line of what the module writes, as it may be left where the server no longer reads it
HEADER = "# Written by the role pgfleet.cache.cache_unattended: it replaces or removes this file.\n"
COLD = """
- name: Evict the table
  ansible.builtin.command: dd if=%s iflag=nocache count=0 status=none
  become: true
  changed_when: true
"""


@pytest.fixture(scope="module")
def one(machine, cluster):
    """A cluster of its own, with a library that is there already, and a directory of configuration files."""
    one = machine("unattended")
    os.mkdir(one.data + "/conf.d", 0o700)
    shutil.chown(one.data + "/conf.d", OWNER, OWNER)
    with open(one.data + "/postgresql.conf", "a", encoding="utf-8") as file:
        file.write("shared_preload_libraries = 'auto_explain'\ninclude_dir = 'conf.d'\n")
    restart(one)
    one.sql("CREATE EXTENSION pg_residency")
    yield one
    one.stop()


@pytest.fixture
def plain(one):
    """As it was before the role came."""
    one.sql("ALTER SYSTEM RESET ALL")
    for file in os.listdir(one.data + "/conf.d"):
        os.unlink(os.path.join(one.data, "conf.d", file))
    shutil.rmtree(one.data + "/pg_residency", ignore_errors=True)
    restart(one)
    return one


@pytest.fixture
def preload(one, as_postgres):
    """The module's results, for the options of each call."""

    def call(*some, **common):
        return as_postgres(*[
            task(PRELOAD, diff=True, login_port=one.port, login_unix_socket=one.socket, **{"check": False, **common, **options}) for options in some])

    return call


def restart(one):
    one.stop()
    one.start()


def automatic(one):
    with open(one.data + "/postgresql.auto.conf", encoding="utf-8") as file:
        return [line for line in file if not line.startswith("#")]


def test_alter_system(plain, preload):
    """Beside what is there, foretold by check mode, once; after a restart the worker has saved."""
    given = {"parameters": {"autosave": "1min", "rate": "50MB", "autorestore": False, "hold": ""}}
    check, first, again = preload(dict(given, check=True), given, given)
    assert not check.get("failed") and automatic(plain) != [], check
    assert check["changed"] and first["changed"] and check["queries"] == first["queries"] and check["diff"] == first["diff"], first
    assert first["diff"]["after"] == (
        "pg_residency.autorestore = 'off'\npg_residency.autosave = '1min'\npg_residency.rate = '50MB'\n"
        "shared_preload_libraries = 'auto_explain, pg_residency'\n")
    assert (again["changed"], again["restart"], again["queries"]) == (False, True, []), again
    assert keys(again) == documented(PRELOAD), again
    restart(plain)
    assert plain.sql("SHOW shared_preload_libraries") == "auto_explain, pg_residency" and plain.sql("SHOW pg_residency.rate") == "50MB"
    [lives] = preload(given)
    assert not lives["changed"] and not lives["restart"] and lives["worker"]["generation"] == 1, lives
    assert re.fullmatch("The worker is (waiting|saving), autosave@1 is saved.", lives["msg"])
    [changed] = preload({"parameters": {"autosave": "2min"}})
    assert changed["queries"] == [
        "ALTER SYSTEM RESET pg_residency.autorestore", "ALTER SYSTEM SET pg_residency.autosave = '2min'", "ALTER SYSTEM RESET pg_residency.rate",
        "SELECT pg_catalog.pg_reload_conf()"]
    assert plain.sql("SHOW pg_residency.autosave") == "2min", "after the reload"
    check, absent, again = preload({"check": True}, {}, {}, state="absent")
    assert check["queries"] == absent["queries"] == ["ALTER SYSTEM RESET pg_residency.autosave", "ALTER SYSTEM RESET shared_preload_libraries"], absent
    assert (absent["restart"], again["restart"], again["changed"]) == (True, True, False) and automatic(plain) == []
    restart(plain)
    [gone] = preload({}, state="absent")
    assert (gone["changed"], gone["restart"], gone["msg"]) == (False, False, "The library is not preloaded.")
    assert plain.sql("SHOW shared_preload_libraries") == "auto_explain"


@pytest.mark.parametrize("before, after", [
    ("''", "pg_residency"),
    ("'$libdir/auto_explain', 'pg_stat_statements'", '"$libdir/auto_explain", pg_stat_statements, pg_residency'),
    ("'', auto_explain, pg_residency", "auto_explain, pg_residency"),
    ("'auto_explain', '$libdir/pg_residency'", "auto_explain, pg_residency"),
], ids=["cleared", "quoted", "empty name first", "with its directory"])
def test_beside_what_is_there(plain, preload, before, after):
    """ALTER SYSTEM writes an empty list as "", and the server does not start with that beside another library."""
    plain.sql("ALTER SYSTEM SET shared_preload_libraries = " + before)
    first, again = preload({}, {})
    assert first["changed"] and not again["changed"], (first, again)
    restart(plain)
    assert plain.sql("SHOW shared_preload_libraries") == after


def test_a_name_in_another_case(plain, preload):
    """pg_file_settings has it as it is written."""
    with open(plain.data + "/conf.d/a.conf", "w", encoding="utf-8") as file:
        file.write("Shared_Preload_Libraries = 'pg_stat_statements'\n")
    [first] = preload({})
    assert first["parameters"] == {"shared_preload_libraries": "pg_stat_statements, pg_residency"}, first


def test_a_file(plain, preload):
    """Its own, whole; refused where it would have no effect, and then nothing is left of it."""
    path = plain.data + "/conf.d/pg_residency.conf"
    given = {"file": path, "parameters": {"budget": "1GB"}}
    check, first, again = preload(dict(given, check=True), given, given)
    assert not check.get("failed") and not first.get("failed"), (check, first)
    assert check["changed"] and check["diff"] == first["diff"] and (first["changed"], again["changed"], again["restart"]) == (True, False, True), first
    with open(path, encoding="utf-8") as file:
        assert file.read().splitlines()[1:] == ["pg_residency.budget = '1GB'", "shared_preload_libraries = 'auto_explain, pg_residency'"]
    restart(plain)
    [lives] = preload(given)
    assert lives["worker"]["generation"] == 1 and plain.sql("SHOW pg_residency.budget") == "1GB", lives
    with open(plain.data + "/conf.d/z.conf", "w", encoding="utf-8") as file:
        file.write("pg_residency.budget = 0\n")
    [overruled] = preload(given)
    os.unlink(plain.data + "/conf.d/z.conf")
    assert overruled["failed"] and "z.conf line 1 comes after it" in overruled["msg"], overruled
    [refused] = preload({}, state="absent")
    assert refused["msg"] == "%s line 3 has pg_residency in shared_preload_libraries: remove it there." % path
    [absent] = preload({"file": path}, state="absent")
    assert absent["changed"] and not os.path.exists(path)
    with open(path + ".off", "w", encoding="utf-8") as file:
        file.write(HEADER)
    left, again = preload(*2 * [{"file": path + ".off"}], state="absent")
    assert left["changed"] and not again["changed"] and not os.path.exists(path + ".off"), left


@pytest.mark.parametrize("name, others, words", [
    ("/elsewhere.conf", {}, "*/elsewhere.conf would have no effect: the server does not read it; add include_dir to postgresql.conf. Nothing was changed."),
    ("/conf.d/a.conf", {"b.conf": "pg_residency.rate = 1MB"}, "*/a.conf would have no effect: */b.conf line 1 comes after it. Nothing was changed."),
    ("/conf.d/a.conf", {"a.conf": "port = 1"}, "*/a.conf was not written by this collection: name another file."),
    ("/nowhere/a.conf", {}, "*/nowhere/a.conf cannot be written: there is no such directory. It must be in a directory of the cluster's operating system*"),
], ids=["not read", "overruled", "another's", "no directory"])
def test_a_file_without_effect(plain, preload, name, others, words):
    for other, content in others.items():
        with open(os.path.join(plain.data, "conf.d", other), "w", encoding="utf-8") as file:
            file.write(content + "\n")
    given = {"file": plain.data + name, "parameters": {"rate": "2MB"}}
    check, refused = preload(dict(given, check=True), given)
    assert check.get("failed") or "comes after" in words, "check mode foretells it, unless another file comes later"
    assert refused["failed"] and not refused["changed"] and re.fullmatch(".*".join(map(re.escape, words.split("*"))), refused["msg"]), refused["msg"]
    assert sorted(os.listdir(plain.data + "/conf.d")) == sorted(others) and not os.path.exists(plain.data + "/elsewhere.conf")


def test_what_is_refused(plain, preload):
    plain.sql("ALTER SYSTEM SET shared_preload_libraries = 'auto_explain'")
    overruled, unknown, nonsense = preload(
        {"file": plain.data + "/conf.d/a.conf"}, {"parameters": {"speed": "1MB"}}, {"parameters": {"rate": "fast"}})
    assert "ALTER SYSTEM has set shared_preload_libraries, which " in overruled["msg"] and "ALTER SYSTEM RESET" in overruled["msg"]
    assert unknown["msg"].startswith("pg_residency has no parameter speed: there are autosave, ")
    assert nonsense["msg"] == "pg_residency.rate is 'fast': it must be a size such as 50MB."
    plain.sql("DROP EXTENSION pg_residency")
    [missing] = preload({})
    plain.sql("CREATE EXTENSION pg_residency")
    assert missing["msg"].startswith("Extension pg_residency is not in database postgres: run the playbook pgfleet.cache.install first")
    assert not any(one["changed"] for one in (overruled, unknown, nonsense, missing)) and len(automatic(plain)) == 1


def test_a_worker_that_cannot_save(plain, preload):
    """It is no success that the setting is there."""
    preload({})
    os.mkdir(plain.data + "/pg_residency", 0o500)
    shutil.chown(plain.data + "/pg_residency", OWNER, OWNER)
    restart(plain)
    [failed] = preload({"wait_timeout": 2})
    assert failed["failed"] and re.match(r"The worker of pg_residency (has saved nothing|does not run)", failed["msg"]), failed["msg"]


@thorough
def test_a_full_disk(plain, preload, as_postgres):
    """Saving stops, and PostgreSQL does not; status says so; when there is room, it goes on, and what was saved is there."""
    given = {"parameters": {"autosave": "1s", "autosave_keep": 1}}
    preload(given)
    restart(plain)
    [saved] = preload(given)
    run("mount", "-t", "tmpfs", "-o", "size=16k,mode=0700,uid=%s" % OWNER, "tmpfs", plain.data + "/pg_residency")
    try:
        wait_until(lambda: plain.sql("SELECT failures > 0 FROM residency_worker") == "t", 60)
        assert "No space left on device" in plain.sql("SELECT message FROM residency_worker")
        plain.sql("CREATE TABLE served AS SELECT 1; DROP TABLE served")
        ask = task("host_status", directory="/nowhere", name="db1", login_port=plain.port, login_unix_socket=plain.socket)
        [there] = as_postgres(ask)
        assert re.match("Correct what keeps PostgreSQL from saving its caches: .*No space left on device", there["to_do"]), there
    finally:
        run("umount", "--lazy", plain.data + "/pg_residency")
    wait_until(lambda: plain.sql("SELECT failures = 0 AND generation > %d FROM residency_worker" % saved["worker"]["generation"]) == "t", 120)
    assert not [name for name in os.listdir(plain.data + "/pg_residency") if "tmp" in name and "lock" not in name]


@pytest.fixture
def variables(plain, tmp_path, state_directory):
    """Of a host that can be restarted."""
    service = tmp_path / "restart.yml"
    service.write_text(RESTART.format(bin=plain.bin, data=plain.data, log=plain.log))
    return {
        "pgfleet_login_port": plain.port, "pgfleet_login_unix_socket": plain.socket, "pgfleet_state_directory": state_directory,
        "pgfleet_service_manager": str(service), "cache_restart_min_standbys": 0, "cache_restart_min_residency": 0, "cache_restart_min_free": "1MB",
        "pgfleet_results": str(tmp_path / "results"),
    }


@thorough
def test_a_pending_restore_beside_that_of_the_start(plain, preload, ansible, variables, tmp_path):
    """What a rolling restart has still to restore takes the place of what the server restores by itself; a new one waits for it."""
    given = {"parameters": {"rate": "256kB"}}
    preload(given)
    restart(plain)
    preload(given)
    plain.sql("CREATE TABLE IF NOT EXISTS large AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 30000) AS i; CHECKPOINT")
    large = plain.file_of("large")
    plain.warm(large)
    reboot = tmp_path / "reboot.yml"
    reboot.write_text(RESTART.format(bin=plain.bin, data=plain.data, log=plain.log).replace(" restart ", " stop ") + COLD % large + (
        RESTART.format(bin=plain.bin, data=plain.data, log=plain.log).replace(" restart ", " start ")))
    ansible.set_hosts({"db1": {}}, **dict(variables, pgfleet_service_manager=str(reboot)))
    role = ansible.write([], roles=["pgfleet.cache.cache_restart"])

    def start_cold():
        plain.stop()
        run("dd", "if=" + large, "iflag=nocache", "count=0", "status=none")
        plain.start()
        wait_until(lambda: plain.sql("SELECT count(*) FROM residency_jobs WHERE unattended AND state = 'running'") == "1", 20)

    output, status = ansible.command(role, "-e", "cache_restart_min_residency=90", "-e", "cache_warmup_budget=64kB")
    assert status != 0 and "90" in output, output
    start_cold()
    output, status = ansible.command(role, "-e", "cache_restart_min_residency=%d" % LOOSE)
    assert status == 0 and plain.is_restored("restart", "public.large"), output
    start_cold()
    output, status = ansible.command(role)
    assert status != 0 and re.search(r"Restore job \d+ is running on db1: wait until it ends", output), output


@thorough
def test_the_playbook(plain, ansible, variables):
    """Hosts that have to be restarted are named; the role restarts one if asked, by cache_restart, and verifies it."""
    ansible.set_hosts({"db1": {}}, **variables)
    role = ansible.write([], roles=["pgfleet.cache.cache_unattended"])
    started = plain.sql("SELECT pg_postmaster_start_time()")
    output, status = ansible.command("pgfleet.cache.unattended", "--check")
    assert status == 0 and re.search(r"\ndb1 +15\S* +primary +- +- +PostgreSQL would have to be restarted, to load the library\. Run", output), output
    output, status = ansible.command("pgfleet.cache.unattended", PATH=OLDEST + "/bin:" + os.environ["PATH"])
    assert status == 0 and recap(output)["db1"]["changed"] == 1, output
    assert re.search(r"\ndb1 .* PostgreSQL has to be restarted, to load the library\. Run pgfleet.cache.rolling_restart, and then this", output), output
    assert plain.sql("SELECT pg_postmaster_start_time()") == started
    output, status = ansible.command(role, "--check", "-e", "cache_unattended_restart=true")
    assert status == 0 and "db1: snapshot, restart, restore" in output, output
    output, status = ansible.command(role, "-e", "cache_unattended_restart=true")
    assert status == 0 and plain.sql("SELECT pg_postmaster_start_time()") != started, output
    started = plain.sql("SELECT pg_postmaster_start_time()")
    output, status = ansible.command(role, "-e", "cache_unattended_restart=true")
    assert status == 0 and recap(output)["db1"]["changed"] == 0 and plain.sql("SELECT pg_postmaster_start_time()") == started, output
    output, status = ansible.command("pgfleet.cache.unattended")
    assert status == 0 and re.search(r"\ndb1 +15\S* +primary +\w+ing +[1-9]\d* +The worker is ", output), output
    ansible.set_hosts({name: {} for name in HOSTS}, **variables)
    output, status = ansible.command(role, "-e", "cache_unattended_restart=true", "-e", "cache_unattended_rate=fast")
    assert status != 0 and "cache_unattended_rate: pg_residency.rate is 'fast': it must be a size such as 50MB. Nothing was changed." in output, output
    output, status = ansible.command(role, "-e", "cache_unattended_restart=true")
    assert status != 0 and "and cache_unattended_restart would restart all of them at once." in output, output
