"""Choose which settings to test first if InfiniBand or RoCE fails between nodes.

The log of the failed test run decides only the order of the tests.
"""
# A setting is recommended only if an A/B test proves the setting. Sockets are tested third at the latest, to show
# whether the InfiniBand network is at fault.

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from preflight.model.error_texts import TEXTS, any_of
from preflight.model.transport import CarrierKind
from preflight.model.trial import Candidate, Outcome, TrialResult

PORTS = "NCCL_IB_HCA"
SOCKETS = frozenset({"NCCL_IB_DISABLE", "NCCL_NET"})
# What is said of a queue pair, a call of the verbs library or a port; never of a port that NCCL takes into use.
IB_FAILED = tuple(name for name in TEXTS if name.startswith("ib."))
NO_MEMORY = re.compile(r"ibv_\w{1,30}[^\n]{0,80}Cannot allocate memory")
GPU_MEMORY = re.compile(r"ibv_reg_\w{1,30}[^\n]{0,80}Bad address|status[= ]\(?4\b")
GID_INDEX = re.compile(r"local GID index (\d{1,3})\b")
# Of RoCE, with IPv4 addresses: `local GID ::ffff:10.0.1.1, remote GID ::ffff:10.0.2.2`, `localGid ... remoteGids...`
BOTH_GIDS = re.compile(r"local ?G[iI][dD] ?::ffff:([\d.]{7,15}),? remote ?G[iI][dD]s? ?::ffff:([\d.]{7,15})")

# NCCL gives a packet up after 8 attempts of 4.096 us * 2**20 each; an adapter may wait up to four times as long.
GIVES_UP_S = (34.0, 137.0)
# A release of NCCL that passes the error on has failed by then; 2.26.2 to 2.27.7 would wait for ever.
AFTER_GIVING_UP_S = 5.0
PACKET_LOST = re.compile(r"status[= ]\(?12\b")


def lost_packets(trial: TrialResult) -> bool:
    """Return whether NCCL's log of `trial` says that NCCL gave up sending a packet after all retries."""
    return any(PACKET_LOST.search(line.text) for end in trial.ranks for line in end.log)


def losing_trial_s(limit_s: float) -> tuple[float, float]:
    """Return the shortest and the longest time in seconds of a test run that loses packets on real adapters.

    `limit_s` is the time limit of the first collective.
    """
    least_s, most_s = (min(each + AFTER_GIVING_UP_S, limit_s) for each in GIVES_UP_S)
    return least_s, most_s


@dataclass(frozen=True, slots=True)
class Signs:
    """The evidence of an InfiniBand fault in a failed test run: error lines of NCCL, and the paths of the data."""

    errors: tuple[str, ...]  # the ranks' lines that report a failure of InfiniBand
    paths: tuple[str, ...]  # as `NET/IB/0/GDRDMA`
    inside: tuple[str, ...]  # those between ranks of one node
    outcome: Outcome

    @property
    def by_gpu_direct(self) -> bool:
        """Whether data went by GPUDirect RDMA, directly between GPU memory and the adapter."""
        return any("/GDRDMA" in path for path in self.paths)

    @property
    def by_network_inside(self) -> bool:
        """Whether ranks of one node communicated over the network adapters."""
        return any(path.startswith("NET/IB") for path in self.inside)

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Return whether one of NCCL's error lines matches `pattern`."""
        return any(pattern.search(line) for line in self.errors)

    def crosses_rails(self) -> bool:
        """Return whether a failed connection was between addresses of different subnets (/24)."""
        pairs = (match.groups() for line in self.errors for match in BOTH_GIDS.finditer(line))
        return any(ours.rpartition(".")[0] != theirs.rpartition(".")[0] for ours, theirs in pairs)

    def has_other_gid(self, candidate: Candidate) -> bool:
        """Return whether an error line names a GID index that the configuration does not set."""
        indices = {match[1] for line in self.errors for match in GID_INDEX.finditer(line)}
        return bool(indices - {value for _, value in candidate.env})


@dataclass(frozen=True, slots=True)
class IbWay:
    """A variable that may avoid an InfiniBand fault, and functions that decide whether to test the variable."""

    variable: str
    is_pointed_at: Callable[[Signs, Candidate], bool]
    may_help: Callable[[Signs], bool] = lambda _: True


