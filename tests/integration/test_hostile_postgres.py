# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the cluster's operating system user plants in the data directory, root neither runs, reads nor touches more for it."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from cluster import OWNER, heart, run, thorough
from conftest import PASSWORD
from hostile_owner import BOTH, EVICT, INFO, LIMIT, ROLES, SECONDS, SECRET, Hostile, Neighbour, attack, bounded, every_module, give, without_ansible
from playbook import documented, keys
from residency import is_there
from test_memory import MemoryCgroup


@pytest.fixture
def hostile(machine):
    home = os.path.join(machine.directory, "hostile")
    private = os.path.join(machine.directory, "private")
    os.mkdir(home, 0o755)
    give(home)
    os.mkdir(private, 0o700)
    one = Hostile(home, private)
    try:
        yield one
    finally:
        one.close()
        shutil.rmtree(home)
        shutil.rmtree(private)


# what is planted: a name, and how
PLANTED = {
    "a link for the directory of databases": lambda one: one.replace("base", one.private),
    "a link for a database": lambda one: one.replace("base/5", one.private + "/5"),
    "a link for the shared catalogs": lambda one: one.replace("global", one.private),
    "a link for a relation": lambda one: one.replace("base/5/16001", one.secret),
    "a link to a device": lambda one: one.replace("base/5/16002", "/dev/zero"),
    "a tablespace of root's": lambda one: one.replace("pg_tblspc/16385", one.private),
    "a tablespace that everybody may read": lambda one: one.replace("pg_tblspc/16386", "/usr"),
    "a link for all tablespaces": lambda one: one.replace("pg_tblspc", one.private),
    "a link for the version": lambda one: one.replace("PG_VERSION", one.secret),
    "an endless version": lambda one: one.replace("PG_VERSION", "/dev/zero"),
    "a pipe for the version": lambda one: one.pipe("PG_VERSION"),
    "a huge version": lambda one: one.sparse("PG_VERSION"),
    "a link for postmaster.pid": lambda one: one.replace("postmaster.pid", one.secret),
    "a pipe for postmaster.pid": lambda one: one.pipe("postmaster.pid"),
    "a huge postmaster.pid": lambda one: one.sparse("postmaster.pid"),
    "a number that is none": lambda one: one.write("postmaster.pid", "9" * 5000),
    "the first process": lambda one: one.write("postmaster.pid", "1\n"),
    "a pipe for a relation": lambda one: one.pipe("base/5/99999999"),
    "a huge relation": lambda one: one.sparse("base/5/88888888"),
    "a link for the snapshots": lambda one: one.replace("pg_residency", one.private),
    "a link for a snapshot": lambda one: one.replace("pg_residency/warm@1.snapshot", one.secret),
    "a link for names": lambda one: one.replace("pg_residency/warm@1.names", one.secret),
    "a pipe for a snapshot": lambda one: one.pipe("pg_residency/warm@1.snapshot"),
    "a pipe for names": lambda one: one.pipe("pg_residency/warm@1.names"),
    "a huge snapshot": lambda one: one.sparse("pg_residency/warm@1.snapshot"),
    "huge names": lambda one: one.sparse("pg_residency/warm@1.names"),
    "odd names": lambda one: [
        one.write("base/5/%s" % name, "x") for name in ("16003\n", "\x1b[31m16003", "\u0663", "16003 {{ 1 }}", "-rf", "16003.99999999999999999999")
    ],
}


@pytest.mark.parametrize("planted", heart(PLANTED, set(list(PLANTED)[::3]).__contains__))
def test_what_is_planted(hostile, planted):
    PLANTED[planted](hostile)
    attack(hostile, without_ansible)


@thorough
def test_much_is_planted(hostile, ansible):
    """By Ansible, what does not hide the rest."""
    for name in ("a link for a relation", "a link to a device", "a pipe for a relation", "a huge relation",
                 "a pipe for names", "the first process", "odd names"):
        PLANTED[name](hostile)
    hostile.pipe("pg_residency/warm@2.snapshot")
    results = attack(hostile, ansible.tasks)
    assert not results[0].get("failed") and results[0]["files"] == 2, results[0]["msg"]
    assert keys(results[0]) == documented(EVICT)
    assert "warm@2.snapshot" in results[5]["msg"]


