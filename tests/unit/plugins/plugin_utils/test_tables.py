# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _rolling_table, _tables

SNAPSHOT = {"name": "warm", "generation": 3, "thin": False, "segments": 12, "wanted": 1000, "file_bytes": 2048}
RESULTS = {
    "install": {"server_version": "15.4", "standby": False, "version": "1.0.0", "databases": ["postgres"], "changed_databases": [], "state": "present"},
    "snapshot": {"snapshot": SNAPSHOT, "warnings": [], "msg": "Would take one."},
    "warmup": {"state": "done", "residency": 99.5, "wanted": 1000, "loaded": 500, "seconds": 2.04, "job": 7, "bytes_per_second": 2097152.0,
               "msg": "All is well.", "remarks": [], "warnings": []},
    "cold_test": {"runs": [{}, {}], "put_back": {"residency": 99.5}},
}
ROWS = {
    "install": "db1   15.4        primary  1.0.0      in postgres",
    "snapshot": "db1   warm@3                      12    7.81 MB    2.00 kB",
    "warmup": "db1   done           99.50 %    7.81 MB    3.91 MB       2.0         2",
    "cold_test": "db1       2    99.5 %",
}
ODD = ["text", 5, [1], {"a": "b"}, True, float("nan"), 10**400, -float("inf"), [["x"]], [None], "\x1b[2J" * 100]


def ended(result, verdict="done", message=""):
    return {"verdict": verdict, "message": message, "result": result}


@pytest.mark.parametrize("playbook", sorted(ROWS))
def test_row(playbook):
    lines, odd = _tables.table(_tables.TABLES[playbook], {"db1": ended(RESULTS[playbook])}, False)
    assert (lines[1:], odd) == ([ROWS[playbook]], {})


@pytest.mark.parametrize(
    ("playbook", "result", "check_mode", "message", "expected"),
    [
        ("install", dict(RESULTS["install"], changed_databases=["a", "b"]), True, "", "would be created or updated in a, b"),
        ("install", {"state": "absent", "needed_by": ["15/main"]}, True, "", "would be removed; the files stay for 15/main"),
        ("install", {"state": "absent"}, False, "", "removed"),
        ("install", {"state": "absent", "removed": False}, True, "", "nothing to remove"),
        ("install", {"state": "absent", "removed": False, "needed_by": ["15/main"]}, False, "", "the files stay for 15/main"),
        ("install", {"files_changed": True, "restart": "done"}, True, "", "the files would be installed; PostgreSQL would be restarted"),
        ("install", {"files_changed": True, "restart": "none"}, True, "", "the files would be installed"),
        ("install", dict(RESULTS["install"], restart="needed"), False, "", "in postgres; PostgreSQL has to be restarted to load the new library"),
        ("install", dict(RESULTS["install"], files_changed=True, restart="done"), False, "", "in postgres"),
        ("install", {}, False, "", "not installed yet"),
        ("install", {}, False, "no way", "no way"),
        ("snapshot", {"snapshot": None, "msg": "Would take one."}, True, "", "Would take one."),
        ("snapshot", dict(RESULTS["snapshot"], warnings=["It is thin."]), True, "", "Would take one. It is thin."),
        ("warmup", RESULTS["warmup"], True, "", "All is well."),
        ("warmup", dict(RESULTS["warmup"], remarks=["a.", "b."], warnings=["d."]), False, "", "a. b. d."),
        ("warmup", dict(RESULTS["warmup"], remarks=["is well."], warnings=["d."]), True, "", "All is well. d."),
        ("warmup", dict(RESULTS["warmup"], remarks=["a."], warnings=["d.", "e."]), False, "No. d.", "No. d. e."),
        ("cold_test", {}, True, "", "would run"),
    ],
)
def test_words(playbook, result, check_mode, message, expected):
    lines, odd = _tables.table(_tables.TABLES[playbook], {"db1": ended(result, "failed" if message else "done", message)}, check_mode)
    assert lines[1].endswith("  " + expected) and not odd


