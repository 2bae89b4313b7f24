"""The parent's side of a run: start torchrun once, take in what the ranks report, and end everything in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.errors import HarnessError, LaunchError
from preflight.launch.others import Others
from preflight.launch.run_dir import events_path, last_words, spec_path
from preflight.launch.together import together_dir
from preflight.model.codec import decode, encode
from preflight.model.gpu_test import GpuTest, PairTruth
from preflight.model.isolation import NO_ISOLATION, Isolation
from preflight.model.rail import RailTest
from preflight.model.run import Duel, RunSpec
from preflight.model.trial import TrialResult
from preflight.system import processes
from preflight.system.segments import nccl_segments, noted_segments, remove_segments, segments_of_all
from preflight.system.waiting import wait_for

POLL_S = 0.05
KILL_WAIT_S = 2.0
# Every TCP store client and accept does a reverse look-up; a dead name server would cost 6 to 10 s each.
RES_OPTIONS = "timeout:1 attempts:1"


@dataclass(slots=True)
class Launched:
    """What the ranks reported, as far as they came; `problem` says why they came no further."""

    trials: list[TrialResult] = field(default_factory=list)
    duels: list[Duel] = field(default_factory=list)
    pairs: list[PairTruth] = field(default_factory=list)
    gpus: list[GpuTest] = field(default_factory=list)
    simulated: bool = False
    problem: str = ""
    running: str = ""  # the step and stage that were under way
    started_at: float = field(default_factory=time.monotonic)
    ready_after_s: float = 0.0  # until the supervisors had imported torch
    done: bool = False
    garbled: bool = False  # a line was cut short or mixed with another's
    # Several nodes: what this one found by itself, before the common trials.
    alone: list[TrialResult] = field(default_factory=list)
    alone_problem: str = ""
    alone_is_over: bool = False
    isolation: Isolation = NO_ISOLATION
    rails: list[RailTest] = field(default_factory=list)

    def end_alone(self, problem: str) -> None:
        """Note that this node has done by itself what it can; the trials that follow are those of all nodes."""
        self.alone, self.trials = self.trials, []
        self.alone_problem, self.alone_is_over = problem, True


Watcher = Callable[[Launched], None]


def launch(
    spec: RunSpec,
    environ: Mapping[str, str],
    launched: Launched,
    watch: Watcher,
    kill_at: float,
    others: Others | None = None,
) -> None:
    """Run the spec under torchrun, filling `launched` as results arrive, until done, dead or `kill_at` (monotonic).

    Whatever ends it, also an exception such as Ctrl-C, no process of the run is left. With `others` this node's own
    ranks are the first phase; what all nodes do together follows.
    """
    try:
        with open(spec_path(spec.run_dir), "w", encoding="utf-8") as file:
            json.dump(encode(spec), file)
    except OSError as error:
        raise LaunchError(f"{spec_path(spec.run_dir)}: could not be written: {error.strerror}") from None
    processes.adopt_orphans()
    stale_before = _stale_segments()
    foreign = processes.descendants_of(os.getpid())  # of whoever uses preflight as a library
    fifo = os.open(events_path(spec.run_dir), os.O_RDWR | os.O_NONBLOCK)  # for writing too: so no end of file
    try:
        agent = _start_agent(spec, environ)
        _take_in(agent, fifo, spec, launched, watch, kill_at, others)
    finally:
        mapped = segments_of_all(processes.descendants_of(os.getpid()) - foreign)
        survivors = processes.kill_descendants(foreign, KILL_WAIT_S)
        noted = [noted_segments(os.path.join(phase, "logs")) for phase in (spec.run_dir, together_dir(spec.run_dir))]
        remove_segments(mapped | noted[0] | noted[1] | (_stale_segments() - stale_before))
        os.close(fifo)
    if survivors:
        launched.problem = launched.problem or f"processes {survivors} survived SIGKILL (uninterruptible in the kernel)"


def _stale_segments() -> frozenset[str]:
    """Return NCCL's files in /dev/shm that no living process uses; a rank that died by itself leaves its own there."""
    try:
        return frozenset(os.path.join("/dev/shm", s["name"]) for s in nccl_segments() if s["stale"])
    except OSError:
        return frozenset()


