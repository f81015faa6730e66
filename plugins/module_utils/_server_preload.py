# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library in shared_preload_libraries, and its parameters: where the server reads them, and what its worker does with them.

They are written to one place: postgresql.auto.conf, by ALTER SYSTEM, or a file of their own, or the configuration of a Patroni cluster. What other
files say is read, and never changed.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import EXTENSION, Session, attach_extension, data_directory_of
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._patroni_configuration import Changes, Cluster, Configuration
from ansible_collections.pgfleet.cache.plugins.module_utils._preload_place import LIBRARIES, Place, has_ours, names, same
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable

HEADER = "# Written by the role pgfleet.cache.cache_unattended: it replaces or removes this file.\n"
SNAPSHOT = "autosave"
_PATRONI = "# It will be overwritten by Patroni!"  # in the first lines of postgresql.conf

_SERVER = """
SELECT pg_catalog.pg_is_in_recovery() AS standby, pg_catalog.current_setting('server_version') AS version,
       pg_catalog.current_setting('config_file') AS config_file,
       (SELECT setting FROM pg_catalog.pg_settings WHERE name = %s) AS loaded,
       (SELECT source = 'command line' FROM pg_catalog.pg_settings WHERE name = %s) AS by_command_line
"""
_WORKER = """
SELECT state, message, next_save_at::text AS next_save_at, failures,
       (SELECT setting::pg_catalog.int4 FROM pg_catalog.pg_settings WHERE name = %s) AS autosave,
       (SELECT pg_catalog.max(generation) FROM @extschema@.residency_snapshots() WHERE name = %s AND problem IS NULL) AS generation
FROM @extschema@.residency_worker
"""


@dataclass(frozen=True)
class Options:
    state: str
    parameters: Dict[str, Any]
    file: str
    manager: str
    members: Optional[List[Mapping[str, Any]]]
    wait_timeout: int


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "standby": None, "server_version": None, "restart": False, "parameters": {}, "worker": {}, "member": {}, "queries": []}


def manage(session: Session, options: Options, check_mode: bool) -> Dict[str, Any]:
    """The whole of the module server_preload."""
    present = options.state == "present"
    server = session.only_row(_SERVER, (LIBRARIES,) * 2)
    loaded = has_ours(server["loaded"])
    result = dict(empty_result(), standby=server["standby"], server_version=server["version"].partition(" ")[0])
    if present:
        attach_extension(session)  # its library is one that this server can load
    if server["by_command_line"] and present != loaded:
        raise ResidencyError(
            "%s is given on the command line of PostgreSQL, where no file counts: %s %s there." % (LIBRARIES, "add" if present else "remove", EXTENSION))
    place = _place(session, options, os.path.realpath(server["config_file"]))

    def plan() -> Changes:
        wanted = place.present(options.parameters) if present else place.absent()
        if server["by_command_line"]:
            wanted.pop(LIBRARIES, None)
        result["parameters"] = wanted
        return {name: wanted.get(name) for name in sorted({*place.ours, *wanted}) if not same(name, place.ours.get(name), wanted.get(name))}

    changes, before, left_over = plan(), _text(place.ours), False
    result["diff"] = {"before": before, "after": _text(result["parameters"])}
    if isinstance(place, Cluster):
        result["member"] = place.own_member()
        session.queries += [place.request(changes)] if changes else []
        if not check_mode:
            place.change(changes, plan)
            place.wait(session, result["parameters"], present if present != loaded else None)
    else:
        if options.file:
            left_over = _write(session, place, result["parameters"], bool(changes), check_mode)
        else:
            _alter(session, changes, check_mode)
        if changes and loaded and present and not check_mode:
            session.execute("SELECT pg_catalog.pg_reload_conf()")
    result.update(changed=bool(changes) or left_over, restart=present != loaded, queries=session.queries)
    if present and loaded and not check_mode:
        result["worker"] = _worker(session, options.wait_timeout)
    result["msg"] = _message(result, present, check_mode)
    return result


def _place(session: Session, options: Options, main: str) -> Place:
    data_directory = data_directory_of(session)
    automatic = os.path.realpath(os.path.join(data_directory, "postgresql.auto.conf"))
    if options.manager == "patroni" and options.file:
        raise ResidencyError(
            "The settings of a member of a Patroni cluster belong into the configuration of the cluster, not into %s: leave out cache_unattended_file." %
            printable(options.file))
    if options.manager == "patroni":
        return Cluster(session, main, automatic, Configuration(data_directory), options.members)
    if options.manager in ("systemd", "pg_ctlcluster") and _PATRONI in (_content(main) or "")[:300]:
        raise ResidencyError("%s is written by Patroni: set pgfleet_service_manager to patroni." % printable(main))
    return Place(session, os.path.realpath(options.file) if options.file else automatic, automatic)


def _text(values: Mapping[str, str]) -> str:
    return "".join("%s = '%s'\n" % (name, value.replace("'", "''")) for name, value in sorted(values.items()))


# --- where they are written ---


