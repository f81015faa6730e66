# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every message of bad input, word for word: people search for them, and they have to name the remedy."""

from __future__ import annotations

import errno
import os
import sys

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import (
    _connection,
    _deadline,
    _page_cache,
    _residency_info,
    _residency_restore,
    _residency_snapshot,
    _selection,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotInstalledError, NotRunningError, ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils import test_residency_info, test_residency_restore
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.fakes import (
    Session,
    database_row,
    give,
    job_row,
    outcome_row,
    segment_row,
    snapshot_row,
)
from ansible_collections.pgfleet.cache.tests.unit.plugins.module_utils.test_cache_evict import evict


def says(function, *args, **kwargs):
    with pytest.raises(ResidencyError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# --- the way to the server ---


def test_psycopg_is_missing(monkeypatch):
    monkeypatch.setattr(_connection.postgres, "HAS_PSYCOPG", False)
    with pytest.raises(NotInstalledError) as caught:
        _connection.connect({})
    assert str(caught.value) == (
        "psycopg is missing for %s on this host: install python3-psycopg2 (the playbook pgfleet.cache.install does), "
        "or set ansible_python_interpreter to a Python that has it."
        % sys.executable
    )


@pytest.mark.parametrize(
    ("libpq", "message"),
    [
        (
            "fe_sendauth: no password supplied",
            "Cannot connect to PostgreSQL: fe_sendauth: no password supplied. Correct login_user and login_password.",
        ),
        (
            'FATAL:  no pg_hba.conf entry for host "::1", user "x", database "y", no encryption',
            'Cannot connect to PostgreSQL: FATAL:  no pg_hba.conf entry for host "::1", user "x", database "y", no encryption.'
            " Allow this login in pg_hba.conf, or use another login_user, login_host or login_db.",
        ),
        (
            'FATAL:  role "nobody" does not exist',
            'Cannot connect to PostgreSQL: FATAL:  role "nobody" does not exist. Correct login_user.',
        ),
        (
            "FATAL:  the database system is starting up",
            "Cannot connect to PostgreSQL: FATAL:  the database system is starting up. Wait until PostgreSQL is up.",
        ),
    ],
)
def test_no_connection(libpq, message):
    assert _connection.explain_connection("unable to connect to database: " + libpq) == message


def test_pooler():
    assert _connection.explain_connection("FATAL:  unsupported startup parameter: options\n") == (
        "This connection goes through a pooler such as pgbouncer: point login_port, login_host or login_unix_socket at"
        " PostgreSQL itself."
    )


def extension(version, library="1.0.0", block_size=8192):
    return Session(
        pg_extension=[{"database": "postgres", "extversion": version, "schema": "public", "block_size": block_size, "stranger": None}],
        residency_version=[{"version": library}],
    )


def test_extension_has_another_version():
    assert says(_connection.attach_extension, extension("0.2.0")) == (
        "Extension pg_residency is version 0.2.0, this collection needs 1.0.0: run the playbook pgfleet.cache.install."
    )
    assert says(_connection.attach_extension, extension("1.0.0", "0.2.0")) == (
        "The loaded library of pg_residency is version 0.2.0, this collection needs 1.0.0: run the playbook"
        " pgfleet.cache.install, then reconnect."
    )


@pytest.mark.parametrize("block_size", [4096, 16384])
def test_other_block_sizes(block_size):
    """All figures would be wrong by a factor."""
    assert says(_connection.attach_extension, extension("1.0.0", block_size=block_size)) == (
        "This server's block size is %d bytes, and this collection supports only 8192. Call the SQL functions of pg_residency directly."
        % block_size
    )


class Psycopg:
    """A driver whose cursors fail."""

    class Error(Exception):
        pgcode = None

        class diag:
            message_primary = message_detail = message_hint = None

    def __init__(self, pgcode, primary, detail=None, hint=None):
        self.error = self.Error(primary)
        self.error.pgcode = pgcode
        self.error.diag = type(
            "Diagnosis", (), {"message_primary": primary, "message_detail": detail, "message_hint": hint}
        )

    def cursor(self, **dummy):
        return self

    def execute(self, sql, params=()):
        raise self.error

    def close(self):
        pass


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (
            Psycopg("58P01", 'could not access file "$libdir/pg_residency": No such file or directory'),
            'PostgreSQL says: could not access file "$libdir/pg_residency": No such file or directory.'
            " The extension's files are missing on this host, or of another version: run the playbook pgfleet.cache.install for it.",
        ),
        (
            Psycopg("55006", "another session is starting a restore", None, "View residency_jobs lists that restore."),
            "PostgreSQL says: another session is starting a restore. View residency_jobs lists that restore.",
        ),
        (
            Psycopg("57P01", "terminating connection due to administrator command"),
            "PostgreSQL ended the connection (terminating connection due to administrator command): it was stopped or"
            " restarted meanwhile.",
        ),
        (
            Psycopg(None, "server closed the connection unexpectedly"),
            "PostgreSQL ended the connection (server closed the connection unexpectedly): it was stopped or restarted meanwhile.",
        ),
    ],
)
def test_statement_fails(monkeypatch, driver, message):
    monkeypatch.setattr(_connection.postgres, "psycopg", Psycopg)
    monkeypatch.setattr(_connection.postgres, "pg_cursor_args", {})
    assert says(_connection.Session(driver).rows, "SELECT residency_snapshot('warm')") == message


