from __future__ import annotations

from dataclasses import replace

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import fine_size
from preflight.judge.seen_again import parts_of_ranks
from preflight.judge.workarounds import default_trial, must_have_trials, works
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import AGAIN, DEFAULT, TrialResult
from preflight.search.late_rank import (
    LATE_ABOVE,
    LEAST_LATENESS_CPU_US,
    LEAST_LATENESS_GPU_US,
    SMALLEST_JUDGED_BYTES,
    Late,
    decision_results,
    late_rank,
)

FAIL_ABOVE = Bound(
    2.0, "times the time that the other ranks need without waiting, at both sizes",
    "noise does not double the time of a healthy rank at every size",
    JUDGMENT,
    "too low: a rank behind a slow link is rejected; too high: a slow rank only causes a warning",
)  # fmt: skip


@run_check(
    "straggler",
    blame=Blame.GPU,
    unseen=Unseen.ACCEPTANCE,
    reads=("trials",),
    bounds=(LATE_ABOVE, LEAST_LATENESS_CPU_US, LEAST_LATENESS_GPU_US, FAIL_ABOVE),
)
def straggler(case: Case) -> Findings:
    """No rank is late both at 32 MiB and at the largest size in all trials of the default settings.

    Yields a WARN if a late rank is late again in a repetition, or a FAIL if the rank is very late.

    Can't see: a rank that is slow only at times or only in computing; delays under 200 us (CPU) or 20 us (GPU).
    """
    # A late rank delays all other ranks at every step of the job. On the CPU, the two largest sizes count. If a rank is
    # late, the default settings are tried again. If the rank was very late only once, the verdict is unknown. A rank
    # behind a slow link is late too, so the problem names both.
    trial = _trial_to_judge(must_have_trials(case))
    if trial is None:
        raise NotApplicable("no settings work")
    results = decision_results(trial, case.wants_gpus)
    if not results:
        raise NotApplicable(f"no message of {fine_size(SMALLEST_JUDGED_BYTES)} or more was measured")
    if any(len(result.ranks) < 2 for result in results):
        raise NotApplicable("a single rank can't be compared with others")
    first = late_rank(trial, case.wants_gpus)
    if not first:
        return
    rank, repeats = first[0].time.rank, _repeats(case, trial)
    late = [(each, late_rank(each, case.wants_gpus)) for each in repeats]
    again = [(trial, first), *((each, found) for each, found in late if found and found[0].time.rank == rank)]
    mildest = min((each for _, found in again for each in found), key=lambda each: each.time.slowdown)
    severity = Severity.FAIL if mildest.time.slowdown > FAIL_ABOVE.value else Severity.WARN
    is_again = len(again) > 1 and 2 * len(again) > 1 + len(repeats)
    if repeats and not is_again and severity is Severity.WARN:
        return
    often = f", in {len(again)} of {1 + len(repeats)} trials" if repeats else ""
    finding = straggler.finding(
        severity,
        f"rank {rank}",
        f"rank {rank}{' or a link to it' if case.wants_gpus else ''} is at least {mildest.time.slowdown:.2f}x slower "
        f"than the median{often}: {mildest.time.own_us:.0f} vs {mildest.others_us:.0f} µs ({_what(mildest)})",
        _fix(case, rank),
        *(_evidence(each, one) for each, found in again for one in found),
        blame=Blame.GPU if case.wants_gpus else Blame.HOST,
    )
    is_unconfirmed = severity is Severity.FAIL and not is_again
    yield replace(finding, is_unconfirmed=is_unconfirmed, parts=parts_of_ranks(case, (rank,)))


def _repeats(case: Case, trial: TrialResult) -> list[TrialResult]:
    """Return the successful repetitions of the default settings.

    Return [] if `trial` did not use the default settings.
    """
    named = [each for each in case.trials if each.candidate.startswith(AGAIN) and trial.candidate == DEFAULT]
    return [each for each in named if works(each) and decision_results(each, case.wants_gpus)]


def _trial_to_judge(trials: tuple[TrialResult, ...]) -> TrialResult | None:
    default = default_trial(trials)
    if default is not None and works(default):
        return default
    working = [trial for trial in trials if works(trial) and trial.results]
    return max(working, key=lambda t: max(known_or(r.busbw_gb_s, 0.0) for r in t.results), default=None)


def _evidence(trial: TrialResult, late: Late) -> Evidence:
    time = late.time
    return Evidence(
        f"own time, {_what(late)}",
        f"{time.own_us:.0f} us; others {late.others_us:.0f} us; factor {time.slowdown:.2f}",
        f"trial {trial.candidate}, rank {time.rank}, median of {late.result.repetitions}",
    )


def _what(late: Late) -> str:
    return f"{late.result.collective.value} of {fine_size(late.result.size_bytes)}"


def _fix(case: Case, rank: int) -> str:
    if case.wants_gpus:
        return (
            f"compare the GPU of rank {rank} with the others: run `nvidia-smi -q -d "
            f"CLOCK,PERFORMANCE,TEMPERATURE,PCIE` (throttling, PCIe width), `nvidia-smi` (other processes) and "
            f"`nvidia-smi topo -m` (links)"
        )
    return (
        f"find other processes on the CPUs of rank {rank} (`top`, `taskset -cp PID`), check the cgroup's CPU limit, "
        f"and rerun"
    )
