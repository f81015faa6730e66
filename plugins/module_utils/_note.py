# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The progress of a module, for the action plugin that started it as an asynchronous job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Optional

from ansible_collections.pgfleet.cache.plugins.module_utils._errors import ResidencyError

_SAY = 2.0  # seconds between two notes


class Note:
    """Writes it to a file in the directory of Ansible's asynchronous jobs, where the action plugin looks for it."""

    def __init__(self, name: Optional[str]) -> None:
        self._path: Optional[str] = None
        self._last = 0.0
        if name is None:
            return
        if not re.fullmatch(r"[0-9a-z]{8,64}", name):
            raise ResidencyError("progress is '%s': it is set by the action plugin alone." % name)
        self._path = os.path.join(os.path.expanduser(os.environ.get("ANSIBLE_ASYNC_DIR", "~/.ansible_async")), "pgfleet." + name)

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._path is None or now - self._last < _SAY:
            return
        self._last = now
        new = self._path + ".new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8") as file:
                json.dump({"text": text, "pid": os.getpid()}, file)
            os.replace(new, self._path)
        except OSError:
            pass  # a full disk takes away the note, not the run

    def remove(self) -> None:
        """Remove the note, also if no action plugin waits any more."""
        for path in [] if self._path is None else [self._path, self._path + ".new"]:
            with contextlib.suppress(OSError):
                os.unlink(path)