def _alter(session: Session, changes: Mapping[str, Optional[str]], check_mode: bool) -> None:
    for name, value in changes.items():
        # before 17, ALTER SYSTEM does not know a parameter of a library that is not loaded, unless it was set
        session.rows("SELECT pg_catalog.set_config(%s, %s, false) WHERE pg_catalog.current_setting(%s, true) IS NULL", (name, value or "", name))
        if value is None:
            statement = "ALTER SYSTEM RESET %s" % name
        elif name == LIBRARIES:
            statement = session.text_of("ALTER SYSTEM SET %s = %s" % (name, ", ".join(["%s"] * len(names(value)))), tuple(names(value)))
        else:
            statement = session.text_of("ALTER SYSTEM SET %s = %%s" % name, (value,))
        if check_mode:
            session.record(statement, None)
            continue
        try:
            session.execute(statement)
        except ResidencyError as error:
            if "ALTER SYSTEM is not allowed" not in str(error):
                raise
            raise ResidencyError("%s Set a file of the server's configuration directory, such as conf.d/%s.conf." % (error, EXTENSION)) from error


def _write(session: Session, place: Place, wanted: Mapping[str, str], changes: bool, check_mode: bool) -> bool:
    """A file with these parameters, or none; one without effect is taken back. True if one goes that the server does not read any more."""
    before = _content(place.path)
    if before is not None and not before.startswith(HEADER):
        raise ResidencyError("%s was not written by this collection: name another file." % printable(place.path))
    folder = os.path.dirname(place.path)
    if wanted and changes and not os.access(folder, os.W_OK | os.X_OK):
        raise ResidencyError(_UNWRITABLE % (printable(place.path), "there is no such directory" if not os.path.isdir(folder) else "Permission denied"))
    if wanted and not _is_read(session, place.path):
        raise ResidencyError(_NO_EFFECT % (printable(place.path), "the server does not read it; add include_dir to postgresql.conf"))
    left_over = before is not None and not wanted
    if check_mode and changes:
        return left_over  # which line comes after it is known when it is there
    if not check_mode and (changes or left_over):
        _replace(place.path, HEADER + _text(wanted) if wanted else None)
        place = Place(session, place.path, place.automatic)
    for line in (place.last[name] for name in wanted):
        if line.file != place.path:
            if changes:
                _replace(place.path, before)
            raise ResidencyError(_NO_EFFECT % (printable(place.path), "%s line %d comes after it" % (printable(line.file), line.number)))
    return left_over


_UNWRITABLE = "%s cannot be written: %s. It must be in a directory of the cluster's operating system user."
_NO_EFFECT = "%s would have no effect: %s. Nothing was changed."


def _is_read(session: Session, path: str) -> bool:
    """Whether the server reads this file now, or its main configuration file includes it or its directory."""
    main = session.only_row("SELECT pg_catalog.current_setting('config_file') AS path")["path"]
    included = re.findall(r"(?mi)^\s*include(?:_dir|_if_exists)?\s*=?\s*'([^']+)'", _content(main) or "")
    places = {os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(main)), one)) for one in included}
    files = {os.path.realpath(row["file"]) for row in session.rows("SELECT DISTINCT sourcefile AS file FROM pg_catalog.pg_file_settings")}
    return bool({path, os.path.dirname(path)} & places) or path in files


def _content(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(1 << 20)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResidencyError("%s cannot be read: %s." % (printable(path), error.strerror)) from None


def _replace(path: str, content: Optional[str]) -> None:
    """Complete, or not at all."""
    temporary = ""
    try:
        if content is None:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".%s." % os.path.basename(path), dir=os.path.dirname(path))  # which include_dir does not read
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        temporary = ""
    except OSError as error:
        raise ResidencyError(_UNWRITABLE % (printable(path), error.strerror)) from None
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)


# --- what the server does with them ---


def _worker(session: Session, seconds: int) -> Dict[str, Any]:
    """What the view residency_worker says once it lives and has saved; a restore that it has begun is not waited for."""
    deadline = time.monotonic() + seconds
    while True:
        found = dict(session.only_row(_WORKER, (EXTENSION + ".autosave", SNAPSHOT)))
        waits = found["autosave"] > 0 and found["generation"] is None and found["state"] not in ("restoring", "recovering")
        if found["state"] not in ("stopped", "saving") and not found["failures"] and not waits:
            return {name: found[name] for name in ("state", "generation", "next_save_at")}
        if time.monotonic() >= deadline:
            break
        time.sleep(0.2)
    if found["state"] == "stopped":
        raise ResidencyError("The worker of %s does not run since %d s: PostgreSQL's log has the reason." % (EXTENSION, seconds))
    raise ResidencyError("The worker of %s has saved nothing in %d s (%s): %s" % (
        EXTENSION, seconds, found["state"], printable(found["message"] or "PostgreSQL's log has the reason.")))


def _message(result: Mapping[str, Any], present: bool, check_mode: bool) -> str:
    if result["restart"]:
        return "PostgreSQL %s to be restarted, to %s the library." % (
            "would have" if check_mode and result["changed"] else "has", "load" if present else "end the worker of")
    if not present:
        return "The library is not preloaded."
    worker = result["worker"]
    if not worker:
        return "Would set the parameters." if result["changed"] else "The parameters are set."
    saved = "%s@%d is saved" % (SNAPSHOT, worker["generation"]) if worker["generation"] else "nothing is saved yet"
    return "The worker is %s, %s." % (worker["state"], saved)
