"""Read the values of the driver and the GPUs from one reply to an NVML query."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from preflight.errors import UnreadableFact
from preflight.facts.pci_bus import DEVICES
from preflight.facts.reading import answered, first_of, gap_or, parse_numa_node, parse_whole
from preflight.model.facts import DriverFacts, Gap, Gpu, GpuP2p, GpuPath, known
from preflight.model.gap import NOT_OFFERED
from preflight.model.gpu import (
    Clocks,
    EccCounts,
    GpuProcess,
    NvLink,
    PcieLink,
    RetiredPages,
    UnreadableGpu,
    leads_to_switch,
)
from preflight.system import nvml_values as values
from preflight.system.machine import Json, Machine
from preflight.system.nvml_fields import GPU_FIELDS, LINK_FIELDS, NvmlField

R = TypeVar("R")

RECORDS = {"ecc": EccCounts, "retired_pages": RetiredPages, "clocks": Clocks, "pcie": PcieLink}
WIDTH_FILES = {"pcie.width": "current_link_width", "pcie.width_max": "max_link_width"}
LINK_DOWN = "the link is down"
# PROC_PID_INIT_INO: in any other namespace NVML's pids, which are the host's, name other processes or none.
HOST_PID_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """All values from one NVML session, about the driver, the GPUs, and the paths and P2P status between GPUs."""

    driver: DriverFacts
    gpus: tuple[Gpu, ...]
    gpu_paths: tuple[GpuPath, ...]
    gpu_p2p: tuple[GpuP2p, ...]


def probe_nvml(machine: Machine) -> NvmlFacts:
    """Return the NVML values of the driver and the GPUs.

    A GPU without a readable identity is only listed as an unreadable GPU. Raise UnreadableFact if NVML does not start.
    """
    answer = machine.ask("nvml")
    if "error" in answer:
        raise UnreadableFact(str(answer["error"]))
    identities = [(gpu, gap_or(partial(_identity, gpu))) for gpu in answer["gpus"]]
    gpus = tuple(_gpu(machine, gpu, identity) for gpu, identity in identities if isinstance(identity, dict))
    by_index = {gpu.nvml_index: gpu for gpu in gpus}
    pairs = [pair for pair in answer.get("pairs", ()) if {pair["a"], pair["b"]} <= by_index.keys()]
    paths = tuple(GpuPath(pair["a"], pair["b"], gap_or(partial(_level, pair, by_index))) for pair in pairs)
    driver = DriverFacts(
        version=gap_or(lambda: str(answered(answer["driver_version"]))),
        cuda=gap_or(lambda: str(answered(answer["cuda_version"]))),
        unreadable_gpus=tuple(
            UnreadableGpu(gpu["nvml_index"], gap.reason) for gpu, gap in identities if isinstance(gap, Gap)
        ),
        is_confidential=_is_confidential(answer),
    )
    return NvmlFacts(driver, gpus, paths, _p2p(pairs))


def _is_confidential(answer: Json) -> bool | Gap:
    """Return whether confidential computing is on.

    Return False if the driver does not offer confidential computing.
    """
    fact = read_fact(answer, "is_confidential", bool)
    return False if isinstance(fact, Gap) and fact.reason.startswith(NOT_OFFERED) else fact


def read_fact(answer: Json, key: str, parse: Callable[[Json], R]) -> R | Gap:
    """Return the parsed value of `answer[key]` in NVML's reply, or a Gap object with the reason."""
    # The key may be missing in a capture from another version of preflight.
    if key not in answer:
        return Gap("the version that made the capture did not read this value")
    return gap_or(lambda: parse(answered(answer[key])))


def _facts(answer: Json, table: Iterable[NvmlField]) -> dict[str, Any]:
    return {name: read_fact(answer, row.key, parse) for row in table for name, parse in row.facts.items()}


def _identity(gpu: Json) -> dict[str, Any]:
    """Return {name: value} for the facts of a GPU.

    Raise UnreadableFact if neither the UUID nor the bus address of the GPU is known.
    """
    answered(gpu)
    facts = _facts(gpu, GPU_FIELDS)
    if isinstance(facts["uuid"], Gap) and isinstance(facts["bdf"], Gap):
        raise UnreadableFact(facts["uuid"].reason)
    return facts


def _gpu(machine: Machine, answer: Json, facts: dict[str, Any]) -> Gpu:
    device = gap_or(lambda: f"{DEVICES}/{known(facts['bdf'])}")
    for name, file in WIDTH_FILES.items():
        facts[name] = gap_or(partial(_width, machine, device, facts[name], file))
    records = {name: _record(kind, name, facts) for name, kind in RECORDS.items()}
    plain = {name: fact for name, fact in facts.items() if "." not in name}
    return Gpu(
        nvml_index=answer["nvml_index"],
        numa_node=gap_or(lambda: _numa_node(machine, device, facts["memory_affinity"])),
        processes=read_fact(answer, "processes", lambda each: tuple(_process(machine, entry) for entry in each)),
        nvlinks=read_fact(answer, "nvlinks", lambda links: tuple(map(_link, links))),
        **plain,
        **records,
    )


