"""A primary and its standby under everything at once, at random but from a seed, and what has to hold meanwhile and after.

    stress.py --bindir /.../bin --work DIRECTORY [--seed N] [--seconds N] [--device DIRECTORY]

Runs as root: the servers run as postgres, with a tablespace directory each at one and the same path, for which the
standby gets a mount namespace of its own.  tests/extension/run.sh and stress.sh start it, with a /dev/shm of its own.

The seed gives each client its own stream of operations; the order in which clients meet is the scheduler's.  Prints
what was done, and each find with the lines of the log around it; exits with 1 when there is one.
"""

import argparse
import collections
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import psycopg2
import psycopg2.extensions

TABLES = [f"t{n:02d}" for n in range(12)]
RELATIONS = TABLES + [f"{t}_pkey" for t in TABLES] + ["big", "part", "part_pkey", "part_0", "part_1", "pg_class", "pg_proc"]
DATABASES = ["d0", "d1", "d2"]
TABLESPACES = ["s0", "s1", "inplace"]
SNAPSHOTS = ["n0", "n1", "n2"]
BITS = 512

STATEMENT_TIMEOUT = 20
GRACE = 15

# what any client may meet here: ended by an administrator, by the crash of another, no server yet, canceled, too many
ALWAYS = {"57P01", "57P02", "57P03", "57014", "53300", "08006", "08003", "08000", "08001"}
# what a standby's replay does to its clients
ON_STANDBY = {"40001", "40P01", "57P04"}
# our background workers' own; they wait 2 s for a lock, and end then
OF_WORKERS = {"55P03", "57P01", "57P02", "57014", "40001", "40P01", "57P04", "3D000"}

# severity, SQLSTATE and message of a line of the log; log_error_verbosity is verbose
LINE = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] <([^>]*)> ([A-Z]+):  (?:([0-9A-Z]{5}): )?(.*)")
SIGNALED = re.compile(r"\(PID (\d+)\) was terminated by signal (\d+)")
LEAK = re.compile(r"leak|refcount|still referenced|not closed|not owned|resource owner", re.I)

# reasons of blocks that failed which this load brings about by itself
REASONS = re.compile(r"^(reclaimed by the kernel after it was read|the job ended before this segment was restored|)$")


class Stress:
    def __init__(self, arguments):
        self.arguments = arguments
        self.lock = threading.Lock()
        self.counts = collections.defaultdict(collections.Counter)
        self.slowest = {}
        self.finds = {}             # what, and with the first the lines around it and how many there were
        self.checks = []            # (what holds, whether it does)
        self.killed = set()         # pids that were sent SIGKILL
        self.stop = threading.Event()
        self.generations = {}       # by node and name, the highest seen
        self.spaces = [f"{arguments.work}/spaces", f"{arguments.work}/standby_spaces"]
        self.locations = itertools.count()
        self.functions = set()

    def find(self, what, excerpt="", fatal=False):
        kind = re.sub(r"\d+", "N", re.sub(r'"[^"]*"', '""', what))
        with self.lock:
            if kind not in self.finds:
                self.finds[kind] = [what, excerpt, 0]
                print(f"-- a find: {what}", flush=True)
            self.finds[kind][2] += 1
        if fatal:
            self.stop.set()

    def location(self, name):
        """A new directory for a tablespace, of the primary and of the standby.

        Never one twice: a standby that was killed keeps files that the primary has not, and so the links of dropped tablespaces. At its
        promotion it then copies the init forks of unlogged tables twice, which fails: could not create file, copydir.c.
        """
        with self.lock:
            number = next(self.locations)
        for space in self.spaces:
            os.makedirs(f"{space}/{name}/{number}")
            shutil.chown(f"{space}/{name}/{number}", "postgres", "postgres")
        return f"{self.spaces[0]}/{name}/{number}"

    def check(self, what, problems):
        """One invariant: it holds when there is no problem."""
        self.checks.append((what, not problems))
        for problem in problems:
            self.find(f"{what}: {problem}")

    def count(self, kind, outcome, seconds):
        with self.lock:
            self.counts[kind][outcome] += 1
            self.slowest[kind] = max(self.slowest.get(kind, 0), seconds)


class Node:
    """A server: its data directory, socket and log."""

    def __init__(self, stress, name, port):
        self.stress = stress
        self.name = name
        self.port = port
        self.work = stress.arguments.work
        self.data = f"{self.work}/{name}"
        self.log = f"{self.work}/{name}.log"
        self.namespace = []         # what the server is started through
        self.running = False

    def as_postgres(self, *command, through=(), check=True):
        return subprocess.run(
            [*through, "setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", *command],
            cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check,
            env={**os.environ, "HOME": self.work})

    def bin(self, program):
        return f"{self.stress.arguments.bindir}/{program}"

    def configure(self, text):
        with open(f"{self.data}/postgresql.conf", "a", encoding="utf-8") as f:
            f.write(text)

    def start(self):
        for dummy in range(3):
            result = self.as_postgres(self.bin("pg_ctl"), "-D", self.data, "-l", self.log, "-s", "-w", "-t", "120", "start",
                                      through=self.namespace, check=False)
            if result.returncode == 0:
                self.running = True
                return
            time.sleep(0.5)
        raise RuntimeError(f"{self.name} does not start: {result.stdout}{result.stderr}{tail(self.log)}")

    def shutdown(self, mode="fast"):
        """Stops the server; seconds it took."""
        self.running = False
        began = time.monotonic()
        self.as_postgres(self.bin("pg_ctl"), "-D", self.data, "-m", mode, "-s", "-w", "-t", "300", "stop", check=False)
        return time.monotonic() - began

    def connect(self, database="stress", user="postgres"):
        return psycopg2.connect(host=self.work, port=self.port, dbname=database, user=user, connect_timeout=20,
                                application_name="stress", options="-c client_min_messages=error")

    def query(self, sql, database="stress"):
        connection = self.connect(database)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall() if cursor.description else None
        finally:
            connection.close()

    def ask(self, sql, patience=60):
        """The same with retries: another thread may just have killed the server."""
        until = time.monotonic() + patience
        while True:
            try:
                return self.query(sql)
            except psycopg2.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def pids(self):
        """The postmaster and all that it has started."""
        try:
            with open(f"{self.data}/postmaster.pid", encoding="utf-8") as f:
                postmaster = int(f.readline())
            with open(f"/proc/{postmaster}/task/{postmaster}/children", encoding="utf-8") as f:
                return [postmaster] + [int(pid) for pid in f.read().split()]
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return []

    def worker_pids(self):
        """Our background workers, by what they call themselves."""
        return [pid for pid in self.pids() if re.match("postgres: .*pg_residency", title(pid))]


