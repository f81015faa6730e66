# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _install

BIN = "/usr/lib/postgresql/15/bin"


def test_servers():
    listing = "\0".join([
        "/proc/1 exe /usr/lib/systemd/systemd", "/proc/1 cwd /",
        "/proc/7 cwd /srv/a b\nc", "/proc/7 exe " + BIN + "/postgres",
        "/proc/8 exe " + BIN + "/postgres (deleted)", "/proc/8 cwd /srv/d",
        "/proc/9 exe " + BIN + "/postgres", "/proc/9 cwd /srv/d",  # one of its processes
        "/proc/10 exe /usr/lib/postgresql/17/bin/postgres", "/proc/10 cwd /srv/e", "/proc/11 exe", "",
    ])  # fmt: skip
    assert _install.servers(listing, BIN) == ["/srv/a b\nc", "/srv/d"]
    assert _install.servers("", BIN) == []


def test_needed_by():
    assert _install.needed_by(["air"], ["/srv/a", "/srv/b\x1b"], "/srv/a", ["15/other"]) == [
        "database air",
        "the server in /srv/b\\x1b",
        "the cluster 15/other",
    ]
    assert _install.needed_by([], ["/srv/a"], "/srv/a", []) == []


def test_other_clusters():
    files = [{"path": "/etc/postgresql/15/reports/"}, {"path": "/etc/postgresql/15/main"}]
    assert _install.other_clusters(files, "15", "15/main") == ["15/reports"]
    assert _install.other_clusters(files, "15", "a name of the user's") == ["15/main", "15/reports"]


INSTALLED = ["installed 1.0", "aa  usr/lib/x.so", "bb  usr/share/doc/x/copyright"]
MD5SUMS = ["aa  usr/lib/x.so", "bb  usr/share/doc/x/copyright"]


@pytest.mark.parametrize(
    ("package", "installed", "differs"),
    [
        ({"verified": True, "md5sums": MD5SUMS}, INSTALLED, False),
        ({"verified": True, "md5sums": MD5SUMS}, [*INSTALLED, "??5?????? /usr/share/doc/x/copyright"], False),  # path-exclude
        ({"verified": True, "md5sums": MD5SUMS}, [*INSTALLED, "??5??????   /usr/lib/x.so"], True),
        ({"verified": True, "md5sums": MD5SUMS}, ["installed 0.9", *INSTALLED[1:]], True),
        ({"verified": True, "md5sums": MD5SUMS}, ["config-files 1.0"], True),
        ({"verified": True, "md5sums": MD5SUMS}, [], True),
        ({"verified": True, "md5sums": ["ac  usr/lib/x.so"]}, INSTALLED, True),
        ({"verified": False, "md5sums": None}, INSTALLED, True),
        ({"skipped": True}, INSTALLED, True),
    ],
)
def test_package_differs(package, installed, differs):
    assert _install.package_differs(package, installed, "1.0") is differs


def test_builder():
    missing = {"a": "", "c": "/x", "d": "/x"}
    variables = {host: {"__cache_extension_deb_missing": missing[host]} if host in missing else {} for host in "abcd"}
    assert _install.builder(list("abcd"), variables, "/x") == "c"
    assert _install.builder(list("dcba"), variables, "/x") == "d"


@pytest.mark.parametrize(("building", "timeout", "looks"), [(True, "600", 120), (True, 4, 0), (False, 600, 0)])
def test_build_looks(building, timeout, looks):
    assert _install.build_looks(building, timeout) == looks


def test_at_same_site():
    own = "/etc/apt/sources.list.d/pgfleet.sources:1 https://apt.example.com/pg/"
    others = [
        "/etc/apt/sources.list:1 https://apt.example.com/debian/",
        "/etc/apt/sources.list:2 https://user:word@apt.example.com:8443/other/",
    ]
    elsewhere = ["/etc/apt/sources.list:%d %s" % (line, uri) for line, uri in enumerate(
        ["https://aptxexample.com/", "https://apt.example.com.evil/", "file:/srv"])]  # fmt: skip
    assert _install.at_same_site([own, *others, *others, *elsewhere], "apt.example.com") == others


@pytest.mark.parametrize(
    ("owner", "before", "after", "recorded", "built", "changed"),
    [
        ("", "a", "a", True, False, False),
        ("", "a", "none", False, False, True),  # check mode
        ("", "a", "a", False, True, False),  # the same library of other sources
        ("", "a", "b", False, True, True),
        ("", "none", "b", False, True, True),
        ("a-package", "a", "a", False, True, True),
    ],
)
def test_library_changed(owner, before, after, recorded, built, changed):
    assert _install.library_changed(owner, before, after, recorded, built) is changed


