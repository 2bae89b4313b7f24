"""Machines for the simulated NVML: described as a person would, written as the answers that the library gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

MIB = 1 << 20
GIB = 1 << 30
SWITCH, GPU = 2, 0  # what is at the other end of an NVLink
NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, FUNCTION_NOT_FOUND = "!3", "!4", "!15", "!13"
INVALID_ARGUMENT = "!2"
HANG, DIE = "hang", "die"
AFTER = "after"  # "after 1.5 ANSWER": seconds that it takes to wake a GPU that no process has open


@dataclass(frozen=True, slots=True)
class SimLink:
    """An NVLink; `version` is NVML's enum."""

    peer: int
    peer_bus: str
    version: int = 6
    active: bool = True


@dataclass(frozen=True, slots=True)
class SimGpu:
    """A GPU; None is what the driver does not offer for it."""

    name: str
    bus: str  # as NVML writes it
    capability: tuple[int, int]
    memory_mib: int
    numa: int
    bar1_mib: int
    power_w: int
    pcie_gen: int = 5
    pcie_width: int = 16
    pcie_width_max: int = 16
    reserved_mib: int = 550
    used_mib: int = 4
    links: tuple[SimLink, ...] = ()
    sm_mhz: int = 345
    sm_max_mhz: int = 1980
    memory_mhz: int = 1593
    temperature_c: int = 31
    throttle: int = 0x1
    compute_mode: int = 0
    utilization: int = 0
    processes: tuple[tuple[int, int], ...] = ()  # pid, MiB
    mig: tuple[int, int] | None = (0, 0)
    ecc: tuple[int, int] | None = (1, 1)
    ecc_counts: tuple[int, int, int, int] = (0, 0, 0, 0)  # volatile corrected, uncorrected, aggregate the same
    remap: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    retired: tuple[int, int, int] | None = None  # single, double bit, pending
    recovery: int | None = 0
    fabric: tuple[int, int, int] | None = None  # state, status, health mask


@dataclass(frozen=True, slots=True)
class SimMachine:
    """A machine: its GPUs, the levels between them, and what its calls answer in the place of the truth."""

    name: str
    gpus: tuple[SimGpu, ...]
    cpus: tuple[str, ...]  # of each NUMA node, as the kernel lists them
    driver: str = "580.95.05"
    cuda: int = 13000
    ancestors: Mapping[tuple[int, int], int] = field(
        default_factory=dict
    )  # default: NODE (40) in a node, else SYS (50)
    p2p: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    p2p_default: tuple[int, int, int, int, int] = (0, 0, 5, 0, 0)  # read, write, NVLink, atomics, PCI
    answers: Mapping[str, str] = field(default_factory=dict)  # call -> an answer in the library's own words

    def ancestor(self, a: int, b: int) -> int:
        """Return NVML's level between two GPUs."""
        same = self.gpus[a].numa == self.gpus[b].numa
        return self.ancestors.get((a, b), 40 if same else 50)


def render(machine: SimMachine) -> str:
    """Return the library's answers, one a line."""
    lines = {
        "nvmlInit": "",
        "nvmlSystemGetDriverVersion": machine.driver,
        "nvmlSystemGetCudaDriverVersion": str(machine.cuda),
        "nvmlDeviceGetCount": str(len(machine.gpus)),
    }
    for i, gpu in enumerate(machine.gpus):
        lines.update({key: value for key, value in _gpu(i, gpu, machine.cpus) if value is not None})
    for a, b in combinations(range(len(machine.gpus)), 2):
        lines[f"nvmlDeviceGetTopologyCommonAncestor/{a}/{b}"] = str(machine.ancestor(a, b))
        for capability, status in enumerate(machine.p2p.get((a, b), machine.p2p_default)):
            lines[f"nvmlDeviceGetP2PStatus/{a}/{b}/{capability}"] = str(status)
    return "".join(f"{key} {value}\n" for key, value in (lines | dict(machine.answers)).items())


