# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find, take, name and drop snapshots, and what a new one has that the one before it had not."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ansible_collections.pgfleet.cache.plugins.module_utils import _caches, _capabilities, _names, _remarks, _residency
from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session, data_directory_of
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._names import Names, Place
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_age, human_blocks, human_bytes, human_seconds

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
GENERATION = re.compile(r"@[1-9][0-9]{0,8}")
PATTERN = re.compile(r"[A-Za-z0-9_.*?-]{1,63}")
AS_FULL = 50  # as the server has it: a generation takes the fullest's place when it lacks no more than this part of it
UNREADABLE = "could not read the file"
KEEP = 2  # generations of a name, unless the user says otherwise
LARGEST_KEEP = 1000000
LARGEST_DAYS = 36500
SEGMENT_BYTES = 64  # that a snapshot takes for a segment beside the map, at the most
NAME_BYTES = 128  # that it takes about for the name of a relation
DAY = 86400  # seconds

COLUMNS = (
    "name", "generation", "taken_at", "origin", "in_recovery", "system_identifier", "timeline", "server_version_num", "segments", "blocks", "wanted",
    "in_page_cache", "in_shared_buffers", "in_both", "file_bytes", "digest", "problem", "thin", "current", "measure", "age",
)
# by the server's clock, and for all of a list by the same moment
_AGE = "CASE WHEN taken_at IS NOT NULL THEN greatest(0, extract(epoch FROM statement_timestamp() - taken_at))::float8 END AS age"
_COLUMNS = ", ".join((*COLUMNS[:-1], _AGE))
_TAKE = "SELECT %s FROM @extschema@.residency_snapshot(%%s::text, %%s::int4, %%s::bool)" % _COLUMNS
_DROP = "SELECT @extschema@.residency_drop_snapshot(%s::text) AS removed"


def check_name(name: str, generation_allowed: bool) -> None:
    bare, at, dummy = name.partition("@")
    if not NAME.fullmatch(bare) or (at and not GENERATION.fullmatch(name[len(bare):])):
        raise ResidencyError(
            "invalid snapshot name '%s': use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit%s."
            % (name, ", and @ with a number for one generation" if generation_allowed else "")
        )
    if at and not generation_allowed:
        raise ResidencyError("A new snapshot gets its own generation: use the name '%s'." % bare)


def check_options(name: str, keep: Optional[int], present: bool, keep_days: Optional[float] = None) -> None:
    if present or not is_pattern(name):
        check_name(name, generation_allowed=not present)
    elif not PATTERN.fullmatch(name):
        raise ResidencyError("invalid snapshot pattern '%s': use letters, digits, '_', '.', '-', '*' and '?', at most 63." % name)
    if keep_days is not None and not 0 < keep_days <= LARGEST_DAYS:
        raise ResidencyError("keep_days is %g: it must be more than 0 and at most %d." % (keep_days, LARGEST_DAYS))
    if keep is None:
        return
    if present and keep < 1:
        raise ResidencyError("keep is %d: it must be at least 1." % keep)
    if keep > LARGEST_KEEP:
        raise ResidencyError("keep is %d: it must be at most %d." % (keep, LARGEST_KEEP))
    if keep < 0:
        raise ResidencyError("keep is %d: it must not be less than 0." % keep)
    if keep > 0 and "@" in name:
        raise ResidencyError("keep cannot be combined with one generation: use the name '%s'." % name.partition("@")[0])


def is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def full_name(snapshot: Row) -> str:
    return "%s@%d" % (snapshot["name"], snapshot["generation"])


def list_all(session: Session) -> List[Row]:
    return session.rows("SELECT %s FROM @extschema@.residency_snapshots() ORDER BY name, generation" % _COLUMNS)


def select(snapshots: List[Row], name: str) -> List[Row]:
    """The generations that ``name`` means, oldest first: of ``name@3`` one, of ``name`` all."""
    return [generation for generation in snapshots if name in (generation["name"], full_name(generation))]


def superseded(snapshots: List[Row], name: str, keep: int) -> List[Row]:
    """The generations of ``name``, which may be a pattern, except the newest ``keep``. Thin ones go first, unreadable ones before them."""

    def rank(one: Row) -> Tuple[bool, bool, float, int]:
        readable = one["taken_at"] is not None
        return (readable, bool(one["current"] or not one["thin"]), one["taken_at"].timestamp() if readable else 0, one["generation"])

    fitting = [one for one in snapshots if fnmatch.fnmatchcase(one["name"], name)] if is_pattern(name) else select(snapshots, name)
    fitting.sort(key=rank)
    return fitting[: len(fitting) - keep] if keep else fitting


