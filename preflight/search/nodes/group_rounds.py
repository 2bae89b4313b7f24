"""Test small groups of nodes in rounds: decide whether to start, judge each group, and choose the next groups.

The functions do no I/O.
"""
# The search for the faulty nodes is in isolation.py.

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.gap import Gap
from preflight.model.isolation import BadPath, GroupOutcome, GroupTrial, Isolation, IsolationRound
from preflight.model.stats import MAD_TO_SIGMA
from preflight.model.trial import DEFAULT, Candidate, CollectiveResult, Outcome, TrialResult
from preflight.search.nodes.isolation import Isolated, NodeGroupRound, next_round
from preflight.search.settings.duel import decision_results, is_sound

FEWEST_NODES = 3  # of two nodes, neither can be cleared
SLOW_SHARE = Bound(
    0.25, "of the median speed of all nodes is lost",
    "a smaller loss is not worth a search for its cause",
    JUDGMENT,
    "too low: neighbors in the network are blamed; too high: a slow node is not named",
)  # fmt: skip
SLOW_RANK_SHARE = 0.5  # single ranks share their node's CPU and links
SLOW_MADS = Bound(
    4.0, "robust standard deviations below the median of all nodes",
    "if speeds are normally distributed, 30 in a million groups of healthy nodes are this slow by chance",
    JUDGMENT,
    "too low: chance blames a node; too high: a slow node is not named",
)  # fmt: skip
LATE_FACTOR = 1.5  # a rank's own time over the others', at every decision size
LATE_US = 200.0  # a smaller delay may be one time slice of the scheduler
FINISHED = "no pair is slower than the others"


@dataclass(frozen=True, slots=True)
class Worth:
    """Why the nodes should be tested in groups, and the configurations to test until a group works.

    `is_failing` is true if the test runs on all nodes fail, and false if these runs are only slow.
    """

    why: str
    candidates: tuple[Candidate, ...]
    is_failing: bool


def worth_dividing(
    nodes: int, candidates: Sequence[Candidate], results: Sequence[TrialResult], is_thorough: bool
) -> Worth | None:
    """Return why the nodes should be tested in groups, and with which configurations.

    The result is None if there are too few nodes, or if groups would show nothing new.
    """
    # Groups are tested if no configuration works, if one rank is late at every size, or if the run is thorough.
    tried = {result.candidate: result for result in results}
    default = tried.get(DEFAULT)
    if nodes < FEWEST_NODES or default is None:
        return None
    working = [each for each in candidates if each.name in tried and is_sound(tried[each.name])]
    if not working:
        failed = tuple(c for c in candidates if c.name in tried and tried[c.name].outcome is not Outcome.SKIPPED)
        return Worth(f"the {nodes} nodes fail together", failed, is_failing=True) if failed else None
    job = next((each for each in working if each.name == DEFAULT), working[0])
    late = late_rank(tried[job.name])
    if late is not None:
        return Worth(f"rank {late} is late at every size", (job,), is_failing=False)
    return Worth("whether a node slows all others down", (job,), is_failing=False) if is_thorough else None


def late_rank(trial: TrialResult) -> int | None:
    """Return the rank that is clearly the latest at every size used for comparisons.

    If there is no such rank, return None.
    """
    deciding = decision_results(trial.results, cpu_path=False) + decision_results(trial.results, cpu_path=True)
    late = {_late_rank(result) for result in deciding}
    return late.pop() if len(late) == 1 else None


def _late_rank(result: CollectiveResult) -> int | None:
    if len(result.ranks) < 2:
        return None
    latest = max(result.ranks, key=lambda rank: rank.slowdown)
    is_late = latest.slowdown > LATE_FACTOR and latest.own_us * (1 - 1 / latest.slowdown) > LATE_US
    return latest.rank if is_late else None


def judged(rounds: Sequence[IsolationRound]) -> tuple[IsolationRound, ...]:
    """Return a copy of `rounds` in which every group has its outcome."""
    # The limit for slow groups comes from the best speed of each node in any group of the same size.
    every = [group for done in rounds for group in done.groups]
    bounds = {size: slow_below_gb_s(_best_of_nodes(every, size)) for size in {len(each.nodes) for each in every}}
    return tuple(
        replace(done, groups=tuple(replace(g, observed=observed_of(g, bounds[len(g.nodes)])) for g in done.groups))
        for done in rounds
    )


def judge_ranks(groups: Sequence[GroupTrial], dead: Sequence[int] = ()) -> tuple[GroupTrial, ...]:
    """Return a copy of `groups` in which every group has its outcome.

    Each group is a test run of two ranks. A group that includes a node in `dead` is never judged slow.
    """
    # A pair is slow if the pair is much slower than the other pairs.
    speeds = [each.busbw_gb_s for each in groups if isinstance(each.busbw_gb_s, float)]
    bound = slow_below_gb_s(speeds, SLOW_RANK_SHARE)
    return tuple(replace(each, observed=observed_of(each, 0.0 if each.nodes[0] in dead else bound)) for each in groups)


