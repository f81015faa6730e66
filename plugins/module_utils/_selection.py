# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The segments that a restore loads, their order, and their residency now.

Of a snapshot it is all segments, or those of the relations that patterns choose; of relations that were rewritten
since, and where there is no snapshot yet, it is the whole of their files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _caches, _names, _residency, _residency_snapshot
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Patterns, Place, Relation
from ansible_collections.pgfleet.cache.plugins.module_utils._residency import Measurement, place_of
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_blocks

SEGMENT_BLOCKS = 131072  # of 8 KiB in a full segment file
NAMED = 5  # relations named in a message
LISTED = 20  # databases named in a message


@dataclass
class Wish:
    """The options that choose."""

    relations: Patterns
    databases: Patterns
    fallback_relations: Patterns
    order: str  # listed or hottest
    load_rewritten: bool


@dataclass
class Selection:
    rows: List[Row] = field(default_factory=list)  # in the order in which they are to be loaded
    everything: bool = True  # of the snapshot, in the extension's own order
    whole: List[Place] = field(default_factory=list)
    rewritten: Set[Place] = field(default_factory=set)  # these files are others now, and stay out
    former: Optional[Names] = None  # names as they were when the snapshot was taken
    measurement: Measurement = field(default_factory=Measurement)
    warnings: List[str] = field(default_factory=list)

    @property
    def rewritten_blocks(self) -> int:
        return sum(row["gone"] for row in self.rows if place_of(row) in self.rewritten)

    @property
    def segment_numbers(self) -> Optional[List[int]]:
        return None if self.everything else [row["segment_no"] for row in self.rows if row["segment_no"] is not None]


def of_snapshot(session: Session, snapshot: Row, wish: Wish, job: Optional[int] = None, plan: Optional[int] = None) -> Selection:
    """The selection from a snapshot. ``job`` adds its outcome; ``plan`` is a job whose segments alone are selected."""
    label = _residency_snapshot.full_name(snapshot)
    selection = Selection(rows=_residency.snapshot_rows(session, label))
    if plan is not None:
        planned = _residency.job_outcome(session, plan)
        selection.rows = [row for row in selection.rows if (place_of(row), row["fork"], row["segment"]) in planned]
    selection.former = _names.of_snapshot(session, label)
    if wish.relations or wish.databases:
        _choose(session, selection, label, wish)
    _find_rewritten(session, selection, label, wish)
    _measure(session, selection, job)
    return selection


def of_relations(session: Session, wish: Wish, job: Optional[int] = None) -> Selection:
    """The relations of fallback_relations, whole, when no snapshot exists yet."""
    names = _names.everything(session, wish.databases)
    ranked = []
    for place, relation in names.relations.items():
        rank = wish.fallback_relations.rank(relation)
        if rank is not None:
            ranked.append((rank, relation.database or "", relation.name, place))
    selection = Selection(everything=False, whole=[entry[-1] for entry in sorted(ranked)])
    unmatched = wish.fallback_relations.unmatched(entry[0] for entry in ranked)
    if not ranked:
        raise ResidencyError(
            "No relation here matches fallback_relations: %s%s.%s" % (
                ", ".join(unmatched), "; databases: %s" % ", ".join(wish.databases.patterns) if wish.databases else "", _unnamed(names))
        )
    selection.warnings += _unmatched("fallback_relations", unmatched) + _unnamed_warning(names)
    _measure(session, selection, job)
    return selection


def of_job(session: Session, job: Row) -> Selection:
    """The relations that a job without a snapshot has loaded."""
    rows = session.rows(
        "SELECT DISTINCT database::bigint, tablespace::bigint, relfilenumber::bigint FROM @extschema@.residency_job_relations(%s::int4)", (job["job"],)
    )
    selection = Selection(everything=False, whole=sorted(place_of(row) for row in rows))
    _measure(session, selection, job["job"])
    return selection