# --- snapshots ---


@pytest.mark.parametrize(
    ("snapshots", "message"),
    [
        ([], "Snapshot 'wram' does not exist here; there is none at all."),
        (
            [snapshot_row("wram", problem="damaged: the header checksum does not match")],
            "Snapshot wram@3 cannot be used here: damaged: the header checksum does not match.",
        ),
    ],
)
def test_unusable_snapshots(snapshots, message):
    assert says(_residency_snapshot.find, Session(residency_snapshots=snapshots), "wram") == message


# --- restore ---


def test_deadline_is_over():
    moment = _deadline.parse("2026-11-21 06:00Z")
    now = _deadline.parse("2026-11-21 06:03:20Z")
    assert says(_deadline.seconds_left, moment, now) == "deadline 2026-11-21T06:00:00+00:00 was 3 min 20 s ago."


@pytest.mark.parametrize(
    ("jobs", "changed", "message"),
    [
        (
            [job_row(state="running", snapshot=None, generation=None)],
            {},
            "Job 7 is restoring relations without a snapshot, and a cluster runs one job at a time: wait for it, or stop it with SELECT"
            " residency_cancel(7).",
        ),
        ([[], [{"job": 1}, {"job": 2}]], {"job": 9}, "Job 9 does not exist here; there is 1, 2."),
        (
            [job_row(state="running", settled=100)],
            {"wait_timeout": 1},
            "Not finished within wait_timeout of 1.0 s: Job 7 restores warm@3: 25 % of 3.12 MB done, 800 kB loaded in 2.0 s.",
        ),
    ],
)
def test_jobs(jobs, changed, message):
    assert says(test_residency_restore.restore, test_residency_restore.server(jobs=jobs, segments=[]), **changed) == message


@pytest.mark.parametrize(
    ("job", "segment", "message"),
    [
        (
            {},
            {"resident": 300},
            "warm@3: 75 % of what still exists is resident, less than min_residency of 90 % (800 kB missing)."
            " 800 kB was in memory during the restore, and the kernel has reclaimed it within 44 s."
            " Coldest: relfilenumber 16001 in postgres_air (2.34 MB of 3.12 MB resident).",
        ),
        (
            {"over_budget": 100},
            {"resident": 300},
            "warm@3: 75 % of what still exists is resident, less than min_residency of 90 % (800 kB missing)."
            " 800 kB did not fit the memory budget of 1.00 GB: the limit is the host's memory, of which 4.00 GB is available; 1.00 MB kept in reserve."
            " Coldest: relfilenumber 16001 in postgres_air (2.34 MB of 3.12 MB resident).",
        ),
        (
            {"failed": 10},
            {"resident": 300, "gone": 100},
            "warm@3: 25 % of the snapshot is gone, more than max_gone of 20 % (a new snapshot, taken when the caches are warm again,"
            " has what exists now). 800 kB of the snapshot is gone (25 %): relfilenumber 16001 in postgres_air (800 kB, dropped or truncated)."
            " 80.0 kB failed: Input/output error.",
        ),
        (
            {"state": "failed", "message": "disk on fire"},
            {"resident": 400},
            "warm@3: job 7 failed. Job 7, failed: disk on fire.",
        ),
    ],
)
def test_gate(job, segment, message):
    outcome = [outcome_row(16001, failed=job.get("failed", 0), over_budget=job.get("over_budget", 0), reason="Input/output error")]
    session = test_residency_restore.server(jobs=[job_row(**job)], segments=[segment_row(1, 400, **segment)], outcome=outcome)
    assert says(test_residency_restore.restore, session) == message


