"""Read the driver and the GPUs as NVML gives them, from one answer: NVML is asked once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from preflight.errors import UnreadableFact
from preflight.model.facts import DriverFacts, Gap, Gpu, UnreadableGpu
from preflight.probe.reading import answered, gap_or
from preflight.system.machine import Json, Machine


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """Everything that one start of NVML gives."""

    driver: DriverFacts
    gpus: tuple[Gpu, ...]


def probe_nvml(machine: Machine) -> NvmlFacts:
    """Return the driver and the GPUs that can be told apart; UnreadableFact where NVML does not start."""
    answer = machine.ask("nvml")
    if "error" in answer:
        raise UnreadableFact(str(answer["error"]))
    return NvmlFacts(driver=parse_driver(answer), gpus=parse_gpus(answer))


def parse_driver(answer: Json) -> DriverFacts:
    """Return the driver's facts, with the GPUs that it counts but that can't be identified."""
    entries = [(gpu["nvml_index"], gap_or(partial(_identity, gpu))) for gpu in answer["gpus"]]
    return DriverFacts(
        version=gap_or(lambda: str(answered(answer["driver_version"]))),
        cuda=gap_or(lambda: str(answered(answer["cuda_version"]))),
        unreadable_gpus=tuple(UnreadableGpu(index, gap.reason) for index, gap in entries if isinstance(gap, Gap)),
    )


def parse_gpus(answer: Json) -> tuple[Gpu, ...]:
    """Return the GPUs that have a UUID and a bus address, in NVML's order."""
    identified = ((gpu, gap_or(partial(_identity, gpu))) for gpu in answer["gpus"])
    return tuple(_parse_gpu(gpu, *identity) for gpu, identity in identified if isinstance(identity, tuple))


def _identity(gpu: Json) -> tuple[str, str]:
    answered(gpu)
    return str(answered(gpu["uuid"])), str(answered(gpu["bdf"]))


def _parse_gpu(gpu: Json, uuid: str, bdf: str) -> Gpu:
    return Gpu(
        nvml_index=gpu["nvml_index"],
        uuid=uuid,
        bdf=bdf,
        name=gap_or(lambda: str(answered(gpu["name"]))),
        memory_total_bytes=gap_or(lambda: int(answered(gpu["memory_total_bytes"]))),
        memory_free_bytes=gap_or(lambda: int(answered(gpu["memory_free_bytes"]))),
    )
