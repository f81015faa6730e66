# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A moment with its zone, and whether a restore will be done by then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError
from ansible_collections.pgfleet.cache.plugins.module_utils._units import human_bytes, human_seconds

try:
    from zoneinfo import ZoneInfo
except ImportError:  # Python 3.8
    ZoneInfo = None  # type: ignore[assignment,misc]

_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[T ](?P<time>\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)? ?"
    r"(?P<zone>Z|[+-]\d{2}(?::?\d{2})?|[A-Za-z][A-Za-z0-9_+/-]*)?"
)


@dataclass(frozen=True)
class Speed:
    """Bytes per second that an earlier job has loaded, or that this one may load."""

    bytes_per_second: float
    source: str


def parse(text: str, option: str = "deadline") -> datetime:
    found = _MOMENT.fullmatch(text.strip())
    if not found or not found.group("zone"):
        raise ResidencyError(
            "%s is '%s': it must be a date and time with a zone, such as '2026-11-21 06:00+01:00' or"
            " '2026-11-21 06:00 Europe/Berlin'." % (option, text)
        )
    try:
        moment = datetime.strptime(
            "%s %s" % (found.group("day"), found.group("time")),
            "%Y-%m-%d %H:%M:%S" if found.group("time").count(":") == 2 else "%Y-%m-%d %H:%M",
        )
    except ValueError:
        raise ResidencyError("%s is '%s': there is no such date or time." % (option, text)) from None
    return moment.replace(tzinfo=_zone(found.group("zone"), text, option))


def _zone(zone: str, text: str, option: str) -> tzinfo:
    if zone in ("Z", "UTC"):
        return timezone.utc
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        if offset >= timedelta(hours=24):
            raise ResidencyError("%s is '%s': there is no such zone." % (option, text))
        return timezone(offset if zone[0] == "+" else -offset)
    try:
        if ZoneInfo is not None:
            return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        pass
    raise ResidencyError("%s is '%s': this host does not know that zone, give an offset such as '+01:00'." % (option, text))


def seconds_left(deadline: datetime, now: Optional[datetime] = None, option: str = "deadline") -> float:
    """Seconds until the deadline; an error if it has passed."""
    left = (deadline - (now or datetime.now(timezone.utc))).total_seconds()
    if left < 1:
        raise ResidencyError("%s %s was %s ago." % (option, deadline.isoformat(), human_seconds(max(0.0, -left))))
    return left


def expected_seconds(count: int, speed: Optional[Speed]) -> Optional[float]:
    if count == 0:
        return 0.0
    if speed is None or speed.bytes_per_second <= 0:
        return None
    return round(count / speed.bytes_per_second, 3)


def forecast(count: int, speed: Optional[Speed], left: Optional[float], limit: str = "the deadline in") -> str:
    """One sentence about ``count`` bytes, and about the limit in ``left`` seconds if there is one."""
    seconds = expected_seconds(count, speed)
    if seconds is None or speed is None:
        if left is None:
            return "How long that takes is unknown: no earlier job has a rate."
        return "Whether %s %s is met is unknown: no earlier job has a rate." % (limit, human_seconds(left))
    text = "%s take about %s at %s/s, %s" % (
        human_bytes(count),
        human_seconds(seconds),
        human_bytes(speed.bytes_per_second),
        speed.source,
    )
    if left is None:
        return text + "."
    if seconds <= left:
        return "%s: in time for %s %s." % (text, limit, human_seconds(left))
    return "%s: too long for %s %s, %s will be missing." % (
        text,
        limit,
        human_seconds(left),
        human_bytes(count - left * speed.bytes_per_second),
    )
