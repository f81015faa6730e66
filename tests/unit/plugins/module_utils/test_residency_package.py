# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import io
import os
import struct
import subprocess
import tarfile

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _residency_package
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

SOURCES = os.path.join(os.path.dirname(__file__), "../../../../files/pg_residency")
KIND = _residency_package.Kind("postgresql-15-pg-residency", "1.0.0", "15", "amd64", SOURCES)
PATH = "usr/lib/postgresql/15/lib/pg_residency.so"


def elf(machine=62, kind=3, body=b"\0" * 3000):
    return b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HH", kind, machine) + body


LIBRARY = elf()
PACKAGE = _residency_package.assemble(KIND, LIBRARY)


def members(package):
    found, position = {}, 8
    while position < len(package):
        size = int(package[position + 48:position + 58])
        found[package[position:position + 16].decode().strip()] = package[position + 60:position + 60 + size]
        position += 60 + size + size % 2
    return found


def packed(found):
    return b"!<arch>\n" + b"".join(
        b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name.encode(), 0, 0, 0, 0o100644, len(data)) + data + b"\n" * (len(data) % 2)
        for name, data in found.items()
    )


def entries(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(one, archive.extractfile(one).read() if one.isreg() else None) for one in archive.getmembers()]


def tar(some):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, content in some:
            archive.addfile(member, io.BytesIO(content or b""))
    return buffer.getvalue()


def test_package_is_the_manifest():
    found = members(PACKAGE)
    assert list(found) == ["debian-binary", "control.tar", "data.tar"]
    control = {one.name: content for one, content in entries(found["control.tar"]) if one.isreg()}
    assert sorted(control) == ["./control", "./md5sums"]
    data = entries(found["data.tar"])
    assert sorted(one.name for one, dummy in data if one.isreg()) == sorted(
        ["./" + PATH, "./usr/share/doc/postgresql-15-pg-residency/copyright"]
        + ["./usr/share/postgresql/15/extension/" + name for name in ["pg_residency.control", *os.listdir(SOURCES + "/sql")]]
    )
    for member, content in data:
        assert member.isreg() or member.isdir()
        assert (member.uid, member.gid, member.mode) == (0, 0, 0o644 if member.isreg() else 0o755)
        if member.name.endswith(".sql"):
            with open(os.path.join(SOURCES, "sql", os.path.basename(member.name)), "rb") as file:
                assert content == file.read()


def test_dpkg_reads_it(tmp_path):
    """Where there is one."""
    (tmp_path / "a.deb").write_bytes(PACKAGE)
    try:
        fields = subprocess.run(["dpkg-deb", "--field", str(tmp_path / "a.deb")], check=True, stdout=subprocess.PIPE).stdout.decode()
        subprocess.run(["dpkg-deb", "--extract", str(tmp_path / "a.deb"), str(tmp_path / "out")], check=True)
    except FileNotFoundError:
        pytest.skip("there is no dpkg-deb here")
    assert "Package: postgresql-15-pg-residency\n" in fields and "Depends: postgresql-15\n" in fields
    assert (tmp_path / "out" / PATH).read_bytes() == LIBRARY
    digests = "".join("%s\n" % line for line in _residency_package.md5sums(_residency_package.files(KIND, LIBRARY)))
    subprocess.run(["md5sum", "--check", "--quiet"], cwd=str(tmp_path / "out"), check=True, input=digests.encode())


def test_same_input_same_bytes():
    assert _residency_package.assemble(KIND, LIBRARY) == PACKAGE
    assert _residency_package.verify(KIND, PACKAGE, "a.deb") == LIBRARY


def change_control(path, change):
    def changed(found):
        some = [(one, change(content) if one.name == path else content) for one, content in entries(found["control.tar"])]
        for one, content in some:
            one.size = len(content or b"")
        found["control.tar"] = tar(some)

    return changed


def add(archive, name, content=b"", **attributes):
    def changed(found):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        for attribute, value in attributes.items():
            setattr(member, attribute, value)
        found[archive] = tar([*entries(found[archive]), (member, content)])

    return changed


