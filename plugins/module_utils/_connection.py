# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one door to a PostgreSQL server, with errors that name a remedy.

The owner of a database decides by ALTER DATABASE what its sessions begin with, and plants operators and functions where
he may create objects. So every session begins with the settings below, which the startup packet carries: it outranks what a role, a
database and the cluster have set. pg_catalog is all of the search path, therefore a plain name or operator in a
statement of ours is PostgreSQL's. The extension may be in a schema where others create objects. It is never in the path: statements name
it, @extschema@, and cast each argument to the type of the parameter, since only an exact fit is always preferred. Who owns that schema
could drop it with the extension and put objects of the same names there, so the owner has to be a superuser.
"""

from __future__ import annotations

import locale
import os
import re
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.text.converters import to_native
from ansible_collections.community.postgresql.plugins.module_utils import postgres
from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory, _libpq, _peer
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import (
    NotInstalledError,
    NotRunningError,
    ResidencyError,
)
from ansible_collections.pgfleet.cache.plugins.module_utils._units import BLOCK_BYTES

EXTENSION = "pg_residency"
VERSION = "1.0.0"  # of the extension, as this collection installs it
CONNECT_TIMEOUT = 60  # seconds
NUMERIC = 1700  # OID of the type
LONGEST_QUERY = 500  # characters: a result stays small, however many segments a statement names

Row = Dict[str, Any]

application_name = "pgfleet.cache"  # to which a module adds its name

# What could refuse, end or delay a session, or change what it may do
_SAFE = {
    "role": "none",
    "row_security": "on",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "exit_on_error": "off",
    "local_preload_libraries": "",  # one that is missing is fatal
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # a statement that waits longer for a relation that is locked fails; one that works may take its time
    "lock_timeout": "60s",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO",  # psycopg2 would set it
    "backslash_quote": "safe_encoding",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "client_min_messages": "warning",
}
# What the text of a query means. A query of the user's own is measured with those of its role and database.
MEANING = {
    "search_path": "pg_catalog,pg_temp",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "transform_null_equals": "off",
    "array_nulls": "on",
}
# Not every version has these, and an unknown name in the startup packet is fatal. The first major version in which all minor ones do.
_LATER = {"idle_session_timeout": (14, "0"), "transaction_timeout": (17, "0"), "restrict_nonsystem_relation_kind": (17, "")}

# libpq reports a refused connection as text only: no SQLSTATE reaches the client.
_NOBODY_ANSWERS = r"No such file or directory|Connection refused"
_THROUGH_A_POOLER = (
    "This connection goes through a pooler such as pgbouncer: point login_port, login_host or"
    " login_unix_socket at PostgreSQL itself."
)
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
    (r"Not a directory", "Set login_unix_socket to the directory of the socket, not to the socket."),
    (r"the database system is (starting up|shutting down)|not yet accepting", "Wait until PostgreSQL is up."),
)

# Of other objects than the extension's, the server's own words and hint say enough.
_CHANGING = re.compile(r"residency_(snapshot|drop_snapshot|restore_start|restore_segment|restore|cancel|evict)\b")
_MAY_LOOK = "Log in as a superuser, or grant the login role pg_monitor."
_CHANGES = ("cache_evict", "residency_restore", "residency_snapshot")  # modules whose next statement would need the other right, too
_MAY_CHANGE = "Log in as a superuser, or grant the login role residency_admin and pg_monitor."
_STATEMENT_REMEDIES: Mapping[str, str] = {
    "58P01": "The extension's files are missing on this host, or of another version: run the playbook pgfleet.cache.install for it.",
}

# of a parameter that is missing, of a % that is not written %%, of a value such as a date after 9999
_OF_THE_DRIVER = (ArithmeticError, LookupError, TypeError, ValueError)

# idle_session_timeout, transaction_timeout
_TIMED_OUT = ("57P05", "25P04")
# undefined_table, undefined_function, undefined_object, invalid_schema_name
_UNDEFINED = ("42P01", "42883", "42704", "3F000")
# admin_shutdown, crash_shutdown, cannot_connect_now
_SHUTDOWN_STATES = ("57P01", "57P02", "57P03")


def module_argument_spec(**options: Dict[str, Any]) -> Dict[str, Any]:
    """The login options of community.postgresql, login_db, and a module's own options."""
    spec: Dict[str, Any] = postgres.postgres_common_argument_spec()
    spec["login_db"] = {"type": "str", "default": "postgres"}
    spec.update(options)
    return spec


