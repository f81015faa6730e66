# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of the relations behind files, now and when a snapshot was taken, and patterns for names.

The server gathers names, of all databases. They are spelled as in SQL (``public."Odd Name"``); a pattern may spell them
so, or without the quotes.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import shown

SHARED = 0  # the database OID of the shared catalogs
LISTED = 5  # databases named in a warning

_IDENTIFIER = re.compile(r'"(?:[^"]|"")*"|[^".]+')

_COLUMNS = (
    "database::bigint, tablespace::bigint, relfilenumber::bigint, relation::bigint AS oid, kind, name,"
    " owner::bigint AS owner_oid, owner_name AS owner, pages, partition_of, problem"
)
_OF_SNAPSHOT = "SELECT %s FROM @extschema@.residency_snapshot_names(%%s::pg_catalog.text)" % _COLUMNS
_ALL = "SELECT %s FROM @extschema@.residency_current_names(NULL::pg_catalog.oid[])" % _COLUMNS
# A database that was dropped since cannot be asked.
_NOW = (
    "SELECT %s FROM @extschema@.residency_current_names(ARRAY("
    "SELECT asked FROM pg_catalog.unnest(%%s::pg_catalog.int8[]::pg_catalog.oid[]) AS asked"
    " WHERE asked OPERATOR(pg_catalog.=) 0::pg_catalog.oid"
    " OR asked OPERATOR(pg_catalog.=) ANY (SELECT oid FROM pg_catalog.pg_database)))"
) % _COLUMNS
# Of a large database only what is needed travels.
_AT_PLACES = _NOW + (
    " WHERE kind OPERATOR(pg_catalog.=) 'database'::pg_catalog.text OR (database, tablespace, relfilenumber)"
    " OPERATOR(pg_catalog.=) ANY (SELECT a, b, c FROM ROWS FROM (pg_catalog.unnest(%s::pg_catalog.int8[]::pg_catalog.oid[]),"
    " pg_catalog.unnest(%s::pg_catalog.int8[]::pg_catalog.oid[]), pg_catalog.unnest(%s::pg_catalog.int8[]::pg_catalog.oid[])) AS f (a, b, c))"
)
_SUCCESSORS = _NOW + (
    " WHERE kind OPERATOR(pg_catalog.=) 'database'::pg_catalog.text"
    " OR relation OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.int8[]::pg_catalog.oid[])"
    " OR name OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.text[])"
    " OR owner OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.int8[]::pg_catalog.oid[])"
)


class Place(NamedTuple):
    """The place of a relation's files. A relfilenumber alone is not unique across tablespaces."""

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
    unnamed: Dict[str, str] = field(default_factory=dict)  # databases whose relations have no names here, and why


def of_snapshot(session: Session, label: str) -> Optional[Names]:
    """The names of when it was taken. None: its names are lost."""
    rows = session.rows(_OF_SNAPSHOT, (label,))
    return collect(rows) if rows else None


def at_places(places: Iterable[Place], session: Session) -> Names:
    """The current names of the relations to which these files belong."""
    wanted = sorted(set(places))
    if not wanted:
        return Names()
    columns = [list(column) for column in zip(*wanted)]
    return collect(session.rows(_AT_PLACES, (sorted(set(columns[0])), *columns)))


def everything(session: Session, patterns: Patterns) -> Names:
    """All relations of the databases that the patterns mean."""
    if not patterns:
        return collect(session.rows(_ALL))
    chosen = fitting(databases(session), patterns)
    return collect(session.rows(_NOW, (chosen,))) if chosen else Names()


def successors(relations: Iterable[Relation], session: Session) -> Dict[Place, Relation]:
    """For each relation whose files have changed, the relation with its new files."""
    old = list(relations)
    inside = sorted({relation.place.database for relation in old})
    owners = sorted({relation.owner_oid for relation in old if relation.owner_oid and relation.kind.startswith("toast")})
    now = collect(session.rows(_SUCCESSORS, (inside, [relation.oid for relation in old], [relation.name for relation in old], owners)))
    return match_successors(old, now.relations.values())


def databases(session: Session) -> Dict[int, str]:
    rows = session.rows("SELECT oid::bigint, datname FROM pg_database")
    return {row["oid"]: row["datname"] for row in rows}


def fitting(known: Mapping[int, str], patterns: Patterns) -> List[int]:
    """The databases that patterns mean. The shared catalogs have no name, which only ``*`` fits."""
    chosen = [oid for oid, name in known.items() if patterns.rank_database(name) is not None]
    return chosen + ([SHARED] if patterns.rank_database(None) is not None else [])


def say_unnamed(names: Names) -> str:
    """``reporting (the database does not accept connections)``: empty when all databases are named."""
    reasons = ["%s (%s)" % (name, problem.rstrip(".")) for name, problem in sorted(names.unnamed.items())]
    more = " and %d more" % (len(reasons) - LISTED) if len(reasons) > LISTED else ""
    return ", ".join(reasons[:LISTED]) + more


def unnamed_warnings(names: Names) -> List[str]:
    if not names.unnamed:
        return []
    named = {relation.database for relation in names.relations.values()} & set(names.unnamed)
    state = "named as in an earlier snapshot, or not at all" if named else "not named"
    return ["The relations of these databases are %s: %s." % (state, say_unnamed(names))]


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


def collect(rows: Iterable[Row]) -> Names:
    """Relations and databases, in any order."""
    names = Names()
    relations = []
    for row in rows:
        if row["kind"] != "database":
            relations.append(row)
            continue
        name = row["name"]
        if name:  # a database dropped meanwhile has no name
            names.databases[row["database"]] = name
        if row["problem"] and name != "template0":  # which is closed by design
            names.unnamed[name or "OID %d" % row["database"]] = row["problem"]
    for row in relations:
        place = Place(row["database"], row["tablespace"], row["relfilenumber"])
        names.relations[place] = Relation(
            place,
            names.databases.get(place.database),
            row["oid"],
            row["name"],
            row["kind"],
            row["owner_oid"],
            row["owner"],
            row["pages"],
            tuple(row["partition_of"] or ()),
        )
    return names


# --- patterns ---


class Patterns:
    """Shell patterns, in the operator's order. No patterns at all mean everything."""

    def __init__(self, option: str, patterns: Optional[Sequence[str]]) -> None:
        self.patterns = list(patterns or ())
        for pattern in self.patterns:
            if not pattern.strip():
                raise ResidencyError("%s has an empty pattern: remove it, or use '*' for all." % option)
        self._compiled = [re.compile(fnmatch.translate(pattern)) for pattern in self.patterns]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def rank_text(self, *spellings: Optional[str]) -> Optional[int]:
        """The number of the first pattern that fits one of the spellings; what has no name fits only ``*``."""
        if not self.patterns:
            return 0
        names = [spelling for spelling in spellings if spelling is not None]
        either = names + [shown(spelling) for spelling in names if not spelling.isprintable()]  # as results have them
        for number, compiled in enumerate(self._compiled):
            if self.patterns[number] == "*" or any(compiled.match(spelling) for spelling in either):
                return number
        return None

    def rank_database(self, name: Optional[str]) -> Optional[int]:
        """The rank of a database, by its plain or its quoted name. The shared catalogs have no name, and match only ``*``."""
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
    if '"' not in name or not quoted:
        return [name, quoted[-1] if quoted else name]
    plain = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in quoted]
    return [name, ".".join(plain), quoted[-1], plain[-1]]
