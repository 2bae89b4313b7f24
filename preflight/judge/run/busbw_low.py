"""A collective that is much slower than the links it went over make it: a link, a GPU or the host holds it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.beside_baseline import is_beside_baseline
from preflight.judge.wording import size_text
from preflight.judge.workaround import default_trial, works
from preflight.model.collective import Collective
from preflight.model.expected import Expected
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import CollectiveResult, TrialResult
from preflight.plan.expected import expected_over

# Own proposal (facts 8.4), as shares of the least that healthy machines reach at this size over this way.
LOW, FAR_TOO_LOW = 0.6, 0.3
LARGE_BYTES = 64 << 20  # below, latency decides and not the links
JUDGED = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
LATE = 1.2  # a rank that adds so much more than the others is named


@dataclass(frozen=True, slots=True)
class Measured:
    """One collective at its largest size beside what its way should give."""

    result: CollectiveResult
    busbw_gb_s: float
    expected: Expected

    @property
    def share(self) -> float:
        """The measured speed over the least that would be healthy."""
        return self.busbw_gb_s / self.expected.low_gb_s


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding for the collective that falls shortest; nothing where no large size was measured.

    What is expected of the links only notes it where the site's floors or known-good nodes decide.
    """
    trial, measured = _beside_links(case)
    worst = min(measured, key=_by_share, default=None)
    if trial is None or worst is None or worst.share >= LOW:
        return
    severity, other = Severity.FAIL if worst.share < FAR_TOO_LOW else Severity.WARN, outranked_by(case)
    collective = worst.result.collective.value
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.INFO if other else severity,
        subject=f"trial {trial.candidate}, {collective} {size_text(worst.result.size_bytes)}",
        problem=_problem(worst) + (f" [{other} decides; else {severity.value}]" if other else ""),
        fix="`nvidia-smi -q -d CLOCK,PERFORMANCE,PCIE`, `nvidia-smi nvlink -s`, `nvidia-smi topo -m`: a link that runs "
        "below its width or generation, a throttled GPU, ranks bound to the far socket",
        evidence=(
            Evidence("expected", worst.expected.formula, "preflight/data/links.toml"),
            *(_evidence(each) for each in measured),
            Evidence("went over", ", ".join(_ways(trial)) or "not known", f"trial {trial.candidate}"),
        ),
    )


def worst_beside_links(case: Case) -> Measured | None:
    """Return what falls shortest of what the links should give; None where nothing can be held against them."""
    return min(_beside_links(case)[1], key=_by_share, default=None)


def outranked_by(case: Case) -> str:
    """Return who decides about speeds in the links' place: the site knows its machines better; "" for nobody."""
    if case.policy is not None and case.policy.floors:
        return f"the policy {case.policy.source}"
    return f"the baseline {case.baseline_source}" if is_beside_baseline(case) else ""


def _beside_links(case: Case) -> tuple[TrialResult | None, list[Measured]]:
    trial = _trial_to_judge(case)
    if trial is None or case.links is None or not case.wants_gpus or len(case.nodes) != 1:
        return None, []
    return trial, [_measured(case, trial, result) for result in _largest(trial)]


def _by_share(each: Measured) -> float:
    return each.share


def _problem(worst: Measured) -> str:
    expected = worst.expected
    how = "far too low" if worst.share < FAR_TOO_LOW else "low"
    limit = f"{worst.busbw_gb_s / expected.limit_gb_s:.0%} of the {expected.limit_gb_s:.1f} GB/s that its links carry"
    healthy = f"{expected.low_gb_s:.1f} to {expected.high_gb_s:.1f} would be healthy"
    return f"{worst.busbw_gb_s:.1f} GB/s busbw is {how}: {limit}, where {healthy}{_late(worst.result)}"


def _evidence(each: Measured) -> Evidence:
    size = size_text(each.result.size_bytes)
    return Evidence(each.result.collective.value, f"{each.busbw_gb_s:.1f} GB/s, {each.share:.0%} of healthy", size)


def _trial_to_judge(case: Case) -> TrialResult | None:
    """Return the default where it works, else what works with the fewest settings."""
    default = default_trial(case.trials)
    if default is not None and works(default):
        return default
    return min((t for t in case.trials if works(t) and t.env), key=lambda t: (len(t.env), t.candidate), default=None)


def _largest(trial: TrialResult) -> Iterator[CollectiveResult]:
    for collective in JUDGED:
        large = [r for r in trial.results if r.collective is collective and r.size_bytes >= LARGE_BYTES and r.verified]
        if large:
            yield max(large, key=lambda result: result.size_bytes)


def _measured(case: Case, trial: TrialResult, result: CollectiveResult) -> Measured:
    assert case.links is not None
    gpus = case.gpus or tuple(gpu.nvml_index for gpu in known(case.nodes[0].gpus))
    expected = expected_over(case.links, case.nodes[0], gpus, result.collective, result.size_bytes, trial.transport)
    return Measured(result, known(result.busbw_gb_s), expected)


def _late(result: CollectiveResult) -> str:
    latest = max(result.ranks, key=lambda rank: rank.slowdown, default=None)
    if latest is None or latest.slowdown < LATE:
        return ""
    return f"; rank {latest.rank} is the slow one, {latest.slowdown:.1f} times the others"


def _ways(trial: TrialResult) -> tuple[str, ...]:
    ways = {way.partition(" via ")[2] for way in trial.transport if " via " in way}
    return tuple(sorted(ways | ({"NVLS"} & set(trial.transport))))


CHECK = RunCheck(
    name="busbw-low",
    promise="large collectives reach what the links that they went over give healthy machines",
    blame=Blame.HOST,
    reads=("trials", "gpus", "gpu_paths"),
    blind_to="sizes below 64 MiB, several nodes, GPUs that somebody else used, links whose rate is in no table",
    judge=judge,
)
