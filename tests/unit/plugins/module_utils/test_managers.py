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
    (PROCESSES % ("postgres", "/usr/bin/python3 /usr/bin/patroni /etc/p.yml"), "Patroni keeps PostgreSQL on db1 running"),
    (PROCESSES % ("root", "repmgrd -f x"), "repmgr runs on db1"),
    (PROCESSES % ("postgres", "python3 -m patroni /etc/p.yml"), "Patroni keeps PostgreSQL on db1 running"),
    (PROCESSES % ("postgres", "/opt/venv/bin/python3.11 -sP -W ignore /opt/venv/bin/patroni /etc/p.yml"), "Patroni keeps PostgreSQL on db1 running"),
    (PROCESSES % ("postgres", "/usr/lib/postgresql/15/bin/repmgrd --daemonize=true"), "repmgr runs on db1"),
    (PROCESSES % ("postgres", "/usr/lib/postgresql/16/bin/pg_autoctl run --pgdata /d"), "pg_auto_failover runs on db1"),
    (PROCESSES % ("postgres", "/usr/local/bin/stolon-keeper --cluster-name=c"), "Stolon runs on db1"),
    (PROCESSES % ("root", "/usr/bin/java -cp /usr/edb/efm-4.8/lib/EFM-4.8.jar com.enterprisedb.efm.main.ServiceCommand __int_start"),
     "EDB Failover Manager runs on db1"),
    (PROCESSES % ("postgres", "/controller/manager instance run --log-level=info"), "CloudNativePG runs on db1"),
    (PROCESSES % ("postgres", "vi /etc/patroni"), ""),
    (PROCESSES % ("root", "/usr/bin/java -jar /opt/app.jar"), ""),
    (PROCESSES % ("root", "python3 /usr/share/patroni_exporter"), ""),
    ("- root pacemakerd\n", "Pacemaker runs on db1"),
    (PROCESSES % ("nobody", "patroni"), ""),
    ((PROCESSES % ("root", "patroni")).replace("6 root  patroni", "7 root  patroni"), ""),
    (PROCESSES % ("root", "cron"), ""),
    ("77 nobody  ps -e -ww -o pidns= x\n" + PROCESSES % ("root", "patroni"), "Patroni keeps PostgreSQL on db1 running"),
])
def test_managed(processes, begins):
    said = _managers.managed(processes, "postgres", "db1")
    assert said.startswith(begins) and bool(said) is bool(begins), said


def test_the_own_manager_is_none():
    patroni = PROCESSES % ("postgres", "python3 -m patroni /etc/p.yml")
    assert not _managers.managed(patroni, "postgres", "db1", "patroni")
    assert _managers.managed(patroni + "4026531836 root  pacemakerd\n", "postgres", "db1", "patroni").startswith("Pacemaker runs on db1")


def test_supervisor():
    assert all(map(_managers.is_supervisor, ("patroni", "repmgrd", "pacemaker-execd"[:15], "supervisord", "runsv")))
    assert not any(map(_managers.is_supervisor, ("systemd", "postgres", "sh")))