WAYS = (
    *(IbWay(name, lambda signs, _: signs.says(NO_MEMORY)) for name in sorted(SOCKETS)),  # every port needs the memory
    IbWay("NCCL_NET_GDR_LEVEL",
        lambda signs, _: signs.by_gpu_direct and (signs.outcome is Outcome.WRONG_DATA or signs.says(GPU_MEMORY)),
        lambda signs: signs.by_gpu_direct),
    IbWay("NCCL_IB_GID_INDEX", lambda signs, candidate: signs.has_other_gid(candidate), lambda _: False),
    IbWay("NCCL_NET_DISABLE_INTRA", lambda signs, _: signs.by_network_inside, lambda signs: signs.by_network_inside),
    IbWay("NCCL_CROSS_NIC", lambda signs, _: signs.crosses_rails()),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IbOrder:
    """The configurations that may avoid an InfiniBand fault, in test order."""

    first: tuple[Candidate, ...]  # what the log suggests, then a set of ports: two at most
    sockets: tuple[Candidate, ...]
    others: tuple[Candidate, ...]  # the others that keep InfiniBand
    useless: tuple[Candidate, ...]  # candidates that turn off a feature which the failed trial did not use
    is_of_memory: bool  # memory could not be registered; only sockets need none


def ib_is_suspect(default: TrialResult) -> bool:
    """Return whether the failed test run with default settings suggests a fault of InfiniBand.

    The result is true if NCCL's log has an InfiniBand error, or if data went over InfiniBand.
    """
    return bool(_errors(default)) or any(path.startswith("NET/IB") for path in _signs(default, ()).paths)


def in_order(candidates: Sequence[Candidate], default: TrialResult, node_sizes: Sequence[int]) -> IbOrder:
    """Return the order in which to test `candidates` after InfiniBand failed with the default settings.

    `default` is the failed test run. `node_sizes` has the number of ranks on each node.
    """
    signs = _signs(default, node_sizes)
    sockets = tuple(each for each in candidates if {name for name, _ in each.env} <= SOCKETS and each.only_cures)
    of_ways = [(way, each) for way in WAYS for each in candidates if way.variable in dict(each.env)]
    pointed = [each for way, each in of_ways if way.is_pointed_at(signs, each)]
    ports = _port_sets(candidates, signs)
    first = list(dict.fromkeys([*pointed, *ports[:1]]))[:2]
    others = [each for each in dict.fromkeys([*pointed, *ports]) if each not in (*first, *sockets)]
    others += [each for way, each in of_ways if way.may_help(signs) and each not in (*first, *others, *sockets)]
    useless = tuple(each for way, each in of_ways if not way.may_help(signs))
    return IbOrder(tuple(first), sockets, tuple(others), useless, signs.says(NO_MEMORY))


def _port_sets(candidates: Sequence[Candidate], signs: Signs) -> list[Candidate]:
    """Return the configurations that only select RDMA ports, in test order.

    First come the configurations whose adapters no error line names. Within both groups, configurations with more ports
    come first if there are errors. Without errors, configurations with fewer ports come first.
    """
    errors = " ".join(signs.errors)

    def order(candidate: Candidate) -> tuple[bool, int]:
        hcas = [place.partition(":")[0] for place in dict(candidate.env)[PORTS].removeprefix("=").split(",")]
        is_named = any(re.search(rf"(?<!\w){re.escape(hca)}(?!\w)", errors) for hca in hcas)
        return is_named, -len(hcas) if errors else len(hcas)

    return sorted((each for each in candidates if [name for name, _ in each.env] == [PORTS]), key=order)


def _signs(default: TrialResult, node_sizes: Sequence[int]) -> Signs:
    nodes = [node for node, size in enumerate(node_sizes) for _ in range(size)]
    used = [each for each in default.transport if each.kind is CarrierKind.PATH]
    inside = [
        each.name for each in used
        if len(each.ranks) == 2 and max(each.ranks) < len(nodes) and nodes[each.ranks[0]] == nodes[each.ranks[1]]
    ]  # fmt: skip
    return Signs(_errors(default), tuple(each.name for each in used), tuple(inside), default.outcome)


def _errors(default: TrialResult) -> tuple[str, ...]:
    """Return the lines in the ranks' output and logs that report a failure of InfiniBand."""
    lines = [line for end in default.ranks for line in (*end.detail.splitlines(), *(each.text for each in end.log))]
    return tuple(line for line in lines if any_of(*IB_FAILED).search(line))
