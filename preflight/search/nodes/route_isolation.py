"""Find the faulty network interface or RDMA port of a node.

Each pair of ranks tests one interface or port between this node and a good node.

The functions do no I/O.
"""
# Each rank of the node uses one route, so that all routes are tested at the same time. Good nodes with free ranks test
# the same routes with each other. A route that also fails between good nodes is not at fault. The speed of a route is
# compared with the same route between good nodes.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.gap import Gap, known_or
from preflight.model.isolation import BadPath, GroupTrial, IsolationRound, Route, RouteKind, RouteTrial
from preflight.model.joint import SoloResult
from preflight.model.network_survey import NetifSet, NetworkSurvey, PathEnd
from preflight.search.nodes.group_rounds import FEWEST_NODES, SLOW_RANK_SHARE, observed_of, partners
from preflight.search.nodes.isolation import Isolated
from preflight.search.settings.rdma import is_usable

EXTRA_ROUNDS = 2  # after a node is named: its ranks one by one, and its routes
FEWEST_ROUTES = 2  # if there is only one route, a fault of it looks like a fault of the node
MOST_BROKEN = 64  # pairs of nodes per route; a route that reaches no node shows it in these
NOT_BESIDE = Gap("no two good nodes had ranks left to try it")


@dataclass(frozen=True, slots=True)
class RouteRanks:
    """Two ranks on two nodes. Both have the same local rank, and both use one route between the nodes."""

    route: Route
    nodes: tuple[int, int]  # the node at fault first, if one is
    local_rank: int

    def end_of(self, node: int) -> str:
        """Return the interface or RDMA port that the route uses on node `node`."""
        return dict(self.route.ends)[node]


@dataclass(frozen=True, slots=True)
class RouteRound:
    """Pairs of ranks to test at the same time. No rank is in two pairs."""

    accused: tuple[RouteRanks, ...]  # pairs that contain a node at fault
    beside: tuple[RouteRanks, ...]  # the same routes between good nodes

    @property
    def pairs(self) -> tuple[RouteRanks, ...]:
        """Return all pairs of ranks, in the order in which `route_trials` expects the results."""
        return (*self.accused, *self.beside)


def routes_between(solo_results: Mapping[int, SoloResult], between: NetworkSurvey | None) -> tuple[Route, ...]:
    """Return the routes to test, the most informative route first.

    The result is empty with fewer than FEWEST_NODES nodes.
    """
    # The order is an RDMA port, an interface, the other RDMA ports, and the other interfaces. RDMA ports are included
    # only if every node's backend reads NCCL's variables.
    if len(solo_results) < FEWEST_NODES:
        return ()
    ports = list(_ports(solo_results)) if all(solo.dialect == "nccl" for solo in solo_results.values()) else []
    netifs = list(_netifs(between)) if between else []
    return (*ports[:1], *netifs[:1], *ports[1:], *netifs[1:])


def _ports(solo_results: Mapping[int, SoloResult]) -> Iterator[Route]:
    """Yield a route for each RDMA port name that is usable on two or more nodes.

    Ports with the same name on all nodes form a rail. NCCL makes the same assumption.
    """
    nodes_of = defaultdict[str, list[int]](list)
    for node_rank, solo in solo_results.items():
        for port in filter(is_usable, known_or(solo.facts.hca_ports, ())):
            nodes_of[f"{port.hca}:{port.port}"].append(node_rank)
    for name, nodes in nodes_of.items():
        if len(nodes) > 1:
            yield Route(RouteKind.PORT, tuple((node_rank, name) for node_rank in nodes))


def _netifs(between: NetworkSurvey) -> Iterator[Route]:
    """Yield a route for each set of interfaces, the chosen set first.

    Most failures are on the chosen set.
    """
    for each in sorted(between.sets, key=lambda each: each.name != between.chosen):
        yield Route(RouteKind.NETIF, each.netifs, _broken(each, between))


def _broken(chosen: NetifSet, between: NetworkSurvey) -> tuple[BadPath, ...]:
    members = dict(chosen.netifs)
    pairs = (
        (min(result.from_node, result.to_node), max(result.from_node, result.to_node))
        for result in between.results
        if result.end not in (PathEnd.OK, PathEnd.UNTRIED)
        and members.get(result.from_node) == result.netif
        and members.get(result.to_node) == result.to_netif
    )
    return tuple(BadPath(a, b) for a, b in list(dict.fromkeys(pairs))[:MOST_BROKEN])


