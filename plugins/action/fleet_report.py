# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a run on the screen, and the same and more in a file and in the stats of the run."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime, timezone
from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible_collections.pgfleet.cache.plugins.module_utils._printable import printable
from ansible_collections.pgfleet.cache.plugins.plugin_utils._verdicts import not_done

SCHEMA = 1  # of the file; a key that goes or changes its meaning makes it one more


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp  # deprecated, has no effect
        arguments = self._task.args
        hosts = arguments["hosts"]
        counts: Dict[str, int] = {}
        for one in hosts.values():
            counts[one["verdict"]] = counts.get(one["verdict"], 0) + 1
        written = {
            "schema": SCHEMA,
            "playbook": arguments["playbook"],
            "started": arguments.get("started") or None,
            "finished": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "check_mode": bool(self._task.check_mode),
            "counts": counts,
            "hosts": hosts,
        }
        lines = [str(line) for line in arguments["lines"]]
        bad = not_done(hosts)
        if bad:
            lines.append("%d of %d hosts failed: %s. The table says why." % (len(bad), len(hosts), printable(", ".join(bad))))
        path = None
        if arguments.get("directory") and not self._task.check_mode:
            try:
                path = write(os.path.expanduser(str(arguments["directory"])), written)
                lines.append("The results are in %s." % printable(path))
            except OSError as error:
                lines.append("The results could not be written: %s. Correct pgfleet_results." % printable(error))
        result.update(
            changed=False,
            lines=lines,
            path=path,
            messages={host: hosts[host]["message"] for host in bad},
            ansible_stats={
                "data": {"pgfleet": {
                    "playbook": written["playbook"], "path": path, "counts": counts,
                    "hosts": {host: {"verdict": one["verdict"], "message": one["message"]} for host, one in hosts.items()},
                }},
                "per_host": False,
                "aggregate": False,
            },
        )
        return result


def write(directory: str, written: Dict[str, Any]) -> str:
    """One file per run, whole or not there at all, which only its owner reads: query texts and plans have constants in them."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    name = "%s-%s" % (written["playbook"], written["finished"].replace(":", "").replace("-", ""))
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(written, file, indent=1, sort_keys=True, default=str)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        for number in range(1000):  # two runs may end in the same second
            path = os.path.join(directory, "%s%s.json" % (name, "-%d" % number if number else ""))
            try:
                os.link(temporary, path)
                return path
            except FileExistsError:
                continue
        raise OSError("%s has a thousand results of this second" % directory)
    finally:
        os.unlink(temporary)
