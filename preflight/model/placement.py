"""The position of this node in a run of several nodes, and host lists in Slurm's notation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.ASCII | re.DOTALL)
PLAIN = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def start_line(nodes: int, node_rank: int, endpoint: str) -> str:
    """Return the command that starts one node of a run without a scheduler."""
    return f"preflight check --nnodes {nodes} --node-rank {node_rank} --rdzv-endpoint {endpoint}"


def endpoint_text(host: str, port: int | str) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Origin:
    """One value of the placement, and the source from which it was read."""

    what: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Placement:
    """This node's position in a run of several nodes.

    A single node has no rendezvous endpoint. `hosts` is empty unless a scheduler names the hosts.
    """

    nodes: int
    node_rank: int
    host: str  # of the rendezvous endpoint, a name or an address; "" with one node
    ports: tuple[int, ...]  # node 0 listens on the first free one; more than one only if preflight chose them
    run_id: str  # distinguishes this run from another one at the same address
    hosts: tuple[str, ...]  # by node rank, as the scheduler names them; empty if no scheduler does
    origins: tuple[Origin, ...]

    def name_of(self, node_rank: int) -> str:
        """Return the host name and number of node `node_rank`, or only the number if the host name is unknown."""
        return f"{self.hosts[node_rank]} (node {node_rank})" if node_rank < len(self.hosts) else f"node {node_rank}"


def start_of(place: Placement, node_rank: int) -> str:
    """Return the command that a user must type to start the node `node_rank`.

    The result is "" if a scheduler or a program starts the nodes.
    """
    by_hand = all(origin.what != "run id" for origin in place.origins) and any(
        origin.what == "node rank" and origin.source.startswith("--") for origin in place.origins
    )
    if not by_hand or not place.ports:
        return ""
    return start_line(place.nodes, node_rank, endpoint_text(place.host, place.ports[0]))


def compress(hosts: Iterable[str]) -> str:
    """Return `hosts` as a sorted list in Slurm's notation: `gpu[001-003,007],login1`.

    A host name without a number, or with unusual characters, is listed in full.
    """
    runs: dict[tuple[str, str, int], list[int]] = {}
    alone: list[str] = []
    for host in sorted(set(hosts)):
        match = LAST_NUMBER.fullmatch(host) if PLAIN.fullmatch(host) else None
        if match is None or len(match[2]) > 18:
            alone.append(host)
        else:
            runs.setdefault((match[1], match[3], len(match[2])), []).append(int(match[2]))
    parts = [_run(before, after, width, sorted(numbers)) for (before, after, width), numbers in sorted(runs.items())]
    return ",".join([*parts, *alone])


def _run(before: str, after: str, width: int, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width}d}{after}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in spans]
    return f"{before}[{','.join(shown)}]{after}"