def title(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def tail(path, lines=25):
    with open(path, encoding="utf-8", errors="replace") as f:
        return "".join(f.readlines()[-lines:])


# --- what clients do: each operation is a list of statements, made of the client's own random numbers only ---

class Operation:
    def __init__(self, make, kind, weight, expected):
        self.make, self.kind, self.weight = make, kind, weight
        self.expected = set(expected.split())
        self.name = make.__name__


OPERATIONS = []


def operation(kind, weight, expected=""):
    def register(make):
        OPERATIONS.append(Operation(make, kind, weight, expected))
        return make
    return register


def literal(value):
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def snapshot_name(rng):
    name = rng.choice(SNAPSHOTS)
    return f"{name}@{rng.randint(1, 9)}" if rng.random() < 0.1 else name


# The session's database: current_database() crashes a standby that has just replayed the drop of that database.
HERE = "(select datid from pg_stat_get_activity(pg_backend_pid()))"


# residency: 42704 no such snapshot or job; 55006 another session is at it

@operation("residency", 6, "55006 42P01")
def snapshot(rng):
    return [f"select * from residency_snapshot('{rng.choice(SNAPSHOTS)}', {rng.randint(1, 3)})"], "generation"


@operation("residency", 2, "42704 55006")
def drop_snapshot(rng):
    return [f"select residency_drop_snapshot('{snapshot_name(rng)}')"]


def restore_options(rng):
    options = {}
    if rng.random() < 0.5:
        options["shared_buffers"] = True
    if rng.random() < 0.5:
        options["rate"] = rng.choice([1_000_000, 20_000_000, 200_000_000])
    if rng.random() < 0.2:
        options["budget"] = rng.choice([8192, 81920, 8_000_000, 10**12])
    if rng.random() < 0.2:
        options["aggressive"] = True
    if rng.random() < 0.2:
        options["gap_blocks"] = rng.choice([0, 4, 1000])
    if rng.random() < 0.1:
        options["max_io_pressure"] = rng.randint(1, 100)
    if rng.random() < 0.3:
        options["time_limit"] = rng.randint(1, 5)
    if rng.random() < 0.1:
        options["segments"] = [rng.randint(1, 2000) for dummy in range(rng.randint(0, 50))]
    return options


# 22023: a segment that the snapshot lacks; 42P01: a file to load whole that is not there; 22004: no row in pg_database, as in HERE
@operation("residency", 8, "42704 55006 22023 42P01 0A000 22004")
def restore_start(rng):
    options = literal(json.dumps(restore_options(rng))) + "::jsonb"
    name = literal(snapshot_name(rng))
    if rng.random() < 0.2:
        table = rng.choice(TABLES)
        options += (" || (select jsonb_build_object('whole', jsonb_build_array(jsonb_build_array(1663, d.oid::bigint,"
                    f" coalesce(pg_relation_filenode(to_regclass('{table}')), 1)::bigint))) from pg_database d where oid = {HERE})")
        name = rng.choice([name, "NULL"])
    return [f"select residency_restore_start({name}, {options})"]


@operation("residency", 3, "42704 55006 22023")
def restore_one(rng):
    return [f"select * from residency_restore_segment('{rng.choice(SNAPSHOTS)}', {rng.randint(1, 1500)})"], "outcome"


@operation("residency", 2, "42704 22004")
def cancel(rng):
    # most jobs are left alone for a while, or none would come to its end
    age = rng.choice([0, 2, 5, 5, 10])
    back = rng.choice([0, 0, 0, 1, 5])
    return [f"select residency_cancel(job - {back}) from residency_jobs where started_at < now() - interval '{age} s' order by job desc limit 1"]


@operation("residency", 3, "42P01")
def evict(rng):
    relation = rng.choice(RELATIONS)
    return [f"select segments, blocks, resident_before, resident_after from residency_evict('{relation}')"], \
        "evicted" if relation in TABLES else None


# a snapshot, and what it is of, replaced while a job restores it: its plan is its own
@operation("replacing", 1, "42704 55006 42P01 42P07 42P06 3F000 23505")
def replace_snapshot(rng):
    count = rng.choice([200, 600, 1500])
    rate = rng.choice([2_000_000, 5_000_000])
    name = rng.choice(SNAPSHOTS)
    evicted = rng.sample(TABLES, 3)
    return [
        "drop schema if exists churn cascade",
        "create schema churn",
        f"do $$ begin for i in 1..{count} loop execute 'create table churn.c' || i || ' as select ' || i || ' as a'; end loop; end $$",
        "checkpoint",
        f"select residency_snapshot('{name}', 1)",
        *[f"select residency_evict(to_regclass('{t}')) where to_regclass('{t}') is not null" for t in evicted],
        "select residency_cancel(max(job)) from residency_jobs having count(*) > 0",
        "select pg_sleep(0.3)",
        f"""select residency_restore_start('{name}', '{{"rate": {rate}, "shared_buffers": true}}')""",
        "drop schema churn cascade",
        f"select residency_drop_snapshot('{name}')",
        f"select residency_snapshot('{name}', 1)",
    ], "each"


# reading

READING = {
    "residency_version": "select residency_version()",
    "residency_segments": "select count(*), sum(resident) from residency_segments(@database)",
    "residency_shared_buffers": "select count(*) from residency_shared_buffers(true)",
    "residency_buffers": "select count(*) from residency_buffers('@relation')",
    "residency_snapshots": "select * from residency_snapshots()",
    "residency_snapshot_segments": "select count(*) from residency_snapshot_segments('@snapshot')",
    "residency_job_list": "select * from residency_jobs",
    "residency_job_segments": "select count(*) from residency_job_segments(@job)",
    "residency_budget": "select * from residency_budget()",
    "residency_relations": "select count(*), sum(blocks_in_both) from residency_relations",
    "residency_snapshot_names": "select count(*) from residency_snapshot_names('@snapshot')",
    "residency_current_names": "select count(*) from residency_current_names(@databases)",
    "residency_snapshot_relations": "select count(*) from residency_snapshot_relations('@snapshot')",
    "residency_job_relations": "select count(*) from residency_job_relations(@job)",
}


def reading_sql(rng, functions):
    name = rng.choice([n for n in READING if n in functions or n == "residency_relations"])
    sql = READING[name]
    sql = sql.replace("@databases", rng.choice(["", "array[0]::oid[]", "array(select oid from pg_database where datname ~ '^d')"]))
    sql = sql.replace("@database", rng.choice(["", HERE, "0"]))
    sql = sql.replace("@relation", rng.choice(TABLES)).replace("@snapshot", snapshot_name(rng))
    return sql.replace("@job", "(select max(job) from residency_jobs)")


# 42P01 the relation, 42704 the snapshot or job, 22004 no job yet, 3D000 a database that was dropped after the statement had read pg_database
@operation("reading", 10, "42P01 42704 22004 3D000")
def read(rng, functions):
    return [reading_sql(rng, functions)]


# what is given up halfway: a cursor, LIMIT, a subtransaction, a rollback
@operation("reading", 3, "42P01 42704 22004 3D000")
def read_partly(rng, functions):
    sql = reading_sql(rng, functions)
    way = rng.randint(0, 2)
    if way == 0:
        return ["begin", f"declare c cursor for {sql}", "fetch 1 from c", rng.choice(["rollback", "commit"])]
    if way == 1:
        return ["begin", "savepoint s", sql, "rollback to s", sql, "commit"]
    return [f"select * from ({sql}) x limit 1"]


@operation("reading", 3)
def sums_hold(rng):
    return [SUMS], "none"


# pgfincore's

def bits(rng):
    pattern = f"{rng.getrandbits(BITS):0{BITS}b}"[:rng.choice([1, 7, 64, BITS])]
    if rng.random() < 0.3:
        pattern = rng.choice("01") * len(pattern)
    return f"repeat('{pattern}', {rng.randint(1, 12)})::varbit"


def null_or(rng, value, share=0.02):
    return "NULL" if rng.random() < share else value


# 42809: no files (a partitioned table for the loader); 22004: NULL; 58P01: no such segment, which is looked at below
@operation("pgfincore", 8, "42P01 42809 22004")
def pgfincore_map(rng):
    relation = rng.choice(RELATIONS)
    fork = rng.choice(["main", "main", "fsm", "vm", "init"])
    sql = rng.choice([
        f"pgfincore({literal(relation)})",
        f"pgfincore({literal(relation)}, {rng.choice(['true', 'false'])})",
        f"pgfincore({literal(relation)}, {null_or(rng, literal(fork))}, true)",
    ])
    some = relation in TABLES and (fork == "main" or "true)" not in sql)
    return [f"select relpath, pages_mem, databit from {sql}"], "some" if some and fork == "main" else None


@operation("pgfincore", 6, "42P01 42809 22004 22023")
def pgfadvise(rng):
    relation = literal(rng.choice(RELATIONS))
    return ["select * from " + rng.choice([
        f"pgfadvise({relation}, 'main', {rng.choice([10, 20, 30, 40, 50, 7])})",
        f"pgfadvise_willneed({relation})", f"pgfadvise_willneed({relation})",
        f"pgfadvise_dontneed({relation})", f"pgfadvise_dontneed({relation})",
        f"pgfadvise_normal({relation})", f"pgfadvise_sequential({relation})", f"pgfadvise_random({relation})"])]


@operation("pgfincore", 10, "42P01 42809 22004 58P01")
def loader(rng):
    relation = literal(rng.choice(RELATIONS))
    load, unload = (rng.choice(["true", "false"]) for dummy in "ab")
    segment = null_or(rng, rng.choice([0, 0, 0, 0, 1, -1]))
    fork = rng.choice(["'main', ", ""])
    return [f"select * from pgfadvise_loader({relation}, {fork}{segment}, {load}, {unload}, {null_or(rng, bits(rng))})"]


@operation("pgfincore", 3, "42P01 42809 22004 58P01")
def saved_and_loaded(rng):
    relation = literal(rng.choice(TABLES))
    return ["begin", f"create temp table saved on commit drop as select * from pgfincore({relation}, true)",
            f"select pgfadvise_dontneed({relation})",
            f"select l.* from saved s, pgfadvise_loader({relation}, s.segment, true, true, s.databit) l",
            "select length(pgfincore_drawer(databit)::text) from saved", rng.choice(["commit", "rollback"])]


@operation("pgfincore", 1)
def sysconf(rng):
    return ["select * from pgsysconf()", "select * from pgsysconf_pretty()"]


# an error inside plpgsql's subtransactions must give everything back
@operation("pgfincore", 2)
def caught(rng):
    calls = [
        f"perform pgfadvise_loader('{rng.choice(RELATIONS)}', 0, true, true, {bits(rng)})",
        f"perform pgfadvise_willneed('{rng.choice(RELATIONS)}')",
        f"perform residency_restore_segment('{rng.choice(SNAPSHOTS)}', {rng.randint(1, 300)})",
        f"perform residency_evict('{rng.choice(RELATIONS)}')",
        "perform 1 / 0",
    ]
    rng.shuffle(calls)
    return ["do $$ begin " + " ".join(f"begin {c}; exception when others then null; end;" for c in calls) + " end $$"]


# what others do to the files

def create_sql(rng, table):
    unlogged = rng.choice(["", "", "unlogged "])
    rows = rng.choice([0, 5, 50, 400, 2000])
    grant = f"; grant select on {table} to reader" if int(table[1:]) % 2 == 0 else ""
    return (f"create {unlogged}table {table} (a int primary key, b text, c text) with (fillfactor = 10)"
            f"; alter table {table} alter b set storage plain, alter c set storage external"
            f"; insert into {table} select i, repeat('x', 700), case when i % 50 = 0 then repeat('y', 9000) end from generate_series(1, {rows}) i"
            f"{grant}")


# 42704: no such tablespace; 42P07: it is there already; 55006: a temporary hold, as by a cursor
@operation("ddl", 22, "42P07 42710 23505")
def create_table(rng):
    return [create_sql(rng, rng.choice(TABLES))]


@operation("ddl", 2, "42P01")
def drop_table(rng):
    return [f"drop table {rng.choice(TABLES)}"]


# its lock is waited for, and then there is no relation
@operation("ddl", 6, "42P01 42P07 42710 23505")
def drop_held(rng):
    table = rng.choice(TABLES)
    statements = ["begin", f"drop table {table}", f"select pg_sleep({rng.uniform(0.01, 0.3):.3f})"]
    if rng.random() < 0.3:
        statements.append(create_sql(rng, table))
    return [*statements, rng.choice(["commit", "commit", "rollback"])]


@operation("ddl", 3, "42P01")
def truncate(rng):
    return [f"truncate {rng.choice(TABLES)}"]


@operation("ddl", 3, "42P01")
def vacuum(rng):
    return [rng.choice(["vacuum full ", "vacuum ", "vacuum (freeze) "]) + rng.choice(TABLES)]


@operation("ddl", 2, "42P01")
def reindex(rng):
    return [f"reindex table {rng.choice(TABLES)}"]


@operation("ddl", 3, "42P01 42704")
def move_table(rng):
    return [f"alter table {rng.choice(TABLES)} set tablespace {rng.choice([*TABLESPACES, 'pg_default'])}"]


@operation("ddl", 1, "42P01")
def log_table(rng):
    return [f"alter table {rng.choice(TABLES)} set {rng.choice(['logged', 'unlogged'])}"]


@operation("ddl", 6, "42P01 23505")
def change_rows(rng):
    table = rng.choice(TABLES)
    first = rng.randint(1, 5000)
    return [rng.choice([
        f"insert into {table} select i, repeat('z', 700) from generate_series({first}, {first + 300}) i on conflict do nothing",
        f"update {table} set b = b where a % 10 = 1",
        f"delete from {table} where a > {first}",
        f"select count(b) from {table}",
    ])]


@operation("ddl", 2, "42P01 42P07 42P16 42809 55000 42710 23505 23514 42P17")
def partitions(rng):
    n = rng.randint(0, 3)
    return [rng.choice([
        f"create table if not exists part_{n} (a int primary key, b text)",
        f"alter table part attach partition part_{n} for values from ({n}000) to ({n + 1}000)",
        f"alter table part detach partition part_{n}",
        f"alter table part detach partition part_{n} concurrently",
        f"drop table part_{n}",
        f"insert into part select i, repeat('x', 700) from generate_series({n}000, {n}400) i on conflict do nothing",
    ])]


# 55006 for a database with another session; CREATE DATABASE must find template1 idle
@operation("ddl", 2, "42P04 42704 23505")
def create_database(rng):
    where = rng.choice(["", "", f" tablespace {rng.choice(TABLESPACES)}"])
    return [f"create database {rng.choice(DATABASES)}{where}"], "in main"


@operation("ddl", 1, "3D000 55006")
def drop_database(rng):
    name = rng.choice(DATABASES)
    return [f"drop database {name}" + rng.choice(["", " (force)", " (force)"])], "in main"


@operation("ddl", 1, "3D000 55006 42704 0A000 55000 58P01")
def move_database(rng):
    return [f"alter database {rng.choice(DATABASES)} set tablespace {rng.choice([*TABLESPACES, 'pg_default'])}"], "in main"


# of one client only: the server calls two of these at once an internal error
@operation("tablespaces", 3, "42710 42704 55000 55006 58P01")
def tablespaces(rng):
    name = rng.choice(TABLESPACES)
    if rng.random() < 0.4:
        return [f"drop tablespace {name}"]
    location = "" if name == "inplace" else f"@space/{name}"
    return [f"create tablespace {name} location '{location}'"]


# one at a time, for the same reason
@operation("ddl", 1, "42710 42704 2BP01")
def roles(rng):
    role = f"r{rng.randint(0, 2)}"
    return ["begin", "select pg_advisory_xact_lock(1)", rng.choice([
        f"create role {role} login in role pg_monitor", f"drop owned by {role}; drop role {role}",
        f"grant execute on function pgfadvise_willneed(regclass), pgfadvise(regclass, text, int) to {role}",
        f"revoke execute on function pgfadvise_willneed(regclass), pgfadvise(regclass, text, int) from {role}"]), "commit"]


@operation("ddl", 1, "42P01")
def lock_table(rng):
    return ["begin", f"lock table {rng.choice(TABLES)}", f"select pg_sleep({rng.uniform(0.01, 0.5):.3f})", "commit"]


@operation("ddl", 1)
def temporary(rng):
    return ["create temp table tmp as select repeat('x', 700) from generate_series(1, 100)", "drop table tmp"]


@operation("ddl", 1)
def checkpoint(rng):
    return ["checkpoint"]


# what a role with few rights tries: 42501 is its answer to most
LIMITED = {"42501"}
SUMS = ""


class Client(threading.Thread):
    """A session that does one kind of operations, again and again."""

    def __init__(self, stress, node, kinds, number, user="postgres"):
        super().__init__(name=f"{node.name} {'+'.join(kinds)} {number}", daemon=True)
        self.stress, self.node, self.user = stress, node, user
        self.rng = random.Random(f"{stress.arguments.seed} {self.name}")
        self.operations = [o for o in OPERATIONS if o.kind in kinds and o.name not in stress.arguments.without.split(",")]
        self.connection = None
        self.database = "stress"
        self.left = 0
        self.doing = None           # since when, and what
        self.timeout = STATEMENT_TIMEOUT

    def run(self):
        while not self.stress.stop.is_set():
            o = self.rng.choices(self.operations, [o.weight for o in self.operations])[0]
            made = o.make(self.rng, self.stress.functions) if o.make in (read, read_partly) else o.make(self.rng)
            statements, check = made if isinstance(made, tuple) else (made, None)
            hurry = self.rng.randint(1, 200) if self.rng.random() < 0.08 else None
            if self.left == 0:
                self.close()
                self.left = self.rng.randint(1, 40)
                self.database = self.rng.choice(["stress"] * 5 + DATABASES)
            self.left -= 1
            if check == "in main" and self.database != "stress":
                continue
            if not self.connected():
                continue
            self.perform(o, statements, check, hurry)

    def connected(self):
        if self.connection is not None and not self.connection.closed:
            return True
        self.doing = (time.monotonic(), "connect")
        try:
            self.connection = self.node.connect(self.database, self.user)
            self.connection.autocommit = True
            with self.connection.cursor() as cursor:
                cursor.execute(f"set statement_timeout = '{STATEMENT_TIMEOUT}s'")
                cursor.execute("set lock_timeout = '15s'")
            return True
        except psycopg2.Error as e:
            self.connection = None
            if not (isinstance(e, psycopg2.OperationalError) or e.pgcode in ALWAYS | ON_STANDBY):
                self.stress.find(f"{self.name}: connecting: {e.pgcode} {e}")
            self.database = "stress"
            time.sleep(0.1)
            return False
        finally:
            self.doing = None

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def execute(self, cursor, sql):
        self.doing = (time.monotonic(), sql)
        try:
            cursor.execute(re.sub(r"@space/(\w+)", lambda found: self.stress.location(found.group(1)), sql))
            return cursor.fetchall() if cursor.description else []
        finally:
            self.doing = None

    def perform(self, o, statements, check, hurry):
        began = time.monotonic()
        outcome = "ok"
        sql = ""
        key = None
        try:
            with self.connection.cursor() as cursor:
                if hurry:
                    cursor.execute(f"set statement_timeout = {hurry}")
                if check == "generation":
                    key = (self.node.name, statements[0].split("'")[1])
                    known = self.stress.generations.get(key, 0)
                for sql in statements:
                    try:
                        rows = self.execute(cursor, sql)
                    except psycopg2.Error as e:
                        if check != "each" or self.connection.closed:
                            raise
                        self.judge(o, sql, e)
                if hurry:
                    cursor.execute(f"set statement_timeout = '{STATEMENT_TIMEOUT}s'")
                self.examine(o, sql, check, rows, key, known if key else 0)
        except psycopg2.Error as e:
            outcome = e.pgcode or "lost"
            self.judge(o, sql, e)
            try:
                if self.connection.closed == 0:
                    with self.connection.cursor() as cursor:
                        if self.connection.get_transaction_status() != psycopg2.extensions.TRANSACTION_STATUS_IDLE:
                            cursor.execute("rollback")
                        cursor.execute(f"set statement_timeout = '{STATEMENT_TIMEOUT}s'")
            except psycopg2.Error:
                self.close()
        self.stress.count(f"{o.kind}: {o.name}", outcome, time.monotonic() - began)

    def judge(self, o, sql, e):
        """Whether this operation may get that error."""
        code = e.pgcode
        expected = ALWAYS | o.expected | {"55P03", "40P01"}
        if self.node.replays:
            # what cannot be done on a standby: PostgreSQL's own word, and ours
            expected |= ON_STANDBY | {"25006", "55000", "25001"}
        if self.user != "postgres":
            expected |= LIMITED
        message = str(e).strip()
        # ended by the disturber, or by a shutdown, before it had begun
        if code == "53000" and "could not start the worker of the restore" in message:
            return
        if code == "55000" and "was dropped right after it was taken" in message:
            return
        # FORCE terminates all sessions of the database, our workers too
        if code == "55006" and o.name == "drop_database" and "force" in sql:
            expected = expected - {"55006"}
        # of an unlogged relation a standby has no file
        if code == "58P01" and o.kind == "pgfincore" and "has no segment" not in message:
            expected = expected - {"58P01"} if not self.node.replays else expected | {"58P01"}
        if code is None and isinstance(e, (psycopg2.OperationalError, psycopg2.InterfaceError)):
            return                  # the connection is lost
        if code not in expected:
            self.stress.find(f"{self.name}: {o.name} got {code}: {message.splitlines()[0]}", f"    {sql[:300]}")

    def examine(self, o, sql, check, rows, key, known):
        problem = None
        if check == "some" and not rows:
            problem = "no row for a table"
        elif check == "none" and rows:
            problem = f"sums do not hold: {rows[:3]}"
        elif check == "evicted" and rows and rows[0][0] == 0:
            problem = f"nothing was looked at: {rows[0]}"
        elif check == "outcome" and rows:
            wanted, resident, dummy, dummy, over, gone, failed = rows[0][1:8]
            if wanted != resident + over + gone + failed:
                problem = f"sums do not hold: {rows[0]}"
        elif check == "generation" and rows:
            generation = rows[0][1]
            with self.stress.lock:
                self.stress.generations[key] = max(self.stress.generations.get(key, 0), generation)
            if generation <= known:
                problem = f"generation {generation} of {key[1]} is used again, {known} was known"
        if problem:
            self.stress.find(f"{self.name}: {o.name}: {problem}", f"    {sql[:300]}")


class Disturber(threading.Thread):
    """Reloads, cancels, terminates, kills and restarts, on a schedule that is the seed's."""

    EVENTS = (("reload", 2), ("cancel", 6), ("terminate", 6), ("terminate worker", 2), ("pause worker", 2), ("kill worker", 1),
              ("kill backend", 1), ("restart", 2), ("checkpoint", 2))

    def __init__(self, stress, nodes):
        super().__init__(name="disturber", daemon=True)
        self.stress, self.nodes = stress, nodes
        self.rng = random.Random(f"{stress.arguments.seed} disturber")
        self.pausing = threading.Event()
        self.idle = threading.Event()
        self.idle.set()

    def run(self):
        names, weights = zip(*self.EVENTS)
        while not self.stress.stop.is_set():
            event = self.rng.choices(names, weights)[0]
            node = self.rng.choice(self.nodes)
            pick = self.rng.random()
            self.stress.stop.wait(self.rng.uniform(0.3, 3))
            if self.stress.stop.is_set() or self.pausing.is_set():
                continue
            self.idle.clear()
            began = time.monotonic()
            try:
                done = self.disturb(event, node, pick)
                self.stress.count(f"disturbance: {event}", "ok" if done else "nobody", time.monotonic() - began)
            except psycopg2.Error as e:
                self.stress.count(f"disturbance: {event}", e.pgcode or "lost", time.monotonic() - began)
            finally:
                self.idle.set()

    def disturb(self, event, node, pick):
        if not node.running:
            return False
        if event == "reload":
            node.query("select pg_reload_conf()")
        elif event in ("cancel", "terminate"):
            rows = node.query("select pid from pg_stat_activity where application_name = 'stress' and pid <> pg_backend_pid()"
                              " and state = 'active' order by pid")
            if not rows:
                return False
            node.query(f"select pg_{event}_backend({rows[int(pick * len(rows))][0]})")
        elif event in ("terminate worker", "pause worker", "kill worker"):
            return self.disturb_worker(event, node, pick)
        elif event == "kill backend":
            rows = node.query("select pid from pg_stat_activity where application_name = 'stress' and pid <> pg_backend_pid() order by pid")
            return bool(rows) and self.kill(rows[int(pick * len(rows))][0])
        elif event == "restart":
            took = node.shutdown()
            if took > 20:
                self.stress.find(f"a fast stop of the {node.name} took {took:.1f} s", tail(node.log))
            node.start()
        elif event == "checkpoint":
            node.query("checkpoint")
        return True

    def disturb_worker(self, event, node, pick):
        """The worker may take a while to turn up."""
        until = time.monotonic() + 5
        while time.monotonic() < until and not self.stress.stop.is_set():
            pids = node.worker_pids()
            if pids:
                pid = pids[int(pick * len(pids))]
                if event == "kill worker":
                    return self.kill(pid)
                try:
                    if event == "terminate worker":
                        os.kill(pid, signal.SIGTERM)
                    else:
                        os.kill(pid, signal.SIGSTOP)
                        time.sleep(0.5)
                        os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    return False
                return True
            time.sleep(0.005)
        return False

    def kill(self, pid):
        self.stress.killed.add(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


class Watcher(threading.Thread):
    """Reads the logs as they grow, and looks for statements that do not end."""

    def __init__(self, stress, nodes):
        super().__init__(name="watcher", daemon=True)
        self.stress, self.nodes = stress, nodes
        self.at = {node.name: 0 for node in nodes}
        self.rest = {node.name: "" for node in nodes}
        self.context = {node.name: collections.deque(maxlen=1000) for node in nodes}
        self.lines = 0
        self.stuck = set()
        self.clients = []
        self.done = threading.Event()
        self.seen = collections.Counter()

    def run(self):
        while not self.done.wait(0.3):
            self.look()

    def look(self):
        for node in self.nodes:
            self.read_log(node)
        for client in self.clients:
            doing = client.doing
            if doing and time.monotonic() - doing[0] > STATEMENT_TIMEOUT + GRACE and doing not in self.stuck:
                self.stuck.add(doing)
                self.stress.find(f"{client.name}: a statement goes on {STATEMENT_TIMEOUT + GRACE} s after it began,"
                                 f" with a timeout of {STATEMENT_TIMEOUT} s", f"    {doing[1][:300]}\n{self.where(client)}")

    def where(self, client):
        try:
            return "\n".join(str(row) for row in client.node.query(
                "select pid, backend_type, state, wait_event_type, wait_event, left(query, 120) from pg_stat_activity"
                " where state = 'active' or backend_type ~ 'resid'"))
        except psycopg2.Error as e:
            return str(e)

    def read_log(self, node):
        try:
            with open(node.log, encoding="utf-8", errors="replace") as f:
                f.seek(self.at[node.name])
                text = self.rest[node.name] + f.read()
                self.at[node.name] = f.tell()
        except FileNotFoundError:
            return
        *lines, self.rest[node.name] = text.split("\n")
        for n, line in enumerate(lines):
            self.lines += 1
            self.context[node.name].append(line)
            problem, fatal = self.judge(line)
            if problem:
                self.seen[re.sub(r'"[^"]*"|\d+', "...", problem)] += 1
                process = line.split("]")[0].split("[")[-1]
                around = [x for x in self.context[node.name] if f" [{process}] " in x][-5:] + lines[n + 1:n + 5]
                self.stress.find(f"log of the {node.name}: {problem}", "\n".join("    " + x[:300] for x in around), fatal)

    def judge(self, line):
        signaled = SIGNALED.search(line)
        if signaled and (signaled.group(2) != "9" or int(signaled.group(1)) not in self.stress.killed):
            return f"a process ended by signal {signaled.group(2)}", True
        if "TRAP:" in line or "Sanitizer" in line or "runtime error:" in line:
            return "TRAP: " + line[:200], True
        match = LINE.match(line)
        if not match:
            return None, False
        dummy, backend, severity, code, message = match.groups()
        if severity == "PANIC":
            return "PANIC: " + message, True
        if severity not in ("WARNING", "ERROR", "FATAL", "LOG"):
            return None, False
        # PostgreSQL's own word on a tablespace inside the data directory, which it allows for tests like this
        if code == "XX001" and backend == "startup" and "unexpected directory entry" in message:
            return None, False
        # what PostgreSQL itself says to who connects to a database that is being dropped, or whose drop is being replayed
        if "pg_residency" in backend and ((code == "55000" and "cannot connect to invalid database" in message)
                                          or (code == "22023" and "is not a valid data directory" in message)):
            return None, False
        if code and code.startswith("XX"):
            return f"{severity} {code} in {backend or 'a process'}: {message}", False
        if severity == "WARNING" and LEAK.search(message):
            return f"WARNING: {message}", False
        if code == "53000" and "could not start the worker of the restore" in message:
            return None, False
        if code and code[:2] in ("53", "58") and code not in ("53300", "58P01") and severity != "LOG":
            return f"{severity} {code} in {backend}: {message}", False
        if "pg_residency" in backend and severity in ("ERROR", "FATAL") and code not in OF_WORKERS:
            return f"{severity} {code} in {backend}: {message}", False
        return None, False


# --- before and after ---

CONF = """
listen_addresses = ''
shared_buffers = 16MB
max_connections = 60
max_worker_processes = 12
max_wal_senders = 6
max_locks_per_transaction = 512
wal_level = replica
max_wal_size = 1GB
wal_keep_size = 1GB
checkpoint_timeout = 30s
fsync = off
synchronous_commit = off
autovacuum_naptime = 2s
restart_after_crash = on
allow_in_place_tablespaces = on
max_standby_streaming_delay = 2s
wal_retrieve_retry_interval = 200ms
log_line_prefix = '%m [%p] <%b> '
log_error_verbosity = verbose
log_min_error_statement = error
log_min_messages = warning
"""

IN_TEMPLATE = """
create extension pg_residency;
create table part (a int primary key, b text) partition by range (a);
create table part_0 partition of part for values from (0) to (1000);
insert into part select i, repeat('x', 700) from generate_series(0, 500) i;
grant execute on function pgfadvise_willneed(regclass), pgfadvise_dontneed(regclass), pgfadvise(regclass, text, int),
    pgfadvise_loader(regclass, text, int, bool, bool, varbit), pgfadvise_loader(regclass, int, bool, bool, varbit),
    residency_evict(regclass) to reader;
"""


def prepare(stress):
    a = stress.arguments
    primary, standby = Node(stress, "primary", 5701), Node(stress, "standby", 5702)
    spaces = stress.spaces
    for directory in spaces:
        for name in ("s0", "s1"):
            os.makedirs(f"{directory}/{name}")
    if a.device:
        # of two tablespaces one is on a device of its own, for primary and standby alike
        for which, directory in zip(("primary", "standby"), spaces):
            os.makedirs(f"{a.device}/stress/{which}", exist_ok=True)
            os.rmdir(f"{directory}/s1")
            os.symlink(f"{a.device}/stress/{which}", f"{directory}/s1")
        subprocess.run(["chown", "-R", "postgres:", f"{a.device}/stress"], check=True)
    subprocess.run(["chown", "-R", "postgres:", *spaces], check=True)
    primary.replays, standby.replays = False, True

    primary.as_postgres(primary.bin("initdb"), "-D", primary.data, "-k", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
    primary.configure(f"{CONF}{a.setting}\nport = {primary.port}\nunix_socket_directories = '{a.work}'\ncluster_name = 'primary'\n")
    primary.start()
    primary.query("create role reader login in role pg_monitor", "template1")
    primary.query(IN_TEMPLATE, "template1")
    primary.query("create database stress", "postgres")
    rng = random.Random(f"{a.seed} tables")
    for table in TABLES:
        primary.query(create_sql(rng, table))
    primary.query("create table big (a int, b text) with (fillfactor = 10); alter table big alter b set storage plain")
    primary.query("insert into big select i, repeat('x', 700) from generate_series(1, 10000) i; checkpoint")
    primary.query("grant select on big, part to reader")

    standby.as_postgres(primary.bin("pg_basebackup"), "-h", a.work, "-p", str(primary.port), "-D", standby.data, "-R", "-c", "fast", "-N")
    standby.configure(f"port = {standby.port}\ncluster_name = 'standby'\nhot_standby = on\n")
    standby.namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                         'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", spaces[1], spaces[0]]
    standby.start()
    for sql in ("create tablespace s0 location '%s'" % stress.location("s0"), "create tablespace s1 location '%s'" % stress.location("s1"),
                "create tablespace inplace location ''", "create database d0", "create database d1 tablespace s1"):
        primary.query(sql)

    global SUMS
    columns = {row[0] for row in primary.query("select attname from pg_attribute where attrelid = 'residency_jobs'::regclass")}
    stress.functions = {row[0] for row in primary.query("select proname from pg_proc where proname ~ '^residency'")}
    parts = "resident + over_budget + gone + failed"
    SUMS = "select * from residency_jobs where least(wanted, resident, loaded, extra, over_budget, gone, failed) < 0" + (
        f" or settled > wanted or (state = 'done' and (settled <> wanted or wanted <> {parts}))" if "settled" in columns else
        f" or (state = 'done' and wanted <> {parts})")
    stress.version = primary.query("select residency_version()")[0][0]
    return primary, standby


def promote(stress, primary, standby, clients, disturber):
    """The primary goes, the standby takes over, and the primary's clients go on there."""
    disturber.pausing.set()
    disturber.idle.wait(120)
    stress.check("the primary stops within 200 s", [f"{t:.1f} s" for t in [primary.shutdown()] if t > 200])
    result = standby.as_postgres(standby.bin("pg_ctl"), "-D", standby.data, "-w", "-t", "60", "promote", check=False)
    if result.returncode != 0:
        # it may be recovering from a crash at just this time
        standby.ask("select pg_promote(true, 60) where pg_is_in_recovery()")
    stress.check("the standby is promoted", ["it is still in recovery"] if standby.ask("select pg_is_in_recovery()")[0][0] else [])
    standby.replays = False
    for client in clients:
        client.node = standby
    disturber.nodes = [standby]
    disturber.pausing.clear()


def idle_sessions(clients):
    """The sessions that are left, each after a statement that lets it notice what has happened."""
    pids = []
    for client in clients:
        if client.connection is None or client.connection.closed:
            continue
        try:
            with client.connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid(), count(*) from pg_class")
                pids.append((cursor.fetchone()[0], client))
        except psycopg2.Error:
            client.close()
    return pids


def leftovers(node, pids):
    """Descriptors and mappings that an idle server process has no use for."""
    problems = []
    roots = (node.data + "/base", node.data + "/global", node.data + "/pg_tblspc", f"{node.work}/spaces", f"{node.work}/standby_spaces")
    if node.stress.arguments.device:
        roots += (node.stress.arguments.device,)
    for pid in node.pids():
        name = f"{title(pid)} (PID {pid})"
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                with open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") as f:
                    access = int(re.search(r"flags:\s+0(\d+)", f.read()).group(1), 8) & 3
                if "/pg_residency/" in target or "/dev/shm/pgfleet" in target:
                    problems.append(f"{name} has {target} open")
                elif target.startswith(roots) and access == os.O_RDONLY:
                    problems.append(f"{name} has {target} open for reading, which PostgreSQL itself never does")
                elif target.startswith(roots) and target.endswith(" (deleted)") and pid in pids:
                    problems.append(f"{name} keeps {target}")
            with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
                for line in f:
                    fields = line.split(None, 5)
                    if len(fields) == 6 and fields[5].startswith(roots):
                        problems.append(f"{name} has {fields[5].strip()} mapped")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return problems


ENDED = "select job, state, pid, message from residency_jobs where state in ('starting', 'waiting', 'running')"


def examine(stress, node, clients):
    """What is left after all have stopped."""
    until = time.monotonic() + 30
    while (rows := node.ask(ENDED)) and time.monotonic() < until:
        time.sleep(0.2)
    stress.check(f"{node.name}: every job has ended 30 s later", [str(row) for row in rows])
    while (pids := node.worker_pids()) and time.monotonic() < until:
        time.sleep(0.2)
    stress.check(f"{node.name}: no background worker of ours is left", [title(pid) for pid in pids])
    stress.check(f"{node.name}: sums hold", [str(row) for row in node.ask(SUMS)])
    problems = []
    for job, state, wanted, segments, done, failed in node.ask(
            "select job, state, wanted, segments, segments_done, failed from residency_jobs where state = 'done'"):
        rows = node.ask(f"select coalesce(sum(wanted), 0), count(*), coalesce(sum(failed), 0), bool_and(wanted = resident + over_budget + gone + failed)"
                        f" from residency_job_segments({job})")[0]
        if (rows[0], rows[1], rows[2]) != (wanted, segments, failed) or segments != done or rows[3] is False:
            problems.append(f"job {job}: wanted {wanted}, segments {done}/{segments}, failed {failed}; by segment {rows}")
    stress.check(f"{node.name}: a job is the sum of its segments", problems)
    reasons = node.ask("select distinct s.reason from residency_jobs j, residency_job_segments(j.job) s where s.failed > 0")
    stress.check(f"{node.name}: blocks failed only because others evict", [str(r[0]) for r in reasons if not REASONS.match(r[0] or "")])

    stress.check(f"{node.name}: a job that is not done says why", [str(row) for row in node.ask(
        "select job, state from residency_jobs where state in ('failed', 'canceled', 'interrupted') and message is null")])

    mine = idle_sessions([c for c in clients if c.node is node])
    stress.check(f"{node.name}: idle processes keep nothing of ours open or mapped", leftovers(node, {pid for pid, dummy in mine}))
    # (a starting process has locks before it is in pg_stat_activity)
    locks = ("select l.pid, l.locktype, l.mode, l.relation from pg_locks l where l.pid is not null and l.pid <> pg_backend_pid()"
             " and (not exists (select from pg_stat_activity a where a.pid = l.pid)"
             " or exists (select from pg_stat_activity a where a.pid = l.pid and a.state = 'idle'))")
    until = time.monotonic() + 10
    while (rows := node.ask(locks)) and time.monotonic() < until:
        time.sleep(0.2)
    stress.check(f"{node.name}: no lock belongs to nobody, none to an idle session", [str(row) for row in rows])

    for client in clients:
        if client.node is node:
            client.close()
    problems = []
    for sql in ("select residency_snapshot('n0', 2)", "select residency_restore_start('n0')"):
        try:
            node.query(sql)
        except psycopg2.Error as e:
            problems.append(f"{sql}: {e}")
    until = time.monotonic() + 60
    while (rows := node.ask(ENDED)) and time.monotonic() < until:
        time.sleep(0.1)
    problems += [str(row) for row in rows]
    rows = node.ask("select state, message from residency_jobs order by job desc limit 1")
    if not problems and rows[0][0] != "done":
        problems.append(str(rows))
    stress.check(f"{node.name}: a snapshot and a restore work", problems)
    directory = f"{node.data}/pg_residency"
    stress.check(f"{node.name}: no temporary file is left in pg_residency", sorted(
        name for name in os.listdir(directory) if re.match(r"pgsql_tmp\.(snapshot|names|new|write)", name)))


def report(stress, seconds):
    a = stress.arguments
    print(f"\nseed {a.seed}, {seconds:.0f} s, pg_residency {stress.version}, {stress.server}")
    total = collections.Counter()
    for kind in sorted(stress.counts):
        counts = stress.counts[kind]
        errors = sum(n for outcome, n in counts.items() if outcome != "ok")
        total["ok"] += counts["ok"]
        total["errors"] += errors
        words = " ".join(f"{outcome}:{n}" for outcome, n in sorted(counts.items()) if outcome != "ok")
        print(f"  {kind:32s} {counts['ok']:7d} ok {errors:6d} errors  longest {stress.slowest[kind]:5.1f} s  {words}")
    print(f"  {'operations':32s} {total['ok']:7d} ok {total['errors']:6d} errors")
    for what, holds in stress.checks:
        print(f"  {'holds' if holds else 'FAILS'}: {what}")
    for what, excerpt, times in stress.finds.values():
        print(f"find{f', {times} times' if times > 1 else ''}: {what}" + (f"\n{excerpt}" if excerpt else ""))
    failed = sum(not holds for dummy, holds in stress.checks)
    print(f"stress: {len(stress.checks) - failed} passed, {failed} failed")
    return 1 if stress.finds else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--device", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--setting", default="", help="one more line of postgresql.conf: io_method = io_uring")
    parser.add_argument("--without", default="", help="operations to leave out, to get past a known find: loader,replace_snapshot")
    stress = Stress(parser.parse_args())
    a = stress.arguments
    primary, standby = nodes = prepare(stress)
    stress.server = primary.query("select version()")[0][0].split(" on ")[0]
    print(f"seed {a.seed}, {a.seconds} s, pg_residency {stress.version}, {stress.server}", flush=True)

    clients = [Client(stress, node, kinds, n, user) for node, kinds, n, user in [
        (primary, ["residency", "reading"], 1, "postgres"), (primary, ["residency", "replacing"], 2, "postgres"),
        (primary, ["pgfincore"], 1, "postgres"), (primary, ["pgfincore", "reading"], 2, "postgres"),
        (primary, ["ddl", "tablespaces"], 1, "postgres"), (primary, ["ddl"], 2, "postgres"), (primary, ["ddl", "residency"], 3, "postgres"),
        (primary, ["pgfincore", "reading", "residency"], 9, "reader"),
        (standby, ["residency", "reading"], 1, "postgres"), (standby, ["residency", "pgfincore"], 2, "postgres"),
        (standby, ["pgfincore", "reading"], 3, "postgres")]]
    watcher = Watcher(stress, nodes)
    watcher.clients = clients
    disturber = Disturber(stress, list(nodes))
    began = time.monotonic()
    for thread in [watcher, *clients, disturber]:
        thread.start()
    try:
        if not stress.stop.wait(a.seconds * 0.85):
            try:
                promote(stress, primary, standby, clients, disturber)
            except (psycopg2.Error, OSError) as e:
                stress.check("the standby takes over", [repr(e) + "\n" + tail(standby.log)])
            stress.stop.wait(a.seconds * 0.15)
    finally:
        stress.stop.set()
    for thread in [*clients, disturber]:
        thread.join(STATEMENT_TIMEOUT + 2 * GRACE)
    stress.check("every client's last statement ends", [t.name for t in clients if t.is_alive()])
    seconds = time.monotonic() - began
    # of both, since a job of the one waits for the other's, which may have a low rate
    for node in nodes:
        try:
            if not node.running:
                node.start()
            node.ask("select residency_cancel(job) from residency_jobs where state in ('waiting', 'running')")
        except (psycopg2.Error, RuntimeError, OSError) as e:
            stress.check(f"{node.name}: can be asked", [repr(e) + "\n" + tail(node.log)])
    for node in nodes:
        try:
            examine(stress, node, clients)
        except (psycopg2.Error, RuntimeError, OSError) as e:
            stress.check(f"{node.name}: can be examined", [repr(e) + "\n" + tail(node.log)])
    watcher.done.set()
    watcher.join()
    for node in nodes:
        took = node.shutdown()
        stress.check(f"{node.name}: stops within 200 s", [f"{took:.1f} s"] if took > 200 else [])
        if os.path.exists(f"{node.data}/postmaster.pid"):
            node.shutdown("immediate")
        result = node.as_postgres(node.bin("pg_checksums"), "-D", node.data, "--check", through=node.namespace, check=False)
        stress.check(f"{node.name}: no page is damaged", [] if result.returncode == 0 else [(result.stdout + result.stderr)[-2000:]])
    watcher.look()
    stress.check("the logs have no signal, internal error or leak", [f"{sum(watcher.seen.values())} times, see the finds"] if watcher.seen else [])
    stress.check("every client got only what it may get", [] if not any(
        " got " in what and not what.startswith("log of") for what, dummy, dummy2 in stress.finds.values()) else ["see the finds"])
    return report(stress, seconds)


if __name__ == "__main__":
    sys.exit(main())