def test_without_anything_planted(hostile):
    """The same modules do their work."""
    results = attack(hostile, without_ansible)
    assert [result.get("failed", False) for result in results] == [False, True, False, False, False, False, False, True, True], [
        one["msg"] for one in results
    ]
    assert results[0]["files"] == 2 and results[5]["total"]["blocks"] == 2


@thorough
@pytest.mark.parametrize("target", ["/proc/1/root", "private"])
def test_a_tablespace_of_another_is_left_out(hostile, target):
    """And only that one: the rest is evicted and counted, and a warning names what is missing."""
    hostile.replace("pg_tblspc/98", hostile.private if target == "private" else target)
    good = os.path.join(hostile.home, "good")
    os.makedirs(good + "/PG_15_202209061/5")
    for folder in ("", "/PG_15_202209061", "/PG_15_202209061/5"):
        give(good + folder)
    hostile.replace("pg_tblspc/99", good)
    hostile.write(good + "/PG_15_202209061/5/16009", "x" * 8192)
    results = attack(hostile, without_ansible)
    assert [result.get("failed", False) for result in results] == [False, True, False, False, False, False, False, True, True], [
        one["msg"] for one in results
    ]
    for at in (0, 2, 3, 4, 5, 6):
        [warning] = [one for one in results[at]["warnings"] if one.startswith("Tablespace")]
        assert warning.startswith("Tablespace 98 is left out: %s/pg_tblspc/98 is not read: " % hostile.data), warning
    assert results[0]["files"] == 3 and results[5]["total"]["blocks"] == 3
    places = results[6]["capabilities"]["locations"]
    assert [(one["path"], one["tablespace"]) for one in places] == [(hostile.data, None), (good, 99)]


@thorough
def test_what_is_no_file_is_counted(hostile):
    """What has the name of a relation's file, and is left out."""
    for name in ("a link for a relation", "a link to a device", "a pipe for a relation", "a huge relation"):
        PLANTED[name](hostile)
    results = attack(hostile, without_ansible)
    for at in (0, 2, 3, 5):
        assert results[at]["warnings"] == [
            "4 of the files of relations in %s are left out, since they are no regular files of the owner of the data directory:"
            " base/5/16001, base/5/16002, base/5/88888888 and others." % hostile.data
        ], results[at]["warnings"]


@thorough
def test_a_program_of_his_does_not_run_as_root(hostile, ansible):
    """The data directory is a link to a directory of root's that everybody may write to."""
    elsewhere = os.path.join(hostile.home, "elsewhere")
    os.mkdir(elsewhere)
    os.chmod(elsewhere, 0o1777)
    shutil.rmtree(hostile.data)
    os.symlink(elsewhere, hostile.data)
    process = hostile.process(elsewhere)
    program = hostile.program("pg_ctl")
    hostile.write("PG_VERSION", "15\n")
    hostile.write("postmaster.opts", '%s/postgres "-D" "%s"\n' % (hostile.home, hostile.data))
    hostile.write("postmaster.pid", "%d\n%s\n%d\n" % (process.pid, elsewhere, time.time()))
    results = attack(hostile, without_ansible)
    assert hostile.ran() == [] and os.path.exists(program)
    for result in results[:6]:
        assert result["msg"] == (
            "%s is a link that users other than root may have made, so root does not follow it: use the directory that it leads to, or become the"
            " cluster's operating system user." % hostile.data
        )
    assert hostile.ran() == []
    for result in attack(hostile, ansible.tasks, [bounded(EVICT, data_directory=path, layers=BOTH, method="restart") for path in (elsewhere,)]):
        assert result["msg"].startswith("%s belongs to root: " % elsewhere), result["msg"]
    assert hostile.ran() == []


