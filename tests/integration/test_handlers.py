# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The handler `Restore the page cache` in plays of somebody else: when it runs, and when not."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from cluster import LOOSE, quick, thorough
from conftest import TABLES
from playbook import task

AROUND = {"name": "pgfleet.cache.cache_warmup", "tasks_from": "around"}
CHANGE = {"ansible.builtin.command": "true", "name": "Change something", "notify": "Restart PostgreSQL"}
FAIL = {"ansible.builtin.fail": {"msg": "something else"}, "name": "Fail"}


@pytest.fixture(scope="module")
def one(machine, cluster):
    one = machine("handlers")
    one.sql(TABLES)
    one.sql("CREATE EXTENSION pg_residency; CHECKPOINT")
    return one


@pytest.fixture
def play(ansible, one):
    """Runs tasks with a restart handler of the play's own; the handlers that ran, and the status."""
    restart = "{bin}/pg_ctl restart --wait --silent --mode=fast --pgdata={data} --log={log}".format(bin=one.bin, data=one.data, log=one.log)
    state = os.path.join(ansible.directory, "handlers")
    shutil.rmtree(state, ignore_errors=True)
    ansible.set_hosts(
        {"db1": {}}, pgfleet_login_port=one.port, pgfleet_login_unix_socket=one.socket, data=one.data, pgfleet_state_directory=state
    )
    one.warm(one.file_of("passenger"))

    def run(tasks, *arguments, **play):
        handlers = [
            {"name": "Restart PostgreSQL", "ansible.builtin.command": restart, "notify": "Be cold"},
            dict(task("cache_evict", data_directory=one.data, login_port=one.port, login_unix_socket=one.socket), name="Be cold",
                 check_mode=False, notify="Restore the page cache"),
        ]
        path = ansible.write(
            tasks, become=True, become_user="postgres", handlers=handlers,
            vars={"cache_snapshot_name": "before", "cache_warmup_min_residency": LOOSE}, **play
        )
        before = one.sql("SELECT pg_postmaster_start_time()")
        output, status = ansible.command(path, *arguments)
        run.restarted = one.sql("SELECT pg_postmaster_start_time()") != before
        run.output = output
        return [line.split("[")[1].split("]")[0].split(" : ")[-1] for line in output.splitlines()
                if line.startswith(("TASK [", "RUNNING HANDLER ["))], status

    def record():
        with open(os.path.join(state, "db1.json")) as file:
            return json.load(file)

    run.record = record
    run.write = lambda record: write(os.path.join(state, "db1.json"), record)
    return run


def write(path, record):
    with open(path, "w") as file:
        json.dump(record, file)


def resident(one):
    path = one.file_of("passenger")
    return one.resident(path) / os.path.getsize(path)


@quick
def test_restored_after_the_play_s_own_restart(play, one):
    names, status = play([{"ansible.builtin.include_role": AROUND}, CHANGE])
    assert status == 0, play.output
    assert play.restarted
    assert names.index("Save what is cached") < names.index("Restart PostgreSQL") < names.index("Be cold") < names.index("Restore the page cache")
    assert one.is_restored("before")


def test_nothing_without_a_change(play):
    names, status = play([{"ansible.builtin.include_role": AROUND}, dict(CHANGE, changed_when=False)])
    assert status == 0, play.output
    assert not play.restarted and "Restore the page cache" not in names


@thorough
def test_flush_handlers_restores_in_the_middle(play, one):
    names, status = play(
        [{"ansible.builtin.include_role": AROUND}, CHANGE, {"ansible.builtin.meta": "flush_handlers"},
         {"ansible.builtin.ping": None, "name": "Go on"}]
    )
    assert status == 0, play.output
    assert names.index("Restore the page cache") < names.index("Go on")
    assert one.is_restored("before")


@thorough
@pytest.mark.parametrize("force", [False, True])
def test_force_handlers_restores_in_a_play_that_fails(play, one, force):
    names, status = play([{"ansible.builtin.include_role": AROUND}, CHANGE, FAIL], force_handlers=force)
    assert status != 0
    assert play.restarted == force
    assert ("Restore the page cache" in names) == force
    if force:
        assert one.is_restored("before")


@thorough
def test_import_role_and_post_tasks(play, one):
    """The last flush of a play: here too the role's handler stands behind the play's own."""
    names, status = play([], pre_tasks=[{"ansible.builtin.import_role": AROUND}], post_tasks=[CHANGE])
    assert status == 0, play.output
    assert play.restarted
    assert names.index("Restart PostgreSQL") < names.index("Restore the page cache")
    assert one.is_restored("before")


GENERATIONS = "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = 'before'"


@thorough
def test_what_a_play_has_left_cold_is_restored_by_the_next(play, one):
    """The handler has no room; the next play restores first what was there before the restart, or saves nothing."""
    around = {"ansible.builtin.include_role": AROUND}
    dummy, status = play([around, CHANGE], "-e", "cache_warmup_budget=1MB")
    assert status != 0 and "min_residency" in play.output, play.output
    pending, generations = play.record()["pending"], one.sql(GENERATIONS)
    assert pending["for"] == "play" and resident(one) < 0.1

    names, status = play([around], "-e", "cache_warmup_budget=1MB")
    assert status != 0 and "Save what is cached" not in names, play.output
    assert play.record()["pending"] == pending and one.sql(GENERATIONS) == generations

    names, status = play([around])
    assert status == 0 and not play.restarted, play.output
    assert names.index("Restore the page cache") < names.index("Save what is cached")
    assert one.is_restored(pending["snapshot"]) and one.sql(GENERATIONS) != generations
    # of its own restart, of which there was none
    assert play.record()["pending"]["snapshot"] != pending["snapshot"]
    names, status = play([around, CHANGE])
    assert status == 0 and play.record()["pending"] == {}, play.output
    assert names.count("Restore the page cache") == 2  # the handler, and its file


@thorough
def test_given_up_by_name(play, one):
    around = {"ansible.builtin.include_role": AROUND}
    dummy, status = play([around, CHANGE], "-e", "cache_warmup_budget=1MB")
    assert status != 0
    names, status = play([around], "-e", "pgfleet_waive=db1")
    assert status == 0 and "Restore the page cache" not in names, play.output


@thorough
@pytest.mark.parametrize("record, said", [
    ({"out": True}, "A rolling restart of db1 was not finished: run pgfleet.cache.rolling_restart again first"),
    ({"state": "up"}, "The record of db1 in pgfleet_state_directory is damaged (state is 'up')"),
])
def test_beside_what_is_half_done(play, one, record, said):
    play([{"ansible.builtin.include_role": AROUND}])
    play.write(record)
    names, status = play([{"ansible.builtin.include_role": AROUND}, CHANGE])
    assert status != 0 and said in " ".join(play.output.split()), play.output
    assert not play.restarted and "Save what is cached" not in names
