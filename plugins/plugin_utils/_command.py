# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of a run, to be given again."""

from __future__ import annotations

import re
import shlex
from typing import Any, List, Mapping, Optional, Sequence

_SECRET = re.compile("passw|secret|token|vault", re.IGNORECASE)


def command(cli: Mapping[str, Any], playbook: str, without: Optional[Sequence[str]] = None) -> str:
    """Quoted for a shell, with inventory, extra variables and limit as given; ``without`` these hosts.

    Extra variables that look like a secret are left out, and a comment says so.
    """
    parts: List[str] = ["ansible-playbook"]
    for inventory in cli.get("inventory") or ():
        parts += ["-i", str(inventory)]
    parts.append("pgfleet.cache." + playbook)
    secret = False
    for given in cli.get("extra_vars") or ():
        if _SECRET.search(str(given)) and not str(given).startswith("@"):
            secret = True
        else:
            parts += ["-e", str(given)]
    limit = cli.get("subset") or ("all" if without else "")
    if limit:
        parts += ["--limit", ":!".join([str(limit), *(without or ())])]
    return " ".join(map(shlex.quote, parts)) + (" # and the variables that are secret" if secret else "")
