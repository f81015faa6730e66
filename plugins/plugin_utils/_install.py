# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decisions of the role cache_extension: what has to be installed, who builds it, who still needs it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from typing import Any, List, Mapping, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._variables import as_list

BUILD_POLL = 5  # seconds between two looks at a package that another host builds
WRITTEN_HERE = "# Written by the role pgfleet.cache.cache_extension\n"  # the first line of each file of a repository
_YUM_REPOSITORY, _YUM_KEY = "/etc/yum.repos.d/pgfleet.repo", "/etc/pki/rpm-gpg/RPM-GPG-KEY-pgfleet"


def databases(wanted: Any, listed: Mapping[str, Any]) -> List[str]:
    """The databases that get the extension; ``listed`` is the result of the query for all of them, which is skipped unless all are wanted."""
    if listed.get("skipped"):
        return [str(name) for name in as_list(wanted)]
    return [str(row["datname"]) for row in listed["query_result"]]


def no_control_file(folder: str, method: str, package: str) -> str:
    """Why the extension cannot be created: the server finds no control file in its ``folder``."""
    why = (
        "The package %s is for another server: set cache_extension_package to the right one." % package if method == "package"
        else "It was removed after this role had installed it: run the role again."
    )
    return "The server finds no control file: pg_residency.control is not in %s. %s" % (folder, why)


def digests(paths: Sequence[str], folder: str) -> str:
    """What sha256sum prints for these files of the extension's sources, on the controller."""
    found = []
    for path in paths:
        with open(os.path.join(folder, path), "rb") as file:
            found.append("%s  %s\n" % (hashlib.sha256(file.read()).hexdigest(), path))
    return "".join(found)


def up_to_date(owner: str, record: str, wanted: str, scripts: str, sources: str) -> bool:
    """Whether all files are those that were built of these sources, and belong to no package (``owner``).

    ``record`` is the digest of the record beside the library, which is to be ``wanted``; ``scripts`` that of what sha256sum prints for the control
    file and the scripts in their directory; ``sources`` are the ``digests``.
    """
    installed = [line.replace("  sql/", "  ") for line in sources.splitlines() if re.search("[.](control|sql)$", line)]
    return not owner and record == _digest(wanted) and scripts == _digest("".join(line + "\n" for line in installed))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def apt_source(url: str, suite: str, components: Any, key: str) -> str:
    """The content of pgfleet.sources. A suite that ends with a slash is a directory, which has no components."""
    lines = ["Types: deb", "URIs: %s" % url, "Suites: %s" % suite]
    if not suite.endswith("/"):
        lines.append("Components: %s" % " ".join(map(str, as_list(components))))
    lines += ["Signed-By:", *(" %s" % (line or ".") for line in key.strip().splitlines())]
    return WRITTEN_HERE + "".join(line + "\n" for line in lines)


