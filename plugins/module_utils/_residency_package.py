# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Debian package of the extension, assembled from its sources and one library.

The library is all that a build contributes. Names, places, owners, modes, the package's fields and the SQL come from
the controller, and the package has no maintainer script, so that installing it as root runs nothing. The members are
not compressed: the same input gives the same bytes with every Python, and a package is verified by assembling it
again.
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import errno
import glob
import hashlib
import io
import os
import re
import stat
import struct
import tarfile
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

LIBRARY = "pg_residency.so"
LARGEST_LIBRARY = 8 << 20
LARGEST_PACKAGE = 2 * LARGEST_LIBRARY

# elf.h: what the library of an architecture, in dpkg's words, has as its class, byte order and machine
_MACHINES: Mapping[str, Tuple[int, int, int]] = {
    "amd64": (2, 1, 62),
    "arm64": (2, 1, 183),
    "armhf": (1, 1, 40),
    "i386": (1, 1, 3),
    "loong64": (2, 1, 258),
    "ppc64el": (2, 1, 21),
    "riscv64": (2, 1, 243),
    "s390x": (2, 2, 22),
}
_SHARED_OBJECT = 3  # ET_DYN
_WORDS: Mapping[str, str] = {
    "name": r"postgresql-[1-9][0-9]-[a-z0-9+.-]+",
    "version": r"[0-9][A-Za-z0-9.+~-]*",
    "major": r"[1-9][0-9]",
    "architecture": r"[a-z0-9][a-z0-9-]*",
}


KIND_OPTIONS = tuple(_WORDS)


class Kind(NamedTuple):
    """What the package is to be, and the directory of the sources that it is made from."""

    name: str
    version: str
    major: str
    architecture: str
    sources: str

    def check(self) -> None:
        for field, pattern in _WORDS.items():
            value = getattr(self, field)
            if not re.fullmatch(pattern, value):
                raise ResidencyError("%s is %r, which cannot be part of a Debian package." % (field, value))


@dataclass(frozen=True)
class Options:
    """All that ``package`` needs where that is given; ``dest`` where ``content`` is."""

    name: Optional[str]
    version: Optional[str]
    major: Optional[str]
    architecture: Optional[str]
    library: Optional[str]
    content: Optional[str]
    dest: Optional[str]
    package: Optional[str]
    sources: Optional[str]

    def kind(self) -> Kind:
        return Kind(**{option: getattr(self, option) or "" for option in Kind._fields})


def package(options: Options, check_mode: bool) -> Dict[str, Any]:
    """What the module residency_package does, by its options."""
    result = empty_result()
    library: Optional[bytes] = None
    if options.library is not None:
        library = read_library(options.library, options.architecture)
    elif options.content is not None:
        library = decode_library(options.content, options.architecture)
    if options.package is None and library is not None:
        result.update(msg="%s is a library." % (options.library or options.dest), sha256=hashlib.sha256(library).hexdigest())
        if options.library is not None:
            result["content"] = base64.b64encode(library).decode()
        else:
            result["changed"] = True
            if not check_mode:
                write_file(options.dest or "", library)
        return result
    path = options.package or ""
    kind = options.kind()
    kind.check()
    try:
        content = read_file(path, LARGEST_PACKAGE)
        library = verify(kind, content, path)
        result.update(msg="%s is verified." % path, verified=True)
    except ResidencyError as error:
        if library is None:
            return dict(result, msg=str(error))
        content = assemble(kind, library)
        result.update(changed=True, msg="%s is assembled." % path, verified=not check_mode)
        if not check_mode:
            write_file(path, content)
    listed = md5sums(files(kind, library))
    after = "".join("%s\n" % line for line in listed)
    result["md5sums"] = listed
    result["sha256"] = hashlib.sha256(content).hexdigest()
    result["diff"] = {
        "before_header": "no package" if result["changed"] else os.path.basename(path),
        "after_header": os.path.basename(path),
        "before": "" if result["changed"] else after,
        "after": after,
    }
    return result


def empty_result() -> Dict[str, Any]:
    return {
        "changed": False,
        "msg": "",
        "verified": False,
        "sha256": None,
        "content": None,
        "md5sums": [],
        "diff": {"before": "", "after": ""},
    }


