# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role cache_extension decides on the controller."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.plugin_utils import _install

DECISIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        _install.apt_source, _install.at_same_site, _install.build_looks, _install.builder, _install.databases, _install.digests,
        _install.leftovers, _install.library_changed, _install.needed_by, _install.no_control_file, _install.other_clusters, _install.package_differs,
        _install.restart, _install.servers, _install.up_to_date, _install.with_key, _install.written_here,
    )
}


def install(value: Any, decision: str, *arguments: Any, **options: Any) -> Any:
    return DECISIONS[decision](value, *arguments, **options)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"install": install}
