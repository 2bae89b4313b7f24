"""What a run of 1,024 nodes of 8 ranks costs node 0: its real launcher and conductor, all others simulated.

    node 0's launcher     this process: the loop of launch/launcher.py with launch/host.py, real sockets on loopback
    node 0's conductor    `conductor`: publishes steps, collects and classifies 8,192 answers, tells the launcher
    1,023 launchers       `guests`: introduce themselves, tell facts, and answer every step for their 8 ranks

The guests' answers are made beforehand; what they do meanwhile is part of the time all the same. Exits 1 where a round
takes more than 5 s or node 0 more than 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from preflight.launch.addresses import Listening
from preflight.launch.host import Host
from preflight.launch.launcher import Launched, _take_in
from preflight.launch.others import PING_S, Node
from preflight.launch.ready import make_room
from preflight.launch.run_dir import events_path, make_folders, spec_path
from preflight.launch.together import prepare
from preflight.launch.wire import line_of, pack
from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.packed_samples import pack_samples
from preflight.model.placement import Placement
from preflight.model.run import Profile, RankSamples, RunSpec
from preflight.model.together import PROTOCOL, Alone, Common, Hello
from preflight.model.trial import Candidate, RankEnd, Scope
from preflight.plan import profiles
from preflight.plan.together import Effort, plan_together
from preflight.survey import survey_capture

NODES, RANKS = 1024, 8
ROUNDS = ("ok", "ok", "hang", "ok")
MOST_S, MOST_BYTES = 5.0, 1 << 30
VARIANTS = 64  # different samples; which rank has which does not matter
LIMIT_S = 300.0
MACHINE = Path(__file__).resolve().parent.parent / "tests" / "machines" / "h100x8.json"
EFFORT = Effort(Profile.QUICK, profiles.COLLECTIVES, None, default_only=True)
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
            step = {"turn": 0, "collective": collective.value, "size_bytes": size}
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


def conduct_rounds(run_dir: str, nodes: int, repetitions: int) -> None:
    """Do what rank 0's supervisor does, for its own node's ranks without a trial."""
    from preflight.rank.answers import collect  # noqa: PLC0415
    from preflight.rank.channel import Channel  # noqa: PLC0415  this process alone imports torch, as node 0's does
    from preflight.rank.outcome import trial_result  # noqa: PLC0415

    channel, samples = Channel(os.path.join(run_dir, "together", "control")), variants(repetitions)
    events = os.open(events_path(run_dir), os.O_WRONLY)

    def tell(event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(events, data) :]

    tell({"event": "alone"})
    path = os.path.join(run_dir, "together", os.path.basename(spec_path(run_dir)))
    while not os.path.exists(path):
        time.sleep(0.005)
    time.sleep(1.0)  # the other nodes have begun too
    for index, how in enumerate(ROUNDS):
        since = time.monotonic()
        channel.put(f"step/{index}", {"kind": "run", "label": how})
        for rank in range(RANKS):
            channel.put(f"end/{index}/{rank}", answer(rank, how, samples[rank % len(samples)]))
        answers = collect(channel, index, nodes * RANKS, (RANKS,) * nodes, lambda: time.monotonic() + LIMIT_S)
        why = "hang" if channel.has(f"kill/{index}") else ""
        collected_s = time.monotonic() - since
        candidate = Candidate(f"{how} {index}", (), "", Scope.ANYWHERE)
        result = trial_result(candidate, _Assigned, [each[0] for each in answers], why, 1.0)  # type: ignore[arg-type]
        del answers
        judged_s = time.monotonic() - since
        tell({"event": "trial", "result": encode(result)})
        used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tell({"event": "step", "label": f"told {since} {collected_s} {judged_s} {time.monotonic()} {used_kib}"})
        time.sleep(0.5)
    tell({"event": "done"})


class _Assigned:
    """What trial_result reads of an assignment."""

    set_env: tuple[tuple[str, str], ...] = ()
    unset_env: tuple[str, ...] = ()


def _spec_path(run_dir: str) -> str:
    from preflight.launch.run_dir import spec_path  # noqa: PLC0415

    return spec_path(run_dir)


@dataclass(frozen=True, slots=True)
class Took:
    """A round: how it ended, and the seconds until all answers were read, judged, and told to the launcher."""

    outcome: str
    collected_s: float
    judged_s: float
    told_s: float


class Watch:
    """What node 0's launcher sees: each result as it arrives, with what the conductor said before it."""

    def __init__(self) -> None:
        self.rounds: list[Took] = []
        self.conductor_bytes = 0
        self._last = ""

    def __call__(self, launched: Launched) -> None:
        kind, *words = launched.running.split() or ["nothing"]
        if kind == "told" and len(launched.trials) > len(self.rounds) and launched.running != self._last:
            self._last = launched.running
            since, collected_s, judged_s, told_at, kib = map(float, words)
            outcome = launched.trials[-1].outcome.value
            self.rounds.append(Took(outcome, collected_s, judged_s, max(told_at, time.monotonic()) - since))
            self.conductor_bytes = int(kib) << 10


