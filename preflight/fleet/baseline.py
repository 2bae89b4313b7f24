"""Compute a baseline from reports. A baseline has the speeds of known-good nodes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from preflight.errors import UsageError
from preflight.model.baseline import (
    BASELINE_SCHEMA,
    MOST_REPEATS,
    Baseline,
    Point,
    Reference,
    false_rejections,
    group_of,
    judge_node,
    spread,
    usual_share,
)
from preflight.model.gap import Gap
from preflight.model.stats import robust_centre, robust_spread, t_quantile

LEAST_NODES = 5  # the spread of fewer nodes is worthless
LEAVE_OUT = 30  # with more nodes, leaving one out hardly changes the baseline
DETECTION = 0.95
MOST_NODES = 100_000
ONCE = Gap("each node was measured once, so variation between runs and between nodes cannot be separated")

Measured = dict[str, list[dict[Point, float]]]  # host -> its repetitions


def learn(hardware: tuple[tuple[str, str], ...], measured: Measured) -> Baseline:
    """Return a baseline from `measured`, the speeds of known-good nodes by host.

    Raise UsageError if there are too few nodes, or if the nodes have no measured size in common.
    """
    # The baseline has a reference speed for each collective and size, and for each group of sizes. `hardware` is the
    # hardware that all nodes have.
    points = _common_points(measured)
    if len(measured) < LEAST_NODES or not points:
        raise UsageError(
            f"{len(measured)} nodes with {len(points)} measured sizes in common: a baseline needs at least "
            f"{LEAST_NODES} good nodes that measured the same sizes"
        )
    sizes = tuple(_reference(point, measured) for point in points)
    kinds = sorted({(each.collective, each.group) for each in sizes}, key=lambda kind: (kind[0].value, kind[1]))
    groups = []
    for collective, group in kinds:
        covered = [each for each in sizes if each.collective is collective and each.group == group]
        logs = {host: [_mean_log(covered, each) for each in each_time] for host, each_time in measured.items()}
        groups.append(Reference(collective, 0, group, len(logs), _per_node(logs), 1.0, *_spreads(logs)))
    return Baseline(BASELINE_SCHEMA, hardware, tuple(sorted(measured)), (*groups, *sizes))


def own_rejected(baseline: Baseline, measured: Measured) -> tuple[str, ...]:
    """Return the sorted names of known-good hosts that the baseline of the other hosts would reject.

    `measured` has the speeds of the hosts.
    """
    # With more than LEAVE_OUT hosts, or with LEAST_NODES or fewer, each host is compared with `baseline`, which
    # includes the host itself.
    found = []
    for host, times in measured.items():
        judges = baseline
        if LEAST_NODES < len(measured) <= LEAVE_OUT:
            judges = learn(baseline.hardware, {name: each for name, each in measured.items() if name != host})
        if any(each.is_below for each in judge_node(judges, times)):
            found.append(host)
    return tuple(sorted(found))


def nodes_to_detect(references: Sequence[Reference], reference: Reference, loss: float) -> int | Gap:
    """Return how many good nodes a baseline needs to detect 95 of 100 nodes that are slower by the share `loss`.

    If no number of nodes is enough, return a Gap object with the reason.
    """
    # `loss` is a share such as 0.05. `reference` is one reference speed of the baseline, and `references` are all
    # reference speeds.
    wanted = -math.log1p(-loss)
    for nodes in _growing():
        grown = replace(reference, nodes=nodes)
        usual = usual_share(grown, MOST_REPEATS, false_rejections(references, reference))
        if -math.log(usual) + t_quantile(1e6, DETECTION) * spread(grown, MOST_REPEATS) <= wanted:
            return nodes
    return Gap("no number of nodes is enough, because nodes or repetitions differ too much")


def _growing() -> Iterable[int]:
    nodes = float(LEAST_NODES)
    while nodes < MOST_NODES:
        yield round(nodes)
        nodes *= 1.1


def _common_points(measured: Measured) -> list[Point]:
    positive = [{point for point in each if each[point] > 0} for times in measured.values() for each in times]
    common = set.intersection(*positive) if positive else set()
    return sorted(common, key=lambda point: (point[0].value, point[1]))


def _reference(point: Point, measured: Measured) -> Reference:
    logs = {host: [math.log(each[point]) for each in each_time] for host, each_time in measured.items()}
    centre = robust_centre([statistics.fmean(each) for each in logs.values()])
    return Reference(
        point[0], point[1], group_of(point[1]), len(logs), _per_node(logs), math.exp(centre), *_spreads(logs)
    )


def _mean_log(sizes: Sequence[Reference], repetition: dict[Point, float]) -> float:
    return statistics.fmean(math.log(repetition[each.collective, each.size_bytes] / each.busbw_gb_s) for each in sizes)


def _per_node(logs: dict[str, list[float]]) -> float:
    return statistics.fmean(len(each) for each in logs.values())


def _spreads(logs: dict[str, list[float]]) -> tuple[float, float | Gap]:
    """Return (spread between nodes, spread between repetitions).

    If nothing was repeated, the second spread is a Gap.
    """
    total = robust_spread([statistics.fmean(each) for each in logs.values()])
    repeated = [(each, statistics.fmean(each)) for each in logs.values() if len(each) > 1]
    residuals = [(value - mean) * math.sqrt(len(each) / (len(each) - 1)) for each, mean in repeated for value in each]
    if not residuals:
        return total, ONCE
    within = robust_spread(residuals)
    return math.sqrt(max(0.0, total**2 - within**2 / _per_node(logs))), within
