# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The residency of a snapshot now, in total, by relation and by segment, with names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _names
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import SHARED, Names, Place, Relation
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.module_utils._remarks import Missing
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_blocks, human_percent, percent

# in the words of the server, see outcome_reason() of src/segment_restore.c
ENDED = "the job ended before this segment was restored"
RECLAIMED = "reclaimed by the kernel after it was read"
LISTED = 20  # relations and segments in a result: it travels, and is printed, for every host


@dataclass
class Amount:
    """Blocks that are wanted; ``resident`` and ``gone`` never overlap."""

    wanted: int = 0
    resident: int = 0
    gone: int = 0
    over_budget: int = 0
    loaded: int = 0

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
        for count in ("wanted", "resident", "gone", "over_budget", "loaded"):
            setattr(self, count, getattr(self, count) + getattr(other, count))

    def as_result(self) -> Dict[str, Any]:
        counts = ("wanted", "resident", "missing", "gone", "over_budget", "loaded")
        return {"residency": self.residency if self.wanted > self.gone else None, **{count: getattr(self, count) for count in counts}}


@dataclass
class Segment:
    segment_no: Optional[int]  # None: of a relation that is wanted whole
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
    failed: Dict[str, int] = field(default_factory=dict)  # blocks, by the job's reason
    missing: Missing = field(default_factory=Missing)  # blocks of the total that exist and are not resident, by the reason


def place_of(row: Row) -> Place:
    return Place(row["database"], row["tablespace"], row["relfilenumber"])


def snapshot_rows(session: Session, snapshot: str) -> List[Row]:
    """The segments of a snapshot, with a new count of their resident blocks."""
    return session.rows(
        "SELECT segment_no, tablespace::bigint, database::bigint, relfilenumber::bigint, fork, segment,"
        " blocks, wanted, in_shared_buffers, resident, gone, heat"
        " FROM @extschema@.residency_snapshot_segments(%s::text) WHERE wanted > 0",
        (snapshot,),
    )


def whole_rows(session: Session, places: Iterable[Place]) -> List[Row]:
    """Rows like a snapshot's for relations that are wanted whole: each segment of their main forks."""
    wanted = set(places)
    rows: List[Row] = []
    for database in sorted({place.database for place in wanted}):
        inside = [place for place in wanted if place.database == database]
        numbers = [place.relfilenumber for place in inside]
        buffers = {
            place_of(row): row["only_in_buffers"]
            for row in session.rows(
                "SELECT tablespace::bigint, database::bigint, relfilenumber::bigint, blocks - in_page_cache AS only_in_buffers"
                " FROM @extschema@.residency_shared_buffers(true)"
                " WHERE fork = 'main' AND database = %s AND relfilenumber = ANY (%s::bigint[]::oid[])",
                (database, numbers),
            )
        }
        for row in session.rows(
            "SELECT NULL::int AS segment_no, tablespace::bigint, database::bigint, relfilenumber::bigint, fork, segment,"
            " blocks, blocks AS wanted, 0::bigint AS in_shared_buffers, resident, 0::bigint AS gone, 0::float8 AS heat"
            " FROM @extschema@.residency_segments(%s::oid) WHERE fork = 'main' AND blocks > 0 AND database = %s"
            " AND relfilenumber = ANY (%s::bigint[]::oid[]) ORDER BY tablespace, relfilenumber, segment",
            (database, database, numbers),
        ):
            place = place_of(row)
            if place not in wanted:
                continue
            # which segment the buffers belong to is not told, and makes no difference to the sum
            more = min(row["blocks"] - row["resident"], buffers.get(place, 0))
            buffers[place] = buffers.get(place, 0) - more
            rows.append(dict(row, resident=row["resident"] + more))
    return rows


def job_outcome(session: Session, job: int) -> Dict[Tuple[Place, str, int], Row]:
    return {
        (place_of(row), row["fork"], row["segment"]): row
        for row in session.rows(
            "SELECT tablespace::bigint, database::bigint, relfilenumber::bigint, fork, segment, loaded, over_budget, failed, reason"
            " FROM @extschema@.residency_job_segments(%s::int4)",
            (job,),
        )
    }


