"""The machines that the simulated NVML stands for: healthy ones, and one that is broken in each way a check knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.nvmlsim.machine import GPU, GPU_IS_LOST, SWITCH, SimGpu, SimLink, SimMachine

TWO_SOCKETS = ("0-55,112-167", "56-111,168-223")


def _bus(index: int, numa: int = 0) -> str:
    return f"00000000:{0x18 + 0x10 * index + 0x03 * numa:02X}:00.0"


def _h100x8() -> SimMachine:
    switches = tuple(SimLink(SWITCH, f"00000000:{0x05 + link % 4:02X}:00.0") for link in range(18))
    gpus = tuple(
        SimGpu(
            "NVIDIA H100 80GB HBM3", _bus(i, i // 4), (9, 0), memory_mib=81559, numa=i // 4, bar1_mib=131072,
            power_w=700, links=switches, fabric=(3, 0, 0b1010_1010),
        )
        for i in range(8)
    )  # fmt: skip
    return SimMachine("8 x H100 SXM, NVSwitch", gpus, TWO_SOCKETS, p2p_default=(0, 0, 0, 0, 0))


def _l20x10() -> SimMachine:
    gpus = tuple(
        SimGpu(
            "NVIDIA L20", _bus(i, i // 5), (8, 9), memory_mib=46068, numa=i // 5, bar1_mib=65536, power_w=350,
            pcie_gen=4, sm_max_mhz=2520, memory_mhz=9001, mig=None,
        )
        for i in range(10)
    )  # fmt: skip
    near = {(a, a + 1): 10 for a in (0, 2, 5, 7)} | {(3, 4): 20, (8, 9): 20}
    return SimMachine("10 x L20, two sockets", gpus, ("0-31,64-95", "32-63,96-127"), ancestors=near)


def _rtx4090x2() -> SimMachine:
    gpus = tuple(
        SimGpu(
            "NVIDIA GeForce RTX 4090", _bus(i), (8, 9), memory_mib=24564, numa=0, bar1_mib=32768, power_w=450,
            pcie_gen=4, reserved_mib=480, sm_mhz=210, sm_max_mhz=3105, memory_mhz=10501, mig=None, ecc=None, remap=None,
        )
        for i in range(2)
    )  # fmt: skip
    return SimMachine("2 x RTX 4090", gpus, ("0-31",), ancestors={(0, 1): 30}, p2p_default=(5, 5, 5, 5, 5))


def _a100x4() -> SimMachine:
    buses = [_bus(i, i // 2) for i in range(4)]
    gpus = tuple(
        SimGpu(
            "NVIDIA A100 80GB PCIe", buses[i], (8, 0), memory_mib=81920, numa=i // 2, bar1_mib=131072, power_w=300,
            pcie_gen=4, sm_max_mhz=1410, memory_mhz=1512,
            links=tuple(SimLink(GPU, buses[i ^ 1], version=5) for _ in range(12)),
        )
        for i in range(4)
    )  # fmt: skip
    bridged = {(0, 1): (0, 0, 0, 0, 0), (2, 3): (0, 0, 0, 0, 0)}
    return SimMachine("4 x A100 PCIe, bridges", gpus, ("0-31", "32-63"), p2p=bridged)


def _v100x4() -> SimMachine:
    buses = [_bus(i, i // 2) for i in range(4)]
    gpus = tuple(
        SimGpu(
            "Tesla V100-SXM2-16GB", buses[i], (7, 0), memory_mib=16384, numa=i // 2, bar1_mib=16384, power_w=300,
            pcie_gen=3, reserved_mib=220, sm_max_mhz=1530, memory_mhz=877, mig=None, remap=None, retired=(0, 0, 0),
            recovery=None, links=tuple(SimLink(GPU, bus, 2) for bus in buses if bus != buses[i] for _ in range(2)),
        )
        for i in range(4)
    )  # fmt: skip
    every = {(a, b): (0, 0, 0, 0, 0) for a in range(4) for b in range(a + 1, 4)}
    return SimMachine("4 x V100 SXM2", gpus, ("0-19,40-59", "20-39,60-79"), driver="535.183.06", cuda=12020, p2p=every)


H100X8, L20X10, RTX4090X2, A100X4, V100X4 = _h100x8(), _l20x10(), _rtx4090x2(), _a100x4(), _v100x4()
HEALTHY = (H100X8, L20X10, RTX4090X2, A100X4, V100X4)


def with_gpu(machine: SimMachine, index: int, **changes: Any) -> SimMachine:
    """Return the machine with one GPU changed."""
    gpus = list(machine.gpus)
    gpus[index] = replace(gpus[index], **changes)
    return replace(machine, gpus=tuple(gpus))


def with_links(machine: SimMachine, index: int, change: Callable[[int, SimLink], SimLink]) -> SimMachine:
    """Return the machine with the links of one GPU changed."""
    links = tuple(change(i, link) for i, link in enumerate(machine.gpus[index].links))
    return with_gpu(machine, index, links=links)


def answering(machine: SimMachine, **answers: str) -> SimMachine:
    """Return the machine with answers in the library's own words, `__` standing for `/`."""
    return replace(machine, answers={key.replace("__", "/"): value for key, value in answers.items()})


