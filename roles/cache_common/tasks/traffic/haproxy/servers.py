"""What HAProxy's admin socket says of its servers, as JSON. It only looks.

servers.py SOCKET [BACKEND SERVER idle|up SECONDS]: with the latter it looks again, at most so long,
until that server has no session, or gets traffic.
"""

from __future__ import annotations

import csv
import json
import socket
import sys
import time

# srv_admin_state in HAProxy's management guide: maintenance or drain, however it came to it
OUT = 0x01 | 0x02 | 0x04 | 0x08 | 0x10


SECONDS, BYTES = 10, 64 << 20  # of one answer


def ask(path, command):
    end = time.monotonic() + SECONDS
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect(path)
        connection.sendall(command.encode() + b"\n")
        while True:
            connection.settimeout(max(end - time.monotonic(), 0.001))
            part = connection.recv(65536)
            if not part:
                return answer.decode()
            answer += part
            if len(answer) > BYTES:
                raise ValueError("the answer has no end")


def look(path):
    out, where = {}, {}
    for words in map(str.split, ask(path, "show servers state").splitlines()[2:]):
        if words:
            out[words[1], words[3]] = bool(int(words[6]) & OUT)
            where[words[1], words[3]] = "%s:%s" % (words[4], words[18]) if words[4] != "-" else words[3]
    return [
        {
            "backend": row["pxname"],
            "server": row["svname"],
            "address": where[row["pxname"], row["svname"]],
            "status": row["status"],
            "up": row["status"].startswith("UP") or row["status"] == "no check",
            "out": out[row["pxname"], row["svname"]],
            "sessions": int(row["scur"] or 0),
        }
        for row in csv.DictReader(ask(path, "show stat").lstrip("# ").splitlines())
        if (row["pxname"], row["svname"]) in out
    ]


def main():
    path, wanted = sys.argv[1], sys.argv[2:]
    servers = look(path)
    if wanted:
        backend, server, what, seconds = wanted
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end and not any(
            (one["backend"], one["server"]) == (backend, server)
            and (one["sessions"] == 0 if what == "idle" else one["up"] and not one["out"])
            for one in servers
        ):
            time.sleep(0.2)
            servers = look(path)
    json.dump(servers, sys.stdout)


if __name__ == "__main__":
    main()
