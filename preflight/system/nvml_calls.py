"""Every call that is made to NVML, in order, each by itself.

Traps of pynvml and NVML: the P2P capabilities are passed as numbers, since `NVML_P2P_CAPS_INDEX_READ` is a tuple by a
stray comma; links may be sparse up to 36; each field value carries its own return code, and so does the fabric's state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

from preflight.system.machine import Json
from preflight.system.nvml_values import (
    WORD_BITS,
    as_text,
    bits_set,
    cuda_version,
    fabric_record,
    field_value,
    memory_sizes,
    normalise_bdf,
    process_record,
    retired_count,
)
from preflight.system.stepwise import Asker

MOST_LINKS = 36
MOST_GPUS = 1024
NUMA_WORDS = 16
SCOPE_NODE = 0
P2P_CAPABILITIES = range(5)  # read, write, NVLink, atomics, PCI
GET_GPU_RECOVERY_ACTION = 230
NO_SUCH_LINK = ("NVMLError_NotSupported", "NVMLError_InvalidArgument")
NOT_AT_ALL = ("NVMLError_FunctionNotFound", "NVMLError_GpuIsLost", "NVMLError_ResetRequired", "NVMLError_NoPermission")

Call = Callable[[Any], Json]


def read_all(nvml: Any, start: Callable[[], None], asker: Asker) -> Json:
    """Return the whole answer; where the asker makes no calls, from what is known."""
    asker.again("nvmlInit", start)
    started = asker.outcome("nvmlInit")
    if is_unreadable(started):
        return {"error": started["unreadable"]}
    count = asker.ask("nvmlDeviceGetCount", lambda: int(nvml.nvmlDeviceGetCount()))
    if is_unreadable(count):
        return {"error": f"the GPUs can't be counted: {count['unreadable']}"}
    handles = [
        asker.again(f"nvmlDeviceGetHandleByIndex/{i}", partial(nvml.nvmlDeviceGetHandleByIndex, i))
        for i in range(min(count, MOST_GPUS))
    ]
    opened = [asker.outcome(f"nvmlDeviceGetHandleByIndex/{i}") for i in range(len(handles))]
    readable = [i for i, outcome in enumerate(opened) if not is_unreadable(outcome)]
    answer = {
        "driver_version": asker.ask("nvmlSystemGetDriverVersion", lambda: as_text(nvml.nvmlSystemGetDriverVersion())),
        "cuda_version": asker.ask(
            "nvmlSystemGetCudaDriverVersion", lambda: cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2())
        ),
        "gpus": [
            _gpu(nvml, asker, i, handles[i]) if i in readable else {"nvml_index": i, **opened[i]}
            for i in range(len(handles))
        ],
        "pairs": [_pair(nvml, asker, (a, handles[a]), (b, handles[b])) for a, b in combinations(readable, 2)],
    }
    asker.again("nvmlShutdown", nvml.nvmlShutdown)
    return answer


def is_unreadable(answer: Json) -> bool:
    """Tell whether an answer says that it could not be read."""
    return isinstance(answer, dict) and "unreadable" in answer


def _gpu(nvml: Any, asker: Asker, index: int, handle: Any) -> Json:
    answer: dict[str, Json] = {"nvml_index": index}
    for name, alternatives in _values(nvml):
        for function, call in alternatives:
            answer[name] = asker.ask(f"{function}/{index}", partial(call, handle))
            if not is_unreadable(answer[name]) or "error" not in answer[name]:
                break  # a call that hung is not tried under another name
    answer["nvlinks"] = _links(nvml, asker, index, handle)
    return answer


def _values(nvml: Any) -> Iterator[tuple[str, list[tuple[str, Call]]]]:
    """Yield each value of a GPU with the call that gives it, and older calls for drivers or pynvmls that lack it."""
    yield from ((name, [(function, call)]) for name, function, call in _single(nvml))
    yield (
        "memory",
        [
            (
                "nvmlDeviceGetMemoryInfo_v2",
                lambda h: memory_sizes(nvml.nvmlDeviceGetMemoryInfo(h, version=nvml.nvmlMemory_v2)),
            ),
            ("nvmlDeviceGetMemoryInfo", lambda h: memory_sizes(nvml.nvmlDeviceGetMemoryInfo(h))),
        ],
    )
    yield (
        "throttle_reasons",
        [
            ("nvmlDeviceGetCurrentClocksEventReasons", lambda h: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(h))),
            (
                "nvmlDeviceGetCurrentClocksThrottleReasons",
                lambda h: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
            ),
        ],
    )
    yield (
        "processes",
        [
            (name, partial(_processes, nvml, name))
            for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
        ],
    )


def _single(nvml: Any) -> Iterator[tuple[str, str, Call]]:
    cpu_words = max(NUMA_WORDS, -(-(os.cpu_count() or 1) // WORD_BITS))
    yield "uuid", "nvmlDeviceGetUUID", lambda h: as_text(nvml.nvmlDeviceGetUUID(h))
    yield "bdf", "nvmlDeviceGetPciInfo", lambda h: normalise_bdf(as_text(nvml.nvmlDeviceGetPciInfo(h).busId))
    yield "name", "nvmlDeviceGetName", lambda h: as_text(nvml.nvmlDeviceGetName(h))
    yield "minor", "nvmlDeviceGetMinorNumber", lambda h: int(nvml.nvmlDeviceGetMinorNumber(h))
    yield "compute_capability", *_whole_numbers(nvml, "nvmlDeviceGetCudaComputeCapability")
    yield (
        "bar1_total_bytes",
        "nvmlDeviceGetBAR1MemoryInfo",
        lambda h: int(nvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total),
    )
    yield "cpu_affinity", "nvmlDeviceGetCpuAffinity", lambda h: bits_set(nvml.nvmlDeviceGetCpuAffinity(h, cpu_words))
    yield (
        "memory_affinity",
        "nvmlDeviceGetMemoryAffinity",
        lambda h: bits_set(nvml.nvmlDeviceGetMemoryAffinity(h, NUMA_WORDS, SCOPE_NODE)),
    )
    yield (
        "utilization_percent",
        "nvmlDeviceGetUtilizationRates",
        lambda h: int(nvml.nvmlDeviceGetUtilizationRates(h).gpu),
    )
    for name, function in (("mig_mode", "MigMode"), ("ecc_mode", "EccMode"), ("row_remap", "RemappedRows")):
        yield name, *_whole_numbers(nvml, f"nvmlDeviceGet{function}")
    for name, function in NUMBERS:
        yield name, *_whole_number(nvml, f"nvmlDeviceGet{function}")
    for name, function, *arguments in NUMBERS_OF:
        yield name, *_whole_number(nvml, f"nvmlDeviceGet{function}", *arguments)
    for name, cause in (("retired_single_bit", 0), ("retired_double_bit", 1)):
        yield name, f"nvmlDeviceGetRetiredPages({cause})", partial(retired_count, nvml, cause)
    yield "recovery_action", "nvmlDeviceGetFieldValues(230)", lambda h: field_value(nvml, h, GET_GPU_RECOVERY_ACTION)
    yield "fabric", "nvmlDeviceGetGpuFabricInfoV", lambda h: fabric_record(nvml, h)


NUMBERS = (
    ("memory_numa_node", "NumaNodeId"),
    ("compute_mode", "ComputeMode"),
    ("persistence_mode", "PersistenceMode"),
    ("virtualization_mode", "VirtualizationMode"),
    ("retired_pending", "RetiredPagesPendingStatus"),
    ("power_limit_mw", "EnforcedPowerLimit"),
    ("pcie_gen", "CurrPcieLinkGeneration"),
    ("pcie_gen_max", "MaxPcieLinkGeneration"),
    ("pcie_gpu_gen_max", "GpuMaxPcieLinkGeneration"),
    ("pcie_width", "CurrPcieLinkWidth"),
    ("pcie_width_max", "MaxPcieLinkWidth"),
    ("pcie_replays", "PcieReplayCounter"),
)
NUMBERS_OF = (
    ("ecc_volatile_corrected", "TotalEccErrors", 0, 0),
    ("ecc_volatile_uncorrected", "TotalEccErrors", 1, 0),
    ("ecc_aggregate_corrected", "TotalEccErrors", 0, 1),
    ("ecc_aggregate_uncorrected", "TotalEccErrors", 1, 1),
    ("sm_mhz", "ClockInfo", 1),
    ("memory_mhz", "ClockInfo", 2),
    ("sm_max_mhz", "MaxClockInfo", 1),
    ("memory_max_mhz", "MaxClockInfo", 2),
    ("temperature_c", "Temperature", 0),
)
LINK_VALUES = (
    ("state", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkState(h, link))),
    ("version", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkVersion(h, link))),
    ("peer", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(h, link))),
    ("peer_bdf", lambda nvml, h, link: normalise_bdf(as_text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(h, link).busId))),
    ("replay_errors", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkErrorCounter(h, link, 0))),
    ("recovery_errors", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkErrorCounter(h, link, 1))),
    ("crc_errors", lambda nvml, h, link: int(nvml.nvmlDeviceGetNvLinkErrorCounter(h, link, 2))),
)


def _links(nvml: Any, asker: Asker, index: int, handle: Any) -> Json:
    """Return one entry per link that is there; none where the GPU has no NVLink."""
    links = []
    for link in range(MOST_LINKS):
        entry: dict[str, Json] = {"link": link}
        for name, call in LINK_VALUES:
            entry[name] = asker.ask(f"nvlink_{name}/{index}/{link}", partial(call, nvml, handle, link))
            if name == "state" and is_unreadable(entry[name]) and entry[name].get("error") in NO_SUCH_LINK:
                break
            if name == "state" and is_unreadable(entry[name]) and entry[name].get("error") in NOT_AT_ALL:
                return entry[name]
        else:
            links.append(entry)
    return links


def _pair(nvml: Any, asker: Asker, first: tuple[int, Any], second: tuple[int, Any]) -> Json:
    (a, one), (b, other) = first, second
    ancestor = asker.ask(
        f"nvmlDeviceGetTopologyCommonAncestor/{a}/{b}",
        lambda: int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)),
    )
    p2p = [
        asker.ask(f"nvmlDeviceGetP2PStatus/{a}/{b}/{c}", partial(_p2p_status, nvml, one, other, c))
        for c in P2P_CAPABILITIES
    ]
    return {"a": a, "b": b, "ancestor": ancestor, "p2p": p2p}


def _p2p_status(nvml: Any, one: Any, other: Any, capability: int) -> Json:
    return int(nvml.nvmlDeviceGetP2PStatus(one, other, capability))


def _processes(nvml: Any, function: str, handle: Any) -> Json:
    return [process_record(entry) for entry in getattr(nvml, function)(handle)]


def _whole_number(nvml: Any, function: str, *arguments: int) -> tuple[str, Call]:
    # Looked up at the call: a function that this pynvml lacks costs its value only.
    given = f"({','.join(map(str, arguments))})" if arguments else ""
    return f"{function}{given}", lambda h: int(getattr(nvml, function)(h, *arguments))


def _whole_numbers(nvml: Any, function: str) -> tuple[str, Call]:
    return function, lambda h: [int(number) for number in getattr(nvml, function)(h)]
