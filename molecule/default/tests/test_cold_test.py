"""The figures of a cold test against the size of the table, and against those of the host's disks."""

from __future__ import annotations

import glob
import json
import os

import testinfra

# Read-ahead and catalogs on top of the table, at most, and what the kernel may have taken back of it
MORE, LESS = 1.25, 0.15


def test_a_cold_query_reads_the_table_and_a_warm_one_nothing():
    path = max(glob.glob(os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "results", "cold_test-*.json")))
    with open(path, encoding="utf-8") as file:
        result = json.load(file)["hosts"]["pg-a"]["result"]
    command = "runuser -u postgres -- psql -XAtc \"SELECT pg_relation_size('passenger')\""
    size = int(testinfra.get_host("docker://pg-a").run_expect([0], command).stdout)

    read = {row["state"]: row["device_bytes"] for row in result["states"]}
    assert 0.97 * size <= read["both_cold"] <= MORE * size
    for state in ("buffers_cold", "restored", "both_warm"):
        assert read[state] <= LESS * size, state
    for one in result["runs"]:
        # the kernel may take back pages of programs, on the data's own disk
        assert one["certainty"] == "exact" or one["remarks"][0].startswith("program files were read too"), one["remarks"]
        assert sum(disk["bytes"] for disk in one["disks"]) >= 0.97 * one["device_bytes"] - (1 << 20)