def test_what_was_not_run_has_no_warnings():
    lines, dummy = _tables.table(_tables.TABLES["warmup"], {"db1": ended(dict(RESULTS["warmup"], warnings=["d."]), "not_run", "nothing was done")}, False)
    assert lines[1].endswith("  nothing was done")


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(("playbook", "key"), [(playbook, key) for playbook, result in sorted(RESULTS.items()) for key in sorted(result)])
def test_an_odd_value_costs_only_its_own_row(playbook, key, value):
    """Text where a number belongs, and so on: the others' rows are as they are without it."""
    hosts = {"db0": ended(RESULTS[playbook]), "db1": ended(dict(RESULTS[playbook], **{key: value})), "db2": ended(RESULTS[playbook])}
    lines, odd = _tables.table(_tables.TABLES[playbook], hosts, False)
    assert [lines[1], lines[3]] == [ROWS[playbook].replace("db1", "db0"), ROWS[playbook].replace("db1", "db2")]
    assert set(odd) <= {"db1"} and len(lines) == 4 and lines[2].isprintable()
    if odd:
        assert odd["db1"] in lines[2] and odd["db1"].startswith("Its result has unexpected types: %s" % key)
        assert _tables.judged(hosts, odd)["db1"]["verdict"] == "failed"


def test_what_several_hosts_say_is_said_once():
    """A long sentence below the table; a failure stays in its row."""
    long = "The page cache of this host is limited by its cgroup to far less than that."
    hosts = {name: ended(dict(RESULTS["warmup"], warnings=[long, "Its name is %s." % name])) for name in ("db1", "db2")}
    lines, dummy = _tables.table(_tables.TABLES["warmup"], dict(hosts, db3=ended(RESULTS["warmup"])), False)
    assert [long in line for line in lines] == [False, False, False, False, True] and lines[4] == "db1, db2: " + long
    assert lines[1].endswith("  Its name is db1.")
    lines, dummy = _tables.table(_tables.TABLES["warmup"], hosts, False)
    assert lines[3:] == ["All hosts: " + long]
    failed = {name: ended(one["result"], "failed", "It failed.") for name, one in hosts.items()}
    assert len(_tables.table(_tables.TABLES["warmup"], failed, False)[0]) == 3


def test_a_row_says_what_is_odd():
    lines, odd = _tables.table(_tables.TABLES["warmup"], {"db1": ended({"residency": "all"})}, False)
    assert odd == {"db1": "Its result has unexpected types: residency is 'all', not a number."} and lines[1].endswith(odd["db1"])


def test_what_failed_before_keeps_its_verdict_and_its_message():
    hosts = {"db1": ended({"residency": "all"}, "unreachable", "unreachable: no route")}
    lines, odd = _tables.table(_tables.TABLES["warmup"], hosts, False)
    assert "unreachable: no route Its result has" in lines[1]
    assert _tables.judged(hosts, odd)["db1"] == hosts["db1"]


def test_names_are_shown_and_make_room():
    lines, dummy = _tables.table(_tables.TABLES["cold_test"], {"a\nb": ended({}), "a-longer-name": ended({})}, False)
    assert [line.index("put back") if number == 0 else line for number, line in enumerate(lines)] == [
        22, "a\\nb               -         -", "a-longer-name      -         -"
    ]


# --- a rolling restart ---

def planned(**changed):
    return {
        "primary": "db1", "batches": [["db2"], ["db3"]], "done": [], "last": "db1", "rolling_restart": "r1", "hosts": ["db1", "db2", "db3"],
        "abort": False, **changed
    }


ANSWERS = {"db1": {"in_recovery": False}, "db2": {"in_recovery": True}, "db3": {"in_recovery": True}}
FLEET = planned(answers=ANSWERS)
DONE = {"rolling_restart": "r1", "state": "done", "residency": 99.0, "seconds": {"snapshot": 1.5, "restart": 3}, "remarks": [], "out": False}


def written(**changed):
    """What a host has registered when it has written its record."""
    return {"cache_restart_result": {"record": dict(DONE, **changed)}}