def older(snapshots: Iterable[Row], days: Optional[float]) -> List[Row]:
    """The snapshots older than so many days. A snapshot that cannot be read has no age."""
    return [generation for generation in snapshots if days is not None and generation["age"] is not None and generation["age"] > days * DAY]


def none_called(snapshots: List[Row], name: Optional[str]) -> str:
    known = ", ".join(full_name(generation) for generation in snapshots)
    return "Snapshot '%s' does not exist here; %s." % (name, "there is " + known if known else "there is none at all")


def find(session: Session, name: str, asked: Optional[str] = None) -> Row:
    """The one usable snapshot that ``name`` means: for a bare name the generation that the server calls current.

    Its ``warnings`` are about thin generations, for who ``asked`` for it by that name.
    """
    snapshots = list_all(session)
    chosen = select(snapshots, name)
    if not chosen:
        raise ResidencyError(none_called(snapshots, name))
    snapshot = _meant(chosen) or chosen[-1]
    if snapshot["problem"]:
        raise ResidencyError("Snapshot %s cannot be used here: %s." % (full_name(snapshot), snapshot["problem"].rstrip(".")))
    return dict(snapshot, warnings=_thin_warnings(snapshots, snapshot, asked or name))


def _thin_warnings(snapshots: List[Row], snapshot: Row, asked: str) -> List[str]:
    if snapshot["thin"]:
        meant = _meant(select(snapshots, snapshot["name"]))
        return [
            "%s is thin: it holds %s, while the fullest generation before it held %s.%s" % (
                full_name(snapshot), human_blocks(snapshot["wanted"]), human_blocks(snapshot["measure"]),
                " '%s' means %s." % (snapshot["name"], _dated(meant)) if meant is not None and meant is not snapshot else "",
            )
        ]
    newer = [full_name(generation) for generation in select(snapshots, asked) if generation["thin"] and generation["generation"] > snapshot["generation"]]
    if not newer:
        return []
    listed = "%s to %s" % (newer[0], newer[-1]) if len(newer) > 2 else " and ".join(newer)
    return ["'%s' means %s: %s %s newer and thin (less than half as full)." % (asked, _dated(snapshot), listed, "is" if len(newer) == 1 else "are")]


def _dated(snapshot: Row) -> str:
    return full_name(snapshot) + ("" if snapshot["age"] is None else ", from %s ago" % human_age(snapshot["age"]))


def require_newer(snapshot: Row, most: float) -> None:
    """Refuses one that is older than so many seconds."""
    if snapshot["age"] <= most:
        return
    raise ResidencyError(
        "Snapshot %s is from %s ago, and max_age is %s: save a new one when the caches are warm (module residency_snapshot, playbook"
        " pgfleet.cache.snapshot), or raise max_age (cache_warmup_max_age).%s"
        % (full_name(snapshot), human_age(snapshot["age"]), human_seconds(most), "".join(" " + warning for warning in snapshot["warnings"])),
        {"snapshot": full_name(snapshot), "snapshot_age": round(snapshot["age"], 3), "snapshot_thin": snapshot["thin"]},
    )


