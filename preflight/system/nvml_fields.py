"""The table of all NVML queries for a GPU and for a link.

A new field is a new row here and a new field of the record in model/gpu.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from preflight.system import nvml_values as values
from preflight.system.machine import Json

NUMA_WORDS = 16
CPU_WORDS = max(NUMA_WORDS, -(-(os.cpu_count() or 1) // values.WORD_BITS))
SCOPE_NODE = 0
GET_GPU_RECOVERY_ACTION = 230

Call = Callable[..., Json]  # of pynvml, the GPU's handle and for a link its number
Read = Callable[[Json], Any]


@dataclass(frozen=True, slots=True)
class NvmlField:
    """A row of the table of NVML queries: the key, the calls, and the fields that get the result."""

    key: str
    calls: tuple[tuple[str, Call], ...]  # by name; after the first, older ones for drivers or pynvmls that lack it
    facts: Mapping[str, Read]  # by the field of model/gpu.py, `record.field` within a record of the GPU's
    load: tuple[str, Read] | None = None  # the field of a LoadSample, where it is read while the GPU works


def row(
    key: str, function: str, *arguments: int, into: Callable[[Any], Json] = int, call: Call | None = None,
    older: str = "", fact: str | None = None, read: Read = int, facts: Mapping[str, Read] | None = None, load: str = "",
) -> NvmlField:  # fmt: skip
    """Return a row of the table of NVML queries.

    `into` converts the result of the NVML call `function` to JSON, and `read` converts the JSON to the field `fact`.
    """
    # `function` is the NVML call without `nvmlDeviceGet`, and `older` is the call to try if `function` is missing.
    # `facts` is for several fields. `load` is the field of LoadSample that has the value.
    names = [f"nvmlDeviceGet{each}" for each in (function, older) if each]
    # A function is looked up at the call: one that this pynvml lacks costs its value only.
    given = f"({','.join(map(str, arguments))})" if arguments else ""
    calls = [(f"{name}{given}", call or partial(_call, name, arguments, into)) for name in names]
    facts = {key if fact is None else fact: read} if facts is None else facts
    return NvmlField(key, tuple(calls), facts, (load, read) if load else None)


def _call(function: str, arguments: tuple[int, ...], into: Callable[[Any], Json], nvml: Any, *device: Any) -> Json:
    return into(getattr(nvml, function)(*device, *arguments))


def _word(meanings: Mapping[int, Any], what: str) -> Read:
    return lambda number: values.parse_number(meanings, number, what)


def _of_two(key: str) -> Mapping[str, Read]:
    """Return one parser for the present mode, and one parser for the mode after the next reset.

    The keys of the result are `key`, and `key` with the suffix `_pending`.
    """

    def read(place: int, numbers: Json) -> Any:
        return values.parse_number(values.MODES, numbers[place], key.replace("_", " "))

    return {key: partial(read, 0), f"{key}_pending": partial(read, 1)}


def _per_thousand(number: Json) -> float:
    return int(number) / 1000


def _joined(numbers: Json) -> str:
    return ".".join(str(int(number)) for number in numbers)


def _memory_v2(nvml: Any, handle: Any) -> Json:
    return values.memory_sizes(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))


def _memory(nvml: Any, handle: Any) -> Json:
    return values.memory_sizes(nvml.nvmlDeviceGetMemoryInfo(handle))


GPU_FIELDS = (
    row("uuid", "UUID", into=values.as_text, read=str),
    row("bdf", "PciInfo", into=values.pci_address, read=str),
    row("name", "Name", into=values.as_text, read=str),
    row("minor", "MinorNumber"),
    row("compute_capability", "CudaComputeCapability", into=values.whole_numbers, read=_joined),
    row("bar1_total_bytes", "BAR1MemoryInfo", into=lambda info: int(info.bar1Total)),
    row(
        "cpu_affinity", "CpuAffinity", read=partial(values.parse_set, what="cpu affinity"),
        call=lambda nvml, handle: values.bits_set(nvml.nvmlDeviceGetCpuAffinity(handle, CPU_WORDS)),
    ),
    row(
        "memory_affinity", "MemoryAffinity", read=partial(values.parse_set, what="memory affinity"),
        call=lambda nvml, handle: values.bits_set(nvml.nvmlDeviceGetMemoryAffinity(handle, NUMA_WORDS, SCOPE_NODE)),
    ),
    row("utilization_percent", "UtilizationRates", into=lambda rates: int(rates.gpu)),
    row("mig_mode", "MigMode", into=values.whole_numbers, facts={"mig_mode": _of_two("mig_mode")["mig_mode"]}),
    row("ecc_mode", "EccMode", into=values.whole_numbers, facts=_of_two("ecc_mode")),
    row("row_remap", "RemappedRows", into=values.whole_numbers, read=values.parse_row_remap),
    row("memory_numa_node", "NumaNodeId"),
    row("compute_mode", "ComputeMode", read=_word(values.COMPUTE_MODES, "compute mode")),
    row("persistence_mode", "PersistenceMode", read=_word(values.MODES, "persistence mode")),
    row("virtualization_mode", "VirtualizationMode", read=_word(values.VIRTUALIZATION_MODES, "virtualization mode")),
    row("retired_pending", "RetiredPagesPendingStatus", fact="retired_pages.is_pending", read=bool),
    row("power_limit_mw", "EnforcedPowerLimit", fact="power_limit_w", read=_per_thousand),
    row("pcie_gen", "CurrPcieLinkGeneration", fact="pcie.gen", load="pcie_gen"),
    row("pcie_gen_max", "MaxPcieLinkGeneration", fact="pcie.gen_max"),
    row("pcie_gpu_gen_max", "GpuMaxPcieLinkGeneration", fact="pcie.gpu_gen_max"),
    row("pcie_width", "CurrPcieLinkWidth", fact="pcie.width", load="pcie_width"),
    row("pcie_width_max", "MaxPcieLinkWidth", fact="pcie.width_max"),
    row("pcie_replays", "PcieReplayCounter", fact="pcie.replays"),
    row("ecc_volatile_corrected", "TotalEccErrors", 0, 0, fact="ecc.volatile_corrected"),
    row("ecc_volatile_uncorrected", "TotalEccErrors", 1, 0, fact="ecc.volatile_uncorrected"),
    row("ecc_aggregate_corrected", "TotalEccErrors", 0, 1, fact="ecc.aggregate_corrected"),
    row("ecc_aggregate_uncorrected", "TotalEccErrors", 1, 1, fact="ecc.aggregate_uncorrected"),
    row("sm_mhz", "ClockInfo", 1, fact="clocks.sm_mhz", load="sm_mhz"),
    row("memory_mhz", "ClockInfo", 2, fact="clocks.memory_mhz"),
    row("sm_max_mhz", "MaxClockInfo", 1, fact="clocks.sm_max_mhz"),
    row("memory_max_mhz", "MaxClockInfo", 2, fact="clocks.memory_max_mhz"),
    row("temperature_c", "Temperature", 0, load="temperature_c"),
    row("retired_single_bit", "RetiredPages", 0, into=len, fact="retired_pages.single_bit"),
    row("retired_double_bit", "RetiredPages", 1, into=len, fact="retired_pages.double_bit"),
    row(
        "recovery_action", "FieldValues", GET_GPU_RECOVERY_ACTION,
        call=lambda nvml, handle: values.field_value(nvml, handle, GET_GPU_RECOVERY_ACTION),
        read=_word(values.RECOVERY_ACTIONS, "recovery action"),
    ),
    row("fabric", "GpuFabricInfoV", call=values.fabric_record, read=values.parse_fabric),
    NvmlField(
        "memory",
        (("nvmlDeviceGetMemoryInfo_v2", _memory_v2), ("nvmlDeviceGetMemoryInfo", _memory)),
        {
            f"memory_{name}": partial(values.parse_memory, name=name)
            for name in ("total_bytes", "free_bytes", "used_bytes", "reserved_bytes")
        },
    ),
    row(
        "throttle_reasons", "CurrentClocksEventReasons", older="CurrentClocksThrottleReasons",
        read=values.parse_throttle_reasons, load="throttle_reasons",
    ),
    row("power_mw", "PowerUsage", facts={}, read=_per_thousand, load="power_w"),  # of the moment: no fact of the node
    # The owners of the processes are read from /proc.
    row(
        "processes", "ComputeRunningProcesses_v3", older="ComputeRunningProcesses_v2", into=values.process_records,
        facts={},
    ),
)  # fmt: skip
LOAD_FIELDS = tuple(field for field in GPU_FIELDS if field.load)
# Their calls are named `nvlink_KEY`, and take the link's number behind the handle.
LINK_FIELDS = (
    row("state", "NvLinkState", fact="is_active", read=bool),
    row("version", "NvLinkVersion", fact="generation", read=_word(values.NVLINK_GENERATIONS, "NVLink's version")),
    row("peer", "NvLinkRemoteDeviceType", read=_word(values.PEERS, "NVLink's peer")),
    row("peer_bdf", "NvLinkRemotePciInfo", into=values.pci_address, read=str),
    row("replay_errors", "NvLinkErrorCounter", 0),
    row("recovery_errors", "NvLinkErrorCounter", 1),
    row("crc_errors", "NvLinkErrorCounter", 2),
)
