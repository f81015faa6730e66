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
import ssl
import stat
import subprocess
from contextlib import suppress
from typing import Any, Dict, List, Mapping

from ansible.module_utils.common.text.formatters import bytes_to_human
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


def check(session: Session, host: str, answer: Mapping[str, Any], reboots: bool) -> None:
    """Raise ResidencyError with file, line and remedy if PostgreSQL would not start again. ``answer`` is _restart_info's.

    A host that ``reboots`` has its huge pages anew, as the kernel's command line and sysctl.d say.
    """
    files = Files(answer, session.only_row("SELECT pg_catalog.current_setting('config_file') AS path")["path"])
    for lead, checks in (
            ("PostgreSQL on %s would not start again: ", (_settings, _rules, _certificates, _libraries, _lower_than_the_primary, _together, _huge_pages)),
            ("After a restart of PostgreSQL on %s, ", (_role, _port, _maps))):
        for wrong in checks:
            why = "" if reboots and wrong is _huge_pages else wrong(session, files, answer)
            if why:
                raise ResidencyError(lead % host + why)


class Files:
    """The settings of the next start."""

    def __init__(self, answer: Mapping[str, Any], config_file: str) -> None:
        self.data_directory = data_directory = answer["data_directory"]
        self._environment = dict(os.environ, LC_ALL="C")
        # PGPORT, for one, is the default of a setting. Where /proc hides the environment of other processes, the setting itself decides.
        with suppress(OSError), open("/proc/%d/environ" % answer["pid"], encoding="utf-8", errors="surrogateescape") as file:
            given = [word.partition("=") for word in file.read().split("\0")]
            self._environment.update((name, value) for name, dummy, value in given if name.startswith(("PG", "LD_")))
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
                encoding="utf-8", errors="replace", env=self._environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ResidencyError("%s cannot be run: %s." % (printable(command[0], _MOST), printable(error, _MOST))) from None

    def setting(self, name: str) -> str:
        """The value of a setting after the next start, in its base unit where it has one."""
        done = self.call(os.path.basename(self._program), *self._arguments, "-C", name)
        if done.returncode:
            raise ResidencyError(done.stderr)
        return done.stdout.strip()

    def number(self, name: str) -> int:
        return int(self.setting(name))


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


def _rules(session: Session, files: Files, answer: Mapping[str, Any]) -> str:
    path = files.setting("hba_file")
    if not os.access(path, os.R_OK):
        return "hba_file is %s, which cannot be read. Restore the file, or correct the setting." % printable(path, _MOST)
    if path != session.only_row("SELECT pg_catalog.current_setting('hba_file') AS path")["path"]:
        return ""  # the view has the rules of the file that is left
    return _fault(session, "pg_hba_file_rules", "hba_file", answer)


