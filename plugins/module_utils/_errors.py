# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one exception that the engines raise and a module's main() catches."""

from __future__ import annotations

from typing import Any, Dict, Optional


class ResidencyError(Exception):
    """A sentence for the person who runs the play.

    ``result`` holds what was known by then, under the module's own result keys.
    """

    def __init__(self, message: str, result: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.result: Dict[str, Any] = result or {}


class NotRunningError(ResidencyError):
    """No server answers at the login options' address."""


class NotInstalledError(ResidencyError):
    """Something that the role ``cache_extension`` installs is not there yet.

    Check mode may meet this before the play that installs it has really run.
    """
