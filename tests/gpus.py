"""GPUs that tests start from: healthy ones of an NVSwitch board."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.model.facts import Gap, Gpu, GpuP2p
from preflight.model.gpu import (
    Clocks,
    ComputeMode,
    EccCounts,
    Fabric,
    FabricState,
    LinkPeer,
    Mode,
    NvLink,
    P2pStatus,
    PcieLink,
    RecoveryAction,
    RowRemap,
    VirtualizationMode,
)

GIB = 1 << 30
MIB = 1 << 20


def bdf(index: int) -> str:
    """Return the bus id of the GPU with this index."""
    return f"0000:{0x10 + index:02x}:00.0"


def nvlink(link: int, **overrides: Any) -> NvLink:
    """Return an NVLink 4 that leads to a switch."""
    made = NvLink(link, True, "4.0", LinkPeer.SWITCH, f"0000:0{link // 6 + 1}:00.0", 0, 0, 0)
    return replace(made, **overrides)


PCIE = PcieLink(gen=5, gen_max=5, gpu_gen_max=5, width=16, width_max=16, replays=0)
NO_PAGES = Gap("NVMLError_NotSupported: the driver does not report this for the GPU")


def gpu(index: int, **overrides: Any) -> Gpu:
    """Return an idle H100 of an NVSwitch board."""
    made = Gpu(
        nvml_index=index,
        uuid=f"GPU-{index:08d}",
        bdf=bdf(index),
        name="NVIDIA H100 80GB HBM3",
        memory_total_bytes=80 * GIB,
        memory_free_bytes=79 * GIB,
        memory_used_bytes=4 * MIB,
        memory_reserved_bytes=GIB - 4 * MIB,
        bar1_total_bytes=128 * GIB,
        minor=index,
        compute_capability="9.0",
        numa_node=0,
        cpu_affinity=tuple(range(32)),
        memory_affinity=(0,),
        memory_numa_node=NO_PAGES,
        processes=(),
        utilization_percent=0,
        compute_mode=ComputeMode.DEFAULT,
        mig_mode=Mode.DISABLED,
        persistence_mode=Mode.ENABLED,
        virtualization_mode=VirtualizationMode.NONE,
        ecc_mode=Mode.ENABLED,
        ecc_mode_pending=Mode.ENABLED,
        ecc=EccCounts(0, 0, 0, 0),
        row_remap=RowRemap(0, 0, is_pending=False, has_failed=False),
        retired_pages=NO_PAGES,
        recovery_action=RecoveryAction.NONE,
        clocks=Clocks(345, 1980, 2619, 2619),
        throttle_reasons=("idle",),
        temperature_c=31,
        power_limit_w=700.0,
        pcie=PCIE,
        nvlinks=tuple(nvlink(link) for link in range(18)),
        fabric=Fabric(FabricState.COMPLETED, "", ()),
    )
    return replace(made, **overrides)


def gpu_p2p(a: int, b: int, **overrides: Any) -> GpuP2p:
    """Return a pair between which the driver allows everything."""
    return replace(GpuP2p(a, b, *(P2pStatus.OK,) * 5), **overrides)