@thorough
def test_his_own_program_runs_as_he(hostile, ansible):
    """In a data directory that is as it should be, what postmaster.opts names is his affair."""
    process = hostile.process(hostile.data)
    hostile.program("pg_ctl")
    hostile.write("postmaster.opts", '%s/postgres "-D" "%s"\n' % (hostile.home, hostile.data))
    hostile.write("postmaster.pid", "%d\n" % process.pid)
    [result] = attack(hostile, ansible.tasks, [bounded(EVICT, data_directory=hostile.data, layers=BOTH, method="restart")])
    assert result["failed"] and not result["changed"]
    assert {who for who, dummy in hostile.ran()} == {str(pwd.getpwnam(OWNER).pw_uid)}


@thorough
def test_an_operators_link_is_followed(hostile, ansible, machine):
    """Made by root where only root could."""
    link = os.path.join(machine.directory, "link")
    os.symlink(hostile.data, link)
    try:
        [result] = ansible.tasks([bounded(EVICT, data_directory=link)])
    finally:
        os.unlink(link)
    assert not result.get("failed") and result["files"] == 2, result["msg"]


@pytest.fixture(scope="module")
def plain(machine):
    """A server without the extension."""
    one = machine("plain")
    one.sql("CREATE ROLE keeper LOGIN PASSWORD '%s' IN ROLE pg_monitor, pg_checkpoint" % PASSWORD)
    return one


@thorough
def test_root_logs_in_as_the_owner(plain, ansible):
    """The data directory named; the owner's own name is who it is at the socket."""
    login = {"login_port": plain.port, "login_unix_socket": plain.socket}
    keeper = {"login_host": "127.0.0.1", "login_port": plain.port, "login_user": "keeper", "login_password": PASSWORD}
    results = ansible.tasks([
        bounded(EVICT, data_directory=plain.data, **login),
        bounded(EVICT, data_directory=plain.data, **keeper),
        bounded(EVICT, data_directory=plain.data, check=True, layers=BOTH, **login),
    ])
    for result in results[:2]:
        assert not result.get("failed") and result["files"] > 0, result["msg"]
        assert keys(result) == documented(EVICT)
    assert results[2]["msg"] == "PostgreSQL 15 empties its shared buffers only by a restart: set method to restart."


@pytest.fixture
def neighbour(machine):
    one = Neighbour(machine)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def liar(cluster, machine, neighbour):
    """A server that root may log in to over its socket, and that names the neighbour's data directory as its own."""
    one = machine("liar")
    with open(os.path.join(one.data, "pg_hba.conf"), "r+") as file:
        rules = file.read()
        file.seek(0)
        file.write("local all all trust\n" + rules)
    one.sql("SELECT pg_reload_conf(); CREATE ROLE keeper LOGIN PASSWORD '%s' IN ROLE pg_monitor, pg_checkpoint" % PASSWORD)
    one.sql("CREATE EXTENSION pg_residency")
    definition = one.sql("SELECT pg_get_functiondef('pg_catalog.current_setting(text)'::regprocedure)")
    one.sql(
        "CREATE OR REPLACE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql STABLE AS"
        " $$ SELECT CASE WHEN $1 = 'data_directory' THEN '%s' ELSE pg_catalog.current_setting($1, false) END $$" % neighbour.data
    )
    one.tell_the_truth = lambda: one.sql(definition)
    yield one
    one.stop("immediate")
    shutil.rmtree(one.data)


