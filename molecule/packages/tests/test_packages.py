"""The methods of cache_extension, as dpkg, the files and the servers of the hosts show them.

side_effect.yml leaves what look.sh saw after each of its steps.
"""

from __future__ import annotations

import glob
import io
import json
import os
import re
import subprocess
import tarfile

import pytest
import testinfra

PACKAGES = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "packages")
MAJORS = {"old-a": 15, "old-b": 15, "mid": 17, "new": 18, "src": 15}
PACKAGE = "postgresql-15-pg-residency"
SOURCE = os.path.join(os.path.dirname(__file__), "../../../files/pg_residency")
with open(SOURCE + "/pg_residency.control", encoding="utf-8") as control:
    VERSION = re.search("default_version = '(.+)'", control.read()).group(1)
ALL_FILES = " ".join(["pg_residency.so", *sorted(os.path.basename(path) for path in glob.glob(SOURCE + "/sql/*.sql")), "pg_residency.control"])

every_host = pytest.mark.parametrize("name", MAJORS)


def run(name, command):
    """A command on a host, as root; not by Ansible."""
    return testinfra.get_host("docker://" + name).run(command)


def output(name, command):
    done = run(name, command)
    assert done.rc == 0, done.stderr
    return done.stdout.strip()


def sql(name, query, database="postgres"):
    return output(name, f'runuser -u postgres -- psql -XAt -d {database} -c "{query}"')


def left_by(name, step):
    return output(name, f"cat /var/lib/pgfleet-test/{step}")


def seen(name, step):
    """What look.sh saw on a host after a step."""
    lines = left_by(name, step).splitlines()
    return {word: rest.strip() for word, _space, rest in (line.partition(" ") for line in lines)}


@every_host
def test_extension_is_there_and_answers(name):
    assert sql(name, "SELECT extversion FROM pg_extension WHERE extname = 'pg_residency'") == VERSION
    assert sql(name, "SELECT residency_version()") == VERSION
    assert int(sql(name, "SELECT count(*) FROM residency_segments()")) > 0


@every_host
def test_all_methods_give_the_same_rights(name):
    assert sql(
        name,
        "SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc AS p"
        " WHERE p.proname LIKE 'residency%' AND has_function_privilege('residency_admin', p.oid, 'EXECUTE')",
    ) == (
        "residency_cancel residency_drop_snapshot residency_evict residency_restore_segment residency_restore_start residency_snapshot"
    )


def test_an_installation_suspends_needrestart():
    """Which restarts PostgreSQL in its automatic mode. Another installation of packages calls it."""
    called = "/var/lib/pgfleet-test/needrestart"
    assert run("old-a", f"test -e {called}").rc == 1
    output("old-a", "apt-get -qqy -o DPkg::Lock::Timeout=60 install --reinstall hostname")
    assert run("old-a", f"test -e {called}").rc == 0


def test_all_databases_have_it_where_that_was_asked_for():
    assert sql("new", "SELECT residency_version()", database="sales") == VERSION
    assert sql("mid", "SELECT count(*) FROM pg_extension WHERE extname = 'pg_residency'", database="sales") == "0"


def test_one_package_for_each_kind_of_host():
    kinds = sorted(re.fullmatch(r"(.*)_(.*)~[0-9a-f]{12}_([a-z]*)_(.*)[.]deb", name).groups() for name in os.listdir(PACKAGES))
    machine = output("old-a", "uname -m")
    assert kinds == [
        ("postgresql-15-pg-residency", VERSION, "bookworm", machine),
        ("postgresql-17-pg-residency", VERSION, "trixie", machine),
        ("postgresql-18-pg-residency", VERSION, "forky", machine),
    ]


