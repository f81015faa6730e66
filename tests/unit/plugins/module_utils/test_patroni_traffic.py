# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tag in Patroni's configuration, and the file as it was afterwards."""

from __future__ import annotations

import os
import resource
import tempfile

import pytest
import yaml
from ansible_collections.pgfleet.cache.plugins.module_utils import _patroni_traffic
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_node import Node

REST = "scope: shop\nname: db1 # a comment\npostgresql:\n  parameters: {tags: 1}\n"


@pytest.mark.parametrize("tags", [
    "",
    "tags:\n    nofailover: false\n    # mine\n    noloadbalance: false\n    clonefrom: true\n",
    "tags:\n  nofailover: false\n",
    "tags:\n# mine\n\n  nofailover: false\nwatchdog:\n  mode: 'off'\n",
    "tags: {}\nlog: {level: INFO}\n",
    "tags: {nofailover: true, noloadbalance: false} # mine\n",
])
def test_tagged_and_untagged(tags):
    text = REST + tags
    before = yaml.safe_load(text)
    after = _patroni_traffic.tagged(text)
    assert yaml.safe_load(after) == dict(before, tags=dict(before.get("tags") or {}, noloadbalance=True))
    assert _patroni_traffic.untagged(after) == text


@pytest.mark.parametrize("text", [
    '{"scope": "shop", "tags": {}}\n', "tags: {\n  nofailover: true}\n", "'tags': {nofailover: true}\n", "tags: &tags\n  nofailover: true\nother: *tags\n"])
def test_not_understood(text):
    with pytest.raises((ResidencyError, yaml.YAMLError)):
        _patroni_traffic.tagged(text)


def node(path):
    return Node("db1", str(path), "127.0.0.1:1", {})


def test_a_directory(tmp_path):
    (tmp_path / "a.yml").write_text("scope: shop\n")
    _patroni_traffic._write(node(tmp_path), True)
    assert _patroni_traffic._is_ours(node(tmp_path))
    assert yaml.safe_load((tmp_path / "zz-pgfleet.cache.yml").read_text()) == {"tags": {"noloadbalance": True}}
    _patroni_traffic._write(node(tmp_path), False)
    assert not _patroni_traffic._is_ours(node(tmp_path)) and os.listdir(tmp_path) == ["a.yml"]


def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "p.yml"
    path.write_text(REST)
    path.chmod(0o600)
    _patroni_traffic._write(node(path), True)
    assert _patroni_traffic._is_ours(node(path)) and path.stat().st_mode & 0o777 == 0o600
    _patroni_traffic._write(node(path), False)
    assert path.read_text() == REST and os.listdir(tmp_path) == ["p.yml"]


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(ResidencyError, match=r"The tag noloadbalance cannot be set in .*: No such file or directory. It has to be a file of the user"):
        _patroni_traffic._write(node(tmp_path / "none.yml"), True)


