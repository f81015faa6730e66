# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports to load balancers how warm a PostgreSQL server is: the percentage of a snapshot that is resident in its page cache.

systemd starts it at the first connection to one of two sockets:

1. HTTP: status 200 if the server is ready, else 503; the body has the state and the percentage, as JSON.
2. HAProxy's agent-check: a line "up N%", with which HAProxy weighs the server. Never "ready", which would end an operator's drain or maintenance, nor
   "down", which would outlive this program: whether a server serves is for the check itself to find out.

A server is ready once, since its start, --min-residency percent were resident, or a restore has ended, or --patience seconds have passed. Then it is
ready until it is restarted, with "up 100%": a page cache that shrinks takes no server out of traffic, nor does anything that keeps this program from
measuring. A server that accepts no connections, or does not answer, is 503 and "up 1%", with which it begins.

While a restore of the snapshot runs, its job has the number of resident blocks. Otherwise every segment is measured, with at most a hundredth of a
CPU: until the time has come for the next measurement, the last one counts.
"""

import argparse
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

FIRST_DESCRIPTOR = 3  # sd_listen_fds(3)
CLIENT_TIMEOUT = 2  # seconds for a load balancer to send its request
LONGEST_REQUEST = 8192  # bytes
MOST_CLIENTS = 16  # of one socket at the same time
CONNECT_TIMEOUT = 3  # seconds; libpq's
STATEMENT_TIMEOUT = 30  # seconds
PATIENCE = 5  # seconds until a server that does not answer is taken for down
FRESH = 1.0  # seconds for which an answer is not asked again
SHARE = 100  # the next measurement comes after so many times the duration of the last one
OPTIONS = (
    "-c role=pg_monitor -c search_path=pg_catalog,pg_temp -c default_transaction_read_only=on -c jit=off -c statement_timeout=%ds" % STATEMENT_TIMEOUT
)
DOWN, NOT_MEASURED, NO_SNAPSHOT, NO_EXTENSION, RESTORING, MEASURED, READY = (
    "down", "not measured", "no snapshot", "no extension", "restoring", "measured", "ready")

SERVER = """
SELECT extract(epoch FROM pg_postmaster_start_time())::float8, extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8,
       (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_residency')
"""
# A restore that waits for another one's end has measured nothing yet.
JOBS = """
SELECT max(resident) FILTER (WHERE own AND state = 'running'), max(wanted - gone) FILTER (WHERE own AND state = 'running'),
       coalesce(bool_or(state IN ('starting', 'waiting', 'running')), false), count(*)
FROM (SELECT *, snapshot = split_part(%(name)s, '@', 1) AS own FROM {0}.residency_jobs WHERE started_at >= pg_postmaster_start_time()) AS j
"""
EXISTS = """
SELECT count(*) FROM {0}.residency_snapshots() WHERE problem IS NULL
AND name = split_part(%(name)s, '@', 1) AND split_part(%(name)s, '@', 2) IN ('', generation::text)
"""
MEASURE = "SELECT coalesce(sum(resident), 0), coalesce(sum(wanted - gone), 0) FROM {0}.residency_snapshot_segments(%(name)s)"


class Answer:
    """``residency`` is a percentage, None where none is measured (any more)."""

    def __init__(self, state, residency=None):
        self.state = state
        self.residency = residency


class Server:
    """PostgreSQL, at which libpq's environment points."""

    def __init__(self, snapshot, min_residency, patience):
        self.snapshot = snapshot
        self._min_residency = min_residency
        self._patience = patience
        self._connection = None
        self._new = threading.Condition()  # of these four; all times are of time.monotonic()
        self._wanted = False
        self._answer = None
        self._asked = float("-inf")
        self._measures_until = 0.0  # at the latest
        self._started = None  # the server, in seconds of its own clock
        self._ready = False  # since then
        self._measured = None
        self._measure_again = 0.0
        self._logged = ""
        threading.Thread(target=self._run, daemon=True).start()

    def answer(self):
        """Not older than FRESH. A server that does not answer in time is down, unless it measures."""
        limit = time.monotonic() + PATIENCE
        with self._new:
            while time.monotonic() > self._asked + FRESH:
                self._wanted = True
                self._new.notify_all()
                if time.monotonic() >= limit:
                    if time.monotonic() < self._measures_until:
                        return self._answer or Answer(MEASURED, 0.0)
                    return Answer(DOWN)
                self._new.wait(max(limit - time.monotonic(), 0))
            return self._answer

    def _run(self):
        """Asks the server whenever a client wants to know; no client is kept by a server that hangs."""
        while True:
            with self._new:
                while not self._wanted:
                    self._new.wait()
                self._wanted = False
            answer = self._ask()
            with self._new:
                self._answer, self._asked = answer, time.monotonic()
                self._new.notify_all()

    def _ask(self):
        try:
            try:
                return self._look()
            except psycopg.Error:
                if self._connection is None:
                    raise
                self._close()  # it may have been one of a server that was restarted since
                return self._look()
        except psycopg.Error as error:
            self._close()
            self._log(str(error))
            return Answer(DOWN if is_down() else NOT_MEASURED)

    def _look(self):
        if self._connection is None:
            self._connection = psycopg.connect("", options=OPTIONS, connect_timeout=CONNECT_TIMEOUT, application_name="pgfleet readiness")
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute(SERVER)
            started, age, schema = cursor.fetchone()
            if started != self._started:
                self._started, self._ready, self._measured, self._measure_again = started, False, None, 0.0
            if self._ready:
                return Answer(READY)
            if schema is None:
                self._log("Extension pg_residency is not in this database.")
                return Answer(NO_EXTENSION)

            def row(query):
                cursor.execute(query.format(schema), {"name": self.snapshot})
                return cursor.fetchone()

            resident, wanted, at_work, jobs = row(JOBS)
            if resident is not None:
                self._measured = percent(resident, wanted)
                answer = Answer(RESTORING, self._measured)
            else:
                answer = self._measure(row)
            ended = jobs and not at_work
            if ended or age >= self._patience or (answer.residency is not None and answer.residency >= self._min_residency):
                self._ready = True
            return answer

    def _measure(self, row):
        began = time.monotonic()
        if self._measured is None or began >= self._measure_again:
            self._measures_until = began + STATEMENT_TIMEOUT + PATIENCE
            try:
                if not row(EXISTS)[0]:
                    return Answer(NO_SNAPSHOT)
                self._measured = percent(*row(MEASURE))
            finally:
                ended = time.monotonic()
                self._measure_again = ended + SHARE * (ended - began)
                self._measures_until = 0.0
        return Answer(MEASURED, self._measured)

    def _close(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _log(self, reason):
        """Into the journal, once; not to the load balancers, which are strangers."""
        if reason != self._logged:
            print(" ".join(reason.split()), file=sys.stderr, flush=True)
        self._logged = reason

    def is_ready(self, answer):
        """Whether it gets traffic: 200."""
        return answer.state != DOWN and (self._ready or answer.residency is None or answer.residency >= self._min_residency)

    def weight(self, answer):
        """Percent of its weight. 0 would be a drain."""
        if answer.state == DOWN:
            return 1
        return 100 if self._ready or answer.residency is None else max(1, int(answer.residency))


def is_down():
    """Whether PostgreSQL accepts no connections; True too while it starts or stops. A login that fails is no sign of that."""
    try:
        return subprocess.call(["pg_isready", "--quiet", "--timeout=%d" % CONNECT_TIMEOUT]) != 0
    except OSError:  # no such program, or no process for it
        return True


def percent(resident, wanted):
    return float(100 * resident / wanted) if wanted > 0 else 100.0


class Client(socketserver.BaseRequestHandler):
    """One connection of a load balancer."""

    def finish(self):
        """What it still sends is read, or the kernel would take the answer back."""
        try:
            self.request.shutdown(socket.SHUT_WR)
        except OSError:
            return
        self.receive(b"\0never")

    def receive(self, end):
        """What it sends until then, within a time and a length."""
        deadline, found = time.monotonic() + CLIENT_TIMEOUT, b""
        while end not in found and len(found) < LONGEST_REQUEST:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self.request.settimeout(left)
            try:
                piece = self.request.recv(LONGEST_REQUEST)
            except OSError:
                break
            if not piece:
                break
            found += piece
        return found


class Http(Client):
    def handle(self):
        request = self.receive(b"\r\n\r\n")
        if b"\r\n\r\n" not in request:
            return
        postgresql = self.server.postgresql
        answer = postgresql.answer()
        status = "200 OK" if postgresql.is_ready(answer) else "503 Service Unavailable"
        body = json.dumps({"snapshot": postgresql.snapshot, "residency": answer.residency, "state": answer.state}) + "\n"
        head = "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        self.request.sendall((head + ("" if request.startswith(b"HEAD ") else body)).encode())


class Agent(Client):
    def handle(self):
        postgresql = self.server.postgresql
        self.request.sendall(b"up %d%%\n" % postgresql.weight(postgresql.answer()))


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One of systemd's sockets."""

    daemon_threads = True

    def __init__(self, descriptor, handler, postgresql):
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)
        self.postgresql = postgresql
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)

    def process_request(self, request, client_address):
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request, client_address):
        """A client that has gone is not worth a traceback."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", default="autosave", help="its name, or name@generation (default: %(default)s)")
    parser.add_argument("--min-residency", type=float, default=90, help="percent (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=900, help="seconds after a start (default: %(default)s)")
    options = parser.parse_args()
    if os.environ.get("LISTEN_FDS") != "2":
        sys.exit("Two sockets are needed, of systemd's: HTTP and agent-check.")
    postgresql = Server(options.snapshot, options.min_residency, options.patience)
    for descriptor, handler in enumerate((Http, Agent), FIRST_DESCRIPTOR):
        threading.Thread(target=Listener(descriptor, handler, postgresql).serve_forever).start()


if __name__ == "__main__":
    main()
