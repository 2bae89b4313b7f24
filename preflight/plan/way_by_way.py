"""Which interface or RDMA port of a node at fault it is: each is tried by itself, with a good node. Pure.

A rank of the node takes one way, so that all ways are tried at the same time. Where two good nodes have ranks left,
they try the same way at that time: what fails between them too accuses nobody, and what is slow is told beside them,
since one interface may be built for a tenth of another's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from preflight.model.gap import Gap
from preflight.model.isolation import GroupTrial, IsolationRound, Way, WayKind, WayTrial
from preflight.plan.groups import SLOW_RANK_SHARE, partners, seen_of
from preflight.plan.isolation import Isolated
from preflight.plan.together import interface_env

EXTRA_ROUNDS = 2  # after a node is named: its ranks one by one, and its ways
FEWEST_WAYS = 2  # one alone has nothing that it could be told from
NOT_BESIDE = Gap("no two good nodes had ranks left to try it")


@dataclass(frozen=True, slots=True)
class Held:
    """One rank each of two nodes, held to a way between them."""

    way: Way
    nodes: tuple[int, int]  # the node at fault first, if one is
    local_rank: int

    def end_of(self, node: int) -> str:
        """Return the interface or port that a node's rank is held to."""
        return dict(self.way.ends)[node]


@dataclass(frozen=True, slots=True)
class WayRound:
    """Disjoint pairs of ranks to try at the same time."""

    accused: tuple[Held, ...]  # with a node at fault
    beside: tuple[Held, ...]  # the same ways between good nodes

    @property
    def pairs(self) -> tuple[Held, ...]:
        """All of them, in the order in which `way_trials` takes what they showed."""
        return (*self.accused, *self.beside)


def way_rounds(
    end: Isolated, rounds: Sequence[IsolationRound], ranks_of: Sequence[int], ways: Sequence[Way], most: int
) -> tuple[WayRound, ...]:
    """Return at most so many rounds that try each way of the nodes at fault; `ranks_of` are ranks by node."""
    pairs, spare = partners(end, rounds)
    seated = [
        (position // seats, Held(way, (node, partner), position % seats))
        for node, partner in pairs
        for seats in [min(ranks_of[node], ranks_of[partner])]
        for position, way in enumerate(_ways_of(node, partner, ways, {*end.dead, *end.slow}))
    ]
    by_round = [[held for number, held in seated if number == wanted] for wanted in range(most)]
    return tuple(WayRound(tuple(held), tuple(_beside(held, spare, ranks_of))) for held in by_round if held)


def _ways_of(node: int, partner: int, ways: Sequence[Way], accused: set[int]) -> list[Way]:
    """Return the ways between two nodes that are not broken among nodes that nobody accuses."""
    found: dict[tuple[WayKind, str, str], Way] = {}
    for way in ways:
        ends = dict(way.ends)
        if node in ends and partner in ends and all(accused & {each.a, each.b} for each in way.broken):
            found.setdefault((way.kind, ends[node], ends[partner]), way)
    return list(found.values()) if len(found) >= FEWEST_WAYS else []


def _beside(tried: Sequence[Held], spare: Sequence[int], ranks_of: Sequence[int]) -> Iterator[Held]:
    """Yield each way once more between two good nodes, on the same local ranks: they are as far from their NICs.

    Where only one more good node is there, it meets a good one that is taken, on the ranks which that has left.
    """
    if not spare:
        return
    one, other = (spare[0], spare[1]) if len(spare) > 1 else (tried[0].nodes[1], spare[0])
    taken = {held.local_rank for held in tried if one in held.nodes}
    shift = len(taken)
    ways: set[Way] = set()
    for held in tried:
        local_rank = held.local_rank + shift
        has_ends = {one, other} <= {node for node, _ in held.way.ends}
        has_seats = local_rank < min(ranks_of[one], ranks_of[other]) and local_rank not in taken
        if has_ends and has_seats and held.way not in ways:
            taken.add(local_rank)
            ways.add(held.way)
            yield Held(held.way, (one, other), local_rank)


def way_env(kind: WayKind, end: str, dialect: str) -> tuple[tuple[str, str], ...]:
    """Return what holds a rank to an interface or a port of its node.

    NCCL takes an interface for its bootstrap only, and data through InfiniBand or NVLink between nodes, unless told.
    """
    no_nvlink = ("NCCL_MNNVL_ENABLE", "0")
    match kind:
        case WayKind.NETIF:
            return (*interface_env(end), *((("NCCL_NET", "Socket"), no_nvlink) if dialect == "nccl" else ()))
        case WayKind.PORT:
            return (("NCCL_IB_DISABLE", "0"), ("NCCL_IB_HCA", f"={end}"), ("NCCL_NET", "IB"), no_nvlink)


def way_trials(round_: WayRound, seen: Sequence[GroupTrial], dead: Sequence[int]) -> tuple[WayTrial, ...]:
    """Return what a round's pairs showed, in their order; of a dead node only whether a way works."""
    beside = {
        held.way: replace(each, seen=seen_of(each, 0.0))
        for held, each in zip(round_.beside, seen[len(round_.accused) :], strict=True)
    }
    trials = []
    for held, each in zip(round_.accused, seen, strict=False):
        node, partner = held.nodes
        good = beside.get(held.way, NOT_BESIDE)
        bound_gb_s = 0.0 if node in dead else _slow_below_gb_s(held, good)
        judged = replace(each, seen=seen_of(each, bound_gb_s))
        trials.append(WayTrial(held.way.kind, held.end_of(node), held.end_of(partner), judged, good))
    return tuple(trials)


def _slow_below_gb_s(held: Held, beside: GroupTrial | Gap) -> float:
    """Return the speed below which a way is slow: half of good nodes'; 0 where their GPU may be nearer to a port."""
    if isinstance(beside, Gap) or isinstance(beside.busbw_gb_s, Gap):
        return 0.0
    is_alike = held.way.kind is WayKind.NETIF or beside.local_rank == held.local_rank
    return SLOW_RANK_SHARE * beside.busbw_gb_s if is_alike else 0.0
