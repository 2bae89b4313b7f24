from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.speed_judges import beside_baseline, what
from preflight.judge.workarounds import must_have_trials
from preflight.model.baseline import (
    CONFIDENCE,
    FALSE_REJECTIONS,
    LEAST_LOSS,
    MOST_REPEATS,
    OTHER_SOFTWARE_SHARE,
    REJECTED_LOSS,
    SPREAD_KNOWN_FROM,
    WIDER_CONFIDENCE,
    Judged,
    other_software,
)
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import AGAIN, DEFAULT
from preflight.model.units import counted, rate_text, size_text

TIMES = 1 + MOST_REPEATS
MOST_NAMED = 4


@run_check(
    "baseline-missed",
    blame=Blame.FABRIC,
    unseen=Unseen.ACCEPTANCE,
    reads=("trials", "gpus", "system"),
    bounds=(
        FALSE_REJECTIONS,
        CONFIDENCE,
        LEAST_LOSS,
        REJECTED_LOSS,
        WIDER_CONFIDENCE,
        SPREAD_KNOWN_FROM,
        OTHER_SOFTWARE_SHARE,
    ),
)
def baseline_missed(case: Case) -> Findings:
    """With default settings, the node is as fast as known-good nodes with the same hardware.

    Yields one FAIL for the value that is furthest below its minimum in all repetitions. If no value is below its
    minimum, yields one WARN for a value that few known-good nodes have.

    Can't see: losses smaller than the differences between good nodes, runs of several nodes, and anything without
    --baseline.
    """
    # If a low value was not measured often enough, the result is unknown. After a small loss, the result is also
    # unknown if the driver, NCCL or torch differs from the baseline's.
    if case.baseline is None:
        raise NotApplicable("no --baseline was given")
    must_have_trials(case)
    judged = sorted(beside_baseline(case), key=lambda each: round(each.share / each.floor, 2))  # of equals the groups
    below = [each for each in judged if each.is_below]
    slow = below or [each for each in judged if each.is_slow]
    if not slow:
        return
    worst = slow[0]
    software = other_software(case.baseline, case.nodes[0])
    if not below and (software or len(worst.measured) < TIMES):
        return
    if len(worst.measured) < TIMES:
        skipped = next((t.problem for t in case.trials if t.candidate.startswith(AGAIN) and t.problem), "")
        raise UnreadableFact(
            f"{what(worst)} is {worst.share:.1%} of the baseline (minimum {worst.floor:.1%}), but only "
            f"{len(worst.measured)} of {TIMES} measurements were made" + (f": {skipped}" if skipped else "")
        )
    if software and all(each.share >= each.floor * OTHER_SOFTWARE_SHARE.value for each in below):
        raise UnreadableFact(
            f"{what(worst)} is {worst.share:.1%} of the baseline (minimum {worst.floor:.1%}), but the software "
            f"differs: {software}; make a new baseline with this software"
        )
    rare = "" if below else f"; few good nodes have less than {worst.usual:.1%}"
    are = "is" if len(slow) == 2 else "are"
    others = f". {counted(len(slow) - 1, 'other speed')} {are} also below the minimum" if len(below) > 1 else ""
    yield baseline_missed.finding(
        Severity.FAIL if below else Severity.WARN,
        f"{case.nodes[0].host} {what(worst)}",
        f"the speed is {worst.share:.1%} of the baseline of {worst.reference.nodes} nodes (confirmed in "
        f"{TIMES} measurements), but the minimum is {worst.floor:.1%}{rare}{others}",
        "find the slow rank or link in the report; `--profile burn` tests each GPU and link alone. Compare nodes with "
        "`preflight fleet`. If healthy nodes have newer software, make a new baseline from them",
        *(_evidence(each, case.baseline_source) for each in slow[:MOST_NAMED]),
    )


def _evidence(each: Judged, source: str) -> Evidence:
    shares = ", ".join(f"{share:.1%}" for share in each.measured)
    usual = f" of {rate_text(each.reference.busbw_gb_s)}" if each.reference.size_bytes else ""
    return Evidence(what(each), f"{shares}{usual}; minimum {each.floor:.1%}", source)


@run_check("policy-floor", blame=Blame.FABRIC, unseen=Unseen.ANSWER, reads=("trials",))
def policy_floor(case: Case) -> Findings:
    """With default settings, the collectives reach the bandwidth that the policy demands.

    Yields a FAIL for each policy minimum that the default settings miss.

    Can't see: sizes for which the policy has no minimum, and anything without --policy.
    """
    # If a size was not measured, its result is missing.
    if case.policy is None or not case.policy.floors:
        raise NotApplicable("no policy demands a bandwidth")
    must_have_trials(case)
    results = [result for trial in case.trials if trial.candidate == DEFAULT for result in trial.results]
    for floor in case.policy.floors:
        what = f"{floor.collective.value} {size_text(floor.size_bytes)}"
        same = [r for r in results if r.collective is floor.collective and r.size_bytes == floor.size_bytes]
        if not same:
            raise UnreadableFact(f"the policy demands a bandwidth for {what}, which this profile did not measure")
        best = max(known(result.busbw_gb_s) for result in same)
        if best < floor.busbw_gb_s:
            yield policy_floor.finding(
                Severity.FAIL,
                what,
                f"the speed is {rate_text(best)}, but the policy demands at least {rate_text(floor.busbw_gb_s)}",
                "find the slow rank or link in the report, and compare nodes with `preflight fleet`",
                Evidence("busbw", rate_text(best), f"trial '{DEFAULT}'"),
                Evidence("minimum of the policy", rate_text(floor.busbw_gb_s), case.policy.source),
            )