@thorough
def test_a_server_does_not_send_root_to_its_neighbour(liar, neighbour, ansible):
    """Whose data directory it is, the kernel says, and not a server whose superuser has replaced current_setting()."""
    login = {"login_port": liar.port, "login_unix_socket": liar.socket}
    by_tcp = {"login_host": "127.0.0.1", "login_port": liar.port, "login_user": "keeper", "login_password": PASSWORD}
    table = os.path.join(neighbour.data, "base", "5", "1255")
    subprocess.run(["cat", table], stdout=subprocess.DEVNULL, check=True)
    before = neighbour.pid()
    assert is_there(table)

    def tasks(places):
        return [
            bounded(module, **arguments, **place)
            for place in places
            for module, arguments in ((EVICT, {}), (EVICT, {"layers": BOTH, "method": "restart"}), (INFO, {"subset": ["capabilities"]}))
            if place is login or module is EVICT
        ]

    results = ansible.tasks(tasks([login, by_tcp]))
    assert neighbour.pid() == before and is_there(table)
    for result in results[:3]:
        assert result.get("failed") and result["msg"] == (
            "The server that listens at this Unix socket is process %d, and reports the data directory %s, where that process does not run: set"
            " data_directory, or become the cluster's operating system user."
            % (int(liar.sql("SELECT pg_read_file('postmaster.pid')").split()[0]), neighbour.data)
        ), result["msg"]
    for result in results[3:]:
        assert result.get("failed") and result["msg"].startswith("Over TCP, only the server itself tells"), result["msg"]
    liar.tell_the_truth()
    results = ansible.tasks([bounded(EVICT, **login), bounded(INFO, subset=["capabilities"], **login)])
    for result in results:
        assert not result.get("failed") and result["data_directory"] == liar.data, result["msg"]


def environment(cluster):
    with open(os.path.join(cluster.data, "postmaster.pid")) as file:
        pid = file.readline().strip()
    with open("/proc/%s/environ" % pid, "rb") as file:
        return file.read().decode().split("\0")


@thorough
def test_roots_environment_stays_roots(plain, ansible):
    """What root's environment has does not go to the server; what the server had, it has again."""
    plain.stop()
    run("env", "ARCHIVE_TARGET=here", plain.bin + "/pg_ctl", "start", "--wait", "--silent", "-D", plain.data, "-l", plain.log, user=OWNER)
    before = {word for word in environment(plain) if not word.startswith("PG_GRANDPARENT_PID=")}
    assert "ARCHIVE_TARGET=here" in before
    [result] = ansible.tasks(
        [bounded(EVICT, data_directory=plain.data, layers=BOTH, method="restart")], environment={"VAULT_TOKEN": SECRET}
    )
    assert not result.get("failed") and result["restarted"], result["msg"]
    after = {word for word in environment(plain) if not word.startswith("PG_GRANDPARENT_PID=")}
    assert SECRET not in str(after)
    assert after == before
    with open(os.path.join(plain.data, "postmaster.opts")) as file:
        assert SECRET not in file.read()


@thorough
@pytest.mark.parametrize("kind", ["link", "quote", "empty", "pipe", "huge"])
def test_how_it_was_started(hostile, kind):
    """Of postmaster.opts, only a small file of the owner's is read, and no word of another goes anywhere."""
    process = hostile.process(hostile.data)
    os.mkdir(os.path.join(hostile.home, "bin"))
    hostile.program("bin/pg_ctl")
    hostile.write("postmaster.pid", "%d\n" % process.pid)
    if kind == "link":
        hostile.replace("postmaster.opts", hostile.secret)
    elif kind == "pipe":
        hostile.pipe("postmaster.opts")
    elif kind == "huge":
        hostile.sparse("postmaster.opts")
    else:
        hostile.write("postmaster.opts", "%s/bin/postgres \"-D" % hostile.home if kind == "quote" else "")
    results = attack(hostile, without_ansible)
    assert hostile.ran() == []
    message = results[3]["msg"]
    if kind in ("quote", "empty"):
        assert message == "%s/postmaster.opts does not hold a command: PostgreSQL writes it at each start." % hostile.data
    else:
        assert message.startswith("%s/postmaster.opts is not read: it is " % hostile.data)


