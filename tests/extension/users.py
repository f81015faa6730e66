"""Clusters of two operating system users on one host: what the one can do to the other's restores by way of /dev/shm.

    users.py --bindir /.../bin --work DIRECTORY

Runs as root, in a /dev/shm of its own; tests/extension/run.sh starts it.  Exits with 1 when something does not hold.
"""

import argparse
import os
import pwd
import re
import signal
import struct
import subprocess
import sys
import time
import types

from stress import Node, tail

FILE = "/dev/shm/pgfleet.pg_residency"
ENDED = ("done", "failed", "canceled", "interrupted")
PATIENCE = 100.0  # seconds: more than anything here takes on a busy host, and less than a turn is waited for by default, 300
passed = failed = 0


def check(what, holds, seen=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
    print(f"{'ok' if holds else 'not ok'} - {what}" + (f"\n    {seen}" if not holds and seen != "" else ""), flush=True)


class Cluster(Node):
    """One of a user's own, with a table to restore."""

    def __init__(self, work, bindir, name, port, user):
        super().__init__(types.SimpleNamespace(arguments=types.SimpleNamespace(work=work, bindir=bindir, device="")), name, port)
        self.user = pwd.getpwnam(user)
        self.work = self.data = f"{work}/{name}"
        self.log = f"{work}/{name}/server.log"
        self.data = f"{work}/{name}/data"
        os.makedirs(self.work)
        os.chown(self.work, self.user.pw_uid, self.user.pw_gid)
        self.file = f"{FILE}.{self.user.pw_uid}"

    def as_postgres(self, *command, through=(), check=True):
        return subprocess.run(
            [*through, "setpriv", "--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid), "--clear-groups", *command],
            cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check,
            env={**os.environ, "HOME": self.work})

    def connect(self, database="postgres", user="postgres"):
        return super().connect("postgres" if database == "stress" else database, user)

    def make(self):
        self.as_postgres(self.bin("initdb"), "-D", self.data, "-A", "trust", "-N", "-U", "postgres", "--no-locale")
        self.configure(f"port = {self.port}\nunix_socket_directories = '{self.work}'\nlisten_addresses = ''\n"
                       "shared_buffers = 1MB\nautovacuum = off\nmax_wal_size = 4GB\n")
        self.start()
        for sql in ("create extension pg_residency", "create table wide (a int, b text) with (fillfactor = 10)",
                    "alter table wide alter b set storage plain",
                    "insert into wide select i, repeat('x', 700) from generate_series(1, 6000) i", "checkpoint",
                    "select residency_snapshot('warm')"):
            self.query(sql)

    def start_restore(self, options="{}"):
        self.query("select residency_evict('wide')")
        return self.query(f"select residency_restore_start('warm', '{options}')")[0][0]

    def job(self, job, columns="state"):
        return self.query(f"select {columns} from residency_jobs where job = {job}")[0]

    def wait_for(self, job, states=ENDED):
        """Seconds until the job comes to one of these states; None when it does not."""
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            if self.job(job)[0] in states:
                return time.monotonic() - began
            time.sleep(0.05)
        return None

    def cancel(self, job):
        self.query(f"select residency_cancel({job})")
        return self.wait_for(job)


def as_user(user, *command):
    subprocess.run(["setpriv", "--reuid", user, "--regid", user if user != "nobody" else "nogroup", "--clear-groups", *command], check=True)


def remove(*paths):
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)


def waiting(ours, theirs):
    """Theirs restores, slowly: how long ours waits, and what it says."""
    slow = theirs.start_restore('{"rate": 500000}')
    theirs.wait_for(slow, ("running",))
    worker = theirs.job(slow, "pid")[0]

    job = ours.start_restore()
    check("a cluster of another user is waited for", ours.wait_for(job, ("waiting",)) is not None, ours.job(job, "state, message"))
    time.sleep(1)
    message = ours.job(job, "message")[0] or ""
    check("the waiting job says for whom, and since when",
          re.search(rf'waiting for the restore of "{re.escape(theirs.data)}" \(PID {worker}\) since \S+', message), message)
    took = ours.cancel(job)
    check("it can be canceled while it waits", took is not None and ours.job(job)[0] == "canceled", took)

    job = ours.start_restore()
    time.sleep(2)
    theirs.cancel(slow)
    took = ours.wait_for(job)
    check("when the other one has ended it goes on", took is not None and ours.job(job)[0] == "done", took)
    check("and says nothing of it any more", ours.job(job, "message")[0] is None, ours.job(job, "message"))

    # one that neither ends nor goes on
    slow = theirs.start_restore('{"rate": 500000}')
    theirs.wait_for(slow, ("running",))
    worker = theirs.job(slow, "pid")[0]
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    job = ours.start_restore('{"turn_wait": 4}')
    took = ours.wait_for(job)
    took = took and time.monotonic() - began
    check("one that does not end delays by turn_wait at the most", took is not None and took > 3.5 and ours.job(job)[0] == "done",
          (took, ours.job(job, "state, message")))
    job = ours.start_restore()
    time.sleep(7)
    check("which is more by default", ours.job(job)[0] == "waiting", ours.job(job))
    os.kill(worker, signal.SIGKILL)
    took = ours.wait_for(job)
    check("one that is killed is waited for no longer", took is not None, took)
    time.sleep(1)
    theirs.ask("select 1")


def memory(ours, theirs):
    """What the other's ledger may say of memory."""
    before = ours.query("select budget_bytes from residency_budget()")[0][0]
    theirs.wait_for(theirs.start_restore())
    with open(theirs.file, "r+b") as f:
        content = f.read()
        at = content.find(theirs.data.encode() + b"\0")
        check("the other's ledger names its cluster", at > 0)
        # its bytes stand there, in front of seven more numbers
        f.seek(at - 64)
        f.write(struct.pack("<Q", 2**64 - 1))
    # half of what is available, of which the host's hot cache may have left us little more than that
    budget, elsewhere, available = ours.query(
        "select budget_bytes, restored_elsewhere_bytes, memory_available_bytes from residency_budget()")[0]
    check("another user's ledger takes a part of the memory at most",
          elsewhere <= 0.52 * available and budget >= before - elsewhere - 0.1 * available, (before, budget, elsewhere, available))
    job = ours.start_restore()
    ours.wait_for(job)
    check("and a restore finds enough", ours.job(job, "state, over_budget") == ("done", 0), ours.job(job, "state, over_budget, budget_bytes"))


def dead_claim(ours, theirs):
    """A claim of a process whose PID another process has by now; PATIENCE is shorter than the wait for a claim that counts."""
    with open(theirs.file, "r+b") as f:
        content = f.read()
        at = content.find(theirs.data.encode() + b"\0")
        postmaster, started = struct.unpack("<2q", content[at - 48:at - 32])
        check("the other's ledger has its postmaster", os.path.exists(f"/proc/{postmaster}") and started > 0, (postmaster, started))
        for alive in (True, False):
            f.seek(at - 32)
            f.write(struct.pack("<4q", 1, postmaster, started - (not alive), 1))
            f.flush()
            job = ours.start_restore('{"turn_wait": 3600}')
            if alive:
                check("a claim of a process that lives is waited for", ours.wait_for(job, ("waiting",)) is not None, ours.job(job))
                ours.cancel(job)
            else:
                ended = ours.wait_for(job)
                check("a claim of a process that has ended is not", ended is not None, ours.job(job, "state, message"))


def strange_files(ours, user):
    """The other user makes anything it can think of in /dev/shm."""
    victim = f"{ours.work}/victim"
    content = b"not to be touched" * 300
    with open(victim, "wb") as f:
        f.write(content)
    os.chown(victim, ours.user.pw_uid, ours.user.pw_gid)
    theirs = f"{FILE}.{pwd.getpwnam(user).pw_uid}"
    ways = {
        "a FIFO": ["mkfifo", "%"],
        "a link to a file of ours": ["ln", "-s", victim, "%"],
        "a link to /dev/zero": ["ln", "-s", "/dev/zero", "%"],
        "a directory": ["mkdir", "%"],
        "a large file": ["truncate", "-s", "1T", "%"],
        "random bytes": ["sh", "-c", "head -c 14000 /dev/urandom >%"],
        "a file that all may write": ["sh", "-c", "head -c 14000 /dev/urandom >%; chmod 666 %"],
        "a file that is not ours": ["sh", "-c", "echo hello >%; chmod 644 %"],
    }
    for place, name in ((ours.file, "our file"), (f"{ours.file}.lock", "our lock"), (theirs, "its file")):
        for what, command in ways.items():
            remove(ours.file, f"{ours.file}.lock", theirs, f"{theirs}.lock")
            as_user(user, *[word.replace("%", place) for word in command])
            found = os.lstat(place)
            began = time.monotonic()
            job = ours.start_restore()
            ended = ours.wait_for(job)
            took = time.monotonic() - began
            now = os.lstat(place) if os.path.lexists(place) else None
            check(f"{what} in place of {name}: restored, in {took:.1f} s", ended is not None and ours.job(job)[0] == "done",
                  ours.job(job, "state, message"))
            if ended is None:
                ours.cancel(job)
            check("it stays as it was made", now is not None and (now.st_ino, now.st_mode, now.st_size, now.st_uid, now.st_mtime_ns) ==
                  (found.st_ino, found.st_mode, found.st_size, found.st_uid, found.st_mtime_ns), (found, now))
            with open(victim, "rb") as f:
                check("what it links to is unchanged", f.read() == content and os.stat(victim).st_mode & 0o777 == 0o644)
            if place in (ours.file, f"{ours.file}.lock"):
                check("the log says so", place in tail(ours.log, 40), tail(ours.log, 5))
            remove(place)


def locks(ours, user):
    """A lock that the other user can take, on what it can open."""
    job = ours.start_restore()
    ours.wait_for(job)
    code = ("import fcntl, os, struct, sys, time\n"
            "for path in sys.argv[1:]:\n"
            "    for flags, kind in ((os.O_RDWR, fcntl.F_WRLCK), (os.O_RDONLY, fcntl.F_RDLCK)):\n"
            "        try:\n"
            "            fd = os.open(path, flags)\n"
            "            fcntl.fcntl(fd, 38, struct.pack('hhqqi4x', kind, 0, 0, 0, 0))\n"     # F_OFD_SETLK
            "            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)\n"
            "        except OSError as e:\n"
            "            print(path, e, flush=True)\n"
            "print('ready', flush=True)\n"
            "time.sleep(600)\n")
    holder = subprocess.Popen(["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups", "/usr/bin/python3", "-c", code,
                               ours.file, f"{ours.file}.lock"], stdout=subprocess.PIPE, text=True)
    for line in holder.stdout:
        if line == "ready\n":
            break
    job = ours.start_restore()
    ended = ours.wait_for(job)
    check("locks of another user stop nothing", ended is not None, ours.job(job, "state, message"))
    if ended is None:
        ours.cancel(job)
    holder.kill()
    holder.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    assert os.environ.get("PG_RESIDENCY_ALONE"), "it changes files in /dev/shm: start it by tests/extension/run.sh"
    ours = Cluster(arguments.work, arguments.bindir, "ours", 5711, "postgres")
    theirs = Cluster(arguments.work, arguments.bindir, "theirs", 5712, "nobody")
    try:
        remove(ours.file, f"{ours.file}.lock", theirs.file, f"{theirs.file}.lock")
        ours.make()
        theirs.make()
        waiting(ours, theirs)
        if os.path.exists(theirs.file):
            memory(ours, theirs)
            dead_claim(ours, theirs)
        else:
            check("each user has a file of its own", False)
        theirs.shutdown()
        strange_files(ours, "nobody")
        locks(ours, "nobody")
        for cluster in (ours, theirs):
            with open(cluster.log, encoding="utf-8", errors="replace") as f:
                signals = [line for line in f if re.search(r"terminated by signal (?!9\b)|PANIC:|TRAP:", line)]
            check(f"no process of {cluster.name} ended by a signal of its own", not signals, signals)
    finally:
        for cluster in (ours, theirs):
            if cluster.running:
                cluster.shutdown("immediate")
        remove(ours.file, f"{ours.file}.lock", theirs.file, f"{theirs.file}.lock")
    print(f"users: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
