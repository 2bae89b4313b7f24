"""What a run of 1,024 nodes of 8 ranks costs node 0: its real launcher and conductor, all others simulated.

    node 0's launcher     this process: trial/launcher.py with trial/nodes/leader.py, real sockets on loopback
    node 0's conductor    `conductor`: publishes steps, collects and classifies 8,192 answers, tells the launcher
    1,023 launchers       `followers`: introduce themselves, tell facts, and answer every step for their 8 ranks

The followers' answers are made beforehand; what they do meanwhile is part of the time all the same. Exits 1 where a
round takes more than 5 s or node 0 more than 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from preflight.check.request import BenchRequest
from preflight.model.codec import encode
from preflight.model.joint import PROTOCOL, Hello, JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import Placement
from preflight.model.run_spec import Backend, NodePlace, RunSpec, TrialPlan, joint_dir
from preflight.model.trial import Candidate, Scope
from preflight.search import profiles
from preflight.search.nodes.joint_plan import plan_jointly
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import _take_in
from preflight.trial.nodes.leader import Leader
from preflight.trial.nodes.meeting_point import Listening
from preflight.trial.nodes.peers import Member
from preflight.trial.run_dir import events_path, make_folders, make_joint_dir, spec_path
from scripts.bare_torchrun import ROOT
from scripts.simulated_nodes import (
    LIMIT_S,
    NODES,
    RANKS,
    ROUNDS,
    SIZES,
    answer,
    simulate_followers,
    solo_result_of,
    variants,
)

MOST_S, MOST_BYTES = 5.0, 1 << 30
EFFORT = BenchRequest()


def conduct_rounds(run_dir: str, nodes: int, repetitions: int) -> None:
    """Do what rank 0's supervisor does, for its own node's ranks without a trial."""
    from preflight.trial.rank.channel import Channel  # noqa: PLC0415  this process alone imports torch, as node 0's does
    from preflight.trial.rank.outcome import trial_result  # noqa: PLC0415

    channel, samples = Channel(os.path.join(joint_dir(run_dir), "control")), variants(repetitions)
    events = os.open(events_path(run_dir), os.O_WRONLY)

    def tell(event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(events, data) :]

    tell({"event": "solo"})
    path = spec_path(joint_dir(run_dir))
    while not os.path.exists(path):
        time.sleep(0.005)
    time.sleep(1.0)  # the other nodes have begun too
    for index, how in enumerate(ROUNDS):
        since = time.monotonic()
        channel.put(f"step/{index}", {"kind": "run", "label": how})
        for rank in range(RANKS):
            channel.put(f"end/{index}/{rank}", answer(rank, how, samples[rank % len(samples)]))
        answers = channel.collect(index, nodes * RANKS, (RANKS,) * nodes, lambda: time.monotonic() + LIMIT_S)
        why = "hang" if channel.has(f"kill/{index}") else ""
        collected_s = time.monotonic() - since
        candidate = Candidate(f"{how} {index}", (), "", Scope.ANYWHERE)
        result = trial_result(candidate, _Assigned, [each[0] for each in answers], why, 1.0)  # type: ignore[arg-type]
        del answers
        judged_s = time.monotonic() - since
        tell({"event": "trial", "result": encode(result)})
        used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tell({"event": "step", "label": f"reported {since} {collected_s} {judged_s} {time.monotonic()} {used_kib}"})
        time.sleep(0.5)
    tell({"event": "done"})


class _Assigned:
    """What trial_result reads of an assignment."""

    set_env: tuple[tuple[str, str], ...] = ()
    unset_env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Took:
    """A round: how it ended, and the seconds until all answers were read, judged, and told to the launcher."""

    outcome: str
    collected_s: float
    judged_s: float
    reported_s: float


class Watch:
    """What node 0's launcher sees: each result as it arrives, with what the conductor said before it."""

    def __init__(self) -> None:
        self.rounds: list[Took] = []
        self.conductor_bytes = 0
        self._last = ""

    def __call__(self, launched: LaunchResult) -> None:
        kind, *words = launched.running.split() or ["nothing"]
        if kind == "reported" and len(launched.trials) > len(self.rounds) and launched.running != self._last:
            self._last = launched.running
            since, collected_s, judged_s, reported_at, kib = map(float, words)
            outcome = launched.trials[-1].outcome.value
            self.rounds.append(Took(outcome, collected_s, judged_s, max(reported_at, time.monotonic()) - since))
            self.conductor_bytes = int(kib) << 10