# libpq expands a name of a database that is one of these
CONNECTION_STRING = re.compile(r"^\s*postgres(ql)?://|(^|\s)(host|hostaddr|port|user|dbname|password|service)\s*=", re.IGNORECASE)
_IN_STRING = re.compile(r"://[^/@\s]*?:([^/@\s]+)@|password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s&']+))", re.IGNORECASE)
_SECRET_PARAMETERS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


def secrets(params: Mapping[str, Any]) -> List[str]:
    """Passwords, also in options that have other things too, and so cannot be no_log as a whole."""
    found = [str(params.get("login_password") or "")]
    more = params.get("connect_params")
    if isinstance(more, Mapping):
        found += [str(value) for name, value in more.items() if str(name).lower() in _SECRET_PARAMETERS]
    for option in ("login_db", "login_host", "login_user", "login_unix_socket"):
        for groups in _IN_STRING.findall(str(params.get(option) or "")):
            found += groups
    return [one for one in found if one]


class Session:
    """One autocommitting connection. ``queries`` collects the statements that change something."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.schema = ""  # the extension's, quoted, for @extschema@ in a statement
        self.queries: List[str] = []

    def close(self) -> None:
        self._connection.close()

    @property
    def descriptor(self) -> int:
        number: int = self._connection.fileno()
        return number

    def peer(self) -> Optional[_peer.Peer]:
        """The kernel's own word for who listens at the Unix socket; None where there is no such socket."""
        return _peer.of(self.descriptor)

    def rows(self, sql: str, params: Any = ()) -> List[Row]:
        """With params None, the statement is the user's and sent unchanged."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            self._execute(cursor, sql, params)
            return [dict(row) for row in cursor.fetchall()]
        except postgres.psycopg.Error as error:
            raise ResidencyError(_explain_statement(error)) from error
        except _OF_THE_DRIVER as error:
            raise _cannot(error) from error
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
        self.queries.append(_shorten(self.text_of(sql, params)))

    def text_of(self, sql: str, params: Any = None) -> str:
        """The statement with its parameters in it."""
        cursor = postgres.psycopg.ClientCursor(self._connection) if _is_psycopg3() else self._connection.cursor()
        try:
            text: str = to_native(cursor.mogrify(self._complete(sql, params), params))
            return text
        except _OF_THE_DRIVER as error:
            raise _cannot(error) from error
        finally:
            cursor.close()

    def require_execute(self, function: str) -> None:
        """Raise the error that the server would raise for a statement that check mode skips."""
        allowed = self.only_row(
            "SELECT pg_catalog.has_function_privilege(%s::pg_catalog.text, 'EXECUTE'::pg_catalog.text) AS allowed",
            ("%s.%s" % (self.schema, function),),
        )["allowed"]
        if not allowed:
            raise ResidencyError("PostgreSQL says: permission denied for function %s. %s" % (function.partition("(")[0], _MAY_CHANGE))

    def change(self, sql: str, params: Sequence[Any] = ()) -> List[Row]:
        rows = self.rows(sql, params)
        self.record(sql, params)
        return rows

    def execute(self, sql: str) -> None:
        """Run a changing statement that returns no rows."""
        self.command(sql)
        self.record(sql)

    def command(self, sql: str, users: bool = False) -> None:
        """Run a statement that neither changes anything nor returns rows, such as BEGIN. One that has a text of the user's is sent unchanged."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            if users:
                self._execute(cursor, sql, None)
            else:
                cursor.execute(sql)
        except postgres.psycopg.Error as error:
            raise ResidencyError(_explain_statement(error)) from error
        finally:
            cursor.close()

    def columns(self, sql: str) -> List[bool]:
        """For each column of a statement's result, True if it is of variable length. Not prepared: FETCH has other columns each time."""
        cursor = self._connection.cursor(**postgres.pg_cursor_args)
        try:
            cursor.execute(sql)
            # psycopg 2 has the precision of a numeric in place of its size
            return [column[1] == NUMERIC or column[3] is None or column[3] == -1 for column in cursor.description or ()]
        except postgres.psycopg.Error as error:
            raise ResidencyError(_explain_statement(error)) from error
        finally:
            cursor.close()

    def _execute(self, cursor: Any, sql: str, params: Any) -> None:
        if params is None and _is_psycopg3():
            # by the extended protocol, where a second statement is an error; with parameters it always is
            cursor.execute(sql, None, prepare=True)
        else:
            cursor.execute(self._complete(sql, params), params)

    def _complete(self, sql: str, params: Any) -> str:
        return sql if params is None else sql.replace("@extschema@", self.schema.replace("%", "%%"))


