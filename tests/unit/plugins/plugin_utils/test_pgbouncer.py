# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of the adapter pgbouncer, and the answers of poolers."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils._pgbouncer import (
    pgbouncer,
    pgbouncer_console,
    pgbouncer_ended,
    pgbouncer_not_paused,
    pgbouncer_not_resumed,
    pgbouncer_ours,
    pgbouncer_pause,
    pgbouncer_processes,
    pgbouncer_resume,
    pgbouncer_unfit,
)

PLACE = {"kind": "pgbouncer", "host": "lb1", "port": 6432, "socket": "/run", "user": "admin", "become_user": "postgres", "database": "shop"}
DATABASES = "name,host,paused\npgbouncer,,0\nshop,db1,%s\n"


def seen(answer, **place):
    [one] = pgbouncer([answer], [dict(PLACE, **place)])
    return one


def test_console():
    assert pgbouncer_console(PLACE, "SHOW DATABASES", 7)[-3:] == ["--dbname=pgbouncer", "--command", "SHOW DATABASES"]
    assert {"--host=/run", "--port=6432", "--username=admin", "--no-psqlrc"} < set(pgbouncer_console(PLACE, "x", "7"))
    words = pgbouncer_console(PLACE, "x", 7)
    assert words[0] == "env" and "--unset=PGTARGETSESSIONATTRS" in words
    assert [word for word in words if not word.startswith("--unset=")][1:5] == ["timeout", "--kill-after=5", "7", "psql"]


def test_pause_and_resume():
    """The same end of the command line, by which the one finds the process of the other."""
    paused, resumed = pgbouncer_pause(PLACE, 7, 2, 300, 9), pgbouncer_resume(PLACE, 10)
    at = paused.index("pause")
    assert paused[at : at + 7] == ["pause", "7", "44", "300", "9", "shop", "psql"]
    assert resumed[resumed.index("resume") :][:4] == ["resume", "10", "shop", "psql"] and paused[at + 5 :] == resumed[resumed.index("shop") :]


@pytest.mark.parametrize(("answer", "place", "out", "said"), [
    ({"rc": 0, "stdout": DATABASES % 0}, {}, False, ""),
    ({"rc": 0, "stdout": DATABASES % 1}, {}, True, "pgbouncer on lb1 has database shop paused already, which this playbook did not do and would undo."),
    ({"rc": 124}, {}, None, "pgbouncer on lb1 does not answer at port 6432: it did not answer in time."),
    ({"rc": 0, "stdout": DATABASES % 1}, {"database": ""}, None, ""),
    ({"rc": 0, "stdout": DATABASES % "\x1b"}, {}, None, ""),
    ({"rc": 0, "stdout": DATABASES % 0}, {"database": "shp"}, None, "pgbouncer on lb1 has no database shp; it has shop. Correct"),
    ({"rc": 0, "stdout": "5"}, {}, None, "pgbouncer on lb1 has no database shop; it has ."),
    ({"rc": 2, "stderr": "no\n  such \x1b[2J"}, {}, None, "pgbouncer on lb1 does not answer at port 6432: no such \\x1b[2J. Its console"),
    ({"unreachable": True, "msg": "no route"}, {}, None, "pgbouncer on lb1 does not answer at port 6432: no route."),
])
def test_look_and_check(answer, place, out, said):
    one = seen(answer, **place)
    assert one["out"] is out
    found = pgbouncer_unfit([seen({"rc": 0, "stdout": DATABASES % 0}), one])
    assert found.startswith(said) and bool(found) is bool(said), found


def test_not_paused():
    assert pgbouncer_not_paused([{"rc": 0}], [PLACE], 30) == ""
    assert pgbouncer_not_paused([{"rc": 0}, {"rc": 124}], [PLACE, PLACE], 30).endswith("ran longer than cache_restart_pause_timeout (30 s).")
    assert pgbouncer_not_paused([{"unreachable": True, "msg": "gone"}], [PLACE], 30) == "pgbouncer on lb1 could not be paused, so nothing was restarted: gone."


def test_not_resumed():
    """A pooler that was not paused goes on."""
    assert pgbouncer_not_resumed([{"rc": 0}, {"rc": 1, "stderr": "ERROR: database shop is not paused"}], [PLACE, PLACE], "db1", 300) == ""
    said = pgbouncer_not_resumed([{"rc": 1, "stderr": "no"}], [PLACE], "db1", 300)
    assert said.startswith("pgbouncer on lb1 was paused for the restart of db1 and could not be resumed from here: no. It resumes by itself when db1")
    assert "at the latest 300 s after the pause" in said and "run 'RESUME shop' in its console" in said
    assert "run 'RESUME' in its console" in pgbouncer_not_resumed([{"rc": 1}], [dict(PLACE, database="")], "db1", 300)


@pytest.mark.parametrize(("answer", "ended"), [
    ({"rc": 0}, True), ({"rc": 1, "stderr": "ERROR: database shop is not paused"}, True), ({"rc": 124}, True), ({"rc": 137}, True),
    ({"unreachable": True, "msg": "no route"}, True), ({"rc": 1, "stderr": "the pooler starts"}, False), ({"failed": True, "msg": "no psql"}, False),
])
def test_another_attempt_to_resume(answer, ended):
    assert pgbouncer_ended(answer) is ended


def test_who_is_paused_by_others():
    """That is not undone."""
    other = dict(PLACE, host="lb2")
    answers = [{"rc": 0}, {"rc": 1, "stderr": "ERROR:  already suspended/paused"}]
    assert pgbouncer_not_paused(answers, [PLACE, other], 30) == "pgbouncer on lb2 is paused by another operator, so nothing was restarted. Resume it first."
    assert pgbouncer_ours([PLACE, other], answers) == [PLACE] and pgbouncer_ours([PLACE, other], []) == [PLACE, other]


LISTENS = "LISTEN 0 128 %s:6432 0.0.0.0:*\n"


@pytest.mark.parametrize(("stdout", "places", "message"), [
    (LISTENS % "0.0.0.0", [PLACE], ""), (LISTENS % "0.0.0.0" + LISTENS % "[::]", [PLACE], ""), ("", [PLACE], ""),
    (2 * (LISTENS % "0.0.0.0"), [PLACE, dict(PLACE, socket="/run/2")], ""),
    (2 * (LISTENS % "0.0.0.0"), [PLACE], "2 processes of pgbouncer on lb1 share port 6432, and a pause is for one: list each in cache_restart_pgbouncer,"),
    (3 * (LISTENS % "127.0.0.1"), [PLACE, dict(PLACE, host="lb2")], "3 processes of pgbouncer on lb1 share port 6432"),
])
def test_processes_that_share_a_port(stdout, places, message):
    found = pgbouncer_processes([{"rc": 0, "stdout": stdout}] * len(places), places)
    assert found.startswith(message) and bool(found) == bool(message), found


def test_without_ss():
    assert pgbouncer_processes([{"rc": 127, "stdout": 3 * LISTENS}, {"unreachable": True}], [PLACE, PLACE]) == ""
