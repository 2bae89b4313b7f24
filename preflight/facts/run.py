"""Run all probes of a node in parallel and collect their results. A failed probe does not affect the others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_type_hints

from preflight.errors import UnreadableFact
from preflight.facts.network import probe_name_resolution, probe_netifs
from preflight.facts.nvidia_driver import probe_device_nodes, probe_xid_lines
from preflight.facts.nvml import NvmlFacts, probe_nvml
from preflight.facts.other_devices import probe_other_devices
from preflight.facts.pci_bus import probe_nvidia_pci, probe_pci
from preflight.facts.pci_distance import gpu_paths, nic_paths
from preflight.facts.process import probe_environment, probe_limits, probe_nccl_conf, probe_software
from preflight.facts.rdma import RoceLink, probe_hca_ports, probe_nics, probe_rdma, probe_roce_links, with_links
from preflight.facts.system import probe_numa_nodes, probe_shm, probe_system
from preflight.model.codec import decode_value, encode_value
from preflight.model.facts import Gap, NodeFacts
from preflight.system.isolate import Answer, run_isolated
from preflight.system.machine import Json, Machine, Record, Recorder, merged
from preflight.system.nvml import WAKING
from preflight.system.processes import adopt_orphans, has_children, kill_descendants

UNKNOWN_HOST = "unknown"
LIMIT_S = 5.0
CUT_SHORT = "not read: the deadline came first"
NOT_ASKED = "not read: not needed here"
MEMORY_READS = "memory"  # probes of what the kernel answers from memory share a process
NVML, ROCE = "nvml", "roce_links"
ORPHANS_S = 1.0
READS = "reads"  # the key of the raw reads in the answer of a group that is recorded
NVML_FACTS = ("driver", "gpus", "gpu_paths", "gpu_p2p")


@dataclass(frozen=True, slots=True)
class Probe:
    """A function (`read`) that reads the value `fact` of a node.

    Probes with the same `process` name run in the same process.
    """

    fact: str
    read: Callable[[Machine, Machine], object]  # takes the machine to read, and the one whose software runs
    process: str


PROBES = (
    # These can stall: a driver, a dead network file system, a name server, another process's memory lock. Slow first.
    Probe("netifs", lambda machine, _: probe_netifs(machine), "netifs"),
    Probe(NVML, lambda machine, _: probe_nvml(machine), NVML),
    Probe("software", lambda _, process: probe_software(process), "software"),
    Probe("name_resolution", lambda machine, _: probe_name_resolution(machine), "name_resolution"),
    Probe("nccl_conf", probe_nccl_conf, "nccl_conf"),
    Probe("shm", lambda machine, _: probe_shm(machine), "shm"),
    # Reading a port or the config space asks the adapter's driver, whose firmware may not answer.
    Probe("nics", lambda machine, _: probe_nics(machine), "hca"),
    Probe("hca_ports", lambda machine, _: probe_hca_ports(machine), "hca"),
    Probe(ROCE, lambda machine, _: probe_roce_links(machine), ROCE),
    Probe("pci", lambda machine, _: probe_pci(machine), "pci"),
    Probe("host", lambda machine, _: str(machine.ask("uname")["nodename"]), MEMORY_READS),
    Probe("system", lambda machine, _: probe_system(machine), MEMORY_READS),
    Probe("limits", lambda _, process: probe_limits(process), MEMORY_READS),
    Probe("nvidia_pci", lambda machine, _: probe_nvidia_pci(machine), MEMORY_READS),
    Probe("device_nodes", lambda machine, _: probe_device_nodes(machine), MEMORY_READS),
    Probe("other_devices", lambda machine, _: probe_other_devices(machine), MEMORY_READS),
    Probe("numa_nodes", lambda machine, _: probe_numa_nodes(machine), MEMORY_READS),
    Probe("rdma", lambda machine, _: probe_rdma(machine), MEMORY_READS),
    Probe("xid_lines", lambda machine, _: probe_xid_lines(machine), MEMORY_READS),
    Probe("environment", lambda _, process: probe_environment(process), MEMORY_READS),
)


@dataclass(slots=True)
class Capture:
    """A record of all values that the probes read on a machine.

    `silent` has the reason for each group of probes that gave no result.
    """

    reads: Record = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)


def probe_node(
    machine: Machine, software: Machine | None = None, limit_s: float = LIMIT_S, *,
    capture: Capture | None = None, silent: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] = tuple, ends_at: float | None = None, only: Collection[str] | None = None,
    waking_s: float = WAKING.all_s,
) -> tuple[NodeFacts, dict[str, float]]:  # fmt: skip
    """Return the values that the probes read on the node, and the seconds that each probe took.

    The function forks, so call the function only from a process with a single thread.
    """
    # If a probe fails or stalls, a Gap with the reason replaces the value. If `machine` is only a tree of files, the
    # Python, environment and limits of the machine `software` count. A `capture` receives every value that is read.
    # `silent` names the groups of probes that gave no result when `machine` was captured. `meanwhile` is called while
    # the probes run, so that other modules can load without extra time. A value that was not read by `ends_at`
    # (monotonic seconds) is a Gap, and `cut_short` names these values. `waking_s` is added to the time limit of NVML,
    # because a driver may first have to wake its GPUs. `only` names the values to read. The values from NVML have the
    # common name `nvml`.
    process = software or machine
    wanted = [probe for probe in PROBES if only is None or probe.fact in only]
    groups = {probe.process: [each for each in wanted if each.process == probe.process] for probe in wanted}
    asked = {name: group for name, group in groups.items() if name not in (silent or {})}
    readers = {name: _reader(group, machine, process, capture is not None) for name, group in asked.items()}
    limits_s = {name: limit_s + waking_s * (name == NVML) for name in asked}
    left_s = math.inf if ends_at is None else max(0.0, ends_at - time.monotonic())
    is_alone = not has_children()  # of whoever uses preflight as a library
    adopt_orphans()
    answers = run_isolated(readers, {name: min(each, left_s) for name, each in limits_s.items()}, meanwhile)
    if is_alone and has_children():  # a library that was asked has left a process behind
        kill_descendants(frozenset(), ORPHANS_S)
    # With enough time, it might have answered, so it does not count as stuck.
    cut = [name for name, each in answers.items() if each.is_late and left_s < limits_s[name]]
    answers |= {name: replace(answers[name], failure=CUT_SHORT) for name in cut}
    answers |= {name: Answer(None, why, 0.0) for name, why in (silent or {}).items() if name in groups}
    if capture is not None:
        _fill(capture, answers)
    found: dict[str, tuple[object, float]] = {
        probe.fact: (Gap(NOT_ASKED), 0.0) for probe in PROBES if probe not in wanted
    }
    found |= {probe.fact: _fact(probe.fact, answers[probe.process]) for probe in wanted}
    durations_s = {fact: duration_s for fact, (_, duration_s) in found.items()}
    return _node_facts({fact: value for fact, (value, _) in found.items()}), durations_s


def cut_short(node: NodeFacts) -> tuple[str, ...]:
    """Return the names of the values that were not read before the deadline."""
    return tuple(each.name for each in fields(node) if getattr(node, each.name) == Gap(CUT_SHORT))


def _reader(group: Sequence[Probe], machine: Machine, process: Machine, record: bool) -> Callable[[], Json]:
    if not record:
        return lambda: {probe.fact: _outcome(probe, machine, process) for probe in group}
    recorder = Recorder(machine)
    # One record for both: where they differ, no probe asks both of them the same question.
    own = recorder if process is machine else Recorder(process, recorder.record)
    return lambda: {probe.fact: _outcome(probe, recorder, own) for probe in group} | {READS: recorder.record}


def _fill(capture: Capture, answers: Mapping[str, Answer]) -> None:
    for name, answer in answers.items():
        if answer.failure:
            capture.silent[name] = answer.failure
        else:
            capture.reads = merged(capture.reads, answer.value[READS])


def _outcome(probe: Probe, machine: Machine, process: Machine) -> Json:
    start = time.monotonic()
    try:
        document = encode_value(probe.read(machine, process))
    except UnreadableFact as error:
        document = {"failure": str(error)}
    except Exception as error:  # noqa: BLE001 - a probe's defect costs its fact, not those beside it
        document = {"failure": f"the probe of {probe.fact} failed: {type(error).__name__}: {error}"}
    return document | {"duration_s": time.monotonic() - start}


def _fact(name: str, answer: Answer) -> tuple[object, float]:
    if answer.failure:
        return Gap(answer.failure), answer.duration_s
    document = answer.value[name]
    if "failure" in document:
        return Gap(document["failure"]), document["duration_s"]
    kinds: dict[str, Any] = {**get_type_hints(NodeFacts), NVML: NvmlFacts, ROCE: tuple[RoceLink, ...]}
    return decode_value(kinds[name], document), document["duration_s"]


def _node_facts(facts: dict[str, Any]) -> NodeFacts:
    nvml, host = facts.pop(NVML), facts.pop("host")
    facts |= dict.fromkeys(NVML_FACTS, nvml) if isinstance(nvml, Gap) else {n: getattr(nvml, n) for n in NVML_FACTS}
    numbered = facts["gpus"]
    facts["gpu_paths"] = gpu_paths(numbered, facts["gpu_paths"], facts["pci"], facts["numa_nodes"])
    facts["hca_ports"] = with_links(facts["hca_ports"], facts.pop(ROCE))
    facts["nic_paths"] = nic_paths(numbered, facts["nics"], facts["pci"], facts["numa_nodes"])
    return NodeFacts(host=UNKNOWN_HOST if isinstance(host, Gap) else host, **facts)
