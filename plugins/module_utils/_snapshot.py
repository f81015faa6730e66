# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find, take and drop snapshots."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._connection import Row, Session
from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_blocks, human_bytes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
GENERATION = re.compile(r"@[1-9][0-9]{0,8}")

_COLUMNS = (
    "name, generation, taken_at, origin, in_recovery, system_identifier, timeline,"
    " server_version_num, segments, blocks, wanted, file_bytes, digest, problem"
)
_TAKE = "SELECT %s FROM residency_snapshot(%%s, %%s)" % _COLUMNS
_DROP = "SELECT residency_drop_snapshot(%s) AS removed"


def check_name(name: str, generation_allowed: bool) -> None:
    bare, at, dummy = name.partition("@")
    if not NAME.fullmatch(bare) or (at and not GENERATION.fullmatch(name[len(bare):])):
        raise ResidencyError(
            "'%s' is no name for a snapshot: letters, digits, '_', '.' and '-', 63 at most,"
            " beginning with a letter or digit%s."
            % (name, "; with @ and a number one generation of it" if generation_allowed else "")
        )
    if at and not generation_allowed:
        raise ResidencyError("A new snapshot gets its own generation: give the name as '%s'." % bare)


def check_options(name: str, keep: int, present: bool) -> None:
    check_name(name, generation_allowed=not present)
    if keep < 1:
        raise ResidencyError("keep is %d: at least one generation has to stay." % keep)


def full_name(snapshot: Row) -> str:
    return "%s@%d" % (snapshot["name"], snapshot["generation"])


def list_all(session: Session) -> List[Row]:
    return session.rows("SELECT %s FROM residency_snapshots() ORDER BY name, generation" % _COLUMNS)


def select(snapshots: List[Row], name: str) -> List[Row]:
    """The generations that ``name`` means, oldest first: of ``name@3`` one, of ``name`` all."""
    return [one for one in snapshots if name in (one["name"], full_name(one))]


def find(session: Session, name: str) -> Row:
    """The one usable snapshot that ``name`` means: for a bare name its newest generation."""
    snapshots = list_all(session)
    chosen = select(snapshots, name)
    if not chosen:
        known = ", ".join(full_name(one) for one in snapshots)
        raise ResidencyError(
            "There is no snapshot '%s' here; %s." % (name, "there is " + known if known else "there is none at all")
        )
    snapshot = chosen[-1]
    if snapshot["problem"]:
        raise ResidencyError("Snapshot %s cannot be used here: %s." % (full_name(snapshot), snapshot["problem"].rstrip(".")))
    return snapshot


def take(session: Session, name: str, keep: int, check_mode: bool) -> Dict[str, Any]:
    if check_mode:
        session.record(_TAKE, (name, keep))
        return result(True, None, "Would save what is cached, %s in the page cache, as '%s'." % (_cached(session), name), session)
    snapshot = session.change(_TAKE, (name, keep))[0]
    return result(
        True,
        snapshot,
        "Saved %s: %s of %s are cached in %d segments, a file of %s."
        % (
            full_name(snapshot),
            human_blocks(snapshot["wanted"]),
            human_blocks(snapshot["blocks"]),
            snapshot["segments"],
            human_bytes(snapshot["file_bytes"]),
        ),
        session,
    )


def drop(session: Session, name: str, check_mode: bool) -> Dict[str, Any]:
    removed = len(select(list_all(session), name))
    if not removed:
        return result(False, None, "There is no snapshot '%s'." % name, session)
    if check_mode:
        session.record(_DROP, (name,))
    else:
        removed = session.change(_DROP, (name,))[0]["removed"]
    verb = "Would remove" if check_mode else "Removed"
    noun = "generation" if removed == 1 else "generations"
    return result(True, None, "%s %d %s of snapshot '%s'." % (verb, removed, noun, name), session)


def empty_result() -> Dict[str, Any]:
    """The keys of every result, also of one that fails."""
    return {"changed": False, "snapshot": None, "queries": []}


def result(changed: bool, snapshot: Optional[Row], msg: str, session: Session) -> Dict[str, Any]:
    return {
        "changed": changed,
        "snapshot": None if snapshot is None else plain(snapshot),
        "msg": msg,
        "queries": session.queries,
    }


def plain(snapshot: Row) -> Dict[str, Any]:
    """A snapshot as JSON can carry it. The identifier is 64 bits: as text, it survives every reader."""
    return dict(
        snapshot,
        taken_at=snapshot["taken_at"].isoformat(),
        system_identifier=str(snapshot["system_identifier"]),
    )


def _cached(session: Session) -> str:
    row = session.only_row("SELECT coalesce(sum(resident), 0)::bigint AS blocks FROM residency_segments()")
    return human_blocks(row["blocks"])
