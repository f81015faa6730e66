# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether PostgreSQL will start again with its files as they are now. Nothing is changed; runs as the owner of the data directory.

``postgres -C`` reads the configuration as a start does, with the options of the running server (postmaster.opts), and prints one setting: the
value after a restart. pg_file_settings alone does not tell: it has "setting could not be applied" for each valid change that needs a restart, too.
A setting that the server computes at its start (GUC_RUNTIME_COMPUTED) makes it go further: PostmasterMain() then checks the data directory and
settings against each other, loads the libraries to preload and the certificates, and ends before it takes memory, opens a socket or starts a
process. For that it must not find its own lock, so _trial() gives it a directory with copies of three small files. What comes after that point is
asked of the host: memory, addresses, sockets, the log's directory.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import shlex
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
from contextlib import suppress
from typing import Any, Dict, List, Mapping, Set, Tuple

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
_OF_SSL = ("ssl_cert_file", "ssl_key_file", "ssl_ca_file", "ssl_crl_file", "ssl_crl_dir", "ssl_dh_params_file")
_SOCKET_PATH = 107  # bytes, UNIXSOCK_PATH_BUFLEN less its end


def check(session: Session, host: str, answer: Mapping[str, Any], reboots: bool) -> None:
    """Raise ResidencyError with file, line and remedy if PostgreSQL would not start again. ``answer`` is _restart_info's.

    A host that ``reboots`` has its huge pages anew, as the kernel's command line and sysctl.d say.
    """
    files = Files(answer, session.only_row("SELECT pg_catalog.current_setting('config_file') AS path")["path"])
    for lead, checks in (
            ("PostgreSQL on %s would not start again: ", (
                _settings, _rules, _lower_than_the_primary, _together, _trial, _huge_pages, _memory, _addresses, _sockets, _leftovers, _io_uring)),
            ("After a restart of PostgreSQL on %s, ", (_role, _port, _reached, _maps))):
        for wrong in checks:
            why = "" if reboots and wrong is _huge_pages else wrong(session, files, answer)
            if why:
                raise ResidencyError(lead % host + why)


class Files:
    """The settings of the next start."""

    def __init__(self, answer: Mapping[str, Any], config_file: str) -> None:
        self.data_directory = data_directory = answer["data_directory"]
        self.memory = 0  # bytes of shared memory, once _trial() has found out
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
        self._settings: Dict[str, str] = {}

    def trial(self, name: str) -> "subprocess.CompletedProcess[str]":
        """A start that ends when it has computed this setting."""
        with tempfile.TemporaryDirectory(prefix="pgfleet.") as folder:  # with mode 0700, which the server wants
            os.mkdir(os.path.join(folder, "global"), 0o700)
            for file in ("PG_VERSION", "global/pg_control", "postgresql.auto.conf"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(os.path.join(self.data_directory, file), os.path.join(folder, file))
            here = ["-c", "data_directory=" + folder]
            for one in _OF_SSL if self.setting("ssl") == "on" else ():
                if self.setting(one):  # in the data directory, if it is relative
                    here += ["-c", "%s=%s" % (one, os.path.join(self.data_directory, self.setting(one)))]
            english = ["-c", "lc_messages=C", "-c", "log_line_prefix=", "-c", "log_destination=stderr"]
            return self.call(os.path.basename(self._program), *self._arguments, *here, *english, "-C", name)

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
        if name not in self._settings:
            done = self.call(os.path.basename(self._program), *self._arguments, "-C", name)
            if done.returncode:
                raise ResidencyError(done.stderr)
            self._settings[name] = done.stdout.strip()
        return self._settings[name]

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
    now = session.only_row("SELECT pg_catalog.current_setting('hba_file') AS path")["path"]
    if path != now:  # the view has the rules of the present file, and a fault in the other one is FATAL (PostmasterMain())
        return "hba_file would be %s, and is %s: nothing can tell before the start whether the rules there have a fault. Move them into the present" \
            " file, or restart this server by hand." % (printable(path, _MOST), printable(now, _MOST))
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
    return "%s. A standby with less does not start: raise it here, or restart the primary with its new value first (cache_restart_only)." % "; ".join(less)


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
        "there are logical replication slots": level == "replica" and answer["version_num"] < 190000 and int(there["logical"]),
    }
    for why, needed in needs.items():
        if needed:
            return "wal_level would be %s, but %s: raise it, or change that first." % (level, why)
    return ""


