# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the relations behind files are called, now and when a snapshot was taken, and patterns for their names.

Only who is connected to a database can name its relations, so each database is asked in turn. Names are kept as SQL
spells them (``public."Odd Name"``); a pattern may spell them so, or without the quotes.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

SHARED = 0  # the database OID of the shared catalogs

ConnectTo = Callable[[str], Session]

_DOCUMENT_VERSION = 1
_IDENTIFIER = re.compile(r'"(?:[^"]|"")*"|[^".]+')

_DATABASES = """
SELECT oid::bigint, datname, datallowconn, datname = pg_catalog.current_database() AS here FROM pg_catalog.pg_database
"""

_RELATIONS = """
WITH chosen AS MATERIALIZED (%s)
SELECT CASE WHEN c.relisshared THEN 0 ELSE d.oid END::bigint AS database,
       CASE c.reltablespace WHEN 0 THEN d.dattablespace ELSE c.reltablespace END::bigint AS tablespace,
       pg_catalog.pg_relation_filenode(c.oid)::bigint AS relfilenumber,
       c.oid::bigint AS oid,
       pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS name,
       CASE c.relkind WHEN 'r' THEN 'table' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 't' THEN 'toast'
            ELSE CASE WHEN t.oid IS NULL THEN 'index' ELSE 'toast index' END END AS kind,
       o.oid::bigint AS owner_oid,
       pg_catalog.quote_ident(onsp.nspname) || '.' || pg_catalog.quote_ident(o.relname) AS owner,
       c.relpages AS pages,
       CASE WHEN coalesce(o.relispartition, c.relispartition) THEN ARRAY(
           SELECT pg_catalog.quote_ident(pn.nspname) || '.' || pg_catalog.quote_ident(p.relname)
           FROM pg_catalog.pg_partition_ancestors(coalesce(o.oid, c.oid)) AS a
           JOIN pg_catalog.pg_class AS p ON p.oid = a.relid AND p.relkind = 'p'
           JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.relnamespace) END AS partitions_of
FROM chosen
JOIN pg_catalog.pg_class AS c ON c.oid = chosen.oid
JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid
LEFT JOIN pg_catalog.pg_class AS t ON t.reltoastrelid = coalesce(i.indrelid, c.oid)
LEFT JOIN pg_catalog.pg_class AS o ON o.oid = coalesce(t.oid, i.indrelid)
LEFT JOIN pg_catalog.pg_namespace AS onsp ON onsp.oid = o.relnamespace
WHERE c.relkind = ANY ('{r,i,t,m,S}') AND c.relpersistence <> 't'
"""

_AT_PLACES = """
SELECT pg_catalog.pg_filenode_relation(place.tablespace, place.relfilenumber)::oid AS oid
FROM unnest(%s::bigint[]::oid[], %s::bigint[]::oid[]) AS place (tablespace, relfilenumber)
"""
_ALL = "SELECT oid FROM pg_catalog.pg_class"
# by OID, by name (REINDEX CONCURRENTLY makes a new index of the same name), and TOAST by its table (which gets a new one)
_SUCCESSORS = """
SELECT unnest(%s::bigint[]::oid[]) AS oid
UNION SELECT pg_catalog.to_regclass(name)::oid FROM unnest(%s::text[]) AS name
UNION SELECT toast.oid FROM (
    SELECT reltoastrelid AS oid FROM pg_catalog.pg_class WHERE oid = ANY (%s::bigint[]::oid[])
    UNION ALL
    SELECT i.indexrelid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_index AS i ON i.indrelid = c.reltoastrelid
    WHERE c.oid = ANY (%s::bigint[]::oid[])) AS toast
"""


class Place(NamedTuple):
    """Where a relation's files are. A relfilenumber alone is not unique across tablespaces."""

    database: int
    tablespace: int
    relfilenumber: int


class Relation(NamedTuple):
    place: Place
    database: Optional[str]  # None for the shared catalogs
    oid: int
    name: str
    kind: str
    owner_oid: Optional[int]  # the table of an index or of TOAST
    owner: Optional[str]
    pages: int  # as of the last VACUUM or ANALYZE
    partition_of: Tuple[str, ...]  # the partitioned tables above it or its table


