# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What install costs where there is nothing to do, what it finds out about hosts on which somebody else has been at work, and who installs what."""

from __future__ import annotations

import glob
import os
import pwd
import re
import shutil
import tempfile

import pytest
from cluster import Cluster, copy_postgresql, quick, run, thorough
from playbook import BANNER, Ansible, banners, recap
from test_playbooks import OLDEST, common_variables

COLLECTION = os.path.normpath(os.path.join(os.path.dirname(__file__), "../.."))
ROLE_FILES = COLLECTION + "/roles/cache_extension/files"
with open(COLLECTION + "/files/pg_residency/pg_residency.control") as control_file:
    VERSION = re.search("default_version = '(.+)'", control_file.read()).group(1)


@quick
@pytest.mark.parametrize("mode", [[], ["--check"]], ids=["real", "check"])
def test_what_an_install_with_nothing_to_do_costs(fleet, mode):
    """It was 17 remote calls, of which two were apt's, and 62 lines of plays and tasks."""
    output, status = fleet.command("pgfleet.cache.install", "-vvv", "--limit", "one", *mode)
    assert status == 0, output
    calls = re.findall(r"^<one> EXEC .*python3", output, re.MULTILINE)
    assert len(calls) <= 17 // 3 and len(banners(output)) <= 42, "%d calls, %d banners" % (len(calls), len(banners(output)))
    assert "AnsiballZ_apt" not in output
    assert recap(output)["one"]["changed"] == 0


def append(path):
    with open(path, "a") as file:
        file.write("-- altered\n")


def close_file(path):
    os.chmod(path, 0o600)


def open_file(path):
    os.chmod(path, 0o666)


def give_away(path):
    shutil.chown(path, "postgres")


def leave(path):
    shutil.copy(path, path.replace(VERSION, "0.0.9"))


CONTROL, SCRIPT, LIBRARY = "share/extension/pg_residency.control", "share/extension/pg_residency--%s.sql" % VERSION, "lib/pg_residency.so"


@pytest.mark.parametrize("name, harm", [
    (CONTROL, give_away), *(pytest.param(*one, marks=thorough) for one in (
        (SCRIPT, append),
        (CONTROL, os.unlink), (SCRIPT, open_file), (SCRIPT, leave), (LIBRARY, close_file), (LIBRARY, append),
    )),
])
def test_an_install_repairs_what_was_done_by_hand(fleet, cluster, name, harm):
    """Also where the record beside the library still says that all is there."""
    top = os.path.normpath(os.path.join(cluster.bin, "../../../.."))
    places = {kind: os.path.join(top, kind, "postgresql/15") for kind in ("lib", "share")}
    kind, rest = name.split("/", 1)
    path = os.path.join(places[kind], "lib" if kind == "lib" else "", rest)

    def there():
        return {
            file: (os.stat(file).st_uid, oct(os.stat(file).st_mode), open_bytes(file))
            for file in glob.glob(places["share"] + "/extension/pg_residency*") + glob.glob(places["lib"] + "/lib/pg_residency.so")
        }

    before = there()
    harm(path)
    assert there() != before
    output, status = fleet.command("pgfleet.cache.install", "--limit", "one", "--check")
    assert status == 0 and "the files would be installed" in output, output
    several = name == LIBRARY and harm is append  # inventory hosts of one host, at the same time
    output, status = fleet.command("pgfleet.cache.install", *([] if several else ["--limit", "one"]))
    assert status == 0 and there() == before, output


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


RESTART = """
- name: Restart PostgreSQL
  ansible.builtin.command: {bin}/pg_ctl restart --wait --silent --mode=fast --pgdata={data} --log={log}
  become: true
  become_user: postgres
  changed_when: true
"""


