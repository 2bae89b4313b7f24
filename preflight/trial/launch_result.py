"""A launch of ranks, in progress or finished: the events that the ranks report, and why the launch ended."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass, replace
from typing import Any

from preflight.errors import HarnessError, Interrupted, PreflightError
from preflight.model.codec import decode
from preflight.model.gpu_test import GpuTest, PairTruth
from preflight.model.isolation import NO_ISOLATION, Isolation
from preflight.model.nccl_diagnostics import NcclDiagnosis
from preflight.model.run_spec import Duel
from preflight.model.trial import NO_CONTROL, Control, RailTest, TrialResult, stage_words

# What an event holds under a key: one more of a field of LaunchResult, which is of this kind.
RESULTS: dict[str, tuple[str, Any]] = {
    "result": ("trials", TrialResult),
    "duel": ("duels", Duel),
    "pair": ("pairs", PairTruth),
    "gpu": ("gpus", GpuTest),
    "rail": ("rails", RailTest),
    "diagnosis": ("diagnoses", NcclDiagnosis),
}


@dataclass(frozen=True, slots=True)
class SoloPhase:
    """The test runs of this node alone, before the test runs on all nodes together.

    `problem` is the reason why this phase ended early, or "".
    """

    trials: tuple[TrialResult, ...] = ()
    problem: str = ""
    control: Control = NO_CONTROL


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The results that the ranks have reported so far. `problem` is the reason for an early end, or ""."""

    trials: tuple[TrialResult, ...] = ()
    duels: tuple[Duel, ...] = ()
    pairs: tuple[PairTruth, ...] = ()
    gpus: tuple[GpuTest, ...] = ()
    rails: tuple[RailTest, ...] = ()
    diagnoses: tuple[NcclDiagnosis, ...] = ()  # NCCL's own; at most one
    isolation: Isolation = NO_ISOLATION
    control: Control = NO_CONTROL  # the A/B confirmation of a workaround
    simulated: bool = False
    problem: str = ""
    interrupted: Interrupted | None = None  # the signal that ended the run
    running: str = ""  # the step and stage that were under way
    started_at: float = 0.0  # monotonic; 0 if nothing was launched
    paused_here_s: float = 0.0  # for how long the launcher did not run: a freezer, SIGSTOP, a VM that moved
    paused_by_ranks_s: float = 0.0  # the same for the ranks, which measure it in steps that are then repeated
    ready_after_s: float = 0.0  # until the supervisors had imported torch
    done: bool = False
    solo: SoloPhase | None = None  # several nodes: set once this phase is over; `trials` are then the joint ones

    @property
    def own_trials(self) -> tuple[TrialResult, ...]:
        """Return the test runs that this node made alone.

        If this node made no test run alone, return the test runs on all nodes together.
        """
        return (self.solo.trials if self.solo else ()) or self.trials

    @property
    def paused_s(self) -> float:
        """Return for how many seconds this node's part of the run was suspended."""
        return max(self.paused_here_s, self.paused_by_ranks_s)

    @property
    def own_control(self) -> Control:
        """Return the A/B confirmation of a workaround that belongs to the test runs in `own_trials`."""
        return self.solo.control if self.solo and self.solo.trials else self.control

    @property
    def solo_problem(self) -> str:
        return self.solo.problem if self.solo else ""

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the reasons why preflight could not finish, or () if preflight finished."""
        return tuple(dict.fromkeys(filter(None, (self.problem, self.solo_problem))))


class Launch:
    """A launch in progress. `result` collects the events that the launcher and the other nodes report."""

    def __init__(self) -> None:
        self.result = LaunchResult(started_at=time.monotonic())
        self._is_garbled = False  # a line was cut short or mixed with another's

    @property
    def is_over(self) -> bool:
        return bool(self.result.problem or self.result.done)

    def is_at(self, running: str) -> None:
        """Record `running`, the name of the step that runs now."""
        self.result = replace(self.result, running=running)

    def fail(self, problem: str) -> None:
        """Record `problem` as the reason for the end of the launch, unless another reason is recorded already."""
        self.result = replace(self.result, problem=self.result.problem or problem)

    def end_solo(self, problem: str) -> None:
        """Record that this node has finished its own test runs.

        All later test runs are on all nodes together. A `problem` in the node's own test runs does not end the launch.
        """
        # The other nodes must still be informed of a problem.
        now = self.result
        self.result = replace(
            now, solo=SoloPhase(now.trials, problem, now.control), trials=(), control=NO_CONTROL,
            problem="" if problem else now.problem,
        )  # fmt: skip

    def paused(self, seconds: float) -> None:
        """Record that the ranks report a suspension of `seconds` seconds.

        The method `stood_still` records the suspensions that the launcher itself measures. Only the longer of the two
        totals counts.
        """
        self.result = replace(self.result, paused_by_ranks_s=self.result.paused_by_ranks_s + seconds)

    def stood_still(self, seconds: float) -> None:
        """Record that the launcher itself was suspended for `seconds` seconds."""
        self.result = replace(self.result, paused_here_s=self.result.paused_here_s + seconds)

    def end(self) -> None:
        self.result = replace(self.result, done=True)

    def stop(self, error: Exception | Interrupted) -> None:
        """Record in `result.problem` the error or signal that ended the launch.

        Earlier results are kept.
        """
        match error:
            case Interrupted():
                why = f"{error} during {self.result.running or 'the start of torchrun'}"
                self.result = replace(self.result, interrupted=error)
            case PreflightError():
                why = str(error)
            case OSError():
                why = f"the ranks could not be started: {error}"
            case _:
                why = f"a defect in preflight: {type(error).__name__}: {error}"
        self.result = replace(self.result, problem=why)

    def take(self, event: dict[str, Any]) -> None:
        """Record `event`, which the coordinator or the agent reported.

        Raise HarnessError if the kind of the event is unknown, or if the run ends after a damaged event.
        """
        now = self.result
        match str(event["event"]):
            case "ready":
                self.result = replace(now, ready_after_s=time.monotonic() - now.started_at)
            case "step":
                self.is_at(event["label"])
            case "stage":
                self.is_at(f"{now.running.partition(' at ')[0]} at {stage_words(event['stage'])}")
            case "trial" | "duel" | "tested" | "isolated" | "rail" | "diagnosed" | "paused" | "control":
                self._take_result(event)
            case "simulated":
                self.result = replace(now, simulated=True)
            case "supervisor_failed":
                self.result = replace(now, problem=f"preflight's process of rank {event['rank']}: {event['why']}")
            case "supervisor_died":
                how = how_ended(event["exitcode"])
                self.fail(f"preflight's process of rank {event['rank']} {how} during {now.running or 'start'}")
            case "solo":
                self.end_solo("")
            case "done" if self._is_garbled:
                raise HarnessError("a line of the ranks' reports was damaged on its way, so a result may be missing")
            case "done":
                self.end()
            case "garbled":
                self._is_garbled = True
            case kind:
                raise HarnessError(f"the coordinator sent an event of unknown kind: {kind}")

    def _take_result(self, event: dict[str, Any]) -> None:
        if "seconds" in event:
            self.paused(event["seconds"])
        if "isolation" in event:  # the whole of it each time
            self.result = replace(self.result, isolation=decode(Isolation, event["isolation"]))
        if "control" in event:
            self.result = replace(self.result, control=decode(Control, event["control"]))
        for key, (name, kind) in RESULTS.items():
            if key in event:
                more: dict[str, Any] = {name: (*getattr(self.result, name), decode(kind, event[key]))}
                self.result = replace(self.result, **more)


def parse_event(line: bytes) -> dict[str, Any]:
    """Return the event on a line, or an event of the kind `garbled` if the line has no valid event."""
    # An incomplete line remains if a process is killed while it writes the line.
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    return event if isinstance(event, dict) and "event" in event else {"event": "garbled"}


def how_ended(exit_code: int) -> str:
    """Return how a process with this exit code ended: "ended with exit code 1" or "died by SIGKILL"."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"died by {names.get(-exit_code, f'signal {-exit_code}')}"


def progress_line(launched: LaunchResult, deadline_s: float, width: int) -> str:
    """Return a line with the elapsed time, the current step and the deadline, cut to fit into `width` columns."""
    elapsed_s = time.monotonic() - launched.started_at
    what = launched.running or "starting one process per rank (importing torch)"
    done = f"{len(launched.trials)} tried" if launched.trials else ""
    text = "  ".join(part for part in (f"{elapsed_s:3.0f} s", done, what, f"(at most {deadline_s:.0f} s)") if part)
    return "".join(char if char.isprintable() else "?" for char in text)[: max(0, width - 1)]
