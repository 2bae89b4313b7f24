"""Find the InfiniBand or RoCE paths on which a test run failed, from NCCL's log lines of both ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from preflight.judge.check import Case
from preflight.model.facts import NodeFacts
from preflight.model.finding import Evidence
from preflight.model.gap import known_or
from preflight.model.hca import LINK_ERRORS, PORT_ERRORS
from preflight.model.trial import FAILED, Outcome, TrialResult
from preflight.model.units import counted

# `Got completion from peer 10.0.0.2<48478> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.0.1.1
# remoteGids::ffff:10.0.1.2 hca mlx5_0`; the GIDs are of RoCE
COMPLETION = re.compile(
    r"Got completion from peer (?P<address>[^\s<]{1,64})<\d{1,5}> with status=(?P<code>\d{1,2}) [^\n]{0,100}?"
    r"(?:remoteGids? ?(?P<gid>[0-9a-f:.]{2,45}) )?hca (?P<hca>\w{1,64})"
)
# `Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local
# GID index 3, local GID ::ffff:10.0.1.1, remote GID ::ffff:10.0.1.2`
REFUSED = re.compile(
    r"ibv_modify_qp failed with (?P<code>\d{1,3}) [^\n]{1,60}, on dev (?P<hca>\w{1,64}):(?P<port>\d{1,3}), "
    r"[^\n]{0,200}?local GID index (?P<index>\d{1,3}), local GID (?P<own>[0-9a-f:.]{2,45}), "
    r"remote GID (?P<gid>[0-9a-f:.]{2,45})"
)
STATUS = {12: "its data were not acknowledged", 13: "the peer was not ready", 4: "the memory is not registered"}
ERRNO = {
    110: "the peer's address did not answer",
    61: "GID index {index} has no address",
    22: "PKey or GID is not valid",
}
NO_PEER = frozenset({61, 22})  # the card refused what this end had set
MOST = 8
DIED = frozenset({"signal", "unkillable"})


@dataclass(frozen=True, slots=True)
class IbPath:
    """A failed network path, as one of its ends reports the path.

    The record has this end, the peer, and the error in NCCL's log.
    """

    host: str
    hca: str
    peer: str  # host and adapter as far as they are known; "" if no peer took part in the failure
    why: str
    line: str
    source: str

    @property
    def end(self) -> str:
        """Return the host and adapter that report the failed path, such as `node0 mlx5_0`."""
        return f"{self.host} {self.hca}"

    @property
    def peer_host(self) -> str:
        """Return the host of the peer, or the address of the peer if the host is unknown."""
        return self.peer.partition(" ")[0]

    def evidence(self) -> Evidence:
        """Return the failed path and its error in the log of the reporting host, as evidence."""
        towards = f"{self.end} to {self.peer}" if self.peer else self.end
        return Evidence("network path", f"{towards}: {self.why}", self.source)


def failed_paths(case: Case, trial: TrialResult) -> tuple[IbPath, ...]:
    """Return each failed path in NCCL's logs, once for each host that reports the path.

    Return () if a rank died.
    """
    # The dead rank's peers log failed paths too.
    if trial.outcome not in FAILED - {Outcome.WRONG_DATA} or any(end.ended in DIED for end in trial.ranks):
        return ()
    found: dict[tuple[str, str, str], IbPath] = {}
    for path in _said(case, trial):
        found.setdefault((path.host, path.hca, path.peer), path)
    return tuple(found.values())[:MOST]


@dataclass(frozen=True, slots=True)
class FaultyEnd:
    """The host and adapter that likely caused all failed paths, such as `node2 mlx5_0`, and the reason."""

    end: str
    why: str


def faulty_end(case: Case, trial: TrialResult, paths: Sequence[IbPath]) -> FaultyEnd | None:
    """Return the host and adapter that are likely at fault, or None if either end may be at fault."""
    # An adapter is likely at fault if its paths to two other nodes failed, or if only its port counted errors of its
    # own link. Errors of the path do not count, because a faulty peer causes errors of the path too.
    if end := common_end(paths):
        return FaultyEnd(end, "every path that failed ends there")
    ends = {path.end for path in paths} | {path.peer for path in paths}  # of some peers only the host is known
    counted = dict(_of_links(case, trial))
    if len(counted) != 1:
        return None
    ((end, of_link),) = counted.items()
    is_on_path = end in ends or end.partition(" ")[0] in ends
    return FaultyEnd(end, f"its own link counted errors during the trial ({of_link})") if is_on_path else None


def counted_errors(case: Case, trial: TrialResult) -> Iterator[Evidence]:
    """Yield, as evidence, the errors that each RDMA port counted during the test run `trial`."""
    hosts = _hosts(case)
    for errors in trial.port_errors[:MOST]:
        known = [each for each in errors.counters if each.name in PORT_ERRORS]
        if known:
            counted = (f"{each.name} +{each.value} ({PORT_ERRORS[each.name].words})" for each in known)
            what = f"RDMA port {_host_of(hosts, errors.rank)} {errors.port}"
            yield Evidence(what, ", ".join(counted), f"port counters during trial {trial.candidate}")


def _of_links(case: Case, trial: TrialResult) -> Iterator[tuple[str, str]]:
    """Yield (host and adapter, counters) for each adapter whose own link counted errors during the trial.

    The counters are given as one text.
    """
    hosts = _hosts(case)
    for errors in trial.port_errors:
        of_link = [f"{each.name} +{each.value}" for each in errors.counters if each.name in LINK_ERRORS]
        if of_link:
            yield f"{_host_of(hosts, errors.rank)} {errors.port.partition(':')[0]}", ", ".join(of_link)


def _hosts(case: Case) -> Sequence[str]:
    """Return the host of each rank, by rank number."""
    gpus_by_node = case.gpus_by_node or (case.gpus,)
    return [node.host for node, gpus in zip(case.nodes, gpus_by_node, strict=False) for _ in gpus]


def _host_of(hosts: Sequence[str], rank: int) -> str:
    return hosts[rank] if rank < len(hosts) else f"rank {rank}"


def common_end(paths: Sequence[IbPath]) -> str:
    """Return the host and adapter that all `paths` share, such as `node2 mlx5_0`, or "" if no adapter is shared.

    Also return "" if the paths lead to fewer than two other nodes, or if a peer is unknown.
    """
    pairs = {frozenset({path.host, path.peer_host}) for path in paths}
    hosts = frozenset.intersection(*pairs) if pairs else frozenset[str]()
    if len(hosts) != 1 or len(pairs) < 2 or any(not path.peer for path in paths):
        return ""
    (host,) = hosts
    return _end(host, paths)


def paths_text(paths: Sequence[IbPath], faulty: FaultyEnd | None) -> str:
    """Return text about the failed `paths`, such as `no data passed between node0 mlx5_0 and node1 mlx5_0`."""
    # If `faulty` is given, the text names the given host and adapter as likely at fault.
    if faulty:
        return f"{faulty.end} is likely at fault, because {faulty.why}"
    alone = [path for path in paths if not path.peer]
    if alone:
        return f"{alone[0].end} was refused: {alone[0].why}"
    pairs = list(dict.fromkeys(tuple(sorted((path.host, path.peer_host))) for path in paths))
    if pairs[0][0] == pairs[0][1]:
        return f"no data passed between ranks of {_end(pairs[0][0], paths)}"
    of_first = [path for path in paths if {path.host, path.peer_host} == set(pairs[0])]
    more = f" (and {counted(len(pairs) - 1, 'other path')})" if len(pairs) > 1 else ""
    return f"no data passed between {' and '.join(_end(host, of_first) for host in pairs[0])}{more}"


def _end(host: str, paths: Sequence[IbPath]) -> str:
    """Return a host with its adapters on these paths, such as `node2 mlx5_0`.

    The adapters come from the log lines of the host and of its peers.
    """
    adapters = {path.hca for path in paths if path.host == host}
    adapters |= {path.peer.partition(" ")[2] for path in paths if path.peer_host == host} - {""}
    return " ".join((host, "/".join(sorted(adapters)))).strip()


def _said(case: Case, trial: TrialResult) -> Iterator[IbPath]:
    hosts = _hosts(case)
    for end in trial.ranks:
        host = _host_of(hosts, end.rank)
        for line in end.log:
            source = f"trial {trial.candidate}, {end.log_file}:{line.line}"
            if match := COMPLETION.search(line.text):
                code, peer = int(match["code"]), _peer(case.nodes, match["gid"], match["address"])
                why = STATUS.get(code, "the transfer failed")
                yield IbPath(host, match["hca"], peer, f"{why} (status {code})", line.text, source)
            elif match := REFUSED.search(line.text):
                code = int(match["code"])
                peer = "" if code in NO_PEER else _peer(case.nodes, match["gid"], "")
                why = ERRNO.get(code, "the connection was refused").format(index=match["index"])
                yield IbPath(host, match["hca"], peer, f"{why} (error {code})", line.text, source)


def _peer(nodes: Iterable[NodeFacts], gid: str | None, address: str) -> str:
    """Return the host and adapter that have the GID `gid`.

    If no adapter has the GID, return the host that has the IP address `address`. If no host has the address, return the
    GID or the address itself.
    """
    for node in nodes:
        for port in known_or(node.hca_ports, ()):
            if gid and any(_number(each.gid) == _number(gid) for each in known_or(port.gids, ())):
                return f"{node.host} {port.hca}"
    for node in nodes:
        for netif in known_or(node.netifs, ()):
            if address and any(each.partition("/")[0] == address for each in known_or(netif.addresses, ())):
                return node.host
    return gid or address


def _number(gid: str) -> int | str:
    try:
        return int(IPv6Address(gid))
    except ValueError:
        return gid
