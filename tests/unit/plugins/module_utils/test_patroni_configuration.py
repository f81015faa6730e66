# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to stand in the configuration of a Patroni cluster, by what stands there, in the files of a member, and in those of the others."""

from __future__ import annotations

import json

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _patroni_configuration, _patroni_node
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_configuration import Cluster, Configuration

LIBRARIES = "shared_preload_libraries"
MEMBERS = [{"name": name, "api_url": "http://%s:8008/patroni" % name} for name in ("db1", "db2")]


class Files:
    """A session to a server with these lines of (file, value of shared_preload_libraries)."""

    def __init__(self, *lines):
        self._lines = lines

    def rows(self, sql, params=()):
        return [{"file": "/etc/" + file, "line": number, "name": LIBRARIES, "setting": value} for number, (file, value) in enumerate(self._lines, 1)]


@pytest.fixture
def cluster(monkeypatch):
    """A place: ``there`` are the parameters in the cluster's configuration, ``own`` those of the member db1."""

    def place(there, *lines, own=None, found=None):
        answers = {"PATCH": {"postgresql": {"parameters": there}}, "GET": {"members": MEMBERS}}
        monkeypatch.setattr(_patroni_node.Node, "ask", lambda self, method, *rest, **more: (200, json.dumps(answers[method])))
        node = _patroni_node.Node("db1", "/etc/patroni.yml", "db1:8008", {"postgresql": {"parameters": own}})
        monkeypatch.setattr(_patroni_node, "of", lambda data_directory: node)
        return Cluster(Files(*lines), "/etc/postgresql.conf", "/etc/postgresql.auto.conf", Configuration("/data"), found)

    return place


def members(*libraries):
    return [dict(one, libraries=list(names)) for one, names in zip(MEMBERS, libraries)]


@pytest.mark.parametrize("there, lines, wanted", [
    (None, [], "pg_residency"),
    ({}, [("postgresql.base.conf", "a, 'b'")], 'a, "\'b\'", pg_residency'),
    ({LIBRARIES: ""}, [("postgresql.base.conf", "a")], "pg_residency"),
    ({LIBRARIES: "a,b"}, [("postgresql.conf", "a")], "a, b, pg_residency"),
    ({LIBRARIES: "pg_residency,a"}, [], "pg_residency,a"),
    ({"Shared_Preload_Libraries": "a"}, [], "a, pg_residency"),
])
def test_present(cluster, there, lines, wanted):
    assert cluster(there, *lines).present({"rate": "1MB", "hold": ""}) == {LIBRARIES: wanted, "pg_residency.rate": "1MB"}


@pytest.mark.parametrize("there, lines, wanted", [
    ({}, [], {}),
    ({LIBRARIES: "a,b"}, [], {LIBRARIES: "a,b"}),
    ({LIBRARIES: "a,pg_residency,b", "pg_residency.rate": "1MB"}, [("postgresql.base.conf", "a, b")], {LIBRARIES: "a, b"}),
    ({LIBRARIES: "pg_residency"}, [], {}),
])
def test_absent(cluster, there, lines, wanted):
    assert cluster(there, *lines).absent() == wanted


def test_absent_where_a_file_has_it_too(cluster):
    with pytest.raises(ResidencyError, match=r"/etc/postgresql\.base\.conf line 1 has pg_residency in shared_preload_libraries: remove it there\."):
        cluster({LIBRARIES: "pg_residency"}, ("postgresql.base.conf", "pg_residency")).absent()


@pytest.mark.parametrize("own, lines", [({LIBRARIES: "a, pg_residency"}, []), (None, [("postgresql.auto.conf", "a, pg_residency")])])
def test_what_the_member_has_itself_is_left_to_it(cluster, own, lines):
    assert cluster({LIBRARIES: "b"}, *lines, own=own).present({}) == {LIBRARIES: "b"}
    with pytest.raises(ResidencyError, match="overrides the cluster's configuration"):
        cluster({LIBRARIES: "b"}, *lines, own=own).absent()


def test_the_name_is_spelled_as_it_is_there(cluster):
    cluster({})  # Node.ask
    configuration = Configuration("/data")
    assert configuration.request({LIBRARIES: "a"}) == {"postgresql": {"parameters": {LIBRARIES: "a"}}}
    cluster({"Shared_Preload_Libraries": 1})
    assert configuration.read() == {LIBRARIES: "1"}
    assert configuration.request({LIBRARIES: None}) == {"postgresql": {"parameters": {"Shared_Preload_Libraries": None}}}


@pytest.mark.parametrize("there, found, message", [
    ({}, members(["a"], ["a"]), ""),
    ({}, members(["a"]), "It is not known whether pg_residency is on db2 of this cluster, where PostgreSQL would not start again"),
    ({}, members(["a"], ["b"]), "The configuration files of db1 and db2 do not preload the same libraries"),
    ({LIBRARIES: "b"}, members(["a"], ["b"]), ""),
    ({LIBRARIES: "pg_residency"}, [], ""),
])
def test_members(cluster, there, found, message):
    place = cluster(there, ("postgresql.base.conf", "a"), found=found)
    if not message:
        assert "pg_residency" in place.present({})[LIBRARIES]
        return
    with pytest.raises(ResidencyError, match=message):
        place.present({})


@pytest.mark.parametrize("name, one, other, equal", [
    ("autosave", "60s", "1min", True), ("rate", "1024kB", "1MB", True), ("rate", "1MB", "2MB", False), ("budget", "1500kB", "1MB", True),
    ("autosave", "-1", "-1", True), ("autorestore", "off", None, False), ("hold", "0", "0", True),
])
def test_amount(name, one, other, equal):
    assert (_patroni_configuration.amount("pg_residency." + name, one) == _patroni_configuration.amount("pg_residency." + name, other)) is equal


def test_without_a_configuration_in_the_store(cluster, monkeypatch):
    """Patroni answers 503 then."""
    cluster({})
    monkeypatch.setattr(_patroni_node.Node, "ask", lambda *rest, **more: (503, ""))
    with pytest.raises(ResidencyError, match=r"Patroni of db1 does not read or change the configuration of its cluster \(503, \): see patronictl list"):
        Configuration("/data").read()


def test_changed_until_nothing_is_left(cluster):
    """Another host's PATCH came in between once, or every time."""
    place, left = cluster({}), [{LIBRARIES: "a, pg_residency"}, {}]
    place.change({LIBRARIES: "pg_residency"}, lambda: left.pop(0))
    assert not left
    with pytest.raises(ResidencyError, match="Somebody else changes the configuration of the cluster of db1 at the same time"):
        place.change({LIBRARIES: "pg_residency"}, lambda: {LIBRARIES: "pg_residency"})
