"""Configurations to test, and the results of their test runs and repetitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.hca import PortErrors
from preflight.model.transport import Carrier
from preflight.model.word import Word


class Scope(Word):
    """The nodes for which a configuration's result holds.

    A network setting that was tested on one node must not be used for several nodes.
    """

    ANYWHERE = "anywhere"
    ONE_NODE = "one_node"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of environment variables to test, and the reason to test this set."""

    name: str
    env: tuple[tuple[str, str], ...]  # what would be recommended
    reason: str
    scope: Scope
    only_cures: bool = False  # it costs speed, so it is of use only if the default settings fail


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that turns off a feature, so that faults of this feature cannot harm the job."""

    name: str  # the variable, or `netif eth0`; unique within a run
    env: tuple[tuple[str, str], ...]
    families: tuple[str, ...]  # the families of error texts (model/error_texts.py) that make it suspect
    scope: Scope
    choice: str = ""  # settings with the same choice exclude each other: one interface, one set of ports


NOT_MEASURED = Gap("not measured")
DEFAULT = "default"  # the candidate that sets nothing
AS_IS = "as-is"  # the candidate that keeps every inherited variable
UNDER_LOAD = "default under load, "  # a repetition by `--profile burn` of the default settings' trial; a number follows
AGAIN = "repetition "  # a repetition of that trial because a speed or a rank looked slow; a number follows
REPEATED = (UNDER_LOAD, AGAIN)
IN_START = "start"  # all stages up to the first collective: only timing decides in which of them a rank fails


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A configuration or a setting that was not tested, and the reason."""

    candidate: str
    reason: str


class Outcome(Word):
    """How a test run ended."""

    OK = "ok"
    HANG = "hang"
    CRASH = "crash"
    WRONG_DATA = "wrong_data"
    INIT_ERROR = "init_error"
    NO_EFFECT = "no_effect"
    SKIPPED = "skipped"


FAILED = frozenset({Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR, Outcome.WRONG_DATA})


@dataclass(frozen=True, slots=True)
class RankTime:
    """The time that one rank spends in a collective without waiting for other ranks."""

    rank: int
    own_us: float  # median over the repetitions
    slowdown: float  # own_us over the median own_us of the other ranks


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """The result of one collective at one size. The time of a repetition is the time of the slowest rank."""

    # If another job used the GPUs, the speeds are not known and `ranks` is empty. With 256 ranks or more, `ranks` has
    # only the earliest rank and the 63 latest ranks.

    collective: Collective
    size_bytes: int
    repetitions: int
    min_us: float | Gap
    median_us: float | Gap
    p95_us: float | Gap
    spread: float | Gap  # (p95 - min) / median
    algbw_gb_s: float | Gap  # from the median
    busbw_gb_s: float | Gap
    verified: bool  # every rank's data was right: before the repetitions, after them, and in `verified_calls` of them
    wrong_elements: int
    ranks: tuple[RankTime, ...]
    p99_us: float | Gap = NOT_MEASURED
    took_s: float | Gap = NOT_MEASURED  # on rank 0, warm-up, verification and barriers included
    verified_calls: int | Gap = NOT_MEASURED  # how many repetitions were verified on every rank, at random places

    @property
    def shown_gb_s(self) -> float | Gap:
        """The bus bandwidth in GB/s, or the algorithm bandwidth for a single rank.

        A single rank has no bus bandwidth.
        """
        return self.busbw_gb_s if isinstance(self.busbw_gb_s, Gap) else self.busbw_gb_s or self.algbw_gb_s


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log, with its line number."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of one rank's process in a test run: how the process ended, its stage, and its last output."""

    rank: int
    ended: str  # done | timeout | error | signal | stuck | stopped | killed | unkillable | usage
    stage: str
    detail: str
    log_file: str = ""  # the library's own log of this process, below the run's directory; "" where it wrote none
    log: tuple[LogLine, ...] = ()  # of a rank that failed: its log's warnings, and its end


