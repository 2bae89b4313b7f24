"""Running one check on one node or run, as the runner does."""

from __future__ import annotations

from preflight.judge.check import Case, Check, run_checks
from preflight.model.facts import NodeFacts
from preflight.model.finding import CheckOutcome, Finding, SkippedCheck
from tests.node_facts import case as stock_case
from tests.node_facts import gpu_case


def found(check: Check, case: Case) -> tuple[Finding, ...]:
    """Return what a check finds; it must neither skip nor crash."""
    findings, skipped, _ = run_checks((check,), case)
    assert skipped == ()
    return findings


def skips(check: Check, case: Case) -> tuple[SkippedCheck, ...]:
    """Return why a check was inconclusive; it must find nothing."""
    findings, skipped, _ = run_checks((check,), case)
    assert findings == ()
    return skipped


def ended(check: Check, case: Case) -> tuple[CheckOutcome, str]:
    """Return how a check ended, and why."""
    (ran,) = run_checks((check,), case).ran
    return ran.outcome, ran.reason


def applies_not(check: Check, case: Case) -> str:
    """Return why a check had nothing to look at."""
    outcome, reason = ended(check, case)
    assert outcome is CheckOutcome.NOT_APPLICABLE
    return reason


def on(check: Check, node: NodeFacts) -> tuple[Finding, ...]:
    """Return what a check finds on a node that runs gloo over the CPU."""
    return found(check, stock_case(nodes=(node,)))


def on_gpus(check: Check, node: NodeFacts) -> tuple[Finding, ...]:
    """Return what a check finds on a node that is to run NCCL."""
    return found(check, gpu_case(nodes=(node,)))


def only(findings: tuple[Finding, ...]) -> Finding:
    """Return the one finding."""
    assert len(findings) == 1, findings
    return findings[0]