@dataclass
class Names:
    relations: Dict[Place, Relation] = field(default_factory=dict)
    databases: Dict[int, str] = field(default_factory=dict)
    closed: List[str] = field(default_factory=list)  # databases that let nobody in


def at_places(places: Iterable[Place], session: Session, connect_to: ConnectTo) -> Names:
    """What the relations are called whose files these are, now."""
    questions: Dict[int, Tuple[str, Sequence[Any]]] = {}
    by_database: Dict[int, List[Place]] = {}
    for place in set(places):
        by_database.setdefault(place.database, []).append(place)
    for database, inside in by_database.items():
        questions[database] = (
            _AT_PLACES,
            ([place.tablespace for place in inside], [place.relfilenumber for place in inside]),
        )
    return _ask(questions, _list_databases(session), session, connect_to)


def everything(session: Session, connect_to: ConnectTo, databases: Patterns) -> Names:
    """All relations of the databases that the patterns mean; the shared catalogs belong to none."""
    known = _list_databases(session)
    questions = {oid: (_ALL, ()) for oid, row in known.items() if databases.rank_database(row["datname"]) is not None}
    return _ask(questions, known, session, connect_to)


def successors(relations: Iterable[Relation], session: Session, connect_to: ConnectTo) -> Dict[Place, Relation]:
    """For each relation that has other files now, what it is now."""
    by_database: Dict[int, List[Relation]] = {}
    for relation in relations:
        by_database.setdefault(relation.place.database, []).append(relation)
    questions: Dict[int, Tuple[str, Sequence[Any]]] = {}
    for database, inside in by_database.items():
        owners = sorted({one.owner_oid for one in inside if one.owner_oid and one.kind.startswith("toast")})
        questions[database] = (
            _SUCCESSORS,
            ([one.oid for one in inside], [one.name for one in inside], owners, owners),
        )
    now = _ask(questions, _list_databases(session), session, connect_to)
    return match_successors((one for inside in by_database.values() for one in inside), now.relations.values())


def match_successors(old: Iterable[Relation], now: Iterable[Relation]) -> Dict[Place, Relation]:
    candidates: Dict[Tuple[Any, ...], Relation] = {}
    for relation in now:
        database = relation.place.database
        candidates[database, "oid", relation.oid] = relation
        candidates[database, "name", relation.name, relation.kind] = relation
        if relation.kind.startswith("toast"):
            candidates[database, "owner", relation.owner_oid, relation.kind] = relation
    found: Dict[Place, Relation] = {}
    for relation in old:
        database = relation.place.database
        keys: List[Tuple[Any, ...]] = [
            (database, "oid", relation.oid),
            (database, "name", relation.name, relation.kind),
        ]
        if relation.kind.startswith("toast"):
            keys.append((database, "owner", relation.owner_oid, relation.kind))
        successor = next((candidates[key] for key in keys if key in candidates), None)
        if successor is not None and successor.place != relation.place:
            found[relation.place] = successor
    return found


def _list_databases(session: Session) -> Dict[int, Row]:
    return {row["oid"]: row for row in session.rows(_DATABASES)}


def _ask(
    questions: Mapping[int, Tuple[str, Sequence[Any]]],
    known: Mapping[int, Row],
    session: Session,
    connect_to: ConnectTo,
) -> Names:
    names = Names(databases={oid: row["datname"] for oid, row in known.items()})
    for oid in sorted(questions):
        chosen, params = questions[oid]
        sql = _RELATIONS % chosen
        row = known.get(oid)
        if oid == SHARED or (row and row["here"]):
            names.relations.update(_relations(session.rows(sql, params), names.databases))
        elif row and row["datallowconn"]:
            try:
                there = connect_to(row["datname"])
            except ResidencyError:
                names.closed.append(row["datname"])
                continue
            try:
                names.relations.update(_relations(there.rows(sql, params), names.databases))
            finally:
                there.close()
        elif row and row["datname"] != "template0":
            names.closed.append(row["datname"])
    return names


