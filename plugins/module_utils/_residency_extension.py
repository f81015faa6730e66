# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The extension in the databases of a cluster: created, updated, verified, dropped."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import EXTENSION, VERSION, LogIn, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import NotRunningError, ResidencyError

ADMIN = "residency_admin"
OWN_SCHEMA = "residency"  # where public is not safe
# Reading is pg_monitor's, which the extension itself sees to.
CHANGING = (
    "pgfadvise", "pgfadvise_dontneed", "pgfadvise_loader", "pgfadvise_normal", "pgfadvise_random", "pgfadvise_sequential", "pgfadvise_willneed",
    "residency_cancel", "residency_drop_snapshot", "residency_evict", "residency_restore", "residency_restore_segment", "residency_restore_start",
    "residency_snapshot",
)

_SERVER = """
SELECT pg_is_in_recovery() AS standby,
       (SELECT default_version FROM pg_available_extensions WHERE name = %s) AS default_version,
       (SELECT rolcanlogin FROM pg_roles WHERE rolname = %s) AS admin_logs_in,
       (SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') FROM pg_settings
        WHERE name ~ '_preload_libraries$' AND setting ~ '\\ypg_residency\\y') AS preloaded
"""
_DATABASES = "SELECT datname AS name, datallowconn AND datconnlimit <> -2 AS open, datistemplate AS template FROM pg_database ORDER BY datname"
_FIND = """
SELECT e.extversion AS version, n.nspname AS plain_schema, quote_ident(n.nspname) AS schema
FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = %s
"""
# pg_database_owner has one member, whom no catalog names.
_SCHEMA = """
WITH effective AS (
    SELECT CASE WHEN r.rolname = 'pg_database_owner' THEN d.datdba ELSE r.oid END AS oid, r.oid AS named
    FROM pg_roles AS r, pg_database AS d WHERE d.datname = current_database()
), keys AS (
    SELECT n.nspowner AS holder, true AS owns FROM pg_namespace AS n WHERE n.nspname = %s
    UNION SELECT a.grantee, false FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.nspname = %s AND a.privilege_type = 'CREATE'
)
SELECT count(*) > 0 AS there, quote_ident(%s) AS schema,
       string_agg(DISTINCT CASE WHEN k.holder = 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END, ', ')
       FILTER (WHERE k.holder = 0 OR NOT r.rolsuper) AS strangers,
       coalesce(bool_or(k.owns AND NOT r.rolsuper), false) AS owned
FROM keys AS k LEFT JOIN effective AS e ON e.named = k.holder LEFT JOIN pg_roles AS r ON r.oid = e.oid
"""
_MEMBERS = """
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = %s
"""
_LACKING = """
SELECT string_agg(f.name, ', ' ORDER BY f.name) AS names FROM unnest(%s::text[]) AS f (name)
WHERE f.name NOT IN (SELECT p.proname::text """ + _MEMBERS + ")"
_GRANT = """
SELECT 'GRANT EXECUTE ON FUNCTION ' || string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.proname) || ' TO %s' AS statement
""" % ADMIN + _MEMBERS + """
WHERE p.proname = ANY (%s::text[])
  AND NOT coalesce((SELECT has_function_privilege(r.oid, p.oid, 'EXECUTE') FROM pg_roles AS r WHERE r.rolname = %s), false)
"""
_USAGE = """
SELECT 'GRANT USAGE ON SCHEMA ' || quote_ident(n.nspname) || ' TO ' || string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) AS statement
FROM pg_namespace AS n, pg_roles AS r
WHERE n.nspname = %s AND r.rolname IN ('""" + ADMIN + """', 'pg_monitor') AND NOT has_schema_privilege(r.oid, n.oid, 'USAGE')
GROUP BY n.nspname
"""
_GRANTED = """
SELECT 'REVOKE USAGE ON SCHEMA ' || quote_ident(n.nspname) || ' FROM """ + ADMIN + """' AS statement
FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
WHERE a.grantee = (SELECT oid FROM pg_roles WHERE rolname = '""" + ADMIN + """') AND a.privilege_type = 'USAGE'
"""
_WORKING = """
SELECT string_agg(job::text, ', ' ORDER BY job) AS jobs FROM @extschema@.residency_jobs WHERE state IN ('starting', 'waiting', 'running', 'holding')
"""


@dataclass(frozen=True)
class Options:
    state: str
    databases: List[str]
    schema: Optional[str]
    functions: List[str]
    purge: bool
    wait_timeout: int


