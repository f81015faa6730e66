# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do as the cluster's operating system user what does not need root.

A module that runs as root forks. The child becomes the owner of the data directory for good and does the whole work:
it counts, evicts, logs in, reads names and runs pg_ctl. The parent stays root and performs a few acts that the child
asks for by name, such as a systemctl stop of the unit that the parent itself has verified. Child and parent exchange
JSON only, because unpickling what a process of the owner has written would be code of the owner's that runs as root.

The child gets no environment of root's but libpq's (PGPASSWORD and the like), which pg_ctl does not get, no descriptor but
the data directory's and the connection to its parent, no supplementary group and no terminal. The kernel makes it
undumpable when it changes its user, so that no other process of that user can trace it. It does not set no_new_privs:
the postmaster that it starts would inherit that, and an archive_command that uses sudo would stop working.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import time
import traceback
from contextlib import suppress
from typing import Any, Callable, Collection, Dict, Mapping

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LARGEST_MESSAGE = 1 << 28  # bytes
LONGEST_SILENCE = 3600.0  # seconds: the slowest eviction, restart or start takes less between two messages

Act = Callable[..., Any]
Ask = Callable[..., Any]  # the name of an act and its arguments


def run_as(owner: pwd.struct_passwd, keep: Collection[int], work: Callable[[Ask], Any], acts: Mapping[str, Act]) -> Any:
    """Return what ``work`` returns, which JSON must be able to represent. ``keep`` are descriptors that it uses.

    Another process of the user can stop the child, so root does not wait for it without end.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            _work(theirs, owner, [theirs.fileno(), *keep], work)
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(LONGEST_SILENCE)
    try:
        with ours:
            return _serve(ours, owner, acts)
    except socket.timeout:
        os.kill(child, signal.SIGKILL)
        raise ResidencyError(
            "The process that worked as %s (%d) has sent nothing for %d seconds, and was killed: check whether that user has stopped it, and the"
            " state of the cluster." % (owner.pw_name, child, LONGEST_SILENCE)
        ) from None
    finally:
        _reap(child)


def _reap(child: int) -> None:
    """Wait for the child, which may still have to start a server again after an act that failed."""
    end = time.monotonic() + LONGEST_SILENCE
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def become(owner: pwd.struct_passwd, keep: Collection[int]) -> None:
    """Give up root for good."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()  # without a controlling terminal, nothing can be typed into root's
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):  # one was the listing's own
                os.close(int(name))
    os.chdir("/")
    os.umask(0o077)
    # libpq's own, such as PGPASSWORD, are for the login
    environment = dict(clean_environment(), **{name: value for name, value in os.environ.items() if name.startswith("PG")})
    os.environ.clear()
    os.environ.update(environment, HOME=owner.pw_dir, USER=owner.pw_name, LOGNAME=owner.pw_name)
    os.initgroups(owner.pw_name, owner.pw_gid)
    os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid)
    os.setresuid(owner.pw_uid, owner.pw_uid, owner.pw_uid)
    if 0 in os.getresuid():
        raise ResidencyError("User %s is root: PostgreSQL does not run as root." % owner.pw_name)


def clean_environment() -> Dict[str, str]:
    """Only what a program needs to run and to choose its language."""
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TZ") or name.startswith("LC_")}
    return dict(kept, PATH=PATH)


def _work(connection: socket.socket, owner: pwd.struct_passwd, keep: Collection[int], work: Callable[[Ask], Any]) -> None:
    stream = connection.makefile("rw", encoding="utf-8", newline="\n")

    def send(message: Dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    def ask(name: str, *arguments: Any) -> Any:
        send({"act": name, "arguments": arguments})
        answer = json.loads(stream.readline() or '{"error": "The module has ended."}')
        if "error" in answer:
            raise ResidencyError(answer["error"])
        return answer["answer"]

    try:
        become(owner, keep)
        send({"result": work(ask)})
    except ResidencyError as error:
        send({"error": str(error), "result": error.result, "kind": type(error).__name__})
    except BaseException:  # pylint: disable=broad-except
        send({"traceback": traceback.format_exc()})


def _serve(connection: socket.socket, owner: pwd.struct_passwd, acts: Mapping[str, Act]) -> Any:
    stream = connection.makefile("rw", encoding="utf-8", newline="\n")
    while True:
        line = stream.readline(LARGEST_MESSAGE)
        if not line.endswith("\n"):
            raise ResidencyError("The process that worked as %s was ended before it had a result." % owner.pw_name)
        message = json.loads(line)
        if "traceback" in message:
            raise RuntimeError(message["traceback"])
        if "error" in message:
            kind = next((one for one in _kinds() if one.__name__ == message["kind"]), ResidencyError)
            raise kind(message["error"], message["result"])
        if "act" not in message:
            return message["result"]
        try:
            answer = {"answer": acts[message["act"]](*message["arguments"])}
        except ResidencyError as error:
            answer = {"error": str(error)}
        stream.write(json.dumps(answer) + "\n")
        stream.flush()


def _kinds() -> Collection[Any]:
    return ResidencyError.__subclasses__()
