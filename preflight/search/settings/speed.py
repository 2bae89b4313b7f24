"""Settings that may be faster than working default settings. No setting selects a protocol or an algorithm."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.trial import Candidate, LeftOut, Scope
from preflight.search.gpus.locality import NVLINK
from preflight.search.settings.node_view import NodeView, version_text

# How far NCCL lets peer copies go by itself (facts 1.1), and the words of `nvidia-smi topo -m` by NCCL's level.
PXB_FOR_ALL_SINCE = (2, 23)
NCCL_LEVEL = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "PHB", "SYS": "SYS"}
REACH = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
AMD_GPUS_WITH_SYS = 2


def speed_candidates(view: NodeView) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Return the configurations that may be faster than working default settings, and the omitted configurations."""
    planned = [*_further_p2p(view), *_p2p_off(view), *_gpu_direct(view)]
    candidates = tuple(each for each in planned if isinstance(each, Candidate))
    return candidates, tuple(each for each in planned if isinstance(each, LeftOut))


def default_level(view: NodeView) -> str:
    """Return the longest path, in NCCL's terms, over which NCCL uses P2P over PCIe by default, or "" if unknown."""
    amd = view.is_amd()
    if view.version is not None and view.version >= PXB_FOR_ALL_SINCE:
        few = len(view.gpus) <= AMD_GPUS_WITH_SYS
        return "" if few and amd is None else ("SYS" if few and amd else "PXB")
    if view.version is None or amd is None:
        return ""
    return "SYS" if amd else "PXB"


def _further_p2p(view: NodeView) -> Iterator[Candidate | LeftOut]:
    name = "NCCL_P2P_LEVEL"
    levels = _pcie_levels(view)
    own = default_level(view)
    further = [level for level in ("PHB", "SYS") if level in levels and not _covers(own, level)]
    if not further:
        reason = f"NCCL's own level {own or 'for these GPUs'} reaches every pair that is joined by PCIe"
        unknown = "no pair of these GPUs is known to be joined by PCIe alone"
        yield LeftOut(f"{name}=PHB or SYS", reason if levels else unknown)
        return
    if view.denied_p2p():
        yield LeftOut(f"{name}={further[-1]}", "the driver denies peer access between all of these GPUs")
        return
    by = version_text(view.version) if view.version else "NCCL, by version and CPU,"
    for level in further:
        reason = f"{by} goes through host memory between GPUs that are {level} apart; peer copies may be faster, or not"
        yield Candidate(f"{name}={level}", ((name, level),), reason, Scope.ANYWHERE)


def _p2p_off(view: NodeView) -> Iterator[Candidate | LeftOut]:
    """If peer copies cross a host bridge, yield a configuration with P2P off.

    Copies through host memory may then be faster.
    """
    levels, own = _pcie_levels(view), default_level(view)
    crossing = [level for level in ("PHB", "SYS") if level in levels and (_covers(own, level) or not own)]
    if not crossing or view.denied_p2p():
        reason = "no peer copy of NCCL's crosses a host bridge here, where host memory can be faster"
        yield LeftOut("NCCL_P2P_DISABLE, for speed", reason)
        return
    env = (("NCCL_P2P_LEVEL", "NVL"),) if view.nvlink_pairs() else (("NCCL_P2P_DISABLE", "1"),)
    reason = f"peer copies cross a host bridge ({', '.join(crossing)}); through host memory it may be faster"
    yield Candidate("=".join(env[0]), env, reason, Scope.ANYWHERE)


def _gpu_direct(view: NodeView) -> Iterator[LeftOut]:
    """Yield the reason why the level of GPUDirect is not tested.

    The ranks of one node do not communicate over a network adapter.
    """
    if isinstance(view.node.hca_ports, tuple) and view.node.hca_ports:
        reason = "the ranks of one node don't use the RDMA adapters, so that nothing could be measured"
        yield LeftOut("NCCL_NET_GDR_LEVEL", reason)


def _pcie_levels(view: NodeView) -> set[str]:
    """Return the levels, in NCCL's terms, of the pairs of GPUs that only PCIe joins."""
    pairs = [level for level in view.levels().values() if not NVLINK.fullmatch(level)]
    return {NCCL_LEVEL[level] for level in pairs if level in NCCL_LEVEL}


def _covers(own: str, level: str) -> bool:
    return bool(own) and REACH.index(level) <= REACH.index(own)
