"""What settings are planned from: a node's facts about the chosen GPUs, each asked in the words of NCCL's choice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from preflight.model.facts import Gap, Gpu, NodeFacts, SystemFacts
from preflight.model.gpu import FabricState, LinkPeer, P2pStatus
from preflight.model.trial import LeftOut, Setting
from preflight.plan.nccl_version import Version, nccl_version
from preflight.plan.seats import NVLINK

Planned = Setting | LeftOut
FIRST_WITH_NVLS = 9.0  # compute capability: Hopper


@dataclass(frozen=True, slots=True)
class Ground:
    """One node and the GPUs that are to be used; None or "" stands for what could not be read."""

    node: NodeFacts
    gpus: tuple[Gpu, ...]  # the chosen ones
    version: Version | None  # of NCCL
    inherited: tuple[tuple[str, str], ...]

    def levels(self) -> dict[tuple[int, int], str]:
        """Return the path of every pair of chosen GPUs, "" where it is not known."""
        paths = self.node.gpu_paths if isinstance(self.node.gpu_paths, tuple) else ()
        told = {(min(p.a, p.b), max(p.a, p.b)): "" if isinstance(p.level, Gap) else p.level for p in paths}
        indices = sorted(gpu.nvml_index for gpu in self.gpus)
        return {pair: told.get(pair, "") for pair in combinations(indices, 2)}

    def nvlink_pairs(self) -> int:
        """Return how many pairs of chosen GPUs NVLink joins."""
        return sum(NVLINK.fullmatch(level) is not None for level in self.levels().values())

    def denied_p2p(self) -> bool:
        """Tell whether the driver is known to deny peer access between every pair: NCCL then asks no more."""
        pairs = self.levels()
        told = self.node.gpu_p2p if isinstance(self.node.gpu_p2p, tuple) else ()
        denied = {(min(p.a, p.b), max(p.a, p.b)) for p in told if _is_denied(p.read) or _is_denied(p.write)}
        return bool(pairs) and all(pair in denied for pair in pairs)

    def why_no_nvls(self) -> str:
        """Return why NVLink SHARP can't be in use, "" where it may be."""
        capabilities = [gpu.compute_capability for gpu in self.gpus]
        if capabilities and all(not isinstance(each, Gap) and float(each) < FIRST_WITH_NVLS for each in capabilities):
            return "NVLink SHARP begins with Hopper, and these GPUs are older"
        links = [gpu.nvlinks for gpu in self.gpus]
        if links and all(isinstance(each, tuple) and not _has_switch(each) for each in links):
            return "no NVLink of these GPUs leads to an NVSwitch"
        return ""

    def may_be_fabric(self) -> bool:
        """Tell whether a GPU may belong to an NVLink fabric of several nodes."""
        states = [None if isinstance(gpu.fabric, Gap) else gpu.fabric.state for gpu in self.gpus]
        return any(state is not FabricState.NOT_SUPPORTED for state in states) or not states

    def is_amd(self) -> bool | None:
        """Tell whether the CPUs are AMD's; None where that is not known."""
        system = self.node.system
        if not isinstance(system, SystemFacts) or isinstance(system.cpu_model, Gap):
            return None
        return "amd" in system.cpu_model.lower() or "epyc" in system.cpu_model.lower()


def unless(reason: str, setting: Setting) -> Planned:
    """Return the setting, or that it is left out where there is a reason."""
    return LeftOut(setting.name, reason) if reason else setting


def ground_of(node: NodeFacts, gpus: tuple[int, ...], inherited: tuple[tuple[str, str], ...]) -> Ground:
    """Return the ground for these GPUs by nvml_index, all of the node's where none are named."""
    listed = node.gpus if isinstance(node.gpus, tuple) else ()
    chosen = tuple(gpu for gpu in listed if not gpus or gpu.nvml_index in gpus)
    return Ground(node, chosen, nccl_version(node), inherited)


def _is_denied(status: P2pStatus | Gap) -> bool:
    return not isinstance(status, Gap) and status not in (P2pStatus.OK, P2pStatus.UNKNOWN)


def _has_switch(links: tuple[object, ...]) -> bool:
    """Tell whether a link leads to a switch, or may do so."""
    return any(
        getattr(link, "peer", None) in (LinkPeer.SWITCH, LinkPeer.UNKNOWN)
        or isinstance(getattr(link, "peer", None), Gap)
        for link in links
    )