@dataclass
class State:
    """The extension in one database, as the result shows it."""

    database: str
    schema_before: Optional[str] = None
    schema: Optional[str] = None
    version_before: Optional[str] = None
    version: Optional[str] = None
    changed: bool = False
    problem: Optional[str] = None


@dataclass
class Work:
    """All that a call is about."""

    options: Options
    log_in: LogIn
    check_mode: bool
    server: Dict[str, Any]
    deadline: float
    states: List[State] = field(default_factory=list)
    queries: List[str] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)

    @contextmanager
    def session(self, database: Optional[str]) -> Iterator[Session]:
        with closing(self.log_in(database)) as session:
            session.queries = self.queries
            yield session


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "standby": None, "version": None, "databases": [], "left_out": [], "needed_by": [], "queries": [], "warnings": [],
    }


def manage(options: Options, log_in: LogIn, check_mode: bool) -> Dict[str, Any]:
    """The whole of the module residency_extension."""
    with closing(log_in(None)) as session:
        work = Work(options, log_in, check_mode, session.only_row(_SERVER, (EXTENSION, ADMIN)), time.monotonic() + options.wait_timeout)
        known = {row["name"]: row for row in session.rows(_DATABASES)}
        chosen, left_out = _choose(known, options.databases)
        session.queries = work.queries
        result = dict(empty_result(), standby=work.server["standby"], left_out=left_out, queries=work.queries, warnings=work.warnings)
        present = options.state == "present"
        if present:
            _make_admin(session, work)
        work.states = [State(name) for name in chosen]
        if not present:
            _each(work, _require_idle)
            _fail(work, result)
        _each(work, _create if present else _drop)
    others = [name for name, row in known.items() if row["open"] and name not in chosen]
    remaining = _versions(work, others)
    if present:
        others = [name for name, version in remaining.items() if version and version != VERSION]
        if others:
            work.warnings.append("The extension has another version than %s in %s: add them to databases." % (VERSION, ", ".join(others)))
        result["version"] = next((state.version for state in work.states if state.version), None)
    else:
        still = [] if check_mode else [one.database for one in work.states if one.version]
        result["needed_by"] = sorted([name for name, version in remaining.items() if version != ""] + still)
        if options.purge and not result["needed_by"]:
            _drop_admin(work, [name for name, row in known.items() if row["open"]])
    _fail(work, result)
    result["changed"] = bool(work.queries)
    result["databases"] = [vars(state) for state in work.states]
    result["msg"] = _message(work, result)
    changed = [state for state in work.states if state.changed]
    result["diff"] = {
        "before": "".join(_line(state.database, state.version_before, state.schema_before) for state in changed),
        "after": "".join(_line(state.database, state.version, state.schema) for state in changed),
    }
    return result


def _line(database: str, version: Optional[str], schema: Optional[str]) -> str:
    return "%s: %s\n" % (database, "none" if version is None else "%s in schema %s" % (version, schema))


def _choose(known: Mapping[str, Any], wanted: List[str]) -> Tuple[List[str], List[str]]:
    if not wanted:
        raise ResidencyError("databases is empty: set at least one, or all.")
    if wanted != ["all"]:
        return list(dict.fromkeys(wanted)), []
    chosen = [name for name, row in known.items() if row["open"] and not row["template"]]
    return chosen, [name for name in known if name not in chosen]


def _each(work: Work, act: Callable[[Work, Session, State], None]) -> None:
    """A database that fails does not stop the others."""
    for state in work.states:
        try:
            _with_database(work, state, act)
        except ResidencyError as error:
            state.problem = str(error).replace("Correct login_db.", "Correct databases.")
            if isinstance(error, NotRunningError):
                return  # it was stopped meanwhile: the others would say the same


def _with_database(work: Work, state: State, act: Callable[[Work, Session, State], None]) -> None:
    while True:
        try:
            with work.session(state.database) as session:
                return act(work, session, state)
        except ResidencyError as error:
            # a standby may not have replayed the database yet
            if not (work.server["standby"] and "does not exist" in str(error)) or not _wait(work):
                raise


def _wait(work: Work) -> bool:
    """False: not any longer."""
    if work.check_mode or time.monotonic() >= work.deadline:
        return False
    time.sleep(1)
    return True


