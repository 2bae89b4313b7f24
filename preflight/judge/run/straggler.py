"""One rank that is late at every size drags all others down with it, at every step of the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.judge.check import Case, RunCheck
from preflight.judge.wording import size_text
from preflight.judge.workaround import default_trial, works
from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import CollectiveResult, TrialResult

FAIL_ABOVE = 2.0
WARN_ABOVE = 1.2
SMALLEST_JUDGED_BYTES = 64 << 10  # below it latency noise decides
GPU_DECISION_BYTES = 32 << 20
# A scheduler's whim on a busy CPU costs a time slice; a GPU's collective of 32 MiB takes no longer than this in all.
LEAST_LATENESS_CPU_US = 200.0
LEAST_LATENESS_GPU_US = 20.0


@dataclass(frozen=True, slots=True)
class Late:
    """The latest rank of one collective at one size."""

    rank: int
    own_us: float
    others_us: float  # median of the other ranks
    slowdown: float
    result: CollectiveResult


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding where the same rank is the late one at every decision size of both collectives."""
    trial = _trial_to_judge(case.trials)
    if trial is None:
        return
    lates = [_latest(result) for result in decision_results(trial, case.wants_gpus)]
    found = [late for late in lates if late is not None]
    least_us = LEAST_LATENESS_GPU_US if case.wants_gpus else LEAST_LATENESS_CPU_US
    if not found or len(found) < len(lates) or len({late.rank for late in found}) > 1:
        return
    factor = min(late.slowdown for late in found)
    if factor <= WARN_ABOVE or any(late.own_us - late.others_us < least_us for late in found):
        return
    mildest = min(found, key=lambda late: late.slowdown)
    yield Finding(
        check=CHECK.name,
        blame=Blame.GPU if case.wants_gpus else Blame.HOST,
        severity=Severity.FAIL if factor > FAIL_ABOVE else Severity.WARN,
        subject=f"rank {mildest.rank}",
        problem=f"rank {mildest.rank} is {factor:.2f} times slower than the median of the others or worse: "
        f"{mildest.own_us:.0f} us against {mildest.others_us:.0f} us, {_what(mildest)}",
        fix=_fix(case, mildest.rank),
        evidence=tuple(
            Evidence(
                f"own time, {_what(late)}",
                f"{late.own_us:.0f} us; others {late.others_us:.0f} us; factor {late.slowdown:.2f}",
                f"trial {trial.candidate}, rank {late.rank}, median of {late.result.repetitions}",
            )
            for late in found
        ),
    )


def decision_results(trial: TrialResult, on_gpus: bool) -> list[CollectiveResult]:
    """Return the results to judge by: 32 MiB and the largest, on CPU the two largest; none below 64 KiB."""
    chosen: list[CollectiveResult] = []
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER):
        results = sorted((r for r in trial.results if r.collective is collective), key=lambda r: r.size_bytes)
        # all_gather rounds its size to a whole number per rank, so the size asked for is only nearly met.
        near = [r for r in results if abs(r.size_bytes - GPU_DECISION_BYTES) < GPU_DECISION_BYTES / 20]
        of_it = [*near, *results[-1:]] if on_gpus else results[-2:]
        chosen.extend(r for i, r in enumerate(of_it) if r.size_bytes >= SMALLEST_JUDGED_BYTES and r not in of_it[:i])
    return chosen


def _trial_to_judge(trials: tuple[TrialResult, ...]) -> TrialResult | None:
    default = default_trial(trials)
    if default is not None and works(default):
        return default
    working = [trial for trial in trials if works(trial) and trial.results]
    return max(working, key=lambda t: max(_busbw_gb_s(r) for r in t.results), default=None)


def _busbw_gb_s(result: CollectiveResult) -> float:
    return 0.0 if isinstance(result.busbw_gb_s, Gap) else result.busbw_gb_s


def _latest(result: CollectiveResult) -> Late | None:
    if len(result.ranks) < 2:
        return None
    latest = max(result.ranks, key=lambda rank: rank.slowdown)
    others_us = latest.own_us / latest.slowdown if latest.slowdown else 0.0  # not all are shown
    return Late(latest.rank, latest.own_us, others_us, latest.slowdown, result)


def _what(late: Late) -> str:
    return f"{late.result.collective.value} of {size_text(late.result.size_bytes)}"


def _fix(case: Case, rank: int) -> str:
    if case.wants_gpus:
        return (
            f"compare the GPU of rank {rank} with the others: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PCIE` "
            "(throttling, PCIe width), `nvidia-smi` (another process on it), `nvidia-smi topo -m`"
        )
    return (
        f"see what else runs where rank {rank} runs: `top`, `taskset -cp PID`, the cgroup's CPU limit; then run again"
    )


CHECK = RunCheck(
    name="straggler",
    promise="no rank is late at every decision size",
    blame=Blame.GPU,
    reads=("trials",),
    blind_to="a rank that is slow only now and then, or only in computing; delays under 200 us (CPU) or 20 us (GPU)",
    judge=judge,
)
