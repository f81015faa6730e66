# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much of a snapshot is resident now: in all, by relation and by segment, with names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import percent

LISTED = 20  # relations and segments in a result: it travels, and is printed, for every host

SHARED = 0  # the database OID of the shared catalogs

_KINDS = {
    "r": "table",
    "i": "index",
    "t": "toast",
    "m": "materialized view",
    "S": "sequence",
}

_NAMES = """
SELECT place.tablespace::bigint, place.relfilenumber::bigint,
       pg_catalog.format('%%I.%%I', n.nspname, c.relname) AS relation,
       c.relkind::text AS relkind, i.indrelid IS NOT NULL AND t.oid IS NOT NULL AS toast_index,
       CASE WHEN o.oid IS NOT NULL THEN pg_catalog.format('%%I.%%I', onsp.nspname, o.relname) END AS belongs_to
FROM unnest(%s::bigint[]::oid[], %s::bigint[]::oid[]) AS place (tablespace, relfilenumber)
JOIN pg_catalog.pg_class AS c
  ON c.oid = pg_catalog.pg_filenode_relation(place.tablespace, place.relfilenumber)
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid
LEFT JOIN pg_catalog.pg_class AS t ON t.reltoastrelid = coalesce(i.indrelid, c.oid)
LEFT JOIN pg_catalog.pg_class AS o ON o.oid = coalesce(t.oid, i.indrelid)
LEFT JOIN pg_catalog.pg_namespace AS onsp ON onsp.oid = o.relnamespace
"""


class Place(NamedTuple):
    """Where a relation's files are. A relfilenumber alone is not unique across tablespaces."""

    database: int
    tablespace: int
    relfilenumber: int


@dataclass
class Amount:
    """Blocks of a snapshot; ``resident`` and ``gone`` never overlap."""

    wanted: int = 0
    resident: int = 0
    gone: int = 0
    over_budget: int = 0

    @property
    def missing(self) -> int:
        """Blocks that exist and are not resident: what is still to be loaded."""
        return max(0, self.wanted - self.gone - self.resident)

    @property
    def residency(self) -> float:
        return percent(self.resident, self.wanted - self.gone)

    @property
    def gone_percent(self) -> float:
        return percent(self.gone, self.wanted) if self.wanted else 0.0

    def add(self, other: Amount) -> None:
        self.wanted += other.wanted
        self.resident += other.resident
        self.gone += other.gone
        self.over_budget += other.over_budget

    def as_result(self) -> Dict[str, int]:
        return {
            "wanted": self.wanted,
            "resident": self.resident,
            "gone": self.gone,
            "over_budget": self.over_budget,
        }


@dataclass
class Segment:
    segment_no: int
    place: Place
    fork: str
    segment: int
    amount: Amount
    reason: Optional[str]


@dataclass
class Measurement:
    total: Amount = field(default_factory=Amount)
    relations: List[Tuple[Place, Amount]] = field(default_factory=list)  # coldest first
    segments: List[Segment] = field(default_factory=list)  # coldest first


class RelationName(NamedTuple):
    database: Optional[str]
    relation: Optional[str]
    kind: Optional[str]
    belongs_to: Optional[str]


def measure(session: Session, snapshot: str, job: Optional[int] = None) -> Measurement:
    """Count anew; a job adds what it could not load, and why."""
    rows = session.rows(
        "SELECT segment_no, tablespace::bigint, database::bigint, relfilenumber::bigint,"
        " fork, segment, wanted, resident, gone"
        " FROM residency_snapshot_segments(%s) WHERE wanted > 0",
        (snapshot,),
    )
    outcome: Dict[int, Row] = {}
    if job is not None:
        outcome = {
            row["segment_no"]: row
            for row in session.rows("SELECT segment_no, over_budget, reason FROM residency_job_segments(%s)", (job,))
        }
    return summarize(rows, outcome)


