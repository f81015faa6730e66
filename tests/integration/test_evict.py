# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scopes and layers of cache_evict. Of scope host only what it refuses and foresees: it would empty this machine."""

from __future__ import annotations

import os

import pytest
from playbook import documented, keys, task
from residency import held, is_there, there

EVICT = "cache_evict"
RELATIONS = ("passenger", '"Boarding Pass"', "passenger_id")
BOTH = ["page_cache", "shared_buffers"]


@pytest.fixture
def warm(cluster):
    for relation in RELATIONS:
        cluster.warm(cluster.file_of(relation))
    return cluster


def started(cluster):
    return cluster.sql("SELECT pg_postmaster_start_time()")


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_one_relation(warm, as_postgres, login, stopped):
    """With its index, and nothing else; with PostgreSQL stopped by the names that a snapshot has."""
    [saved] = as_postgres(task("residency_snapshot", name="names", **login))
    assert not saved.get("failed"), saved["msg"]
    files = [warm.file_of(relation) for relation in RELATIONS]
    other = there(files[1])
    arguments = {"data_directory": warm.data} if stopped else login
    if stopped:
        warm.stop()
    try:
        results = as_postgres(
            *(task(EVICT, check=check, scope="relation", relations=["public.passenger"], **arguments) for check in (True, False, True)),
            task(EVICT, scope="relation", relations=["public.passenger", "nothing"], **arguments),
        )
        for result in results:
            assert not result.get("failed"), result["msg"]
            assert keys(result) == documented(EVICT)
        found = [{row["relation"] for row in result["relations"] if "pg_toast" not in row["relation"]} for result in results]
        assert found[:2] == [{"public.passenger", "public.passenger_id"}] * 2 and not found[2] - found[0] and not found[3] - found[0]
        assert [one["changed"] for one in results] == [True, True, False, False]
        assert results[3]["warnings"] == ["Nothing matches 'nothing' of relations."]
        assert [warm.resident(path) for path in (files[0], files[2])] == [0, 0]
        assert is_there(files[1], other)
    finally:
        if stopped:
            warm.start()


def test_without_the_extension(warm, as_postgres, login):
    """A cluster needs no names; relations do."""
    elsewhere = dict(login, login_db="without")
    relation, cluster = as_postgres(
        task(EVICT, scope="relation", relations=["public.passenger"], **elsewhere), task(EVICT, **elsewhere)
    )
    assert relation["failed"] and relation["msg"].startswith("Extension pg_residency is not in database without: ")
    assert not cluster.get("failed") and cluster["changed"]
    assert {row["relation"] for row in cluster["relations"]} == {None}


def test_mapped_pages_are_named(warm, as_postgres, login):
    """A file that somebody has mapped keeps its pages."""
    path = warm.file_of("passenger")
    with held(path):
        [result] = as_postgres(task(EVICT, scope="relation", relations=["public.passenger"], **login))
        assert warm.resident(path) == os.path.getsize(path)
    assert os.path.getsize(path) <= result["resident_bytes_after"] < result["resident_bytes_before"]
    assert result["left"][0]["relation"] == "public.passenger"
    assert result["left"][0]["reason"] == "in use"


@pytest.mark.parametrize("user", ["postgres", "root"])
def test_restart(warm, ansible, login, user):
    """By pg_ctl, where there is no systemd; the owner may log in to be found, and root need not."""
    warm.sql("SELECT count(name) FROM passenger")
    arguments = login if user == "postgres" else {"data_directory": warm.data}
    become = {"become": True, "become_user": "postgres"} if user == "postgres" else {}
    before = started(warm)
    check, = ansible.tasks([task(EVICT, check=True, layers=BOTH, method="restart", **arguments)], **become)
    assert started(warm) == before
    real, = ansible.tasks([task(EVICT, layers=BOTH, method="restart", **arguments)], **become)
    for result in (check, real):
        assert not result.get("failed"), result["msg"]
        assert result["changed"] and keys(result) == documented(EVICT)
        stop, start = result["commands"]
        assert stop.startswith("%s/pg_ctl stop -m fast -D %s --wait" % (warm.bin, warm.data))
        assert start.startswith("%s/pg_ctl start -l " % warm.bin) and " -D %s --wait" % warm.data in start
    assert (check["restarted"], real["restarted"]) == (False, True)
    assert started(warm) != before
    assert [warm.resident(warm.file_of(relation)) for relation in RELATIONS] == [0, 0, 0]
    assert warm.sql("SELECT count(*) FROM residency_buffers('passenger')") == "0"
    assert warm.sql("SHOW port") == str(warm.port)


def test_shared_buffers_alone_by_restart(warm, as_postgres, login):
    warm.sql("SELECT count(name) FROM passenger")
    path = warm.file_of("passenger")
    before = there(path)
    [result] = as_postgres(task(EVICT, layers=["shared_buffers"], method="restart", **login))
    assert not result.get("failed"), result["msg"]
    assert is_there(path, before)
    assert warm.sql("SELECT count(*) FROM residency_buffers('passenger')") == "0"


def test_buffers_are_counted_by_this_extension_too(warm, as_postgres, login):
    warm.sql("SELECT count(name) FROM passenger")
    [result] = as_postgres(task(EVICT, check=True, **login))
    assert result["buffer_bytes_before"] > 1 << 20
    assert result["buffer_bytes_after"] == result["buffer_bytes_before"], "which are not in layers"


def test_functions_need_17(warm, as_postgres, login):
    results = as_postgres(*(task(EVICT, check=check, layers=BOTH, **login) for check in (True, False)))
    for result in results:
        assert result["msg"] == "PostgreSQL 15 empties its shared buffers only by a restart: set method to restart."
        assert keys(result) == documented(EVICT)
    assert is_there(warm.file_of("passenger")), "and nothing was begun"


def test_the_whole_host_is_refused(warm, ansible, as_postgres, login):
    path = warm.file_of("passenger")
    before = there(path)
    [not_root] = as_postgres(task(EVICT, check=True, scope="host"))
    assert not_root["msg"] == "scope host requires root, who alone may write to /proc/sys/vm/drop_caches: become root."
    for check in (True, False):
        [others] = ansible.tasks([task(EVICT, check=check, scope="host", data_directory="/var/tmp")])
        assert others["msg"] == "/var/tmp is not a PostgreSQL data directory: it has no PG_VERSION."
        [others] = ansible.tasks([task(EVICT, check=check, scope="host")])
        assert others["failed"] and not others["changed"]
        assert warm.data in others["msg"]
        assert "and its files would be dropped from the page cache too: stop it, or set force." in others["msg"]
        assert keys(others) == documented(EVICT)
    [would] = ansible.tasks([task(EVICT, check=True, scope="host", force=True, data_directory=warm.data)])
    assert not would.get("failed"), would["msg"]
    assert would["commands"] == ["sync", "echo 3 > /proc/sys/vm/drop_caches"]
    assert would["host"]["cached_bytes_before"] > 0
    assert [one for one in would["warnings"] if "its dirty buffers stay in shared buffers" in one]
    assert is_there(path, before)