def take(session: Session, name: str, keep: int, force: bool, check_mode: bool, keep_days: Optional[float] = None) -> Dict[str, Any]:
    generations = select(list_all(session), name)
    previous = _previous(generations)
    before, names_before = _contents(session, previous)
    thin = None
    if check_mode:
        session.require_execute("residency_snapshot(text, integer, boolean)")
        for one in generations:
            if (one["problem"] or "").startswith(UNREADABLE):
                raise ResidencyError(
                    "Snapshot %s cannot be compared: %s. Make the file readable for the server, or remove it."
                    % (full_name(one), one["problem"].rstrip("."))
                )
        session.record(_TAKE, (name, keep, force))
        rows = [row for row in _caches.by_relation(session)[1] if _caches.cached(row)]
        wanted = {_residency.place_of(row): _caches.cached(row) for row in rows}
        _require_room(session, _file_bytes(previous, rows))
        names = _names.at_places(wanted, session)
        result = _result(session, True)
        measure, fullest = (0, None) if force else _measure(session, generations)
        blocks = sum(wanted.values())
        if blocks < measure // 2:
            thin = _thin("The new generation would be", blocks, measure, _meant(generations))
        removed = _removed_by(generations, keep, thin is not None, fullest if blocks < measure - measure // AS_FULL else None)
        aged = _removed_by_age(generations, keep_days, thin is not None, None if force else fullest, blocks, measure)
        aged = [one for one in aged if full_name(one) not in removed]
        for one in aged:
            session.record(_DROP, (full_name(one),))
        result["msg"] = "Would save %s that are cached now as '%s'." % (human_blocks(blocks), name)
    else:
        snapshot = session.change(_TAKE, (name, keep, force))[0]
        label = full_name(snapshot)
        now = list_all(session)
        there = {full_name(one) for one in now}
        removed = [full_name(one) for one in generations if full_name(one) not in there]
        wanted, names = _contents(session, snapshot)
        aged = _drop_aged(session, snapshot, now, keep_days, force)
        result = _result(session, True)
        result["snapshot"] = plain(snapshot)
        if snapshot["thin"]:
            thin = _thin(label + " is", snapshot["wanted"], snapshot["measure"], _meant(select(now, name)))
        result["msg"] = "Saved %s: %s of %s are cached in %d segments, a file of %s." % (
            label,
            human_blocks(snapshot["wanted"]),
            human_blocks(snapshot["blocks"]),
            snapshot["segments"],
            human_bytes(snapshot["file_bytes"]),
        )
    by_age = [full_name(one) for one in aged]
    result["removed"] = [full_name(one) for one in generations if full_name(one) in removed + by_age]
    result["thin"] = thin is not None
    for limit, names_removed in (("keep is %d" % keep, removed), ("keep_days is %g" % (keep_days or 0), by_age)):
        if names_removed:
            result["msg"] += " %s: %s %s." % (limit, "would remove" if check_mode else "removed", ", ".join(names_removed))
    # of a snapshot that has what the others have, nothing was reclaimed that matters
    advice = "save snapshots while the working set is in use"
    result["remarks"] = _remarks.of_reclaim(_capabilities.server_reclaim(session), advice) if thin else []
    result["warnings"] += ([thin] if thin else []) + _names.unnamed_warnings(names)
    changes = compare(before, names_before, wanted, names)
    result["relations"] = [
        {key: value for key, value in row.items() if key != "wanted_before"} for row in largest(changes, "wanted")
    ]
    if previous is not None:
        result["difference"] = {
            "snapshot": full_name(previous),
            "wanted_before": sum(before.values()),
            "wanted": sum(wanted.values()),
            "relations": largest([row for row in changes if row["wanted"] != row["wanted_before"]], "difference"),
        }
    shown = largest([row for row in changes if row["wanted"] != row["wanted_before"]], "difference")
    result["diff"] = {
        "before_header": full_name(previous) if previous else "no snapshot '%s'" % name,
        "after_header": "what is cached now" if check_mode else label,
        "before": _lines(shown, "wanted_before") + "".join(
            "generation %s: %s\n" % (_dated(one), human_blocks(one["wanted"] or 0)) for one in generations if full_name(one) in result["removed"]
        ),
        "after": _lines(shown, "wanted"),
    }
    return result


def drop(session: Session, name: str, keep: int, check_mode: bool, keep_days: Optional[float] = None) -> Dict[str, Any]:
    """Remove generations one by one, so that a generation that is saved meanwhile stays."""
    snapshots = list_all(session)
    chosen = superseded(snapshots, name, keep)
    result = _result(session, False)
    if keep_days is not None:
        result["warnings"] += [
            "%s is kept, because its age is unknown (%s)." % (full_name(generation), (generation["problem"] or UNREADABLE).rstrip("."))
            for generation in chosen if generation["age"] is None
        ]
        chosen = older(chosen, keep_days)
    removed = []
    if check_mode and chosen:
        session.require_execute("residency_drop_snapshot(text)")
    for generation in chosen:
        if check_mode:
            session.record(_DROP, (full_name(generation),))
            removed.append(generation)
        elif session.change(_DROP, (full_name(generation),))[0]["removed"]:
            removed.append(generation)
    result["changed"] = bool(removed)
    result["removed"] = [full_name(generation) for generation in removed]
    if removed:
        result["msg"] = "%s %s of snapshot%s '%s'%s." % (
            "Would remove" if check_mode else "Removed",
            _generations(len(removed)),
            "s" if is_pattern(name) else "",
            name,
            "" if keep_days is None else " older than %s" % _days(keep_days),
        )
    elif keep_days is not None:
        result["msg"] = "There is no generation of '%s' older than %s%s." % (name, _days(keep_days), " beyond the newest %d" % keep if keep else "")
    elif keep:
        result["msg"] = "There %s no more than %s of '%s'." % ("is" if keep == 1 else "are", _generations(keep), name)
    else:
        result["msg"] = "Snapshot '%s' does not exist." % name
    result["diff"] = {
        "before_header": "snapshots",
        "after_header": "snapshots",
        "before": "".join(full_name(generation) + "\n" for generation in snapshots),
        "after": "".join(full_name(generation) + "\n" for generation in snapshots if generation not in removed),
    }
    return result


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {
        "changed": False, "snapshot": None, "thin": None, "removed": [], "relations": [], "difference": None, "remarks": [], "queries": [], "warnings": [],
        "diff": {"before": "", "after": ""},
    }


def plain(snapshot: Row) -> Dict[str, Any]:
    """A snapshot as JSON can carry it. The identifier is 64 bits: as text, it survives every reader."""
    return dict(
        snapshot,
        taken_at=snapshot["taken_at"] and snapshot["taken_at"].isoformat(),
        system_identifier=snapshot["system_identifier"] and str(snapshot["system_identifier"]),
        age=None if snapshot["age"] is None else round(snapshot["age"], 3),
    )


def compare(
    before: Mapping[Place, int], names_before: Names, now: Mapping[Place, int], names_now: Names
) -> List[Dict[str, Any]]:
    """Blocks wanted by relation then and now. A rewritten relation is the same one: it keeps its OID."""
    rows: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
    for key, wanted, names, others in (
        ("wanted", now, names_now, names_before),
        ("wanted_before", before, names_before, names_now),
    ):
        for place, blocks in wanted.items():
            relation = names.relations.get(place) or others.relations.get(place)
            same = (place.database, "oid", relation.oid) if relation else (place.database, *place)
            if same not in rows:
                rows[same] = dict(_residency.identity(place, names), wanted=0, wanted_before=0)
            rows[same][key] += blocks
    return list(rows.values())


def largest(rows: Iterable[Dict[str, Any]], what: str) -> List[Dict[str, Any]]:
    def size(row: Dict[str, Any]) -> int:
        return abs(int(row["wanted"]) - (int(row["wanted_before"]) if what == "difference" else 0))

    found = [row for row in rows if size(row)]
    return sorted(found, key=lambda row: (-size(row), row["database_oid"], row["relfilenumber"]))[: _residency.LISTED]


def _result(session: Session, changed: bool) -> Dict[str, Any]:
    return dict(empty_result(), changed=changed, queries=session.queries)


def _file_bytes(previous: Optional[Row], rows: List[Row]) -> int:
    """Bytes that a new snapshot takes: about as many as the one before it, or else a map for each relation; and the names."""
    if previous is not None:
        size: int = previous["file_bytes"]
    else:
        size = sum(SEGMENT_BYTES + min(row["blocks"] // 4, 8 * _caches.cached(row)) for row in rows)
    return size + NAME_BYTES * len(rows)


def _require_room(session: Session, needed: int) -> None:
    """Raise an error if the server could not write the file: its snapshot directory may be elsewhere, by a link or a mount."""
    # as another user, or from another host, only the server could tell
    if session.peer() is None or os.geteuid() == 0:
        return
    try:
        directory = os.path.join(data_directory_of(session), "pg_residency")
        if not os.path.lexists(directory):
            directory = os.path.dirname(directory)
        elif not os.path.exists(directory):
            raise ResidencyError(
                "%s leads to %s, which does not exist: mount or create it before a snapshot is taken." % (directory, os.path.realpath(directory))
            )
        room = os.statvfs(directory)
    except OSError:  # of another user's
        return
    if room.f_flag & os.ST_RDONLY:
        raise ResidencyError("%s is on a file system that is mounted read-only: a snapshot cannot be saved there." % directory)
    free = room.f_bavail * room.f_frsize
    if free < needed:
        raise ResidencyError("%s has %s free, but the snapshot takes about %s: free some space there." % (directory, human_bytes(free), human_bytes(needed)))


def _previous(generations: List[Row]) -> Optional[Row]:
    """The generation to compare with: what the bare name means, or else the newest that can be read."""
    usable = [generation for generation in generations if not generation["problem"]]
    return _meant(usable) or (usable[-1] if usable else None)


def _meant(generations: List[Row]) -> Optional[Row]:
    """The current generation, which the bare name means."""
    return next((generation for generation in generations if generation["current"]), None)


def _measure(session: Session, generations: List[Row]) -> Tuple[int, Optional[Row]]:
    """The number of blocks that the server would compare a new generation with, the most that still exist of one, and that generation.

    Nothing before the last forced one counts, which has no measure, as the first one.
    """
    usable = [generation for generation in generations if not generation["problem"]]
    starts = [number for number, generation in enumerate(usable) if not generation["thin"] and generation["measure"] is None]
    most, fullest = 0, None
    for generation in sorted(usable[starts[-1] if starts else 0:], key=lambda generation: -int(generation["wanted"])):
        if generation["wanted"] <= most:
            break
        exists: int = session.only_row(
            "SELECT coalesce(sum(wanted - gone), 0)::bigint AS blocks FROM @extschema@.residency_snapshot_relations(%s::text)", (full_name(generation),)
        )["blocks"]
        if exists > most:
            most, fullest = exists, generation
    return most, fullest


def _removed_by(generations: List[Row], keep: int, thin: bool, fullest: Optional[Row]) -> List[str]:
    """The generations that the server would remove for a new one: full ones only for a full one, and never the fullest."""
    left = {False: keep if thin else keep - 1, True: keep - 1 if thin else keep}
    removed = []
    for generation in reversed(generations):
        if not generation["problem"] and left[generation["thin"]] > 0:
            left[generation["thin"]] -= 1
        elif left[False] == 0 if generation["problem"] else generation is not fullest:
            removed.append(full_name(generation))
    return removed[::-1]


def _removed_by_age(
    generations: List[Row], days: Optional[float], thin: bool, fullest: Optional[Row], blocks: int, measure: int
) -> List[Row]:
    """The old generations that a new one of so many blocks removes: none if it is thin, and never the one that later ones are compared with."""
    protected = fullest if blocks < measure - measure // AS_FULL else None
    return [] if thin else [generation for generation in older(generations, days) if generation is not protected]


def _drop_aged(session: Session, snapshot: Row, now: List[Row], days: Optional[float], force: bool) -> List[Row]:
    """Remove what is too old beside a new generation; ``now`` is the list with that."""
    others = [generation for generation in select(now, snapshot["name"]) if generation["generation"] < snapshot["generation"] and not generation["current"]]
    if snapshot["thin"] or not older(others, days):
        return []
    measure, fullest = (0, None) if force else _measure(session, others)
    chosen = _removed_by_age(others, days, False, fullest, snapshot["wanted"], measure)
    return [generation for generation in chosen if session.change(_DROP, (full_name(generation),))[0]["removed"]]


def _thin(what: str, wanted: int, measure: int, current: Optional[Row]) -> str:
    return (
        "%s thin: it holds %s, less than half of the %s that still exist of the fullest generation.%s"
        " If it is the new working set, set force, which makes it the reference."
        % (
            what,
            human_blocks(wanted),
            human_blocks(measure),
            " The name '%s' still means %s." % (current["name"], full_name(current)) if current else "",
        )
    )


def _contents(session: Session, snapshot: Optional[Row]) -> Tuple[Dict[Place, int], Names]:
    """Blocks wanted by relation, and what the relations were called."""
    if snapshot is None:
        return {}, Names()
    label = full_name(snapshot)
    rows = session.rows(
        "SELECT database::bigint, tablespace::bigint, relfilenumber::bigint, wanted FROM @extschema@.residency_snapshot_relations(%s::text) WHERE wanted > 0",
        (label,),
    )
    return {_residency.place_of(row): row["wanted"] for row in rows}, _names.of_snapshot(session, label) or Names()


def _generations(count: int) -> str:
    return "%d generation%s" % (count, "" if count == 1 else "s")


def _days(days: float) -> str:
    return "%g day%s" % (days, "" if days == 1 else "s")


def _lines(rows: Iterable[Dict[str, Any]], key: str) -> str:
    return "".join("%s: %s\n" % (_residency.label(row), human_blocks(row[key])) for row in rows)
