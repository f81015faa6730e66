# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decisions of the role cache_extension: what has to be installed, who builds it, who still needs it."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Sequence

from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

BUILD_POLL = 5  # seconds between two looks at a package that another host builds


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
