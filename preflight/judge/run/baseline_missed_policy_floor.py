from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.speed_judges import beside_baseline, what
from preflight.judge.workarounds import must_have_trials
from preflight.model.baseline import MOST_REPEATS, OTHER_SOFTWARE_SHARE, Judged, other_software
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import AGAIN, DEFAULT
from preflight.model.units import counted, rate_text, size_text

TIMES = 1 + MOST_REPEATS
MOST_NAMED = 4


@run_check("baseline-missed", blame=Blame.FABRIC, unseen=Unseen.ACCEPTANCE, reads=("trials", "gpus", "system"))
def baseline_missed(case: Case) -> Findings:
    """The default settings reach what known-good nodes of the same hardware reach.

    Yields one failure for what lies furthest below its floor over all repetitions.

    What looks slow and could not be measured often enough is a missing fact: one slow measurement rejects nobody.
    So is a small loss with another driver, NCCL or torch than the baseline's.

    Can't see: losses smaller than what good nodes differ by, several nodes, and everything without --baseline.
    """
    if case.baseline is None:
        raise NotApplicable("no --baseline was given")
    must_have_trials(case)
    below = sorted((each for each in beside_baseline(case) if each.is_below), key=lambda each: each.share / each.floor)
    if not below:
        return
    worst = below[0]
    if len(worst.measured) < TIMES:
        skipped = next((t.problem for t in case.trials if t.candidate.startswith(AGAIN) and t.problem), "")
        raise UnreadableFact(
            f"{what(worst)} is {worst.share:.1%} of what good nodes reach (floor {worst.floor:.1%}), but was measured "
            f"{len(worst.measured)} of {TIMES} times only" + (f": {skipped}" if skipped else "")
        )
    software = other_software(case.baseline, case.nodes[0])
    if software and worst.share >= worst.floor * OTHER_SOFTWARE_SHARE:
        raise UnreadableFact(
            f"{what(worst)} is {worst.share:.1%} of what good nodes reached (floor {worst.floor:.1%}), with other "
            f"software: {software}; make a new baseline with it"
        )
    others = f"; {counted(len(below) - 1, 'other value')} below the minimum" if len(below) > 1 else ""
    yield baseline_missed.finding(
        Severity.FAIL,
        f"{case.nodes[0].host} {what(worst)}",
        f"{worst.share:.1%} of the baseline ({worst.reference.nodes} nodes; minimum {worst.floor:.1%}), confirmed in "
        f"{TIMES} measurements{others}",
        "find the slow rank or link in the report (`--profile burn` tests each alone) and compare with `preflight "
        "fleet`; if healthy nodes have newer software, make a new baseline from them",
        *(_evidence(each, case.baseline_source) for each in below[:MOST_NAMED]),
    )


def _evidence(each: Judged, source: str) -> Evidence:
    shares = ", ".join(f"{share:.1%}" for share in each.measured)
    usual = f" of {rate_text(each.reference.busbw_gb_s)}" if each.reference.size_bytes else ""
    return Evidence(what(each), f"{shares}{usual}; floor {each.floor:.1%}", source)


@run_check("policy-floor", blame=Blame.FABRIC, unseen=Unseen.ANSWER, reads=("trials",))
def policy_floor(case: Case) -> Findings:
    """The default settings reach the bandwidth that the policy demands.

    Yields a failure for each floor that the default settings miss; a floor without a figure is a missing fact.

    Can't see: sizes without a floor, and everything without --policy.
    """
    if case.policy is None or not case.policy.floors:
        raise NotApplicable("no policy demands a bandwidth")
    must_have_trials(case)
    results = [result for trial in case.trials if trial.candidate == DEFAULT for result in trial.results]
    for floor in case.policy.floors:
        what = f"{floor.collective.value} {size_text(floor.size_bytes)}"
        same = [r for r in results if r.collective is floor.collective and r.size_bytes == floor.size_bytes]
        if not same:
            raise UnreadableFact(f"the policy has a floor for {what}, which this profile did not measure")
        best = max(known(result.busbw_gb_s) for result in same)
        if best < floor.busbw_gb_s:
            yield policy_floor.finding(
                Severity.FAIL,
                what,
                f"{rate_text(best)}, but the policy demands at least {rate_text(floor.busbw_gb_s)}",
                "find the slow rank or link in the report; compare with `preflight fleet`",
                Evidence("busbw", rate_text(best), f"trial '{DEFAULT}'"),
                Evidence("floor", rate_text(floor.busbw_gb_s), case.policy.source),
            )
