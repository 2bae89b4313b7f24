"""The values that NVML reports about a node's GPUs and the paths between GPUs.

A value that NVML did not report is a Gap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from preflight.model.gap import Gap
from preflight.model.word import Word

GPU_FILE = re.compile(r"nvidia\d{1,6}", re.ASCII)  # below /dev, one for each GPU


class Mode(Word):
    """The state of a mode of the driver: on or off."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class ComputeMode(Word):
    """The processes that may open a CUDA context on the GPU."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive_thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive_process"


EXCLUSIVE = (ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD)  # one process at a time


class VirtualizationMode(Word):
    """The role of the GPU in virtualization."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host_vgpu"
    HOST_VSGA = "host_vsga"


class RecoveryAction(Word):
    """The action that the driver requests for the GPU."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    BUS_RESET = "bus_reset"
    SYSTEM_REBOOT = "system_reboot"


class FabricState(Word):
    """The state of the GPU's registration with the NVSwitch fabric."""

    NOT_SUPPORTED = "not_supported"
    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class LinkPeer(Word):
    """The kind of device at the other end of an NVLink."""

    GPU = "gpu"
    NPU = "npu"
    SWITCH = "switch"
    UNKNOWN = "unknown"


class P2pStatus(Word):
    """The driver's answer about peer access between two GPUs.

    The driver answers OK even if an IOMMU drops the data.
    """

    OK = "ok"
    CHIPSET_NOT_SUPPORTED = "chipset_not_supported"
    GPU_NOT_SUPPORTED = "gpu_not_supported"
    TOPOLOGY_NOT_SUPPORTED = "topology_not_supported"
    DISABLED_BY_REGKEY = "disabled_by_regkey"
    NOT_SUPPORTED = "not_supported"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a context on the GPU."""

    pid: int  # in the host's PID namespace: a container can't look it up
    used_bytes: int | Gap
    name: str | Gap
    uid: int | Gap
    is_ours: bool | Gap  # of the user who runs preflight


@dataclass(frozen=True, slots=True)
class EccCounts:
    """Memory errors since the driver was loaded (volatile) and over the GPU's life (aggregate)."""

    volatile_corrected: int | Gap
    volatile_uncorrected: int | Gap
    aggregate_corrected: int | Gap
    aggregate_uncorrected: int | Gap


@dataclass(frozen=True, slots=True)
class RowRemap:
    """The state of row remapping, which replaces faulty memory rows by spare rows (Ampere and later)."""

    correctable: int
    uncorrectable: int
    is_pending: bool  # takes effect at the next GPU reset
    has_failed: bool  # no spare row was left


@dataclass(frozen=True, slots=True)
class RetiredPages:
    """The state of page retirement, which stops the use of faulty memory pages (before Ampere)."""

    single_bit: int | Gap
    double_bit: int | Gap
    is_pending: bool | Gap


