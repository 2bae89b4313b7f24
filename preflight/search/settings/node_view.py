"""The data of one node and its GPUs that is needed to decide which settings to test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations

from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.gap import known_or
from preflight.model.gpu import FabricState, LinkPeer, P2pStatus
from preflight.model.nccl_variables import BY_NAME
from preflight.model.trial import LeftOut, Scope, Setting
from preflight.search.gpus.locality import NVLINK

Version = tuple[int, int]
Planned = Setting | LeftOut
FIRST_WITH_NVLS = 9.0  # compute capability: Hopper
NO_SWITCH = (LinkPeer.GPU, LinkPeer.NPU)
VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.|\+|$)")


def nccl_version(node: NodeFacts) -> Version | None:
    """Return the NCCL version, such as (2, 28), or None if no wheel names the version."""
    # Without an NCCL wheel, torch may contain its own NCCL or load the system's NCCL.
    if isinstance(node.software, Gap) or isinstance(node.software.torch, Gap):
        return None
    match = VERSION.match(known_or(node.software.torch.nccl, ""))
    return (int(match[1]), int(match[2])) if match else None


def version_text(version: Version) -> str:
    """Return a version as text, such as `NCCL 2.28`."""
    return f"NCCL {version[0]}.{version[1]}"


def why_not_known(version: Version | None, name: str) -> str:
    """Return why the variable `name` has no effect in NCCL `version`, or "" if the variable may have an effect.

    The result is "" if `version` is None.
    """
    variable = BY_NAME[name]
    if version is None:
        return ""
    if version < variable.since:
        return f"{version_text(version)} ignores it; {version_text(variable.since)} was the first to read it"
    if variable.on_since is not None and version < variable.on_since:
        return f"{version_text(version)} does not use this feature by default"
    return ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and the GPUs to use. None or "" is a value that could not be read."""

    node: NodeFacts
    gpus: tuple[Gpu, ...]  # the chosen ones
    version: Version | None  # of NCCL

    def levels(self) -> dict[tuple[int, int], str]:
        """Return the path level, such as "NV4", of each pair of chosen GPUs. An unknown level is ""."""
        paths = known_or(self.node.gpu_paths, ())
        known = {(min(path.a, path.b), max(path.a, path.b)): known_or(path.level, "") for path in paths}
        indices = sorted(gpu.nvml_index for gpu in self.gpus)
        return {pair: known.get(pair, "") for pair in combinations(indices, 2)}

    def nvlink_pairs(self) -> int:
        """Return how many pairs of chosen GPUs are connected by NVLink."""
        return sum(NVLINK.fullmatch(level) is not None for level in self.levels().values())

    def denied_p2p(self) -> bool:
        """Return whether the driver is known to deny peer access between all pairs of GPUs.

        In this case, NCCL does not use P2P.
        """
        pairs = self.levels()
        stated = known_or(self.node.gpu_p2p, ())
        denied = {(min(p.a, p.b), max(p.a, p.b)) for p in stated if _is_denied(p.read) or _is_denied(p.write)}
        return bool(pairs) and all(pair in denied for pair in pairs)

    def why_no_nvls(self) -> str:
        """Return why NVLink SHARP can't be in use, or "" if it may be in use."""
        capabilities = [gpu.compute_capability for gpu in self.gpus]
        if capabilities and all(not isinstance(each, Gap) and float(each) < FIRST_WITH_NVLS for each in capabilities):
            return "NVLink SHARP needs Hopper or newer GPUs"
        links = [gpu.nvlinks for gpu in self.gpus]
        if links and all(not isinstance(each, Gap) and all(link.peer in NO_SWITCH for link in each) for each in links):
            return "no NVLink of these GPUs leads to an NVSwitch"
        return ""

    def may_be_fabric(self) -> bool:
        """Return whether a GPU may belong to an NVLink fabric of several nodes."""
        states = [None if isinstance(gpu.fabric, Gap) else gpu.fabric.state for gpu in self.gpus]
        return any(state is not FabricState.NOT_SUPPORTED for state in states) or not states

    def is_amd(self) -> bool | None:
        """Return whether the CPUs are AMD's, or None if that is unknown."""
        if isinstance(self.node.system, Gap) or isinstance(self.node.system.cpu_model, Gap):
            return None
        model = self.node.system.cpu_model.lower()
        return "amd" in model or "epyc" in model


def setting(name: str, value: str, scope: Scope = Scope.ANYWHERE) -> Setting:
    """Return a setting with the variable `name`=`value`, for the nodes in `scope`."""
    return Setting(name, ((name, value),), BY_NAME[name].families, scope)


def unless(reason: str, setting: Setting) -> Planned:
    """Return `setting` if `reason` is empty. Otherwise, return a record that says why the setting is left out."""
    return LeftOut(setting.name, reason) if reason else setting


def view_of(node: NodeFacts, gpus: tuple[int, ...]) -> NodeView:
    """Return the data of the node and of its GPUs with the NVML indices `gpus`.

    If `gpus` is empty, all GPUs are included.
    """
    chosen = tuple(gpu for gpu in known_or(node.gpus, ()) if not gpus or gpu.nvml_index in gpus)
    return NodeView(node, chosen, nccl_version(node))


def _is_denied(status: P2pStatus | Gap) -> bool:
    return not isinstance(status, Gap) and status not in (P2pStatus.OK, P2pStatus.UNKNOWN)
