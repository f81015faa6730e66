# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root at a socket of a cluster whose operating system user is hostile: where the socket leads, and which process is the session's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

import pytest
from cluster import OWNER, run, thorough
from conftest import PASSWORD
from hostile_owner import BOTH, EVICT, INFO, Neighbour, bounded, exchanged

IO = "query_io"


@pytest.fixture(scope="module")
def neighbour(cluster, machine):
    """Of another operating system user; root may log in."""
    one = Neighbour(machine)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def host(cluster, machine):
    """A server that root may log in to over its socket."""
    one = machine("host")
    with open(os.path.join(one.data, "pg_hba.conf"), "r+") as file:
        rules = file.read()
        file.seek(0)
        file.write("local all all trust\n" + rules)
    one.sql("SELECT pg_reload_conf(); CREATE ROLE keeper LOGIN PASSWORD '%s' IN ROLE pg_monitor" % PASSWORD)
    one.sql("CREATE TABLE wide AS SELECT repeat('x', 1000) AS filler FROM generate_series(1, 28000); CHECKPOINT")
    yield one
    one.stop("immediate")
    shutil.rmtree(one.data)


def login(cluster, **changed):
    return dict({"login_port": cluster.port, "login_unix_socket": cluster.socket}, **changed)


def postmaster(data):
    with open(os.path.join(data, "postmaster.pid")) as file:
        return int(file.readline())


# --- query_io: whose counters root reads ---


@pytest.fixture
def liar(host, neighbour):
    """It names a process of the neighbour's as the session's own, once the session is there.

    PostgreSQL calls a function of its own by its number, whatever the catalog has, unless it can inline what is there.
    """
    victim = int(run("pgrep", "--parent", str(neighbour.pid()), "--full", "checkpointer"))
    host.sql(
        "CREATE FUNCTION pg_catalog.true_pid() RETURNS int LANGUAGE internal STABLE AS 'pg_backend_pid';"
        "CREATE OR REPLACE FUNCTION pg_catalog.pg_backend_pid() RETURNS int LANGUAGE sql STABLE AS"
        " $$ SELECT CASE WHEN pg_catalog.current_setting('search_path') ~ '^pg_catalog' THEN %d ELSE pg_catalog.true_pid() END $$" % victim
    )
    host.victim = victim
    yield host
    host.sql(
        "CREATE OR REPLACE FUNCTION pg_catalog.pg_backend_pid() RETURNS int LANGUAGE internal STABLE AS 'pg_backend_pid';"
        "DROP FUNCTION pg_catalog.true_pid()"
    )


@pytest.mark.parametrize("kind", ["link", "pipe", "root's", "device"])
def test_a_file_with_a_query(host, ansible, tmp_path, kind):
    """Root reads it as the owner of the cluster: where a link of his leads, he has to be able to read himself."""
    directory = os.path.join(host.socket, "queries")
    run("mkdir", "-p", directory, user=OWNER)
    path, secret = os.path.join(directory, "q.sql"), str(tmp_path / "shadow")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("root:s3cret-of-root:19000:0")
    if kind == "pipe":
        run("mkfifo", path, user=OWNER)
    elif kind == "link":
        run("ln", "-s", secret, path, user=OWNER)
    else:
        path = secret if kind == "root's" else "/dev/zero"
    try:
        [result] = ansible.tasks([bounded(IO, queries=[{"name": "q", "path": path}], **login(host))])
    finally:
        shutil.rmtree(directory)
    why = "it is no regular file" if kind in ("pipe", "device") else "Permission denied"
    assert result["failed"] and result["msg"] == "q: cannot read %s: %s." % (path, why)
    with open(host.log) as file:
        assert "s3cret-of-root" not in file.read()


@pytest.mark.parametrize("user", ["postgres", "keeper"])
def test_root_measures_over_the_socket(host, ansible, user):
    """Also with a role that cannot ask where the data directory is."""
    host.sql("GRANT SELECT ON wide TO keeper")
    path = host.file_of("wide")
    host.cool(path)
    [result] = ansible.tasks([bounded(IO, query="SELECT count(filler) FROM wide", settings={"max_parallel_workers_per_gather": 0},
                                      **login(host, login_user=user))])
    assert not result.get("failed"), result["msg"]
    [found] = result["runs"]
    assert result["data_directory"] == host.data and found["plan"]
    assert found["device_bytes"] >= 0.9 * os.path.getsize(path) and found["backend_bytes"] == found["device_bytes"]


@thorough
def test_root_reads_no_counters_of_a_neighbour(liar, neighbour, ansible):
    results = ansible.tasks([bounded(IO, query="SELECT 1", check=check, **login(liar)) for check in (True, False)])
    for result in results:
        assert result["failed"] and result["runs"] == []
        assert result["msg"] == (
            "The server that listens at this Unix socket is process %d, and names process %d as this session's, which is a child of process"
            " %d: nothing is measured." % (postmaster(liar.data), liar.victim, neighbour.pid())
        ), result["msg"]


@thorough
def test_root_does_not_measure_over_tcp(host, ansible):
    """Nothing but the server's word would say which processes are its own."""
    [result] = ansible.tasks([
        bounded(IO, query="SELECT 1", login_host="127.0.0.1", login_port=host.port, login_user="keeper", login_password=PASSWORD)
    ])
    assert result["failed"] and result["msg"] == (
        "Over TCP, only the server itself tells its processes, which root does not trust: set login_unix_socket and no login_host, or become the"
        " cluster's operating system user."
    ), result["msg"]