def test_patterns_that_choose_nothing():
    session = test_residency_restore.server(jobs=[], segments=[segment_row(1, 100), segment_row(2, 400)], names=test_residency_restore.NAMES)
    assert says(test_residency_restore.restore, session, relations=["passanger"], databases=["postgres_air", "x*"]) == (
        "warm@3 has nothing that matches relations: passanger; databases: postgres_air, x*. Its largest are: public.passenger in postgres_air,"
        " public.boarding_pass in postgres_air."
    )
    session = test_residency_restore.server(jobs=[], segments=[segment_row(1, 100)], names=[database_row(5, "postgres_air")])
    assert says(test_residency_restore.restore, session, relations=["a"]) == (
        "warm@3 has nothing that matches relations: a. It names no relation at all."
    )


def test_warnings():
    session = test_residency_restore.server(jobs=[], segments=[segment_row(1, 400, resident=400)])
    assert test_residency_restore.restore(session, databases=["postgres_air", "x*"])["warnings"] == [
        "Snapshot warm@3 has lost its names: relations are selected by their current names.",
        "Nothing matches 'x*' of databases.",
    ]
    assert _selection._unnamed_warning(Names(unnamed={"a": "closed", "b": "gone"})) == [
        "Left out, as their relations have no names: databases a (closed), b (gone)."
    ]


# --- info ---


def test_info_without_a_data_directory():
    chosen = test_residency_info.options("capabilities", data_directory="/nowhere/at/all")
    assert says(test_residency_info.look, Session(), chosen) == (
        "There is no /nowhere/at/all on this host: the subset capabilities must run on PostgreSQL's host, as its owner."
    )


def test_waited_in_vain():
    session = test_residency_info.server(residency_snapshot_segments=[{"wanted": 100, "resident": 10, "gone": 0}])
    with pytest.raises(ResidencyError) as caught:
        test_residency_info.look(session, test_residency_info.options(snapshot="warm", wait=True))
    assert str(caught.value) == "warm@3: 10 % of 800 kB is resident after 1.0 s, less than min_residency of 90 %."
    assert caught.value.result["reached"] is False and set(caught.value.result) == test_residency_info.KEYS


# --- the data directory ---


@pytest.fixture
def data(tmp_path):
    (tmp_path / "PG_VERSION").write_text("15\n")
    give(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("option", ["snapshot", "relation", "relations", "databases"])
def test_stopped(data, option):
    value = ["a"] if option in ("relations", "databases") else "a"
    assert says(_residency_info.of_files, data, test_residency_info.options(**{option: value}), None) == (
        "PostgreSQL is stopped in %s: %s needs it running." % (data, option)
    )


def test_data_directory(data):
    os.unlink(os.path.join(data, "PG_VERSION"))
    assert says(_page_cache.major_version, data) == "%s is not a PostgreSQL data directory: it has no PG_VERSION." % data
    with open(os.path.join(data, "PG_VERSION"), "w") as file:
        file.write("fifteen")
    give(data)
    assert says(_page_cache.major_version, data) == "%s/PG_VERSION does not hold a major version." % data


def test_data_directory_of_another_host():
    assert says(_page_cache.major_version, "/nowhere/at/all") == (
        "There is no /nowhere/at/all on this host: this module must run on PostgreSQL's host, as its owner."
    )


def test_closed_data_directory(data, monkeypatch):
    def refuse(*dummy, **dummy2):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert says(_page_cache.major_version, data) == (
        "%s is not accessible to this user: become the cluster's operating system user." % data
    )


def test_owner(data, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert says(_page_cache.require_owner, data) == (
        "%s belongs to user id %d, but this is 4711: become the owner, since the kernel tells only the owner which pages are resident."
        % (data, os.stat(data).st_uid)
    )


def test_eviction_needs_a_login_while_the_server_runs(data, monkeypatch):
    def refuse(database):
        raise NotRunningError("Cannot connect to PostgreSQL: no.")

    assert says(evict, log_in=refuse) == (
        "Cannot connect to PostgreSQL: no. If PostgreSQL is stopped, set data_directory."
    )
    monkeypatch.setattr(_page_cache, "postmaster_pid", lambda path: 1)
    assert says(evict, log_in=refuse, data_directory=data) == (
        "PostgreSQL runs in %s, and dirty pages would stay without a login for CHECKPOINT. Cannot connect to PostgreSQL: no."
        % data
    )
    answers = {"pg_has_role": [{"me": "keeper", "held": True}], "data_directory": [{"path": "/elsewhere"}]}
    assert says(evict, log_in=lambda database: Session(**answers), data_directory=data) == (
        "This login reaches the cluster in /elsewhere, but data_directory is %s." % data
    )


def test_failures_have_the_keys_of_every_result():
    session = test_residency_restore.server(jobs=[job_row()], segments=[segment_row(1, 400, resident=300)])
    with pytest.raises(ResidencyError) as caught:
        test_residency_restore.restore(session)
    assert set(caught.value.result) == set(_residency_restore.empty_result()) and caught.value.result["reached"] is False
