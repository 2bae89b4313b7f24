"""The healthy machines of machines.toml: what each has, and which rights preflight has on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.nvmlsim.machine import (
    AFTER,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    SWITCH,
    SimGpu,
    SimLink,
    SimMachine,
)
from tests.nvmlsim.machines import A100X4, H100X8, HEALTHY, L20X10, RTX4090X2, with_gpu

UNKNOWN_PEER = 255  # NVML_NVLINK_DEVICE_TYPE_UNKNOWN: a switch that a virtual machine does not show
EVENTS = {"nvmlEventSetCreate": "", **{f"nvmlDeviceRegisterEvents/{i}": "" for i in range(16)}}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and how its run goes."""

    gpus: SimMachine
    transport: str = "P2P/CUMEM"  # from each rank to the next
    has_nvls: bool = False
    is_root: bool = True
    container: bool = False
    ports: Mapping[str, str] = field(default_factory=dict)  # an adapter's port -> its state
    nics: int = 0
    layer: str = "InfiniBand"
    torch_cuda: str = "12.8"  # that torch was built for


def _part(machine: SimMachine, count: int, name: str) -> SimMachine:
    return replace(machine, name=name, gpus=machine.gpus[:count])


def _with_events(machine: SimMachine, **answers: str) -> SimMachine:
    return replace(machine, answers={**EVENTS, **machine.answers, **answers})


def _l40sx8() -> SimMachine:
    gpus = tuple(
        replace(gpu, name="NVIDIA L40S", pcie_gen=4, memory_mib=46068, numa=i // 4)
        for i, gpu in enumerate(L20X10.gpus[:8])
    )
    return replace(L20X10, name="8 x L40S", gpus=gpus, ancestors={})


def _vm() -> SimMachine:
    links = tuple(SimLink(UNKNOWN_PEER, link.peer_bus) for link in H100X8.gpus[0].links)
    return replace(H100X8, gpus=tuple(replace(gpu, links=links) for gpu in H100X8.gpus))


def _gb200x4() -> SimMachine:
    links = tuple(SimLink(SWITCH, f"00000000:{0x05 + link % 4:02X}:00.0", version=7) for link in range(18))
    gpus = tuple(
        SimGpu(
            "NVIDIA GB200", f"000{8 * (i // 2) + i % 2 + 1}:01:00.0".rjust(16, "0"), (10, 0), memory_mib=189471,
            numa=i // 2, bar1_mib=262144, power_w=1200, pcie_gen=5, links=links, fabric=(3, 0, 0b1010_1010),
            sm_max_mhz=2062, memory_mhz=3996,
        )
        for i in range(4)
    )  # fmt: skip
    return SimMachine("4 x GB200", gpus, ("0-71", "72-143"), p2p_default=(0, 0, 0, 0, 0))


def _mig() -> SimMachine:
    gpus = tuple(replace(gpu, mig=(1, 1), links=()) for gpu in A100X4.gpus[:2])
    return SimMachine("2 x A100, MIG", gpus, A100X4.cpus, p2p_default=(5, 5, 5, 5, 5))


def _unplugged(machine: SimMachine, *active: int) -> SimMachine:
    """Return the machine with these links of each GPU in use; into the other ports nothing is plugged."""
    gpus = tuple(
        replace(gpu, links=tuple(replace(link, active=k in active) for k, link in enumerate(gpu.links)))
        for gpu in machine.gpus
    )
    return replace(machine, gpus=gpus, p2p_default=machine.p2p_default if active else (0, 0, 5, 0, 0), p2p={})


def _r535() -> SimMachine:
    no_field = {f"nvmlDeviceGetFieldValues/{i}/230": INVALID_ARGUMENT for i in range(8)}
    return replace(H100X8, driver="535.183.06", cuda=12020, answers=no_field)


def _asleep() -> SimMachine:
    waking = {f"nvmlDeviceGetHandleByIndex/{i}": f"{AFTER} 0.6" for i in range(8)}
    return replace(H100X8, answers=waking)


def _just_loaded() -> SimMachine:
    return with_gpu(with_gpu(H100X8, 0, utilization=34), 5, utilization=100)


ONE_GPU = _part(RTX4090X2, 1, "one GPU")
CLOSED = {"nvmlEventSetCreate": NO_PERMISSION}
TWO_PORTS = {f"mlx5_{i}:2": "1: DOWN" for i in range(4)}
H100 = Machine(H100X8, has_nvls=True, nics=8)
L20 = Machine(L20X10, transport="SHM/direct/direct")

MACHINES: Mapping[str, Machine] = {
    H100X8.name: H100,
    L20X10.name: L20,
    RTX4090X2.name: Machine(RTX4090X2, transport="SHM/direct/direct"),
    A100X4.name: Machine(A100X4, transport="SHM/direct/direct"),
    "4 x V100 SXM2": Machine(HEALTHY[-1], transport="P2P/IPC"),
    "one GPU": Machine(ONE_GPU),
    "8 x L40S, a NIC below each switch": Machine(_l40sx8(), transport="NET/IB/0", nics=8, layer="Ethernet"),
    "8 x H100, seen from a container": replace(H100, gpus=_with_events(H100X8), is_root=False, container=True),
    "4 of 8 H100, given to a container": Machine(
        _with_events(_part(H100X8, 4, "4 of 8 H100")), is_root=False, container=True
    ),
    "10 x L20, without root": replace(L20, gpus=_with_events(L20X10), is_root=False),
    "10 x L20, without root and without NVML's events": replace(
        L20, gpus=_with_events(L20X10, **CLOSED), is_root=False
    ),
    "8 x H100 in a virtual machine with EFA": replace(
        H100, gpus=_with_events(_vm(), nvmlEventSetCreate=NOT_SUPPORTED), nics=4, layer="Unspecified"
    ),
    "4 x GB200, a tray": Machine(_gb200x4(), nics=4),
    "8 x H100, persistence mode off": replace(H100, gpus=_just_loaded()),
    "8 x H100, asleep: each takes 0.6 s to wake": replace(H100, gpus=_asleep()),
    "8 x H100, driver 535": replace(H100, gpus=_r535()),
    "4 x A100 PCIe, no bridge": Machine(_unplugged(A100X4), transport="SHM/direct/direct"),
    "4 x V100 in a virtual machine, two of six links lead nowhere": Machine(
        _unplugged(HEALTHY[-1], 0, 1, 2, 3), transport="P2P/IPC"
    ),
    "8 x H100, second ports without a cable": replace(H100, nics=4, ports=TWO_PORTS),
    "2 x A100, cut into MIG instances": Machine(_mig(), transport="SHM/direct/direct"),
    "no GPU": Machine(SimMachine("no GPU", (), ("0-31",))),
}
# As which of them a broken machine of tests/nvmlsim is played.
BASES: Mapping[str, Machine] = {each.name: MACHINES[each.name] for each in HEALTHY}
