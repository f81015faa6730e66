"""Pauses the clients of a pgbouncer for a bounded time, or ends the pause. Runs on its host, as the user of its console.

    pause.py pause SECONDS BEGINS BOUND SETTLES DATABASE PSQL...    waits at most SECONDS for transactions
    pause.py resume SECONDS DATABASE PSQL...

PSQL... is the command line of its console, DATABASE is empty for all. The exit status and the errors are psql's, 124 if it did not end in time.

The pause must not outlast whoever asked for it. So a process of its own begins it, which nothing connects to the controller, and ends it: when it
gets a SIGTERM, as by "resume"; when the servers of the database have been down, and have accepted connections again for SETTLES seconds, in which a
proxy before them finds the new primary; when none was down within BEGINS seconds, since nothing restarts them; in any case after BOUND seconds.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import time

TIMED_OUT = 124  # as timeout(1) has it
RESUMED = 3600  # seconds of attempts to resume: the console may be out of descriptors, which its clients take that wait
STEP = 0.2  # seconds between two looks at the servers
SILENT = 1  # seconds without an answer: the server is down. HAProxy holds a connection to one that is down for 3 s, and tries again
BACK = 0.5  # seconds: who was down has to answer in them


def ask(console, command, seconds):
    """Exit status, output and errors of psql, which has no end of its own where a console accepts and says nothing."""
    try:
        done = subprocess.run(
            [*console, "--command", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds,
            check=False, universal_newlines=True)
    except subprocess.TimeoutExpired:
        return TIMED_OUT, "", ""
    except OSError as error:
        return 127, "", "%s: %s" % (console[0], error.strerror)
    return done.returncode, done.stdout, done.stderr


def of(command, database):
    return command + (' "%s"' % database.replace('"', '""') if database else "")


def addresses(console, database):
    """(host, port) of the servers behind a database, or behind all."""
    rows = csv.DictReader(io.StringIO(ask(console, "SHOW DATABASES", 10)[1]))
    return {(row.get("host") or "", row.get("port") or "") for row in rows if row.get("name") != "pgbouncer" and database in ("", row.get("name"))}


def is_down(host, port, seconds):
    """Whether a server refuses connections (1 and 2 of pg_isready), or does not answer for so many seconds. It logs in nowhere."""
    where = ["--host=" + host] if host else []
    try:
        return subprocess.call(["pg_isready", "--quiet", "--port=" + port, *where], stdin=subprocess.DEVNULL, timeout=seconds) in (1, 2)
    except subprocess.TimeoutExpired:
        return True


def wait(servers, told, begins, bound, settles):
    since, down, back = time.monotonic(), set(), None
    while not told:
        now_down, now = {one for one in servers if is_down(*one, BACK if one in down else SILENT)}, time.monotonic()
        down |= now_down
        back = None if now_down else back or now
        if now - since > bound or (down and back and now - back >= settles) or (servers and not down and now - since > begins):
            return
        time.sleep(STEP)


def hold(console, database, seconds, begins, bound, settles, answer):
    """Pause, answer with psql's exit status and errors, and resume."""
    told = []
    signal.signal(signal.SIGTERM, lambda *dummy: told.append(True))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # one that is down already is none that is restarted
    servers = {one for one in addresses(console, database) if not is_down(*one, SILENT)} if shutil.which("pg_isready") else set()
    status, dummy, errors = ask(console, of("PAUSE", database), seconds)
    if status and "ERROR:" in errors:  # the console has refused: others have paused it, or there is no such database
        answer(status, errors)
        return
    try:
        answer(status, errors)
        if not status:
            wait(servers, told, begins, bound, settles)
    finally:  # after a failure too: the pause may have begun
        until = time.monotonic() + RESUMED
        while time.monotonic() < until:
            status, dummy, errors = ask(console, of("RESUME", database), 10)
            if not status or "not paused" in errors:
                break
            time.sleep(1)


def detached(work):
    """Run work(answer) in a process that stays when this session ends, and return what it answers."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with open(reader, encoding="utf-8", errors="replace") as stream:
            status, dummy, errors = stream.read().partition("\n")
        return int(status or 1), errors
    os.setsid()
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir("/")

    def answer(status, errors):
        with open(writer, "w", encoding="utf-8", errors="replace") as stream:
            stream.write("%d\n%s" % (status, errors))

    try:
        work(answer)
    finally:
        os._exit(0)


def holders(words):
    """The processes of this user that hold a pause of this console and database."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                given = os.fsdecode(file.read()).split("\0")[:-1]
            if given[-len(words):] == words and given[-len(words) - 5:][:1] == ["pause"] and os.stat("/proc/" + name).st_uid == os.geteuid():
                yield int(name)
        except OSError:
            continue  # it has ended


def resume(console, database, seconds):
    until = time.monotonic() + seconds
    for pid in holders([database, *console]):
        try:
            os.kill(pid, signal.SIGTERM)
            while time.monotonic() < until and os.path.exists("/proc/%d" % pid):
                time.sleep(0.05)
        except ProcessLookupError:
            continue
    status, dummy, errors = ask(console, of("RESUME", database), seconds)
    return status, errors


def main():
    action, seconds, *words = sys.argv[1:]
    if action == "pause":
        begins, bound, settles, database, *console = words
        status, errors = detached(lambda answer: hold(
            console, database, float(seconds), float(begins), float(bound), float(settles), answer))
    else:
        database, *console = words
        status, errors = resume(console, database, float(seconds))
    sys.stderr.write(errors)
    sys.exit(status)


if __name__ == "__main__":
    main()
