# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether PostgreSQL will start again with its files as they are now. Nothing is changed; runs as the owner of the data directory.

``postgres -C`` reads the configuration as a start does, with the options of the running server (postmaster.opts), and prints one setting: the
value after a restart. pg_file_settings alone does not tell: it has "setting could not be applied" for each valid change that needs a restart, too.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from typing import Any, Dict, List, Mapping

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

TIMEOUT = 30  # seconds for one setting, which takes 10 ms
# of a standby, what must not be less than in pg_control, where replay puts the primary's; with the names that pg_controldata has for them
_NOT_LESS = {
    "max_connections": "max_connections", "max_worker_processes": "max_worker_processes", "max_wal_senders": "max_wal_senders",
    "max_prepared_transactions": "max_prepared_xacts", "max_locks_per_transaction": "max_locks_per_xact",
}
_PREFIX = re.compile(r"\S+ \S+ \S+ \[\d+\] \S+?: +")  # of the server's log lines before the configuration is read
_MOST = 300  # characters of a text of the server's


def check(session: Session, host: str, answer: Mapping[str, Any]) -> None:
    """Raise ResidencyError with file, line and remedy if PostgreSQL would not start again. ``answer`` is _restart_info's."""
    files = Files(answer["data_directory"], session.only_row("SELECT pg_catalog.current_setting('config_file') AS path")["path"])
    for wrong in (_settings, _rules, _certificates, _libraries, _lower_than_the_primary):
        why = wrong(session, files, answer)
        if why:
            raise ResidencyError("PostgreSQL on %s would not start again: %s" % (host, why))
    maps = _maps(session, answer)
    if maps:
        raise ResidencyError("After a restart of PostgreSQL on %s, nobody could log in by the maps of its users: %s" % (host, maps))


