"""The records that the launcher and the ranks exchange as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

from preflight.model.baseline import NO_BASELINE, Baseline
from preflight.model.collective import Collective
from preflight.model.device_job import NO_DEVICES, DevicePlan
from preflight.model.hca import HcaPort
from preflight.model.isolation import Route
from preflight.model.trial import Candidate, Setting

PIDS = "pids"  # a file next to the logs: every process of a trial or of a GPU test, one per line
OWN_TIMEOUT_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class StageLimits:
    """The time limit of each stage of a test run, in seconds.

    A stage is hung if the stage makes no progress for the time of its limit.
    """

    start_s: float  # spawned, device, store
    init_s: float
    first_s: float
    timed_s: float
    stretches: bool  # a step may take stretched_s() if that is longer

    def for_stage(self, stage: str, expected_s: float = 0.0) -> float:
        """Return the time limit of a stage, in seconds.

        One step of the stage should take `expected_s` seconds. A long step may extend the limit.
        """
        by_name = {"init": self.init_s, "first": self.first_s, "timed": self.timed_s, "verified": self.timed_s}
        return max(by_name.get(stage, self.start_s), stretched_s(expected_s) if self.stretches else 0.0)

    def own_timeout_s(self, stage: str, expected_s: float = 0.0) -> float:
        """Return the timeout in seconds after which a rank that waits for other ranks raises an error.

        The timeout is shorter than the stage's limit.
        """
        # A waiting rank reports its error before the limit.
        return OWN_TIMEOUT_SHARE * self.for_stage(stage, expected_s)

    def watchdog_s(self, stage: str, expected_s: float = 0.0) -> float:
        """Return the timeout in seconds of torch's process group on GPUs.

        The timeout is longer than the stage's limit, because torch's watchdog ends the process without a message.
        """
        return 2 * self.for_stage(stage, expected_s)


def stretched_s(expected_s: float) -> float:
    """Return the time limit of a step that should take `expected_s` seconds. The result is in seconds."""
    # The limit is 20 times the expected time, or 3 times the expected time plus 60 s if the sum is shorter.
    return min(20 * expected_s, 3 * expected_s + 60)


@dataclass(frozen=True, slots=True)
class Measure:
    """How one collective at one size is timed and verified."""

    collective: Collective
    nominal_bytes: int
    budget_s: float
    min_repetitions: int
    max_repetitions: int
    verified_calls: int = 0  # how many repetitions are verified, at random places


@dataclass(frozen=True, slots=True)
class OwnEnv:
    """The environment variables that a configuration sets on this node only."""

    candidate: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Backend:
    """The communication backend of the collectives."""

    name: str
    module: str  # imported in the trial child before the process group is made; "" for none
    dialect: str  # whose settings it reads and whose log it writes: "nccl" or "gloo"


@dataclass(frozen=True, slots=True)
class RankGpus:
    """The GPUs of the ranks on one node, in the order of the local ranks."""

    uuids: tuple[str, ...] = ()
    bdfs: tuple[str, ...] = ()  # "" where not known


NO_GPUS = RankGpus()


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The position of one node's ranks among all ranks of the run."""

    world_size: int
    nodes: int = 1
    ranks_here: int = 0  # 0 means all
    first_rank: int = 0  # of this node
    store_host: str = ""  # the address at which node 0's store listens
    node_sizes: tuple[int, ...] = ()  # ranks of each node; on node 0 only, which makes groups of nodes

    @property
    def local_size(self) -> int:
        """The number of ranks on this node."""
        return self.ranks_here or self.world_size


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The configurations to test, in order, and the measurements for each configuration."""

    candidates: tuple[Candidate, ...]
    limits: StageLimits
    screen_all: bool = False  # try every configuration; False: only if the default settings fail
    measures: tuple[Measure, ...] = ()
    duel_measures: tuple[Measure, ...] = ()  # the decision points of paired comparisons
    duel_turns: int = 1  # samples per side in each pair of process groups
    settings: tuple[Setting, ...] = ()  # possible workarounds for failing default settings, least suspect first
    cure_measures: tuple[Measure, ...] = ()  # for the trials that search for the fewest settings needed
    control_runs: int = 0  # with default settings and with a workaround: whether the fault depends on the settings
    on_gpus: bool = False  # the ranks use GPUs, so a smaller delay makes a rank late
    baseline: Baseline = NO_BASELINE  # if default settings look slow compared with it, their trial is repeated
    own_env: tuple[OwnEnv, ...] = ()
    routes: tuple[Route, ...] = ()  # on node 0: routes between nodes, to be tried one at a time with a node at fault

    def named(self, name: str) -> Candidate:
        """Return the configuration with the name `name`, which must be in the plan."""
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def on_this_node(self, candidate: Candidate) -> Candidate:
        """Return `candidate` with the environment variables that apply to this node."""
        own = next((own.env for own in self.own_env if own.candidate == candidate.name), candidate.env)
        return replace(candidate, env=own)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All inputs of the ranks of one node."""

    run_dir: str
    backend: Backend
    place: NodePlace
    trials: TrialPlan
    deadline_monotonic_s: float  # CLOCK_MONOTONIC, the same for all processes of a host
    gpus: RankGpus = NO_GPUS
    inherited: tuple[tuple[str, str], ...] = ()  # variables that are removed in all trials but the as-is candidate's
    devices: DevicePlan = NO_DEVICES  # the GPU tests without NCCL; none on the CPU path
    rails: tuple[HcaPort, ...] = ()  # RDMA ports that are tried one at a time
    machine_path: str = ""  # file with the facts of the machine that a stand-in backend simulates; "" for none
    goes_on: bool = False  # afterwards the ranks wait for a spec in `joint_dir`

    @property
    def uses_adapters(self) -> bool:
        """Whether the ranks can use this machine's RDMA adapters. A simulation does not use the adapters."""
        return self.backend.name == "nccl" and not self.backend.module and not self.machine_path


