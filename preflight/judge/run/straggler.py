from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import fine_size
from preflight.judge.workarounds import default_trial, must_have_trials, works
from preflight.model.collective import Collective
from preflight.model.facts import known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import CollectiveResult, RankTime, TrialResult

FAIL_ABOVE = 2.0
WARN_ABOVE = 1.2
SMALLEST_JUDGED_BYTES = 64 << 10  # below it latency noise decides
GPU_DECISION_BYTES = 32 << 20
# A scheduler's whim on a busy CPU costs a time slice; a GPU's collective of 32 MiB takes no longer than this in all.
LEAST_LATENESS_CPU_US = 200.0
LEAST_LATENESS_GPU_US = 20.0


@run_check("straggler", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("trials",))
def straggler(case: Case) -> Findings:
    """No rank is late at every decision size.

    One rank that is late at every size drags all others down with it, at every step of the job. Yields a finding where
    the same rank is the late one at every decision size of both collectives.

    Can't see: a rank that is slow only now and then, or only in computing; delays under 200 us (CPU) or 20 us (GPU).
    """
    trial = _trial_to_judge(must_have_trials(case))
    if trial is None:
        raise NotApplicable("no settings work")
    results = decision_results(trial, case.wants_gpus)
    if not results:
        raise NotApplicable(f"nothing of {fine_size(SMALLEST_JUDGED_BYTES)} or more was measured")
    if any(len(result.ranks) < 2 for result in results):
        raise NotApplicable("one rank has no other to be compared with")
    found = [(result, max(result.ranks, key=lambda rank: rank.slowdown)) for result in results]
    least_us = LEAST_LATENESS_GPU_US if case.wants_gpus else LEAST_LATENESS_CPU_US
    result, mildest = min(found, key=lambda each: each[1].slowdown)
    if mildest.slowdown <= WARN_ABOVE or len({late.rank for _, late in found}) > 1:
        return
    if any(late.own_us - _others_us(late) < least_us for _, late in found):
        return
    yield straggler.finding(
        Severity.FAIL if mildest.slowdown > FAIL_ABOVE else Severity.WARN,
        f"rank {mildest.rank}",
        f"rank {mildest.rank} is {mildest.slowdown:.2f} times slower than the median of the others or worse: "
        f"{mildest.own_us:.0f} us against {_others_us(mildest):.0f} us, {_what(result)}",
        _fix(case, mildest.rank),
        *(
            Evidence(
                f"own time, {_what(result)}",
                f"{late.own_us:.0f} us; others {_others_us(late):.0f} us; factor {late.slowdown:.2f}",
                f"trial {trial.candidate}, rank {late.rank}, median of {result.repetitions}",
            )
            for result, late in found
        ),
        blame=Blame.GPU if case.wants_gpus else Blame.HOST,
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
    return max(working, key=lambda t: max(known_or(r.busbw_gb_s, 0.0) for r in t.results), default=None)


def _others_us(late: RankTime) -> float:
    """Return the median of the other ranks, of which not all are shown."""
    return late.own_us / late.slowdown if late.slowdown else 0.0


def _what(result: CollectiveResult) -> str:
    return f"{result.collective.value} of {fine_size(result.size_bytes)}"


def _fix(case: Case, rank: int) -> str:
    if case.wants_gpus:
        return (
            f"compare the GPU of rank {rank} with the others: `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PCIE` "
            "(throttling, PCIe width), `nvidia-smi` (another process on it), `nvidia-smi topo -m`"
        )
    return (
        f"see what else runs where rank {rank} runs: `top`, `taskset -cp PID`, the cgroup's CPU limit; then run again"
    )