@dataclass(frozen=True, slots=True)
class Clocks:
    """The current and the maximum clocks."""

    sm_mhz: int | Gap
    sm_max_mhz: int | Gap
    memory_mhz: int | Gap
    memory_max_mhz: int | Gap


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The GPU's PCIe link. The generation falls when the GPU is idle; the width does not."""

    gen: int | Gap
    gen_max: int | Gap  # of GPU and slot together
    gpu_gen_max: int | Gap
    width: int | Gap  # lanes
    width_max: int | Gap
    replays: int | Gap  # since the driver was loaded


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU."""

    link: int
    is_active: bool | Gap
    generation: str | Gap  # "4.0"
    peer: LinkPeer | Gap
    peer_bdf: str | Gap
    replay_errors: int | Gap
    recovery_errors: int | Gap
    crc_errors: int | Gap


def leads_to_switch(link: NvLink) -> bool:
    """Return whether `link` ends at an NVSwitch.

    If a virtual machine hides the peer of the link, preflight assumes an NVSwitch. NCCL assumes the same: see
    ncclTopoGetXmlFromGpu in xml.cc, NCCL 2.27.7.
    """
    return link.is_active is not False and link.peer in (LinkPeer.SWITCH, LinkPeer.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Fabric:
    """The GPU's registration with the NVSwitch fabric."""

    state: FabricState
    problem: str | Gap  # why registration failed; "" where it did not
    health: tuple[str, ...] | Gap  # what is wrong in the health mask


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as NVML lists it."""

    nvml_index: int
    uuid: str | Gap
    bdf: str | Gap
    name: str | Gap
    memory_total_bytes: int | Gap
    memory_free_bytes: int | Gap
    memory_used_bytes: int | Gap
    memory_reserved_bytes: int | Gap
    bar1_total_bytes: int | Gap
    minor: int | Gap  # N of /dev/nvidiaN
    compute_capability: str | Gap  # "9.0"
    numa_node: int | Gap
    cpu_affinity: tuple[int, ...] | Gap  # CPUs near the GPU
    memory_affinity: tuple[int, ...] | Gap  # NUMA nodes near the GPU
    memory_numa_node: int | Gap  # the NUMA node that the GPU's own memory is (Grace)
    processes: tuple[GpuProcess, ...] | Gap
    utilization_percent: int | Gap
    compute_mode: ComputeMode | Gap
    mig_mode: Mode | Gap
    persistence_mode: Mode | Gap
    virtualization_mode: VirtualizationMode | Gap
    ecc_mode: Mode | Gap
    ecc_mode_pending: Mode | Gap
    ecc: EccCounts | Gap
    row_remap: RowRemap | Gap
    retired_pages: RetiredPages | Gap
    recovery_action: RecoveryAction | Gap
    clocks: Clocks | Gap
    throttle_reasons: tuple[str, ...] | Gap
    temperature_c: int | Gap
    power_limit_w: float | Gap
    pcie: PcieLink | Gap
    nvlinks: tuple[NvLink, ...] | Gap
    fabric: Fabric | Gap


@dataclass(frozen=True, slots=True)
class GpuPath:
    """The path between two GPUs, in the words of `nvidia-smi topo -m`: NV18, PIX, PXB, PHB, NODE, SYS."""

    a: int  # nvml_index, the smaller one
    b: int
    level: str | Gap


@dataclass(frozen=True, slots=True)
class GpuP2p:
    """The driver's answers about peer access between two GPUs, one answer per capability."""

    a: int  # nvml_index, the smaller one
    b: int
    read: P2pStatus | Gap
    write: P2pStatus | Gap
    nvlink: P2pStatus | Gap
    atomics: P2pStatus | Gap
    pci: P2pStatus | Gap


@dataclass(frozen=True, slots=True)
class UnreadableGpu:
    """A GPU that NVML counts but does not identify: it is lost, or this process may not use it."""

    nvml_index: int
    reason: str


def may_span_nodes(gpu: Gpu) -> bool:
    """Return whether NVLink may connect the GPU to other nodes. This needs a Grace CPU and an active fabric."""
    has_grace = isinstance(gpu.memory_numa_node, int)
    return has_grace and isinstance(gpu.fabric, Fabric) and gpu.fabric.state is FabricState.COMPLETED


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver as NVML reports it."""

    version: str | Gap
    cuda: str | Gap  # newest CUDA that the driver supports
    unreadable_gpus: tuple[UnreadableGpu, ...] = ()
    is_confidential: bool | Gap = False  # confidential computing is on


def gpu_known_by(nvml_index: int, why: str, **known: Any) -> Gpu:
    """Return a GPU with `nvml_index` and the values in `known`. Other values are Gaps with the reason `why`."""
    gaps = {field.name: Gap(why) for field in fields(Gpu) if field.name != "nvml_index"}
    return Gpu(nvml_index=nvml_index, **gaps | known)