@thorough
def test_a_foreign_process_is_not_his_server(hostile):
    """However fast he exchanges the directory, between its postmaster.pid and the comparison of its path."""
    foreign = os.path.join(hostile.home, "foreign")
    os.mkdir(foreign, 0o700)
    shutil.chown(foreign, "nobody", "nogroup")
    process = hostile.process(foreign, user="nobody")
    hostile.write("postmaster.pid", "%d\n" % process.pid)
    for name, target in (("one", hostile.data), ("two", foreign)):
        os.symlink(target, os.path.join(hostile.home, name))
    program = """
import sys, time
from ansible_collections.pgfleet.cache.plugins.module_utils import _page_cache
try:
    from ansible_collections.pgfleet.cache.plugins.module_utils import _data_directory
    opened = _data_directory._opened
except ImportError:
    opened = {}
end, calls = time.monotonic() + 8, 0
while time.monotonic() < end or calls < 500:
    calls += 1
    try:
        for path in sys.argv[1:]:
            if _page_cache.postmaster_pid(path) is not None:
                sys.exit("a foreign process, after %d calls" % calls)
    except Exception:
        pass
    opened.clear()
print(calls)
"""
    real = os.path.join(hostile.home, "three")
    os.mkdir(real, 0o700)
    give(real)
    with hostile.exchanged(("one", "two"), ("data", "three")):
        done = subprocess.run(
            [sys.executable, "-c", program, os.path.join(hostile.home, "one"), hostile.data], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=os.environ["ANSIBLE_COLLECTIONS_PATH"]), universal_newlines=True, check=False,
        )
    assert done.returncode == 0, done.stderr


@thorough
def test_a_foreign_process_is_not_limited(hostile):
    cgroup = MemoryCgroup("foreign")
    process = hostile.process(hostile.private, user="root")
    try:
        with open(os.path.join(cgroup.folder, "cgroup.procs"), "w") as file:
            file.write(str(process.pid))
        limit = os.path.join(cgroup.folder, "memory.limit_in_bytes" if cgroup.v1 else "memory.max")
        with open(limit) as file:
            before = file.read()
        hostile.write("postmaster.pid", "%d\n" % process.pid)
        for name, target in (("one", hostile.data), ("two", hostile.private)):
            os.symlink(target, os.path.join(hostile.home, name))
        with hostile.exchanged(("one", "two")):
            attack(hostile, without_ansible, [
                bounded(LIMIT, data_directory=data, method="cgroup", size="1GB")
                for data in [os.path.join(hostile.home, "one"), hostile.data] * 100
            ])
        with open(limit) as file:
            assert file.read() == before
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        cgroup.remove()


@thorough
def test_everything_exchanged_while_modules_run(hostile):
    """Each name is, in turn, what it should be and a way out."""
    process = hostile.process(hostile.data)
    hostile.program("pg_ctl")
    hostile.write("postmaster.opts", '%s/postgres "-D" "%s"\n' % (hostile.home, hostile.data))
    hostile.write("postmaster.pid", "%d\n" % process.pid)
    pairs = []
    for name, target in {
        "base": hostile.private, "global": hostile.private, "pg_tblspc": hostile.private, "PG_VERSION": hostile.secret,
        "postmaster.opts": hostile.secret, "postmaster.pid": hostile.secret, "pg_residency": hostile.private,
    }.items():
        other = os.path.join(hostile.home, "other." + name)
        os.symlink(target, other)
        pairs.append(("data/" + name, other))
    os.symlink(hostile.private, os.path.join(hostile.home, "link"))
    with hostile.exchanged(*pairs, ("data", "link")):
        attack(hostile, without_ansible, every_module(hostile.data) * 20)
    assert {who for who, dummy in hostile.ran()} <= {str(pwd.getpwnam(OWNER).pw_uid)}


def call(program, *words, seconds=SECONDS):
    """Of the modules' own functions, as root."""
    return subprocess.run(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=seconds,
        env=dict(os.environ, PYTHONPATH=os.environ["ANSIBLE_COLLECTIONS_PATH"]), check=False,
    ).stdout


