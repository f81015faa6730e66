# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of a run, to be given again."""

from __future__ import annotations

import json
import re
import shlex
from typing import AbstractSet, Any, List, Mapping, Optional, Sequence

import yaml
from ansible.inventory.manager import split_host_pattern
from ansible.parsing.splitter import parse_kv

# Orders for one run: given again, they would waive, take over or begin anew what has become of it meanwhile.
ONCE = frozenset({"pgfleet_waive", "pgfleet_take_over", "cache_restart_resume"})


def command(cli: Mapping[str, Any], playbook: str, shown: AbstractSet[str], without: Optional[Sequence[str]] = None) -> str:
    """Quoted for a shell, with inventory, extra variables and limit as given; ``without`` these hosts.

    Of extra variables those in ``shown`` and files; any other could be a secret, as could an address with a user in it, and a comment says that
    there were some.
    """
    parts: List[str] = ["ansible-playbook"]
    for inventory in cli.get("inventory") or ():
        parts += ["-i", str(inventory)]
    parts.append("pgfleet.cache." + playbook)
    hidden = False
    for given in map(str, cli.get("extra_vars") or ()):
        if names(given) & ONCE:
            left = {name: value for name, value in _values(given).items() if name not in ONCE}
            if not left:
                continue
            given = json.dumps(left)
        if given.startswith("@") or (names(given) <= shown and not re.search(r"://[^/\s]*@", given)):
            parts += ["-e", given]
        else:
            hidden = True
    if cli.get("subset") or without:
        limit = split_host_pattern(str(cli.get("subset") or "all"))
        parts += ["--limit", ",".join([*limit, *("!" + pattern(host) for host in without or ())])]
    return " ".join(map(shlex.quote, parts)) + (" # and the other extra variables" if hidden else "")


def pattern(host: str) -> str:
    """A pattern for this host only: inventories permit names such as a:b, db[1] and !x, which are patterns for others."""
    if re.fullmatch(r"\w[\w.-]*", host, re.ASCII):
        return host
    return "~" + "".join(one if one.isalnum() and one.isascii() else "\\U%08x" % ord(one) for one in host) + "\\Z"


def _values(given: str) -> Mapping[str, Any]:
    """The variables of an argument of -e that is no file and whose names names() can read."""
    found: Mapping[str, Any] = yaml.safe_load(given) if given[:1] in "{[" else parse_kv(given)
    return found


def names(given: str) -> AbstractSet[str]:
    """Names of the variables in one -e; an unknown name if it cannot be parsed."""
    if given[:1] in "{[":
        try:
            found = yaml.safe_load(given)
        except yaml.YAMLError:
            found = None
        return set(map(str, found)) if isinstance(found, dict) else {""}
    return set(parse_kv(given)) or {""}
