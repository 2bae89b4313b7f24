"""By what a run's speeds were judged: the site's floors, known-good nodes, or what the links should give."""

from __future__ import annotations

from preflight.errors import UnreadableFact
from preflight.judge.check import Case
from preflight.judge.run.beside_baseline import beside_baseline
from preflight.judge.run.busbw_low import LARGE_BYTES, outranked_by, worst_beside_links
from preflight.model.report import JudgedBy, SpeedJudge
from preflight.model.units import size_text


def judged_by(case: Case) -> tuple[JudgedBy, ...]:
    """Return who decided about speeds, in words a report shows; the links only where nobody outranks them."""
    if not case.trials:
        return ()
    told: list[JudgedBy] = []
    if case.policy is not None and case.policy.floors:
        floors = len(case.policy.floors)
        told.append(JudgedBy(SpeedJudge.POLICY, f"{case.policy.source}: {floors} floor{'' if floors == 1 else 's'}"))
    if case.baseline is not None:
        told += _by_baseline(case)
    return tuple(told) if outranked_by(case) else (*told, _by_links(case))


def _by_baseline(case: Case) -> list[JudgedBy]:
    assert case.baseline is not None
    try:
        times = max(len(each.measured) for each in beside_baseline(case))
    except UnreadableFact as error:
        return [JudgedBy(SpeedJudge.NOBODY, f"not by the baseline: {error}")]
    good, often = len(case.baseline.hosts), f"measured {times} time{'' if times == 1 else 's'}"
    return [JudgedBy(SpeedJudge.BASELINE, f"{case.baseline_source}: {good} good nodes; this one was {often}")]


def _by_links(case: Case) -> JudgedBy:
    try:
        worst = worst_beside_links(case)
    except UnreadableFact as error:
        return JudgedBy(SpeedJudge.NOBODY, f"no expectation: {error}")
    if worst is None:
        enough = size_text(LARGE_BYTES)
        return JudgedBy(SpeedJudge.NOBODY, f"only GPUs of one node at {enough} and more are held against their links")
    return JudgedBy(SpeedJudge.LINKS, worst.expected.formula)
