"""client.py LOG write=PORT/DATABASE read=PORT/DATABASE...: a client that never stops. Each transaction is a line in its log.

It gives up no transaction and repeats none; a connection serves for a second or two, as a pool's do.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import threading
import time

import psycopg2

WRITE = "INSERT INTO ledger DEFAULT VALUES"
READ = "SELECT count(*) FROM ledger WHERE id > (SELECT max(id) - 10 FROM ledger)"
stop = threading.Event()


def work(way, port, database, log, lock):
    connection, until = None, 0.0
    while not stop.is_set():
        begun, error = time.time(), None
        try:
            if connection is None:
                connection = psycopg2.connect(host="127.0.0.1", port=port, dbname=database, user="app", connect_timeout=60)
                connection.autocommit = True
                until = time.monotonic() + random.uniform(1, 2)
            with connection.cursor() as cursor:
                cursor.execute(WRITE if way == "write" else READ)
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
        threads = [threading.Thread(target=work, args=(*re.split("[=/]", way), log, lock)) for way in sys.argv[2:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
