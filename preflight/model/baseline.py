"""The speeds that known-good nodes reach, and thresholds computed from these speeds."""
# Calculations use the logarithm of the bus bandwidth, because noise is proportional to the speed. `between_nodes` is
# the spread between good nodes. `between_repetitions` is the spread between measurements of one node. Averaging
# repetitions reduces only `between_repetitions`.

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.collective import Collective
from preflight.model.facts import NodeFacts
from preflight.model.gap import Gap
from preflight.model.gpu import Gpu
from preflight.model.stats import t_quantile, tolerance_factor
from preflight.model.trial import AGAIN, DEFAULT, Outcome, TrialResult

BASELINE_SCHEMA = 1
FALSE_REJECTIONS = Bound(
    0.006, "of good nodes may be rejected (target)",
    "with this target, at most 0.01 of good nodes are rejected, although 20 nodes give only an estimate of how much "
    "good nodes differ",
    "scripts/studies/baselines.py",
    "too high: good nodes are drained; too low: slow nodes are accepted",
)  # fmt: skip
# The part of FALSE_REJECTIONS that each kind of reference may cause; large sizes decide how fast a job is.
PARTS = {"large": 0.8, "small": 0.1, "single": 0.1}
SUSPICIOUS = 0.20  # of good nodes are measured again because of one group of sizes
MOST_REPEATS = 3
LARGE_BYTES = 16 << 20  # from here on bandwidth decides, below it latency has its part
CONFIDENCE = Bound(
    0.95, "of baselines reject no more good nodes than the target",
    "a baseline is computed from a random sample of nodes, so some baselines are too strict",
    "scripts/studies/baselines.py",
    "too low: some baselines reject too many good nodes; too high: baselines of few nodes miss slow nodes",
)  # fmt: skip
LEAST_LOSS = Bound(
    0.001, "of a speed lost; a smaller loss is never reported",
    "this loss is too small to matter, even if good nodes differ by less",
    JUDGMENT,
    "no job would notice the effect of a wrong value",
)  # fmt: skip
REJECTED_LOSS = Bound(
    0.065, "of a speed lost; a smaller loss rejects no node",
    "good nodes lose less, even if 20% of them are 4% slower or if speeds have heavy tails; a node that lost 10% is "
    "still found",
    "scripts/studies/baselines.py",
    "too low: good nodes are drained; too high: slow nodes only get a warning",
)  # fmt: skip
WIDER_CONFIDENCE = Bound(
    0.9, "confidence that good nodes differ by more than the row above allows; only then, the minimum speed is lower",
    "by chance, 5 nodes may show twice the true spread; if this doubled spread counted as true, one in ten nodes that "
    "had lost 10% was missed",
    "scripts/studies/baselines.py",
    "too low: baselines of few nodes miss slow nodes; too high: good nodes that differ by 4% are drained",
)  # fmt: skip
SPREAD_KNOWN_FROM = Bound(
    20, "or more good nodes: their measured spread counts as the true spread",
    "with this number of nodes, the spread is certain enough to find a node that lost 10%, and to accept good nodes "
    "that differ by 4%",
    "scripts/studies/baselines.py",
    "too low: baselines of few nodes miss slow nodes; too high: good nodes that differ by 4% are drained",
)  # fmt: skip
OTHER_SOFTWARE_SHARE = Bound(
    0.95, "of the minimum speed; with other software than the baseline's, a node between this and the minimum gets no "
    "verdict",
    "an update of driver, NCCL or torch may make all nodes some percent slower",
    JUDGMENT,
    "too high: an update drains the fleet; too low: a slow node gets no verdict until a new baseline is made",
)  # fmt: skip
ROBUST_SHARE = 0.8  # efficiency of the robust spread relative to the standard deviation; scales the degrees of freedom


@dataclass(frozen=True, slots=True)
class Reference:
    """The bus bandwidth of good nodes for one collective, at one size or for a group of sizes.

    For a group of sizes, the size is 0.
    """

    collective: Collective
    size_bytes: int
    group: str  # "large" or "small" sizes
    nodes: int
    repetitions: float  # per node, on average
    busbw_gb_s: float  # the median over nodes; of a group 1.0, since it is a mean of shares
    between_nodes: float  # standard deviation of the logarithm
    between_repetitions: float | Gap


@dataclass(frozen=True, slots=True)
class Baseline:
    """The speeds of known-good nodes with the same hardware."""

    baseline_schema: int
    hardware: tuple[tuple[str, str], ...]  # what must be equal for a comparison: backend, ranks, GPU model
    hosts: tuple[str, ...]
    references: tuple[Reference, ...]
    software: tuple[tuple[str, str], ...] = ()  # name, and all versions with which the nodes were measured


