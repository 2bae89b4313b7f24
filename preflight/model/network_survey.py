"""The survey of the network paths between nodes, before the test runs on all nodes.

The survey shows which nodes reach each other, and through which interface.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.facts import NetifKind
from preflight.model.gap import Gap
from preflight.model.storage import SharedStorage
from preflight.model.trial import NOT_MEASURED
from preflight.model.word import Word


class PathEnd(Word):
    """The result of an attempt to reach another node's address from an interface."""

    OK = "ok"
    SMALL_ONLY = "small_only"  # a connection and small messages get through, 256 KiB do not
    ITSELF = "itself"  # the other node's address is one of this node's own
    STRANGER = "stranger"  # another program answers there
    REFUSED = "refused"
    NO_ROUTE = "no_route"
    DROPPED = "dropped"  # no answer at all
    FAILED = "failed"
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True)
class Offer:
    """An address at which other nodes may try to reach a node."""

    netif: str
    kind: NetifKind
    address: str
    mtu: int | Gap
    speed_mbit_s: int | Gap
    prefix_bits: int | Gap = NOT_MEASURED
    port: int = 0  # on which the node listens; 0 if it does not
    problem: str = ""  # why it does not listen


@dataclass(frozen=True, slots=True)
class NodeOffers:
    """The addresses at which one node may be reached, or the reason why there is no address."""

    node_rank: int
    host: str
    offers: tuple[Offer, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PathTask:
    """An order to a node to try one connection to another node."""

    netif: str
    address: str  # from which it connects
    to_node: int
    to_netif: str
    to_address: str
    to_port: int


@dataclass(frozen=True, slots=True)
class PathResult:
    """The result of one connection attempt."""

    from_node: int
    netif: str
    to_node: int
    to_netif: str
    end: PathEnd
    detail: str = ""
    rtt_us: float | Gap = NOT_MEASURED  # of a small message there and back, median
    gb_s: float | Gap = NOT_MEASURED  # one way, over one connection, briefly: to rank paths, no bandwidth test


@dataclass(frozen=True, slots=True)
class NetifSet:
    """One network interface per node, over which the nodes try to reach each other.

    `problem` is "" if every node reaches every other node.
    """

    name: str
    netifs: tuple[tuple[int, str], ...]  # by node rank
    problem: str  # why it does not reach every node; "" if it does
    speed_mbit_s: int | Gap  # of the slowest link, as its driver says
    is_physical: bool
    rtt_us: float | Gap = NOT_MEASURED  # the median of all pairs
    gb_s: float | Gap = NOT_MEASURED  # the slowest pair's


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The difference between a node's clock and node 0's clock."""

    node_rank: int
    host: str
    offset_s: float  # positive: it is ahead
    within_s: float  # half of that round trip: the largest error of the offset


@dataclass(frozen=True, slots=True)
class NetworkSurvey:
    """The result of the network survey: paths, clocks and shared storage of the nodes."""

    nodes: tuple[NodeOffers, ...]
    results: tuple[PathResult, ...]  # with many nodes only failures, and no more than a report can hold
    untold: int  # results that are left out here
    sets: tuple[NetifSet, ...]
    chosen: str  # the name of the fastest set that reaches every node; "" if none does
    clocks: tuple[ClockOffset, ...]
    storage: SharedStorage | Gap
    took_s: float

    def host_of(self, node_rank: int) -> str:
        """Return the host name of node `node_rank`, or a text such as `node 3` if the survey lacks this node."""
        return next((node.host for node in self.nodes if node.node_rank == node_rank), f"node {node_rank}")

    def offer(self, node_rank: int, netif: str) -> Offer | None:
        """Return the address of node `node_rank` at the interface `netif`, or None if there is no such address."""
        offers = (each for node in self.nodes if node.node_rank == node_rank for each in node.offers)
        return next((each for each in offers if each.netif == netif), None)

    @property
    def chosen_set(self) -> NetifSet | None:
        return next((each for each in self.sets if each.name == self.chosen), None) if self.chosen else None