def test_packages_run_nothing_when_they_are_installed():
    for path in glob.glob(PACKAGES + "/*.deb"):
        members = subprocess.run(["dpkg-deb", "--ctrl-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(members)) as archive:
            assert sorted(archive.getnames()) == [".", "./control", "./md5sums"]


def test_removal_takes_the_repository_away():
    after = seen("src", "unnamed")
    assert (after["owner"], after["files"], after["repository"]) == ("", "", "")
    assert seen("src", "repository")["repository"] == "/etc/apt/preferences.d/pgfleet.pref /etc/apt/sources.list.d/pgfleet.sources"


def test_a_second_run_changes_nothing():
    after = seen("old-a", "again")
    assert (after["owner"], after["files"], after["changed"], after["calls"]) == (PACKAGE, ALL_FILES, "", VERSION)
    assert output("old-a", "stat --format=%i:%Z /usr/lib/postgresql/15/lib/pg_residency.so") == left_by("old-a", "library")


@pytest.mark.parametrize("name", ["old-a", "old-b", "mid", "new"])
def test_library_is_the_package_s(name):
    package = f"postgresql-{MAJORS[name]}-pg-residency"
    library = f"/usr/lib/postgresql/{MAJORS[name]}/lib/pg_residency.so"
    assert output(name, f"dpkg-query --search {library}") == f"{package}: {library}"
    assert output(name, f"dpkg --verify {package}") == ""


def test_the_second_host_has_no_compiler():
    for tool in ("gcc", "make"):
        assert run("old-a", f"command -v {tool}").rc == 0
        assert run("old-b", f"command -v {tool}").rc != 0


@every_host
def test_builds_leave_nothing_behind(name):
    places = "/tmp /var/tmp /root /home /var/lib/postgresql"
    left = output(name, f"find {places} -maxdepth 1 -name 'pg_residency.?*'").split()
    assert len(left) == (1 if name == "old-a" else 0)  # which was to keep what it built for src


@every_host
def test_nothing_is_restarted_unless_that_was_asked_for(name):
    same = sql(name, "SELECT pg_postmaster_start_time()") == left_by(name, "started")
    assert same == (name != "mid")


def test_a_preloaded_library_lives_and_refuses_removal():
    assert seen("mid", "preload")["preloads"] == "pg_residency"
    found = json.loads(left_by("mid", "unattended"))
    assert not found["changed"] and not found["restart"] and found["worker"]["generation"] >= 1, found
    assert "would not start" in left_by("mid", "message-preloaded")
    assert seen("mid", "preloaded")["calls"] == VERSION


def test_a_preloaded_library_that_was_changed_is_repaired_and_loaded():
    after = seen("mid", "repaired")
    assert (after["changed"], after["calls"]) == ("", VERSION)
    assert after["started"] > seen("mid", "preloaded")["started"] == seen("mid", "preload")["started"]


def test_a_builder_of_another_kind_is_refused():
    assert left_by("new", "message-wrong-builder").startswith("old-a is bookworm x86_64, and new is forky x86_64: set cache_extension_builder to a host")


def test_a_newer_package_is_not_replaced():
    message = left_by("new", "message-downgrade")
    assert f"postgresql-18-pg-residency 99 is installed, but this collection has {VERSION}" in message
    assert seen("new", "downgrade")["version"] == "installed 99"
    assert seen("new", "again")["version"].startswith(f"installed {VERSION}~")


def test_a_locked_dpkg_is_tried_again():
    assert output("mid", "grep --count install /var/lib/pgfleet-test/dpkg") == "2"


def test_source_to_deb():
    after = seen("src", "source-to-deb")
    assert (after["owner"], after["files"], after["changed"]) == (PACKAGE, ALL_FILES, "")
    assert after["calls"] == VERSION


def test_deb_to_source():
    after = seen("src", "deb-to-source")
    assert (after["owner"], after["version"]) == ("", "")
    assert after["files"] == ALL_FILES.replace(".so ", ".so pg_residency.sources ")
    assert after["calls"] == VERSION


def test_upgrade_of_the_package():
    before, after = seen("old-b", "older"), seen("old-b", "upgraded")
    assert before["version"] == "installed 0.0.1"
    assert after["version"].startswith(f"installed {VERSION}~")
    assert (after["changed"], after["calls"], after["files"]) == ("", VERSION, ALL_FILES)


def test_absent_keeps_role_and_snapshots():
    after = seen("old-b", "absent")
    assert (after["owner"], after["version"], after["files"]) == ("", "", "")
    assert "does not exist" in after["calls"]
    assert (after["role"], after["snapshots"]) == ("1", "1")


def test_purge_leaves_nothing():
    assert seen("src", "deb-to-source")["snapshots"] == "1"
    after = seen("src", "purged")
    assert (after["owner"], after["version"], after["files"]) == ("", "", "")
    assert (after["role"], after["snapshots"]) == ("0", "0")


def test_package_from_a_repository():
    after = seen("src", "repository")
    assert after["version"].startswith(f"installed {VERSION}~")
    assert (after["owner"], after["calls"]) == (PACKAGE, VERSION)
    assert "file:/srv/repository" in output("src", f"apt-cache policy {PACKAGE}")