def summarize(rows: Iterable[Row], outcome: Mapping[Tuple[Place, str, int], Row]) -> Measurement:
    """Total, relations and segments of one count. A job's outcome adds what it loaded, what it could not load, and why."""
    result = Measurement()
    by_place: Dict[Place, Amount] = {}
    missing = dict.fromkeys(Missing.__dataclass_fields__, 0)
    for row in rows:
        place = place_of(row)
        job_row = outcome.get((place, row["fork"], row["segment"]), {})
        amount = Amount(row["wanted"], row["resident"], row["gone"], job_row.get("over_budget", 0), job_row.get("loaded", 0))
        result.total.add(amount)
        for why, blocks in missing_of(amount.missing, job_row or None).items():
            missing[why] += blocks
        if job_row.get("failed", 0) and job_row["reason"] != RECLAIMED:
            reason = job_row["reason"] or "unknown reason"
            result.failed[reason] = result.failed.get(reason, 0) + job_row["failed"]
        by_place.setdefault(place, Amount()).add(amount)
        result.segments.append(Segment(row["segment_no"], place, row["fork"], row["segment"], amount, job_row.get("reason")))
    result.missing = Missing(**missing)
    result.relations = sorted(by_place.items(), key=lambda item: _coldness(item[1]))
    result.segments.sort(key=lambda item: _coldness(item.amount))
    return result


def missing_of(blocks: int, outcome: Optional[Mapping[str, Any]]) -> Dict[str, int]:
    """The reasons why so many blocks of a segment are not resident; what the job had counted as resident, the kernel has taken since."""
    if outcome is None:
        return {"not_planned": blocks}
    found = {"over_budget": min(blocks, outcome["over_budget"])}
    left = blocks - found["over_budget"]
    if outcome["reason"] == ENDED:
        return dict(found, not_reached=left)
    if outcome["reason"] != RECLAIMED:
        found["failed"] = min(left, outcome["failed"])
        left -= found["failed"]
    return dict(found, reclaimed=left)


def _coldness(amount: Amount) -> Tuple[int, int]:
    """Most blocks lacking first: a percent would put every tiny catalog before the table that matters."""
    return (amount.resident - amount.wanted, -amount.wanted)


def name_places(places: Iterable[Place], session: Session, former: Optional[Names] = None) -> Names:
    """Names of today; what has none today (dropped, rewritten) keeps the one it had in the snapshot."""
    wanted = set(places)
    try:
        names = _names.at_places(wanted, session)
    except ResidencyError:  # another session may be asking for names just now: a label is not worth the work that was done
        names = Names()
    if former is not None:
        for place in wanted:
            if place in former.relations and place not in names.relations:
                names.relations[place] = former.relations[place]
        for oid, name in former.databases.items():
            names.databases.setdefault(oid, name)
    return names


def describe(measurement: Measurement, names: Names) -> Dict[str, List[Dict[str, Any]]]:
    """The bounded rows of a result."""
    relations = [dict(identity(place, names), **amount.as_result()) for place, amount in measurement.relations[:LISTED]]
    segments = [
        dict(
            identity(segment.place, names), segment_no=segment.segment_no, fork=segment.fork, segment=segment.segment, reason=segment.reason,
            **segment.amount.as_result()
        )
        for segment in measurement.segments[:LISTED]
    ]
    return {"relations": relations, "segments": segments}


def listed_places(measurement: Measurement) -> List[Place]:
    return [place for place, dummy in measurement.relations[:LISTED]] + [segment.place for segment in measurement.segments[:LISTED]]


def identity(place: Place, names: Names) -> Dict[str, Any]:
    relation: Optional[Relation] = names.relations.get(place)
    return {
        "database": names.databases.get(place.database), "relation": relation.name if relation else None,
        "kind": relation.kind if relation else None, "belongs_to": relation.owner if relation else None, "database_oid": place.database,
        "tablespace": place.tablespace, "relfilenumber": place.relfilenumber,
    }


def label(row: Dict[str, Any]) -> str:
    """A row of a result, as a message names its relation."""
    where = row["database"] or ("all databases" if row["database_oid"] == SHARED else "database %d" % row["database_oid"])
    if row["relation"] is None:
        return printable("relfilenumber %d in %s" % (row["relfilenumber"], where))
    owner = " of %s" % row["belongs_to"] if row["belongs_to"] else ""
    return printable("%s %s%s in %s" % (row["kind"], row["relation"], owner, where))


class Change(NamedTuple):
    """A line of a diff; all in blocks."""

    label: str
    size: int
    before: int
    after: int


def diff(header: str, changes: Iterable[Change]) -> Dict[str, str]:
    """The output of --diff: how much is resident before and after, of what changes."""
    before = after = ""
    for change in changes:
        if change.before != change.after:
            before += _line(change, change.before)
            after += _line(change, change.after)
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def _line(change: Change, resident: int) -> str:
    return "%s: %s of %s, %s\n" % (change.label, human_blocks(resident), human_blocks(change.size), human_percent(percent(resident, change.size)))
