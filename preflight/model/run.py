"""What the launcher asks the ranks to do, and the raw answers: the records that cross processes as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.baseline import NO_BASELINE, Baseline
from preflight.model.collective import Collective
from preflight.model.device_job import NO_DEVICES, DeviceJob, DevicePlan
from preflight.model.hca import HcaPort
from preflight.model.isolation import Way
from preflight.model.trial import Candidate, Setting


@dataclass(frozen=True, slots=True)
class StageLimits:
    """Seconds in which a stage must move on before its trial counts as hung."""

    start_s: float  # spawned, device, store
    init_s: float
    first_s: float
    timed_s: float
    stretches: bool  # a timed step may take 20 times its expected time where that is longer


@dataclass(frozen=True, slots=True)
class Measure:
    """How a collective at one size is timed."""

    collective: Collective
    nominal_bytes: int
    budget_s: float
    min_repetitions: int
    max_repetitions: int


@dataclass(frozen=True, slots=True)
class OwnEnv:
    """What a candidate sets on one node, where that is not what it sets elsewhere: interface names differ."""

    candidate: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that the ranks of one node need to know."""

    run_dir: str
    world_size: int
    backend: str
    backend_module: str  # imported in the trial child before the group is made; "" for none
    dialect: str  # whose settings the backend reads and whose log it writes: "nccl" or "gloo"
    gpu_uuids: tuple[str, ...]  # one per local rank; empty on the CPU
    gpu_bdfs: tuple[str, ...]  # of the same GPUs, "" where not known
    inherited: tuple[tuple[str, str], ...]  # variables that trials run without, but for the as-is candidate's
    candidates: tuple[Candidate, ...]
    screen_all: bool  # try every candidate; otherwise only while the default fails
    measures: tuple[Measure, ...]
    duel_measures: tuple[Measure, ...]  # the decision points
    duel_turns: int  # per side and pair
    limits: StageLimits
    deadline_monotonic_s: float  # CLOCK_MONOTONIC, the same for all processes of a host
    machine_path: str = ""  # facts of another machine, for a stand-in backend that plays it; "" for none
    settings: tuple[Setting, ...] = ()  # what may cure a default that fails, least suspect first
    cure_measures: tuple[Measure, ...] = ()  # of the many trials that look for the fewest of these
    devices: DevicePlan = NO_DEVICES  # what is tested on the GPUs themselves; nothing on the CPU path
    nodes: int = 1  # that take part in this phase; the rest tells apart what several nodes need
    ranks_here: int = 0  # of this node; 0 means all
    first_rank: int = 0  # of this node
    store_host: str = ""  # the address at which node 0's store listens
    own_env: tuple[OwnEnv, ...] = ()
    baseline: Baseline = NO_BASELINE  # a default that looks slow beside it is repeated
    node_sizes: tuple[int, ...] = ()  # ranks of each node; only node 0, whose conductor divides them, is told
    ways: tuple[Way, ...] = ()  # between the nodes, to be tried one at a time with whoever is at fault; only for node 0
    rails: tuple[HcaPort, ...] = ()  # RDMA ports that are tried one at a time
    goes_on: bool = False  # afterwards the ranks wait for a spec in `together/`

    @property
    def local_size(self) -> int:
        """How many of the ranks are on this node."""
        return self.ranks_here or self.world_size


@dataclass(frozen=True, slots=True)
class RankSamples:
    """One rank's timings of one collective at one size, a value per repetition."""

    rank: int
    barrier_us: tuple[float, ...]  # waiting in the barrier before the call
    call_us: tuple[float, ...]  # inside the collective
    gap_us: tuple[float, ...]  # between the barrier's end and the call
    wrong_elements: int


@dataclass(frozen=True, slots=True)
class DuelTurn:
    """What one turn of a duel measured for one side at one decision point."""

    pair: int
    turn: int
    collective: Collective
    size_bytes: int
    default_median_us: float
    candidate_median_us: float
    verified: bool


@dataclass(frozen=True, slots=True)
class Duel:
    """The raw turns of a candidate against the default; empty with a problem when it could not be finished."""

    candidate: str
    turns: tuple[DuelTurn, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one trial child does: it is forked with it, or started by exec with it as a JSON file."""

    label: str  # unique within the run, names its files
    rank: int
    local_rank: int
    world_size: int
    backend: str
    backend_module: str
    dialect: str
    set_env: tuple[tuple[str, str], ...]
    unset_env: tuple[str, ...]
    gpu_uuids: tuple[str, ...]
    gpu_bdfs: tuple[str, ...]
    store_path: str
    init_timeout_s: float  # the group's own timeout while it is made and first used
    timed_timeout_s: float  # and afterwards
    timeout_stretches: bool  # it grows with the expected time of a step
    measures: tuple[Measure, ...]
    turns: int  # times that the measures are gone through; more than 1 in a duel
    side: int  # 0 or 1 of a duel: whose turn comes first
    sides: int  # 1 for a plain trial
    jobs: tuple[DeviceJob, ...] = ()  # no trial: these, on GPUs by themselves
    store_host: str = ""  # several nodes: the store is a server there, and `store_path` a prefix in it
    store_port: int = 0