# To the database of this name, or None: to login_db. Of an engine that logs in late, or more than once.
LogIn = Callable[[Optional[str]], Session]


def connect(params: Mapping[str, Any], database: Optional[str] = None, own_meaning: bool = False) -> Session:
    """Connect with a module's login options; ``database`` takes the place of login_db.

    With ``own_meaning``, what MEANING names is set when the session is there, and ``SET LOCAL ... TO DEFAULT`` is what
    its role and database have set.
    """
    if not postgres.HAS_PSYCOPG:
        raise NotInstalledError(
            "psycopg is missing for %s on this host: install python3-psycopg2 (the playbook pgfleet.cache.install does), "
            "or set ansible_python_interpreter to a Python that has it."
            % sys.executable
        )
    for option in ("login_db", "login_host"):
        # the server would be sent it, and log that there is no such database
        if CONNECTION_STRING.search(str(params.get(option) or "")):
            raise ResidencyError("%s is a connection string: give its parts as options, and the password as login_password." % option)
    target = postgres.get_conn_params(None, dict(params, **({} if database is None else {"login_db": database})), False)
    _libpq.forget_choices()
    locale.setlocale(locale.LC_MESSAGES, "C")  # in which the remedies know what libpq and the C library say
    target.update(client_encoding="UTF8")
    target.setdefault("application_name", application_name)
    target.setdefault("connect_timeout", CONNECT_TIMEOUT)
    settings = dict(_SAFE) if own_meaning else dict(_SAFE, **MEANING)
    try:
        connection = _open(target, settings)
    except ResidencyError as error:
        if not _unexplained(error):
            raise
        # From 17 on, a login is a transaction that transaction_timeout of the role or database ends. The server may report it in any language.
        try:
            connection = _open(target, dict(settings, **{name: value for name, (dummy, value) in _LATER.items()}))
        except ResidencyError:
            raise error from error.__cause__
    major = _major(connection)
    try:
        return _begin(connection, own_meaning)
    except ResidencyError as error:
        connection.close()
        if error.__cause__ is None or sqlstate(error.__cause__) not in (None, *_TIMED_OUT):
            raise
        # perhaps a timeout of the role or database, before it could be changed; now the server's version is known
        settings.update((name, value) for name, (since, value) in _LATER.items() if major >= since)
    connection = _open(target, settings)
    try:
        return _begin(connection, own_meaning)
    except ResidencyError:
        connection.close()
        raise


def for_libpq(params: Mapping[str, Any], major: int, more: Mapping[str, str]) -> Tuple[str, Dict[str, str]]:
    """A connection string for a program that uses libpq, which then connects as :func:`connect` does, and an environment with the secrets, which
    a list of processes would show. ``more`` are settings; ``major`` is the server's version."""
    settings = dict(_SAFE, **MEANING)
    settings.update((name, value) for name, (since, value) in _LATER.items() if major >= since)
    settings.update(more)
    _libpq.forget_choices()
    target = dict(postgres.get_conn_params(None, params, False))
    target.setdefault("dbname", target.pop("database", None))
    environment = {"PGCLIENTENCODING": "UTF8", "PGAPPNAME": application_name, "PGCONNECT_TIMEOUT": str(CONNECT_TIMEOUT)}
    for name in _SECRET_PARAMETERS:
        value = target.pop(name, None)
        if value and name != "password":
            raise ResidencyError("connect_params has %s, which no variable of libpq's can carry: log in without it." % name)
        if value:
            environment["PGPASSWORD"] = str(value)
    environment["PGOPTIONS"] = _options(target.pop("options", ""), settings)
    words = ["%s='%s'" % (name, re.sub(r"(['\\\\])", r"\\\1", str(value))) for name, value in sorted(target.items()) if value not in (None, "")]
    return " ".join(words), environment