def _fail(work: Work, result: Dict[str, Any]) -> None:
    problems = ["%s: %s" % (state.database, state.problem) for state in work.states if state.problem]
    if problems:
        result["changed"] = bool(work.queries) and not work.check_mode
        result["databases"] = [vars(state) for state in work.states]
        text = "In %d of %d databases: %s" % (len(problems), len(work.states), " ".join(problems))
        done = [] if work.check_mode else [state.database for state in work.states if state.changed]
        raise ResidencyError(text + (" Done in %s." % ", ".join(done) if done else ""), result)


# --- present ---


def _create(work: Work, session: Session, state: State) -> None:
    _look(session, state)
    state.version_before, state.schema_before = state.version, state.schema
    if work.server["standby"]:
        while state.version is None and _wait(work):
            _look(session, state)
        if state.version is None and not work.check_mode:
            raise ResidencyError(
                "The extension was not replicated from the primary within %d s: run this on the primary, too." % work.options.wait_timeout
            )
    else:
        _create_or_update(work, session, state)
    if state.version is None:
        return
    if not (work.check_mode and state.changed):
        _verify(work, session, state)
    if work.server["standby"]:
        return
    usage = session.row(_USAGE, (state.schema,))
    if usage is not None:
        _change(work, session, usage["statement"])
    grant = session.only_row(_GRANT, (EXTENSION, list(CHANGING), ADMIN))["statement"]
    if grant:
        _change(work, session, grant)


def _create_or_update(work: Work, session: Session, state: State) -> None:
    newest = work.server["default_version"]
    if state.version is not None:
        here = session.only_row(_SCHEMA, (state.schema,) * 3)
        wanted: str = work.options.schema or (OWN_SCHEMA if here["owned"] else str(state.schema))
        if wanted != state.schema:
            _change(work, session, "ALTER EXTENSION %s SET SCHEMA %s" % (EXTENSION, _schema(work, session, wanted)))
            work.warnings.append(
                "In database %s the extension %s from schema %s to %s: SQL that names its functions has to name this schema."
                % (state.database, "would be moved" if work.check_mode else "was moved", state.schema, wanted)
            )
            state.changed, state.schema = True, wanted
        elif here["strangers"]:
            work.warnings.append(
                "In database %s the extension is in schema %s, where %s may create objects: move it with schema, such as %s."
                % (state.database, state.schema, here["strangers"], OWN_SCHEMA)
            )
        if state.version != newest and newest is not None:
            _change(work, session, "ALTER EXTENSION %s UPDATE" % EXTENSION)
            state.changed, state.version = True, newest
        return
    if newest is None:
        raise ResidencyError("The server finds no control file of %s: install its files first." % EXTENSION)
    public = session.only_row(_SCHEMA, ("public",) * 3)
    schema = work.options.schema or ("public" if public["there"] and not public["strangers"] else OWN_SCHEMA)
    before = len(work.queries)
    session.command("BEGIN")
    try:
        _change(work, session, "CREATE EXTENSION %s SCHEMA %s" % (EXTENSION, _schema(work, session, schema)))
        session.command("COMMIT")
    except ResidencyError as error:
        del work.queries[before:]
        with suppress(ResidencyError):
            session.command("ROLLBACK")
        if "already exists" in str(error):
            raise ResidencyError("%s Set schema to one without such names, such as %s." % (error, OWN_SCHEMA), error.result) from error
        raise
    if schema == OWN_SCHEMA and work.options.schema is None:
        work.warnings.append(
            "In database %s the extension %s in a schema of its own, %s, because %s."
            % (
                state.database,
                "would be" if work.check_mode else "is",
                OWN_SCHEMA,
                "%s may create or replace objects in public" % public["strangers"] if public["there"] else "there is no public",
            )
        )
    state.changed, state.schema, state.version = True, schema, newest


def _schema(work: Work, session: Session, name: str) -> str:
    """Quoted, and created where it is missing; never one in which others can create what the extension's name means."""
    found = session.only_row(_SCHEMA, (name,) * 3)
    quoted: str = found["schema"]
    if not found["there"]:
        _change(work, session, "CREATE SCHEMA %s" % quoted)
        _change(work, session, "GRANT USAGE ON SCHEMA %s TO PUBLIC" % quoted)
    elif found["strangers"]:
        raise ResidencyError("In schema %s %s may create or replace objects: name another with schema." % (quoted, found["strangers"]))
    return quoted