def variables(answers=None, fleet=None, **changed):
    """Each host has its own answer, and the plan has all."""
    answers = dict(ANSWERS, **(answers or {}))
    common = {"pgfleet_failure": "", "cache_restart_fleet": dict(FLEET, answers=answers) if fleet is None else fleet}
    return {
        host: dict(dict(common, cache_restart_answers={"results": [{"answer": answer, "__cache_restart_each": host}]}), **changed.get(host, {}))
        for host, answer in answers.items()
    }


def rolling(check_mode=False, answers=None, **changed):
    return _rolling_table.Rolling(["db1", "db2", "db3"], variables(answers, **changed), check_mode).lines({})


def test_all_are_restarted():
    lines, odd = rolling(db1=written(), db2=written(), db3=written())
    assert not odd and lines[4:] == ["", "All hosts are restarted: the rolling restart is finished."]
    assert lines[2] == "db2   standby  done          99.00 %       1.5      -        3      -       -        -      -  in"


def test_the_preview():
    assert rolling(True)[0][4:] == [
        "", "Would first restart the batches db2; db3.", "Would then restart the primary db1."
    ]
    would = rolling(True, db1={"cache_restart_would": "snapshot, restart, restore"}, db3={"cache_restart_would": "nothing"})
    assert would[0][-2:] == ["  db3: nothing", "  db1: snapshot, restart, restore"], "in their order"
    alone = {"cache_restart_fleet": planned(last="", skipped="db1")}
    assert rolling(True, db1=alone)[0][-1] == "Would not restart the primary db1."
    switchover = {"cache_restart_fleet": planned(switchover="db1")}
    assert rolling(True, db1=switchover)[0][-1] == "Would then restart the primary db1 after a switchover."
    abort = {"cache_restart_fleet": planned(abort=True, batches=[["db2"]])}
    assert rolling(True, db1=abort)[0][4:] == ["", "Would put back what was begun on db2, db1, and restart no other host."]
    nothing = {"cache_restart_fleet": planned(batches=[], last="", done=["db1", "db2", "db3"])}
    assert rolling(True, db1=nothing)[0][4:] == ["", "Would restart no standby."]


def test_what_is_left():
    proxy = {"kind": "haproxy", "host": "lb1", "backend": "read"}
    lost = dict(written(state="saved", out=True, traffic=[proxy, dict(proxy, host="lb0"), dict(proxy, backend="other")]), pgfleet_failure="lost during the run")
    lines, dummy = rolling(db2=written(), db3=lost)
    assert lines[4:] == [
        "", "Unreachable: db3.", "Out of traffic now: db3 (lb1, lb0).",
        "Not done: db1, db3. Run the playbook again, with the same variables, to continue. To go on without db3, add -e cache_restart_only=db1,db2.",
    ]
    assert lines[3].split()[:3] == ["db3", "standby", "failed"] and "  out      lost during" in lines[3]
    skipped = {"cache_restart_fleet": planned(skipped="db1")}
    assert rolling(db1=skipped, db2=written(), db3=written())[0][4:] == [
        "", "All hosts but the primary db1 (cache_restart_primary=skip) are restarted: the rolling restart is finished."
    ]
    assert rolling(db1=skipped, db2=written())[0][-1] == "Not done: db3. Run the playbook again, with the same variables, to continue."
    one = {"cache_restart_fleet": planned(only=["db2"])}
    assert rolling(db1=one, db2=written())[0][-1] == (
        "All hosts of cache_restart_only are restarted. Not done: db1, db3. Run the playbook again, without it, to continue.")


def test_who_is_out_since_an_earlier_run():
    """With a plan, of another one, and without."""
    answers = {"db2": {"in_recovery": True, "kept": {"rolling_restart": "r0", "out": True, "traffic": [{"kind": "/t.yml", "host": "db2"}]}}}
    for fleet in (None, {}):
        given = variables(answers, fleet)
        lines, dummy = _rolling_table.Rolling(list(given), given, False).lines({})
        assert lines[2].split()[-1] == "out" and lines[5] == "Out of traffic now: db2 (/t.yml)."
        given["db2"].update(written())
        lines, dummy = _rolling_table.Rolling(list(given), given, False).lines({})
        assert lines[2].split()[-1] == "in" and "Out of traffic" not in " ".join(lines)