class Files:
    """The settings of the next start."""

    def __init__(self, data_directory: str, config_file: str) -> None:
        self.data_directory = data_directory
        path = os.path.join(data_directory, "postmaster.opts")
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                self._program, *words = shlex.split(file.read(1 << 16))
        except (OSError, ValueError) as error:
            raise ResidencyError("%s, which has PostgreSQL's start command, cannot be read: %s." % (printable(path, _MOST), printable(error, _MOST))) from None
        if "-D" in words:
            at = words.index("-D")
            del words[at : at + 2]
        if not any("config_file=" in word for word in words):  # -D may name the directory of the configuration, or PGDATA
            words += ["-c", "config_file=" + config_file]
        self._arguments = ["-D", data_directory, *words]

    def call(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the server's own version."""
        command = [os.path.join(os.path.dirname(self._program), program), *arguments]
        try:
            # an engine has no AnsibleModule, whose run_command() is meant, and which knows no timeout
            return subprocess.run(  # pylint: disable=ansible-bad-function
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT, cwd="/", check=False,
                encoding="utf-8", errors="replace", env=dict(os.environ, LC_ALL="C"))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ResidencyError("%s cannot be run: %s." % (printable(command[0], _MOST), printable(error, _MOST))) from None

    def setting(self, name: str) -> str:
        """The value of a setting after the next start, in its base unit where it has one."""
        done = self.call(os.path.basename(self._program), *self._arguments, "-C", name)
        if done.returncode:
            raise ResidencyError(done.stderr)
        return done.stdout.strip()


def _settings(session: Session, files: Files, dummy: Any) -> str:
    try:
        files.setting("data_directory")
        return ""
    except ResidencyError as error:
        lines = [_PREFIX.sub("", line) for line in str(error).splitlines() if _PREFIX.match(line)]
        said = printable(lines[0] if lines else str(error).strip(), _MOST)
    named = re.search(r'parameter "([^"]+)"', said)
    where = session.rows(
        "SELECT sourcefile || ' line ' || sourceline AS place FROM pg_catalog.pg_file_settings WHERE error IS NOT NULL AND lower(name) = lower(%s)"
        " ORDER BY seqno DESC LIMIT 1", (named.group(1) if named else "",))
    place = " (%s)" % printable(where[0]["place"], _MOST) if where and " line " not in said else ""
    return "%s%s. Correct it first." % (said, place)


def _rules(session: Session, dummy: Files, answer: Mapping[str, Any]) -> str:
    return _fault(session, "pg_hba_file_rules", "hba_file", answer)


def _maps(session: Session, answer: Mapping[str, Any]) -> str:
    """With a fault in pg_ident.conf the server starts, but without any map."""
    return _fault(session, "pg_ident_file_mappings", "ident_file", answer) if answer["version_num"] >= 150000 else ""


def _fault(session: Session, view: str, setting: str, answer: Mapping[str, Any]) -> str:
    file = "file_name" if answer["version_num"] >= 160000 else "pg_catalog.current_setting('%s')" % setting
    # a line that is only never used, such as hostssl without ssl, has an error too, but also a type
    unread = "type IS NULL" if view == "pg_hba_file_rules" else "map_name IS NULL"
    for row in session.rows(
            "SELECT %s || ' line ' || line_number AS place, error FROM pg_catalog.%s WHERE error IS NOT NULL AND %s ORDER BY line_number LIMIT 1"
            % (file, view, unread), None):
        return "%s: %s. Correct it first." % (printable(row["place"], _MOST), printable(row["error"], _MOST))
    return ""


def _certificates(dummy: Session, files: Files, dummy2: Any) -> str:
    if files.setting("ssl") != "on":
        return ""
    for name in ("ssl_cert_file", "ssl_key_file", "ssl_ca_file", "ssl_crl_file"):
        value = files.setting(name)
        path = os.path.join(files.data_directory, value)
        try:
            if value:
                with open(path, "rb") as file:
                    found = os.fstat(file.fileno())
        except OSError as error:
            return "%s is %s, which cannot be read: %s. Restore the file, or set ssl to off." % (name, printable(path, _MOST), error.strerror)
        # be-secure-common.c, check_ssl_key_file_permissions()
        others = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if value and found.st_uid == 0 else stat.S_IRWXG)
        if name == "ssl_key_file" and value and found.st_mode & others:
            return "others than its owner have access to %s (ssl_key_file), which the server refuses: run chmod 0600 on it." % printable(path, _MOST)
    return ""


def _libraries(session: Session, files: Files, dummy: Any) -> str:
    libdir = session.only_row("SELECT setting FROM pg_catalog.pg_config WHERE name = 'PKGLIBDIR'")["setting"]
    folders = files.setting("dynamic_library_path").replace("$libdir", libdir).split(":")
    for library in (word.strip().strip('"') for word in files.setting("shared_preload_libraries").split(",")):
        path = library.replace("$libdir", libdir)
        places = [path] if "/" in path else [os.path.join(folder, path) for folder in folders]
        if library and not any(os.path.exists(place + end) for place in places for end in ("", ".so")):
            return "shared_preload_libraries has %s, and there is no %s: install its package, or remove it from the setting." % (
                printable(library, _MOST), printable(places[0] + ".so", _MOST))
    return ""


def _lower_than_the_primary(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    if not answer["in_recovery"] or files.setting("hot_standby") != "on":
        return ""
    control = files.call("pg_controldata", files.data_directory)
    if control.returncode:
        raise ResidencyError("pg_controldata failed: %s" % printable(control.stderr.strip(), _MOST))
    replayed: Dict[str, int] = {name: int(value) for name, value in re.findall(r"^(\w+) setting: +(\d+)$", control.stdout, re.MULTILINE)}
    less: List[str] = []
    for name, known in _NOT_LESS.items():
        value = int(files.setting(name))
        if value < replayed.get(known, 0):
            less.append("%s would be %d, and is %d on its primary" % (name, value, replayed[known]))
    if not less:
        return ""
    return "%s. A standby with less does not start: raise it here, or restart the primary with its new value first (--limit)." % "; ".join(less)