def find_extension(session: Session, name: str) -> Row:
    """Version and schema of an extension, and the ``stranger`` who could replace its objects. None where there is none."""
    return session.only_row(
        "SELECT current_database() AS database, e.extversion, quote_ident(n.nspname) AS schema,"
        " current_setting('block_size')::int AS block_size,"
        " CASE WHEN o.rolsuper OR o.rolname = current_user THEN NULL ELSE o.rolname END AS stranger"
        " FROM (SELECT) AS always LEFT JOIN pg_extension AS e ON e.extname = %s"
        " LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace"
        # pg_database_owner has one member, whom no catalog names
        " LEFT JOIN pg_roles AS r ON r.oid = n.nspowner LEFT JOIN pg_database AS d ON d.datname = current_database()"
        " LEFT JOIN pg_roles AS o ON o.oid = CASE WHEN r.rolname = 'pg_database_owner' THEN d.datdba ELSE r.oid END",
        (name,),
    )


def attach_extension(session: Session) -> None:
    """Find the extension's schema, or say what is missing."""
    found = find_extension(session, EXTENSION)
    if found["extversion"] is None:
        raise NotInstalledError(
            "Extension %s is not in database %s: run the playbook pgfleet.cache.install first,"
            " or set login_db to the database that has it (in roles and playbooks pgfleet_login_db)." % (EXTENSION, found["database"])
        )
    if found["block_size"] != BLOCK_BYTES:
        raise ResidencyError(
            "This server's block size is %d bytes, and this collection supports only %d. Call the SQL functions of %s directly."
            % (found["block_size"], BLOCK_BYTES, EXTENSION)
        )
    if found["stranger"] is not None:
        raise ResidencyError(
            "In database %s the extension is in schema %s, owned by %s, who could replace the extension's objects:"
            " run the playbook pgfleet.cache.install for this database, which moves it to a schema of its own."
            % (found["database"], found["schema"], found["stranger"])
        )
    session.schema = found["schema"]
    _require_version("Extension", found["extversion"], "run the playbook pgfleet.cache.install")
    library = session.only_row("SELECT @extschema@.residency_version() AS version")
    _require_version("The loaded library of", library["version"], "run the playbook pgfleet.cache.install, then reconnect")


def connect_with_extension(params: Mapping[str, Any], database: str) -> Session:
    """A session in a relation's own database, with the extension attached."""
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


def data_directory_of(session: Session) -> str:
    """The data directory that the server reports. Root trusts that only from the process at the other end of the Unix socket.

    A superuser can replace pg_catalog.current_setting(text), and name the data directory of another operating system user.
    """
    path: str = session.only_row("SELECT pg_catalog.current_setting('data_directory'::pg_catalog.text) AS path")["path"]
    if os.geteuid() != 0:
        return path
    listening = session.peer()
    if listening is None:
        raise ResidencyError(
            "Over TCP, only the server itself tells its data directory, which root does not trust: set data_directory, or become the cluster's"
            " operating system user."
        )
    postmaster = _data_directory.opened(path).postmaster()
    if postmaster is None or postmaster.pid != listening.pid:
        raise ResidencyError(
            "The server that listens at this Unix socket is process %d, and reports the data directory %s, where that process does not run: set"
            " data_directory, or become the cluster's operating system user." % (listening.pid, path)
        )
    return path


def explain_connection(text: str) -> str:
    """One sentence and a remedy, from libpq's text about a refused connection."""
    first = re.sub(r"^unable to connect to database: ", "", to_native(text).strip()).splitlines()[0].rstrip(".")
    if "unsupported startup parameter" in first:
        return _THROUGH_A_POOLER
    for pattern, remedy in _CONNECTION_REMEDIES:
        if re.search(pattern, first):
            return "Cannot connect to PostgreSQL: %s. %s" % (first, remedy)
    return "Cannot connect to PostgreSQL: %s." % first


def _unexplained(error: ResidencyError) -> bool:
    """True if libpq failed for a reason for which no remedy is known."""
    text = str(error)
    known = text == _THROUGH_A_POOLER or any(re.search(pattern, text) for pattern, dummy in _CONNECTION_REMEDIES)
    return error.__cause__ is not None and not known


def sqlstate(error: Any) -> Optional[str]:
    """None: it is no answer of the server's."""
    return getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)


