# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Typed options of an engine, from those of its module."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, TypeVar, cast

Options = TypeVar("Options")


def options_of(kind: Callable[..., Options], params: Mapping[str, Any]) -> Options:
    """``kind`` is a data class, whose fields are named as the options. Those of the login are not among them: an engine gets a session."""
    return kind(**{field.name: params[field.name] for field in dataclasses.fields(cast(Any, kind))})
