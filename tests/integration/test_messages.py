# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said about bad input, word for word, by the real server. In a sentence, and never as a traceback.

tests/unit has the messages that need a failure nobody can bring about here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time

import pytest
from cluster import LOOSE, OWNER, free_port, quick, run, thorough
from conftest import PASSWORD
from playbook import documented, in_seconds, keys, task
from residency import there

SNAPSHOT, RESTORE, INFO, EVICT = "residency_snapshot", "residency_restore", "residency_info", "cache_evict"
LOAD, IO, PHYSICAL, COST = "io_workload", "query_io", "physical_io_info", "temp_buffer_cost"
MISSING = (
    "Extension pg_residency is not in database without: run the playbook pgfleet.cache.install first,"
    " or set login_db to the database that has it (in roles and playbooks pgfleet_login_db)."
)
MOMENT = (
    "it must be a date and time with a zone, such as '2026-11-21 06:00+01:00' or '2026-11-21 06:00 Europe/Berlin'."
)
NO_QUERY = "query 1 is not a query that only reads: it must be one SELECT, VALUES, TABLE or WITH. PostgreSQL says: "
NO_READING = "reading is not what state begin has returned: register the result of that task, and give its key reading, with the same version of" \
    " this collection."
SEVERAL = "query 1 holds more than one statement: make each a separate query."