@thorough
def test_a_process_is_no_cluster_by_its_name(plain, machine, hostile):
    """Any user's, with huge memory or without, would keep the host's cache and its huge pages as they are."""
    program = os.path.join(hostile.home, "postgres")
    shutil.copy("/bin/sleep", program)
    os.mkdir(os.path.join(hostile.home, "nobodys"), 0o755)
    for folder in (hostile.home, hostile.data, os.path.join(hostile.home, "nobodys")):
        hostile.processes.append(subprocess.Popen([program, "600"], cwd=folder, user="nobody", group="nogroup"))
    hostile.write("postmaster.pid", "%d\n" % hostile.processes[1].pid)  # of another user
    with open(os.path.join(hostile.home, "nobodys", "postmaster.pid"), "w") as file:
        file.write("%d\n" % os.getpid())
    shutil.chown(file.name, "nobody", "nogroup")
    found = call(
        "from ansible_collections.pgfleet.cache.plugins.module_utils import _processes\n"
        "print([one.postmaster.pid for one in _processes.clusters()])"
    )
    with open(os.path.join(plain.data, "postmaster.pid")) as file:
        assert int(file.readline()) in json.loads(found)
    assert not {one.pid for one in hostile.processes} & set(json.loads(found))


@thorough
@pytest.mark.parametrize("moment", ["working", "ended"])
def test_a_process_that_its_user_stops(moment):
    """Root does not wait for it for ever."""
    output = call("""
import os, pwd, signal, sys
from ansible_collections.pgfleet.cache.plugins.module_utils import _privileges
_privileges.LONGEST_SILENCE = 1.0

def work(ask):
    if sys.argv[2] == "working":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        os._exit = lambda status: os.kill(os.getpid(), signal.SIGSTOP)
    return 7

try:
    print(_privileges.run_as(pwd.getpwnam(sys.argv[1]), [], work, {}))
except _privileges.ResidencyError as error:
    print(error)
""", OWNER, moment)
    if moment == "ended":
        assert output == "7\n"
    else:
        assert re.fullmatch(
            r"The process that worked as %s \(\d+\) has sent nothing for 1 seconds, and was killed: check whether that user has stopped it, and the"
            " state of the cluster.\n" % OWNER, output), output


@thorough
def test_a_program_does_not_import_from_where_it_is(ansible, tmp_path):
    """What the roles run by an interpreter, in a directory that somebody else has filled."""
    with open(os.path.join(ROLES, "cache_common/tasks/traffic/haproxy/ask.yml")) as file:
        command = yaml.safe_load(file)[0]["ansible.builtin.command"]["argv"]
    place = {"socket": "/nowhere.sock", "backend": "read", "server": "db1"}
    [shown] = ansible.tasks([{"ansible.builtin.debug": {"msg": command}}], vars={"__cache_common_place": place, "__cache_common_await": []})
    words = shown["msg"]
    assert words[0] == "python3" and words[-1] == "/nowhere.sock"
    for name in ("json", "csv", "socket"):
        (tmp_path / (name + ".py")).write_text("open(%r, 'w')\n" % str(tmp_path / "marker"))
    with open(os.path.join(ROLES, "cache_common/tasks/traffic/haproxy/servers.py")) as file:
        subprocess.run(words, cwd=str(tmp_path), stdin=file, stderr=subprocess.DEVNULL, check=False)
    assert not (tmp_path / "marker").exists()


@thorough
def test_a_cold_test_of_a_neighbour(ansible, hostile):
    """What restarts as root is told where by a module that ran as the cluster's user, who decides what that one says."""
    with open(os.path.join(ROLES, "cache_cold_test", "tasks", "look.yml")) as file:
        steps = [one for one in yaml.safe_load(file) if "owner of the data directory" in one["name"] or "user of the cluster" in one["name"]]
    assert len(steps) == 2
    foreign = os.path.join(hostile.home, "foreign")
    os.mkdir(foreign, 0o700)
    shutil.chown(foreign, "nobody", "nogroup")
    results = [
        ansible.tasks(steps, vars={"__cache_cold_test_planned": {"data_directory": path}, "pgfleet_become_user": OWNER})[1]
        for path in (hostile.data, foreign)
    ]
    assert not results[0].get("failed"), results[0]
    assert results[1]["failed"] and results[1]["msg"].startswith("%s does not belong to postgres: " % foreign), results[1]
