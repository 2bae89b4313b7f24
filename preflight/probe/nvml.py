"""Read the driver and the GPUs as NVML gives them, from one answer: NVML is asked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from preflight.errors import UnreadableFact
from preflight.model.facts import DriverFacts, Gap, Gpu, GpuP2p, GpuPath, known
from preflight.model.gpu import Clocks, EccCounts, PcieLink, RetiredPages, RowRemap, UnreadableGpu
from preflight.probe import nvml_words as words
from preflight.probe.nvml_paths import parse_links, parse_p2p, parse_paths
from preflight.probe.processes import probe_processes
from preflight.probe.reading import answered, first_of, gap_or, parse_numa_node, parse_whole
from preflight.system.machine import Json, Machine

R = TypeVar("R")

DEVICES = "sys/bus/pci/devices"
OLD_MEMORY = "this driver counts reserved memory as used"


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """Everything that one start of NVML gives."""

    driver: DriverFacts
    gpus: tuple[Gpu, ...]
    gpu_paths: tuple[GpuPath, ...]
    gpu_p2p: tuple[GpuP2p, ...]


def probe_nvml(machine: Machine) -> NvmlFacts:
    """Return the driver and the GPUs that can be told apart; UnreadableFact where NVML does not start."""
    answer = machine.ask("nvml")
    if "error" in answer:
        raise UnreadableFact(str(answer["error"]))
    gpus = probe_gpus(machine, answer)
    pairs = [pair for pair in answer.get("pairs", ()) if {pair["a"], pair["b"]} <= {gpu.nvml_index for gpu in gpus}]
    return NvmlFacts(parse_driver(answer), gpus, parse_paths(pairs, gpus), parse_p2p(pairs))


def parse_driver(answer: Json) -> DriverFacts:
    """Return the driver's facts, with the GPUs that it counts but that can't be identified."""
    entries = [(gpu["nvml_index"], gap_or(partial(_identity, gpu))) for gpu in answer["gpus"]]
    return DriverFacts(
        version=gap_or(lambda: str(answered(answer["driver_version"]))),
        cuda=gap_or(lambda: str(answered(answer["cuda_version"]))),
        unreadable_gpus=tuple(UnreadableGpu(index, gap.reason) for index, gap in entries if isinstance(gap, Gap)),
    )


def probe_gpus(machine: Machine, answer: Json) -> tuple[Gpu, ...]:
    """Return the GPUs that have a UUID or a bus address, in NVML's order."""
    identified = ((gpu, gap_or(partial(_identity, gpu))) for gpu in answer["gpus"])
    return tuple(_gpu(machine, gpu, *identity) for gpu, identity in identified if isinstance(identity, tuple))


def _identity(gpu: Json) -> tuple[str | Gap, str | Gap]:
    """Return UUID and bus address, of which one is enough to tell the GPU from others."""
    answered(gpu)
    uuid, bdf = gap_or(lambda: str(_value(gpu, "uuid"))), gap_or(lambda: str(_value(gpu, "bdf")))
    if isinstance(uuid, Gap) and isinstance(bdf, Gap):
        raise UnreadableFact(uuid.reason)
    return uuid, bdf


def _value(gpu: Json, name: str) -> Json:
    """Return a value of the answer, which in a capture of another version may lack it."""
    if name not in gpu:
        raise UnreadableFact("not asked by the version that made the capture")
    return answered(gpu[name])