def _measure(session: Session, selection: Selection, job: Optional[int]) -> None:
    if selection.whole:
        by_place: Dict[Place, List[Row]] = {}
        for row in _residency.whole_rows(session, selection.whole):
            by_place.setdefault(place_of(row), []).append(row)
        selection.whole = [place for place in selection.whole if place in by_place]  # others are empty
        for place in selection.whole:
            selection.rows += by_place[place]
    outcome = _residency.job_outcome(session, job) if job is not None else {}
    selection.measurement = _residency.summarize(selection.rows, outcome)


def _choose(session: Session, selection: Selection, label: str, wish: Wish) -> None:
    names = selection.former
    if names is None:
        names = _names.at_places({place_of(row) for row in selection.rows}, session)
        selection.warnings.append("Snapshot %s has lost its names: relations are selected by their current names.%s" % (label, _unnamed(names)))
    all_rows = selection.rows
    selection.rows, used = choose_rows(all_rows, names, wish)
    selection.everything = False
    if not selection.rows:
        raise ResidencyError(_nothing_chosen(label, all_rows, names, wish))
    if wish.relations:
        selection.warnings += _unmatched("relations", wish.relations.unmatched(rank[0] for rank in used))
    if wish.databases:
        selection.warnings += _unmatched("databases", wish.databases.unmatched(rank[1] for rank in used))


def choose_rows(rows: Iterable[Row], names: Names, wish: Wish) -> Tuple[List[Row], Set[Tuple[int, int]]]:
    """The rows that the patterns mean, in the order in which they are to be loaded, and the patterns that fitted."""
    ranks: Dict[Place, Optional[Tuple[int, int]]] = {}
    chosen = []
    for row in rows:
        place = place_of(row)
        if place not in ranks:
            of_relation = wish.relations.rank(names.relations.get(place))
            of_database = wish.databases.rank_database(names.databases.get(place.database))
            ranks[place] = None if of_relation is None or of_database is None else (of_relation, of_database)
        rank = ranks[place]
        if rank is not None:
            chosen.append((rank if wish.order == "listed" else (0, 0), -row["heat"], row["segment_no"], row))
    chosen.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in chosen], {rank for rank in ranks.values() if rank is not None}


def _find_rewritten(session: Session, selection: Selection, label: str, wish: Wish) -> None:
    """Relations whose files are others now: their blocks are gone, and the new files may be wanted instead."""
    gone = {place_of(row) for row in selection.rows if row["gone"]}
    if wish.load_rewritten:
        selection.warnings += _nameless(selection, label, gone)
    if selection.former is None:
        return
    old = [selection.former.relations[place] for place in gone if place in selection.former.relations]
    if not old:
        return
    now = _names.successors(old, session)
    selection.rewritten = set(now)
    if not wish.load_rewritten:
        return
    chosen = mostly_cached(selection.rows, selection.former.relations, now)
    position = {place: number for number, place in reversed(list(enumerate(place_of(row) for row in selection.rows)))}
    selection.whole = [now[place].place for place in sorted(chosen, key=lambda place: position[place])]
    selection.rewritten -= chosen
    if chosen:
        # they count as what they are now
        selection.rows = [row for row in selection.rows if place_of(row) not in chosen]


def _nameless(selection: Selection, label: str, gone: Set[Place]) -> List[str]:
    """A warning about relations without names: only its name and its OID connect a relation with its new files."""
    former = selection.former
    missing = {place for place in gone if former is None or place not in former.relations}
    if not missing or (former is not None and not former.unnamed):
        return []
    blocks = sum(row["gone"] for row in selection.rows if place_of(row) in missing)
    return [
        "rewritten: load does nothing about %s that are gone: %s, so the new files of its relations cannot be found. Take it again"
        " with residency_snapshot."
        % (
            human_blocks(blocks),
            "snapshot %s has no names" % label if former is None
            else "snapshot %s has no names of the relations of %s" % (label, _names.say_unnamed(former)),
        )
    ]


