"""Find the outliers among equal nodes.

A node is an outlier if a metric is far from the median or if a setting differs.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from preflight.fleet.digest import NodeDigest
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.fleet import Drift, Group, Metric, Odd
from preflight.model.stats import MAD_TO_SIGMA, t_quantile
from preflight.model.units import counted

LEAST_NODES = Bound(
    8, "nodes in a group; smaller groups have no outliers",
    "the spread of fewer nodes is often too small by chance, so some node would always be an outlier",
    "scripts/studies/fleets.py",
    "too low: good nodes are named; too high: in small fleets, no node is named",
)  # fmt: skip
SKEWED = (" slowest rank", " slow calls")  # a largest value, which has a tail: bounded above only, as Gumbel's
# The slowest GPU or pair of a node: a least value, which has a tail too.
LEAST_OF_NODE = re.compile(r".* (?:TFLOP/s|NUMA GB/s)|peer copy .*")
GUMBEL_IQR, GUMBEL_MEDIAN = 1.573, 0.3665  # of its scale: distance of the quartiles, median above the mode
FALSE_ALARMS = Bound(
    0.05, "of fleets of good nodes have a wrongly named node",
    "this is the target for all nodes and metrics together, if each metric is normally distributed about its median",
    "scripts/studies/fleets.py",
    "too high: good nodes are named; too low: slow nodes are not named",
)  # fmt: skip
LEAST_DEVIATION = Bound(
    0.03, "of a speed or a time; a smaller deviation names no node",
    "no job notices a smaller deviation, however certain it is",
    JUDGMENT,
    "too low: nodes are named for deviations that no job notices",
)  # fmt: skip
LEAST_DEGREES = 5.0
SURE_NODES = Bound(
    20, "nodes; in smaller groups, only a larger deviation names a node",
    "the spread of fewer nodes is uncertain",
    "scripts/studies/fleets.py",
    "too low: good nodes of small fleets are named; too high: slow nodes are not named",
)  # fmt: skip
COUNT_SPREAD = Bound(
    0.5, "as the least standard deviation of the logarithm of an error count",
    "counts of errors have long tails",
    JUDGMENT,
    "too low: a node with a few more errors is named; too high: a node with many more errors is not named",
)  # fmt: skip
MAJORITY = Bound(
    0.9, "of the nodes must have the same value of a setting",
    "a rare value makes a node an outlier only if nearly all other nodes have the same value",
    JUDGMENT,
    "too low: a rollout that is half done makes outliers; too high: a node with a wrong setting is not named",
)  # fmt: skip
RARE = 0.02
MAD_EFFICIENCY = 0.37  # a spread from the MAD is as certain as a standard deviation of this share of the nodes
LEAST_FREEDOM = 4.0
LEAST_CHANCE = 1e-9  # smaller ones are rounding
STEPS = 24


def compare_nodes(nodes: Sequence[NodeDigest]) -> tuple[Group, ...]:
    """Return the groups of equal nodes with their outliers.

    The largest group and the most severe outlier come first.
    """
    groups: dict[tuple[tuple[str, str], ...], list[NodeDigest]] = defaultdict(list)
    for node in nodes:
        groups[node.kind].append(node)
    judgements = sum(len(node.metrics) for node in nodes)
    found = [_group(kind, members, judgements) for kind, members in groups.items()]
    return tuple(sorted(found, key=lambda group: (-len(group.hosts), group.kind)))


def _group(kind: tuple[tuple[str, str], ...], members: list[NodeDigest], judgements: int) -> Group:
    members = sorted(members, key=lambda node: node.host)
    hosts = tuple(node.host for node in members)
    if len(members) < LEAST_NODES.value:
        are_few = f"{counted(len(members), 'node')} {'is' if len(members) == 1 else 'are'} too few to find outliers"
        too_few = f"{are_few}; {LEAST_NODES.whole} are needed"
        return Group(kind, hosts, (), (), _drifts(members), too_few)
    freedom = max(LEAST_FREEDOM, MAD_EFFICIENCY * (len(members) - 1))
    limit = t_quantile(freedom, 1 - FALSE_ALARMS.value / 2 / max(1, judgements))
    names = dict.fromkeys(name for node in members for name in node.metrics)  # as in the reports: sizes in order
    metrics = [metric for name in names if (metric := _metric(name, members, limit))]
    drift = _drifts(members)
    odd = [each for metric in metrics for each in _odd_by(metric, members)]
    odd += [each for setting in drift for each in _odd_setting(setting, members)]
    odd.sort(key=lambda each: (-each.times_margin, each.host, each.what))
    return Group(kind, hosts, tuple(odd), tuple(metrics), drift, "")


def _metric(name: str, members: Sequence[NodeDigest], limit: float) -> Metric | None:
    values = [node.metrics[name] for node in members if name in node.metrics]
    if len(values) < LEAST_NODES.value:
        return None
    scaled = [_scale(name, value) for value in values]
    centre = statistics.median(scaled)
    spread = MAD_TO_SIGMA * statistics.median(abs(value - centre) for value in scaled)
    least_spread, least_deviation = _leasts(name)
    far = limit * max(spread, least_spread)
    if name.endswith(SKEWED) or LEAST_OF_NODE.fullmatch(name):
        lower, _, upper = statistics.quantiles(scaled, n=4)
        rare = 1 - statistics.NormalDist().cdf(limit)
        far = max(far, (upper - lower) / GUMBEL_IQR * (-math.log(max(rare, LEAST_CHANCE)) - GUMBEL_MEDIAN))
    margin = max(far, least_deviation * max(1.0, SURE_NODES.value / len(values)))
    low, high = (_unscale(name, each) for each in (centre - margin, centre + margin))
    median, histogram = _unscale(name, centre), _histogram(values)
    return Metric(name, len(values), median, min(values), max(values), low, high, histogram)


def _histogram(values: Sequence[float]) -> tuple[int, ...]:
    lowest, highest = min(values), max(values)
    step = (highest - lowest) / STEPS or 1.0
    counts = Counter(min(STEPS - 1, int((value - lowest) / step)) for value in values)
    return tuple(counts.get(place, 0) for place in range(STEPS))


def _odd_by(metric: Metric, members: Sequence[NodeDigest]) -> list[Odd]:
    centre = _scale(metric.name, metric.median)
    margin = _scale(metric.name, metric.high_bound) - centre
    odd = []
    for node in members:
        value = node.metrics.get(metric.name)
        if value is None:
            continue
        distance = _scale(metric.name, value) - centre
        is_one_sided = _is_count(metric.name) or metric.name.endswith(SKEWED)
        if abs(distance) > margin and not (distance < 0 and is_one_sided):
            usual = f"{metric.median:.4g} (usual: {max(metric.low_bound, 0):.4g} to {metric.high_bound:.4g})"
            share = value / metric.median if metric.median > 0 else 0.0
            odd.append(Odd(node.host, node.path, metric.name, f"{value:.4g}", usual, abs(distance) / margin, share))
    return odd


def _is_count(name: str) -> bool:
    return name.endswith(" count")


def _scale(name: str, value: float) -> float:
    """Return a value converted to the scale on which a metric is compared.

    The scale is logarithmic for speeds, times and counts, and linear for temperatures in degrees.
    """
    if _is_count(name):
        return math.log1p(value)
    return value if name.endswith(" C") else math.log(value)


def _unscale(name: str, value: float) -> float:
    if _is_count(name):
        return math.expm1(min(value, 700.0))
    return value if name.endswith(" C") else math.exp(min(value, 700.0))


def _leasts(name: str) -> tuple[float, float]:
    """Return a metric's minimum spread, and the minimum deviation at which a node can be an outlier."""
    if _is_count(name):
        return COUNT_SPREAD.value, 0.0
    return 0.0, LEAST_DEGREES if name.endswith(" C") else -math.log1p(-LEAST_DEVIATION.value)


def _drifts(members: Sequence[NodeDigest]) -> tuple[Drift, ...]:
    found = []
    for name in sorted({name for node in members for name in node.settings}):
        holders: dict[str, list[str]] = defaultdict(list)
        for node in members:
            holders[node.settings.get(name, "could not be read")].append(node.host)
        if len(holders) > 1:
            usual_first = sorted(holders.items(), key=lambda each: -len(each[1]))
            found.append(Drift(name, tuple((value, tuple(hosts)) for value, hosts in usual_first)))
    return tuple(found)


def _odd_setting(drift: Drift, members: Sequence[NodeDigest]) -> list[Odd]:
    """Return the nodes that are outliers because their setting differs from the most frequent value.

    The result is empty unless nearly all nodes have the most frequent value. A different value is an outlier only if
    few nodes have it.
    """
    usual, holders = drift.values[0]
    if len(holders) < MAJORITY.value * len(members):
        return []
    paths = {node.host: node.path for node in members}
    rare = [(value, hosts) for value, hosts in drift.values[1:] if len(hosts) <= max(1, RARE * len(members))]
    return [Odd(host, paths[host], drift.name, value, usual, 0.0) for value, hosts in rare for host in hosts]