def _start_agent(spec: RunSpec, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    launcher = os.getpid()
    argv = [sys.executable, "-m", "preflight.worker", spec_path(spec.run_dir)]
    with open(os.path.join(spec.run_dir, "torchrun", "agent.log"), "ab") as log:
        try:
            return subprocess.Popen(
                argv,
                env=dict(environ) | agent_environment(spec, launcher),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: processes.die_with_parent(launcher),  # noqa: PLW1509  this process has one thread
            )
        except OSError as error:
            raise LaunchError(f"{sys.executable} could not be started: {error.strerror}") from error


def agent_environment(spec: RunSpec, launcher_pid: int) -> dict[str, str]:
    """Return what torchrun and the supervisors get beside the user's environment."""
    own = {
        "PREFLIGHT_PARENT_PID": str(launcher_pid),
        "PREFLIGHT_EVENTS": events_path(spec.run_dir),
        "OMP_NUM_THREADS": "1",  # torch must start no thread before a supervisor forks
        "PYTHONSAFEPATH": "1",  # a folder `torch` where the user stands must not be imported (Python 3.11 and later)
        "RES_OPTIONS": RES_OPTIONS,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    if spec.gpu_uuids:
        own |= {"CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if spec.machine_path:
        own["PREFLIGHT_MACHINE"] = spec.machine_path
    return own


def meet_without_ranks(others: Others, launched: Launched, watch: Watcher, kill_at: float) -> None:
    """Tell the other nodes that this one could not even start its ranks, and hear what becomes of the run."""
    while not (launched.problem or launched.done):
        reading, writing = others.files()
        wait_for(reading, writing, POLL_S)
        others.turn(launched)
        watch(launched)
        if time.monotonic() > kill_at:
            launched.problem = launched.alone_problem


def _take_in(
    agent: subprocess.Popen[bytes],
    fifo: int,
    spec: RunSpec,
    launched: Launched,
    watch: Watcher,
    kill_at: float,
    others: Others | None,
) -> None:
    unread = b""
    while not launched.done:
        ended = agent.poll() is not None  # before reading, so that its last words are read
        reading, writing = others.files() if others else ([], [])
        gone = ended and not _may_be_gone(agent, launched, others)
        wait_for([fifo, *reading], writing, 0 if gone else POLL_S)
        data = _read_all(fifo)
        *lines, unread = (unread + data).split(b"\n")
        for line in filter(None, lines):
            note(launched, parse_event(line))
        if ended and not (launched.problem or launched.done or _may_be_gone(agent, launched, others)):
            launched.problem = f"torchrun {_how(agent.returncode)}{_because(spec.run_dir)}"
        if others:
            if launched.problem and not launched.alone_is_over:
                launched.end_alone(launched.problem)  # the other nodes still have to hear of it
                launched.problem = ""
            others.turn(launched)
        watch(launched)
        if launched.problem or launched.done:
            return
        if time.monotonic() > kill_at:
            launched.problem = (
                f"the deadline came before the run was through, at {launched.running or 'starting torchrun'}"
            )
            return


def _may_be_gone(agent: subprocess.Popen[bytes], launched: Launched, others: Others | None) -> bool:
    """Tell whether the run goes on without this node's ranks: they never worked, or node 0 has told them to stop."""
    if others is None:
        return False
    return bool(launched.alone_problem) or (others.needs_no_ranks and agent.returncode == 0)


def _read_all(fifo: int) -> bytes:
    data = b""
    try:
        while chunk := os.read(fifo, 1 << 16):
            data += chunk
    except BlockingIOError:
        pass
    return data


def parse_event(line: bytes) -> dict[str, Any]:
    """Return the event on a line; a line that holds none becomes the event `garbled`.

    A conductor that is killed while it writes leaves half a line: the reason is told by whoever outlives it.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    return event if isinstance(event, dict) and "event" in event else {"event": "garbled"}


def note(launched: Launched, event: dict[str, Any]) -> None:
    """Take in one event of the conductor or the agent."""
    match str(event["event"]):
        case "ready":
            launched.ready_after_s = time.monotonic() - launched.started_at
        case "step":
            launched.running = event["label"]
        case "stage":
            launched.running = f"{launched.running.partition(' at ')[0]} at {event['stage']}"
        case "trial" | "duel" | "tested" | "isolated" | "rail":
            _note_result(launched, event)
        case "simulated":
            launched.simulated = True
        case "supervisor_failed":
            launched.problem = f"the supervisor of rank {event['rank']} failed: {event['why']}"
        case "supervisor_died":
            launched.problem = launched.problem or (
                f"the supervisor of rank {event['rank']} {_how(event['exitcode'])} during {launched.running or 'start'}"
            )
        case "alone":
            launched.end_alone("")
        case "done":
            if launched.garbled:
                raise HarnessError("a line of what the ranks report arrived garbled, so a result may be missing")
            launched.done = True
        case "garbled":
            launched.garbled = True
        case kind:
            raise HarnessError(f"the conductor sent an event of unknown kind: {kind}")


def _note_result(launched: Launched, event: dict[str, Any]) -> None:
    launched.trials += [decode(TrialResult, event["result"])] if "result" in event else []
    launched.duels += [decode(Duel, event["duel"])] if "duel" in event else []
    launched.pairs += [decode(PairTruth, event["pair"])] if "pair" in event else []
    launched.gpus += [decode(GpuTest, event["gpu"])] if "gpu" in event else []
    launched.rails += [decode(RailTest, event["rail"])] if "rail" in event else []
    launched.isolation = decode(Isolation, event["isolation"]) if "isolation" in event else launched.isolation


def _how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"died by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"died by signal {-exit_code}"


def _because(run_dir: str) -> str:
    words = last_words(run_dir)
    return f": {words}" if words else ""
