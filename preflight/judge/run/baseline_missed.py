"""A node that is slower than known-good nodes of the same hardware, again and again."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, RunCheck
from preflight.judge.run.beside_baseline import beside_baseline, what
from preflight.model.baseline import MOST_REPEATS, Judged
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import AGAIN
from preflight.model.units import rate_text

TIMES = 1 + MOST_REPEATS
MOST_NAMED = 4


def judge(case: Case) -> Iterator[Finding]:
    """Yield one failure for what lies furthest below its floor over all repetitions.

    What looks slow and could not be measured often enough is a missing fact: one slow measurement rejects nobody.
    """
    if case.baseline is None or not case.trials:
        return
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
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.FAIL,
        subject=f"{case.nodes[0].host} {what(worst)}",
        problem=f"{worst.share:.1%} of what {worst.reference.nodes} good nodes reach, where {worst.floor:.1%} is the "
        f"least, in {TIMES} measurements" + (f"; and {len(below) - 1} more figures" if len(below) > 1 else ""),
        fix="see which rank or link is slow in the report (`--profile burn` tests each alone); compare with `preflight "
        "fleet`; a baseline of healthy nodes with newer software is learnt anew",
        evidence=tuple(_evidence(each, case.baseline_source) for each in below[:MOST_NAMED]),
    )


def _evidence(each: Judged, source: str) -> Evidence:
    shares = ", ".join(f"{share:.1%}" for share in each.measured)
    usual = f" of {rate_text(each.reference.busbw_gb_s)}" if each.reference.size_bytes else ""
    return Evidence(what(each), f"{shares}{usual}; floor {each.floor:.1%}", source)


CHECK = RunCheck(
    name="baseline-missed",
    promise="the default settings reach what known-good nodes of the same hardware reach",
    blame=Blame.FABRIC,
    reads=("trials", "gpus", "system"),
    blind_to="losses smaller than what good nodes differ by, several nodes, and everything without --baseline",
    judge=judge,
)