def read_file(path: str, largest: int) -> bytes:
    """Only a regular file, whatever takes its place meanwhile, and never more than it may have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ResidencyError("Cannot read %s: %s." % (path, reason)) from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ResidencyError("%s is not a regular file." % path)
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ResidencyError("%s has more than %d bytes." % (path, largest))
    return content


def read_library(path: str, architecture: Optional[str]) -> bytes:
    library = read_file(path, LARGEST_LIBRARY)
    _check_library(library, path, architecture)
    return library


def decode_library(content: str, architecture: Optional[str]) -> bytes:
    """The library as another host has read it: input, like all that a host answers."""
    try:
        library = base64.b64decode(content.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ResidencyError("The content is not Base64.") from None
    if len(library) > LARGEST_LIBRARY:
        raise ResidencyError("The content has more than %d bytes." % LARGEST_LIBRARY)
    _check_library(library, "The content", architecture)
    return library


def _check_library(library: bytes, path: str, architecture: Optional[str]) -> None:
    if len(library) < 20 or library[:4] != b"\x7fELF" or library[5] not in (1, 2):
        raise ResidencyError("%s is not a library: it is not an ELF file." % path)
    kind, machine = struct.unpack_from("<HH" if library[5] == 1 else ">HH", library, 16)
    if kind != _SHARED_OBJECT:
        raise ResidencyError("%s is not a library: it is not a shared object." % path)
    wanted = _MACHINES.get(architecture or "")
    if wanted is not None and (library[4], library[5], machine) != wanted:
        raise ResidencyError("%s is not a library for %s." % (path, architecture))


def assemble(kind: Kind, library: bytes) -> bytes:
    """The package, to the byte."""
    moment = _moment(kind)
    content = files(kind, library)
    control = _control(kind, content)
    digests = "".join("%s\n" % line for line in md5sums(content))
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar", _tar([("control", control.encode()), ("md5sums", digests.encode())], moment)),
        ("data.tar", _tar(sorted(content.items()), moment)),
    ]
    package = io.BytesIO()
    package.write(b"!<arch>\n")
    for name, data in members:
        package.write(b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name.encode(), moment, 0, 0, 0o100644, len(data)))
        package.write(data + b"\n" * (len(data) % 2))
    return package.getvalue()


def verify(kind: Kind, content: bytes, path: str) -> bytes:
    """The library in a package that is what assemble() makes of it, and of nothing else."""
    start = content.find(b"\x7fELF")  # the library is the first of its files, and what is before them is text
    try:
        size = int(content[start - 388 : start - 376].rstrip(b"\0 "), 8)  # in the header that tar has before each file
    except ValueError:
        raise ResidencyError("%s has no library." % path) from None
    library = content[start : start + size]
    _check_library(library, path, kind.architecture)
    if assemble(kind, library) != content:
        raise ResidencyError("%s is not the package that this collection assembles from the library in it." % path)
    return library


def files(kind: Kind, library: bytes) -> Dict[str, bytes]:
    """Path below / and content of all that the package installs."""
    share = "usr/share/postgresql/%s/extension/" % kind.major
    found = {
        _library_path(kind): library,
        share + "pg_residency.control": _source(kind, "pg_residency.control"),
        "usr/share/doc/%s/copyright" % kind.name: _source(kind, "debian/copyright"),
    }
    for path in glob.glob(os.path.join(glob.escape(kind.sources), "sql", "*.sql")):
        found[share + os.path.basename(path)] = _source(kind, os.path.join("sql", os.path.basename(path)))
    return found


def md5sums(content: Mapping[str, bytes]) -> List[str]:
    """As dpkg stores them: a protection against accidents, not against attackers."""
    return ["%s  %s" % (hashlib.new("md5", data, usedforsecurity=False).hexdigest(), path) for path, data in sorted(content.items())]


def write_file(path: str, content: bytes) -> None:
    """At once or not at all; the directory is the controller's user's alone when it is new."""
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".pg_residency.", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise ResidencyError("Cannot write %s: %s." % (path, error.strerror)) from error


def _library_path(kind: Kind) -> str:
    return "usr/lib/postgresql/%s/lib/%s" % (kind.major, LIBRARY)


def _source(kind: Kind, path: str) -> bytes:
    return read_file(os.path.join(kind.sources, path), LARGEST_LIBRARY)


def _moment(kind: Kind) -> int:
    """The version's own date, so that the same sources give the same package."""
    found = re.search(r"^ -- .*>  (.+)$", _source(kind, "debian/changelog").decode(), re.MULTILINE)
    moment = email.utils.parsedate_tz(found.group(1)) if found else None
    if moment is None:
        raise ResidencyError("%s/debian/changelog has no date." % kind.sources)
    return email.utils.mktime_tz(moment)


def _control(kind: Kind, content: Mapping[str, bytes]) -> str:
    """The fields of debian/control.in, without those that only debhelper could fill in.

    The library needs no other than the server's own package: it is built on a host of the same release.
    """
    text = _source(kind, "debian/control.in").decode().replace("PGVERSION", kind.major)
    source, binary = (_fields(paragraph) for paragraph in text.strip().split("\n\n"))
    fields = {
        "Package": kind.name,
        "Source": source["Source"],
        "Version": kind.version,
        "Architecture": kind.architecture,
        "Maintainer": source["Maintainer"],
        "Installed-Size": "%d" % sum((len(data) + 1023) // 1024 + 1 for data in content.values()),
        "Depends": "postgresql-%s" % kind.major,
        "Section": source["Section"],
        "Priority": source["Priority"],
        "Homepage": source["Homepage"],
        "Description": binary["Description"],
    }
    return "".join("%s: %s\n" % field for field in fields.items())


def _fields(paragraph: str) -> Dict[str, str]:
    return {name: value.strip() for name, value in re.findall(r"^([A-Za-z-]+):((?:.*)(?:\n .*)*)", paragraph, re.MULTILINE)}


def _tar(content: Sequence[Tuple[str, bytes]], moment: int) -> bytes:
    """Directories 0755, files 0644, all root's."""
    directories = {"."}
    for path, dummy in content:
        parts = path.split("/")[:-1]
        directories.update("./" + "/".join(parts[: depth + 1]) for depth in range(len(parts)))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in [(directory + "/", None) for directory in sorted(directories)] + [("./" + path, data) for path, data in content]:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.mode = 0o755 if data is None else 0o644
            member.uname = member.gname = "root"
            member.mtime = moment
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return buffer.getvalue()