def mostly_cached(rows: Iterable[Row], former: Mapping[Place, Relation], places: Iterable[Place]) -> Set[Place]:
    """The relations whose main fork was at least half in the snapshot."""
    wanted: Dict[Place, int] = dict.fromkeys(places, 0)
    size: Dict[Place, int] = {place: former[place].pages for place in wanted}
    for row in rows:
        place = place_of(row)
        if place in wanted and row["fork"] == "main":
            wanted[place] += row["wanted"]
            # segments of which nothing was cached are not in a snapshot
            size[place] = max(size[place], row["segment"] * SEGMENT_BLOCKS + row["blocks"])
    return {place for place, blocks in wanted.items() if blocks and blocks * 2 >= size[place]}


def start_options(selection: Selection) -> Dict[str, Any]:
    """The options of residency_restore_start() for this selection."""
    options: Dict[str, Any] = {}
    if selection.segment_numbers is not None:
        options["segments"] = selection.segment_numbers
    if selection.whole:
        options["whole"] = [[place.tablespace, place.database, place.relfilenumber] for place in selection.whole]
    return options


def wanted_buffers(selection: Selection) -> int:
    """Blocks that were in shared buffers; of files that are loaded whole, none."""
    return sum(int(row["in_shared_buffers"]) for row in selection.rows)


def buffers_not_there(session: Session, selection: Selection) -> Tuple[int, int]:
    """About how many of them are in no buffer, counted by relation; and the unused buffers."""
    buffers = session.rows(
        "SELECT tablespace::bigint, database::bigint, relfilenumber::bigint, sum(blocks)::bigint AS blocks"
        " FROM @extschema@.residency_shared_buffers(false) GROUP BY tablespace, database, relfilenumber"
    )
    now = {place_of(row): row["blocks"] for row in buffers}
    wanted: Dict[Place, int] = {}
    for row in selection.rows:
        wanted[place_of(row)] = wanted.get(place_of(row), 0) + row["in_shared_buffers"]
    missing: int = sum(max(0, blocks - now.get(place, 0)) for place, blocks in wanted.items())
    unused: int = max(0, _caches.buffers_of_the_server(session) - sum(now.values()))
    return missing, unused


def expect(selection: Selection, budget_blocks: int) -> Dict[Place, int]:
    """Blocks by relation that a job with this budget would load."""
    expected: Dict[Place, int] = {}
    rows: Sequence[Row] = selection.rows
    if selection.everything:
        rows = sorted(rows, key=lambda row: -row["heat"])
    for row in rows:
        load = min(max(0, row["wanted"] - row["gone"] - row["resident"]), budget_blocks)
        budget_blocks -= load
        place = place_of(row)
        expected[place] = expected.get(place, 0) + load
    return expected


def _nothing_chosen(label: str, rows: Iterable[Row], names: Names, wish: Wish) -> str:
    asked = [
        "%s: %s" % (option, ", ".join(patterns.patterns))
        for option, patterns in (("relations", wish.relations), ("databases", wish.databases))
        if patterns
    ]
    by_wanted: Dict[Place, int] = {}
    if wish.databases and not any(wish.databases.rank_database(name) is not None for name in names.databases.values()):
        return "%s has nothing that matches %s. Its databases are: %s." % (
            label, "; ".join(asked), ", ".join(sorted(names.databases.values())[:LISTED])
        )
    for row in rows:
        by_wanted[place_of(row)] = by_wanted.get(place_of(row), 0) + row["wanted"]
    largest = sorted(by_wanted, key=lambda place: -by_wanted[place])
    known = [
        "%s in %s" % (names.relations[place].name, names.relations[place].database or "all databases")
        for place in largest
        if place in names.relations
    ][:NAMED]
    return "%s has nothing that matches %s. %s" % (
        label, "; ".join(asked), "Its largest are: %s." % ", ".join(known) if known else "It names no relation at all.")


def _unmatched(option: str, patterns: Sequence[str]) -> List[str]:
    return ["Nothing matches '%s' of %s." % (pattern, option) for pattern in patterns]


def _unnamed(names: Names) -> str:
    return " Left out, as their relations have no names: databases %s." % _names.say_unnamed(names) if names.unnamed else ""


def _unnamed_warning(names: Names) -> List[str]:
    return [_unnamed(names).strip()] if names.unnamed else []
