"""Where in a run of several nodes this one stands, and who said so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """One value of the placement and where it came from."""

    what: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Placement:
    """This node's place. With one node there is no meeting point; `hosts` is empty unless a scheduler names them."""

    nodes: int
    node_rank: int
    host: str  # of the meeting point, a name or an address; "" with one node
    ports: tuple[int, ...]  # node 0 listens on the first that is free; more than one only where we chose them
    run_id: str  # what tells this run's nodes from another's at the same address
    hosts: tuple[str, ...]  # by node rank, as the scheduler names them; empty where it does not
    origins: tuple[Origin, ...]

    def name_of(self, node_rank: int) -> str:
        """Return a node as a reader knows it before it has spoken: by its host name, else by its number."""
        return f"{self.hosts[node_rank]} (node {node_rank})" if node_rank < len(self.hosts) else f"node {node_rank}"
