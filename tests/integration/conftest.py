# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One cluster for all tests, made by initdb, its extension installed by the collection's own playbook."""

from __future__ import annotations

import os
import shutil
import tempfile

import hostile
import pytest
from cluster import MAJOR, Cluster, copy_postgresql, run
from playbook import Ansible, task

PASSWORD = "s3cret-0f-this-test"
HOSTS = ("one", "two", "three")
TABLES = """
CREATE TABLE passenger AS SELECT i AS passenger_id, repeat('x', 1000) AS name FROM generate_series(1, 24000) AS i;
CREATE INDEX passenger_id ON passenger (passenger_id);
CREATE TABLE "Boarding Pass" AS SELECT i AS pass_id, repeat('x', 1000) AS seat FROM generate_series(1, 8000) AS i;
VACUUM passenger, "Boarding Pass";
"""
STATE = "/var/lib/pgfleet"
ROLES = """
CREATE ROLE monitor LOGIN PASSWORD '%(password)s' IN ROLE pg_monitor;
CREATE ROLE operator LOGIN PASSWORD '%(password)s' IN ROLE pg_monitor, residency_admin;
CREATE ROLE keeper LOGIN PASSWORD '%(password)s' IN ROLE pg_monitor, pg_checkpoint;
CREATE ROLE app LOGIN PASSWORD '%(password)s';
""" % {"password": PASSWORD}


# Of two processes neither is to begin the longest when the other has nothing left to do.
LONGEST = ("rolling_restart", "playbooks", "messages", "records", "cold_test", "changes", "physical_io", "cuts")


def pytest_collection_modifyitems(items):
    order = ["test_%s.py" % name for name in LONGEST]
    items.sort(key=lambda item: order.index(item.path.name) if item.path.name in order else len(order))


shared = {}  # cluster that several files use -> what it was like before the file that is being run


def state_of(cluster):
    """What no file may leave in a cluster that others use after it."""
    with open(os.path.join(cluster.data, "postgresql.auto.conf")) as file:
        settings = [line.rstrip() for line in file if not line.startswith("#")]
    return {
        *("database " + line for line in cluster.sql("SELECT datname FROM pg_database").splitlines()),
        *("role " + line for line in cluster.sql("SELECT rolname, rolsuper, rolcanlogin FROM pg_roles").splitlines()),
        *("setting " + line for line in settings),
    }


def state_files():
    """The collection's state of this host; a lock has no content."""
    found = {}
    for directory, dummy, names in os.walk(STATE):
        for name in names:
            if name != ".lock":
                with open(os.path.join(directory, name), "rb") as file:
                    found[os.path.join(directory, name)] = file.read()
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(request):
    """The next file finds the shared clusters and the host's state as this one has found them."""
    files = state_files()
    yield
    wrong = []
    for cluster, before in shared.items():
        shared[cluster] = after = state_of(cluster)
        wrong += ["%s: %s was %s" % (cluster.data, what, "added" if what in after else "removed") for what in sorted(before ^ after)]
    left = state_files()
    wrong += ["%s was %s" % (path, "added" if path not in files else "removed" if path not in left else "changed")
              for path in sorted(files.keys() | left.keys()) if files.get(path) != left.get(path)]
    assert not wrong, "%s leaves behind: %s" % (request.path.name, "; ".join(wrong))


@pytest.fixture(scope="session")
def machine():
    """A folder that the server's user can reach, on a real file system, and PostgreSQL in it."""
    directory = tempfile.mkdtemp(prefix="pgfleet_integration.", dir="/var/tmp")
    os.chmod(directory, 0o755)
    clusters = []
    try:
        binaries = copy_postgresql(directory)
        home = os.path.join(directory, "run")
        os.mkdir(home)
        shutil.chown(home, "postgres", "postgres")

        def create(name, primary=None):
            cluster = Cluster(binaries, home, name)
            for old in [one for one in clusters if one.data == cluster.data]:  # of a module that this process comes back to
                old.stop("immediate")
                shutil.rmtree(old.data)
                clusters.remove(old)
            clusters.append(cluster)
            if primary is None:
                cluster.create()
            else:
                cluster.clone(primary)
            return cluster

        create.directory = directory
        create.bin = binaries
        yield create
    finally:
        for cluster in clusters:
            cluster.stop("immediate")
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def cluster(machine):
    cluster = machine("data")
    ansible = Ansible(machine.directory, {})
    ansible.set_hosts(
        {"db1": {}},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_extension_pg_config=cluster.bin + "/pg_config",
    )
    cluster.installed, status = ansible.command("pgfleet.cache.install")
    assert status == 0, cluster.installed
    cluster.sql(TABLES)
    cluster.sql(ROLES)
    cluster.sql("CREATE DATABASE without")
    cluster.sql("CHECKPOINT")
    run("sync", "--file-system", cluster.data)
    shared[cluster] = state_of(cluster)
    return cluster


