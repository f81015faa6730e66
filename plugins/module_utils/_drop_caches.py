# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drop the page cache of a whole host, and find what would suffer from it."""

from __future__ import annotations

import os
from typing import List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _proc, _processes
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

PATH = "/proc/sys/vm/drop_caches"
ALL_CONTAINERS = "This host is a container: the page cache belongs to the physical host and all its containers."


def require_root() -> None:
    """Raise an error unless this is root and the file can be written. Opening it drops nothing."""
    if os.geteuid() != 0:
        raise ResidencyError("scope host requires root, who alone may write to %s: become root." % PATH)
    try:
        os.close(os.open(PATH, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        remedy = " It is a container's: run it on the machine itself." if in_container() else ""
        raise ResidencyError("Cannot write to %s: %s.%s" % (PATH, error.strerror, remedy)) from None


def refuse(own: Optional[int]) -> None:
    """Raise an error if other clusters or clients would be slowed down. ``own`` is the postmaster that may run: a path may be a container's own."""
    clusters = _processes.clusters()
    others = [cluster.data_directory for cluster in clusters if cluster.postmaster.pid != own]
    if others:
        raise ResidencyError(
            "PostgreSQL runs in %s, and its files would be dropped from the page cache too: stop it, or set force.%s"
            % (" and in ".join(others), _and_containers())
        )
    clients = [client for cluster in clusters for client in cluster.clients]
    if clients:
        raise ResidencyError(
            "%d client%s connected to PostgreSQL here (%s): disconnect them, or set force.%s"
            % (len(clients), " is" if len(clients) == 1 else "s are", _named(clients), _and_containers())
        )


def drop(level: int) -> None:
    """sync first: dirty pages are not dropped. Unlike fsync, sync hides no write error from other processes."""
    os.sync()
    try:
        with open(PATH, "w", encoding="ascii") as file:
            file.write("%d\n" % level)
    except OSError as error:
        raise ResidencyError("Cannot write to %s: %s." % (PATH, error.strerror)) from None


def cached_bytes() -> int:
    """Bytes of files in the host's page cache."""
    return _proc.meminfo("Cached") + _proc.meminfo("Buffers") - _proc.meminfo("Shmem")


def in_container() -> bool:
    if any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        return True
    try:
        with open("/proc/1/environ", "rb") as file:
            return any(entry.startswith(b"container=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


def _and_containers() -> str:
    return " " + ALL_CONTAINERS if in_container() else ""


def _named(clients: List[_processes.Process]) -> str:
    shown = [client.title.partition(": ")[2] for client in clients[:3]]
    return "; ".join(shown + ["..."] * (len(clients) > 3))
