# Copyright (c) 2026, the pgfleet.cache authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports to load balancers how warm a PostgreSQL server is: the percentage of a snapshot that is resident in its page cache.

systemd starts it at the first connection to one of two sockets:

1. HTTP: status 200 if that is at least --min-residency, else 503; the body has the percentage, as JSON.
2. HAProxy's agent-check: a line "up N%", with which HAProxy weighs the server. Never "ready", which would end an operator's drain or maintenance, nor
   "down", which would outlive this program: whether a server serves is for the check itself to find out.

A server that does not accept connections is 503 and "up 1%", with which it begins. Anything else that keeps this program from measuring takes no server
out of traffic.

While a restore of the snapshot runs, its job has the number of resident blocks. Otherwise every segment is measured, with at most a hundredth of a
CPU: until the time has come for the next measurement, the last one is the answer.
"""

import argparse
import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

FIRST_DESCRIPTOR = 3  # sd_listen_fds(3)
CLIENT_TIMEOUT = 2  # seconds for a load balancer to send its request
CONNECT_TIMEOUT = 3  # seconds; libpq's
FRESH = 1.0  # seconds for which an answer is not asked again
SHARE = 100  # the next measurement comes after so many times the duration of the last one
OPTIONS = "-c role=pg_monitor -c search_path=pg_catalog,pg_temp -c default_transaction_read_only=on -c statement_timeout=30s -c jit=off"

SCHEMA = "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_residency'"
JOB = (
    "SELECT resident, wanted - gone FROM {0}.residency_jobs"
    " WHERE snapshot = split_part(%(name)s, '@', 1) AND state IN ('starting', 'waiting', 'running') ORDER BY job DESC LIMIT 1"
)
EXISTS = (
    "SELECT count(*) FROM {0}.residency_snapshots() WHERE problem IS NULL"
    " AND name = split_part(%(name)s, '@', 1) AND split_part(%(name)s, '@', 2) IN ('', generation::text)"
)
MEASURE = "SELECT coalesce(sum(resident), 0), coalesce(sum(wanted - gone), 0) FROM {0}.residency_snapshot_segments(%(name)s)"


class Answer:
    """``residency`` is a percentage, or None if the server does not accept connections; ``reason`` is why it was not measured."""

    def __init__(self, residency, state, reason=""):
        self.residency = residency
        self.state = state
        self.reason = " ".join(reason.split())


class Server:
    """PostgreSQL, at which libpq's environment points."""

    def __init__(self, snapshot):
        self.snapshot = snapshot
        self._connection = None
        self._lock = threading.Lock()
        self._answer = None
        self._asked = 0.0  # time.monotonic()
        self._measured = None
        self._measure_again = 0.0

    def answer(self):
        """Not older than FRESH, unless somebody else asks just now."""
        if self._answer is None or (time.monotonic() >= self._asked + FRESH and not self._lock.locked()):
            with self._lock:
                if self._answer is None or time.monotonic() >= self._asked + FRESH:
                    answer = self._ask()
                    if answer.reason and (self._answer is None or self._answer.reason != answer.reason):
                        print(answer.reason, file=sys.stderr, flush=True)  # into the journal
                    self._answer, self._asked = answer, time.monotonic()
        return self._answer

    def _ask(self):
        try:
            if self._connection is None or self._connection.closed:
                self._measured = None
                self._connection = psycopg.connect("", options=OPTIONS, connect_timeout=CONNECT_TIMEOUT, application_name="pgfleet readiness")
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                return self._look(cursor)
        except psycopg.Error as error:
            self._close()
            return Answer(None, "down", str(error)) if is_down() else Answer(100.0, "not measured", str(error))

    def _look(self, cursor):
        cursor.execute(SCHEMA)
        found = cursor.fetchone()
        if found is None:
            return Answer(100.0, "not measured", "Extension pg_residency is not in this database.")

        def row(query):
            cursor.execute(query.format(found[0]), {"name": self.snapshot})
            return cursor.fetchone()

        job = row(JOB)
        if job is not None:
            self._measured = None
            return Answer(percent(*job), "restoring")
        if not row(EXISTS)[0]:
            return Answer(100.0, "not measured", "There is no snapshot %s." % self.snapshot)
        if self._measured is None or time.monotonic() >= self._measure_again:
            began = time.monotonic()
            self._measured = Answer(percent(*row(MEASURE)), "measured")
            ended = time.monotonic()
            self._measure_again = ended + SHARE * (ended - began)
        return self._measured

    def _close(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def is_down():
    """Whether PostgreSQL accepts no connections; True too while it starts or stops. A login that fails is no sign of that."""
    try:
        return subprocess.call(["pg_isready", "--quiet", "--timeout=%d" % CONNECT_TIMEOUT]) in (1, 2)  # it rejects, or nobody answers
    except OSError:  # there is no such program here
        return False


def percent(resident, wanted):
    return float(100 * resident / wanted) if wanted > 0 else 100.0


class Http(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT
    server_version = "pgfleet-readiness"
    sys_version = ""

    def do_GET(self):  # pylint: disable=invalid-name
        self._say(with_body=True)

    def do_HEAD(self):  # pylint: disable=invalid-name
        self._say(with_body=False)

    def do_OPTIONS(self):  # pylint: disable=invalid-name
        """What HAProxy's httpchk sends unless told otherwise."""
        self._say(with_body=True)

    def _say(self, with_body):
        answer = self.server.postgresql.answer()
        warm = answer.residency is not None and answer.residency >= self.server.min_residency
        found = {"snapshot": self.server.postgresql.snapshot, "residency": answer.residency, "state": answer.state, "reason": answer.reason}
        body = json.dumps(found).encode() + b"\n"
        self.send_response(200 if warm else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        """A check every second is not worth a line."""


class Agent(socketserver.StreamRequestHandler):
    timeout = CLIENT_TIMEOUT

    def handle(self):
        answer = self.server.postgresql.answer()
        self.wfile.write(b"up %d%%\n" % max(1, int(answer.residency or 0)))  # 0 % would be a drain


class Listener(socketserver.ThreadingMixIn, HTTPServer):
    """One of systemd's sockets; HTTPServer is a TCPServer that any handler can serve."""

    daemon_threads = True

    def __init__(self, descriptor, handler, postgresql, min_residency):
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)
        self.postgresql = postgresql
        self.min_residency = min_residency


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", default="autosave", help="its name, or name@generation (default: %(default)s)")
    parser.add_argument("--min-residency", type=float, default=90, help="percent, for HTTP (default: %(default)s)")
    arguments = parser.parse_args()
    postgresql = Server(arguments.snapshot)
    for descriptor, handler in enumerate((Http, Agent), FIRST_DESCRIPTOR):
        listener = Listener(descriptor, handler, postgresql, arguments.min_residency)
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()


if __name__ == "__main__":
    main()
