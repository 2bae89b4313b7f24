"""What a check was asked to do, and what it knows once it has come so far."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from preflight.launch.hardware_results import HardwareWatch
from preflight.launch.launch_result import LaunchResult
from preflight.launch.nodes.placement import Asked
from preflight.model.baseline import Baseline
from preflight.model.collective import Collective
from preflight.model.counters import Counts
from preflight.model.facts import NodeFacts
from preflight.model.history import PastRun
from preflight.model.placement import Placement
from preflight.model.policy import Policy
from preflight.model.profile import ALL_TESTS, GpuTests, Profile
from preflight.model.storage import StorageSpeed
from preflight.plan import profiles
from preflight.plan.backend_choice import BackendChoice
from preflight.plan.settings.candidate_plan import NcclPlan

NOT_ASKED = Asked()
NOTHING_PLANNED = NcclPlan((), (), ())
NOT_LAUNCHED = LaunchResult()


@dataclass(frozen=True, slots=True)
class Request:
    """What `preflight check` was asked to do; the options of the command line, parsed."""

    gpus: str | None = None
    nproc: int | None = None
    backend: str | None = None
    profile: Profile = Profile.QUICK
    collectives: tuple[Collective, ...] = profiles.COLLECTIVES
    sizes: tuple[int, ...] = ()  # in bytes, in the place of the profile's
    tests: Set[GpuTests] = ALL_TESTS  # beside the collectives
    skip: Set[str] = frozenset()  # names of checks
    narrowed: str = ""  # the options that left something out, as they are written
    default_only: bool = False  # `bench`: measure what the job gets, try nothing else
    deadline_s: float | None = None
    stage_limit_s: float | None = None
    strict: bool = False
    accept: bool = False
    shadow: bool = False  # answer as always, and exit with 0
    keep: bool = False
    policy: Policy | None = None
    baseline: Baseline | None = None  # what known-good nodes reach
    baseline_source: str = ""
    history: tuple[PastRun, ...] | None = None  # of this machine's parts; None where none is kept
    burn_s: float | None = None  # how long `burn` repeats its tests under load
    checkpoint_dir: str | None = None  # is tried; on several nodes each writes there, and reads another's file
    asked: Asked = NOT_ASKED  # for which place among several nodes
    is_other_machine: bool = False  # the facts are another machine's: the result is simulated
    is_played: bool = False  # and a stand-in backend plays that machine, a rank for each of its GPUs

    @property
    def until_s(self) -> float:
        """When the run ends, from its start on."""
        return self.deadline_s or self.profile.effort.until_s(self.burn_s)


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
    plan: NcclPlan = NOTHING_PLANNED
    storage: StorageSpeed | None = None  # one node: what its --checkpoint-dir gave
    launch: LaunchResult = NOT_LAUNCHED
    without_room: str = ""  # which sizes are left out for want of memory
    run_dir: str = ""
    outside_before: Counts = field(default_factory=dict)  # what the kernel counted before the ranks started
    durations_s: tuple[tuple[str, float], ...] = ()

    @property
    def past(self) -> tuple[PastRun, ...]:
        """Earlier runs on this machine; a simulated machine's parts are no real one's."""
        simulated = self.request.is_other_machine or self.launch.simulated
        return tuple(each for each in self.request.history or () if each.simulated == simulated)

    def ends_at(self) -> float:
        """Return the monotonic time of the deadline."""
        return self.started_at + self.request.until_s

    @property
    def chosen(self) -> tuple[int, ...]:
        """The nvml_index of every chosen GPU."""
        return tuple(gpu.nvml_index for gpu in self.path.gpus)
