"""The search for a faulty node: the groups of nodes that were tested in rounds, and the conclusions."""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.model.gap import Gap
from preflight.model.trial import Outcome
from preflight.model.word import Word

ALL_RANKS = -1


class GroupOutcome(Word):
    """The result of a test run on a group of nodes. The worst result of a member counts."""

    OK = "ok"
    SLOW = "slow"  # clearly slower than the other groups of as many nodes
    DEAD = "dead"  # it hung, crashed, could not start, or got wrong data
    UNTRIED = "untried"  # the deadline came


@dataclass(frozen=True, slots=True)
class GroupTrial:
    """A test run on a group of nodes: how the test run ended, and its speed."""

    nodes: tuple[int, ...]  # node ranks
    observed: GroupOutcome = field(metadata={"json": "seen"})  # the key of every release
    outcome: Outcome
    problem: str  # empty when ok; its rank numbers are those of the whole run
    busbw_gb_s: float | Gap  # all_reduce at the largest decision size
    local_rank: int = ALL_RANKS  # the only local rank of each node that took part, or ALL_RANKS


@dataclass(frozen=True, slots=True)
class IsolationRound:
    """A round of test runs on several groups at the same time, and the purpose of the round."""

    why: str
    groups: tuple[GroupTrial, ...]
    duration_s: float


@dataclass(frozen=True, slots=True)
class BadPath:
    """Two nodes that fail together, although each node works with other nodes."""

    a: int
    b: int


class RouteKind(Word):
    """The kind of a route between nodes: a network interface or an RDMA port."""

    NETIF = "netif"
    PORT = "port"  # of an RDMA adapter


@dataclass(frozen=True, slots=True)
class Route:
    """A route between several nodes: one network interface or one RDMA port on each node."""

    kind: RouteKind
    ends: tuple[tuple[int, str], ...]  # by node rank: the interface's name, or HCA:PORT
    broken: tuple[BadPath, ...] = ()  # nodes that did not reach each other over it in the survey; the first of many


@dataclass(frozen=True, slots=True)
class RouteTrial:
    """A test run of a faulty node with a good node over a single route."""

    kind: RouteKind
    own: str  # the end of the node at fault
    other: str  # the good node's
    trial: GroupTrial
    beside: GroupTrial | Gap  # the same route between two good nodes, tried at the same time

    @property
    def shown(self) -> GroupOutcome:
        """The outcome for the faulty node, or UNTRIED if the same route also failed between good nodes."""
        fails_beside = isinstance(self.beside, GroupTrial) and self.beside.observed is GroupOutcome.DEAD
        is_void = fails_beside and self.trial.observed is not GroupOutcome.OK
        return GroupOutcome.UNTRIED if is_void else self.trial.observed


@dataclass(frozen=True, slots=True)
class Isolation:
    """The search for faulty nodes: the rounds and the conclusions. The conclusions name nodes by their rank."""

    why: str  # why the rounds were run; empty if there were none
    candidate: str  # the configuration with whose settings the groups ran
    is_failing: bool  # the common trials fail; False: the question is which nodes slow them down
    rounds: tuple[IsolationRound, ...]
    rank_by_rank: tuple[GroupTrial, ...]  # each rank of a node at fault with the same local rank of a good node
    dead: tuple[int, ...]
    slow: tuple[int, ...]
    paths: tuple[BadPath, ...]
    unresolved: tuple[int, ...]  # remain undecided
    # Why the rounds ended, if the conclusions do not show it.
    ended_because: str = field(metadata={"json": "told"})
    # Trials of each interface or RDMA port of a node at fault with one of a good node.
    by_route: tuple[RouteTrial, ...] = field(default=(), metadata={"json": "by_way"})


NO_ISOLATION = Isolation("", "", False, (), (), (), (), (), (), "")
