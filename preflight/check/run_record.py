"""What a check was asked to do, and what it knows once it has come so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.check.request import Request
from preflight.judge.seen_again import part_of_gpu, part_of_port
from preflight.model.baseline import Baseline
from preflight.model.counters import Counts
from preflight.model.facts import NodeFacts
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
    """A check as far as it came; each phase adds what it found."""

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
    history: tuple[Report, ...] = ()  # earlier ones of this machine's parts
    plan: NcclPlan = NOTHING_PLANNED
    storage: StorageSpeed | None = None  # one node: what its --checkpoint-dir gave
    launch: LaunchResult = NOT_LAUNCHED
    without_room: str = ""  # which sizes are left out for want of memory
    run_dir: str = ""
    outside_before: Counts = field(default_factory=dict)  # what the kernel counted before the ranks started
    durations_s: tuple[tuple[str, float], ...] = ()

    @property
    def past(self) -> tuple[Report, ...]:
        """Earlier runs on this machine; a simulated machine's parts are no real one's."""
        simulated = self.request.is_other_machine or self.launch.simulated
        return tuple(each for each in self.history if each.simulated == simulated)

    @property
    def parts_tried(self) -> tuple[str, ...]:
        """This node's own GPUs and RDMA ports that were tried; none where the run was cut short."""
        if self.launch.interrupted or all(trial.outcome is Outcome.SKIPPED for trial in self.launch.trials):
            return ()
        gpus = [part for index in self.chosen for part in part_of_gpu(self.node, index)]
        ports = [part for rail in self.launch.rails for part in part_of_port(self.node, rail.hca, rail.port)]
        return tuple(dict.fromkeys((*gpus, *ports)))

    def ends_at(self) -> float:
        """Return the monotonic time of the deadline."""
        return self.started_at + self.request.until_s

    @property
    def chosen(self) -> tuple[int, ...]:
        """The nvml_index of every chosen GPU."""
        return tuple(gpu.nvml_index for gpu in self.path.gpus)