@pytest.mark.parametrize(
    ("preload", "required", "preloaded", "said"),
    [
        (False, False, "", "none"),
        (False, True, "shared_preload_libraries", "needed"),
        (True, True, "shared_preload_libraries", "done"),
        (True, False, "", "done"),
        (True, False, "session_preload_libraries", "done"),
        (True, False, "shared_preload_libraries", "none"),
    ],
)
def test_restart(preload, required, preloaded, said):
    assert _install.restart(preload, required, preloaded) == said


def test_databases():
    assert _install.databases("air, sea", {"skipped": True}) == _install.databases(["air", "sea"], {"skipped": True}) == ["air", "sea"]
    assert _install.databases(["all"], {"query_result": [{"datname": "air"}, {"datname": "a, b"}]}) == ["air", "a, b"]
    assert _install.databases("all", {"query_result": []}) == []


def test_no_control_file():
    assert _install.no_control_file("/usr/share", "package", "pg-x") == (
        "The server finds no control file: pg_residency.control is not in /usr/share. The package pg-x is for another server: set"
        " cache_extension_package to the right one.")
    for method in ("source", "deb"):
        assert _install.no_control_file("/usr/share", method, "pg-x").endswith(" It was removed after this role had installed it: run the role again.")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_digests(tmp_path):
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql/x--1.sql").write_bytes(b"SELECT '\xe9'\r\n\n")
    (tmp_path / "x.control").write_bytes(b"")
    assert _install.digests(["sql/x--1.sql", "x.control"], str(tmp_path)) == "%s  sql/x--1.sql\n%s  x.control\n" % (
        sha256(b"SELECT '\xe9'\r\n\n"), sha256(b""))
    assert _install.digests([], str(tmp_path)) == ""


@pytest.mark.parametrize(("owner", "record", "scripts", "right"), [
    ("", "wanted", "there", True), ("a-package", "wanted", "there", False), ("", "another", "there", False), ("", "wanted", "another", False),
    ("", "none", "none", False),
])
def test_up_to_date(owner, record, scripts, right):
    sources = "aa  Makefile\nbb  x.control\ncc  sql/x--1.sql\ndd  src/sql.c\n"
    there = "bb  x.control\ncc  x--1.sql\n"  # as sha256sum says it in their directory
    known = {"wanted": sha256(b"wanted"), "there": sha256(there.encode())}
    assert _install.up_to_date(owner, known.get(record, record), "wanted", known.get(scripts, scripts), sources) is right


def test_apt_source():
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc=\n-----END PGP PUBLIC KEY BLOCK-----\n\n"
    body = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=\n -----END PGP PUBLIC KEY BLOCK-----\n"
    begin = "# Written by the role pgfleet.cache.cache_extension\nTypes: deb\nURIs: https://x/pg\n"
    assert _install.apt_source("https://x/pg", "trixie", "main, extra", key) == begin + "Suites: trixie\nComponents: main extra\n" + body
    assert _install.apt_source("https://x/pg", "./", ["main"], key) == begin + "Suites: ./\n" + body


def test_written_here():
    def file(source, text):
        return {"source": source, "content": base64.b64encode(text.encode()).decode()}

    ours = file("/a", _install.apt_source("u", "./", "", "key"))
    others = [file("/b", "Types: deb\n"), file("/c", "x" + _install.WRITTEN_HERE), {"failed": True, "msg": "file not found: /d"}]
    assert _install.written_here([ours, *others, file("/e", _install.WRITTEN_HERE + "\xe9")]) == ["/a", "/e"]


def test_with_key():
    own = ["/etc/apt/sources.list.d/pgfleet.sources"]
    assert _install.with_key(own) == own and _install.with_key([]) == []
    assert _install.with_key(["/etc/yum.repos.d/pgfleet.repo"]) == ["/etc/yum.repos.d/pgfleet.repo", "/etc/pki/rpm-gpg/RPM-GPG-KEY-pgfleet"]


def test_leftovers():
    found = [{"path": "/elsewhere/pg_residency--0.1.0.sql"}, {"path": "/share/pg_residency.control"}]
    assert _install.leftovers(found, "/share", ["/.", "/share/pg_residency.control"], "/lib/record") == ["/share/pg_residency--0.1.0.sql", "/lib/record"]
    assert _install.leftovers([], "/share", [], "/lib/record") == ["/lib/record"]
