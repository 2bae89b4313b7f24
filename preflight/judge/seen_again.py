"""Confirm a failure that occurred only once, with earlier runs or a hardware counter."""
# A node is rejected if the same part fails in two of three runs, or if a counter confirms the failure.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from preflight.judge.check import Case
from preflight.judge.finding_text import first_line
from preflight.model.finding import REJECTS_A_NODE, Evidence, Finding, Severity
from preflight.model.parts import PAIR, uuid_of
from preflight.model.report import Report

RUNS, ENOUGH = 3, 2
MOST_CHARACTERS = 300  # of what an earlier report says
COUNTERS = "new-hardware-errors"
# The default settings work although one of these fails, so one that was found only once does not stop the job.
BESIDE_A_WORKING_DEFAULT = frozenset({"straggler", "p2p-slow", "rail"})
# Slow is not failing: one does not confirm the other.
SLOW = BESIDE_A_WORKING_DEFAULT | {"gpu-slow", "gpu-throttled", "gpu-throttled-under-load", "pcie-copy-slow"}


def weighed(findings: Sequence[Finding], past: Sequence[Report]) -> tuple[Finding, ...]:
    """Return the problems found. For each failure that occurred only once, decide whether it is confirmed.

    Earlier runs (`past`) or a counter of this run can confirm a failure.
    """
    # A failure is confirmed if the earlier runs or the counter show a failure of the same part.
    counted = [each for each in findings if each.check == COUNTERS and each.severity is not Severity.INFO]
    return tuple(_weighed(each, counted, past) if each.is_unconfirmed else each for each in findings)


def _weighed(finding: Finding, counted: Sequence[Finding], past: Sequence[Report]) -> Finding:
    for part in finding.parts:
        counters = [each for each in counted if set(each.parts) & {part, *part.split(PAIR)}]
        if counters:
            said = tuple(Evidence(each.problem, each.subject, "hardware counter") for each in counters)
            return _confirmed(finding, "a hardware counter agrees", said)
        before = [each for each in past if set(part.split(PAIR)) <= set(each.parts_tried)][-(RUNS - 1) :]
        again = [(run, what) for run in before if (what := _accusation(run, part, finding.check))]
        if len(again) + 1 >= ENOUGH:
            met = f"the same in {len(again) + 1} of the last {len(before) + 1} runs with {part}, this one among them"
            return _confirmed(finding, met, tuple(_evidence(run, what) for run, what in again))
    if finding.check in BESIDE_A_WORKING_DEFAULT and finding.severity is Severity.FAIL:
        return replace(finding, severity=Severity.WARN)
    return finding


def _confirmed(finding: Finding, why: str, evidence: tuple[Evidence, ...]) -> Finding:
    return replace(
        finding, is_unconfirmed=False, problem=f"{finding.problem}; {why}", evidence=(*finding.evidence, *evidence)
    )


def _accusation(run: Report, part: str, check: str) -> Finding | None:
    """Return an earlier run's finding that blames the same part for the same kind of fault as `check`.

    The kinds are failure and slowness. Return None if the earlier run has no such finding.
    """
    against = (each for each in run.findings if part in each.parts and each.blame in REJECTS_A_NODE)
    alike = (each for each in against if (each.check in SLOW) == (check in SLOW))
    return next((each for each in alike if each.severity is not Severity.INFO), None)


def _evidence(run: Report, what: Finding) -> Evidence:
    problem = first_line(what.problem)[:MOST_CHARACTERS]
    return Evidence(f"{run.created_at}, {what.check}", problem, "an earlier report (--history)")


def parts_of_ranks(case: Case, ranks: Iterable[int]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs of `ranks`, or () if the UUIDs are unknown.

    If `ranks` is empty and the run has two ranks, return their two GPUs as one pair.
    """
    uuids = _uuids_by_rank(case)
    named = sorted({rank for rank in ranks if rank < len(uuids)})
    if named:
        return tuple(uuids[rank] for rank in named if uuids[rank])
    return (PAIR.join(sorted(uuids)),) if len(uuids) == 2 and all(uuids) else ()


def _uuids_by_rank(case: Case) -> tuple[str, ...]:
    """Return the UUID of each rank's GPU.

    The result is () if ranks have no GPUs, or if the assignment of GPUs to ranks is unknown.
    """
    chosen = case.gpus_by_node or (case.gpus,)
    uuids = [uuid_of(node, index) for node, gpus in zip(case.nodes, chosen, strict=False) for index in gpus]
    return tuple(uuids) if case.wants_gpus and len(uuids) == case.world_size else ()
