# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a playbook, a row for each host.

A result comes from a host, which can return anything under its name: what is not of the documented type costs the row of this host only.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible.module_utils.common.text.formatters import bytes_to_human
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import DONE, FAILED, NOT_RUN

BLOCK = 8192
_LARGEST = 1e18  # beyond it a count is none


class OddResultError(Exception):
    """A value of a host's result has an unexpected type."""


class Result:
    """A dictionary of which each value is taken as what it must be. Without a value, it is None, or empty."""

    def __init__(self, values: Any, path: str = "") -> None:
        self._path = path
        if not isinstance(values, Mapping):
            raise OddResultError("%s is not a dictionary" % (path.rstrip(".") or "it"))
        self.values = values

    def _get(self, key: str, kinds: Tuple[type, ...], name: str) -> Any:
        value = self.values.get(key)
        if value is None:
            return None
        # a boolean would be a number
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise OddResultError("%s%s is '%s', not a %s" % (self._path, key, printable(value, 40), name))
        return value

    def number(self, key: str) -> Optional[float]:
        value: Optional[float] = self._get(key, (int, float), "number")
        if value is not None and not -_LARGEST < value < _LARGEST:
            raise OddResultError("%s%s is %s" % (self._path, key, printable(value, 40)))
        return value

    def figure(self, key: str) -> Optional[float]:
        """A number that a role has set: ansible-core 2.18 makes a text of it."""
        value = self.values.get(key)
        if not isinstance(value, str):
            return self.number(key)
        try:
            return Result({key: float(value)}, self._path).number(key)
        except ValueError:
            raise OddResultError("%s%s is '%s', not a number" % (self._path, key, printable(value, 40))) from None

    def truth(self, key: str) -> Optional[bool]:
        value: Optional[bool] = self._get(key, (bool,), "boolean")
        return value

    def text(self, key: str, limit: int = 4000) -> str:
        return printable(self._get(key, (str,), "text") or "", limit)

    def texts(self, key: str) -> List[str]:
        values = self._get(key, (list,), "list") or []
        if not all(isinstance(one, str) for one in values):
            raise OddResultError("%s%s is not a list of strings" % (self._path, key))
        return [printable(one) for one in values]

    def parts(self, key: str) -> List[Result]:
        return [Result(one, "%s%s." % (self._path, key)) for one in self._get(key, (list,), "list") or []]

    def count(self, key: str) -> int:
        return len(self._get(key, (list,), "list") or [])

    def part(self, key: str) -> Result:
        return Result(self.values.get(key) or {}, "%s%s." % (self._path, key))


LONG = 60  # characters of a sentence that is not repeated for each host


class Column(NamedTuple):
    title: str
    width: int  # negative: to the left


Row = Tuple[List[str], str]  # cells, and the words after them


class Table(NamedTuple):
    columns: Sequence[Column]
    row: Callable[[Mapping[str, Any], Result, bool], Row]  # of how a host ended, its result, and whether nothing was changed


def table(known: Table, hosts: Mapping[str, Mapping[str, Any]], check_mode: bool) -> Tuple[List[str], Dict[str, str]]:
    """The lines, and for each host whose result has unexpected types which these are."""
    return lines(known.columns, list(hosts), lambda host: known.row(hosts[host], Result(hosts[host]["result"]), check_mode), hosts)


def lines(
    columns: Sequence[Column], names: Sequence[str], row: Callable[[str], Row], hosts: Mapping[str, Mapping[str, Any]]
) -> Tuple[List[str], Dict[str, str]]:
    """Like table(), for any columns and rows; ``hosts`` has what else is known of a host without a row."""
    width = max(len(printable(name)) for name in [*names, "host"])
    shape = "  ".join(["%%-%ds" % width, *("%%%ds" % column.width for column in columns), "%s"])
    found, odd = [shape % ("host", *(column.title for column in columns), "message")], {}
    rows: Dict[str, Row] = {}
    for name in names:
        try:
            rows[name] = row(name)
        except OddResultError as error:
            odd[name] = "Its result has unexpected types: %s." % error
            rows[name] = ["-"] * len(columns), " ".join(filter(None, [str(hosts.get(name, {}).get("message", "")), odd[name]]))
    shared = _shared({name: words for name, (dummy, words) in rows.items() if not hosts.get(name, {}).get("message") and name not in odd})
    for name, (cells, words) in rows.items():
        own = " ".join(one for one in _sentences(words) if name not in shared.get(one, ()))
        found.append((shape % (printable(name), *cells, printable(own))).rstrip())
    for sentence, those in shared.items():
        found.append(printable("%s: %s" % ("All hosts" if len(those) == len(names) else ", ".join(those), sentence)))
    return found, odd


def _sentences(words: str) -> List[str]:
    return re.split(r"(?<=[.])\s+(?=[A-Z])", words)


def _shared(words: Mapping[str, str]) -> Dict[str, List[str]]:
    """The sentences that several hosts have, each with its hosts: they stand once below the table."""
    found: Dict[str, List[str]] = {}
    for name, text in words.items():
        for one in filter(None, dict.fromkeys(_sentences(text))):
            found.setdefault(one, []).append(name)
    return {one: those for one, those in found.items() if len(those) > 1 and len(one) > LONG}