def change_data(name, content=None, **attributes):
    def changed(found):
        some = entries(found["data.tar"])
        for index, (one, former) in enumerate(some):
            if one.name == "./" + name:
                some[index] = (one, content if content is not None else former)
                one.size = len(some[index][1] or b"") if one.isreg() else 0
                for attribute, value in attributes.items():
                    setattr(one, attribute, value)
        found["data.tar"] = tar(some)

    return changed


CONTROL_SQL = "usr/share/postgresql/15/extension/pg_residency.control"
ATTACKS = {
    "another name": change_control("./control", lambda text: text.replace(b"postgresql-15-pg-residency", b"bash")),
    "another version": change_control("./control", lambda text: text.replace(b"1.0.0", b"99")),
    "another architecture": change_control("./control", lambda text: text.replace(b"amd64", b"all")),
    "a field": change_control("./control", lambda text: text.replace(b"Depends:", b"Replaces: bash\nDepends:")),
    "md5sums": change_control("./md5sums", lambda text: text.replace(text[:4], b"0000")),
    "postinst": add("control.tar", "./postinst", b"#!/bin/sh\nid > /tmp/owned\n", mode=0o755),
    "conffiles": add("control.tar", "./conffiles", b"/etc/x\n"),
    "triggers": add("control.tar", "./triggers", b"activate ldconfig\n"),
    "file": add("data.tar", "./etc/cron.d/x", b"* * * * * root id\n"),
    "link": add("data.tar", "./usr/lib/x", type=tarfile.SYMTYPE, linkname="/etc/shadow"),
    "hard link": add("data.tar", "./usr/lib/x", type=tarfile.LNKTYPE, linkname="/etc/shadow"),
    "device": add("data.tar", "./usr/lib/x", type=tarfile.CHRTYPE, devmajor=1, devminor=1),
    "FIFO": add("data.tar", "./usr/lib/x", type=tarfile.FIFOTYPE),
    "absolute path": add("data.tar", "/etc/x", b"x"),
    "..": add("data.tar", "./usr/../etc/x", b"x"),
    "set-user-ID": change_data(PATH, mode=0o4755),
    "owner": change_data(PATH, uid=33),
    "library as a link": change_data(PATH, type=tarfile.SYMTYPE, linkname="/tmp/x"),
    "SQL": change_data(CONTROL_SQL, content=b"trusted = true\n"),
    "another library": change_data(PATH, content=elf(body=b"\1" * 3000)),  # whose md5sum is not said
    "library of another machine": change_data(PATH, content=elf(machine=183)),
    "program": change_data(PATH, content=elf(kind=2)),
    "library that is huge": change_data(PATH, content=elf(body=b"\0" * (_residency_package.LARGEST_LIBRARY + 1))),
    "no library": change_data(PATH, content=b"#!/bin/sh\n"),
    "member": lambda found: found.update({"data.tar.gz": b"x"}),
    "second data": lambda found: found.update({"data.tar ": tar([])}),
    "no data": lambda found: found.pop("data.tar"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_any_other_package_is_refused(name):
    found = members(PACKAGE)
    ATTACKS[name](found)
    package = packed(found)
    assert package != PACKAGE
    with pytest.raises(ResidencyError):
        _residency_package.verify(KIND, package, "a.deb")


# with names of their own: a name that differs from process to process stops pytest-xdist
BROKEN = {
    "empty": b"",
    "magic alone": b"!<arch>\n",
    "library": b"\x7fELF",
    "a byte less": PACKAGE[:-1],
    "a byte more": PACKAGE + b"\n",
    "beginning": PACKAGE[:5000],
    "end": PACKAGE[9000:],
    "noise": os.urandom(9000),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_package_is_refused(content):
    with pytest.raises(ResidencyError):
        _residency_package.verify(KIND, content, "a.deb")


@pytest.mark.parametrize("kind", [KIND._replace(architecture="arm64"), KIND._replace(major="16"), KIND._replace(version="0.3.1")])
def test_package_of_another_kind_is_refused(kind):
    with pytest.raises(ResidencyError):
        _residency_package.verify(kind, PACKAGE, "a.deb")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "bash"),
        ("name", "postgresql-15-x\nDepends: y"),
        ("version", "1 2"),
        ("version", "1\n"),
        ("major", "15/../.."),
        ("architecture", "../x"),
        ("architecture", ""),
    ],
)
def test_words_of_a_package(field, value):
    with pytest.raises(ResidencyError):
        KIND._replace(**{field: value}).check()


