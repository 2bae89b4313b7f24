"""The results of the tests without NCCL: GPU measurements, driver reports and increases of hardware counters."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, replace

from preflight.errors import UnreadableFact
from preflight.facts.counters import LIMIT_S, probe_counters
from preflight.model.counters import (
    KERNEL_LOG,
    OF_PROCESS,
    ON_BUS,
    XID,
    XIDS,
    Counter,
    CounterChange,
    CounterKind,
    changes,
)
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.gpu_test import UNTESTED, Hardware, without_hardware_speeds
from preflight.model.profile import ALL_TESTS, LEFT_OUT, GpuTests
from preflight.model.run_spec import PIDS, joint_dir
from preflight.model.xids import KILLED
from preflight.search.backend_choice import BackendChoice
from preflight.search.gpus.gpu_tests import one_per_pair
from preflight.search.gpus.link_speeds import host_limits, pair_limits
from preflight.system.links import load_links
from preflight.system.machine import Machine
from preflight.system.nvml import WAKING
from preflight.system.nvml_keeper import XidWatch
from preflight.trial.launch_result import LaunchResult

BELOW_NCCL = frozenset({GpuTests.PAIRS, GpuTests.GPUS})
EVENTS = "NVML events"
LEAST_S = 0.3  # for reading the counters again
CUT_SHORT = "the counters were not read again: the run was cut short"


@dataclass(slots=True)
class HardwareWatch:
    """A watch on this node's hardware during a run.

    The watch reads counters. It also uses the process `xids`, which listens for Xids and is None on a simulated
    machine. The code that starts `xids` must also end the process.
    """

    machine: Machine
    counters: tuple[Counter, ...] = ()
    xids: XidWatch | None = None
    run_dir: str = ""
    results: Hardware | Gap | None = None  # set at the first request, which ends the watch

    def begin(self, path: BackendChoice, run_dir: str = "") -> None:
        """Read the hardware counters after the GPUs have woken up.

        If the run uses no GPUs, only end the process `xids`.
        """
        self.run_dir = run_dir
        if path.on_cpu or not path.gpus:
            if self.xids is not None:
                self.xids.end()
            self.xids = None
            return
        if self.xids is not None:
            self.xids.wait()
        self.counters = probe_counters(self.machine)

    def stop(self, left_s: float) -> tuple[CounterChange, ...]:
        """Stop the watch, and return how much each counter has grown since `begin`.

        `left_s` is the time until the deadline in seconds.
        """
        # If the kernel log can't be read, the Xids come from NVML. An Xid 45 of a preflight process is left out,
        # because preflight itself killed this process.
        ours = {f"{XID}{KILLED}{OF_PROCESS}{pid}" for pid in _own_pids(self.run_dir)}
        limit_s = min(left_s, LIMIT_S)
        waking_s = min(left_s - limit_s, WAKING.all_s)  # needed if no XidWatch keeps the GPUs awake
        grown = changes(self.counters, probe_counters(self.machine, limit_s, waking_s))
        grown = tuple(each for each in grown if each.name not in ours)
        if self.xids is None:
            return grown
        try:
            heard = self.xids.stop()
        except UnreadableFact as error:
            return tuple(_also_unheard(each, str(error)) for each in grown)
        if not any(map(_is_closed_log, grown)):
            return grown  # the log has them all, and events would tell them twice
        return (*(each for each in grown if not _is_closed_log(each)), *_from_events(heard))


def _own_pids(run_dir: str) -> set[int]:
    """Return the pids of this run's processes that used GPUs.

    An incomplete line, from an agent that died, is ignored.
    """
    found: set[int] = set()
    for phase in (run_dir, joint_dir(run_dir)) if run_dir else ():
        with contextlib.suppress(OSError), open(os.path.join(phase, "logs", PIDS), encoding="ascii") as file:
            found |= {int(line) for line in file.read().split("\n")[:-1] if line.isdecimal()}
    return found


def _is_closed_log(change: CounterChange) -> bool:
    return change.source == KERNEL_LOG and isinstance(change.grown, Gap)


def _also_unheard(change: CounterChange, why: str) -> CounterChange:
    if change.source != KERNEL_LOG or not isinstance(change.grown, Gap):
        return change
    return replace(change, grown=Gap(f"{change.grown.reason}; {EVENTS}: {why}"))


def _from_events(heard: Mapping[tuple[int, int], int]) -> tuple[CounterChange, ...]:
    """Return one change for each GPU and Xid, and one change with the total of all Xids.

    The total shows that NVML's events were read.
    """
    total = sum(heard.values())
    each = (
        CounterChange(f"GPU {gpu}", f"{XID}{xid}", CounterKind.FATAL, 0, count, count, EVENTS, gpu)
        for (gpu, xid), count in sorted(heard.items())
    )
    return (CounterChange(EVENTS, XIDS, CounterKind.FATAL, 0, total, total, EVENTS, -1), *each)


def _is_ours(change: CounterChange, chosen: Collection[int], others: Collection[str]) -> bool:
    """Return whether the counter of `change` belongs to a chosen GPU, or to no GPU at all.

    On a shared node, the other GPUs belong to other jobs.
    """
    if change.gpu >= 0:
        return change.gpu in chosen
    address = change.subject.removeprefix(ON_BUS).lower()
    return not any(bdf.lower().startswith(address) for bdf in others)


def hardware_results(
    launched: LaunchResult,
    node: NodeFacts,
    path: BackendChoice,
    watching: HardwareWatch,
    disturbed: str,
    left_s: float = LIMIT_S,
    tests: Set[GpuTests] = ALL_TESTS,
) -> Hardware | Gap:
    """Return the results of the GPU tests and the changes of the hardware counters.

    Only the first call computes the result. The result is a Gap object with the reason if the GPUs were not tested.
    """
    # If `disturbed` says that another process used the GPUs, the speeds are left out. `left_s` is the time until the
    # deadline in seconds. On several nodes, make the first call before the test runs on all nodes.
    if watching.results is None:
        watching.results = _results(launched, node, path, watching, disturbed, left_s, tests)
    return watching.results


def _results(
    launched: LaunchResult, node: NodeFacts, path: BackendChoice, watching: HardwareWatch, disturbed: str,
    left_s: float, tests: Set[GpuTests],
) -> Hardware | Gap:  # fmt: skip
    if not path.wants_gpus:
        return Gap("CPU path: no GPU was tested")
    if path.on_cpu:
        return Gap("a stand-in backend simulates this machine, so its GPUs can't be tested")
    grown = watching.stop(left_s) if watching.counters and left_s >= LEAST_S else None
    is_left_out = not tests & BELOW_NCCL and not launched.problem
    if not launched.pairs and not launched.gpus and not is_left_out:
        return Gap(f"the GPUs were not tested: {launched.problem or path.blocked or 'the ranks reported none of them'}")
    chosen = {gpu.nvml_index for gpu in path.gpus}
    burnt_s = sum(test.duration_s for test in launched.gpus if test.repetition) / max(1, len(chosen))
    others = [gpu.bdf for gpu in known_or(node.gpus, ()) if gpu.nvml_index not in chosen and isinstance(gpu.bdf, str)]
    counters = None if grown is None else tuple(each for each in grown if _is_ours(each, chosen, others))
    hardware = Hardware(
        pairs=one_per_pair(launched.pairs, node),
        gpus=tuple(sorted(launched.gpus, key=lambda test: (test.repetition, test.gpu))),
        counters=Gap(CUT_SHORT) if counters is None else counters,
        counted_s=time.monotonic() - launched.started_at,
        host_limits_gb_s=host_limits(load_links(), path.gpus),
        pair_limits=pair_limits(load_links(), node, path.gpus),
        burn_s=burnt_s if burnt_s else Gap("no burn was asked for"),
        untested=UNTESTED if tests >= BELOW_NCCL else LEFT_OUT,
    )
    return without_hardware_speeds(hardware, disturbed) if disturbed else hardware
