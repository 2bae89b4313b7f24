"""The request of a check, and its results so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.check.request import Request
from preflight.model.baseline import Baseline
from preflight.model.counters import Counts
from preflight.model.facts import NodeFacts
from preflight.model.parts import part_of_gpu, part_of_port
from preflight.model.perftest import LinkTest
from preflight.model.placement import Placement
from preflight.model.policy import Policy
from preflight.model.report import Report
from preflight.model.storage import StorageSpeed
from preflight.model.trial import Outcome
from preflight.search.backend_choice import BackendChoice
from preflight.search.settings.candidate_plan import NcclPlan
from preflight.trial.hardware_results import HardwareWatch
from preflight.trial.launch_result import LaunchResult

NOTHING_PLANNED = NcclPlan((), (), ())
NOT_LAUNCHED = LaunchResult()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A check in progress: its inputs, and the results that the phases have added so far."""

    request: Request
    environ: Mapping[str, str]
    started_at: float  # monotonic
    place: Placement
    node: NodeFacts
    path: BackendChoice
    inherited: tuple[tuple[str, str], ...]
    watching: HardwareWatch
    policy: Policy | None = None
    baseline: Baseline | None = None  # what known-good nodes reach
    fabric: tuple[LinkTest, ...] = ()  # what ib_write_bw measured here, if the user has said so
    history: tuple[Report, ...] = ()  # earlier reports about this machine's GPUs and RDMA ports
    plan: NcclPlan = NOTHING_PLANNED
    storage: StorageSpeed | None = None  # the speed of --checkpoint-dir, on one node
    launch: LaunchResult = NOT_LAUNCHED
    without_room: str = ""  # which message sizes are left out because memory is short
    run_dir: str = ""
    outside_before: Counts = field(default_factory=dict)  # what the kernel counted before the ranks started
    durations_s: tuple[tuple[str, float], ...] = ()

    @property
    def past(self) -> tuple[Report, ...]:
        """Return the earlier reports to compare with this run.

        A simulated run is compared only with simulated runs, and a real run only with real runs.
        """
        simulated = self.request.is_other_machine or self.launch.simulated
        return tuple(each for each in self.history if each.simulated == simulated)

    @property
    def parts_tried(self) -> tuple[str, ...]:
        """Return the GPUs and RDMA ports of this node that were tested.

        The result is empty if the run was cut short or nothing was tested.
        """
        if self.launch.interrupted or all(trial.outcome is Outcome.SKIPPED for trial in self.launch.trials):
            return ()
        gpus = [part for index in self.chosen for part in part_of_gpu(self.node, index)]
        ports = [part for rail in self.launch.rails for part in part_of_port(self.node, rail.hca, rail.port)]
        return tuple(dict.fromkeys((*gpus, *ports)))

    def ends_at(self) -> float:
        """Return the time of the deadline, in seconds of the monotonic clock."""
        return self.started_at + self.request.until_s

    @property
    def chosen(self) -> tuple[int, ...]:
        """Return the NVML index of every chosen GPU."""
        return tuple(gpu.nvml_index for gpu in self.path.gpus)