@dataclass(frozen=True, slots=True)
class Judged:
    """The comparison of a node's speed with one reference of the baseline."""

    reference: Reference
    measured: tuple[float, ...]  # shares of the reference, one per repetition
    share: float  # their geometric mean; of three or more their median, so that one disturbed repetition does not count
    floor: float  # below it the node is rejected
    is_suspicious: bool  # worth a repetition
    is_below: bool  # below the floor
    usual: float = 0.0  # few good nodes have a smaller share; never less than the floor

    @property
    def is_slow(self) -> bool:
        """Return whether the node is slower than nearly all good nodes.

        The speed may still be above the minimum.
        """
        return self.share < self.usual


Point = tuple[Collective, int]
NO_BASELINE = Baseline(BASELINE_SCHEMA, (), (), ())


def hardware_class_of(
    backend: str, world_size: int, architecture: str | Gap, gpus: Sequence[Gpu]
) -> tuple[tuple[str, str], ...]:
    """Return the (name, value) pairs that must be equal to compare the speeds of two nodes.

    `gpus` are the GPUs that the ranks used.
    """
    names = sorted("of unknown model" if isinstance(gpu.name, Gap) else gpu.name for gpu in gpus)
    models = ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    machine = "unknown" if isinstance(architecture, Gap) else architecture
    return ("GPUs", models or "none"), ("ranks", f"{world_size} on {backend}"), ("machine", machine)


def difference(one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]) -> str:
    """Return how the hardware `one` differs from the hardware `other`, or "" if both are equal.

    The text has the form `name: value of one, not value of other`.
    """
    others = dict(other)
    return "; ".join(f"{name}: {value}, not {others.get(name)}" for name, value in one if others.get(name) != value)


def software_of(node: NodeFacts) -> tuple[tuple[str, str], ...]:
    """Return the known driver, torch and NCCL versions of `node`, as (name, version) pairs."""
    software, driver = node.software, node.driver
    torch = Gap("") if isinstance(software, Gap) else software.torch
    known = {
        "driver": Gap("") if isinstance(driver, Gap) else driver.version,
        "torch": Gap("") if isinstance(torch, Gap) else torch.version,
        "NCCL": Gap("") if isinstance(torch, Gap) else torch.nccl,
    }
    return tuple((name, value) for name, value in known.items() if not isinstance(value, Gap))


def other_software(baseline: Baseline, node: NodeFacts) -> str:
    """Return text about the software versions of `node` that no node of `baseline` had.

    The text also has the versions of the baseline. Return "" if there is no different version.
    """
    theirs = dict(baseline.software)
    mine = [(name, value, theirs.get(name, value)) for name, value in software_of(node)]
    return "; ".join(f"{name} {value}, not {known}" for name, value, known in mine if value not in known.split(", "))


def speeds_of(trial: TrialResult) -> dict[Point, float]:
    """Return the bus bandwidths of a test run in GB/s, by (collective, size).

    Unknown speeds are left out. The result is empty if the test run failed or had wrong data.
    """
    if trial.outcome is not Outcome.OK or not all(result.verified for result in trial.results):
        return {}
    speeds = {(each.collective, each.size_bytes): each.busbw_gb_s for each in trial.results}
    return {point: speed for point, speed in speeds.items() if not isinstance(speed, Gap)}


def repetitions_of(trials: Sequence[TrialResult]) -> tuple[dict[Point, float], ...]:
    """Return the speeds of the test run with default settings and of its repetitions, in order.

    Test runs on hot GPUs (`burn`) are left out.
    """
    measured = [speeds_of(each) for each in trials if each.candidate == DEFAULT or each.candidate.startswith(AGAIN)]
    return tuple(speeds for speeds in measured if speeds)


def wants_repetition(baseline: Baseline, trials: Sequence[TrialResult]) -> bool:
    """Return whether to repeat the test run with default settings, because a speed looks slow.

    Return False if a repetition failed or if the limit of repetitions is reached.
    """
    repeats = [each for each in trials if each.candidate.startswith(AGAIN)]
    if len(repeats) >= MOST_REPEATS or not all(speeds_of(each) for each in repeats):
        return False
    return any(each.is_suspicious for each in judge_node(baseline, repetitions_of(trials)))


def group_of(size_bytes: int) -> str:
    """Return the group of a message size: "large" or "small"."""
    return "large" if size_bytes >= LARGE_BYTES else "small"