def joint_dir(run_dir: str) -> str:
    """Return the folder for the test runs that all nodes run together."""
    return f"{run_dir}/joint"


@dataclass(frozen=True, slots=True)
class RankSamples:
    """One rank's timings of one collective at one size, with one value per repetition."""

    rank: int
    barrier_us: tuple[float, ...]  # waiting in the barrier before the call
    call_us: tuple[float, ...]  # inside the collective
    gap_us: tuple[float, ...]  # between the barrier's end and the call
    wrong_elements: int  # in the worst call
    verified_calls: int = 0  # of the repetitions
    is_spread: bool = False  # wrong data appeared after several in-place calls, which may spread another rank's


@dataclass(frozen=True, slots=True)
class DuelTurn:
    """The median times of one collective: one for the default settings, one for another configuration."""

    pair: int
    turn: int
    collective: Collective
    size_bytes: int
    default_median_us: float
    candidate_median_us: float
    verified: bool


@dataclass(frozen=True, slots=True)
class Duel:
    """The raw samples of a comparison between a configuration and the default settings.

    If the comparison did not finish, `turns` is empty and `problem` holds the reason.
    """

    candidate: str
    turns: tuple[DuelTurn, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The location of the store that the ranks use for their rendezvous.

    If `host` is "", the store is the file `path`. Otherwise, the store is a server on `host`, and `path` is a prefix of
    the keys.
    """

    # If `host` is set, the store is a server on this host.

    path: str
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The input of a child process for one rank: its rank number, GPUs, environment and measurements."""

    # A forked child inherits the Assignment. A child started by exec reads the Assignment from a JSON file.

    label: str  # unique within the run, names its files
    rank: int
    local_rank: int
    world_size: int
    backend: Backend
    gpus: RankGpus
    store: StorePlace
    limits: StageLimits
    set_env: tuple[tuple[str, str], ...] = ()
    unset_env: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    turns: int = 1  # how often all measures are repeated; more than 1 in a paired comparison
    side: int = 0  # the side of a paired comparison, 0 or 1
    sides: int = 1  # 2 in a paired comparison
    tests_gpus: bool = False  # no trial: GPU tests, read as job groups from stdin; `store` is the control channel
    visible: tuple[int, ...] = ()  # the GPUs that a child for GPU tests may use, by place; empty: all
