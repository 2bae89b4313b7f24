"""The references for a run's speeds: the site's minimums, known-good nodes, or the rates of the links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case
from preflight.judge.workarounds import default_trial, must_have_trials, works
from preflight.model.baseline import Judged, difference, hardware_class_of, judge_node, repetitions_of
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.collective import Collective
from preflight.model.facts import known, known_or
from preflight.model.links import Expected
from preflight.model.report import JudgedBy, SpeedJudge
from preflight.model.trial import CollectiveResult, TrialResult
from preflight.model.units import size_text
from preflight.search.gpus.link_speeds import expected_busbw

LARGE_BYTES = Bound(
    64 << 20, "bytes or more in a collective; only such sizes are judged",
    "for smaller messages, latency and not the links limits the speed",
    JUDGMENT,
    "too low: latency is mistaken for a slow link; too high: fewer sizes are judged",
)  # fmt: skip
HELD_AGAINST_LINKS = (Collective.ALL_REDUCE, Collective.ALL_GATHER)


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured speed of a collective at its largest size, and the speed that healthy machines reach."""

    result: CollectiveResult
    busbw_gb_s: float
    expected: Expected

    @property
    def share(self) -> float:
        """The measured speed divided by the speed of healthy machines over the same links."""
        return self.busbw_gb_s / self.expected.low_gb_s


def judged_by(case: Case) -> tuple[JudgedBy, ...]:
    """Return what a run's speeds were compared with: the policy, the baseline or the rates of the links.

    Return () if there were no test runs.
    """
    # The links count only if there is no policy and no baseline.
    if not case.trials:
        return ()
    judges: list[JudgedBy] = []
    if case.policy is not None and case.policy.floors:
        floors = len(case.policy.floors)
        judges.append(JudgedBy(SpeedJudge.POLICY, f"{case.policy.source}: {floors} floor{'' if floors == 1 else 's'}"))
    if case.baseline is not None:
        judges.append(_by_baseline(case, len(case.baseline.hosts)))
    return tuple(judges) if outranked_by(case) else (*judges, _by_links(case))


def _by_baseline(case: Case, good: int) -> JudgedBy:
    try:
        times = max(len(each.measured) for each in beside_baseline(case))
    except UnreadableFact as error:
        return JudgedBy(SpeedJudge.NOBODY, f"not by the baseline: {error}")
    often = f"measured {times} time{'' if times == 1 else 's'}"
    return JudgedBy(SpeedJudge.BASELINE, f"{case.baseline_source}: {good} good nodes; this one was {often}")


def _by_links(case: Case) -> JudgedBy:
    try:
        worst = min(beside_links(case)[1], key=lambda each: each.share)
    except (NotApplicable, NotRun, UnreadableFact) as error:
        return JudgedBy(SpeedJudge.NOBODY, f"no expectation: {error}")
    return JudgedBy(SpeedJudge.LINKS, worst.expected.formula)


def outranked_by(case: Case) -> str:
    """Return the policy or baseline that judges the speeds, or "" if the rates of the links judge the speeds."""
    if case.policy is not None and case.policy.floors:
        return f"the policy {case.policy.source}"
    return f"the baseline {case.baseline_source}" if is_beside_baseline(case) else ""


def beside_baseline(case: Case) -> tuple[Judged, ...]:
    """Compare this node's speeds with the baseline. Return () if there is no baseline.

    Raise UnreadableFact if the speeds can't be compared.
    """
    if case.baseline is None:
        return ()
    if len(case.nodes) != 1:
        raise UnreadableFact("a baseline is for one node, but several nodes ran together")
    differs = difference(hardware_of_case(case), case.baseline.hardware)
    if differs:
        raise UnreadableFact(f"{case.baseline_source} is for other hardware; this node has {differs}")
    judged = judge_node(case.baseline, repetitions_of(case.trials))
    if not judged:
        raise UnreadableFact(f"the trial with default settings measured nothing that {case.baseline_source} contains")
    return judged


def is_beside_baseline(case: Case) -> bool:
    """Return whether this run's speeds can be compared with a baseline."""
    try:
        return bool(beside_baseline(case))
    except UnreadableFact:
        return False


def hardware_of_case(case: Case) -> tuple[tuple[str, str], ...]:
    """Return the properties that a node and a baseline must have in common.

    Raise UnreadableFact if a property is unknown.
    """
    node = case.nodes[0]
    gpus = [gpu for gpu in known_or(node.gpus, ()) if gpu.nvml_index in case.gpus]
    return hardware_class_of(case.backend, case.world_size, known(node.system).architecture, gpus)


def what(judged: Judged) -> str:
    """Return the name of a reference in the baseline, such as `all_reduce, large sizes` or `all_reduce 1 GiB`."""
    reference = judged.reference
    if reference.size_bytes:
        return f"{reference.collective.value} {size_text(reference.size_bytes)}"
    return f"{reference.collective.value}, {reference.group} sizes"


def beside_links(case: Case) -> tuple[TrialResult, list[Measured]]:
    """Return (test run to judge, its collectives with their measured and expected speeds).

    Raise NotApplicable if no collective can be compared, or NotRun if no test run works.
    """
    if not case.wants_gpus or case.links is None:
        raise NotApplicable("the expected speed of a CPU path is unknown")
    if len(case.nodes) != 1:
        raise NotApplicable("several nodes ran together")
    trial = _trial_to_judge(case)
    largest = list(_largest(trial))
    if not largest:
        raise NotApplicable(f"no message of {size_text(LARGE_BYTES.whole)} or more was measured")
    return trial, [_measured(case, trial, result) for result in largest]


def _trial_to_judge(case: Case) -> TrialResult:
    """Return the trial with default settings if it works, else the working trial with the fewest settings."""
    must_have_trials(case)
    default = default_trial(case.trials)
    if default is not None and works(default):
        return default
    working = [trial for trial in case.trials if works(trial) and trial.env]
    if not working:
        raise NotRun("no trial worked, so no speed was measured")
    return min(working, key=lambda trial: (len(trial.env), trial.candidate))


def _largest(trial: TrialResult) -> Iterator[CollectiveResult]:
    for collective in HELD_AGAINST_LINKS:
        large = [
            r for r in trial.results if r.collective is collective and r.size_bytes >= LARGE_BYTES.whole and r.verified
        ]
        if large:
            yield max(large, key=lambda result: result.size_bytes)


def _measured(case: Case, trial: TrialResult, result: CollectiveResult) -> Measured:
    assert case.links is not None
    gpus = case.gpus or tuple(gpu.nvml_index for gpu in known(case.nodes[0].gpus))
    expected = expected_busbw(case.links, case.nodes[0], gpus, result.collective, result.size_bytes, trial.transport)
    return Measured(result, known(result.busbw_gb_s), expected)
