# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operating system user postgres, and a host, attack the installation: they get no more than they have."""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from cluster import Cluster, copy_postgresql, run, thorough
from playbook import Ansible

COLLECTION = os.path.join(os.path.dirname(__file__), "../..")
SECRET = "only for root"


@pytest.fixture
def place():
    """On a real file system, and open to the server's user."""
    directory = tempfile.mkdtemp(prefix="pgfleet_hostile.", dir="/var/tmp")
    os.chmod(directory, 0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def victim(place):
    """A cluster with binaries of its own, and an inventory for it."""
    binaries = copy_postgresql(place)
    home = os.path.join(place, "run")
    os.mkdir(home)
    shutil.chown(home, "postgres", "postgres")
    cluster = Cluster(binaries, home, "data")
    cluster.create()
    cluster.libraries = os.path.join(place, "usr/lib/postgresql/15/lib")
    cluster.share = os.path.join(place, "usr/share/postgresql/15/extension")
    cluster.ansible = Ansible(place, {})
    cluster.temporary = os.path.join(place, "tmp")
    os.mkdir(cluster.temporary)
    os.chmod(cluster.temporary, 0o1777)

    def install(*arguments, timeout=None, **changed):
        cluster.ansible.set_hosts({"db1": {}}, **dict({
            "pgfleet_login_port": cluster.port,
            "pgfleet_login_unix_socket": cluster.socket,
            "cache_extension_pg_config": binaries + "/pg_config",
        }, **changed))
        return cluster.ansible.command("pgfleet.cache.install", *arguments, timeout=timeout, TMPDIR=cluster.temporary)

    cluster.install = install
    yield cluster
    cluster.stop("immediate")


@pytest.fixture
def secret(place):
    path = os.path.join(place, "secret")
    with open(path, "w") as file:
        file.write(SECRET)
    os.chmod(path, 0o600)
    return path


def found(directory):
    """Path, owner, mode and content of all that is installed there, and what kind of file it is."""
    listed = {}
    for path in glob.glob(directory + "/**", recursive=True):
        status = os.lstat(path)
        if os.path.isfile(path) and "pg_residency" in path:
            with open(path, "rb") as file:
                listed[os.path.relpath(path, directory)] = (pwd.getpwuid(status.st_uid).pw_name, oct(status.st_mode), file.read())
    return listed


# --- a process of postgres while root installs what postgres has built ---

PLANTER = """
import glob, os, sys, time
directory, secret, name = sys.argv[1:]
while True:
    time.sleep(0.002)
    for place in glob.glob(directory + "/pg_residency.*"):
        try:
            if os.stat(place).st_uid != os.getuid():
                continue
            if name in ("link", "pipe", "sparse"):
                if os.path.exists(place + "/source/pg_residency.so"):
                    new = place + "/new"
                    if name == "link":
                        os.symlink(secret, new)
                    elif name == "pipe":
                        os.mkfifo(new)
                    else:
                        with open(new, "w") as file:
                            file.truncate(1 << 40)
                    os.rename(new, place + "/source/pg_residency.so")
                    print(place, flush=True)
                continue
            os.makedirs(place + "/stage/etc", exist_ok=True)
            with open(place + "/stage/etc/" + name, "w") as file:
                file.write("planted")
            for folder, dummy, files in os.walk(place + "/stage"):
                for one in files:
                    if one.endswith((".sql", ".control")) or one == "pg_residency.so":
                        path = folder + "/" + one
                        os.symlink(secret, path + ".link")
                        os.rename(path + ".link", path)
            for path in glob.glob(place + "/source/sql/*.sql") + [place + "/source/pg_residency.control"]:
                with open(path, "a") as file:
                    file.write("-- planted\\n")
                print(path, flush=True)
        except OSError:
            pass
"""


@contextlib.contextmanager
def planter(victim, secret, name):
    """In the builds of this test, which are in a directory of its own. Yields the file with the names of what it has changed."""
    with tempfile.TemporaryFile("w+") as planted:
        process = subprocess.Popen(["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups",
                                    sys.executable, "-I", "-c", PLANTER, victim.temporary, secret, name], cwd="/", stdout=planted)
        try:
            yield planted
        finally:
            process.kill()
            process.wait()


def processes(directory):
    """Those that were started with this directory for temporary files: all of an installation."""
    listed = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if ("TMPDIR=" + directory).encode() in file.read().split(b"\0"):
                    with open("/proc/%s/cmdline" % pid, "rb") as file:
                        listed[int(pid)] = file.read()
        except OSError:
            pass
    return listed


@thorough
def test_what_postgres_plants_during_a_build_does_not_arrive(victim, place, secret):
    """Files of its own, links in place of those that are listed, other SQL: E 3."""
    name = "pgfleet-planted-%d.conf" % os.getpid()
    with planter(victim, secret, name) as planted:
        output, status = victim.install()
        planted.seek(0)
        assert planted.read(), "nothing was planted"
    try:
        assert not os.path.exists("/etc/" + name), output
    finally:
        if os.path.exists("/etc/" + name):
            os.unlink("/etc/" + name)
    assert status == 0, output
    installed = dict(found(victim.libraries), **found(victim.share))
    scripts = [os.path.basename(path) for path in glob.glob(COLLECTION + "/files/pg_residency/sql/*.sql")]
    assert sorted(installed) == sorted(["pg_residency.so", "pg_residency.sources", "pg_residency.control", *scripts])
    for file, (owner, mode, content) in installed.items():
        assert (owner, mode) == ("root", "0o100644"), file
        assert SECRET.encode() not in content and b"planted" not in content, file
    for script in scripts:
        with open(COLLECTION + "/files/pg_residency/sql/" + script, "rb") as file:
            assert installed[script][2] == file.read()


@thorough
@pytest.mark.parametrize("kind, why", [
    ("link", "it is a symbolic link"), ("pipe", "is not a regular file"), ("sparse", "has more than 8388608 bytes")])
def test_what_is_no_library_is_not_read(victim, secret, kind, why):
    """A link to a file that only root may read, a pipe without an end, a terabyte, in the place of what make has built."""
    try:
        with planter(victim, secret, kind) as planted:
            output, status = victim.install(timeout=120)
            planted.seek(0)
            assert planted.read(), "nothing was planted"
        assert status != 0, output
        assert why in " ".join(output.split()) and "If another process of that user interferes" in " ".join(output.split()), output
        assert not found(victim.libraries), output
        assert SECRET not in output
        assert not processes(victim.temporary)
    finally:
        for pid in processes(victim.temporary):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@thorough
def test_library_does_not_reach_the_terminal(victim):
    """As the result of a task, at any verbosity."""
    output, status = victim.install("-vvv")
    assert status == 0, output
    with open(victim.libraries + "/pg_residency.so", "rb") as file:
        assert base64.b64encode(file.read(300)).decode() not in output


@thorough
def test_pg_config_does_not_run_as_root(victim, place):
    """Not in check mode either: E 5."""
    log = os.path.join(place, "users")
    with open(log, "w"):
        pass
    os.chmod(log, 0o666)
    wrapper = os.path.join(place, "pg_config")
    with open(wrapper, "w") as file:
        file.write("#!/bin/sh\nid -un >> %s\nexec %s/pg_config \"$@\"\n" % (log, victim.bin))
    os.chmod(wrapper, 0o755)
    output, status = victim.install("--check", cache_extension_pg_config=wrapper)
    assert status == 0, output
    with open(log) as file:
        assert set(file.read().split()) == {"postgres"}
    output, status = victim.install("--check", cache_extension_pg_config=wrapper, cache_extension_build_user="root")
    assert status != 0 and "set it to an unprivileged operating system user" in " ".join(output.split()), output
    with open(log) as file:
        assert "root" not in file.read().split()


# --- where root writes ---


@thorough
def test_directories_of_another_user_are_written_by_that_user(victim, place):
    """As with PostgreSQL in a home directory. In one that is of two users, nothing is written."""
    run("chown", "-R", "postgres:", os.path.join(place, "usr"))
    run("chown", "root:", victim.libraries)
    output, status = victim.install()
    assert status != 0 and "must be PostgreSQL's own" in " ".join(output.split()), output
    assert not found(victim.libraries) and not found(victim.share)
    run("chown", "-R", "nobody:", os.path.join(place, "usr"))
    output, status = victim.install()
    assert status != 0 and "is neither root's nor postgres's" in " ".join(output.split()), output
    assert not found(victim.libraries) and not found(victim.share)
    run("chown", "-R", "postgres:", os.path.join(place, "usr"))
    output, status = victim.install("--diff")
    assert status == 0, output
    installed = dict(found(victim.libraries), **found(victim.share))
    assert {owner for owner, dummy, dummy2 in installed.values()} == {"postgres"}
    assert {mode for dummy, mode, dummy2 in installed.values()} == {"0o100644"}


@thorough
def test_root_does_not_write_below_a_directory_of_postgres(victim, place):
    """A root-owned directory that postgres can put another in the place of."""
    above = os.path.join(place, "usr/lib/postgresql")
    shutil.chown(above, "postgres")
    output, status = victim.install()
    assert status != 0 and "must be PostgreSQL's own" in " ".join(output.split()), output
    assert not found(victim.libraries) and not found(victim.share)


@thorough
@pytest.mark.parametrize("link", ["file", "directory"])
@pytest.mark.parametrize("names", [["SHAREDIR"], ["SHAREDIR", "PKGLIBDIR"]])
def test_root_does_not_write_where_a_link_of_postgres_leads(victim, place, names, link):
    """The server's superuser decides what pg_config says, and postgres what is there: it was any directory of root's."""
    target = os.path.join(place, "target")
    os.mkdir(target)
    lies = os.path.join(place, "run/lies")
    answers = {"SHAREDIR": lies, "PKGLIBDIR": lies + "/lib"}
    for name, file in ("SHAREDIR", "extension/plpgsql.control"), ("PKGLIBDIR", "lib/plpgsql.so"):
        there = os.path.join(target, os.path.basename(file) if link == "directory" else "any." + name)
        with open(there, "w"):
            pass
        path = os.path.join(lies, file)
        os.makedirs(os.path.dirname(os.path.dirname(path) if link == "directory" else path), exist_ok=True)
        if link == "directory":
            os.symlink(target, os.path.dirname(path))
        else:
            os.symlink(there, path)
    run("chown", "-R", "--no-dereference", "postgres:", lies)
    before = sorted(os.listdir(target))
    victim.sql(
        "SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_config AS SELECT name, CASE name %s ELSE setting END AS setting"
        " FROM pg_config()" % " ".join("WHEN '%s' THEN '%s'" % (name, answers[name]) for name in names))
    wrapper = os.path.join(place, "run/pg_config")
    with open(wrapper, "w") as file:
        file.write('#!/bin/sh\n[ "$*" != --pkglibdir ] || exec echo %s\nexec %s/pg_config "$@"\n' % (
            answers["PKGLIBDIR"] if "PKGLIBDIR" in names else victim.libraries, victim.bin))
    os.chmod(wrapper, 0o755)
    output, status = victim.install(cache_extension_pg_config=wrapper)
    assert sorted(os.listdir(target)) == before, output
    assert not found(victim.libraries) and not found(victim.share), output
    assert status != 0 and "by a symbolic link" in " ".join(output.split()), output


# --- what hosts answer ---


@thorough
def test_check_mode_shows_what_would_be_installed(victim):
    output, status = victim.install("--check", "--diff")
    assert status == 0, output
    assert "+CREATE FUNCTION residency_snapshot(" in output and "Would build %s/pg_residency.so" % victim.libraries in output
    assert not found(victim.libraries) and not found(victim.share)


# Whatever module it is, from the second on its answer has another release of the host.
LATER = """#!/usr/bin/python3
import json, os, subprocess, sys
with open("{count}", "a") as file:
    file.write(".")
done = subprocess.run(["/usr/bin/python3", *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE, universal_newlines=True)
text = done.stdout
if os.path.getsize("{count}") > 1 and text.lstrip().startswith("{{"):
    answer = json.loads(text)
    answer["ansible_facts"] = {{"distribution_release": "x/../../../../../tmp/escaped"}}
    text = json.dumps(answer)
sys.stdout.write(text)
"""


@pytest.fixture
def deb(place):
    """What the method deb does on a host that is asked for nothing but its facts, as far as check mode gets."""
    ansible = Ansible(place, {"db1": {}})
    folder = os.path.join(place, "a/b/c/d/packages")

    def look(release="bookworm", **variables):
        tasks = [
            {"ansible.builtin.set_fact": {
                "__cache_extension_release": release, "__cache_extension_os_family": "Debian", "__cache_extension_major": "15",
                "__cache_extension_server": {"query_result": [{"pkglibdir": "/usr/lib/postgresql/15/lib"}]},
            }},
            {"ansible.builtin.include_vars": {"file": os.path.abspath(COLLECTION) + "/roles/cache_extension/vars/debian.yml"}},
            {"ansible.builtin.include_role": {"name": "pgfleet.cache.cache_extension", "tasks_from": "deb"},
             "vars": {"cache_extension_deb_folder": folder}},
        ]
        ansible.set_hosts({"db1": variables})
        output, status = ansible.command(ansible.write(tasks), "--check")
        return " ".join(output.split()), status

    look.folder = folder
    return look


@thorough
@pytest.mark.parametrize("release", ["x/../../../../../tmp/escaped", "bookworm\nTrusted: yes", "../x"])
def test_release_that_is_a_path_is_refused(deb, place, release):
    """E 13"""
    output, status = deb(release)
    assert status != 0 and "The host returned an invalid answer: release" in output, output
    assert not os.path.exists(place + "/a"), output


@thorough
def test_release_that_becomes_a_path_later(deb, place):
    """The second module that runs on the host brings another one, after the first was checked."""
    python, count = os.path.join(place, "later-python"), os.path.join(place, "later-count")
    with open(python, "w") as file:
        file.write(LATER.format(count=count))
    os.chmod(python, 0o755)
    output, status = deb(ansible_python_interpreter=python)
    assert status == 0 and os.path.getsize(count) > 1 and "escaped" not in output, output
    assert re.search(r"Would build postgresql-15-pg-residency_\S+_bookworm_\S+[.]deb on db1", output), output
    os.unlink(count)


@thorough
def test_package_that_a_builder_has_made_up_is_not_handed_over(deb, place):
    """Another package, with a script that root would run, and a digest that fits: E 4."""
    output, status = deb()
    assert status == 0, output
    name = re.search(r"Would build (postgresql-15-pg-residency_\S+_bookworm_\S+[.]deb) on db1", output).group(1)
    evil = os.path.join(place, "evil")
    os.makedirs(evil + "/DEBIAN")
    with open(evil + "/DEBIAN/control", "w") as file:
        file.write("Package: evil\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: evil\n")
    with open(evil + "/DEBIAN/postinst", "w") as file:
        file.write("#!/bin/sh\nid > /tmp/owned\n")
    os.chmod(evil + "/DEBIAN/postinst", 0o755)
    os.makedirs(deb.folder)
    package = os.path.join(deb.folder, name)
    run("dpkg-deb", "--build", evil, package)
    with open(package, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    with open(package + ".json", "w") as file:
        json.dump({"sha256": digest, "md5sums": ""}, file)
    output, status = deb()
    assert status == 0, output
    assert "Would build " + name in output, output
    assert digest not in output, output


@thorough
def test_package_has_the_library_that_was_built(place):
    """The build of the method deb, without the installation, among the options that deb.yml sets for all its tasks."""
    ansible = Ansible(place, {"db1": {}})
    package = os.path.join(place, "packages/a.deb")
    options = {"package": package, "sources": "{{ __cache_extension_folder }}", "name": "postgresql-15-pg-residency", "version": "1",
               "major": "15", "architecture": "{{ __cache_extension_architecture.stdout }}"}
    play = ansible.write([
        {"ansible.builtin.setup": {"gather_subset": ["!all", "!min", "distribution"]}},
        {"ansible.builtin.command": {"argv": ["dpkg", "--print-architecture"]}, "register": "__cache_extension_architecture"},
        {"ansible.builtin.set_fact": {
            "__cache_extension_major": "15", "__cache_extension_release": "{{ ansible_facts['distribution_release'] }}",
            "__cache_extension_os_family": "Debian",
            "__cache_extension_debian_architecture": "{{ __cache_extension_architecture.stdout }}",
        }},
        {"ansible.builtin.include_vars": {"file": os.path.abspath(COLLECTION) + "/roles/cache_extension/vars/debian.yml"}},
        {"module_defaults": {"pgfleet.cache.residency_package": options}, "block": [
            {"ansible.builtin.include_role": {"name": "pgfleet.cache.cache_extension", "tasks_from": "deb_build"}}]},
    ])
    output, status = ansible.command(play)
    assert status == 0, output
    run("dpkg-deb", "--extract", package, place + "/extracted")
    with open(place + "/extracted/usr/lib/postgresql/15/lib/pg_residency.so", "rb") as file:
        assert file.read(4) == b"\x7fELF"