def _trial(dummy: Session, files: Files, dummy2: Any) -> str:
    """Of 15 and newer. What the server says is in its own words, with file names."""
    done = files.trial("shared_memory_size")
    if not done.returncode:
        files.memory = int(done.stdout.split()[-1]) << 20
        return ""
    said = re.findall(r"^(?:FATAL|PANIC|ERROR|DETAIL|HINT): +(.*)", done.stderr, re.MULTILINE) or [
        done.stderr.strip().rpartition("postgres: ")[2] or "status %d" % done.returncode]
    return "%s. Correct it first." % printable("; ".join(one.strip().rstrip(".") for one in said), _MOST)


def _huge_pages(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """What the running server has of them is free for the next one."""
    if files.setting("huge_pages") != "on":
        return ""
    size = files.number("huge_page_size") * 1024 or _default_huge_page()
    try:
        free = _mapped(answer["pid"], ("/anon_hugepage", "/SYSV"))
    except OSError:  # of a server with more capabilities than this process
        return ""
    for name, sign in (("free_hugepages", 1), ("resv_hugepages", -1), ("nr_overcommit_hugepages", 1), ("surplus_hugepages", -1)):
        # a size that the kernel does not know has no directory, and no pages
        with suppress(OSError), open("/sys/kernel/mm/hugepages/hugepages-%dkB/%s" % (size // 1024, name), encoding="ascii") as file:
            free += sign * size * int(file.read())
    if files.memory <= free:
        return ""
    return "huge_pages is on and %s are needed, but the host has huge pages (%s) for %s: raise vm.nr_hugepages, or set huge_pages to try." % (
        bytes_to_human(files.memory), bytes_to_human(size), bytes_to_human(free))


def _mapped(pid: int, names: Tuple[str, ...]) -> int:
    """Bytes that a process has mapped of objects with these names."""
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as file:
        ends = [line.split()[0].split("-") for line in file if any(name in line for name in names)]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ends)


def _memory(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """Map as much as CreateAnonymousSegment() would, without touching it. Where the kernel counts all that is mapped, the running server's ends first."""
    needed = files.memory
    if files.setting("shared_memory_type") != "mmap" or files.setting("huge_pages") == "on":
        return ""
    with suppress(OSError), open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
        if file.read().strip() == "2":
            needed -= _mapped(answer["pid"], ("/dev/zero",))
    try:
        if needed > 0:
            mmap.mmap(-1, needed).close()
        return ""
    except (OSError, OverflowError, ValueError) as error:
        return "it needs %s of shared memory, which this host does not give (%s): lower shared_buffers." % (
            bytes_to_human(files.memory), getattr(error, "strerror", None) or error)


def _addresses(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """The server starts if it can listen at one of them (PostmasterMain(), StreamServerPort()). Where it listens now is free by then."""
    given, others = _list(files.setting("listen_addresses")), _others(files.number("port"), answer["pid"])
    wrong = {}
    for one in given:
        try:
            _bind("" if one == "*" else one, others)
        except (OSError, UnicodeError) as error:
            wrong[one] = getattr(error, "strerror", None) or str(error)
    if not given or len(wrong) < len(given):
        return ""
    return "it cannot listen at %s: correct listen_addresses, or give the host this address." % printable(
        ", ".join("%s (%s)" % one for one in wrong.items()), _MOST)


def _bind(address: str, others: Set[str]) -> None:
    """Fail unless the host has the address, and nobody else listens there."""
    family, kind, protocol, dummy, where = socket.getaddrinfo(address or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, kind, protocol) as one:
        one.bind(where)
    if where[0] in others or others & _ANY or (others and where[0] in _ANY):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


_ANY = {"0.0.0.0", "::"}


def _others(port: int, pid: int) -> Set[str]:
    """The addresses at which others than this process listen at a port (proc_net_tcp.rst); empty if it is unknown which sockets are its own."""
    own = _sockets_of(pid)
    found: Set[str] = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError), open("/proc/net/" + name, encoding="ascii") as file:
            for line in list(file)[1:]:
                dummy, local, dummy, state, *fields = line.split()
                address, dummy, number = local.partition(":")
                if state == "0A" and int(number, 16) == port and fields[5] not in own:
                    words = [struct.pack("=I", int(address[at:at + 8], 16)) for at in range(0, len(address), 8)]
                    found.add(socket.inet_ntop(family, b"".join(words)))
    return found if own else set()


def _sockets_of(pid: int) -> Set[str]:
    found = set()
    with suppress(OSError):
        for name in os.listdir("/proc/%d/fd" % pid):
            with suppress(OSError):
                found.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink("/proc/%d/fd/%s" % (pid, name))))
    return found


def _sockets(dummy: Session, files: Files, dummy2: Any) -> str:
    """As with the addresses, one is enough; one that cannot be used is a warning in the log (StreamServerPort(), Lock_AF_UNIX())."""
    given, wrong = [one for one in _list(files.setting("unix_socket_directories")) if not one.startswith("@")], {}
    for one in given:
        path = os.path.join(one, ".s.PGSQL.%d" % files.number("port"))
        if len(os.fsencode(path)) > _SOCKET_PATH:
            wrong[one] = "%s is longer than %d bytes" % (path, _SOCKET_PATH)
        elif not os.access(one, os.W_OK | os.X_OK):
            wrong[one] = "it cannot be written" if os.path.isdir(one) else "there is no such directory"
    if not given or len(wrong) < len(given):
        return ""
    return "it cannot make its socket in %s: create the directory for its user, or correct unix_socket_directories." % printable(
        ", ".join("%s (%s)" % one for one in wrong.items()), _MOST)


def _leftovers(dummy: Session, files: Files, dummy2: Any) -> str:
    """Files that only a start looks at (readRecoverySignalFile(), read_backup_label()), and where it writes first."""
    for name, why in (("recovery.conf", "which PostgreSQL no longer accepts"), ("backup_label", "from which it would recover")):
        if os.path.exists(os.path.join(files.data_directory, name)):
            return "there is %s in %s, %s: remove the file." % (name, printable(files.data_directory, _MOST), why)
    mode = os.stat(files.data_directory).st_mode
    if mode & (stat.S_IWGRP | stat.S_IRWXO):  # checkDataDir()
        return "others than its owner have access to %s, which the server refuses: run chmod 0700 on it (or 0750)." % printable(files.data_directory, _MOST)
    places = [files.data_directory]
    if files.setting("logging_collector") == "on":
        logs = os.path.join(files.data_directory, files.setting("log_directory"))
        places.append(logs if os.path.exists(logs) else os.path.dirname(logs))  # it makes the last directory
    if files.setting("dynamic_shared_memory_type") == "posix":
        places.append("/dev/shm")
    for place in places:
        if not os.access(place, os.W_OK | os.X_OK):
            return "it cannot write to %s: create the directory, and give its user the right to write there." % printable(place, _MOST)
    return ""


def _io_uring(dummy: Session, files: Files, answer: Mapping[str, Any]) -> str:
    if answer["version_num"] < 180000 or files.setting("io_method") != "io_uring":
        return ""
    with suppress(OSError), open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as file:
        if file.read().strip() != "0":
            return "io_method is io_uring, which kernel.io_uring_disabled forbids on this host: set it to 0, or io_method to worker."
    return ""


def _reached(session: Session, files: Files, answer: Mapping[str, Any]) -> str:
    """It would run, and those who look for it where it is now would not find it."""
    if answer["in_recovery"] and files.setting("hot_standby") != "on":
        return "it would accept no connections: hot_standby is %s. Set it to on." % files.setting("hot_standby")
    peer, then = session.peer(), _list(files.setting("unix_socket_directories"))
    now = [os.path.dirname(peer.bound)] if peer else _list(
        session.only_row("SELECT pg_catalog.current_setting('unix_socket_directories') AS now")["now"])
    if now and not set(map(os.path.realpath, now)) & set(map(os.path.realpath, then)):  # the server takes /tmp/ and links as they are
        return ("its socket would be in %s, and is in %s: neither its clients nor this rolling restart would find it. Change unix_socket_directories by"
                " hand, with pgfleet_login_unix_socket." % (printable(", ".join(then) or "no directory", _MOST), printable(", ".join(now), _MOST)))
    if session.only_row("SELECT pg_catalog.current_setting('listen_addresses') AS now")["now"] and not files.setting("listen_addresses"):
        return "it would listen at no address: listen_addresses is empty. Correct it, or empty it by hand."
    return ""


def _list(text: str) -> List[str]:
    return [one for one in (word.strip().strip('"') for word in text.split(",")) if one]


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