@thorough
def test_an_install_sees_what_the_server_has_loaded(fleet, machine, cluster, tmp_path):
    """A library that was replaced while the server that preloads it ran; a script of it takes no restart."""
    one = machine("loaded")
    one.sql("ALTER SYSTEM SET shared_preload_libraries = 'pg_residency'")
    one.stop()
    one.start()
    service = tmp_path / "restart.yml"
    service.write_text(RESTART.format(bin=one.bin, data=one.data, log=one.log))
    variables = dict(common_variables(fleet), pgfleet_login_port=one.port, pgfleet_service_manager=str(service))
    fleet.set_hosts({"one": {}}, **variables)

    def install(*arguments, restart=False):
        started = one.sql("SELECT pg_postmaster_start_time()")
        output, status = fleet.command("pgfleet.cache.install", "-e", "cache_extension_restart=%s" % restart, *arguments)
        assert status == 0, output
        return output, one.sql("SELECT pg_postmaster_start_time()") != started

    output, restarted = install(restart=True)
    assert not restarted and "extension" in output, output
    library, script = (os.path.join(cluster.bin, "../../../../" + path) for path in (
        "lib/postgresql/15/lib/pg_residency.so", "share/postgresql/15/extension/pg_residency--%s.sql" % VERSION))
    append(script)
    output, restarted = install(restart=True)
    assert not restarted and "-- altered" not in open_bytes(script).decode(), output
    shutil.copy(library, library + ".new")
    os.rename(library + ".new", library)
    output, restarted = install()
    assert "PostgreSQL has to be restarted to load the new library" in output and not restarted
    output, restarted = install("--check", restart=True)
    assert "PostgreSQL would be restarted" in output and not restarted
    output, restarted = install(restart=True)
    assert restarted, output
    for restart in (False, True):
        output, restarted = install(restart=restart)
        assert not restarted and recap(output)["one"]["changed"] == 0 and "restarted" not in BANNER.sub("", output), output
    one.stop()


@thorough
def test_a_removal_says_what_it_did(fleet, machine):
    """The files are other servers', too. With the oldest Ansible."""
    one = machine("removed")
    try:
        one.sql("CREATE EXTENSION pg_residency")
        fleet.set_hosts({"one": {}}, **dict(common_variables(fleet), pgfleet_login_port=one.port))
        for more, words in (
            (["--check"], "would be removed; the files stay for"), ([], "removed; the files stay for"),
            (["--check"], "the files stay for"), ([], "the files stay for"),
        ):
            output, status = fleet.command(
                "pgfleet.cache.install", "-e", "cache_extension_state=absent", *more, PATH=OLDEST + "/bin:" + os.environ["PATH"])
            assert status == 0 and re.search(r"\bone +15\S* +primary +- +" + words, output), output
    finally:
        one.stop()


def test_debians_clusters_are_named(tmp_path):
    """Running or not; no more than one is this server's own, whatever it says."""
    for name in ("main", "reports"):
        (tmp_path / "15" / name).mkdir(parents=True)

    def users(name, clusters="15"):
        return run("sh", ROLE_FILES + "/users.sh", "/nonexistent", "/", name, str(tmp_path / clusters)).splitlines()

    assert users("15/main") == ["the cluster 15/reports"]
    assert users("") == users("15/gone") == ["the cluster 15/main", "the cluster 15/reports"]
    assert users("15/main", "16") == []


# --- who builds and installs: root only what root alone can change ---


@pytest.fixture
def place():
    """On a real file system, and open to the server's user, with a copy of PostgreSQL."""
    directory = tempfile.mkdtemp(prefix="pgfleet_install.", dir="/var/tmp")
    os.chmod(directory, 0o755)
    copy_postgresql(directory)
    yield directory
    shutil.rmtree(directory)


LIBRARIES, EXTENSION, PG_CONFIG = "usr/lib/postgresql/15/lib", "usr/share/postgresql/15/extension", "usr/lib/postgresql/15/bin/pg_config"


def look(place):
    """What the role finds out of a host, without Ansible."""
    lines = run("sh", ROLE_FILES + "/look.sh", os.path.join(place, PG_CONFIG), "dpkg-query", "--search").splitlines()
    return dict(line.split("=", 1) for line in lines)


def give(place, path, owner="postgres"):
    run("chown", "--recursive", owner, os.path.join(place, path))


