# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of the playbook status: a row of host_status for each host."""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_age, human_blocks, percent
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _lease
from ansible_collections.pgfleet.cache.plugins.plugin_utils._tables import Column, Result, Row, Table
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import TO_DO


def _status(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    """Check mode reads the same."""
    standby, total, snapshot, restore = result.truth("standby"), result.part("total"), result.part("snapshot"), result.part("restore")
    residency, state = snapshot.number("residency"), restore.text("state", 20)
    ended = "" if restore.number("ended") is None else "%s ago" % _age(restore, "ended")
    left = " and ".join(result.texts("left"))
    words = [host["message"]]
    if host["verdict"] != TO_DO:  # whose message has all of it
        words += [_lease.at_work(result.part("lease").values), left and "Not finished: %s." % left]
    return [
        "-" if standby is None else "standby" if standby else "primary",
        _share(total, "in_shared_buffers"),
        _share(total, "in_page_cache"),
        (snapshot.text("name", 80) or "-") + (" (thin)" if snapshot.truth("thin") else ""),
        _age(snapshot, "age"),
        "-" if residency is None else "%.2f %%" % residency,
        " ".join(filter(None, [restore.text("snapshot", 80), state, ended])) or "-",
    ], " ".join(filter(None, [*words, *result.texts("remarks")]))


def _share(total: Result, key: str) -> str:
    """Of the size of all databases."""
    count, size = total.number(key), total.number("blocks")
    return "-" if count is None or size is None else "%s %3d %%" % (human_blocks(int(count)), percent(int(count), int(size)))


def _age(part: Result, key: str) -> str:
    seconds = part.number(key)
    return "-" if seconds is None else human_age(seconds)


TABLE = Table(
    [
        Column("role", -7), Column("shared_buffers", 14), Column("page cache", 14), Column("snapshot", -16), Column("age", 7), Column("resident", 8),
        Column("last restore", -23),
    ],
    _status,
)
