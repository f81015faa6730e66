# -*- coding: utf-8 -*-
# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows in place of a server: for how results and messages are composed, not for SQL."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from datetime import datetime, timezone

from ansible_collections.pgfleet.cache.plugins.module_utils._names import Place, Relation


def give(path):
    """A data directory to one who is not root, as PostgreSQL's is; the user's id."""
    if os.geteuid() != 0:
        return os.geteuid()
    for folder, names, files in os.walk(str(path)):
        for name in [".", *names, *files]:
            os.chown(os.path.join(folder, name), 65534, 65534, follow_symlinks=False)
    return 65534


def sleeper(directory, user):
    """A process of a user's in a directory. Popen's own option for that is not in Python 3.8."""
    command = ["sleep", "60"]
    if user != os.geteuid():
        command = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--", *command]
    process = subprocess.Popen(command, cwd=str(directory))
    while os.stat("/proc/%d" % process.pid).st_uid != user:
        time.sleep(0.01)
    return process


def snapshot_row(name="warm", generation=3, **changed):
    row = {
        "name": name,
        "generation": generation,
        "taken_at": datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc),
        "origin": "db1",
        "in_recovery": False,
        "system_identifier": 7574833217290718432,
        "timeline": 1,
        "server_version_num": 150020,
        "segments": 4,
        "blocks": 1000,
        "wanted": 400,
        "in_page_cache": 390,
        "in_shared_buffers": 30,
        "in_both": 20,
        "file_bytes": 300,
        "digest": "9f2c",
        "problem": None,
        "thin": False,
        "current": False,
        "measure": None,
        "age": 93600.0,
    }
    row.update(changed)
    return row


def segment_row(segment_no, wanted, resident=0, gone=0, **changed):
    row = {
        "segment_no": segment_no, "tablespace": 1663, "database": 5, "relfilenumber": 16000 + (segment_no or 0), "fork": "main", "segment": 0,
        "blocks": 131072, "in_shared_buffers": 0, "wanted": wanted, "resident": resident, "gone": gone,
    }
    row.update(changed)
    row.setdefault("heat", (wanted + row["in_shared_buffers"]) / row["blocks"])
    return row


def outcome_row(relfilenumber, segment=0, **changed):
    row = {
        "tablespace": 1663, "database": 5, "relfilenumber": relfilenumber, "fork": "main", "segment": segment, "loaded": 0, "over_budget": 0,
        "failed": 0, "reason": None,
    }
    row.update(changed)
    return row


def database_row(oid, name, problem=None):
    """A row of residency_current_names() for a database."""
    return dict(relation_row(name, None), database=oid, tablespace=None, oid=None, kind="database", pages=None, problem=problem)


def relation_row(name, relfilenumber, **changed):
    """A row of residency_current_names() for a relation."""
    row = {
        "database": 5, "tablespace": 1663, "relfilenumber": relfilenumber, "oid": relfilenumber, "name": name, "kind": "table",
        "owner_oid": None, "owner": None, "pages": 0, "partition_of": None, "problem": None,
    }
    row.update(changed)
    return row


def names_file(*rows, version=1):
    """The file of names that the server writes for these rows; see src/names.c."""
    kinds = {"table": b"r", "index": b"i", "materialized view": b"m", "sequence": b"S", "toast": b"t", "toast index": b"T"}

    def text(value):
        encoded = (value or "").encode("utf-8")
        return struct.pack("<H", len(encoded)) + encoded

    body = b""
    for row in rows:
        if row["kind"] == "database":
            body += b"D" + struct.pack("<I", row["database"]) + text(row["name"]) + text(row["problem"])
            continue
        numbers = [row[key] or 0 for key in ("database", "tablespace", "relfilenumber", "oid", "owner_oid", "pages")]
        body += kinds[row["kind"]] + struct.pack("<6I", *numbers) + text(row["name"]) + text(row["owner"])
        parents = row["partition_of"] or []
        body += bytes([len(parents)]) + b"".join(text(one) for one in parents)
    return struct.pack("<8sII", b"PGRNAMES", version, 0) + body


def relation(name, relfilenumber=1, database="postgres_air", **changed):
    values = {
        "place": Place(5, 1663, relfilenumber), "database": database, "oid": relfilenumber, "name": name, "kind": "table", "owner_oid": None,
        "owner": None, "pages": 0, "partition_of": (),
    }
    values.update(changed)
    return Relation(**values)


def job_row(job=7, **changed):
    row = {
        "job": job, "snapshot": "warm", "generation": 3, "state": "done", "loaded": 100, "extra": 2, "over_budget": 0, "failed": 0,
        "budget_bytes": 1024**3, "message": None, "io_class": "idle", "scheduler": "mq-deadline", "window_bytes": 524288, "started": 1000.0,
        "seconds": 2.0, "elapsed": 44.0, "hold_until": None, "held_since": None, "reclaimed": None, "brought_back": None, "reclaim_rate": None,
        "unattended": False,
        "mapped_bytes": None, "wanted": 400, "settled": 400, "rate_bytes": None, "time_limit": None, "buffers_wanted": None,
        "buffers_resident": None, "buffers_loaded": None,
    }
    row.update(changed)
    return row


class Session:
    """Answers by the first of its keys that a statement contains; a list of answers is used up one by one."""

    def __init__(self, **answers):
        self.answers = answers
        self.schema = ""
        self.queries = []
        self.asked = []  # parameters of each statement

    def close(self):
        pass

    def peer(self):
        return None

    def require_execute(self, function):
        pass  # tests/integration asks a server

    def rows(self, sql, params=()):
        sql = sql.replace("@extschema@.", "")
        self.asked.append((sql, params))
        for key, answer in self.answers.items():
            if key in sql:
                return answer.pop(0) if answer and isinstance(answer[0], list) else answer
        raise AssertionError("unexpected statement: " + sql)

    def row(self, sql, params=()):
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    def only_row(self, sql, params=()):
        return self.rows(sql, params)[0]

    def record(self, sql, params=()):
        self.queries.append(sql.replace("@extschema@.", "") % tuple(repr(value) for value in params))

    def change(self, sql, params=()):
        self.record(sql, params)
        return self.rows(sql, params)
