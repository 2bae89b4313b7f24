"""More machines, and what an operator meets on them in a week; the rows of circumstances.toml join both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from preflight.system.nvml_values import NO_FIELD
from tests.accept.machines import MACHINES, Machine, _unplugged
from tests.nvmlsim.machine import (
    AFTER,
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    SWITCH,
    SimGpu,
    SimLink,
    SimMachine,
)
from tests.nvmlsim.machines import A100X4, H100X8, RTX4090X2
from tests.sysroot import build

CLOCK = 20.0  # NVML's clock runs so many times as fast as it says: 5 s per GPU are played in 0.25 s
UNKNOWN, MISMATCH = "!999", "!18"
H100, L20 = MACHINES[H100X8.name], MACHINES["10 x L20, two sockets"]


def _every(machine: SimMachine, code: str, *calls: str) -> SimMachine:
    """Return the machine with this answer of every GPU to these calls; `/*` at the end stands for what follows."""
    answers = {call.format(i=i): code for i in range(len(machine.gpus)) for call in calls}
    return replace(machine, answers={**machine.answers, **answers})


def _get(*names: str) -> tuple[str, ...]:
    return tuple(f"nvmlDeviceGet{name}/{{i}}" for name in names)


def _renamed(machine: SimMachine, name: str, **gpu: object) -> SimMachine:
    return replace(machine, name=name, gpus=tuple(replace(each, **gpu) for each in machine.gpus))  # type: ignore[arg-type]


def _b200() -> Machine:
    links = tuple(SimLink(SWITCH, f"00000000:{0x05 + link % 2:02X}:00.0", version=7) for link in range(18))
    made = _renamed(H100X8, "8 x B200", capability=(10, 0), memory_mib=183359, links=links, power_w=1000)
    return replace(H100, gpus=_renamed(made, "8 x B200"))


def _rtx4090x8() -> Machine:
    gpus = tuple(replace(RTX4090X2.gpus[0], bus=f"00000000:{0x18 + i:02X}:00.0", numa=i // 4) for i in range(8))
    near = {(a, a + 1): 10 for a in range(0, 8, 2)}
    machine = replace(RTX4090X2, name="8 x RTX 4090", gpus=gpus, cpus=("0-31", "32-63"), ancestors=near)
    return Machine(machine, transport="SHM/direct/direct")


def _gb10() -> Machine:
    one = SimGpu(
        "NVIDIA GB10", "0000000F:01:00.0", (12, 1), memory_mib=1, numa=0, bar1_mib=1, power_w=140, mig=None, ecc=None,
        remap=None,
    )  # fmt: skip
    absent = _get("MemoryInfo_v2", "MemoryInfo", "BAR1MemoryInfo", "EnforcedPowerLimit", "MaxPcieLinkGeneration",
                  "CurrPcieLinkWidth", "CurrPcieLinkGeneration", "MaxPcieLinkWidth")  # fmt: skip
    return Machine(_every(SimMachine("GB10, DGX Spark", (one,), ("0-19",)), NOT_SUPPORTED, *absent))


def _laptop() -> Machine:
    one = replace(RTX4090X2.gpus[0], name="NVIDIA GeForce RTX 4070 Laptop GPU", memory_mib=8188, throttle=0x4)
    return Machine(SimMachine("laptop", (one,), ("0-15",)))


def _small(name: str, memory_mib: int, bridged: bool) -> Machine:
    card = "NVIDIA A30" if name == "A30" else "NVIDIA A40"
    capability = (8, 0) if name == "A30" else (8, 6)
    made = _renamed(A100X4, f"4 x {name}", memory_mib=memory_mib, capability=capability)
    made = replace(made, gpus=tuple(replace(each, name=card, links=each.links[:4]) for each in made.gpus))
    return Machine(made if bridged else _unplugged(made), transport="SHM/direct/direct")


def _cloud(name: str, nics: int, layer: str) -> Machine:
    guest = MACHINES["8 x H100 in a virtual machine with EFA"]
    return replace(guest, gpus=replace(guest.gpus, name=name), nics=nics, layer=layer)


def _wsl(count: int) -> Machine:
    machine = replace(RTX4090X2, name=f"WSL2, {count} GPU", gpus=RTX4090X2.gpus[:count])
    absent = _get("MinorNumber", "CpuAffinity", "MemoryAffinity", "ComputeRunningProcesses", "PersistenceMode",
                  "PcieReplayCounter", "VirtualizationMode", "MigMode", "NumaNodeId", "UtilizationRates")  # fmt: skip
    machine = _every(machine, NOT_SUPPORTED, *absent, "nvmlDeviceGetFieldValues/{i}/230")
    return Machine(machine, transport="SHM/direct/direct")


def _h20() -> SimMachine:
    made = _renamed(H100X8, "8 x H20", memory_mib=97871, power_w=500)
    return replace(made, gpus=tuple(replace(each, name="NVIDIA H20") for each in made.gpus))


BASES: Mapping[str, Machine] = {
    "DGX H100": H100,
    "HGX B200": _b200(),
    "GB200 tray": MACHINES["4 x GB200, a tray"],
    "10 x L20": L20,
    "8 x RTX 4090": _rtx4090x8(),
    "V100 VM": MACHINES["4 x V100 in a virtual machine, two of six links lead nowhere"],
    "AWS p5": MACHINES["8 x H100 in a virtual machine with EFA"],
    "GCP a3-mega": _cloud("GCP a3-mega", 8, "Ethernet"),
    "Azure ND H100": _cloud("Azure ND H100", 8, "InfiniBand"),
    "laptop": _laptop(),
    "WSL2": _wsl(1),
    "WSL2, 2 GPUs": _wsl(2),
    "A30 without bridges": _small("A30", 24576, False),
    "A30 with bridges": _small("A30", 24576, True),
    "A40 without bridges": _small("A40", 46068, False),
    "A40 with bridges": _small("A40", 46068, True),
    "H20": replace(H100, gpus=_h20()),
    "GB10": _gb10(),
}


@dataclass(frozen=True, slots=True)
class Circumstance:
    """What is different about a machine: its driver's answers, and its files."""

    change: Callable[[Machine], Machine]
    of_files: Callable[[Path], object] = lambda _: None