def _verify(work: Work, session: Session, state: State) -> None:
    _look(session, state)
    if _is_strangers(session, state):
        raise ResidencyError("Schema %s of the extension does not belong to a superuser: run this on the primary, which moves it." % state.schema)
    library = session.only_row("SELECT @extschema@.residency_version() AS version")["version"]
    if library != state.version:
        raise ResidencyError(
            "The extension is %s and its library %s.%s"
            % (state.version, library, " The server has preloaded an older one: restart PostgreSQL." if work.server["preloaded"] else "")
        )
    lacking = session.only_row(_LACKING, (work.options.functions, EXTENSION))["names"]
    if lacking:
        raise ResidencyError(
            "The extension is %s and lacks %s: install a package of a version that has them, or DROP EXTENSION %s there and run this again."
            % (state.version, lacking, EXTENSION)
        )


def _look(session: Session, state: State) -> None:
    found = session.row(_FIND, (EXTENSION,)) or {"version": None, "plain_schema": None, "schema": ""}
    state.version, state.schema, session.schema = found["version"], found["plain_schema"], found["schema"]


def _is_strangers(session: Session, state: State) -> bool:
    """True if the schema's owner is no superuser, who may have replaced the extension's functions."""
    owned: bool = session.only_row(_SCHEMA, (state.schema,) * 3)["owned"]
    return owned


def _make_admin(session: Session, work: Work) -> None:
    if work.server["standby"]:
        return
    if work.server["admin_logs_in"] is None:
        _change(work, session, "CREATE ROLE %s NOLOGIN" % ADMIN)
    elif work.server["admin_logs_in"]:
        _change(work, session, "ALTER ROLE %s NOLOGIN" % ADMIN)


def _change(work: Work, session: Session, statement: str) -> None:
    if work.check_mode:
        work.queries.append(statement)
    else:
        session.execute(statement)


# --- absent ---


def _require_idle(work: Work, session: Session, state: State) -> None:
    _look(session, state)
    state.version_before, state.schema_before = state.version, state.schema
    if state.version is None or _is_strangers(session, state):
        return
    try:
        jobs = session.only_row(_WORKING)["jobs"]
    except ResidencyError:  # whose files are gone already cannot be asked, and is dropped all the same
        return
    if jobs:
        raise ResidencyError("Restore job %s is running: wait until it ends, or stop it with SELECT residency_cancel(job)." % jobs)


def _drop(work: Work, session: Session, state: State) -> None:
    _look(session, state)
    if work.server["standby"]:
        while state.version is not None and _wait(work):
            _look(session, state)
        if state.version is not None and not work.check_mode:
            work.warnings.append("The primary still has the extension in %s: run this there, too." % state.database)
    elif state.version is not None:
        _change(work, session, "DROP EXTENSION %s" % EXTENSION)
        state.changed, state.version = True, None


def _drop_admin(work: Work, databases: List[str]) -> None:
    """With the rights on schemas that it was granted. What users have granted it or it owns is theirs: then it stays, and the extension is gone."""
    if work.server["standby"] or work.server["admin_logs_in"] is None:
        return
    try:
        for name in databases:
            with work.session(name) as session:
                for row in session.rows(_GRANTED):
                    _change(work, session, row["statement"])
        with work.session(None) as session:
            _change(work, session, "DROP ROLE %s" % ADMIN)
    except ResidencyError as error:
        work.warnings.append("The role %s stays: %s Revoke that, drop what it owns, and run this again." % (ADMIN, error))


def _versions(work: Work, databases: List[str]) -> Dict[str, Optional[str]]:
    """The version of the extension in other databases: empty if it is missing, None if the database cannot be queried."""
    found: Dict[str, Optional[str]] = {}
    for name in databases:
        try:
            with work.session(name) as session:
                row = session.row(_FIND, (EXTENSION,))
                found[name] = row["version"] if row else ""
        except ResidencyError:
            found[name] = None
    return found


def _message(work: Work, result: Mapping[str, Any]) -> str:
    changed = [state.database for state in work.states if state.changed]
    would = "Would have " if work.check_mode else ""
    if work.options.state == "absent":
        what = "dropped the extension" if would else "Dropped the extension"
        text = "%s%s in %s." % (would, what, ", ".join(changed)) if changed else "The extension is in none of the databases."
        if work.server["standby"]:
            text = "A standby has what its primary has."
        return text + (" Still needed by: %s." % ", ".join(result["needed_by"]) if result["needed_by"] else "")
    if changed:
        what = "created or updated the extension" if would else "Created or updated the extension"
        return "%s%s in %s." % (would, what, ", ".join(changed))
    return "The extension is %s in %s." % (result["version"] or "missing", ", ".join(state.database for state in work.states))
