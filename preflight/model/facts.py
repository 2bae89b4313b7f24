"""The values that were read from a node. A missing value is a Gap with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from preflight.model.gap import NOT_READ, Gap, known, known_or  # noqa: F401  known stands at the front of the facts
from preflight.model.gpu import DriverFacts, Gpu, GpuP2p, GpuPath
from preflight.model.hca import HcaPort, Nic, NicPath, RdmaFacts, UnreadLine
from preflight.model.word import Word


class Limit(Word):
    """The value of a resource limit that is not set. A limit that could not be read is a Gap instead."""

    UNLIMITED = "unlimited"


class ContainerKind(Word):
    """The kind of container that the process runs in, if the kernel shows it."""

    NONE = "none"
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"
    LXC = "lxc"
    APPTAINER = "apptainer"
    ENROOT = "enroot"
    OTHER = "other"


class Overcommit(Enum):
    """The kernel's policy on how much memory processes may request (vm.overcommit_memory)."""

    HEURISTIC = 0
    ALWAYS = 1
    NEVER = 2  # beyond CommitLimit every fork and allocation fails


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """The operating system, the CPUs, and the share of the CPUs that the container may use."""

    kernel: str | Gap
    architecture: str | Gap
    cpu_model: str | Gap
    cpu_count: int | Gap  # logical CPUs online
    cpu_affinity: tuple[int, ...] | Gap  # CPUs that this process may run on
    cgroup_cpu_limit: float | Limit | Gap  # CPUs' worth of time
    memory_total_bytes: int | Gap
    memory_available_bytes: int | Gap
    cgroup_memory_limit_bytes: int | Limit | Gap
    container: ContainerKind | Gap
    hypervisor: str | Gap  # "none" on bare metal
    iommu_options: tuple[str, ...] | Gap  # words of the kernel's command line that concern the IOMMU
    cgroup_pids_limit: int | Limit | Gap = NOT_READ  # processes and threads together
    overcommit: Overcommit | Gap = NOT_READ
    commit_left_bytes: int | Gap = NOT_READ  # of CommitLimit; it matters only where overcommit is NEVER
    product: str | Gap = NOT_READ  # the server's maker and model; in a cloud, the kind of instance
    bios: str | Gap = NOT_READ  # its maker, version and date


@dataclass(frozen=True, slots=True)
class NameResolution:
    """The addresses to which the host's own name resolves. gloo binds to the first address."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShmFacts:
    """/dev/shm, where NCCL and data loaders create their shared memory segments."""

    size_bytes: int
    free_bytes: int
    stale_nccl_files: tuple[str, ...]  # /dev/shm/nccl-* that no process maps
    stale_nccl_bytes: int


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Soft resource limits of this process."""

    memlock_bytes: int | Limit
    nofile: int | Limit
    stack_bytes: int | Limit
    nproc: int | Limit


@dataclass(frozen=True, slots=True)
class NvidiaPciDevice:
    """An NVIDIA display controller (vendor 0x10de, class 0x03) on the PCI bus."""

    bdf: str
    device_id: str  # "0x2330"
    driver: str | Gap  # the kernel driver bound to it; a Gap where none is
    numa_node: int | Gap


class PciKind(Word):
    """The kind of a PCI device.

    Bridges are identified by their position in the PCI tree.
    """

    GPU = "gpu"
    NIC = "nic"
    ROOT_PORT = "root_port"
    SWITCH_UPSTREAM = "switch_upstream"
    SWITCH_DOWNSTREAM = "switch_downstream"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI function and the bridges that lead to it."""

    bdf: str
    kind: PciKind
    device: str | Gap  # vendor and device, "10de:2330"
    host_bridge: str  # "pci0000:16"; devices with the same one share a root complex
    parents: tuple[str, ...]  # bdf of the bridges from the root port down to this device
    numa_node: int | Gap
    speed_gt_s: float | Gap  # falls while the link is idle
    speed_max_gt_s: float | Gap
    width: int | Gap
    width_max: int | Gap
    acs: tuple[str, ...] | Gap  # ACS controls that are on, in lspci's words; empty if the device has no ACS
    iommu_group: str | Gap  # "" where no IOMMU is active
    iommu_type: str | Gap  # identity, DMA, DMA-FQ; "" where no IOMMU is active


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """The device files that the kernel driver and the container runtime provide."""

    nvidia: tuple[str, ...]  # names below /dev that start with nvidia
    kernel_module: str | Gap  # version of the loaded nvidia module


@dataclass(frozen=True, slots=True)
class OtherDevice:
    """A GPU or an accelerator of another maker than NVIDIA."""

    what: str  # "AMD GPU"
    where: str  # its address on the PCI bus, or its device file
    device: str  # vendor and device, "1002:74a1"; "" for a device file
    computes: bool  # made for computing; False for a display controller

    @property
    def is_on_bus(self) -> bool:
        """Return whether the device is visible on the PCI bus, not only in /dev."""
        return bool(self.device)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node: its CPUs, its memory, and its distances to all NUMA nodes.

    The distances are in the order of the node ids.
    """

    id: int
    cpus: tuple[int, ...] | Gap
    memory_bytes: int | Gap
    distances: tuple[int, ...] | Gap


