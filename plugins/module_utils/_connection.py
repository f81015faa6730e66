# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PostgreSQL session through community.postgresql, with errors that name a remedy."""

from __future__ import annotations

import re
import sys
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from ansible.module_utils.common.text.converters import to_native
from ansible_collections.community.postgresql.plugins.module_utils import postgres
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import (
    NotInstalledError,
    NotRunningError,
    ResidencyError,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES

EXTENSION = "pg_residency"
MINIMUM_VERSION = "0.3.0"  # what this collection's modules call
LONGEST_QUERY = 500  # characters: a result stays small, however many segments a statement names

Row = Dict[str, Any]

# libpq reports a refused connection as text only: no SQLSTATE reaches the client.
_NOBODY_ANSWERS = r"No such file or directory|Connection refused"
_CONNECTION_REMEDIES: Tuple[Tuple[str, str], ...] = (
    (
        _NOBODY_ANSWERS,
        "Start PostgreSQL, or correct login_port, login_unix_socket and login_host.",
    ),
    (
        r"Peer authentication failed|Ident authentication failed",
        "Become the cluster's operating system user (become_user: postgres), or log in with a password.",
    ),
    (r"password authentication failed|no password supplied", "Correct login_user and login_password."),
    (r"no pg_hba\.conf entry", "Allow this login in pg_hba.conf, or use another login_user, login_host or login_db."),
    (r'database ".*" does not exist', "Correct login_db."),
    (r'role ".*" does not exist', "Correct login_user."),
    (r"the database system is (starting up|shutting down)|not yet accepting", "Wait until PostgreSQL is up."),
)

# Of other objects than the extension's, the server's own words and hint say enough.
_CHANGING = re.compile(r"residency_(snapshot|drop_snapshot|restore_start|restore_segment|restore|cancel|evict)\b")
_MAY_LOOK = "Log in as a superuser, or grant the login role pg_monitor."
_MAY_CHANGE = "Log in as a superuser, or grant the login role residency_admin and pg_monitor."
_STATEMENT_REMEDIES: Mapping[str, str] = {
    "58P01": "The extension's files are missing on this host, or do not fit: run the playbook pgfleet.cache.install for it.",
}

# admin_shutdown, crash_shutdown, cannot_connect_now
_SHUTDOWN_STATES = ("57P01", "57P02", "57P03")


def module_argument_spec(**options: Dict[str, Any]) -> Dict[str, Any]:
    """The login options of community.postgresql, login_db, and a module's own options."""
    spec: Dict[str, Any] = postgres.postgres_common_argument_spec()
    spec["login_db"] = {"type": "str", "default": "postgres"}
    spec.update(options)
    return spec


class Session:
    """One autocommitting connection. ``queries`` collects the statements that change something."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.queries: List[str] = []

    def close(self) -> None:
        self._connection.close()

    def rows(self, sql: str, params: Optional[Sequence[Any]] = ()) -> List[Row]:
        """Without parameters at all, None, a % in the statement is itself."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            cursor.execute(sql, params)
            return [dict(row) for row in cursor.fetchall()]
        except postgres.psycopg.Error as error:
            raise ResidencyError(_explain_statement(error)) from error
        finally:
            cursor.close()

    def row(self, sql: str, params: Sequence[Any] = ()) -> Optional[Row]:
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    def only_row(self, sql: str, params: Sequence[Any] = ()) -> Row:
        """The row of a statement that always has one."""
        return self.rows(sql, params)[0]

    def record(self, sql: str, params: Optional[Sequence[Any]] = ()) -> None:
        """Name a changing statement in ``queries`` without running it, as check mode does."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            self.queries.append(_shorten(to_native(cursor.mogrify(sql, params))))
        finally:
            cursor.close()

    def require_execute(self, function: str) -> None:
        """What the server will say to a statement that check mode leaves out."""
        allowed = self.only_row("SELECT pg_catalog.has_function_privilege(%s, 'EXECUTE') AS allowed", (function,))["allowed"]
        if not allowed:
            raise ResidencyError("PostgreSQL says: permission denied for function %s. %s" % (function.partition("(")[0], _MAY_CHANGE))

    def change(self, sql: str, params: Sequence[Any] = ()) -> List[Row]:
        self.record(sql, params)
        return self.rows(sql, params)

    def execute(self, sql: str) -> None:
        """Run a changing statement that returns no rows."""
        self.record(sql)
        self.command(sql)

    def command(self, sql: str) -> None:
        """Run a statement that neither changes anything nor returns rows, such as BEGIN."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            cursor.execute(sql)
        except postgres.psycopg.Error as error:
            raise ResidencyError(_explain_statement(error)) from error
        finally:
            cursor.close()


class _Caller:
    """What connect_to_db() asks of a module; its failure becomes our exception."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def fail_json(self, msg: str, **dummy: Any) -> NoReturn:
        raise (NotRunningError if re.search(_NOBODY_ANSWERS, msg) else ResidencyError)(explain_connection(msg))


def connect(params: Mapping[str, Any], database: Optional[str] = None) -> Session:
    """Connect with a module's login options; ``database`` takes the place of login_db."""
    if not postgres.HAS_PSYCOPG:
        raise NotInstalledError(
            "psycopg is missing for %s on this host: install python3-psycopg2 (the playbook pgfleet.cache.install does)."
            % sys.executable
        )
    params = dict(params)
    if database is not None:
        params["login_db"] = database
    caller = _Caller(params)
    connection, dummy = postgres.connect_to_db(caller, postgres.get_conn_params(caller, params), autocommit=True)
    session = Session(connection)
    try:
        _refuse_pooler(session, connection)
    except ResidencyError:
        session.close()
        raise
    return session


def attach_extension(session: Session) -> None:
    """Make the extension's functions callable by their names, or say what is missing."""
    found = session.only_row(
        "SELECT current_database() AS database, e.extversion, pg_catalog.quote_ident(n.nspname) AS schema,"
        " pg_catalog.current_setting('block_size')::int AS block_size"
        " FROM (SELECT) AS always LEFT JOIN pg_catalog.pg_extension AS e ON e.extname = %s"
        " LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace",
        (EXTENSION,),
    )
    if found["extversion"] is None:
        raise NotInstalledError(
            "Extension %s is not in database %s: run the playbook pgfleet.cache.install first,"
            " or name the database that has it with login_db." % (EXTENSION, found["database"])
        )
    if found["block_size"] != BLOCK_BYTES:
        raise ResidencyError(
            "This server's block size is %d bytes, and this collection supports only %d. Call the SQL functions of %s directly."
            % (found["block_size"], BLOCK_BYTES, EXTENSION)
        )
    session.rows("SELECT pg_catalog.set_config('search_path', 'pg_catalog, ' || %s, false)", (found["schema"],))
    _require_version("Extension", found["extversion"], "run the playbook pgfleet.cache.install")
    library = session.only_row("SELECT residency_version() AS version")
    _require_version("The loaded library of", library["version"], "run the playbook pgfleet.cache.install, then reconnect")


def connect_with_extension(params: Mapping[str, Any], database: str) -> Session:
    """For what the extension tells only inside a relation's own database."""
    try:
        session = connect(params, database)
    except ResidencyError as error:
        raise ResidencyError(str(error).replace("Correct login_db.", "Correct databases.")) from error
    try:
        attach_extension(session)
    except NotInstalledError:
        session.close()
        raise ResidencyError(
            "Extension %s is not in database %s: add it to cache_extension_databases, and run the playbook"
            " pgfleet.cache.install." % (EXTENSION, database)
        ) from None
    except ResidencyError:
        session.close()
        raise
    return session


def explain_connection(text: str) -> str:
    """One sentence, and a remedy, from what libpq says about a refused connection."""
    first = re.sub(r"^unable to connect to database: ", "", to_native(text).strip()).splitlines()[0].rstrip(".")
    for pattern, remedy in _CONNECTION_REMEDIES:
        if re.search(pattern, first):
            return "Cannot connect to PostgreSQL: %s. %s" % (first, remedy)
    return "Cannot connect to PostgreSQL: %s." % first


def _explain_statement(error: Any) -> str:
    state = getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)
    if state is None or state in _SHUTDOWN_STATES:
        return "PostgreSQL ended the connection (%s): it was stopped or restarted meanwhile." % _first_line(error)
    diagnosis = error.diag
    sentence = (diagnosis.message_primary or _first_line(error)).rstrip(".")
    if diagnosis.message_detail:
        sentence = "%s: %s" % (sentence, diagnosis.message_detail.rstrip("."))
    remedy = diagnosis.message_hint
    if "residency" in sentence:
        denied = _MAY_CHANGE if _CHANGING.search(sentence) else _MAY_LOOK
        remedy = denied if state == "42501" else _STATEMENT_REMEDIES.get(state)
    return "PostgreSQL says: %s.%s" % (sentence, " " + remedy if remedy else "")


def _shorten(query: str) -> str:
    more = len(query) - LONGEST_QUERY
    return query if more <= 0 else "%s... (%d more characters)" % (query[:LONGEST_QUERY], more)


def _first_line(error: Any) -> str:
    lines = to_native(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _refuse_pooler(session: Session, connection: Any) -> None:
    """A pooler invents the process id that it announces at login: the server's own differs."""
    # psycopg 2.7 has no .info, psycopg 3 has no get_backend_pid()
    announced = connection.get_backend_pid() if hasattr(connection, "get_backend_pid") else connection.info.backend_pid
    if session.only_row("SELECT pg_catalog.pg_backend_pid() AS pid")["pid"] != announced:
        raise ResidencyError(
            "This connection goes through a pooler such as pgbouncer: point login_port, login_host or"
            " login_unix_socket at PostgreSQL itself."
        )


def _require_version(what: str, found: str, remedy: str) -> None:
    if _version(found) < _version(MINIMUM_VERSION):
        raise ResidencyError(
            "%s %s is version %s, this collection needs %s or newer: %s."
            % (what, EXTENSION, found, MINIMUM_VERSION, remedy)
        )


def _version(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