@dataclass(frozen=True, slots=True)
class TrialCause:
    """The cause of a failed test run, if its logs prove the cause.

    `cause` is the name that `preflight explain` uses.
    """

    cause: str
    verdict: str
    proof: str  # the first line that proves it
    source: str  # where that line is: file and number, or the rank that raised it


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of testing one configuration on all ranks."""

    candidate: str
    reason: str
    env: tuple[tuple[str, str], ...]  # the variables that this configuration would recommend
    trial_env: tuple[tuple[str, str], ...]  # every variable that was set for the trial
    unset: tuple[str, ...]  # inherited variables that were removed while it ran
    scope: Scope
    outcome: Outcome
    problem: str  # empty when ok; names rank and stage otherwise
    culprits: tuple[int, ...]  # ranks that the failure is traced to; empty if none can be named
    stages: tuple[tuple[int, str], ...]  # the stage of each rank at the end of the trial
    ranks: tuple[RankEnd, ...]
    # rank -> the world size that its process group reported
    world_size_reported: tuple[tuple[int, int], ...] = field(metadata={"json": "world_size_seen"})
    transport: tuple[Carrier, ...]  # what carried the data, as read from the log or from the sockets
    results: tuple[CollectiveResult, ...]
    started_by: str  # fork | exec
    duration_s: float
    causes: tuple[TrialCause, ...] = ()  # at most one; empty if the logs prove none
    connect_us: float | Gap = NOT_MEASURED  # making the group and its first collective, slowest rank
    failed_in: str = ""  # IN_START, or the collective that was timed; empty where it worked
    nccl: str = ""  # the version of NCCL that its ranks had loaded; "" where it was not read
    port_errors: tuple[PortErrors, ...] = ()  # of the RDMA ports of all nodes that counted errors during the trial


@dataclass(frozen=True, slots=True)
class RailTest:
    """The result of testing one RDMA port.

    All data between the ranks of the node goes through this port. P2P and shared memory are off.
    """

    hca: str
    port: int
    rate_gbit_s: float | Gap
    outcome: Outcome
    problem: str  # empty when ok
    transport: tuple[str, ...]  # what carried the data between ranks, such as NET/IB/0
    busbw_gb_s: float | Gap  # all_reduce at the largest size
    repetition: int = 0  # 1: repeats the test of a port that failed or was slower than others of its rate


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a configuration with the default settings.

    The comparison takes samples of the two in alternation.
    """

    candidate: str
    rounds: int
    mean_gain: float  # 0.05 = 5% faster than the default
    lower_bound: float  # one-sided 99% bound of the mean gain
    worst_gain: float  # the smallest gain at any decision size
    wins: bool


NOT_REGISTERED = "usage"  # RankEnd.ended if the module of --backend does not register the backend


def unregistered_backend(trial: TrialResult) -> str:
    """Return the ranks' error message if the module in --backend did not register the backend.

    If any rank ended in another way, return "". Killed ranks do not count.
    """
    # Killed ranks are ignored.
    said = [end.detail for end in trial.ranks if end.ended == NOT_REGISTERED]
    others = {end.ended for end in trial.ranks} - {NOT_REGISTERED, "killed"}
    return said[0] if said and not others else ""


def without_speeds(trial: TrialResult, why: str) -> TrialResult:
    """Return a copy of `trial` without speeds. `why` is the reason for each missing speed."""
    gap = Gap(why)
    blank = dict.fromkeys(("min_us", "median_us", "p95_us", "p99_us", "spread", "algbw_gb_s", "busbw_gb_s"), gap)
    results = tuple(replace(result, ranks=(), **blank) for result in trial.results)  # type: ignore[arg-type]
    return replace(trial, results=results)


@dataclass(frozen=True, slots=True)
class Rerun:
    """A repeated test run with the same settings, in new processes."""

    candidate: str
    env: tuple[tuple[str, str], ...]
    outcome: Outcome
    problem: str  # empty where it worked
    duration_s: float
    control: str = ""  # the candidate whose runs alternate with the default's; "" if only a failure was repeated
    runs_each: int = 0  # of a control: how many runs of each were planned
    failed_in: str = ""  # as in TrialResult
    culprits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """All repeated test runs, and the settings that are tested as a workaround."""

    seed: int = 0  # of the random order of the runs
    wanted_each: int = 0  # runs of each that the profile requires
    chosen: str = ""  # the candidate under test as a workaround; "" if there is none
    env: tuple[tuple[str, str], ...] = ()  # the variables that it sets
    reruns: tuple[Rerun, ...] = ()

    def turns(self, control: str) -> tuple[Rerun, ...]:
        """Return the repeated runs in the A/B test of the configuration `control`, in order.

        Skipped runs are left out.
        """
        return tuple(each for each in self.reruns if each.control == control and each.outcome is not Outcome.SKIPPED)


NO_CONTROL = Control()


def odds(one: int, other: int) -> int:
    """Return N, the number of possible orders of the failures and successes in an A/B test.

    `one` is the number of failures, and `other` is the number of successes. By chance, a useless workaround looks
    effective in 1 of N cases.
    """
    return math.comb(one + other, one)


def stage_words(stage: str) -> str:
    """Return a stage of a test run as text.

    For the stage `first`, the text is "the first collective".
    """
    step, _, steps = stage.removeprefix("timed ").partition("/")
    words = {"first": "the first collective", "done": "its end"}
    return words.get(stage, f"timed step {step} of {steps}" if steps else stage)