def _explain_statement(error: Any) -> str:
    state = sqlstate(error)
    if state is None or state in _SHUTDOWN_STATES:
        return "PostgreSQL ended the connection (%s): it was stopped or restarted meanwhile." % _first_line(error)
    diagnosis = error.diag
    sentence = (diagnosis.message_primary or _first_line(error)).rstrip(".")
    if diagnosis.message_detail:
        sentence = "%s: %s" % (sentence, diagnosis.message_detail.rstrip("."))
    remedy = diagnosis.message_hint
    schema = re.match("permission denied for schema (.*)", sentence)
    if state == "42501" and schema:
        remedy = "Grant the login role USAGE on schema %s." % schema.group(1)
    elif state == "42501" and sentence.startswith("must be owner"):
        remedy = "Log in as the owner, or as a superuser."
    elif state in _UNDEFINED and diagnosis.context:  # of a function of the user's, such as an event trigger's: our statements name what exists
        sentence = "%s (%s)" % (sentence, " ".join(diagnosis.context.split())[:LONGEST_QUERY])
        remedy = "This function runs with the search path %s here: name its objects with their schemas, or run ALTER FUNCTION ... SET search_path." % (
            MEANING["search_path"])
    elif "residency" in sentence:
        denied = _MAY_CHANGE if _CHANGING.search(sentence) or application_name.endswith(_CHANGES) else _MAY_LOOK
        remedy = denied if state == "42501" else _STATEMENT_REMEDIES.get(state)
    return "PostgreSQL says: %s.%s" % (sentence, " " + remedy if remedy else "")


def _cannot(error: Exception) -> ResidencyError:
    return ResidencyError("The statement cannot be sent, or a value of its result has no type in Python: %s." % _first_line(error))


def _shorten(query: str) -> str:
    more = len(query) - LONGEST_QUERY
    return query if more <= 0 else "%s... (%d more characters)" % (query[:LONGEST_QUERY], more)


def _first_line(error: Any) -> str:
    lines = to_native(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _open(target: Mapping[str, Any], settings: Mapping[str, str]) -> Any:
    target = dict(target, options=_options(target.get("options", ""), settings))
    try:
        if _is_psycopg3():
            connection = postgres.psycopg.connect(**target, autocommit=True)
        else:
            connection = postgres.psycopg.connect(**target)
            connection.autocommit = True
    except (postgres.psycopg.Error, TypeError, ValueError) as error:
        text = to_native(error)
        raise (NotRunningError if re.search(_NOBODY_ANSWERS, text) else ResidencyError)(explain_connection(text)) from error
    if os.geteuid() == 0:
        try:
            _peer.require_meant(connection.fileno(), connection.info.host or "", connection.info.port)
        except ResidencyError:
            connection.close()
            raise
    return connection


def _options(own: str, settings: Mapping[str, str]) -> str:
    return " ".join([own, *("-c %s=%s" % (name, re.sub(r"([\\ ])", r"\\\1", value)) for name, value in settings.items())])


def _begin(connection: Any, own_meaning: bool) -> Session:
    """Set what the startup packet could not. A pooler invents the process id that it announces at login: the server's own differs."""
    session = Session(connection)
    # psycopg 2.7 has no .info, psycopg 3 has no get_backend_pid()
    announced = connection.get_backend_pid() if hasattr(connection, "get_backend_pid") else connection.info.backend_pid
    settings = dict(((name, value) for name, (dummy, value) in _LATER.items()), **(MEANING if own_meaning else {}))
    # The search path may still be another's: no operator, no name without its schema, no argument that does not fit exactly.
    pid = session.only_row(
        "SELECT pg_catalog.pg_backend_pid() AS pid, ARRAY(SELECT pg_catalog.set_config(name, value, false)"
        " FROM (VALUES %s) AS given (name, value) WHERE pg_catalog.current_setting(name, true) IS NOT NULL) AS settings"
        % ", ".join("('%s'::pg_catalog.text, '%s'::pg_catalog.text)" % setting for setting in settings.items())
    )["pid"]
    if pid != announced:
        raise ResidencyError(_THROUGH_A_POOLER)
    return session


def _major(connection: Any) -> int:
    version: int = connection.info.server_version if _is_psycopg3() else connection.server_version
    return version // 10000


def _is_psycopg3() -> bool:
    return hasattr(postgres.psycopg, "ClientCursor")


def _require_version(what: str, found: str, remedy: str) -> None:
    if found != VERSION:
        raise ResidencyError("%s %s is version %s, this collection needs %s: %s." % (what, EXTENSION, found, VERSION, remedy))