def _nvml(change: Callable[[SimMachine], SimMachine]) -> Circumstance:
    return Circumstance(lambda machine: replace(machine, gpus=change(machine.gpus)))


def _waking(seconds: float) -> Circumstance:
    return _nvml(lambda sim: _every(sim, f"{AFTER} {seconds / CLOCK}", "nvmlDeviceGetHandleByIndex/{i}"))


NO_FIELD_230, NO_FIELD_AT_ALL = "nvmlDeviceGetFieldValues/{i}/230", f"nvmlDeviceGetFieldValues/{{i}}/{NO_FIELD}"
# What a driver before each of these branches does not know (NVML's own "since", nvml.h of 595).
OLD_CALLS = {
    510: _get("MemoryInfo_v2"),
    535: _get("CurrentClocksEventReasons", "GpuFabricInfoV"),
    565: (),
}


def _driver(branch: int, version: str, cuda: int, code: str = INVALID_ARGUMENT) -> Circumstance:
    absent = tuple(call for since, calls in OLD_CALLS.items() if branch < since for call in calls)

    def change(sim: SimMachine) -> SimMachine:
        made = _every(replace(sim, driver=version, cuda=cuda), FUNCTION_NOT_FOUND, *absent)
        return _every(made, code, NO_FIELD_230, NO_FIELD_AT_ALL) if branch < 565 else made

    built_for = "11.8" if cuda < 12000 else "12.8"
    return Circumstance(lambda machine: replace(machine, gpus=change(machine.gpus), torch_cuda=built_for))


def _counters(sim: SimMachine, code: str) -> SimMachine:
    links = range(max((len(gpu.links) for gpu in sim.gpus), default=0))
    calls = [f"nvmlDeviceGetNvLinkErrorCounter/{{i}}/{link}/{counter}" for link in links for counter in range(3)]
    return _every(sim, code, *calls, *_get("PcieReplayCounter"))


