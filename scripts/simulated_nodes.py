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

from preflight.check.survey import survey_capture
from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.joint import PROTOCOL, Hello, SoloResult
from preflight.model.run_spec import RankSamples
from preflight.model.samples import pack_samples
from preflight.model.trial import RankEnd
from preflight.trial.nodes.wire import PING_S, line_of, pack, raise_descriptor_limit

NODES, RANKS = 1024, 8
ROUNDS = ("ok", "ok", "hang", "ok")
VARIANTS = 64  # different samples; which rank has which does not matter
LIMIT_S = 300.0
MACHINE = Path(__file__).resolve().parent.parent / "tests" / "machines" / "h100x8.json"
SIZES = (8, 1 << 20, 32 << 20, 1 << 30)


def solo_result_of(host: str) -> SoloResult:
    """Return what an 8-GPU node found by itself."""
    facts = replace(survey_capture(MACHINE.read_text()).node, host=host)
    return SoloResult(
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
    """One follower: its socket, what it still has to send, and its answers."""

    sock: socket.socket
    node: int
    answers: dict[str, str]  # packed, by how the round ends
    unsent: bytearray = field(default_factory=bytearray)
    unread: bytearray = field(default_factory=bytearray)


def simulate_followers(port: int, nodes: int, repetitions: int) -> None:
    """Play all other nodes until node 0 has said its last word to each."""
    raise_descriptor_limit(nodes)
    samples, solo = variants(repetitions), json.dumps(encode(solo_result_of("n0000")))
    followers = [make_follower(node, samples) for node in range(1, nodes)]
    solo_results = [pack(json.loads(solo.replace("n0000", f"n{follower.node:04}"))) for follower in followers]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    selector = selectors.DefaultSelector()
    for follower in followers:
        follower.sock.connect(("127.0.0.1", port))
        follower.sock.setblocking(False)
        hello = Hello(PROTOCOL, "bench", "run", nodes, follower.node, f"n{follower.node:04}", LIMIT_S)
        follower.unsent += line_of({"kind": "hello", "hello": encode(hello)})
        selector.register(follower.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, follower)
    left, pinged_at = nodes - 1, time.monotonic()
    while left:
        for key, events in selector.select(0.5):
            left -= not serve(selector, key.data, events, solo_results)
        if time.monotonic() - pinged_at > PING_S:
            pinged_at = time.monotonic()
            for key in list(selector.get_map().values()):
                key.data.unsent += line_of({"kind": "ping"})
                selector.modify(key.fileobj, selectors.EVENT_READ | selectors.EVENT_WRITE, key.data)


def make_follower(node: int, samples: list[list[dict[str, Any]]]) -> Simulated:
    ranks = range(node * RANKS, (node + 1) * RANKS)
    answers = {
        how: pack({str(rank): answer(rank, how, samples[rank % len(samples)]) for rank in ranks}) for how in set(ROUNDS)
    }
    return Simulated(socket.socket(), node, answers)


def serve(selector: selectors.BaseSelector, follower: Simulated, events: int, solo_results: list[str]) -> bool:
    """Hear a follower's socket and answer; False once node 0 is through with it."""
    if events & selectors.EVENT_READ:
        data = follower.sock.recv(1 << 18)
        follower.unread += data
        while (end := follower.unread.find(b"\n")) >= 0:
            message = json.loads(bytes(follower.unread[:end]))
            del follower.unread[: end + 1]
            follower.unsent += reply(follower, message, solo_results)
            if message["kind"] in ("report", "bye", "refused"):
                data = b""
        if not data:
            selector.unregister(follower.sock)
            follower.sock.close()
            return False
    if follower.unsent and events & selectors.EVENT_WRITE:
        del follower.unsent[: follower.sock.send(follower.unsent)]
    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if follower.unsent else 0)
    selector.modify(follower.sock, wanted, follower)
    return True


def reply(follower: Simulated, message: dict[str, Any], solo_results: list[str]) -> bytes:
    if message["kind"] == "welcome":
        return line_of({"kind": "solo", "z": solo_results[follower.node - 1]})
    if message["kind"] != "key" or not message["key"].startswith("step/"):
        return b""
    index = int(message["key"].partition("/")[2])
    if index >= len(ROUNDS):
        return b""
    killed = line_of({"kind": "key", "key": f"kill/{index}", "z": pack({"by": follower.node * RANKS, "why": "hang"})})
    ends = line_of({"kind": "ends", "step": index, "z": follower.answers[ROUNDS[index]]})
    return (killed if ROUNDS[index] == "hang" else b"") + ends
