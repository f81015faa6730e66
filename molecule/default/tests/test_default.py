"""The main job as the machine shows it: nothing here asks the collection.

side_effect.yml has the tests' own mincore reader count after the snapshot,
after the cold restart and after the warm-up; these tests compare the counts.
"""

from __future__ import annotations

import json

import pytest

# Of the pages that have to be resident, the least part that is, or that the kernel has reclaimed since: it takes what is idle.
LEFT = 0.95

DATA_DIRECTORY = "/var/lib/postgresql/15/main"


@pytest.fixture(name="sql")
def fixture_sql(host):
    """Run a query as the superuser; the rows as lists of strings."""

    def sql(query):
        command = f"psql -XAtF'\t' -v ON_ERROR_STOP=1 -c {quote(query)}"
        output = host.run_expect([0], f"runuser -u postgres -- {command}").stdout
        return [line.split("\t") for line in output.splitlines()]

    return sql


@pytest.fixture(name="counted")
def fixture_counted(host):
    """What was counted of each file at a moment."""
    return lambda moment: json.loads(host.file(f"/var/lib/pgfleet-test/{moment}.json").content_string)


@pytest.fixture(name="pages")
def fixture_pages(counted):
    """The pages resident at a moment: a set of (file, page)."""

    def pages(moment, path=None):
        return {
            (name, page)
            for name, counts in counted(moment).items()
            if path is None or name == path
            for first, count in counts["resident"]
            for page in range(first, first + count)
        }

    return pages


def quote(text):
    """Text as one word of a shell command."""
    return "'" + text.replace("'", "'\\''") + "'"


def relation(sql, name):
    """File and number of 4 KiB pages of a relation."""
    ((path, size),) = sql(f"SELECT pg_relation_filepath('{name}'), pg_relation_size('{name}')")
    return path, int(size) // 4096


def test_postgresql_runs_again(host, sql):
    assert host.service("postgresql@15-main").is_running
    assert sql("SELECT count(*) FROM passenger") == [["300000"]]


def test_extension_is_installed_and_answers(sql):
    assert sql("SELECT extversion = residency_version() FROM pg_extension WHERE extname = 'pg_residency'") == [["t"]]


def test_rights(sql):
    """For PUBLIC, only the session's own local buffers; changing is for residency_admin, reading for pg_monitor."""
    assert sql("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'residency_admin'") == [["f"]]
    assert (
        sql("""
            SELECT p.proname
            FROM pg_depend AS d
            JOIN pg_extension AS e ON d.refobjid = e.oid AND e.extname = 'pg_residency'
            JOIN pg_proc AS p ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
            CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
            WHERE a.grantee = 0
            ORDER BY p.proname""")
        == [
            ["pg_allocated_local_buffers"],
            ["pg_dirtied_local_buffers"],
            ["pg_evict_local_buffers"],
            ["pg_flush_local_buffers"],
            ["pg_read_temp_relation"],
            ["pg_temp_buffers_dirty"],
        ]
    )
    allowed = "SELECT has_function_privilege('{}', '{}', 'EXECUTE')"
    assert sql(allowed.format("residency_admin", "residency_snapshot(text, int, boolean)")) == [["t"]]
    assert sql(allowed.format("pg_monitor", "residency_snapshot(text, int, boolean)")) == [["f"]]
    assert sql(allowed.format("pg_monitor", "residency_snapshots()")) == [["t"]]


def test_build_leaves_nothing_behind(host):
    left = host.run("find /tmp /var/tmp /root /home -name '*pg_residency*' -o -name 'residency*.o'")
    assert left.stdout == ""


def test_snapshot_is_a_private_file_beside_the_data(host):
    folder = host.file(f"{DATA_DIRECTORY}/pg_residency")
    assert (folder.user, folder.mode) == ("postgres", 0o700)
    (name,) = [name for name in folder.listdir() if name.endswith(".snapshot")]
    assert name.startswith("warm@")
    file = host.file(f"{DATA_DIRECTORY}/pg_residency/{name}")
    assert (file.user, file.mode) == ("postgres", 0o600)
    # 8 KiB blocks as runs: far below a byte per block
    assert 0 < file.size < 64 * 1024


def test_before_the_snapshot_one_table_was_warm_and_another_half(sql, pages, counted):
    def read(path):
        return len(pages("snapshot", path)) + counted("snapshot")[path]["reclaimed"]

    path, size = relation(sql, "passenger")
    assert read(path) >= LEFT * size
    path, size = relation(sql, "boarding_pass")
    assert 0.45 * size <= read(path) <= 0.9 * size


def test_the_restart_was_cold(sql, pages):
    for name in ("passenger", "boarding_pass"):
        path, size = relation(sql, name)
        assert len(pages("cold", path)) <= 0.01 * size
    assert len(pages("cold")) <= 0.02 * len(pages("snapshot"))


def test_the_warm_up_brought_back_what_was_resident(pages, counted):
    wanted = pages("snapshot")
    warm = counted("warm")
    reclaimed = sum(warm[path]["reclaimed"] for path in {path for path, _page in wanted} if path in warm)
    assert len(wanted & pages("warm")) + reclaimed >= LEFT * len(wanted)


def test_the_warm_up_brought_back_little_else(sql, pages):
    """Gaps of a few blocks, which the kernel makes when it takes pages back, may be read along; the cold half of a table may not."""
    path, _size = relation(sql, "boarding_pass")
    wanted = pages("snapshot", path)
    assert len(pages("warm", path) - wanted) <= 0.3 * len(wanted)
