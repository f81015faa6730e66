"""Backend, server and status of HAProxy's servers, as its statistics have them."""

from __future__ import annotations

import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"show stat\n")
for line in b"".join(iter(lambda: connection.recv(65536), b"")).decode().splitlines():
    words = line.split(",")
    if len(words) > 17 and words[1].startswith("roll-"):
        print(words[0], words[1], words[17], sep=",")