# --- where the socket leads ---


@pytest.fixture(params=["link", "hard link", "link for the directory"])
def detour(host, neighbour, request):
    """What the user of the one cluster has put where root looks for that cluster's socket."""
    name = ".s.PGSQL.%d"
    there = os.path.join(neighbour.home, name % neighbour.port)
    folder = os.path.join(host.socket, "sockets")
    here = os.path.join(folder, name % host.port)
    if request.param == "link for the directory":
        os.symlink(neighbour.home, folder)
    else:
        os.mkdir(folder, 0o755)
        shutil.chown(folder, OWNER, OWNER)
        # the kernel lets users make such a hard link where fs.protected_hardlinks is 0
        (os.symlink if request.param == "link" else os.link)(there, here)
    os.chown(folder, pwd.getpwnam(OWNER).pw_uid, -1, follow_symlinks=False)
    yield {"login_port": neighbour.port if os.path.islink(folder) else host.port, "login_unix_socket": folder}
    if os.path.islink(folder):
        os.unlink(folder)
    else:
        shutil.rmtree(folder)


def psql(neighbour, text):
    return subprocess.run(
        [os.path.join(neighbour.bin, "psql"), "-XAtqc", text, "-h", neighbour.home, "-p", str(neighbour.port), "-U", "postgres", "postgres"],
        check=True, stdout=subprocess.PIPE, universal_newlines=True,
    ).stdout.strip()


@thorough
def test_a_link_to_a_neighbours_socket(detour, host, neighbour, ansible):
    """Root could log in there: it neither restarts nor changes nor asks that cluster."""
    before = neighbour.pid()
    results = ansible.tasks([
        bounded(EVICT, layers=BOTH, method="restart", **detour),
        bounded(EVICT, **detour),
        bounded("residency_extension", **detour),
        bounded("residency_snapshot", name="warm", **detour),
        bounded("residency_restore", name="warm", **detour),
        bounded(INFO, **detour),
        bounded("server_query", query="SELECT 1 AS one", **detour),
        bounded(IO, query="SELECT 1", **detour),
    ])
    assert neighbour.pid() == before
    assert psql(neighbour, "SELECT count(*) FROM pg_extension WHERE extname = 'pg_residency'") == "0"
    folder, port = detour["login_unix_socket"], detour["login_port"]
    expected = (
        "%s is a link that users other than root may have made, so root does not follow it: use the directory that it leads to, or become the"
        " cluster's operating system user." % folder
        if os.path.islink(folder) else
        "In %s, the socket of port %d leads to a server of user nobody, whose own socket is %s/.s.PGSQL.%d: root does not log in there."
        " Correct login_unix_socket and login_port, or become the cluster's operating system user."
        % (folder, port, neighbour.home, neighbour.port)
    )
    assert [(one.get("failed"), one["msg"]) for one in results] == [(True, expected)] * len(results)


@thorough
def test_a_directory_that_is_exchanged(host, neighbour, ansible):
    """At the connection it is one of his, with a link to the neighbour's socket, and a moment later root's."""
    own, roots = os.path.join(host.socket, "own"), os.path.join(host.socket, "roots")
    os.mkdir(own)
    shutil.chown(own, OWNER, OWNER)
    os.symlink(os.path.join(neighbour.home, ".s.PGSQL.%d" % neighbour.port), os.path.join(own, ".s.PGSQL.%d" % neighbour.port))
    os.mkdir(roots)
    try:
        with exchanged((own, roots)):
            ask = bounded("server_query", query="SELECT 1 AS one", login_port=neighbour.port, login_unix_socket=roots)
            results = ansible.tasks([ask] * 40)
        said = [result["msg"] for result in results]
        assert all(result.get("failed") for result in results), said
        assert any("root does not log in there" in one for one in said) and any("No such file" in one for one in said), "both were seen"
    finally:
        shutil.rmtree(own)
        shutil.rmtree(roots)


@thorough
def test_root_logs_in_where_it_was_sent(host, neighbour, ansible):
    """In the owner's directory, through an operator's link, and in a directory that everybody may write to, which has the socket itself."""
    shared = os.path.join(os.path.dirname(host.socket), "shared")
    link = os.path.join(os.path.dirname(host.socket), "operators")
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    os.symlink(shared, link)
    with open(os.path.join(neighbour.data, "postgresql.auto.conf"), "a") as file:
        file.write("unix_socket_directories = '%s, %s'\n" % (neighbour.home, shared))
    try:
        neighbour.run("pg_ctl", "restart", "--wait", "--silent", "-D", neighbour.data, "-l", os.path.join(neighbour.home, "log"))
        ask = {"query": "SELECT 1 AS one"}
        results = ansible.tasks([
            bounded("server_query", **ask, login_port=neighbour.port, login_unix_socket=neighbour.home),
            bounded("server_query", **ask, login_port=neighbour.port, login_unix_socket=shared),
            bounded("server_query", **ask, login_port=neighbour.port, login_unix_socket=link),
            bounded("server_query", **ask, **login(host)),
        ])
        for result in results:
            assert not result.get("failed") and result["query_result"] == [{"one": 1}], result["msg"]
    finally:
        os.unlink(link)
        shutil.rmtree(shared)
