"""How checks ended, put together: over several nodes, beside findings from elsewhere, or never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.model.finding import CheckDescription, CheckOutcome, Finding, RanCheck

Ended = tuple[CheckOutcome, str]  # with the reason
# Of several nodes the first of these decides: a pass on one says nothing of another.
BY_WEIGHT = (
    CheckOutcome.FOUND, CheckOutcome.COULD_NOT_LOOK, CheckOutcome.NOT_RUN, CheckOutcome.PASSED,
    CheckOutcome.NOT_APPLICABLE,
)  # fmt: skip


def together(check: CheckDescription, ended: Sequence[Ended]) -> RanCheck:
    """Return how a check ended on several nodes; the reason is that of the nodes where it ended so."""
    outcomes = [outcome for outcome, _ in ended]
    outcome = next((each for each in BY_WEIGHT if each in outcomes), CheckOutcome.NOT_RUN)
    reason = "; ".join(dict.fromkeys(reason for each, reason in ended if each is outcome and reason))
    return RanCheck(check.name, check.blame, check.promise, outcome, reason or ("" if ended else "no node was read"))


def with_findings(ran: Sequence[RanCheck], findings: Sequence[Finding]) -> tuple[RanCheck, ...]:
    """Return how the checks ended; those that these findings name found something."""
    named = {finding.check for finding in findings}
    return tuple(replace(each, outcome=CheckOutcome.FOUND, reason="") if each.check in named else each for each in ran)


def of_several_nodes(by_host: Sequence[tuple[str, Sequence[RanCheck]]]) -> tuple[RanCheck, ...]:
    """Return how each check ended where every node ran them by itself."""
    ended: dict[str, list[tuple[str, RanCheck]]] = {}
    for host, checks in by_host:
        for each in checks:
            ended.setdefault(each.check, []).append((host, each))
    return tuple(
        replace(merged, reason=reason)
        for several in ended.values()
        for merged in [min((each for _, each in several), key=lambda each: BY_WEIGHT.index(each.outcome))]
        for reason in ["; ".join(f"{h}: {e.reason}" for h, e in several if e.outcome is merged.outcome and e.reason)]
    )


def not_run(checks: Sequence[CheckDescription], why: str) -> tuple[RanCheck, ...]:
    """Return what a report says of checks that never had their turn."""
    return tuple(RanCheck(each.name, each.blame, each.promise, CheckOutcome.NOT_RUN, why) for each in checks)
