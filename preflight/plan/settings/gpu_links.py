"""Settings that take a way between the GPUs of a node from NCCL: P2P, NVLink SHARP, cuMem, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.trial import LeftOut, Scope, Setting
from preflight.plan.ground import Ground, Planned, unless
from preflight.plan.nccl_version import why_not_known


def p2p(ground: Ground) -> Iterator[Planned]:
    """Yield P2P off, and beside it the gentler NVL where some of the pairs have NVLink and some have not."""
    off, nvl = "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"
    pairs = ground.levels()
    if len(ground.gpus) == 1:
        yield LeftOut(off, "a single GPU has no peer")
        return
    if ground.denied_p2p():
        yield LeftOut(off, "the driver denies peer access between all of these GPUs, so NCCL does not use it anyway")
        return
    yield Setting(
        off,
        ((off, "1"),),
        "peer copies that hang or arrive wrong: a translating IOMMU, ACS on a bridge, a driver that promises too much",
        ("p2p",),
        Scope.ANYWHERE,
    )
    joined = ground.nvlink_pairs()
    if 0 < joined < len(pairs):
        told = "peer copies over PCIe that hang or arrive wrong, while those over NVLink stay"
        yield Setting(nvl, ((nvl, "NVL"),), told, ("p2p",), Scope.ANYWHERE)
    elif pairs and joined == len(pairs):
        yield LeftOut(f"{nvl}=NVL", "NVLink joins all of these GPUs: there is no PCIe peer copy to switch off")


def shm(ground: Ground) -> Iterator[Planned]:
    """Yield shared memory off: the ranks of a node then talk over sockets."""
    name = "NCCL_SHM_DISABLE"
    if len(ground.gpus) == 1:
        yield LeftOut(name, "a single GPU shares memory with nobody")
        return
    told = "a /dev/shm that is too small, read-only or not shared between the ranks"
    yield Setting(name, ((name, "1"),), told, ("shm",), Scope.ANYWHERE)


def nvls(ground: Ground) -> Iterator[Planned]:
    """Yield NVLink SHARP off where there is an NVSwitch."""
    name = "NCCL_NVLS_ENABLE"
    reason = ground.why_no_nvls() or why_not_known(ground.version, (2, 17))
    if reason:
        yield LeftOut(name, reason)
        return
    told = "multicast over the NVSwitch that can't be set up: Fabric Manager, its version, a partition"
    yield Setting(name, ((name, "0"),), told, ("nvls",), Scope.ANYWHERE)


def cumem(ground: Ground) -> Iterator[Planned]:
    """Yield cuMem off, for the GPUs' memory and for the host's."""
    device, host = "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"
    reason = why_not_known(ground.version, (2, 18), on_since=(2, 19))
    told = "cuMem allocations and handles that the driver or the container refuses"
    yield unless(reason, Setting(device, ((device, "0"),), told, ("cumem", "p2p", "nvls"), Scope.ANYWHERE))
    reason = why_not_known(ground.version, (2, 23), on_since=(2, 24))
    told = "host memory from cuMem that a container without SYS_NICE or NUMA calls does not get"
    yield unless(reason, Setting(host, ((host, "0"),), told, ("cumem", "shm"), Scope.ANYWHERE))


def mnnvl(ground: Ground) -> Iterator[Planned]:
    """Yield NVLink between nodes off where the GPUs may belong to such a fabric."""
    name = "NCCL_MNNVL_ENABLE"
    reason = why_not_known(ground.version, (2, 21))
    if not reason and not ground.may_be_fabric():
        reason = "these GPUs belong to no NVLink fabric"
    told = "an NVLink fabric of several nodes without a working IMEX daemon"
    yield unless(reason, Setting(name, ((name, "0"),), told, ("mnnvl",), Scope.ONE_NODE))