def _maps(session: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """With a fault in pg_ident.conf the server starts, but without any map; without the file, too, and its view is an error."""
    if not os.access(files.setting("ident_file"), os.R_OK):
        return ""
    fault = _fault(session, "pg_ident_file_mappings", "ident_file", answer)
    return "nobody could log in by the maps of its users: " + fault if fault else ""


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
    certificate, key = (os.path.join(files.data_directory, files.setting(name)) for name in ("ssl_cert_file", "ssl_key_file"))
    try:
        if not files.setting("ssl_passphrase_command"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_ciphers("ALL:@SECLEVEL=0")  # Python's own level may be stricter than the server's
            context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        return "%s and %s are no certificate with its key: %s. Correct ssl_cert_file and ssl_key_file, or set ssl to off." % (
            printable(certificate, _MOST), printable(key, _MOST), printable(error, _MOST))
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


def _together(session: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """Settings that only a start compares, with each other (PostmasterMain()) and with what it finds (StartupReplicationSlots(), twophase.c)."""
    there = session.only_row("""
        SELECT (SELECT count(*) FROM pg_catalog.pg_prepared_xacts) AS prepared, count(*) AS slots,
               count(*) FILTER (WHERE slot_type = 'logical') AS logical FROM pg_catalog.pg_replication_slots WHERE NOT temporary""")
    for name, count, what, remedy in (
            ("max_prepared_transactions", int(there["prepared"]), "prepared transactions", "COMMIT or ROLLBACK PREPARED them"),
            ("max_replication_slots", int(there["slots"]), "replication slots", "drop those that nobody needs")):
        if count > files.number(name):
            return "%s would be %d, and there are %d %s: %s, or raise it." % (name, files.number(name), count, what, remedy)
    level = files.setting("wal_level")
    needs = {
        "there are replication slots": level == "minimal" and int(there["slots"]),
        "max_wal_senders is not 0": level == "minimal" and files.number("max_wal_senders"),
        "archive_mode is not off": level == "minimal" and files.setting("archive_mode") != "off",
        "summarize_wal is on": level == "minimal" and answer["version_num"] >= 170000 and files.setting("summarize_wal") == "on",
        "there are logical replication slots": level == "replica" and answer["version_num"] < 190000 and int(there["logical"]),
    }
    for why, needed in needs.items():
        if needed:
            return "wal_level would be %s, but %s: raise it, or change that first." % (level, why)
    reserved = ["superuser_reserved_connections", *(["reserved_connections"] if answer["version_num"] >= 160000 else [])]
    if sum(map(files.number, reserved)) >= files.number("max_connections"):
        return "%s would leave none of max_connections (%d): lower the one, or raise the other." % (" and ".join(reserved), files.number("max_connections"))
    return ""


def _huge_pages(session: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """What the running server has of them is free for the next one. Counts what it needs from shared_buffers, the only large part that changes."""
    if files.setting("huge_pages") != "on":
        return ""
    now = session.only_row("""
        SELECT sum(setting::bigint) FILTER (WHERE name = 'shared_memory_size') * 1048576 AS bytes,
               sum(setting::bigint) FILTER (WHERE name = 'shared_buffers') * current_setting('block_size')::bigint AS buffers,
               current_setting('block_size')::bigint AS block FROM pg_catalog.pg_settings WHERE name IN ('shared_memory_size', 'shared_buffers')""")
    needed = int(now["bytes"]) - int(now["buffers"]) + files.number("shared_buffers") * int(now["block"])
    size = files.number("huge_page_size") * 1024 or _default_huge_page()
    try:
        with open("/proc/%d/maps" % answer["pid"], encoding="utf-8", errors="replace") as file:
            ends = [line.split()[0].split("-") for line in file if "/anon_hugepage" in line or "/SYSV" in line]
    except OSError:  # of a server with more capabilities than this process
        return ""
    free = sum(int(end, 16) - int(begin, 16) for begin, end in ends)
    for name, sign in (("free_hugepages", 1), ("resv_hugepages", -1), ("nr_overcommit_hugepages", 1), ("surplus_hugepages", -1)):
        # a size that the kernel does not know has no directory, and no pages
        with suppress(OSError), open("/sys/kernel/mm/hugepages/hugepages-%dkB/%s" % (size // 1024, name), encoding="ascii") as file:
            free += sign * size * int(file.read())
    if needed <= free:
        return ""
    return "huge_pages is on and about %s are needed, but the host has huge pages (%s) for %s: raise vm.nr_hugepages, or set huge_pages to try." % (
        bytes_to_human(needed), bytes_to_human(size), bytes_to_human(free))


def _default_huge_page() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Hugepagesize:")), 2 << 20)


def _role(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    signals = [name for name in ("standby.signal", "recovery.signal") if os.path.exists(os.path.join(files.data_directory, name))]
    if answer["in_recovery"] and "standby.signal" not in signals:
        return "it would be a second primary: there is no standby.signal in %s. Create the file, empty." % printable(files.data_directory, _MOST)
    if not answer["in_recovery"] and signals:
        return "it would be no primary any more: there is %s in %s. Remove the file." % (" and ".join(signals), printable(files.data_directory, _MOST))
    return ""


def _port(session: Session, files: Files, dummy: Any) -> str:
    now = int(session.only_row("SELECT pg_catalog.current_setting('port') AS port")["port"])
    if files.number("port") == now:
        return ""
    return ("it would be at port %d, and is at %d: neither its clients nor this rolling restart would find it. Change the port by hand, with"
            " pgfleet_login_port." % (files.number("port"), now))