class NetifKind(Word):
    """The kind of device behind a network interface."""

    PHYSICAL = "physical"
    BOND = "bond"
    VLAN = "vlan"
    BRIDGE = "bridge"
    VETH = "veth"
    CONTAINER = "container"  # docker, cni, flannel, calico, kube
    WIFI = "wifi"
    TUNNEL = "tunnel"
    IPOIB = "ipoib"
    LOOPBACK = "loopback"
    VIRTUAL = "virtual"  # anything else without a device behind it


@dataclass(frozen=True, slots=True)
class Netif:
    """A network interface. A node lists its interfaces in the kernel's index order."""

    name: str
    index: int
    kind: NetifKind
    is_up: bool
    has_carrier: bool | Gap
    mtu: int | Gap
    speed_mbit_s: int | Gap
    driver: str | Gap
    numa_node: int | Gap
    addresses: tuple[str, ...] | Gap  # IPv4 first, without prefix length
    gateways: tuple[str, ...] | Gap  # default gateways reached through it
    networks: tuple[str, ...] = ()  # IPv4 networks of its addresses, as 10.1.0.0/16; () if they are not known
    arp_ignore: int = -1  # sysctl, the larger of `all` and its own; 0: answers for every host address; -1: not known


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """The torch that the workers will import. preflight reads these values without importing torch."""

    version: str
    cuda: str | Gap  # CUDA that it was built for; a Gap for a CPU build
    nccl: str | Gap  # version of the NCCL wheel that is installed with it
    location: str
    other_build: str = ""  # "ROCm 6.2.41134" if it is built for other GPUs than NVIDIA's


@dataclass(frozen=True, slots=True)
class SoftwareFacts:
    """The versions of Python, preflight and torch, and the network plugins of NCCL."""

    python: str
    preflight: str
    torch: TorchFacts | Gap
    net_plugins: tuple[str, ...] | Gap = NOT_READ  # paths of those that NCCL would load; empty: it uses its own network


SETTABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # the names of variables that a shell can set


@dataclass(frozen=True, slots=True)
class EnvVar:
    """An inherited environment variable that NCCL, gloo, torch or CUDA reads."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class NcclConfEntry:
    """A setting from a file that NCCL reads before it applies its defaults."""

    file: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All values that were read from one node."""

    gaps_of_its_own: ClassVar[bool] = True  # in JSON

    host: str
    system: SystemFacts | Gap
    name_resolution: NameResolution | Gap
    shm: ShmFacts | Gap
    limits: LimitFacts | Gap
    nvidia_pci: tuple[NvidiaPciDevice, ...] | Gap
    device_nodes: DeviceNodes | Gap
    driver: DriverFacts | Gap
    gpus: tuple[Gpu, ...] | Gap
    gpu_paths: tuple[GpuPath, ...] | Gap
    gpu_p2p: tuple[GpuP2p, ...] | Gap
    xid_lines: tuple[str, ...] | Gap  # "NVRM: Xid" lines of the kernel log
    numa_nodes: tuple[NumaNode, ...] | Gap
    netifs: tuple[Netif, ...] | Gap
    software: SoftwareFacts | Gap
    environment: tuple[EnvVar, ...] | Gap
    nccl_conf: tuple[NcclConfEntry, ...] | Gap
    pci: tuple[PciDevice, ...] | Gap  # the GPUs, the adapters and the bridges above them
    nics: tuple[Nic, ...] | Gap
    nic_paths: tuple[NicPath, ...] | Gap
    hca_ports: tuple[HcaPort, ...] | Gap
    rdma: RdmaFacts | Gap
    unread_lines: tuple[UnreadLine, ...] = ()  # of a pasted topology
    other_devices: tuple[OtherDevice, ...] | Gap = NOT_READ  # GPUs and accelerators of other makers than NVIDIA


def inherited_value(node: NodeFacts, name: str) -> str | None:
    """Return the value of the environment variable `name` on `node`, or None if the variable is not set or unknown."""
    return next((variable.value for variable in known_or(node.environment, ()) if variable.name == name), None)