def judged(hosts: Mapping[str, Mapping[str, Any]], odd: Mapping[str, str]) -> Dict[str, Dict[str, Any]]:
    """A host whose result cannot be read has failed."""
    return {
        host: dict(ended, verdict=FAILED, message=odd[host]) if host in odd and ended["verdict"] == DONE else dict(ended)
        for host, ended in hosts.items()
    }


def size(blocks: Optional[float]) -> str:
    return "-" if blocks is None else human(blocks * BLOCK)


def human(count: float) -> str:
    return str(bytes_to_human(count)).replace("KB", "kB")


def _words(host: Mapping[str, Any], result: Result, check_mode: bool) -> str:
    """The failure, or what check mode would do; otherwise the remarks. Followed by all warnings."""
    first = host["message"] or (result.text("msg") if check_mode else "")
    words = [first] if first else result.texts("remarks")
    if host["verdict"] != NOT_RUN:
        words += [warning for warning in result.texts("warnings") if warning not in first]
    return " ".join(" ".join(words).split())


def _install(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    standby, version, databases = result.truth("standby"), result.text("version", 20), result.texts("databases")
    changed, needed_by = result.texts("changed_databases"), result.texts("needed_by")
    words = host["message"]
    if not words and result.text("state") == "absent":
        parts = [] if result.truth("removed") is False else ["would be removed" if check_mode else "removed"]
        if needed_by:
            parts.append("the files stay for " + ", ".join(needed_by))
        words = "; ".join(parts) or "nothing to remove"
    elif not words:
        restart = result.text("restart")
        parts = ["the files would be installed"] if check_mode and result.truth("files_changed") else []
        if check_mode and changed:
            parts.append("would be created or updated in " + ", ".join(changed))
        if not parts:
            parts.append("in " + ", ".join(databases) if version else "not installed yet")
        if check_mode and restart == "done":
            parts.append("PostgreSQL would be restarted")
        elif restart == "needed":
            parts.append("PostgreSQL %s to load the new library" % ("would have to be restarted" if check_mode else "has to be restarted"))
        words = "; ".join(parts)
    role = "-" if standby is None else "standby" if standby else "primary"
    return [result.text("server_version", 20) or "-", role, version or "-"], words


def _snapshot(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    words = _words(host, result, check_mode)
    snapshot = result.part("snapshot")
    name, generation = snapshot.text("name"), snapshot.number("generation")
    if not name or generation is None:
        return ["-"] * 4, words
    label = printable("%s@%d%s" % (name, generation, " (thin)" if snapshot.truth("thin") else ""), 100)
    return [label, "%d" % (snapshot.number("segments") or 0), size(snapshot.number("wanted")), human(snapshot.number("file_bytes") or 0)], words


def _warmup(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    residency, loaded = result.number("residency"), result.number("loaded")
    measured = residency is not None
    seconds, speed = result.number("seconds"), result.number("bytes_per_second")
    return [
        host["verdict"] if host["message"] else result.text("state", 20) or ("check" if check_mode else "-"),
        "%.2f %%" % residency if residency is not None else "-",
        size(result.number("wanted")),
        size(loaded) if measured and loaded else "-",
        "%.1f" % seconds if measured and result.number("job") and seconds is not None else "-",
        "%.0f" % (speed / 1048576) if measured and loaded and speed is not None else "-",
    ], _words(host, result, check_mode)


def _cold_test(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    put_back = result.part("put_back")
    residency = put_back.number("residency")
    words = host["message"] or ("would run" if check_mode else " ".join(put_back.texts("remarks")))
    return [str(result.count("runs") or "-"), "%g %%" % residency if residency is not None else "-"], words


def _unattended(host: Mapping[str, Any], result: Result, check_mode: bool) -> Row:
    standby, worker = result.truth("standby"), result.part("worker")
    generation = worker.number("generation")
    words = host["message"] or result.text("msg")
    if result.truth("restart"):
        words += " Run pgfleet.cache.rolling_restart%s." % ("" if check_mode else ", and then this playbook again")
    return [
        result.text("server_version", 20) or "-",
        "-" if standby is None else "standby" if standby else "primary",
        worker.text("state", 20) or "-",
        "-" if generation is None else "%d" % generation,
    ], words


TABLES = {
    "install": Table([Column("PostgreSQL", -10), Column("role", -7), Column("extension", -9)], _install),
    "snapshot": Table([Column("snapshot", -20), Column("segments", 8), Column("cached", 9), Column("file", 9)], _snapshot),
    "warmup": Table(
        [Column("state", -11), Column("residency", 9), Column("wanted", 9), Column("loaded", 9), Column("seconds", 8), Column("MB/s", 8)], _warmup
    ),
    "unattended": Table([Column("PostgreSQL", -10), Column("role", -7), Column("worker", -10), Column("saved", 5)], _unattended),
    "cold_test": Table([Column("runs", 5), Column("put back", 8)], _cold_test),
}