def judge_node(baseline: Baseline, repetitions: Sequence[dict[Point, float]]) -> tuple[Judged, ...]:
    """Compare a node's speeds with each reference of `baseline` for which the node has a measured speed.

    Each item of `repetitions` holds the bus bandwidths in GB/s by (collective, size).
    """
    sizes = [each for each in baseline.references if each.size_bytes]
    judged = []
    for reference in baseline.references:
        place = (reference.collective, reference.group)
        alike = [each for each in sizes if (each.collective, each.group) == place]
        covered = [each for each in sizes if each == reference] if reference.size_bytes else alike
        shares = [_share(covered, repetition) for repetition in repetitions]
        known = [share for share in shares if share is not None]
        if known:
            judged.append(_judge(reference, known, false_rejections(baseline.references, reference)))
    return tuple(judged)


def false_rejections(references: Sequence[Reference], reference: Reference) -> float:
    """Return the share of good nodes that the comparison with `reference` may reject by mistake.

    The kinds of references are large sizes, small sizes and single sizes. The references of one kind share one limit.
    """
    kin = [each for each in references if _kind(each) == _kind(reference)]
    return FALSE_REJECTIONS.value * PARTS[_kind(reference)] / len(kin)


def floor_share(reference: Reference, measured: int, probability: float) -> float:
    """Return the share of the reference speed below which a node is rejected.

    `measured` is the number of repetitions. `probability` is the share of good nodes that may be rejected.
    """
    # The share is at most 1 - REJECTED_LOSS. The share is lower if the speeds of good nodes differ by more. `measured`
    # and `probability` are as in `usual_share`.
    most = 1 - REJECTED_LOSS.value
    if reference.size_bytes or reference.group != "large":
        return min(most, usual_share(reference, measured, probability))
    if reference.nodes < SPREAD_KNOWN_FROM.value:
        factor = tolerance_factor(_freedom(reference), 1 - probability, 1 - WIDER_CONFIDENCE.value)
    else:
        factor = t_quantile(math.inf, 1 - probability)
    return min(most, math.exp(-factor * spread(reference, measured)))


def usual_share(reference: Reference, measured: int, probability: float) -> float:
    """Return the share of the reference speed that a good node reaches with high probability.

    The probability that a good node misses the share is at most `probability`. The node's speed is the mean of
    `measured` repetitions.
    """
    # The result is at most 1 - LEAST_LOSS.
    freedom = _freedom(reference)
    factor = max(t_quantile(freedom, 1 - probability), tolerance_factor(freedom, 1 - probability, CONFIDENCE.value))
    return min(1 - LEAST_LOSS.value, math.exp(-factor * spread(reference, measured)))


def spread(reference: Reference, measured: int) -> float:
    """Return the standard deviation of log(a good node's speed / the baseline's median).

    The node's speed is the mean of `measured` repetitions.
    """
    among = reference.between_nodes**2 * (1 + 1 / reference.nodes)
    if isinstance(reference.between_repetitions, Gap):
        return math.sqrt(among)  # the repetitions' part is in it and can't be averaged away
    within = reference.between_repetitions**2
    return math.sqrt(among + within * (1 / measured + 1 / (reference.nodes * reference.repetitions)))


def _freedom(reference: Reference) -> float:
    """Return the degrees of freedom of the spread between nodes."""
    return max(2.0, ROBUST_SHARE * (reference.nodes - 1) - 1)


def _kind(reference: Reference) -> str:
    return "single" if reference.size_bytes else reference.group


def _share(sizes: Sequence[Reference], repetition: dict[Point, float]) -> float | None:
    logs = []
    for size in sizes:
        busbw = repetition.get((size.collective, size.size_bytes))
        if busbw is None or busbw <= 0:
            return None  # a mean over other sizes than the reference's would be another figure
        logs.append(math.log(busbw / size.busbw_gb_s))
    return math.exp(statistics.fmean(logs)) if logs else None


def _judge(reference: Reference, shares: Sequence[float], probability: float) -> Judged:
    times = len(shares)
    mean = math.exp(statistics.fmean(math.log(share) for share in shares))
    if times > 2:
        mean, times = statistics.median(shares), times - 1  # a median is as sure as a mean of fewer
    floor = floor_share(reference, times, probability)
    usual = max(floor, usual_share(reference, times, probability))
    # A single size is noisy, and there are many: only a group's mean asks for a repetition so readily.
    doubt = SUSPICIOUS if not reference.size_bytes else SUSPICIOUS / 20
    suspicious = mean < max(usual, usual_share(reference, times, doubt))
    return Judged(reference, tuple(shares), mean, floor, suspicious, mean < floor, usual)