def written_here(files: Sequence[Mapping[str, Any]]) -> List[str]:
    """Which of these files the role has written, from the results of slurp; one that is missing has no content."""
    # as far as the Base64 of what follows cannot differ
    begins = base64.b64encode(WRITTEN_HERE.encode()).decode()[: len(WRITTEN_HERE) // 3 * 4]
    return [str(one["source"]) for one in files if str(one.get("content") or "").startswith(begins)]


def with_key(files: Sequence[str]) -> List[str]:
    """The files of a repository, with the key that yum has in one of its own."""
    return [*files, *([_YUM_KEY] if _YUM_REPOSITORY in files else [])]


def servers(listing: str, bindir: str) -> List[str]:
    """The working directories of the running servers of one installation, each its data directory.

    ``listing`` has ``/proc/PID exe TARGET`` and ``/proc/PID cwd TARGET``, each ended by a NUL, since a path may have lines.
    """
    entries = [entry.split(" ", 2) for entry in listing.split("\0") if entry.count(" ") >= 2]
    programs = (bindir + "/postgres", bindir + "/postgres (deleted)")
    pids = {pid for pid, kind, target in entries if kind == "exe" and target in programs}
    found: List[str] = []
    for pid, kind, target in entries:
        if kind == "cwd" and pid in pids and target not in found:
            found.append(target)
    return found


def leftovers(scripts: Sequence[Mapping[str, Any]], folder: str, owned: Sequence[str], record: str) -> List[str]:
    """What a build has left beside a package: ``scripts`` that were found in ``folder``, but for those that the package has, and the ``record``.

    Of what the host has answered only the names of files are used.
    """
    paths = ["%s/%s" % (folder, str(one["path"]).rpartition("/")[2]) for one in scripts]
    return [*(path for path in paths if path not in owned), record]


def needed_by(databases: Sequence[str], folders: Sequence[str], own: str, clusters: Sequence[str]) -> List[str]:
    """Who needs the files still, as a list of phrases: ``databases`` with the extension, the servers in ``folders`` but for the ``own``, ``clusters``."""
    return (
        ["database %s" % name for name in databases]
        + ["the server in %s" % printable(folder) for folder in folders if folder != own]
        + ["the cluster %s" % name for name in clusters]
    )


def other_clusters(files: Sequence[Mapping[str, Any]], major: str, own: str) -> List[str]:
    """Debian's clusters of one major version, ``files`` being the directories below /etc/postgresql/MAJOR, except the one called ``own``.

    A server may be given any name: then one cluster too many is named, never one too few.
    """
    names = sorted("%s/%s" % (major, file["path"].rstrip("/").rsplit("/", 1)[-1]) for file in files)
    return [name for name in names if name != own]


def package_differs(package: Mapping[str, Any], installed: Sequence[str], version: str) -> bool:
    """Whether the installed Debian package is anything but the verified ``package``.

    ``installed`` are the lines of dpkg-query (state and version), of the md5sums, and of dpkg --verify. Hosts may leave out documentation.
    """
    if not package.get("verified"):
        return True
    wanted = [line for line in package.get("md5sums") or [] if " usr/share/doc/" not in line]
    return [line for line in installed if not re.search(" /?usr/share/doc/", line)] != ["installed " + version, *wanted]


def builder(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], path: str) -> str:
    """The first of ``hosts`` that misses the package at ``path``; ``variables`` are Ansible's hostvars. All hosts find the same."""
    return str(next(host for host in hosts if variables[host].get("__cache_extension_deb_missing") == path))


def build_looks(building: bool, timeout: float) -> int:
    """How often to look again for a package that another host builds: not at all if it does not, or does not any more."""
    return int(timeout) // BUILD_POLL if building else 0


def at_same_site(targets: Sequence[str], site: str) -> List[str]:
    """The repositories of the host at ``site``, except the role's own; ``targets`` as of ``apt-get indextargets``."""
    pattern = re.compile("://([^/@]*@)?%s[:/]" % re.escape(site))
    found: List[str] = []
    for target in targets:
        if pattern.search(target) and not target.startswith("/etc/apt/sources.list.d/pgfleet.sources:") and target not in found:
            found.append(target)
    return found


def library_changed(owner: str, before: str, after: str, recorded: bool, built: bool) -> bool:
    """Whether the installed library is another file than before.

    ``owner`` is the package that it came from; ``before`` and ``after`` are digests, which tell if it was ``built``; else ``recorded`` says whether
    the record beside it has its sources.
    """
    return bool(owner) or (before != after if built else not recorded)


def restart(preload: bool, required: bool, preloaded: str) -> str:
    """``needed``, ``none`` or ``done``: of the restart of a server that has loaded, or is to load, what was replaced (``required``).

    ``preloaded`` names the settings that preload the library.
    """
    if not preload:
        return "needed" if required else "none"
    return "done" if required or "shared_preload_libraries" not in preloaded else "none"