def _exclusive(sim: SimMachine) -> SimMachine:
    return replace(sim, gpus=tuple(replace(each, compute_mode=3) for each in sim.gpus))


def _mps(sim: SimMachine) -> SimMachine:
    return replace(sim, gpus=tuple(replace(each, compute_mode=3, processes=((777, 30),)) for each in sim.gpus))


def _busy(sim: SimMachine) -> SimMachine:
    first = replace(sim.gpus[0], processes=((4242, 2048),), used_mib=2052, utilization=80)
    return replace(sim, gpus=(first, *sim.gpus[1:]))


def _some_mig(sim: SimMachine) -> SimMachine:
    gpus = tuple(replace(gpu, mig=(1, 1)) if i < len(sim.gpus) // 2 else gpu for i, gpu in enumerate(sim.gpus))
    return replace(sim, gpus=gpus)


def _half(sim: SimMachine) -> SimMachine:
    return replace(sim, gpus=sim.gpus[: len(sim.gpus) // 2])


def _dxg(root: Path) -> None:
    for file in (root / "dev").glob("nvidia*"):
        file.unlink()
    for folder in ("sys/bus/pci/devices", "sys/module/nvidia"):
        shutil.rmtree(root / folder, ignore_errors=True)
    build(root, {"sys/bus/pci/devices/": "", "dev/dxg": ""})


CIRCUMSTANCES: Mapping[str, Circumstance] = {
    "persistence on": _nvml(lambda sim: sim),
    "waking, 1 s per GPU": _waking(1.0),
    "waking, 2.5 s per GPU": _waking(2.5),
    "waking, 5 s per GPU": _waking(5.0),
    "driver R470": _driver(470, "470.256.02", 11040, FUNCTION_NOT_FOUND),
    "driver R535": _driver(535, "535.183.06", 12020),
    "driver R550": _driver(550, "550.127.05", 12040),
    "driver R550 that answers UNKNOWN": _driver(550, "550.127.05", 12040, UNKNOWN),
    "driver R570": _driver(570, "570.133.20", 12080),
    "driver R590": _driver(590, "590.44.01", 13010),
    "EXCLUSIVE_PROCESS": _nvml(_exclusive),
    "counters refused: no permission": _nvml(lambda sim: _counters(sim, NO_PERMISSION)),
    "counters refused: invalid argument": _nvml(lambda sim: _counters(sim, INVALID_ARGUMENT)),
    "counters not supported": _nvml(lambda sim: _counters(sim, NOT_SUPPORTED)),
    "unused NVLink ports": Circumstance(
        lambda machine: replace(machine, gpus=_unplugged(machine.gpus), transport="SHM/direct/direct", has_nvls=False)
    ),
    "container that lost its GPUs (daemon-reload)": Circumstance(
        lambda machine: replace(machine, container=True, gpus=replace(machine.gpus, answers={"nvmlInit": UNKNOWN}))
    ),
    "driver updated, old kernel module loaded": _nvml(lambda sim: replace(sim, answers={"nvmlInit": MISMATCH})),
    "cgroup that shows half of the GPUs": Circumstance(
        lambda machine: replace(machine, gpus=_half(machine.gpus), container=True, has_nvls=False)
    ),
    "MIG on half of the GPUs": _nvml(_some_mig),
    "MPS server on every GPU": _nvml(_mps),
    "another user's process on GPU 0": _nvml(_busy),
    "Fabric Manager of another version": _nvml(
        lambda sim: replace(sim, gpus=tuple(replace(each, fabric=(2, 0, 0)) for each in sim.gpus))
    ),
    "NVML that answers UNKNOWN to the name of GPU 0": _nvml(
        lambda sim: replace(sim, answers={**sim.answers, "nvmlDeviceGetName/0": UNKNOWN})
    ),
}


def machine_of(base: str, circumstance: str) -> tuple[Machine, Callable[[Path], object]]:
    """Return a machine under a circumstance, and the change of its files."""
    made = CIRCUMSTANCES[circumstance]
    of_files = _dxg if base.startswith("WSL2") else made.of_files
    return made.change(BASES[base]), of_files
