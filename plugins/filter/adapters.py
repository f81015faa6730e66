# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decisions of the adapters of the role cache_common, on the controller."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible_collections.pgfleet.cache.plugins.module_utils._managers import managed
from ansible_collections.pgfleet.cache.plugins.plugin_utils import _adapters, _haproxy, _patroni, _pgbouncer

DECISIONS: Dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        _adapters.back_in, _adapters.file, _adapters.if_any, _adapters.is_own, _adapters.no_cluster, _adapters.places, _adapters.unit, _adapters.ways,
        _haproxy.haproxy, _haproxy.haproxy_cut, _haproxy.haproxy_question, _haproxy.haproxy_unfit, managed,
        _patroni.patroni, _patroni.patroni_cut, _patroni.patroni_unfit,
        _pgbouncer.pgbouncer, _pgbouncer.pgbouncer_console, _pgbouncer.pgbouncer_ended,
        _pgbouncer.pgbouncer_not_paused, _pgbouncer.pgbouncer_not_resumed, _pgbouncer.pgbouncer_ours, _pgbouncer.pgbouncer_pause,
        _pgbouncer.pgbouncer_processes, _pgbouncer.pgbouncer_resume, _pgbouncer.pgbouncer_unfit,
    )
}


def adapters(value: Any, decision: str, *arguments: Any, **options: Any) -> Any:
    return DECISIONS[decision](value, *arguments, **options)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"adapters": adapters}