@pytest.fixture
def login(cluster):
    """As the cluster's own user, over its socket."""
    return {"login_port": cluster.port, "login_unix_socket": cluster.socket}


@pytest.fixture
def by_password(cluster):
    def login(user, **changed):
        return dict(
            {"login_host": "127.0.0.1", "login_port": cluster.port, "login_user": user, "login_password": PASSWORD}, **changed
        )

    return login


@pytest.fixture
def ansible(machine):
    return Ansible(machine.directory, {"db1": {}})


@pytest.fixture
def as_postgres(ansible):
    """Run tasks as the cluster's operating system user."""

    def tasks(*some, **options):
        return ansible.tasks(list(some), become=True, become_user="postgres", **options)

    return tasks


# --- a cluster with a tenant in it, see hostile.py ---


@pytest.fixture(scope="session")
def shop(cluster, machine):
    """Database shop is the tenant's; in postgres, he may create in public, as anyone could before PostgreSQL 15."""
    shop = machine("hostile")
    shop.sql("CREATE EXTENSION pg_residency")
    shop.sql("CREATE ROLE tenant LOGIN; CREATE ROLE monitor LOGIN PASSWORD '%s' IN ROLE pg_monitor" % PASSWORD)
    shop.sql("CREATE DATABASE shop OWNER tenant")
    shop.sql("SET SESSION AUTHORIZATION tenant; CREATE SCHEMA evil", "shop")
    shop.sql("GRANT CREATE ON SCHEMA public TO tenant")
    hostile.plant(shop, "shop", "evil", casts=True)
    hostile.plant(shop, "shop", "public")
    hostile.plant(shop, "postgres", "public")
    shop.sql("SET SESSION AUTHORIZATION tenant;" + hostile.TABLES, "shop")
    shop.goods = shop.file_of("goods", "shop")
    shop.trap = hostile.Log(shop)
    shared[shop] = state_of(shop)
    return shop


@pytest.fixture
def nothing_sprung(shop):
    shop.trap.sprung()
    yield
    sprung, superuser = shop.trap.sprung(), hostile.is_superuser(shop)
    shop.sql("ALTER ROLE tenant NOSUPERUSER")  # for the next test
    assert (sprung, superuser) == ([], False)


@pytest.fixture(scope="session")
def set_up(shop, machine):
    """After the tests that compare with a database that has no such settings. The extension is in shop too."""
    [made] = Ansible(machine.directory, {"db1": {}}).tasks(
        [task("residency_extension", databases=["shop"], login_port=shop.port, login_unix_socket=shop.socket)],
        become=True, become_user="postgres",
    )
    assert not made.get("failed"), made["msg"]
    shop.sql("GRANT USAGE ON SCHEMA evil TO monitor; GRANT SELECT ON public.goods TO monitor", "shop")
    hostile.configure(shop, "DATABASE shop", MAJOR)
    hostile.configure(shop, "ROLE monitor", MAJOR)
    shared[shop] = state_of(shop)
    return shop


@pytest.fixture
def state_directory(tmp_path):
    """Where the server's user can read it, as on a host; pytest's folders are root's alone."""
    for folder in (tmp_path, *tmp_path.parents):
        if len(folder.parts) <= 2:  # /tmp
            break
        folder.chmod(folder.stat().st_mode | 0o011)
    return str(tmp_path / "state")


@pytest.fixture
def fleet(cluster, ansible, tmp_path, state_directory):
    """Three names of one cluster, which is all that these playbooks' common parts need."""
    ansible.set_hosts(
        {name: {} for name in HOSTS},
        pgfleet_login_port=cluster.port,
        pgfleet_login_unix_socket=cluster.socket,
        cache_extension_pg_config=cluster.bin + "/pg_config",
        pgfleet_results=str(tmp_path / "results"),
        pgfleet_state_directory=state_directory,
    )
    ansible.results = tmp_path / "results"
    cluster.sql("SELECT FROM residency_snapshot('warm', 1, true)")
    return ansible
