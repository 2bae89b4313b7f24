"""Whether there is NVIDIA hardware here, and whether a container stands between it and us."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.judge.check import Case
from preflight.model.facts import ContainerKind, Gap, NodeFacts, NvidiaPciDevice
from preflight.model.finding import Blame, Severity

NUMBERED = re.compile(r"(?:/dev/)?nvidia\d+")


def is_contained(node: NodeFacts) -> bool:
    """Tell whether the node is known to be seen from inside a container."""
    if isinstance(node.system, Gap) or isinstance(node.system.container, Gap):
        return False
    return node.system.container is not ContainerKind.NONE


def owner(node: NodeFacts) -> Blame:
    """Return who sets limits and mounts here: the host only where no container is in between, as far as is known."""
    if isinstance(node.system, Gap) or node.system.container is not ContainerKind.NONE:
        return Blame.CONTAINER
    return Blame.HOST


def owner_of_run(case: Case) -> Blame:
    """Return the owner of limits and mounts for a run whose failing node is not known."""
    return Blame.CONTAINER if any(owner(node) is Blame.CONTAINER for node in case.nodes) else Blame.HOST


def pci_devices(node: NodeFacts) -> tuple[NvidiaPciDevice, ...]:
    """Return the NVIDIA devices on the bus; none where the bus could not be read."""
    return () if isinstance(node.nvidia_pci, Gap) else node.nvidia_pci


def nodes_of_gpus(node: NodeFacts) -> tuple[str, ...]:
    """Return the names below /dev that stand for one GPU each (nvidia0, not nvidiactl)."""
    if isinstance(node.device_nodes, Gap):
        return ()
    return tuple(name for name in node.device_nodes.nvidia if NUMBERED.fullmatch(name))


def has_nvidia(node: NodeFacts) -> bool:
    """Tell whether NVIDIA hardware is there; UnreadableFact where nothing shows any and something could not be read."""
    if pci_devices(node) or (not isinstance(node.device_nodes, Gap) and node.device_nodes.nvidia):
        return True
    for fact in (node.nvidia_pci, node.device_nodes):
        if isinstance(fact, Gap):
            raise UnreadableFact(f"whether there is an NVIDIA device could not be told: {fact.reason}")
    return False


def not_passed_in(node: NodeFacts) -> bool:
    """Tell whether a container sees GPUs on the bus and was given none of them."""
    if not is_contained(node) or isinstance(node.device_nodes, Gap):
        return False
    return bool(pci_devices(node)) and not nodes_of_gpus(node)


def severity_for_gpus(case: Case) -> Severity:
    """Return FAIL, or WARN where the user asked for a backend that needs no GPU."""
    return Severity.FAIL if case.wants_gpus else Severity.WARN
