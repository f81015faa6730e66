# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""By which processes a cluster manager is known."""

from __future__ import annotations

import pytest
from ansible_collections.pgfleet.cache.plugins.module_utils import _managers

PROCESSES = "4026531836 root  ps -e -ww -o pidns=,user:64=,args=\n4026531836 %s  %s\n"


@pytest.mark.parametrize(("processes", "begins"), [
    (PROCESSES % ("postgres", "/usr/bin/python3 /usr/bin/patroni /etc/p.yml"), "Patroni runs on db1, and may treat a restart"),
    (PROCESSES % ("root", "repmgrd -f x"), "repmgr runs on db1"),
    ("- root pacemakerd\n", "Pacemaker runs on db1"),
    (PROCESSES % ("nobody", "patroni"), ""),
    ((PROCESSES % ("root", "patroni")).replace("6 root  patroni", "7 root  patroni"), ""),
    (PROCESSES % ("root", "cron"), ""),
    ("77 nobody  ps -e -ww -o pidns= x\n" + PROCESSES % ("root", "patroni"), "Patroni runs on db1"),
])
def test_managed(processes, begins):
    said = _managers.managed(processes, "postgres", "db1")
    assert said.startswith(begins) and bool(said) is bool(begins), said


def test_supervisor():
    assert all(map(_managers.is_supervisor, ("patroni", "repmgrd", "pacemaker-execd"[:15], "supervisord", "runsv")))
    assert not any(map(_managers.is_supervisor, ("systemd", "postgres", "sh")))