def route_rounds(
    end: Isolated, rounds: Sequence[IsolationRound], ranks_of: Sequence[int], routes: Sequence[Route], most: int
) -> tuple[RouteRound, ...]:
    """Return at most `most` rounds that test each route of the faulty nodes.

    `ranks_of` has each node's number of ranks.
    """
    pairs, spare = partners(end, rounds)
    seated = [
        (position // locality, RouteRanks(route, (node, partner), position % locality))
        for node, partner in pairs
        for locality in [min(ranks_of[node], ranks_of[partner])]
        for position, route in enumerate(_routes_of(node, partner, routes, {*end.dead, *end.slow}))
    ]
    by_round = [[held for number, held in seated if number == wanted] for wanted in range(most)]
    return tuple(RouteRound(tuple(held), tuple(_beside(held, spare, ranks_of))) for held in by_round if held)


def _routes_of(node: int, partner: int, routes: Sequence[Route], accused: set[int]) -> list[Route]:
    """Return the routes between two nodes, without routes that are broken between good nodes.

    Return () if only one route is left.
    """
    found: dict[tuple[RouteKind, str, str], Route] = {}
    for route in routes:
        ends = dict(route.ends)
        if node in ends and partner in ends and all(accused & {each.a, each.b} for each in route.broken):
            found.setdefault((route.kind, ends[node], ends[partner]), route)
    return list(found.values()) if len(found) >= FEWEST_ROUTES else []


def _beside(tried: Sequence[RouteRanks], spare: Sequence[int], ranks_of: Sequence[int]) -> Iterator[RouteRanks]:
    """Yield test runs of the same routes between two good nodes, for comparison.

    The good nodes use the same local ranks as the pair under test, because equal local ranks are equally far from their
    NICs. If only one good node is free, its partner is a good node that already takes part in a test. The pair then
    uses other local ranks, which are free on the partner.
    """
    if not spare:
        return
    one, other = (spare[0], spare[1]) if len(spare) > 1 else (tried[0].nodes[1], spare[0])
    taken = {held.local_rank for held in tried if one in held.nodes}
    shift = len(taken)
    routes: set[Route] = set()
    for held in tried:
        local_rank = held.local_rank + shift
        has_ends = {one, other} <= {node for node, _ in held.route.ends}
        has_seats = local_rank < min(ranks_of[one], ranks_of[other]) and local_rank not in taken
        if has_ends and has_seats and held.route not in routes:
            taken.add(local_rank)
            routes.add(held.route)
            yield RouteRanks(held.route, (one, other), local_rank)


def interface_env(netif: str) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that make gloo, NCCL and TensorPipe use the interface `netif`."""
    return (("GLOO_SOCKET_IFNAME", netif), ("NCCL_SOCKET_IFNAME", f"={netif}"), ("TP_SOCKET_IFNAME", netif))


def route_env(kind: RouteKind, end: str, dialect: str) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that make a rank use `end`, an interface or RDMA port of its node."""
    no_nvlink = ("NCCL_MNNVL_ENABLE", "0")
    match kind:
        case RouteKind.NETIF:
            return (*interface_env(end), *((("NCCL_NET", "Socket"), no_nvlink) if dialect == "nccl" else ()))
        case RouteKind.PORT:
            return (("NCCL_IB_DISABLE", "0"), ("NCCL_IB_HCA", f"={end}"), ("NCCL_NET", "IB"), no_nvlink)


def route_trials(round_: RouteRound, observed: Sequence[GroupTrial], dead: Sequence[int]) -> tuple[RouteTrial, ...]:
    """Return the test results of the routes in `round_`, in the order of the pairs in `round_`.

    For a node in `dead`, a result says only whether the route works. The speed is not judged.
    """
    # `observed` has the test runs of the pairs.
    beside = {
        held.route: replace(each, observed=observed_of(each, 0.0))
        for held, each in zip(round_.beside, observed[len(round_.accused) :], strict=True)
    }
    trials = []
    for held, each in zip(round_.accused, observed, strict=False):
        node, partner = held.nodes
        good = beside.get(held.route, NOT_BESIDE)
        bound_gb_s = 0.0 if node in dead else _slow_below_gb_s(held, good)
        judged = replace(each, observed=observed_of(each, bound_gb_s))
        trials.append(RouteTrial(held.route.kind, held.end_of(node), held.end_of(partner), judged, good))
    return tuple(trials)


def _slow_below_gb_s(held: RouteRanks, beside: GroupTrial | Gap) -> float:
    """Return the speed in GB/s below which a route is slow: half of the speed between two good nodes.

    The result is 0 if the speed between the good nodes is not known. The result is also 0 if the good nodes used other
    GPUs, which may be nearer to an RDMA port.
    """
    if isinstance(beside, Gap) or isinstance(beside.busbw_gb_s, Gap):
        return 0.0
    is_alike = held.route.kind is RouteKind.NETIF or beside.local_rank == held.local_rank
    return SLOW_RANK_SHARE * beside.busbw_gb_s if is_alike else 0.0