def summarize(rows: Iterable[Row], outcome: Mapping[int, Row]) -> Measurement:
    result = Measurement()
    by_place: Dict[Place, Amount] = {}
    for row in rows:
        job_row = outcome.get(row["segment_no"], {})
        amount = Amount(row["wanted"], row["resident"], row["gone"], job_row.get("over_budget", 0))
        place = Place(row["database"], row["tablespace"], row["relfilenumber"])
        result.total.add(amount)
        by_place.setdefault(place, Amount()).add(amount)
        result.segments.append(
            Segment(row["segment_no"], place, row["fork"], row["segment"], amount, job_row.get("reason"))
        )
    result.relations = sorted(by_place.items(), key=lambda item: _coldness(item[1]))
    result.segments.sort(key=lambda item: _coldness(item.amount))
    return result


def _coldness(amount: Amount) -> Tuple[int, int]:
    """Most blocks lacking first: a percent would put every tiny catalog before the table that matters."""
    return (amount.resident - amount.wanted, -amount.wanted)


def name_places(
    places: Iterable[Place], session: Session, connect_to: Callable[[str], Session]
) -> Dict[Place, RelationName]:
    """Names as each database's own catalogs know them; of dropped or rewritten relations only the database."""
    wanted = set(places)
    databases = {
        row["oid"]: row
        for row in session.rows(
            "SELECT oid::bigint, datname, datallowconn, datname = current_database() AS here FROM pg_catalog.pg_database"
        )
    }
    names: Dict[Place, RelationName] = {}
    for oid in sorted({place.database for place in wanted}):
        inside = [place for place in wanted if place.database == oid]
        database = databases.get(oid)
        datname = database["datname"] if database else None
        names.update((place, RelationName(datname, None, None, None)) for place in inside)
        if oid == SHARED or (database and database["here"]):
            names.update(_look_up(session, inside, datname))
        elif database and database["datallowconn"]:
            names.update(_look_up_elsewhere(connect_to, inside, database["datname"]))
    return names


def _look_up_elsewhere(
    connect_to: Callable[[str], Session], places: List[Place], datname: str
) -> Dict[Place, RelationName]:
    try:
        session = connect_to(datname)
    except ResidencyError:
        return {}  # names are a service: a database that lets nobody in stays a number
    try:
        return _look_up(session, places, datname)
    finally:
        session.close()


def _look_up(session: Session, places: List[Place], datname: Optional[str]) -> Dict[Place, RelationName]:
    rows = session.rows(_NAMES, ([place.tablespace for place in places], [place.relfilenumber for place in places]))
    return {
        Place(places[0].database, row["tablespace"], row["relfilenumber"]): RelationName(
            datname,
            row["relation"],
            "toast index" if row["toast_index"] else _KINDS.get(row["relkind"], row["relkind"]),
            row["belongs_to"],
        )
        for row in rows
    }


def describe(measurement: Measurement, names: Mapping[Place, RelationName]) -> Dict[str, List[Dict[str, Any]]]:
    """The bounded rows of a result."""
    relations = [
        dict(_identity(place, names), residency=amount.residency, **amount.as_result())
        for place, amount in measurement.relations[:LISTED]
    ]
    segments = [
        dict(
            _identity(one.place, names),
            segment_no=one.segment_no,
            fork=one.fork,
            segment=one.segment,
            residency=one.amount.residency,
            reason=one.reason,
            **one.amount.as_result()
        )
        for one in measurement.segments[:LISTED]
    ]
    return {"relations": relations, "segments": segments}


def listed_places(measurement: Measurement) -> List[Place]:
    return [place for place, dummy in measurement.relations[:LISTED]] + [
        one.place for one in measurement.segments[:LISTED]
    ]


def _identity(place: Place, names: Mapping[Place, RelationName]) -> Dict[str, Any]:
    name = names.get(place, RelationName(None, None, None, None))
    return {
        "database": name.database,
        "relation": name.relation,
        "kind": name.kind,
        "belongs_to": name.belongs_to,
        "database_oid": place.database,
        "tablespace": place.tablespace,
        "relfilenumber": place.relfilenumber,
    }
