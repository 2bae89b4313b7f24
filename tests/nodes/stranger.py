"""A stranger in a namespace: connects to everything that listens there, says what it is told to, and stays."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time

WORDS = {
    "nothing": b"",
    "garbage": os.urandom(4096) + b"\n",
    "huge": b'{"kind":"hello","hello":"' + b"x" * (1 << 20),
    # c10d's TCPStore: the magic that it wants first, then SET with a key of the largest length there is.
    "store": b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x01" + b"\xff" * 4096,
    "impostor": b'{"kind":"hello","hello":{"protocol":1,"preflight":"0","run_id":"x","nodes":2,"node_rank":1,'
    b'"host":"evil","left_s":1.0}}\n',
}


def main() -> None:
    words, held = WORDS[sys.argv[1]], []
    observed: set[str] = set()
    while True:
        told = subprocess.run(["ss", "-H", "-ltn"], capture_output=True, text=True, check=True).stdout
        for place in {line.split()[3] for line in told.splitlines()} - observed:
            observed.add(place)
            address, _, port = place.rpartition(":")
            for _ in range(3):
                with contextlib.suppress(OSError):
                    sock = socket.create_connection((address.strip("[]"), int(port)), 1)
                    held.append(sock)
                    sock.settimeout(1)
                    sock.sendall(words)
            sys.stdout.write(f"{place}\n")
            sys.stdout.flush()
        time.sleep(0.02)


if __name__ == "__main__":
    main()
