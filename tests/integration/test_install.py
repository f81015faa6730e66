# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What install costs where there is nothing to do, and what it finds out about hosts on which somebody else has been at work."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess

import pytest
from cluster import quick, thorough
from playbook import BANNER, banners, recap
from test_playbooks import OLDEST, common_variables


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
    shutil.copy(path, path.replace("1.0.0.sql", "0.0.9.sql"))


CONTROL, SCRIPT, LIBRARY = "share/extension/pg_residency.control", "share/extension/pg_residency--1.0.0.sql", "lib/pg_residency.so"


@pytest.mark.parametrize("name, harm", [
    (CONTROL, give_away), *(pytest.param(*one, marks=thorough) for one in (
        (SCRIPT, append),
        (CONTROL, os.unlink), (SCRIPT, open_file), (SCRIPT, leave), (LIBRARY, close_file),
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
    output, status = fleet.command("pgfleet.cache.install", "--limit", "one")
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
    one.sql("ALTER SYSTEM SET shared_preload_libraries = ''")
    service = tmp_path / "restart.yml"
    service.write_text(RESTART.format(bin=one.bin, data=one.data, log=one.log))
    variables = dict(common_variables(fleet), pgfleet_login_port=one.port, pgfleet_service_manager=str(service))
    fleet.set_hosts({"one": {}}, **variables)

    def install(*arguments, preload=False):
        started = one.sql("SELECT pg_postmaster_start_time()")
        output, status = fleet.command("pgfleet.cache.install", "-e", "cache_extension_preload=%s" % preload, *arguments)
        assert status == 0, output
        return output, one.sql("SELECT pg_postmaster_start_time()") != started

    output, restarted = install("--check", preload=True)
    assert "PostgreSQL would be restarted" in output and not restarted
    output, restarted = install(preload=True)
    assert restarted, output
    assert one.sql("SHOW shared_preload_libraries") == "pg_residency"
    library, script = (os.path.join(cluster.bin, "../../../../" + path) for path in (
        "lib/postgresql/15/lib/pg_residency.so", "share/postgresql/15/extension/pg_residency--1.0.0.sql"))
    append(script)
    output, restarted = install(preload=True)
    assert not restarted and "-- altered" not in open_bytes(script).decode(), output
    shutil.copy(library, library + ".new")
    os.rename(library + ".new", library)
    output, restarted = install()
    assert "PostgreSQL has to be restarted to load the new library" in output and not restarted
    output, restarted = install("--check", preload=True)
    assert "PostgreSQL would be restarted" in output and not restarted
    output, restarted = install(preload=True)
    assert restarted, output
    for preload in (False, True):
        output, restarted = install(preload=preload)
        assert not restarted and recap(output)["one"]["changed"] == 0 and "restarted" not in BANNER.sub("", output), output
    one.stop()


@thorough
@pytest.mark.parametrize("path", [OLDEST + "/bin:", ""], ids=["oldest", "newest"])
def test_a_removal_says_what_it_did(fleet, machine, path, tmp_path):
    """The files are other servers', too. Nobody else has a say in that, such as by the name of a directory in which he works."""
    one = machine("removed%d" % bool(path))
    odd = tmp_path / ("x\n/proc/9 exe %s/postgres\n/proc/9 cwd " % one.bin).lstrip("/") / "FORGED"
    odd.mkdir(parents=True)
    forger = subprocess.Popen(["sleep", "600"], cwd=str(odd))
    try:
        one.sql("CREATE EXTENSION pg_residency")
        fleet.set_hosts({"one": {}}, **dict(common_variables(fleet), pgfleet_login_port=one.port))
        for more, words in (
            (["--check"], "would be removed; the files stay for"), ([], "removed; the files stay for"),
            (["--check"], "the files stay for"), ([], "the files stay for"),
        ):
            output, status = fleet.command("pgfleet.cache.install", "-e", "cache_extension_state=absent", *more, PATH=path + os.environ["PATH"])
            assert "FORGED" not in output
            assert status == 0 and re.search(r"\bone +15\S* +primary +- +" + words, output), output
    finally:
        forger.kill()
        forger.wait()
        one.stop()