def _relations(rows: Iterable[Row], databases: Mapping[int, str]) -> Dict[Place, Relation]:
    found = {}
    for row in rows:
        if row["relfilenumber"] is None:
            continue  # dropped meanwhile
        place = Place(row["database"], row["tablespace"], row["relfilenumber"])
        found[place] = Relation(
            place,
            databases.get(place.database),
            row["oid"],
            row["name"],
            row["kind"],
            row["owner_oid"],
            row["owner"],
            row["pages"],
            tuple(row["partitions_of"] or ()),
        )
    return found


# --- the document that is kept beside a snapshot ---


def dump(names: Names) -> str:
    """ASCII, because the database that it passes through may have any encoding."""
    databases: Dict[str, Dict[str, Any]] = {}
    for place, one in sorted(names.relations.items()):
        entry = databases.setdefault(str(place.database), {"name": one.database, "relations": []})
        entry["relations"].append(
            [
                place.tablespace,
                place.relfilenumber,
                one.oid,
                one.name,
                one.kind,
                one.owner_oid,
                one.owner,
                one.pages,
                one.partition_of,
            ]
        )
    return json.dumps({"version": _DOCUMENT_VERSION, "databases": databases}, separators=(",", ":"))


def load(text: Optional[str]) -> Optional[Names]:
    """None where there is no document, or none that this version knows."""
    names = Names()
    try:
        document = json.loads(text or "null")
        if not document or document["version"] != _DOCUMENT_VERSION:
            return None
        for oid, entry in document["databases"].items():
            if entry["name"] is not None:
                names.databases[int(oid)] = entry["name"]
            for tablespace, relfilenumber, relation_oid, name, kind, owner_oid, owner, pages, parents in entry["relations"]:
                place = Place(int(oid), tablespace, relfilenumber)
                names.relations[place] = Relation(
                    place, entry["name"], relation_oid, name, kind, owner_oid, owner, pages, tuple(parents)
                )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # whatever somebody left there
    return names


def load_newest(data_directory: str) -> Names:
    """With no server to ask: the names that the newest snapshot has with it."""
    directory = os.path.join(data_directory, "pg_residency")
    if not os.path.isdir(directory):
        return Names()
    paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".names")]
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        with open(path, encoding="ascii", errors="replace") as file:
            names = load(file.read())
        if names is not None:
            return names
    return Names()


# --- patterns ---


class Patterns:
    """Shell patterns, in the operator's order. No patterns at all mean everything."""

    def __init__(self, option: str, patterns: Optional[Sequence[str]]) -> None:
        self.patterns = list(patterns or ())
        for pattern in self.patterns:
            if not pattern.strip():
                raise ResidencyError("%s has an empty pattern: leave it out, or give '*' for all." % option)
        self._compiled = [re.compile(fnmatch.translate(pattern)) for pattern in self.patterns]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def rank_text(self, *spellings: Optional[str]) -> Optional[int]:
        """The number of the first pattern that fits one of the spellings; what has no name fits only ``*``."""
        if not self.patterns:
            return 0
        for number, compiled in enumerate(self._compiled):
            if self.patterns[number] == "*" or any(one is not None and compiled.match(one) for one in spellings):
                return number
        return None

    def rank_database(self, name: Optional[str]) -> Optional[int]:
        """As it is, or quoted as SQL does; the shared catalogs have no name."""
        return self.rank_text() if name is None else self.rank_text(name, '"%s"' % name.replace('"', '""'))

    def rank(self, relation: Optional[Relation]) -> Optional[int]:
        """A table means its indexes and TOAST too, a partitioned table its partitions."""
        if not self.patterns or relation is None:
            return self.rank_text()
        spellings = _spellings(relation.name)
        if relation.owner is not None:
            spellings += _spellings(relation.owner)
        for parent in relation.partition_of:
            spellings += _spellings(parent)
        return self.rank_text(*spellings)

    def unmatched(self, ranks: Iterable[int]) -> List[str]:
        used = set(ranks)
        return [pattern for number, pattern in enumerate(self.patterns) if number not in used]


def _spellings(name: str) -> List[str]:
    """``public."Odd"``: so, ``public.Odd``, and both without their schema."""
    quoted = _IDENTIFIER.findall(name)
    if '"' not in name:
        return [name, quoted[-1]]
    plain = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in quoted]
    return [name, ".".join(plain), quoted[-1], plain[-1]]
