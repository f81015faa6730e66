# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The process at the other end of a Unix socket, by the kernel's word, and whether root meant to reach it.

The operating system user of a cluster owns the directory of its socket, and can put a link there to the socket of another
user's cluster. Root, which may log in to that one too, would restart, empty or change it. The kernel knows the path that a
listening socket was bound to, whatever link a client has taken to it.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
from typing import NamedTuple, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError


class Peer(NamedTuple):
    """The process that listens, as it was when it began to: its number may be another process's by now, its user is not."""

    pid: int
    uid: int
    bound: str  # to this path


def of(descriptor: int) -> Optional[Peer]:
    """None where the connection is no Unix socket."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family != socket.AF_UNIX:
            return None
        pid, uid, dummy = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return Peer(pid, uid, os.fsdecode(connection.getpeername()))


def require_meant(descriptor: int, directory: str, port: int) -> None:
    """Raise an error unless the server's own socket is in this directory, or the directory's owner runs the server. Root calls it."""
    peer = of(descriptor)
    if peer is None or not directory.startswith("/"):
        return  # TCP, or an abstract name, to which there are no links
    try:
        asked, dummy = _data_directory.walk(directory)
    except OSError as error:
        raise ResidencyError("Cannot open %s, which has the server's socket: %s." % (directory, error.strerror)) from None
    status = os.fstat(asked)
    os.close(asked)
    # of a directory of root's it is asked where the server has bound its socket: below one of the owner's it can be another by now
    if status.st_uid == peer.uid and not status.st_mode & stat.S_IWOTH:
        return
    if os.path.basename(peer.bound) == ".s.PGSQL.%d" % port and _is(os.path.dirname(peer.bound), status):
        return
    raise ResidencyError(
        "In %s, the socket of port %d leads to a server of user %s, whose own socket is %s: root does not log in there. Correct"
        " login_unix_socket and login_port, or become the cluster's operating system user." % (directory, port, name_of(peer.uid), peer.bound)
    )


def name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is(directory: str, status: os.stat_result) -> bool:
    try:
        descriptor, dummy = _data_directory.walk(directory)
    except (OSError, ResidencyError):  # in another container, or by a link that root does not follow
        return False
    try:
        return os.path.samestat(os.fstat(descriptor), status)
    finally:
        os.close(descriptor)