def package(options, check_mode):
    return _residency_package.package(_residency_package.Options(**options), check_mode)


def test_package_is_assembled_once(tmp_path):
    library = tmp_path / "pg_residency.so"
    library.write_bytes(LIBRARY)
    kept = tmp_path / "folder" / "a.deb"
    options = dict(KIND._asdict(), library=str(library), content=None, dest=None, package=str(kept))
    assert package(options, True)["changed"] and not kept.parent.exists()
    made = package(options, False)
    assert made["changed"] and made["verified"] and kept.read_bytes() == PACKAGE
    again = package(dict(options, library=None), False)
    assert (again["changed"], again["verified"]) == (False, True)
    assert (again["sha256"], again["md5sums"]) == (made["sha256"], made["md5sums"])
    assert os.listdir(str(kept.parent)) == ["a.deb"]
    kept.write_bytes(PACKAGE.replace(b"Depends: postgresql-15", b"Depends: postgresql-16"))
    tampered = package(dict(options, library=None), False)
    assert (tampered["verified"], tampered["sha256"], tampered["md5sums"]) == (False, None, [])
    assert tampered["msg"] == "%s is not the package that this collection assembles from the library in it." % kept
    assert package(options, False)["changed"] and kept.read_bytes() == PACKAGE
    kept.unlink()
    assert package(dict(options, library=None, content=base64.b64encode(LIBRARY).decode()), False)["content"] is None
    assert kept.read_bytes() == PACKAGE


def test_only_a_library_is_read(tmp_path):
    path = tmp_path / "pg_residency.so"

    def says():
        with pytest.raises(ResidencyError) as caught:
            _residency_package.read_library(str(path), "amd64")
        path.unlink()
        return str(caught.value)

    path.symlink_to("/etc/shadow")
    assert says() == "Cannot read %s: it is a symbolic link." % path
    os.mkfifo(str(path))
    assert says() == "%s is not a regular file." % path
    path.write_bytes(b"#!/bin/sh\nexit\n" * 3)
    assert says() == "%s is not a library: it is not an ELF file." % path
    path.write_bytes(elf(kind=2))
    assert says() == "%s is not a library: it is not a shared object." % path
    path.write_bytes(elf(machine=183))
    assert says() == "%s is not a library for amd64." % path
    with open(str(path), "wb") as file:
        file.truncate(_residency_package.LARGEST_LIBRARY + 1)
    assert says() == "%s has more than %d bytes." % (path, _residency_package.LARGEST_LIBRARY)


def test_library_goes_from_a_host_to_the_controller(tmp_path):
    there, here = tmp_path / "there.so", tmp_path / "here.so"
    there.write_bytes(LIBRARY)
    options = dict.fromkeys(("library", "content", "dest", "package", *KIND._fields))
    read = package(dict(options, library=str(there)), False)
    assert not read["changed"]
    write = dict(options, content=read["content"], dest=str(here))
    assert package(write, True)["changed"] and not here.exists()
    written = package(write, False)
    assert (written["changed"], written["content"], written["sha256"]) == (True, None, read["sha256"])
    assert here.read_bytes() == LIBRARY


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("f0VM*", "The content is not Base64."),
        ("\u2028", "The content is not Base64."),
        (base64.b64encode(b"#!/bin/sh\nexit\n" * 3).decode(), "The content is not a library: it is not an ELF file."),
        (base64.b64encode(elf(machine=183)).decode(), "The content is not a library for amd64."),
        (
            base64.b64encode(elf(body=b"\0" * _residency_package.LARGEST_LIBRARY)).decode(),
            "The content has more than %d bytes." % _residency_package.LARGEST_LIBRARY,
        ),
    ],
    ids=["asterisk", "line separator", "script", "architecture", "size"],
)
def test_content_is_input(content, why):
    with pytest.raises(ResidencyError) as caught:
        _residency_package.decode_library(content, "amd64")
    assert str(caught.value) == why
