"""`python -m preflight.trial.nodes.path_probe`: test the paths to other nodes, in a child of the launcher.

Each line of standard input is a JSON object, and the answer is a line with one JSON object.
"""
# The child ends with the launcher.

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from preflight.model.network_survey import PathEnd
from preflight.system.child import answer_questions
from preflight.system.interfaces import prefix_bits
from preflight.trial.nodes.path_protocol import Met, carry_large, meet, rate_bytes_s, round_trip_s, serve

MOST_CALLERS = 1024  # served at the same time; beyond, callers wait their turn and cost themselves their deadline
AT_ONCE = 256
SLOW_BYTES_S = 50e6  # below, the large message has measured the rate already

Json = Any


class PathProbe:
    """The sockets on which one node listens, and the node's attempts to reach other nodes."""

    def __init__(self) -> None:
        self._listeners: list[socket.socket] = []
        self._token = b""
        self._node_rank = 0
        self._places = threading.BoundedSemaphore(MOST_CALLERS)

    def listen(self, asked: Json) -> Json:
        """Listen at a free port on each of `asked["addresses"]`.

        Return the port, the prefix length and the problem for each address.
        """
        self._token, self._node_rank = bytes.fromhex(asked["token"]), int(asked["node_rank"])
        prefixes = prefix_bits()
        return [self._listen_at(address) | {"prefix_bits": prefixes.get(address)} for address in asked["addresses"]]

    def _listen_at(self, address: str) -> dict[str, Json]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.create_server((address, 0), family=family, backlog=1024)
        except OSError as error:
            return {"port": 0, "problem": f"nothing can listen there: {os.strerror(error.errno or 0)}"}
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return {"port": listener.getsockname()[1], "problem": ""}

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                time.sleep(0.01)  # no descriptor is free, or the caller has gone again
                continue
            self._places.acquire()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            serve(sock, self._token, self._node_rank)
        finally:
            self._places.release()

    def reach(self, asked: Json) -> Json:
        """Try the paths in `asked["tasks"]`, several at once, and then measure the working paths within the time limit.

        Return one result per path, in the order of the tasks.
        """
        tasks, own = asked["tasks"], set(asked["own"])
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(tasks)))) as pool:
            tried = list(pool.map(lambda task: self._try(task, own), tasks))
        until = time.monotonic() + float(asked["rate_s"])
        return [_measured(met, slow_bytes_s, until) for met, slow_bytes_s in tried]

    def _try(self, task: Json, own: set[str]) -> tuple[Met, float]:
        met = meet(task["address"], task["to_address"], task["to_port"], self._token, self._node_rank, task["to_node"])
        if task["to_address"] in own and met.end is not PathEnd.OK:
            return Met(None, PathEnd.ITSELF, f"{task['to_address']} is an address of this node too"), 0.0
        if met.sock is None:
            return met, 0.0
        end, detail, bytes_s = carry_large(met.sock)
        return Met(met.sock, end, detail), bytes_s


def _measured(met: Met, slow_bytes_s: float, until: float) -> dict[str, Json]:
    """Return the result of one path.

    If the path works and time is left, the result has the round-trip time and the rate.
    """
    result: dict[str, Json] = {"end": met.end.value, "detail": met.detail}
    if met.sock is None:
        return result
    if met.end is PathEnd.OK and time.monotonic() < until:
        try:
            result["rtt_us"] = 1e6 * round_trip_s(met.sock)
            result["gb_s"] = (rate_bytes_s(met.sock) if slow_bytes_s > SLOW_BYTES_S else slow_bytes_s) / 1e9
        except OSError as error:
            result["end"], result["detail"] = PathEnd.FAILED.value, f"it broke while it was measured: {error}"
    met.sock.close()
    return result


def main() -> None:
    """Answer the launcher's questions until the launcher closes the connection."""
    probe = PathProbe()
    answer_questions({"listen": probe.listen, "reach": probe.reach})
    os._exit(0)


if __name__ == "__main__":
    main()
