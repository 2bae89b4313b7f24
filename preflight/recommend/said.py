"""What is said for each setting: without it, with it, what it costs, what really wants repair, when to delete it."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.facts import Gap
from preflight.model.trial import DEFAULT, CollectiveResult, Outcome, TrialResult
from preflight.model.units import rate_text, size_text
from preflight.plan.duel import decision_results
from preflight.recommend.background import Background
from preflight.recommend.needed import Needed
from preflight.recommend.repair import repair_of

ENDINGS = {
    Outcome.OK: "gave no verified result",
    Outcome.HANG: "hung",
    Outcome.CRASH: "crashed",
    Outcome.WRONG_DATA: "gave wrong data",
    Outcome.INIT_ERROR: "failed at init",
    Outcome.NO_EFFECT: "had no effect",
    Outcome.SKIPPED: "was not tried",
}
WARNING = "NCCL WARN "
Said = tuple[str, str]


def said_of(
    needed: Needed, best: TrialResult, cpu_path: bool, background: Background, *, inherited: bool = False
) -> Iterator[Said]:
    """Yield the lines about a setting; where it has two variables, about the first, and of the other whose it is."""
    (name, value), *others = sorted(needed.setting.env, reverse=True)  # NCCL's before gloo's
    lines = [
        _without(needed.failed),
        f"With it: {figure(best, cpu_path)}, verified (trial '{best.candidate}').",
        _cost(best, cpu_path, background),
    ]
    repair = repair_of(name, value, contained=background.is_contained(), inherited=inherited)
    lines += [f"Repair: {repair}." if repair else "", "" if inherited else _until(background)]
    yield from ((name, line) for line in lines if line)
    for other, _ in others:
        yield other, f"Goes with {name}."


def _without(failed: TrialResult | None) -> str:
    if failed is None:
        return "Without it: not known; time ran out before that was tried."
    which = "the default" if failed.candidate == DEFAULT else f"trial '{failed.candidate}'"
    return f"Without it: {which} {ending(failed)}{_log_line(failed)}."


def _log_line(failed: TrialResult) -> str:
    for end in failed.ranks:
        for line in end.detail.splitlines():
            if line.startswith(WARNING) and line.removeprefix(WARNING) not in failed.problem:
                return f'; rank {end.rank}\'s log: "{line.removeprefix(WARNING)}"'
    return ""


def _cost(best: TrialResult, cpu_path: bool, background: Background) -> str:
    """Return what share of the links' limit is left; one figure stands for all that was set together."""
    result = deciding_result(best, cpu_path)
    if result is None or isinstance(result.busbw_gb_s, Gap):
        return ""
    expected = background.expected(result.collective, result.size_bytes)
    if expected is None or not expected.limit_gb_s:
        return ""
    share = result.busbw_gb_s / expected.limit_gb_s
    healthy = f"{rate_text(expected.low_gb_s)} would be healthy"
    return f"Costs: what is left is {share:.0%} of the links' {rate_text(expected.limit_gb_s)}; {healthy}."


def _until(background: Background) -> str:
    learnt = background.learnt()
    when = f"learnt {learnt}; " if learnt else ""
    return f"Delete this line once that is repaired ({when}`preflight check` shows whether it is still needed)."


def deciding_result(trial: TrialResult, cpu_path: bool) -> CollectiveResult | None:
    """Return the result that stands for a trial: all_reduce at the largest decision size."""
    results = decision_results(trial.results, cpu_path)
    if not results:
        return None
    return max((each for each in results if each.collective is results[0].collective), key=lambda r: r.size_bytes)


def figure(trial: TrialResult, cpu_path: bool) -> str:
    """Return the number that stands for a trial."""
    largest = deciding_result(trial, cpu_path)
    if largest is None:
        return "no timed collective"
    what = f"{largest.collective.value} {size_text(largest.size_bytes)}"
    if isinstance(largest.busbw_gb_s, Gap) or isinstance(largest.algbw_gb_s, Gap):
        return what
    return f"{what} {rate_text(largest.busbw_gb_s or largest.algbw_gb_s)}"  # one rank alone has no bus bandwidth


def ending(trial: TrialResult) -> str:
    """Return how a trial failed, as the rest of a sentence."""
    how = ENDINGS[trial.outcome]
    return f"{how} ({trial.problem})" if trial.problem else how