def test_root_takes_no_directory_that_another_user_can_change(place):
    assert look(place)["user"] == "root"
    above = os.path.join(place, "usr/share/postgresql")
    shutil.chown(above, "postgres")
    assert look(place) == {"problem": "%s can be changed by postgres, but %s by root." % (above, os.path.join(place, PG_CONFIG))}
    shutil.chown(above, "root")
    os.chmod(above, 0o777)
    assert look(place)["problem"].startswith(above + " can be changed by more users than root")
    os.chmod(above, 0o1777)  # nobody can replace what is in it
    assert look(place)["user"] == "root"
    give(place, "usr")
    assert look(place)["user"] == "postgres"
    give(place, LIBRARIES, "root")
    assert look(place)["problem"] == "postgres cannot write to %s." % os.path.join(place, LIBRARIES)
    shutil.move(os.path.join(place, PG_CONFIG), place + "/pg_config")
    os.symlink(place + "/pg_config", os.path.join(place, PG_CONFIG))
    assert look(place) == {"problem": "%s is %s/pg_config, by a symbolic link." % (os.path.join(place, PG_CONFIG), place)}
    os.unlink(os.path.join(place, PG_CONFIG))
    assert look(place) == {"problem": "There is no %s." % os.path.join(place, PG_CONFIG)}


@thorough
def test_the_owner_of_postgresql_installs(place):
    """As with PostgreSQL in a home directory: root runs nothing of it, and a second run changes nothing. Root has the path of who connects."""
    home = os.path.join(place, "run")
    os.mkdir(home)
    program, log = os.path.join(place, PG_CONFIG), os.path.join(home, "users")
    os.rename(program, program + ".real")
    with open(program, "w") as file:
        file.write('#!/bin/sh\nid -un >> %s\nexec %s.real "$@"\n' % (log, program))
    os.chmod(program, 0o755)
    give(place, "")
    cluster = Cluster(os.path.dirname(program), home, "data")
    cluster.create()
    ansible = Ansible(place, {})
    ansible.set_hosts(
        {"db1": {}}, pgfleet_login_port=cluster.port, pgfleet_login_unix_socket=cluster.socket, cache_extension_pg_config=program, pgfleet_results="")
    try:
        for arguments, changes in (["--check"], True), ([], True), (["--check"], False), ([], False):
            path = ":".join(one for one in os.environ["PATH"].split(":") if not one.endswith("sbin"))
            output, status = ansible.command("pgfleet.cache.install", *arguments, PATH=path)
            assert status == 0 and (recap(output)["db1"]["changed"] > 0) == changes, output
    finally:
        cluster.stop("immediate")
    with open(log) as file:
        assert set(file.read().split()) == {"postgres"}
    installed = glob.glob(os.path.join(place, LIBRARIES, "pg_residency*")) + glob.glob(os.path.join(place, EXTENSION, "pg_residency*"))
    assert {pwd.getpwuid(os.stat(path).st_uid).pw_name for path in installed} == {"postgres"} and len(installed) >= 4


@pytest.mark.parametrize("way", ["ansible-galaxy", pytest.param("tar", marks=thorough)])
def test_an_installation_without_galaxy(fleet, tmp_path, way):
    """As README.md describes it: the dependency comes from PyPI, the collection from a file."""
    run("sh", "-c", 'cd "$1" && ansible-galaxy collection build --output-path "$2"', "sh", COLLECTION, str(tmp_path), timeout=120)
    [archive] = glob.glob(str(tmp_path / "*.tar.gz"))
    target = tmp_path / "collections"
    if way == "tar":
        unpacked = target / "ansible_collections/pgfleet/cache"
        unpacked.mkdir(parents=True)
        run("tar", "-xzf", archive, "-C", str(unpacked))
    else:
        run("env", "ANSIBLE_COLLECTIONS_PATH=%s" % target, "ansible-galaxy", "collection", "install", "--no-deps", archive, timeout=120)
    output, status = fleet.command("pgfleet.cache.install", "--limit", "one", "--check", ANSIBLE_COLLECTIONS_PATH=str(target))
    assert status == 0 and recap(output)["one"]["changed"] == 0, output
    assert str(target) in output and COLLECTION not in output
