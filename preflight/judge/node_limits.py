"""Helpers for the checks of a node's limits, mounts and /dev/shm."""

from __future__ import annotations

import math

from preflight.errors import NotApplicable
from preflight.judge.check import Case
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import ContainerKind, Gap, NodeFacts
from preflight.model.finding import Blame

BYTES_PER_CONNECTION = Bound(
    9 << 20, "bytes of /dev/shm per connection",
    "the buffers of a connection take about 9.2 MiB: 4 MiB for the protocol Simple (NCCL_BUFFSIZE's default), 0.5 MiB "
    "for LL and 4.7 MiB for LL128",
    "docs/dev/nccl-facts.md",
    "a wrong value has little effect: the check only warns, and a trial that fails because /dev/shm is full is a FAIL",
)  # fmt: skip
CHANNELS = Bound(
    4, "channels between GPUs without NVLink",
    "NCCL opens this number of channels if it uses SHM",
    JUDGMENT,
    "a wrong value has little effect: the check only warns, and a trial that fails because /dev/shm is full is a FAIL",
)  # fmt: skip


def is_contained(node: NodeFacts) -> bool:
    """Return whether the node's values are known to come from inside a container."""
    if isinstance(node.system, Gap) or isinstance(node.system.container, Gap):
        return False
    return node.system.container is not ContainerKind.NONE


def owner(node: NodeFacts) -> Blame:
    """Return who sets the limits and mounts of a node: the container if there may be a container, else the host."""
    if isinstance(node.system, Gap) or node.system.container is not ContainerKind.NONE:
        return Blame.CONTAINER
    return Blame.HOST


def owner_of_run(case: Case) -> Blame:
    """Return who sets the limits and mounts, for a failure whose node is unknown.

    Return the container if any node may have a container, else the host.
    """
    return Blame.CONTAINER if any(owner(node) is Blame.CONTAINER for node in case.nodes) else Blame.HOST


def local_ranks_of(node: NodeFacts, case: Case) -> int:
    """Return the number of ranks on this node. For `preflight probe`, return the number of GPUs."""
    if case.world_size:
        return math.ceil(case.world_size / max(1, len(case.nodes)))
    return 0 if isinstance(node.gpus, Gap) else len(node.gpus)


def must_have_ranks(node: NodeFacts, case: Case) -> int:
    """Return the number of ranks on this node. Raise NotApplicable if the node has no ranks."""
    ranks = local_ranks_of(node, case)
    if not ranks:
        raise NotApplicable("no rank would run here")
    return ranks


def nccl_shm_bytes(local_ranks: int) -> int:
    """Return the number of bytes that NCCL may use in /dev/shm if all local ranks communicate through /dev/shm."""
    # Each rank has at most two connections per channel to other ranks on the node.
    if local_ranks < 2:
        return 0
    return local_ranks * min(local_ranks - 1, 2) * CHANNELS.whole * BYTES_PER_CONNECTION.whole