def _best_of_nodes(groups: Sequence[GroupTrial], size: int) -> list[float]:
    """Return the best speed of each node in GB/s, from the groups of `size` nodes.

    Only the best speed counts, because a slow node is tested more often than the other nodes.
    """
    best: dict[int, float] = {}
    for group in groups:
        if len(group.nodes) == size and isinstance(group.busbw_gb_s, float):
            best |= {node: max(group.busbw_gb_s, best.get(node, 0.0)) for node in group.nodes}
    return list(best.values())


def observed_of(group: GroupTrial, bound_gb_s: float) -> GroupOutcome:
    """Return the outcome of a group: untried, dead (the group failed), slow (below `bound_gb_s`), or OK."""
    if group.outcome is Outcome.SKIPPED:
        return GroupOutcome.UNTRIED
    if group.outcome is not Outcome.OK:
        return GroupOutcome.DEAD
    is_slow = not isinstance(group.busbw_gb_s, Gap) and group.busbw_gb_s < bound_gb_s
    return GroupOutcome.SLOW if is_slow else GroupOutcome.OK


def slow_below_gb_s(speeds: Sequence[float], share: float = SLOW_SHARE.value) -> float:
    """Return the speed in GB/s below which a group is slow, or 0 if `speeds` is empty."""
    # The limit is below the median by four robust deviations or by `share` of the median, whichever is more. With two
    # groups, the faster group is the median.
    if not speeds:
        return 0.0
    middle = statistics.median_high(speeds)
    deviation = MAD_TO_SIGMA * statistics.median_low([abs(speed - middle) for speed in speeds])
    return middle - max(share * middle, SLOW_MADS.value * deviation)


def next_groups(nodes: int, rounds: Sequence[IsolationRound], *, is_failing: bool) -> NodeGroupRound | Isolated:
    """Return the next groups to test, or the result if the search is over.

    If `is_failing` is false, the test runs on all nodes work. In this case, only pairs are tested.
    """
    shown = [{each.nodes: each.observed for each in done.groups} for done in judged(rounds)]
    if any(GroupOutcome.UNTRIED in done.values() for done in shown):
        tried = [{nodes: each for nodes, each in done.items() if each is not GroupOutcome.UNTRIED} for done in shown]
        cut = next_round(nodes, [each for each in tried if each])
        end = cut if isinstance(cut, Isolated) else Isolated(unresolved=tuple(range(nodes)))
        return replace(end, ended_because="the deadline came before the rounds finished")
    following = next_round(nodes, shown)
    is_clear = isinstance(following, Isolated) and not (following.dead or following.slow or following.paths)
    if is_clear and nodes == FEWEST_NODES and len(shown) == FEWEST_NODES - 1:
        return NodeGroupRound(((1, 2),), "the pair without node 0, which was in both")
    if not is_failing and isinstance(following, NodeGroupRound) and any(len(group) > 2 for group in following.groups):
        return Isolated(ended_because=FINISHED)
    return following


def nobody_works(rounds: Sequence[IsolationRound]) -> bool:
    """Return whether no group in `rounds` has worked. If so, the settings are at fault, not a node."""
    return all(each.outcome is not Outcome.OK for done in rounds for each in done.groups)


def partners(end: Isolated, rounds: Sequence[IsolationRound]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (pairs, rest): each faulty node with a good node, and the good nodes that are left.

    If there are too few good nodes, some faulty nodes are in no pair.
    """
    good = {n for done in judged(rounds) for g in done.groups if g.observed is GroupOutcome.OK for n in g.nodes}
    bad = [*end.dead, *end.slow]
    free = sorted(good.difference(bad))
    return list(zip(bad, free, strict=False)), free[len(bad) :]


def rank_by_rank(
    end: Isolated, rounds: Sequence[IsolationRound], ranks_of: Sequence[int]
) -> tuple[tuple[int, int, int], ...]:
    """Return (faulty node, good node, local rank) for each pair of ranks to test.

    Each pair is tested without the other ranks of its nodes. Nodes with only one rank are left out.
    """
    # The test of single pairs shows which GPU, NIC or RDMA port fails. `ranks_of` has the number of ranks of each node.
    single: list[tuple[int, int, int]] = []
    for node, partner in partners(end, rounds)[0]:
        local_ranks = min(ranks_of[node], ranks_of[partner])
        single += [(node, partner, local_rank) for local_rank in range(local_ranks) if local_ranks > 1]
    return tuple(single)


def isolation_of(
    worth: Worth, candidate: str, rounds: Sequence[IsolationRound], singles: Sequence[GroupTrial], end: Isolated | None
) -> Isolation:
    """Return the record of the search for the faulty node. `end` is None if the search is not finished."""
    found = end or Isolated(ended_because="the rounds were not finished")
    return Isolation(
        worth.why, candidate, worth.is_failing, judged(rounds), judge_ranks(singles, found.dead),
        found.dead, found.slow, tuple(BadPath(a, b) for a, b in found.paths), found.unresolved, found.ended_because,
    )  # fmt: skip