def _gpu(machine: Machine, gpu: Json, uuid: str | Gap, bdf: str | Gap) -> Gpu:
    return Gpu(
        nvml_index=gpu["nvml_index"],
        uuid=uuid,
        bdf=bdf,
        name=gap_or(lambda: str(_value(gpu, "name"))),
        memory_total_bytes=_memory(gpu, "total_bytes"),
        memory_free_bytes=_memory(gpu, "free_bytes"),
        memory_used_bytes=_memory(gpu, "used_bytes"),
        memory_reserved_bytes=_memory(gpu, "reserved_bytes"),
        bar1_total_bytes=_number(gpu, "bar1_total_bytes"),
        minor=_number(gpu, "minor"),
        compute_capability=gap_or(lambda: ".".join(str(int(part)) for part in _value(gpu, "compute_capability"))),
        numa_node=gap_or(lambda: _numa_node(machine, gpu, bdf)),
        cpu_affinity=gap_or(lambda: _set(gpu, "cpu_affinity")),
        memory_affinity=gap_or(lambda: _set(gpu, "memory_affinity")),
        memory_numa_node=_number(gpu, "memory_numa_node"),
        processes=gap_or(lambda: probe_processes(machine, _value(gpu, "processes"))),
        utilization_percent=_number(gpu, "utilization_percent"),
        compute_mode=_word(words.COMPUTE_MODES, gpu, "compute_mode"),
        mig_mode=_mode_of_two(gpu, "mig_mode", 0),
        persistence_mode=_word(words.MODES, gpu, "persistence_mode"),
        virtualization_mode=_word(words.VIRTUALIZATION_MODES, gpu, "virtualization_mode"),
        ecc_mode=_mode_of_two(gpu, "ecc_mode", 0),
        ecc_mode_pending=_mode_of_two(gpu, "ecc_mode", 1),
        ecc=_record(EccCounts, lambda name: _number(gpu, f"ecc_{name}")),
        row_remap=gap_or(lambda: _row_remap(gpu)),
        retired_pages=_retired(gpu),
        recovery_action=_word(words.RECOVERY_ACTIONS, gpu, "recovery_action"),
        clocks=_record(Clocks, lambda name: _number(gpu, name)),
        throttle_reasons=gap_or(lambda: words.parse_throttle_reasons(_value(gpu, "throttle_reasons"))),
        temperature_c=_number(gpu, "temperature_c"),
        power_limit_w=gap_or(lambda: int(_value(gpu, "power_limit_mw")) / 1000),
        pcie=_pcie(machine, gpu, bdf),
        nvlinks=gap_or(lambda: parse_links(_value(gpu, "nvlinks"))),
        fabric=gap_or(lambda: words.parse_fabric(_value(gpu, "fabric"))),
    )


def _number(gpu: Json, name: str) -> int | Gap:
    return gap_or(lambda: int(_value(gpu, name)))


def _word(meanings: Mapping[int, R], gpu: Json, name: str) -> R | Gap:
    return gap_or(lambda: words.parse_number(meanings, _value(gpu, name), name.replace("_", " ")))


def _mode_of_two(gpu: Json, name: str, place: int) -> Any:
    """Return the mode now (0) or after the next reset (1)."""
    return gap_or(lambda: words.parse_number(words.MODES, _value(gpu, name)[place], name.replace("_", " ")))


def _set(gpu: Json, name: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in _value(gpu, name))
    if not numbers:
        raise UnreadableFact(f"NVML gave an empty {name.replace('_', ' ')}")
    return numbers


def _memory(gpu: Json, name: str) -> int | Gap:
    sizes = gap_or(lambda: dict(_value(gpu, "memory")))
    return sizes if isinstance(sizes, Gap) else int(sizes[name]) if name in sizes else Gap(OLD_MEMORY)


def _numa_node(machine: Machine, gpu: Json, bdf: str | Gap) -> int:
    """Return the node that the kernel gives, else the one whose memory NVML calls near."""

    def by_nvml() -> int:
        near = _set(gpu, "memory_affinity")
        if len(near) != 1:
            raise UnreadableFact(f"NVML calls {len(near)} NUMA nodes near")
        return near[0]

    return first_of(lambda: parse_numa_node(machine.text(f"{DEVICES}/{known(bdf)}/numa_node")), by_nvml)


def _record(kind: Callable[..., R], value: Callable[[str], object]) -> R | Gap:
    """Return the record, or one Gap where nothing of it could be read and all for the same reason."""
    values = {field.name: value(field.name) for field in fields(kind)}  # type: ignore[arg-type]
    reasons = {each.reason for each in values.values() if isinstance(each, Gap)}
    if len(reasons) == 1 and all(isinstance(each, Gap) for each in values.values()):
        return Gap(reasons.pop())
    return kind(**values)


def _row_remap(gpu: Json) -> RowRemap:
    correctable, uncorrectable, pending, failed = (int(number) for number in _value(gpu, "row_remap"))
    return RowRemap(correctable, uncorrectable, is_pending=bool(pending), has_failed=bool(failed))


def _retired(gpu: Json) -> RetiredPages | Gap:
    def value(name: str) -> object:
        if name == "is_pending":
            return gap_or(lambda: bool(_value(gpu, "retired_pending")))
        return _number(gpu, f"retired_{name}")

    return _record(RetiredPages, value)


def _pcie(machine: Machine, gpu: Json, bdf: str | Gap) -> PcieLink | Gap:
    files = {"width": "current_link_width", "width_max": "max_link_width"}
    answers = {"gpu_gen_max": "pcie_gpu_gen_max"}

    def value(name: str) -> object:
        read: list[Callable[[], int]] = [lambda: int(_value(gpu, answers.get(name, f"pcie_{name}")))]
        if name in files:
            read.append(lambda: parse_whole(machine.text(f"{DEVICES}/{known(bdf)}/{files[name]}"), files[name]))
        return gap_or(lambda: first_of(*read))

    return _record(PcieLink, value)
