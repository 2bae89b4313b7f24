"""Settings that turn off P2P, NVLink SHARP, cuMem or shared memory between the GPUs of a node."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.trial import LeftOut, Scope
from preflight.search.settings.node_view import NodeView, Planned, setting, unless, why_not_known


def p2p(view: NodeView) -> Iterator[Planned]:
    """Yield the setting that turns P2P off.

    If only some pairs of GPUs have NVLink, also yield the setting that limits P2P to NVLink.
    """
    off, nvl = "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"
    pairs = view.levels()
    if len(view.gpus) == 1:
        yield LeftOut(off, "a single GPU has no peer")
        return
    if view.denied_p2p():
        yield LeftOut(off, "the driver denies peer access between all of these GPUs, so NCCL never uses it")
        return
    yield setting(off, "1")
    joined = view.nvlink_pairs()
    if 0 < joined < len(pairs):
        yield setting(nvl, "NVL")
    elif pairs and joined == len(pairs):
        yield LeftOut(f"{nvl}=NVL", "NVLink joins all of these GPUs, so there are no PCIe peer copies to switch off")


def shm(view: NodeView) -> Iterator[Planned]:
    """Yield the setting that turns shared memory off. Ranks then use sockets.

    This setting helps if /dev/shm is too small, read-only or not shared.
    """
    reason = "a single GPU shares memory with no other" if len(view.gpus) == 1 else ""
    yield unless(reason, setting("NCCL_SHM_DISABLE", "1"))


def nvls(view: NodeView) -> Iterator[Planned]:
    """If the node may have an NVSwitch, yield the setting that turns NVLink SHARP off.

    The setting helps if the Fabric Manager of the NVSwitch fails to set up multicast.
    """
    name = "NCCL_NVLS_ENABLE"
    yield unless(view.why_no_nvls() or why_not_known(view.version, name), setting(name, "0"))


def cumem(view: NodeView) -> Iterator[Planned]:
    """Yield the settings that turn cuMem off for GPU memory and for host memory.

    A container without SYS_NICE can't use cuMem for host memory.
    """
    for name in ("NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"):
        yield unless(why_not_known(view.version, name), setting(name, "0"))


def mnnvl(view: NodeView) -> Iterator[Planned]:
    """If the GPUs may belong to a fabric of several nodes, yield the setting that turns off NVLink between nodes.

    A fabric of several nodes needs a working IMEX daemon.
    """
    name = "NCCL_MNNVL_ENABLE"
    no_fabric = "" if view.may_be_fabric() else "these GPUs belong to no NVLink fabric"
    yield unless(why_not_known(view.version, name) or no_fabric, setting(name, "0", Scope.ONE_NODE))
