"""The records of `preflight fleet`: the result of comparing many reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.model.baseline import Baseline, Reference
from preflight.model.gap import Gap


@dataclass(frozen=True, slots=True)
class Odd:
    """An outlier: one value in which a node differs from its group."""

    host: str
    path: str
    what: str
    value: str
    usual: str
    times_margin: float  # distance from the median in margins, above 1; 0 for a setting
    share: float = 0.0  # of the median; 0 for a setting and where the median is 0


@dataclass(frozen=True, slots=True)
class Metric:
    """The distribution of a metric over a group of nodes. A node outside the bounds is an outlier."""

    name: str
    nodes: int
    median: float
    lowest: float
    highest: float
    low_bound: float
    high_bound: float
    histogram: tuple[int, ...]  # nodes per equal step from lowest to highest


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting that differs between nodes of a group.

    `values` has the hosts of each value, with the most frequent value first.
    """

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes with equal hardware, and the outliers among them."""

    kind: tuple[tuple[str, str], ...]
    hosts: tuple[str, ...]
    odd: tuple[Odd, ...]
    metrics: tuple[Metric, ...]
    drift: tuple[Drift, ...]
    problem: str = field(metadata={"json": "told"})  # why no metric could be judged; "" otherwise


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's state according to its own report, with the reasons."""

    host: str
    path: str
    verdict: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that is left out, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckEnds:
    """The number of nodes for each outcome of one check."""

    check: str
    ends: tuple[tuple[str, int], ...]  # all five of CheckOutcome, in their order


@dataclass(frozen=True, slots=True)
class Fleet:
    """The overview of all nodes. `passing` nodes are ready or accepted, and are no outliers."""

    reports: int
    nodes: int
    passing: tuple[str, ...]
    failing: tuple[NodeState, ...]  # not ready, or rejected
    unknown: tuple[NodeState, ...]
    groups: tuple[Group, ...]
    unread: tuple[Unread, ...]
    replaced: tuple[Unread, ...]
    is_simulated: bool
    would_drain: tuple[NodeState, ...] = ()  # not ready, or rejected, in a run with --shadow
    simulated: tuple[str, ...] = ()  # hosts with a report of a simulated run: their state is unknown
    interrupted: tuple[str, ...] = ()  # hosts with a run that a signal ended
    checks: tuple[CheckEnds, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 1 if nodes fail or are outliers, 3 if nodes are unknown or no report could be read, else 0."""
        if self.failing or self.would_drain or any(group.odd for group in self.groups):
            return 1
        return 3 if self.unknown or not self.nodes else 0


@dataclass(frozen=True, slots=True)
class LearntBound:
    """A reference of a baseline and the minimum that follows from this reference.

    The record also says how many good nodes the baseline needs to detect a loss of 5%.
    """

    reference: Reference
    floor: float  # as a share: below it a node is rejected, after all repetitions
    finds_5_percent_from: int | Gap  # good nodes from which it detects 95 of 100 nodes that lost 5%


@dataclass(frozen=True, slots=True)
class Learnt:
    """A computed baseline, its minimums, and the reports that were used or left out."""

    baseline: Baseline
    bounds: tuple[LearntBound, ...]
    reports: int
    left_out: tuple[Unread, ...]  # reports that can't be used, and why
    own_rejected: tuple[str, ...] = ()  # those of its nodes that a baseline of its other nodes rejects
