"""Helpers for the checks of PCI and RDMA."""

from __future__ import annotations

from itertools import combinations

from preflight.errors import NotApplicable
from preflight.judge.check import Case
from preflight.model.facts import Gap, HcaPort, Nic, NodeFacts, PciDevice, PciKind, known
from preflight.model.hca import NicKind, PortState
from preflight.model.transport import NVLS, CarrierKind, Transport
from preflight.model.trial import Outcome, TrialResult
from preflight.search.gpus.locality import NVLINK, locality_of

TRANSLATING = frozenset({"DMA", "DMA-FQ"})
WITHOUT_PCIE_P2P = "set NCCL_P2P_LEVEL=NVL if NVLink joins the job's GPUs, else NCCL_P2P_DISABLE=1"
WITHOUT_P2P = "set NCCL_P2P_DISABLE=1, which protects NCCL"  # NCCL then uses no NVLink either
VERBS_KINDS = frozenset({NicKind.INFINIBAND, NicKind.ROCE, NicKind.MIXED})


def must_be_bare_metal(node: NodeFacts) -> None:
    """Raise NotApplicable if the node runs under a hypervisor. Raise UnreadableFact if that is unknown."""
    if known(known(node.system).hypervisor) != "none":
        raise NotApplicable("in a virtual machine the hypervisor controls this")


def chosen_devices(node: NodeFacts, case: Case) -> dict[int, PciDevice]:
    """Return {NVML index: PCI device} for the chosen GPUs, without GPUs that are not in the PCI tree."""
    tree = {device.bdf: device for device in known(node.pci)}
    if isinstance(node.gpus, Gap):
        by_place = dict(enumerate(each for each in tree.values() if each.kind is PciKind.GPU))
        return {gpu: by_place[gpu] for gpu in case.gpus if gpu in by_place}
    bdfs = {gpu.nvml_index: gpu.bdf for gpu in node.gpus if isinstance(gpu.bdf, str)}
    return {gpu: tree[bdfs[gpu]] for gpu in case.gpus if bdfs.get(gpu) in tree}


def pcie_pairs(node: NodeFacts, case: Case) -> list[tuple[int, int]]:
    """Return the pairs of chosen GPUs (NVML indices) that no NVLink connects.

    Raise NotApplicable if there is no such pair.
    """
    if len(case.gpus) < 2:
        raise NotApplicable("fewer than two GPUs are used")
    locality = locality_of(node)
    pairs = [pair for pair in combinations(case.gpus, 2) if not NVLINK.fullmatch(locality.level(*pair))]
    if not pairs:
        raise NotApplicable("NVLink joins the chosen GPUs")
    return pairs


def verbs_nics(node: NodeFacts) -> tuple[Nic, ...]:
    """Return the InfiniBand and RoCE adapters, without EFA adapters."""
    return tuple(nic for nic in known(node.nics) if nic.kind in VERBS_KINDS)


def ports_of(node: NodeFacts, nic: Nic) -> tuple[HcaPort, ...]:
    """Return the ports of the adapter `nic`."""
    return tuple(port for port in known(node.hca_ports) if port.hca == nic.name)


def carries_traffic(node: NodeFacts, name: str) -> bool:
    """Return whether the adapter `name` has an active port, or True if its ports could not be read."""
    ports = () if isinstance(node.hca_ports, Gap) else tuple(port for port in node.hca_ports if port.hca == name)
    return not ports or any(isinstance(port.state, Gap) or port.state is PortState.ACTIVE for port in ports)


def p2p_workaround(case: Case) -> str:
    """Return the workaround for broken P2P over PCIe, or "" if a test run has verified data over P2P."""
    return "" if any(map(_is_proved, case.trials)) else WITHOUT_PCIE_P2P


def _is_proved(trial: TrialResult) -> bool:
    """Return whether the data of a test run were right, and all pairs of ranks used P2P.

    Pairs without NVLink must have used P2P over PCIe.
    """
    right = trial.outcome is Outcome.OK and trial.results and all(result.verified for result in trial.results)
    ways = [carrier.transport for carrier in trial.transport if carrier.kind is CarrierKind.PATH]
    return bool(right and ways) and all(way is Transport.P2P for way in ways) and may_use_p2p(trial, over_nvlink=False)


def may_use_p2p(trial: TrialResult, over_nvlink: bool) -> bool:
    """Return whether a test run may have used peer access between GPUs, or True if its transport is unknown.

    `over_nvlink` says whether NVLink connects the GPUs.
    """
    env = dict(trial.env)
    if env.get("NCCL_P2P_DISABLE") == "1" or (env.get("NCCL_P2P_LEVEL") == "NVL" and not over_nvlink):
        return False
    return not trial.transport or any(
        carrier == NVLS or carrier.transport is Transport.P2P for carrier in trial.transport
    )