LOST_CALLS = ("nvmlDeviceGetTemperature/6/0", "nvmlDeviceGetPcieReplayCounter/6", "nvmlDeviceGetBAR1MemoryInfo/6")

# The one finding that each of them is to give.
BROKEN: dict[str, tuple[str, SimMachine]] = {
    "an A40 among L20s": ("gpu-mix", with_gpu(L20X10, 3, name="NVIDIA A40", capability=(8, 6))),
    "memory taken by nobody that can be seen": ("gpu-memory", with_gpu(L20X10, 2, used_mib=44000)),
    "a process of somebody else": ("gpu-busy", with_gpu(H100X8, 5, processes=((4242, 600),), used_mib=604)),
    "a GPU at work": ("gpu-busy", with_gpu(H100X8, 0, utilization=97, used_mib=612)),
    "an uncorrected memory error": ("gpu-memory-errors", with_gpu(H100X8, 1, ecc_counts=(0, 1, 0, 1))),
    "a row remap that waits": ("gpu-memory-errors", with_gpu(H100X8, 1, remap=(0, 1, 1, 0))),
    "a row remap that failed": ("gpu-memory-errors", with_gpu(A100X4, 1, remap=(0, 8, 0, 1))),
    "retired pages that wait": ("gpu-memory-errors", with_gpu(V100X4, 1, retired=(0, 1, 1))),
    "a GPU that asks for a reset": ("gpu-recovery", with_gpu(H100X8, 4, recovery=1)),
    "a GPU too hot": ("gpu-throttled", with_gpu(H100X8, 6, throttle=0x48, temperature_c=92)),
    "a power brake": ("gpu-throttled", with_gpu(L20X10, 6, throttle=0x80)),
    "a GPU on eight lanes": ("pcie-width", with_gpu(L20X10, 9, pcie_width=8)),
    "a link down": ("nvlink-down", with_links(H100X8, 3, lambda i, link: replace(link, active=i != 7))),
    "a fabric that is not ready": ("fabric-state", with_gpu(H100X8, 2, fabric=(2, 0, 0))),
    "a fabric that refused": ("fabric-state", with_gpu(H100X8, 2, fabric=(3, 999, 0))),
    "a fabric with an unhealthy route": ("fabric-state", with_gpu(H100X8, 2, fabric=(3, 0, 0b01_1010))),
    "a GPU cut into instances": ("gpu-mode", with_gpu(A100X4, 0, mig=(1, 1))),
    "a GPU for one process": ("gpu-mode", with_gpu(L20X10, 0, compute_mode=3)),
    "peer access switched off": ("p2p-refused", replace(L20X10, p2p={(0, 1): (4, 4, 5, 4, 4)})),
    "peer access refused over NVLink": (
        "p2p-refused",
        replace(A100X4, p2p={(2, 3): (5, 5, 5, 5, 5)} | {(0, 1): (0,) * 5}),
    ),
    "a small BAR": ("bar1-small", with_gpu(L20X10, 4, bar1_mib=256)),
    "a GPU that fell off the bus": ("gpu-lost", replace(H100X8, answers=dict.fromkeys(LOST_CALLS, GPU_IS_LOST))),
    "a driver too old": ("driver-too-old", replace(L20X10, driver="520.61.05", cuda=11080)),
}
