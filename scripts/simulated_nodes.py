"""The other nodes of bench_store: answers made beforehand, sent over real sockets by one process for all of them."""

from __future__ import annotations

import json
import random
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from preflight.launch.others import PING_S
from preflight.launch.ready import make_room
from preflight.launch.wire import line_of, pack
from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.packed_samples import pack_samples
from preflight.model.run import RankSamples
from preflight.model.together import PROTOCOL, Alone, Hello
from preflight.model.trial import RankEnd
from preflight.survey import survey_capture

NODES, RANKS = 1024, 8
ROUNDS = ("ok", "ok", "hang", "ok")
VARIANTS = 64  # different samples; which rank has which does not matter
LIMIT_S = 300.0
MACHINE = Path(__file__).resolve().parent.parent / "tests" / "machines" / "h100x8.json"
SIZES = (8, 1 << 20, 32 << 20, 1 << 30)


def alone_of(host: str) -> Alone:
    """Return what an 8-GPU node found by itself."""
    facts = replace(survey_capture(MACHINE.read_text()).node, host=host)
    return Alone(
        host=host, ranks=RANKS, backend="nccl", dialect="nccl", is_cpu_path=False, problem="", trials=(), findings=(),
        skipped_checks=(), env=(), inherits_tuning=False, netif="eth0", free_bytes_per_rank=60 << 30,
        gpus=tuple(range(RANKS)), facts=facts,
    )  # fmt: skip


def measured(chance: random.Random, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield one rank's events of a trial that works."""
    for size in SIZES:
        for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER):
            times = [tuple(chance.lognormvariate(5, 0.1) for _ in range(repetitions)) for _ in range(3)]
            step = {"turn": 0, "collective": collective.value, "size_bytes": size, "took_s": 0.5}
            yield {"measured": step, "samples": pack_samples(RankSamples(0, *times, 0))}


def answer(rank: int, how: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a supervisor publishes for a rank."""
    transport = {"transport": ["NET/IB/0", "NVL"], "world_size": NODES * RANKS, "connect_us": 2e6, "first_wrong": 0}
    if how == "hang":
        ended, stage, events = ("stuck", "first", []) if rank == 4711 else ("timeout", "first", [])
        return [{"end": encode(RankEnd(rank, ended, stage, "waited 63 s")), "events": [], "started_by": "fork"}]
    own = [{**each, "samples": each["samples"] | {"rank": rank}} for each in events]
    return [{"end": encode(RankEnd(rank, "done", "done", "")), "events": [transport, *own], "started_by": "fork"}]


def variants(repetitions: int) -> list[list[dict[str, Any]]]:
    chance = random.Random(7)
    return [list(measured(chance, repetitions)) for _ in range(VARIANTS)]


@dataclass(slots=True)
class Simulated:
    """One guest: its socket, what it still has to send, and its answers."""

    sock: socket.socket
    node: int
    answers: dict[str, str]  # packed, by how the round ends
    unsent: bytearray = field(default_factory=bytearray)
    unread: bytearray = field(default_factory=bytearray)


def simulate_guests(port: int, nodes: int, repetitions: int) -> None:
    """Play all other nodes until node 0 has said its last word to each."""
    make_room(nodes)
    samples, alone = variants(repetitions), json.dumps(encode(alone_of("n0000")))
    guests = [make_guest(node, samples) for node in range(1, nodes)]
    alones = [pack(json.loads(alone.replace("n0000", f"n{guest.node:04}"))) for guest in guests]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    selector = selectors.DefaultSelector()
    for guest in guests:
        guest.sock.connect(("127.0.0.1", port))
        guest.sock.setblocking(False)
        hello = Hello(PROTOCOL, "bench", "run", nodes, guest.node, f"n{guest.node:04}", LIMIT_S)
        guest.unsent += line_of({"kind": "hello", "hello": encode(hello)})
        selector.register(guest.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, guest)
    left, pinged_at = nodes - 1, time.monotonic()
    while left:
        for key, events in selector.select(0.5):
            left -= not serve(selector, key.data, events, alones)
        if time.monotonic() - pinged_at > PING_S:
            pinged_at = time.monotonic()
            for key in list(selector.get_map().values()):
                key.data.unsent += line_of({"kind": "ping"})
                selector.modify(key.fileobj, selectors.EVENT_READ | selectors.EVENT_WRITE, key.data)


def make_guest(node: int, samples: list[list[dict[str, Any]]]) -> Simulated:
    ranks = range(node * RANKS, (node + 1) * RANKS)
    answers = {
        how: pack({str(rank): answer(rank, how, samples[rank % len(samples)]) for rank in ranks}) for how in set(ROUNDS)
    }
    return Simulated(socket.socket(), node, answers)


def serve(selector: selectors.BaseSelector, guest: Simulated, events: int, alones: list[str]) -> bool:
    """Hear a guest's socket and answer; False once node 0 is through with it."""
    if events & selectors.EVENT_READ:
        data = guest.sock.recv(1 << 18)
        guest.unread += data
        while (end := guest.unread.find(b"\n")) >= 0:
            message = json.loads(bytes(guest.unread[:end]))
            del guest.unread[: end + 1]
            guest.unsent += reply(guest, message, alones)
            if message["kind"] in ("report", "bye", "refused"):
                data = b""
        if not data:
            selector.unregister(guest.sock)
            guest.sock.close()
            return False
    if guest.unsent and events & selectors.EVENT_WRITE:
        del guest.unsent[: guest.sock.send(guest.unsent)]
    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.unsent else 0)
    selector.modify(guest.sock, wanted, guest)
    return True


def reply(guest: Simulated, message: dict[str, Any], alones: list[str]) -> bytes:
    if message["kind"] == "welcome":
        return line_of({"kind": "alone", "z": alones[guest.node - 1]})
    if message["kind"] != "key" or not message["key"].startswith("step/"):
        return b""
    index = int(message["key"].partition("/")[2])
    if index >= len(ROUNDS):
        return b""
    killed = line_of({"kind": "key", "key": f"kill/{index}", "z": pack({"by": guest.node * RANKS, "why": "hang"})})
    ends = line_of({"kind": "ends", "step": index, "z": guest.answers[ROUNDS[index]]})
    return (killed if ROUNDS[index] == "hang" else b"") + ends
