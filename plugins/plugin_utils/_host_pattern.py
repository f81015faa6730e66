# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pattern of one host."""

from __future__ import annotations

import re


def host_pattern(host: str) -> str:
    """A pattern for this host only: inventories permit names such as a:b, db[1] and !x, which are patterns for others."""
    if re.fullmatch(r"\w[\w.-]*", host, re.ASCII):
        return host
    return "~" + "".join(one if one.isalnum() and one.isascii() else "\\U%08x" % ord(one) for one in host) + "\\Z"
