"""The tests below NCCL, put together: what the ranks measured, what the driver says, and what the counters did."""

from __future__ import annotations

import time

from preflight.launch.launcher import Launched
from preflight.model.counters import Counter, changes
from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu_test import Hardware, without_hardware_speeds
from preflight.plan.link_limits import host_limits, pair_limits
from preflight.plan.pairs import one_per_pair
from preflight.plan.path import Path
from preflight.probe.counters import probe_counters
from preflight.system.links import load_links
from preflight.system.machine import Machine

CPU_PATH = "CPU path: no GPU was tested"


def counters_of(machine: Machine, path: Path) -> tuple[Counter, ...]:
    """Return the machine's counters as they stand; none on the CPU path, where nothing of this is judged."""
    return probe_counters(machine) if path.gpus else ()


def hardware_of(
    launched: Launched, node: NodeFacts, path: Path, machine: Machine, before: tuple[Counter, ...], disturbed: str
) -> Hardware | Gap:
    """Return what is known of the GPUs themselves, without speeds where somebody else used them.

    A Gap with the reason where they were not tested.
    """
    if not path.wants_gpus:
        return Gap(CPU_PATH)
    if not launched.pairs and not launched.gpus:
        return Gap(f"the GPUs were not tested: {launched.problem or path.blocked or 'the ranks told nothing of them'}")
    chosen = {gpu.nvml_index for gpu in path.gpus}
    grown = tuple(each for each in changes(before, counters_of(machine, path)) if each.gpu in chosen or each.gpu < 0)
    burnt_s = sum(test.duration_s for test in launched.gpus if test.repetition) / max(1, len(chosen))
    hardware = Hardware(
        pairs=one_per_pair(launched.pairs, node),
        gpus=tuple(sorted(launched.gpus, key=lambda test: (test.repetition, test.gpu))),
        counters=grown,
        counted_s=time.monotonic() - launched.started_at,
        host_limits_gb_s=host_limits(load_links(), path.gpus),
        pair_limits=pair_limits(load_links(), node, path.gpus),
        burn_s=burnt_s if burnt_s else Gap("no burn was asked for"),
    )
    return without_hardware_speeds(hardware, disturbed) if disturbed else hardware