def test_without_room_it_is_as_it_was():
    """Written in place, since its user may make no file beside it. A limit of its size stands for the full disk."""
    text = "tags:\n  nofailover: false\n" + REST
    root, limits = os.geteuid() == 0, resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "p.yml")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(directory, 0o555)
        if root:
            os.chown(path, 65534, 65534)
            os.seteuid(65534)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) + 10, limits[1]))
            with pytest.raises(ResidencyError, match=r"cannot be set in .*: File too large"):
                _patroni_traffic._write(node(path), True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            if root:
                os.seteuid(0)
            os.chmod(directory, 0o700)
        with open(path) as file:
            assert file.read() == text


def test_a_link_stays_one(tmp_path):
    path, link = tmp_path / "p.yml", tmp_path / "link.yml"
    path.write_text(REST)
    link.symlink_to(path)
    _patroni_traffic._write(node(link), True)
    assert link.is_symlink() and _patroni_traffic._is_ours(node(link))
    _patroni_traffic._write(node(link), False)
    assert link.is_symlink() and path.read_text() == REST


@pytest.mark.parametrize("text", [REST.rstrip("\n"), REST.replace("\n", "\r\n") + "tags:\r\n  nofailover: false\r\n", REST + "x: \u2028\n"])
def test_each_byte_is_as_it_was(tmp_path, text):
    path = tmp_path / "p.yml"
    path.write_bytes(text.encode())
    _patroni_traffic._write(node(path), True)
    _patroni_traffic._write(node(path), False)
    assert path.read_bytes() == text.encode()


def test_a_tag_that_was_changed_meanwhile_is_kept():
    after = _patroni_traffic.tagged(REST + "tags: {nofailover: false}\n")
    with pytest.raises(ResidencyError, match="its tags were changed meanwhile"):
        _patroni_traffic.untagged(after.replace("nofailover: false", "nofailover: true", 1))


@pytest.mark.parametrize("name, text, problem", [
    ("p.yml", REST, ""), ("p.yml", "tags: {\n  a: 1}\n", "its section tags is not written as one line"), ("p.yml", None, "No such file or directory"),
    ("zzz.yml", REST, "a file there sorts after zz-pgfleet.cache.yml"), ("a.yaml", REST, ""),
])
def test_what_is_seen_before(tmp_path, name, text, problem):
    """Of a file, or of a directory with it."""
    if text is not None:
        (tmp_path / name).write_text(text)
    found = _patroni_traffic._problem(node(tmp_path if name != "p.yml" else tmp_path / name))
    assert problem in found and bool(found) is bool(problem)


@pytest.mark.parametrize("in_memory, in_file, state, asked, out", [
    (False, "", "in", [], False), (True, "tags: {noloadbalance: true}\n", "in", [], None), (False, "tags: {noloadbalance: true}\n", "seen", [], False),
    (True, "", "in", ["POST"], False),
    (True, "ours", "out", [], True), (False, "ours", "out", ["POST"], True), (False, "ours", "in", ["POST"], False),
])
def test_whatever_an_earlier_run_or_somebody_else_has_left(monkeypatch, tmp_path, in_memory, in_file, state, asked, out):
    """Patroni has the tag or not, the file has it, and whose it is."""
    file = tmp_path / "p.yml"
    file.write_text(_patroni_traffic.tagged(REST) if in_file == "ours" else REST + in_file)
    requests = []

    class Api(Node):
        def read(self, path):
            has = yaml.safe_load(file.read_text()).get("tags", {}).get("noloadbalance", False) if requests else in_memory
            return {"tags": {"noloadbalance": has}, "role": "replica", "members": []}

        def ask(self, method, path, body=None, seconds=10):
            if method == "POST":
                requests.append(method)
                return 202, ""
            return (503 if self.read("/patroni")["tags"]["noloadbalance"] else 200), ""

    monkeypatch.setattr(_patroni_traffic._patroni_node, "of", lambda dummy: Api("db1", str(file), "", yaml.safe_load(file.read_text())))
    found = _patroni_traffic.manage("/d", state, False)
    assert (requests, found["out"], found["changed"]) == (asked, out, bool(asked))
    assert ("is not loaded yet: reload Patroni" in found["problem"]) is (not in_memory and in_file.startswith("tags"))
    assert _patroni_traffic.described(found) == "db1 is %s." % {None: "out of traffic by its user's tag", True: "out of traffic", False: "in traffic"}[out]


def test_others():
    members = [
        {"name": "db1", "role": "leader", "state": "running"}, {"name": "db2", "role": "replica", "state": "streaming"},
        {"name": "db3", "role": "replica", "state": "streaming", "tags": {"noloadbalance": True}}, {"name": "db4", "role": "replica", "state": "starting"},
        {"name": "db5", "role": "sync_standby", "state": "running"},
    ]
    assert _patroni_traffic.others("db2", {"members": members}) == ["db5"]