BAD_INPUT = [
    # values
    (LOAD, {"scale": "1P"}, "scale is '1P': it must be a number of blocks of 8 kB such as 131072, or a size such as 512M, 1G or 1T."),
    (LOAD, {"scale": "1000"}, "scale is 1000, which are 1000 blocks: it must be from 1024 blocks (8M) to 2147483647 blocks (16T less one block)."),
    (LOAD, {"scale": "1T", "schemas": 1024}, "The load needs * TB in *, where * are free: set a smaller scale or fewer schemas."),
    (LOAD, {"scale": "8M", "work_unit": 1025}, "work_unit is 1025: it must be from 1 to 1024, the blocks of a schema."),
    (LOAD, {"update_pct": -1}, "update_pct is -1: it must be from 0 to 100."),
    (LOAD, {"state": "run", "run_time": "0.1"}, "run_time is 0.1: it must be at least 1 s."),
    (LOAD, {"state": "run", "scale": "8M"}, "4 of 4 schemas of 8.00 MB each are not loaded: load them first (state: present)."),
    (LOAD, {"schema": "Robert'); DROP"}, "schema is 'Robert'); DROP': it must be a name of small letters, digits and _ that does not begin with pg_."),
    (LOAD, {"schema": "information_schema"}, "schema is information_schema, which is everybody's: set one that is for the load alone."),
    ("patroni_traffic", {"data_directory": "/nowhere", "state": "out"}, "No Patroni of this user keeps the server in /nowhere running: set *"),
    (SNAPSHOT, {"name": "../warm"}, "invalid snapshot name '../warm': use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit."),
    (SNAPSHOT, {"name": "warm@1"}, "A new snapshot gets its own generation: use the name 'warm'."),
    (SNAPSHOT, {"name": "warm", "keep": 0}, "keep is 0: it must be at least 1."),
    (SNAPSHOT, {"name": "warm", "state": "absent", "keep": -1}, "keep is -1: it must not be less than 0."),
    (SNAPSHOT, {"name": "warm@1", "state": "absent", "keep": 1}, "keep cannot be combined with one generation: use the name 'warm'."),
    (SNAPSHOT, {"name": "warm*"}, "invalid snapshot name 'warm*': use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit."),
    (SNAPSHOT, {"name": "../*", "state": "absent"},
     "invalid snapshot pattern '../*': use letters, digits, '_', '.', '-', '*' and '?', at most 63."),
    (RESTORE, {"name": "warm@x"}, "invalid snapshot name 'warm@x': use letters, digits, '_', '.' and '-', at most 63, starting with a letter or"
        " digit, and @ with a number"
     " for one generation."),
    (RESTORE, {"name": "good", "min_residency": 101}, "min_residency is 101: it must be a percentage from 0 to 100."),
    (RESTORE, {"name": "good", "max_io_pressure": 0}, "max_io_pressure is 0: it must be a percentage from 1 to 100."),
    (RESTORE, {"name": "good", "max_gone": -1}, "max_gone is -1: it must be a percentage from 0 to 100."),
    (SNAPSHOT, {"name": "warm", "keep": 99999999999}, "keep is 99999999999: it must be at most 1000000."),
    (RESTORE, {"name": "good", "wait_timeout": 99999999999}, "wait_timeout is 99999999999: it must be at most 2147483647."),
    (RESTORE, {"name": "good", "budget": "lots"},
     "budget is 'lots': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
    (RESTORE, {"name": "good", "rate": "-5MB"},
     "rate is '-5MB': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
    (RESTORE, {"name": "good", "budget": "99999PB"}, "budget is 99999PB: it must be at most 4096 PB."),
    (SNAPSHOT, {"name": "warm", "keep_days": 0}, "keep_days is 0: it must be more than 0 and at most 36500."),
    (RESTORE, {"name": "good", "digest": "0"}, "Snapshot good@1 is not the one that was saved on this host: its digest differs."),
    (RESTORE, {"name": "good", "lease_file": "/root/db1.lease"},
     "Cannot check for other runs on this host: /root/db1.lease cannot be read: Permission denied. Make pgfleet_state_directory readable for the"
     " cluster's user (0755), or correct it."),
    (SNAPSHOT, {"name": "warm", "record_file": "/root/db1.json"},
     "Cannot check for a pending restore of this host: /root/db1.json cannot be read: Permission denied. Nothing was saved. Make"
     " pgfleet_state_directory readable for the cluster's user (0755), or correct it."),
    (RESTORE, {"name": "good", "max_age": "long"},
     "max_age is 'long': it must be a duration such as 36h; the units are s, min, h, d and w."),
    (RESTORE, {"name": "good", "max_age": "0"}, "max_age is 0: it must be more than 0 and at most 100 years."),
    (RESTORE, {"name": "good", "max_age": "0.001s"}, "Snapshot good@1 is from * ago, and max_age is 1 ms: save a new one when the caches are warm"
     " (module residency_snapshot, playbook pgfleet.cache.snapshot), or raise max_age (cache_warmup_max_age)."),
    (RESTORE, {"name": "good", "budget": "0"}, "budget is 0: it must be more than 0."),
    (RESTORE, {"name": "good", "rate": "0"}, "rate is 0: it must be more than 0."),
    (RESTORE, {"name": "good", "wait_timeout": 0}, "wait_timeout is 0: it must be more than 0."),
    (RESTORE, {"name": "good", "wait_sleep": 0}, "wait_sleep is 0: it must be more than 0."),
    (RESTORE, {"job": 0}, "job is 0: it must be more than 0."),
    (RESTORE, {"name": "good", "relations": [""]}, "relations has an empty pattern: remove it, or use '*' for all."),
    (RESTORE, {"name": "good", "databases": [" "]}, "databases has an empty pattern: remove it, or use '*' for all."),
    (RESTORE, {"name": "good", "fallback_relations": [""]},
     "fallback_relations has an empty pattern: remove it, or use '*' for all."),
    (RESTORE, {"name": "good", "deadline": "06:00"}, "deadline is '06:00': " + MOMENT),
    (RESTORE, {"name": "good", "deadline": "2026-11-31 06:00Z"}, "deadline is '2026-11-31 06:00Z': there is no such date or time."),
    (RESTORE, {"name": "good", "deadline": "2099-11-30 06:00+25:00"},
     "deadline is '2099-11-30 06:00+25:00': there is no such zone."),
    (RESTORE, {"name": "good", "deadline": "2099-11-30 06:00 Europe/Atlantis"},
     "deadline is '2099-11-30 06:00 Europe/Atlantis': this host does not know that zone, give an offset such as '+01:00'."),
    (RESTORE, {"name": "good", "hold_until": "06:00"}, "hold_until is '06:00': " + MOMENT),
    (RESTORE, {"name": "good", "hold_until": "2099-11-30 06:00Z"}, "hold_until is '2099-11-30 06:00Z': it must be within the next 7 days."),
    (RESTORE, {"name": "good", "hold_interval": 0}, "hold_interval is 0: it must be from 1 to 3600 seconds."),
    (INFO, {"limit": 0}, "limit is 0: it must be from 1 to 1000."),
    (INFO, {"min_residency": 101}, "min_residency is 101: it must be a percentage from 0 to 100."),
    (INFO, {"wait_timeout": 0}, "wait_timeout is 0: it must be more than 0."),
    (INFO, {"wait_sleep": -1}, "wait_sleep is -1: it must be more than 0."),
    (INFO, {"wait": True}, "wait needs the option snapshot."),
    (INFO, {"subset": []}, "subset is empty: set at least one of databases, relations, segments, buffers, snapshots, jobs,"
     " capabilities."),
    (INFO, {"subset": ["buffers"]}, "subset buffers and relation must be used together."),
    # what is not there
    (RESTORE, {"name": "wram"}, "Snapshot 'wram' does not exist here; there is damaged@1, foreign@1, good@1."),
    (RESTORE, {"name": "good@9"}, "Snapshot 'good@9' does not exist here; there is damaged@1, foreign@1, good@1."),
    (RESTORE, {"name": "good", "job": 4711}, "Job 4711 does not exist here; there is none at all."),
    (RESTORE, {"name": "good", "relations": ["passanger"]}, "good@1 has nothing that matches relations: passanger. Its largest are: public.passenger"
     " in postgres, *."),
    (RESTORE, {"name": "good", "databases": ["nowhere"]}, "good@1 has nothing that matches databases: nowhere. Its databases are: *postgres*."),
    (RESTORE, {"name": "none", "fallback_relations": ["passanger"]}, "No relation here matches fallback_relations: passanger."),
    (RESTORE, {"name": "none", "fallback_relations": ["passanger"], "databases": ["post*"]},
     "No relation here matches fallback_relations: passanger; databases: post*."),
    (RESTORE, {"name": "good@9", "fallback_relations": ["passenger"]},
     "Snapshot 'good@9' does not exist here; there is damaged@1, foreign@1, good@1."),
    (RESTORE, {"name": "damaged"}, "Snapshot damaged@1 cannot be used here: *."),
    (RESTORE, {"name": "foreign"}, "Snapshot foreign@1 cannot be used here: *."),
    (INFO, {"snapshot": "wram"}, "Snapshot 'wram' does not exist here; there is damaged@1, foreign@1, good@1."),
    (INFO, {"databases": ["x*"]}, "No database matches x*; there are postgres, template0, template1, without."),
    (INFO, {"subset": ["buffers"], "relation": "passanger"}, "Relation 'passanger' does not exist in database postgres: spell it as in SQL, and set"
     " databases to its database."),
    (INFO, {"relations": ["passanger"]}, "No relation matches passanger."),
    (INFO, {"subset": ["buffers"], "relation": "a; b"}, "Relation 'a; b' does not exist in database postgres: spell it as in SQL, and set databases"
     " to its database."),
    (INFO, {"subset": ["buffers"], "relation": "t", "databases": ["nowhere"]},
     "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist. Correct databases."),
    (INFO, {"subset": ["buffers"], "relation": "t", "databases": ["post*"]},
     "databases must be the one database of relation 't'."),
    (INFO, {"subset": ["buffers"], "relation": "t", "databases": ["without"]}, "Extension pg_residency is not in database"
     " without: add it to cache_extension_databases, and run the playbook pgfleet.cache.install."),
    # the extension, and the way to the server
    (SNAPSHOT, {"name": "warm", "login_db": "without"}, MISSING),
    (RESTORE, {"name": "warm", "login_db": "without"}, MISSING),
    (INFO, {"login_db": "without"}, MISSING),
    (SNAPSHOT, {"name": "warm", "login_db": "nowhere"}, "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist."
     " Correct login_db."),
    (SNAPSHOT, {"name": "warm", "login_user": "nobody"},
     "Cannot connect to PostgreSQL: *Peer authentication failed for user \"nobody\"."
     " Become the cluster's operating system user (become_user: postgres), or log in with a password."),
    (SNAPSHOT, {"name": "warm", "login_port": 1}, "Cannot connect to PostgreSQL: *No such file or directory."
     " Start PostgreSQL, or correct login_port, login_unix_socket and login_host."),
    (EVICT, {"login_port": 1}, "Cannot connect to PostgreSQL: *No such file or directory. Start PostgreSQL, or correct login_port,"
     " login_unix_socket and login_host. If PostgreSQL is stopped, set data_directory."),
    (EVICT, {"data_directory": "/etc"}, "/etc is not a PostgreSQL data directory: it has no PG_VERSION."),
    # which cache to empty
    (EVICT, {"layers": []}, "layers is empty: set page_cache, shared_buffers or both."),
    (EVICT, {"scope": "relation"}, "scope relation and relations must be used together."),
    (EVICT, {"databases": ["postgres"]}, "databases requires scope relation."),
    (EVICT, {"force": True}, "force requires scope host: the other scopes evict only the cluster's own files."),
    (EVICT, {"scope": "relation", "relations": ["passanger"]}, "No relation matches passanger."),
    (EVICT, {"scope": "relation", "relations": ["t"], "layers": ["shared_buffers"], "method": "restart"},
     "A restart evicts all shared buffers, not those of one relation: with scope relation, set method to functions."),
    (EVICT, {"scope": "host", "layers": ["shared_buffers"]},
     "scope host does not log in: set method to restart, or remove shared_buffers from layers."),
    (EVICT, {"scope": "host"}, "scope host requires root, who alone may write to /proc/sys/vm/drop_caches: become root."),
    (EVICT, {"layers": ["shared_buffers"]}, "PostgreSQL 15 empties its shared buffers only by a restart: set method to restart."),
    # the extension in databases
    ("residency_extension", {"databases": []}, "databases is empty: set at least one, or all."),
    ("residency_extension", {"databases": ["nowhere"]}, "In 1 of 1 databases: nowhere: Cannot connect to PostgreSQL: *database \"nowhere\" does not"
     " exist. Correct databases."),
    ("residency_extension", {"databases": ["postgres"], "functions": ["nothing"]}, "In 1 of 1 databases: postgres: The extension is 1.0.0 and lacks nothing:"
     " install a package of a version that has them, or DROP EXTENSION pg_residency there and run this again."),
    ("residency_extension", {"databases": ["without"], "schema": "open"}, "In 1 of 1 databases: without: In schema open PUBLIC may create or replace"
     " objects: name another with schema."),
    # what the roles ask
    ("restart_info", {"directory": "/tmp", "name": "a/b"}, "'a/b' is not a file name."),
    ("host_status", {"directory": "/tmp", "name": "a/b"}, "'a/b' is not a file name."),
    ("server_preload", {"parameters": {"rate": "fast"}}, "pg_residency.rate is 'fast': it must be a size such as 50MB."),
    ("server_preload", {"parameters": {"speed": 1}}, "pg_residency has no parameter speed: there are autosave, autosave_keep, *"),
    ("server_query", {"query": "SELECT 1; SELECT 2"}, "The query holds more than one statement: make each a separate query."),
    ("server_query", {"query": "DROP TABLE passenger"}, "The query is not a query that only reads: it must be one SELECT, VALUES, TABLE or WITH."
     " PostgreSQL says: cannot open DROP TABLE query as cursor."),
    ("server_query", {"query": "SELECT * FROM passenger"}, "PostgreSQL says: relation \"passenger\" does not exist."),
    ("server_query", {"query": "SELECT 1", "login_db": "nowhere"}, "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist."
     " Correct login_db."),
    # queries
    (IO, {"query": "SELECT 1", "repeat": 0}, "repeat is 0: it must be from 1 to 1000."),
    (IO, {"query": "SELECT 1", "timeout": 0}, "timeout is 0: it must be from 1 to 2147483."),
    (IO, {"queries": []}, "queries is empty: set at least one query."),
    (IO, {"queries": [{"name": "a"}]}, "a needs either query or path."),
    (IO, {"queries": [{"query": "SELECT 1", "path": "/etc/hosts"}]}, "query 1 needs either query or path."),
    (IO, {"queries": [{"path": "/nowhere.sql"}]}, "query 1: cannot read /nowhere.sql: No such file or directory."),
    (IO, {"queries": [{"name": "a", "query": "SELECT 1"}, {"name": "a", "query": "SELECT 2"}]},
     "Two queries are named 'a': use a different name for each."),
    (IO, {"query": "SELECT 1; SELECT 2"}, SEVERAL),
    (IO, {"query": "-- nothing"}, "query 1 is empty."),
    (IO, {"query": "SELEC 1"}, "query 1: PostgreSQL says: syntax error at or near \"SELEC\"."),
    (IO, {"query": "DELETE FROM passenger"}, NO_QUERY + "cannot open DELETE query as cursor."),
    (IO, {"query": "SHOW ALL"}, NO_QUERY + "SHOW is not allowed in a non-volatile function."),
    (IO, {"query": "SELECT ''; DROP TABLE passenger"}, SEVERAL),
    (IO, {"query": "SELECT 1 /* /* */ ; */; DROP TABLE passenger"}, SEVERAL),
    (IO, {"query": "SELECT $$ $$; DROP TABLE passenger --"}, SEVERAL),
    (IO, {"query": " ; "}, "query 1 is empty."),
    (IO, {"query": "SELECT $1"}, "query 1: PostgreSQL says: there is no parameter $1."),
    (IO, {"query": "SELECT 1", "settings": {"nothing": 1}},
     "Setting nothing of query 1: PostgreSQL says: unrecognized configuration parameter \"nothing\"."),
    (IO, {"query": "SELECT 1", "login_db": "nowhere"}, "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist."
     " Correct login_db."),
    (IO, {"query": "SELECT 1", "lock": "mine"}, "/dev/shm/pgfleet.cold_test is not held as 'mine', but by nobody."),
    # a window
    (COST, {"sizes": [127]}, "sizes has 127: each must be from 128 to 4194304 blocks of 8 kB."),
    (COST, {"sizes": [128, 128]}, "sizes has one of them twice: name each once."),
    (COST, {"iterations": 1001}, "iterations is 1001: it must be from 1 to 1000."),
    (COST, {"quick": True, "sizes": [128]}, "quick has sizes and iterations of its own: set either quick, or sizes and iterations."),
    (COST, {"tablespace": "nowhere"}, "There is no tablespace nowhere: correct tablespace."),
    (COST, {"rate": "fast"}, "rate is 'fast': it must be a size such as 200MB; the units are B, kB, MB, GB, TB and PB."),
    (COST, {"time_limit": "8d"}, "time_limit is 8d: it must be at most 7 days."),
    (COST, {"seed": -1}, "seed is -1: it must be from 0 to 2147483647."),
    (COST, {"login_db": "without"}, MISSING),
    (PHYSICAL, {"duration": "soon"}, "duration is 'soon': it must be a duration such as 36h; the units are s, min, h, d and w."),
    (PHYSICAL, {"duration": "0.5s"}, "duration is 0.5s: it must be from 1 s to 30 min. For a longer window, use state begin and end."),
    (PHYSICAL, {"duration": "1h"}, "duration is 1h: it must be from 1 s to 30 min. For a longer window, use state begin and end."),
    (PHYSICAL, {"state": "begin", "reading": {}}, "reading requires state end."),
    (PHYSICAL, {"state": "end", "reading": {"format": 1}}, NO_READING),
    (PHYSICAL, {"state": "end", "reading": {"format": "x"}}, NO_READING),
    (PHYSICAL, {"duration": "1s", "settle": 61}, "settle is 61: it must be from 0 to 60."),
    (PHYSICAL, {"duration": "1s", "login_db": "nowhere"}, "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist."
     " Correct login_db."),
]

BY_PASSWORD = [
    (SNAPSHOT, "monitor", {"name": "warm"}, "PostgreSQL says: permission denied for function residency_snapshot."
     " Log in as a superuser, or grant the login role residency_admin and pg_monitor."),
    (RESTORE, "app", {"name": "good"}, "PostgreSQL says: permission denied for function residency_version."
     " Log in as a superuser, or grant the login role residency_admin and pg_monitor."),
    (INFO, "app", {}, "PostgreSQL says: permission denied for function residency_version."
     " Log in as a superuser, or grant the login role pg_monitor."),
    (EVICT, "app", {}, "Login role app lacks pg_monitor, to learn where the files are: grant it, or log in as a superuser."),
    (INFO, "monitor", {"login_password": "wrong"}, "Cannot connect to PostgreSQL: *password authentication failed for user \"monitor\"."
     " Correct login_user and login_password."),
    (INFO, "monitor", {"login_host": "127.0.0.2"}, "Cannot connect to PostgreSQL: *Connection refused."
     " Start PostgreSQL, or correct login_port, login_unix_socket and login_host. If PostgreSQL is stopped, set data_directory."),
    (INFO, "monitor", {"login_db": "nowhere"}, "Cannot connect to PostgreSQL: *database \"nowhere\" does not exist."
     " Correct login_db."),
]


def says(result, message):
    """* stands for what differs between releases of libpq, and between clusters."""
    pattern = ".*".join(re.escape(part) for part in message.split("*"))
    # what is said about a relation may hold a star itself: x* is one
    assert result["msg"] == message or re.fullmatch(pattern, result["msg"]), result["msg"]


@pytest.fixture(scope="module")
def snapshots(cluster):
    """good, damaged (one bit), and foreign (of a cluster with another system identifier)."""
    cluster.sql("SELECT residency_drop_snapshot(name) FROM (SELECT DISTINCT name FROM residency_snapshots()) AS s")
    cluster.warm(cluster.file_of("passenger"))
    folder = os.path.join(cluster.data, "pg_residency")
    cluster.stop()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if not name.endswith(".snapshot"):
            os.unlink(os.path.join(folder, name))
    cluster.start()
    cluster.sql("SELECT FROM residency_snapshot('good')")
    cluster.sql("CREATE SCHEMA IF NOT EXISTS open; GRANT CREATE ON SCHEMA open TO PUBLIC", "without")
    good = os.path.join(folder, "good@1.snapshot")
    with open(good, "rb") as file:
        content = bytearray(file.read())
    content[-1] ^= 1
    _write(os.path.join(folder, "damaged@1.snapshot"), content)
    return cluster


def _write(path, content):
    with open(path, "wb") as file:
        file.write(content)
    shutil.chown(path, OWNER, OWNER)


@pytest.fixture(scope="module")
def foreign(snapshots, machine):
    other = machine("foreign")
    other.sql("CREATE EXTENSION pg_residency; SELECT FROM residency_snapshot('foreign')")
    name = "pg_residency/foreign@1.snapshot"
    with open(os.path.join(other.data, name), "rb") as file:
        _write(os.path.join(snapshots.data, name), file.read())
    other.stop()
    return snapshots


@pytest.mark.parametrize("cases", [
    pytest.param(BAD_INPUT[::10], id="a_tenth"),
    pytest.param([case for number, case in enumerate(BAD_INPUT) if number % 10], id="the_others", marks=thorough),
])
def test_bad_input(foreign, as_postgres, login, cases):
    wrong = []
    tasks = [task(module, **dict(login, **arguments)) for module, arguments, dummy in cases]
    for result, (module, arguments, message) in zip(as_postgres(*tasks), cases):
        try:
            assert result.get("failed"), "It succeeded"
            says(result, message)
            assert keys(result) == documented(module)
        except AssertionError as error:
            wrong.append("%s %s: %s" % (module, arguments, error))
    assert not wrong, "\n\n".join(wrong)


def test_bad_logins(foreign, ansible, by_password):
    tasks = [task(module, **by_password(user, **arguments)) for module, user, arguments, dummy in BY_PASSWORD]
    for result, (dummy, user, arguments, message) in zip(ansible.tasks(tasks), BY_PASSWORD):
        assert result["failed"], (user, arguments)
        says(result, message)


@quick
def test_one_job_at_a_time(foreign, as_postgres, login, cluster):
    cluster.sql("SELECT FROM residency_snapshot('other')")
    for relation in ("passenger", '"Boarding Pass"'):
        cluster.cool(cluster.file_of(relation))
    first, second, third, faster, smaller, last = as_postgres(
        task(RESTORE, name="good", rate="256kB", wait=False, **login),
        task(RESTORE, name="other", **login),
        task(RESTORE, name="other", job=1, **login),
        task(RESTORE, name="good", rate="2MB", **login),
        task(RESTORE, name="good", budget="1MB", deadline=in_seconds(20), **login),
        task(RESTORE, name="good", wait_timeout=1, **login),
    )
    assert (first["changed"], first["job"]) == (True, 1), first["msg"]
    says(second, "Job 1 is restoring good@1, and a cluster runs one job at a time: wait for it, or stop it with"
                 " SELECT residency_cancel(1).")
    says(third, "Job 1 restores good@1, not other.")
    says(faster, "Job 1 is already running, and it has another rate: wait for it with job, or stop it with SELECT residency_cancel(1).")
    says(smaller, "Job 1 is already running, and it has a larger budget, may run past the deadline: wait for it with job, or stop it with"
                  " SELECT residency_cancel(1).")
    says(last, "Not finished within wait_timeout of 1.0 s: Job 1 restores good@1: *.")
    assert keys(last) == documented(RESTORE)
    cluster.sql("SELECT residency_cancel(1)")


@thorough
def test_another_part_of_the_same_snapshot(foreign, as_postgres, login, cluster):
    """Never is somebody else's job called what was asked for."""
    for relation in ("passenger", '"Boarding Pass"'):
        cluster.warm(cluster.file_of(relation))
    cluster.sql("SELECT FROM residency_snapshot('good', 1)")
    for relation in ("passenger", '"Boarding Pass"'):
        cluster.cool(cluster.file_of(relation))
    job = {"job": "{{ first.job }}", "min_residency": LOOSE}
    first, second, judged, again = as_postgres(
        task(RESTORE, name="good", relations=["passenger"], rate="3MB", wait=False, **login),
        task(RESTORE, name="good", relations=["Boarding*"], **login),
        task(RESTORE, **job, **login),
        task(RESTORE, **job, **login),
        register="first",
    )
    says(second, "Job %d is already running, and it restores another part of good@*: wait for it with job, or stop it with SELECT"
                 " residency_cancel(%d)." % (first["job"], first["job"]))
    assert first["changed"] and judged["changed"] and not again["changed"], "what it has loaded, and nobody twice"
    assert judged["reached"] and not [one for one in judged["relations"] if "Boarding" in one["relation"]], "by what it was started for"
    assert cluster.resident(cluster.file_of('"Boarding Pass"')) < 1 << 20


def test_check_mode_foresees_the_failure(foreign, ansible, as_postgres, by_password, login, cluster):
    for relation in ("passenger", '"Boarding Pass"'):
        cluster.cool(cluster.file_of(relation))
    rights = "PostgreSQL says: permission denied for function %s. Log in as a superuser, or grant the login role residency_admin and pg_monitor."
    restored, saved, evicted = ansible.tasks([
        task(RESTORE, check=True, name="good", **by_password("monitor")),
        task(SNAPSHOT, check=True, name="good", **by_password("monitor")),
        task(EVICT, check=True, data_directory=cluster.data, **by_password("operator")),
    ])
    says(restored, rights % "residency_restore_start")
    says(saved, rights % "residency_snapshot")
    says(evicted, "Login role operator lacks pg_checkpoint, without which what is dirty would stay: grant it, or log in as a superuser.")
    [slow] = as_postgres(task(RESTORE, check=True, name="good", rate="1MB", wait_timeout=2, **login))
    assert [one for one in slow["warnings"] if "too long for wait_timeout of 2.0 s" in one], slow["warnings"]
    assert [one for one in slow["warnings"] if one.endswith("less than min_residency of 90 %: the real run would fail.")]
    cluster.sql("CREATE TABLE short AS SELECT repeat('x', 1000) FROM generate_series(1, 8000)")
    as_postgres(task(SNAPSHOT, name="short", **login))
    cluster.sql("DROP TABLE short; CHECKPOINT")
    check, real = as_postgres(*(task(RESTORE, check=check, name="short", relations=["short"], **login) for check in (True, False)))
    gone = "100 % of the snapshot is gone, more than max_gone of 20 % (a new snapshot, taken when the caches are warm again, has what exists now)"
    assert gone + ": the real run would fail." in check["warnings"]
    assert gone in real["msg"]
    assert real["relations"][0]["residency"] is None
    cluster.sql("SELECT residency_drop_snapshot('short')")


def test_less_memory_than_wanted(foreign, as_postgres, login, cluster):
    """It restores what fits, and says what did not."""
    cluster.cool(cluster.file_of("passenger"))
    [result] = as_postgres(task(RESTORE, name="good", relations=["passenger"], budget="8MB", **login))
    assert result["failed"] and result["changed"]
    says(result, "good@*: * % of what still exists is resident, less than min_residency of 90 % (* missing). * did not fit the"
                 " memory budget of 8.00 MB, which the option budget sets.* Coldest: table public.passenger in postgres (* resident).")
    assert 4 << 20 < there(cluster.file_of("passenger")) < 12 << 20


@pytest.fixture
def folder(cluster):
    """The cluster's folder for snapshots, to be put elsewhere by a test."""
    path = os.path.join(cluster.data, "pg_residency")
    os.rename(path, path + ".aside")
    yield path
    run("umount", path, check=False)
    os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    os.rename(path + ".aside", path)


def test_no_room_for_a_snapshot(foreign, folder, as_postgres, login, cluster):
    """Said in check mode as when it is really taken."""
    os.mkdir(folder, 0o700)
    shutil.chown(folder, OWNER, OWNER)
    run("mount", "-t", "tmpfs", "-o", "size=64k,mode=700,uid=%s,gid=%s" % (OWNER, OWNER), "tmpfs", folder)
    _write(os.path.join(folder, "filler"), b"x" * (64 << 10))
    cluster.warm(cluster.file_of("passenger"))
    check, real = as_postgres(*(task(SNAPSHOT, check=check, name="warm", **login) for check in (True, False)))
    says(check, "%s has 0 B free, but the snapshot takes about *: free some space there." % folder)
    says(real, "PostgreSQL says: could not *: No space left on device*")
    assert keys(check) == documented(SNAPSHOT)
    run("umount", folder)
    run("mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", folder)
    check, real = as_postgres(*(task(SNAPSHOT, check=check, name="warm", **login) for check in (True, False)))
    says(check, "%s is on a file system that is mounted read-only: a snapshot cannot be saved there." % folder)
    assert real["failed"]


def test_the_folder_for_snapshots_is_not_there(foreign, folder, as_postgres, login, cluster):
    os.symlink("/nowhere/snapshots", folder)
    check, real = as_postgres(*(task(SNAPSHOT, check=check, name="warm", **login) for check in (True, False)))
    says(check, "%s leads to /nowhere/snapshots, which does not exist: mount or create it before a snapshot is taken." % folder)
    assert real["failed"]


def test_patterns_of_which_one_fits_nothing(foreign, as_postgres, login):
    [result] = as_postgres(task(INFO, subset=["relations"], relations=["passenger", "passanger"], databases=["post*", "nowhere"], **login))
    assert result["relations"] and result["warnings"] == ["Nothing matches 'nowhere' of databases.", "Nothing matches 'passanger' of relations."]


@quick
def test_stopped_server(foreign, as_postgres, login, cluster):
    cluster.stop()
    try:
        stopped, dummy, evicted = as_postgres(
            task(INFO, data_directory=cluster.data, snapshot="good", **login),
            task(RESTORE, name="good", **login),
            task(EVICT, data_directory=cluster.data + "/base", **login),
        )
        says(stopped, "PostgreSQL is stopped in %s: snapshot needs it running." % cluster.data)
        says(dummy, "Cannot connect to PostgreSQL: *No such file or directory. Start PostgreSQL, or correct login_port,"
                    " login_unix_socket and login_host.")
        says(evicted, "%s/base is not a PostgreSQL data directory: it has no PG_VERSION." % cluster.data)
    finally:
        cluster.start()


def test_login_that_pg_hba_does_not_know(foreign, ansible, cluster, by_password):
    path = os.path.join(cluster.data, "pg_hba.conf")
    with open(path) as file:
        before = file.read()
    try:
        with open(path, "w") as file:
            file.write("local all all peer\n")
        cluster.sql("SELECT pg_reload_conf()")
        [result] = ansible.tasks([task(INFO, **by_password("monitor"))])
    finally:
        with open(path, "w") as file:
            file.write(before)
        cluster.sql("SELECT pg_reload_conf()")
    says(result, "Cannot connect to PostgreSQL: *no pg_hba.conf entry for host *. Allow this login in pg_hba.conf, or use another"
                 " login_user, login_host or login_db.")


def test_extension_of_another_version(foreign, as_postgres, login, cluster):
    cluster.sql("UPDATE pg_extension SET extversion = '0.1.9' WHERE extname = 'pg_residency'")
    try:
        for result in as_postgres(*(task(module, name="good", **login) for module in (SNAPSHOT, RESTORE)), task(INFO, **login)):
            assert result["failed"]
            says(result, "Extension pg_residency is version 0.1.9, this collection needs 1.0.0: run the playbook"
                         " pgfleet.cache.install.")
    finally:
        cluster.sql("UPDATE pg_extension SET extversion = residency_version() WHERE extname = 'pg_residency'")


def test_server_is_stopped_meanwhile(foreign, as_postgres, login, cluster):
    cluster.cool(cluster.file_of("passenger"))
    newest = int(cluster.sql(NEWEST))
    stop = threading.Thread(target=_stop_once_it_restores, args=(cluster, newest))
    stop.start()
    try:
        [result] = as_postgres(task(RESTORE, name="good", rate="1MB", **login))
    finally:
        stop.join()
        cluster.start()
    assert result["failed"]
    # between two looks at the job, or while it is asked
    lost = " Job %d was restoring good@*: see its progress in the view residency_jobs." % result["job"]
    if result["msg"].startswith("Cannot connect"):
        says(result, "Cannot connect to PostgreSQL: *. Start PostgreSQL, or correct login_port, login_unix_socket and login_host." + lost)
    else:
        says(result, "PostgreSQL ended the connection (*): it was stopped or restarted meanwhile." + lost)
    assert result["changed"]
    assert keys(result) == documented(RESTORE)
    assert cluster.sql("SELECT count(*) FROM residency_jobs WHERE state IN ('starting', 'waiting', 'running')") == "0"


NEWEST = "SELECT coalesce(max(job), 0) FROM residency_jobs WHERE state <> 'starting'"


def _stop_once_it_restores(cluster, newest):
    end = time.monotonic() + 60
    while time.monotonic() < end and int(cluster.sql(NEWEST)) == newest:
        time.sleep(0.1)
    time.sleep(1)  # the module looks once a second
    cluster.stop()


def test_a_pooler_is_refused(foreign, ansible, by_password, pgbouncer):
    results = ansible.tasks([
        task(SNAPSHOT, name="warm", **by_password("operator", login_port=pgbouncer)),
        task(RESTORE, name="good", **by_password("operator", login_port=pgbouncer)),
        task(INFO, **by_password("operator", login_port=pgbouncer)),
    ])
    for result in results:
        assert result["failed"]
        says(result, "This connection goes through a pooler such as pgbouncer: point login_port, login_host or login_unix_socket"
                     " at PostgreSQL itself.")


@pytest.fixture
def pgbouncer(cluster, machine):
    """Its port; Debian's, without its service."""
    port = free_port()
    folder = os.path.join(cluster.socket, "pgbouncer")
    os.makedirs(folder, exist_ok=True)
    shutil.chown(folder, OWNER, OWNER)
    _write(os.path.join(folder, "users.txt"), ('"operator" "%s"\n' % PASSWORD).encode())
    _write(os.path.join(folder, "pgbouncer.ini"), (
        "[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
        "auth_type = scram-sha-256\nauth_file = %s/users.txt\npidfile = %s/pid\nlogfile = %s/log\n"
        % (cluster.port, port, folder, folder, folder)
    ).encode())
    run(os.environ["PGBOUNCER"], "--daemon", folder + "/pgbouncer.ini", user=OWNER)
    yield port
    with open(folder + "/pid") as file:
        os.kill(int(file.read()), signal.SIGTERM)


def test_not_the_owner(foreign, ansible, cluster, by_password):
    [result] = ansible.tasks(
        [task(EVICT, **by_password("monitor", data_directory=cluster.data))], become=True, become_user="nobody",
        vars={"ansible_become_flags": "-s /bin/sh"},
    )
    assert PASSWORD not in result["msg"]
    says(result, "%s is not accessible to this user: become the cluster's operating system user." % cluster.data)