def test_a_host_that_does_not_answer_says_why():
    given = variables({"db3": {"problem": "Cannot connect."}})
    assert _rolling_table.Rolling(list(given), given, False).lines({})[0][3].endswith("  Cannot connect.")


def test_what_is_owed():
    pending = {
        "for": "rolling_restart", "snapshot": "restart@3", "digest": "d3", "wanted": 1280, "started": 5, "system_identifier": "7", "standby": True,
        "by": "alice", "since": "2026-11-21T06:00:00Z",
    }
    said = "Not as warm as before its restart: db2 (restart@3, 10.00 MB, since 2026-11-21T06:00:00Z)."
    answers = {"db2": {"in_recovery": True, "started": 6, "kept": {"pending": pending}}}
    assert said in rolling(answers=answers)[0] and said in rolling(True, answers=answers)[0]
    assert said not in rolling(answers=answers, db2=written(pending={}))[0], "it was restored since"
    assert said not in rolling(answers={"db2": dict(answers["db2"], started=5)})[0], "it was not restarted"
    assert said in rolling(answers={"db2": {"in_recovery": True, "started": 5}}, db2=written(state="restarted", pending=pending))[0], "the answer is older"


def test_what_a_host_that_missed_its_gate_has_reached():
    missed = dict(written(state="restarted", residency=None), pgfleet_failure="Too cold.", __cache_restart_reached={"residency": 42.0})
    assert "42.00 %" in rolling(db2=missed)[0][2]


def test_remarks():
    line = rolling(db2=dict(written(remarks=["thin", "It was taken over."]), cache_restart_remark="It was taken over."))[0][2]
    assert line.endswith("  thin It was taken over.")
    assert rolling(db2=dict(written(), cache_restart_remark="It was started."))[0][2].endswith("  It was started.")


def test_a_refused_plan():
    refused = {"db1": {"cache_restart_fleet": planned(problem="two primaries")}}
    assert rolling(**refused)[0][4:] == ["", "two primaries Nothing was restarted."]
    assert rolling(True, **refused)[0][4:] == ["", "two primaries Nothing would be restarted."]
    assert rolling(True, db2={"pgfleet_failure": "no"})[0][4:] == ["", "Nothing would be restarted."]


def test_what_check_mode_says_of_each_host():
    saved = {"cache_restart_saved": "Would save it."}
    done = {"cache_restart_fleet": planned(done=["db3"])}
    lines, dummy = rolling(True, db1=done, db2=saved, db3=done)
    assert lines[2].endswith("Would save it.") and lines[3].endswith("Already restarted and warm: would not be restarted again.")
    assert not rolling(True, db2=dict(saved, pgfleet_failure="no"))[0][2].endswith("Would save it.")


@pytest.mark.parametrize(("value", "shown"), [("99.5", "99.50 %"), (99.5, "99.50 %"), ("none", "-"), ("1e400", "-")])
def test_a_number_that_has_become_text(value, shown):
    lines, odd = rolling(db2=written(residency=value))
    assert (shown in lines[2]) and (shown == "-") == bool(odd)


def test_a_host_of_an_earlier_run():
    """What the host has kept of the same rolling restart is shown."""
    for name, shown in (("r1", ["db2", "standby", "done", "99.00"]), ("r0", ["db2", "standby", "-", "-"])):
        given = variables({"db2": {"in_recovery": True, "kept": dict(DONE, rolling_restart=name)}})
        given["db2"] = {}
        lines, dummy = _rolling_table.Rolling(["db1", "db2", "db3"], given, False).lines({})
        assert lines[2].split()[:4] == shown


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("key", ["residency", "seconds", "remarks", "out", "state"])
def test_an_odd_value_in_a_rolling_restart(key, value):
    """Of a record, which is the host's."""
    lines, odd = rolling(db2=written(**{key: value}), db3=written())
    assert set(odd) <= {"db2"} and lines[3].split()[:4] == ["db3", "standby", "done", "99.00"]