def host(nodes: int, repetitions: int) -> int:
    """Be node 0's launcher for one run; print what it took."""
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as run_dir:
        make_folders(run_dir)
        os.mkfifo(events_path(run_dir), 0o600)
        prepare(run_dir)
        fifo = os.open(events_path(run_dir), os.O_RDWR | os.O_NONBLOCK)
        part = [sys.executable, __file__, "--nodes", str(nodes), "--repetitions", str(repetitions)]
        since = time.monotonic()
        meeting = Host(_node(run_dir, nodes), Listening(("127.0.0.1",), "a benchmark's"), (), _plan)
        guests = subprocess.Popen(
            [*part, "guests", str(meeting.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert guests.stdout is not None
        assert guests.stdin is not None
        guests.stdout.readline()
        launched, watch = Launched(), Watch()
        conductor = subprocess.Popen([*part, "conductor", run_dir])
        time.sleep(5.0)  # until it has imported torch
        since = time.monotonic()
        begun: list[float] = []

        def look(seen: Launched) -> None:
            if meeting.has_begun and not begun:
                begun.append(time.monotonic() - since)
            watch(seen)

        guests.stdin.write("go\n")
        guests.stdin.flush()
        try:
            _take_in(conductor, fifo, meeting.node.spec, launched, look, time.monotonic() + LIMIT_S, meeting)
            meeting.finish({"kind": "bye", "why": "it is over"})
        finally:
            for process in (conductor, guests):
                process.kill()
                process.wait()
            os.close(fifo)
    if launched.problem or len(watch.rounds) != len(ROUNDS):
        sys.stdout.write(f"the run failed: {launched.problem or watch.rounds}\n")
        return 1
    return report(nodes, repetitions, begun[0], watch)


def report(nodes: int, repetitions: int, met_s: float, watch: Watch) -> int:
    """Print what rounds took; 1 where that is too much."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    slowest = max(took.told_s for took in watch.rounds)
    lines = [
        f"store: {nodes} nodes of {RANKS} ranks, {nodes * RANKS} answers a round, {2 * len(SIZES)} figures of "
        f"{repetitions} repetitions each",
        f"  all have met and told their facts   {met_s:6.2f} s",
    ]
    lines += [
        f"  round {i}, {took.outcome:<5}  collected {took.collected_s:.2f} s, judged {took.judged_s:.2f} s, "
        f"told {took.told_s:.2f} s (at most {MOST_S:.0f})"
        for i, took in enumerate(watch.rounds, 1)
    ]
    total = own + watch.conductor_bytes
    lines.append(
        f"  peak memory of node 0  launcher {own >> 20} MiB + conductor {watch.conductor_bytes >> 20} MiB = "
        f"{total >> 20} MiB (at most {MOST_BYTES >> 20})"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if slowest <= MOST_S and total <= MOST_BYTES else 1


def _node(run_dir: str, nodes: int) -> Node:
    place = Placement(nodes, 0, "127.0.0.1", tuple(range(29400, 29500)), "run", (), ())
    now = time.monotonic()
    hello = Hello(PROTOCOL, "bench", "run", nodes, 0, "n0000", LIMIT_S)
    return Node(place, hello, spec_of(run_dir), now + LIMIT_S, now + LIMIT_S, lambda _: alone_of("n0000"))


def _plan(alones: Mapping[int, Alone], store_host: str, left_s: float) -> Mapping[int, Common]:
    return plan_together(alones, store_host, left_s, EFFORT)


def spec_of(run_dir: str) -> RunSpec:
    """Return what node 0's own ranks would do alone."""
    return RunSpec(
        run_dir=run_dir, world_size=RANKS, backend="nccl", backend_module="", dialect="nccl", gpu_uuids=(),
        gpu_bdfs=(), inherited=(), candidates=(), screen_all=False, measures=(), duel_measures=(), duel_turns=1,
        limits=profiles.stage_limits("nccl", None), deadline_monotonic_s=time.monotonic() + LIMIT_S, goes_on=True,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("part", nargs="?", default="all")
    parser.add_argument("where", nargs="?", default="")
    asked = parser.parse_args()
    if asked.part == "guests":
        simulate_guests(int(asked.where), asked.nodes, asked.repetitions)
        return 0
    if asked.part == "conductor":
        conduct_rounds(asked.where, asked.nodes, asked.repetitions)
        return 0
    return host(asked.nodes, asked.repetitions)


if __name__ == "__main__":
    sys.exit(main())
