"""Which RDMA ports are tried by themselves, and with which settings. Pure.

With P2P and shared memory off NCCL has nothing but the network between the GPUs of one node, and one port left of it.
NVLS is switched off by name, since it does not depend on P2P (facts 1.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.facts import Gap, HcaPort, NodeFacts
from preflight.model.profile import Profile
from preflight.model.trial import Candidate, Scope
from preflight.plan.settings.rdma import is_usable

ALONE = (("NCCL_NET", "IB"), ("NCCL_NVLS_ENABLE", "0"), ("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"))


def rails_of(node: NodeFacts) -> tuple[HcaPort, ...]:
    """Return the usable ports of a node that has several."""
    ports = () if isinstance(node.hca_ports, Gap) else tuple(filter(is_usable, node.hca_ports))
    return ports if len(ports) > 1 else ()


def rails_to_try(node: NodeFacts, profile: Profile, dialect: str) -> tuple[HcaPort, ...]:
    """Return the ports that a run of this profile tries; the quick one tries none."""
    return rails_of(node) if dialect == "nccl" and profile is not Profile.QUICK else ()


def rail_candidates(ports: tuple[HcaPort, ...]) -> Iterator[Candidate]:
    """Yield what sends all data of the node through one port, in the order of the ports."""
    for port in ports:
        place = f"{port.hca}:{port.port}"
        env = tuple(sorted((*ALONE, ("NCCL_IB_HCA", f"={place}"))))
        yield Candidate(f"rail {place}", env, "what this port carries by itself", Scope.ONE_NODE)