def lead(nodes: int, repetitions: int) -> int:
    """Be node 0's launcher for one run; print what it took."""
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as run_dir:
        make_folders(run_dir)
        os.mkfifo(events_path(run_dir), 0o600)
        make_joint_dir(run_dir)
        fifo = os.open(events_path(run_dir), os.O_RDWR | os.O_NONBLOCK)
        part = [sys.executable, "-m", "scripts.bench_store", "--nodes", str(nodes), "--repetitions", str(repetitions)]
        since = time.monotonic()
        meeting = Leader(_node(run_dir, nodes), Listening(("127.0.0.1",), "a benchmark's"), (), _plan)
        followers = subprocess.Popen(
            [*part, "followers", str(meeting.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert followers.stdout is not None
        assert followers.stdin is not None
        followers.stdout.readline()
        launched, watch = Launch(), Watch()
        conductor = subprocess.Popen([*part, "conductor", run_dir], cwd=ROOT)
        time.sleep(5.0)  # until it has imported torch
        since = time.monotonic()
        begun: list[float] = []

        def look(result: LaunchResult) -> None:
            if meeting.has_begun and not begun:
                begun.append(time.monotonic() - since)
            watch(result)

        followers.stdin.write("go\n")
        followers.stdin.flush()
        try:
            _take_in(conductor, fifo, meeting.node.spec, launched, look, time.monotonic() + LIMIT_S, meeting)
            meeting.finish({"kind": "bye", "why": "it is over"})
        finally:
            for process in (conductor, followers):
                process.kill()
                process.wait()
            os.close(fifo)
    if launched.result.problem or len(watch.rounds) != len(ROUNDS):
        sys.stdout.write(f"the run failed: {launched.result.problem or watch.rounds}\n")
        return 1
    return report(nodes, repetitions, begun[0], watch)


def report(nodes: int, repetitions: int, met_s: float, watch: Watch) -> int:
    """Print what rounds took; 1 where that is too much."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    slowest = max(took.reported_s for took in watch.rounds)
    lines = [
        f"store: {nodes} nodes of {RANKS} ranks, {nodes * RANKS} answers a round, {2 * len(SIZES)} figures of "
        f"{repetitions} repetitions each",
        f"  all have met and told their facts   {met_s:6.2f} s",
    ]
    lines += [
        f"  round {i}, {took.outcome:<5}  collected {took.collected_s:.2f} s, judged {took.judged_s:.2f} s, "
        f"told {took.reported_s:.2f} s (at most {MOST_S:.0f})"
        for i, took in enumerate(watch.rounds, 1)
    ]
    total = own + watch.conductor_bytes
    lines.append(
        f"  peak memory of node 0  launcher {own >> 20} MiB + conductor {watch.conductor_bytes >> 20} MiB = "
        f"{total >> 20} MiB (at most {MOST_BYTES >> 20})"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if slowest <= MOST_S and total <= MOST_BYTES else 1


def _node(run_dir: str, nodes: int) -> Member:
    place = Placement(nodes, 0, "127.0.0.1", tuple(range(29400, 29500)), "run", (), ())
    now = time.monotonic()
    hello = Hello(PROTOCOL, "bench", "run", nodes, 0, "n0000", LIMIT_S)
    return Member(place, hello, spec_of(run_dir), now + LIMIT_S, now + LIMIT_S, lambda _: solo_result_of("n0000"))


def _plan(
    solo_results: Mapping[int, SoloResult], store_host: str, left_s: float, _: NetworkSurvey | None
) -> Mapping[int, JointPlan]:
    return plan_jointly(solo_results, store_host, left_s, EFFORT)


def spec_of(run_dir: str) -> RunSpec:
    """Return what node 0's own ranks would do alone."""
    return RunSpec(
        run_dir=run_dir, backend=Backend("nccl", "", "nccl"), place=NodePlace(RANKS),
        trials=TrialPlan((), profiles.stage_limits("nccl", None)), deadline_monotonic_s=time.monotonic() + LIMIT_S,
        goes_on=True,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("part", nargs="?", default="all")
    parser.add_argument("where", nargs="?", default="")
    asked = parser.parse_args()
    if asked.part == "followers":
        simulate_followers(int(asked.where), asked.nodes, asked.repetitions)
        return 0
    if asked.part == "conductor":
        conduct_rounds(asked.where, asked.nodes, asked.repetitions)
        return 0
    return lead(asked.nodes, asked.repetitions)


if __name__ == "__main__":
    sys.exit(main())