def _gpu(i: int, gpu: SimGpu, cpus: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    free_mib = gpu.memory_mib - gpu.reserved_mib - gpu.used_mib
    memory = _words(*(mib * MIB for mib in (gpu.memory_mib, gpu.reserved_mib, free_mib, gpu.used_mib)))
    yield from _numbered(i, gpu)
    yield f"nvmlDeviceGetHandleByIndex/{i}", ""
    yield f"nvmlDeviceGetUUID/{i}", uuid(i)
    yield f"nvmlDeviceGetName/{i}", gpu.name
    yield f"nvmlDeviceGetPciInfo/{i}", gpu.bus
    yield f"nvmlDeviceGetMemoryInfo_v2/{i}", memory
    yield f"nvmlDeviceGetMemoryInfo/{i}", memory
    yield f"nvmlDeviceGetCpuAffinity/{i}", _words(*cpu_list(cpus[gpu.numa]))
    yield (
        f"nvmlDeviceGetComputeRunningProcesses/{i}",
        _words(*(n for pid, mib in gpu.processes for n in (pid, mib * MIB))),
    )
    counts = zip(((0, 0), (1, 0), (0, 1), (1, 1)), gpu.ecc_counts, strict=True)
    for (kind, counter), number in counts if gpu.ecc and gpu.ecc[0] else ():
        yield f"nvmlDeviceGetTotalEccErrors/{i}/{kind}/{counter}", str(number)
    for link, each in enumerate(gpu.links):
        yield from _link(i, link, each)


def _numbered(i: int, gpu: SimGpu) -> Iterator[tuple[str, str | None]]:
    single, double, pending = gpu.retired or (None, None, None)
    clocks = ((1, gpu.sm_mhz, gpu.sm_max_mhz), (2, gpu.memory_mhz, gpu.memory_mhz))
    values: dict[str, int | tuple[int, ...] | None] = {
        "MinorNumber": i,
        "CudaComputeCapability": gpu.capability,
        "BAR1MemoryInfo": gpu.bar1_mib * MIB,
        "MemoryAffinity": gpu.numa,
        "UtilizationRates": gpu.utilization,
        "ComputeMode": gpu.compute_mode,
        "PersistenceMode": 1,
        "VirtualizationMode": 0,
        "MigMode": gpu.mig,
        "EccMode": gpu.ecc,
        "RemappedRows": gpu.remap,
        "RetiredPagesPendingStatus": pending,
        "EnforcedPowerLimit": gpu.power_w * 1000,
        "PowerUsage": gpu.power_w * 100,  # idle
        "CurrPcieLinkGeneration": 1,  # idle
        "MaxPcieLinkGeneration": gpu.pcie_gen,
        "GpuMaxPcieLinkGeneration": gpu.pcie_gen,
        "CurrPcieLinkWidth": gpu.pcie_width,
        "MaxPcieLinkWidth": gpu.pcie_width_max,
        "PcieReplayCounter": 0,
        "CurrentClocksEventReasons": gpu.throttle,
        "CurrentClocksThrottleReasons": gpu.throttle,
        "GpuFabricInfoV": gpu.fabric,
    }
    for function, numbers in values.items():
        yield f"nvmlDeviceGet{function}/{i}", _optional(numbers)
    for function, argument, number in (
        ("RetiredPages", 0, single),
        ("RetiredPages", 1, double),
        ("FieldValues", 230, gpu.recovery),
    ):
        yield f"nvmlDeviceGet{function}/{i}/{argument}", _optional(number)
    yield f"nvmlDeviceGetTemperature/{i}/0", str(gpu.temperature_c)
    for clock, now_mhz, max_mhz in clocks:
        yield f"nvmlDeviceGetClockInfo/{i}/{clock}", str(now_mhz)
        yield f"nvmlDeviceGetMaxClockInfo/{i}/{clock}", str(max_mhz)


def _link(i: int, link: int, each: SimLink) -> Iterator[tuple[str, str | None]]:
    yield f"nvmlDeviceGetNvLinkState/{i}/{link}", str(int(each.active))
    yield f"nvmlDeviceGetNvLinkVersion/{i}/{link}", str(each.version)
    yield f"nvmlDeviceGetNvLinkRemoteDeviceType/{i}/{link}", str(each.peer) if each.active else None
    yield f"nvmlDeviceGetNvLinkRemotePciInfo/{i}/{link}", each.peer_bus if each.active else None
    for counter in range(3):
        yield f"nvmlDeviceGetNvLinkErrorCounter/{i}/{link}/{counter}", "0"


def uuid(i: int) -> str:
    """Return the UUID of the GPU with this index."""
    return f"GPU-{i:08x}-5eed-4a11-8c3d-0123456789ab"


def bdf(gpu: SimGpu) -> str:
    """Return the bus id as the kernel writes it."""
    return gpu.bus[4:].lower() if len(gpu.bus) == 16 else gpu.bus.lower()


def cpu_list(text: str) -> list[int]:
    """Return the CPUs of a kernel list."""
    spans = [part.partition("-") for part in text.split(",")]
    return [cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)]


def _optional(numbers: int | tuple[int, ...] | None) -> str | None:
    if numbers is None:
        return None
    return _words(*numbers) if isinstance(numbers, tuple) else str(numbers)


def _words(*numbers: int) -> str:
    return " ".join(map(str, numbers))