def _width(machine: Machine, device: str | Gap, by_nvml: int | Gap, file: str) -> int:
    return first_of(lambda: known(by_nvml), lambda: parse_whole(machine.text(f"{known(device)}/{file}"), file))


def _numa_node(machine: Machine, device: str | Gap, near: tuple[int, ...] | Gap) -> int:
    """Return a GPU's NUMA node, as the kernel reports it.

    If the kernel reports no node, return the only node whose memory NVML reports as near.
    """

    def by_nvml() -> int:
        nodes = known(near)
        if len(nodes) != 1:
            raise UnreadableFact(f"NVML calls {len(nodes)} NUMA nodes near")
        return nodes[0]

    return first_of(lambda: parse_numa_node(machine.text(f"{known(device)}/numa_node")), by_nvml)


def _record(kind: Callable[..., R], name: str, facts: dict[str, Any]) -> R | Gap:
    """Return a record of the type `kind` with the values in `facts`.

    If no value could be read and all reasons are equal, return a Gap object with this reason.
    """
    found = {field.name: facts[f"{name}.{field.name}"] for field in fields(kind)}  # type: ignore[arg-type]
    gaps = {each for each in found.values() if isinstance(each, Gap)}
    return gaps.pop() if len(gaps) == 1 and gaps == set(found.values()) else kind(**found)


def _process(machine: Machine, entry: Json) -> GpuProcess:
    """Return a process on a GPU, with its name and user if /proc shows the processes of the host."""
    pid = int(entry["pid"])
    uid = gap_or(lambda: parse_uid(_of_host(machine, f"proc/{pid}/status")))
    return GpuProcess(
        pid=pid,
        used_bytes=gap_or(lambda: int(answered(entry["used_bytes"]))),
        name=gap_or(lambda: _of_host(machine, f"proc/{pid}/comm")),
        uid=uid,
        is_ours=uid if isinstance(uid, Gap) else gap_or(lambda: uid == parse_uid(machine.text("proc/self/status"))),
    )


def _of_host(machine: Machine, path: str) -> str:
    if machine.link("proc/self/ns/pid") != HOST_PID_NAMESPACE:
        raise UnreadableFact("this process has its own PID namespace and can't see the host's processes")
    return machine.text(path)


def parse_uid(status: str) -> int:
    """Return the real user id of a process from the text of /proc/PID/status."""
    match = re.search(r"^Uid:\s+([0-9]{1,10})\s", status, re.MULTILINE | re.ASCII)
    if match is None:
        raise UnreadableFact("/proc/PID/status: there is no Uid")
    return int(match[1])


def _link(answer: Json) -> NvLink:
    facts = _facts(answer, LINK_FIELDS)
    if facts["is_active"] is False:
        facts = dict.fromkeys(facts, Gap(LINK_DOWN)) | {"is_active": False}
    return NvLink(link=int(answer["link"]), **facts)


def _level(pair: Json, gpus: dict[int, Gpu]) -> str:
    """Return the path between a pair of GPUs: the number of NVLinks, or else the PCIe level.

    nvidia-smi also prefers NVLinks to the PCIe level.
    """
    if count := _links_between(gpus[pair["a"]], gpus[pair["b"]]):
        return f"NV{count}"
    return values.parse_number(values.ANCESTORS, answered(pair["ancestor"]), "common ancestor")


def _links_between(a: Gpu, b: Gpu) -> int:
    """Return the number of active NVLinks between two GPUs, direct or through switches.

    Raise UnreadableFact if the NVLinks of a GPU could not be read.
    """
    for gpu in (a, b):
        if isinstance(gpu.nvlinks, Gap):
            raise UnreadableFact(f"the NVLinks of GPU {gpu.nvml_index} could not be read: {gpu.nvlinks.reason}")
    direct = sum(link.peer_bdf == b.bdf for link in _active(a))
    return direct or min(sum(map(leads_to_switch, _active(gpu))) for gpu in (a, b))


def _active(gpu: Gpu) -> list[NvLink]:
    """Return the NVLinks of a GPU that are up.

    An NVLink with an unreadable state counts as up if the driver knows the other end of the NVLink.
    """
    return [link for link in known(gpu.nvlinks) if link.is_active is not False and not isinstance(link.peer, Gap)]


def _p2p(pairs: Sequence[Json]) -> tuple[GpuP2p, ...]:
    """Return, for each pair of GPUs, the driver's status of each capability of peer access (P2P)."""

    def status(answer: Json) -> Any:
        return gap_or(lambda: values.parse_number(values.P2P_STATUSES, answered(answer), "P2P status"))

    return tuple(GpuP2p(pair["a"], pair["b"], *map(status, pair["p2p"])) for pair in pairs)
