"""A client that never stops: it writes through pgbouncer and reads through both HAProxy. Each transaction is a line in its log.

It gives up no transaction and repeats none; a connection serves for a second or two, as a pool's do.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time

import psycopg2

WAYS = {
    "write": (6432, "air", "INSERT INTO ledger DEFAULT VALUES"),
    "read": (5000, "postgres", "SELECT count(*) FROM ledger WHERE id > (SELECT max(id) - 10 FROM ledger)"),
    "report": (5001, "postgres", "SELECT count(*) FROM ledger WHERE id > (SELECT max(id) - 10 FROM ledger)"),
}
stop = threading.Event()


def work(way, log, lock):
    port, database, statement = WAYS[way]
    connection, until = None, 0.0
    while not stop.is_set():
        begun, error = time.time(), None
        try:
            if connection is None:
                connection = psycopg2.connect(host="127.0.0.1", port=port, dbname=database, user="app", connect_timeout=60)
                connection.autocommit = True
                until = time.monotonic() + random.uniform(1, 2)
            with connection.cursor() as cursor:
                cursor.execute(statement)
        except psycopg2.Error as problem:
            error = str(problem).strip()
        line = json.dumps({"way": way, "at": round(begun, 3), "seconds": round(time.time() - begun, 3), "error": error})
        with lock:
            print(line, file=log, flush=True)
        if connection is not None and (error or time.monotonic() > until):
            connection.close()
            connection = None
        time.sleep(0.02)


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    lock = threading.Lock()
    with open(sys.argv[1], "w", encoding="utf-8") as log:
        threads = [threading.Thread(target=work, args=(way, log, lock)) for way in WAYS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
