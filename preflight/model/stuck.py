"""The result of `preflight stuck`: what each rank does, which ranks block others, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from preflight.model.gap import Gap
from preflight.model.shown import Printable
from preflight.model.stuck_evidence import NodeEvidence
from preflight.model.units import duration_text, ranks_text
from preflight.model.word import Word

MOST_RANKS = 8  # that are named
NOT_YET = "Not stuck yet"  # prefix of an answer that names ranks which make progress while others wait for them


class JobRow(NamedTuple):
    """A job on a node, with the values by which a user recognizes the job."""

    pid: int  # of its first rank
    ranks: int  # on this node
    command: str
    folder: str
    since_s: float


class StuckVerdict(Word):
    """The possible verdicts on a job that may hang."""

    STUCK = "stuck"
    NOT_STUCK = "not_stuck"
    UNKNOWN = "unknown"


EXIT_CODES = {StuckVerdict.NOT_STUCK: 0, StuckVerdict.STUCK: 1, StuckVerdict.UNKNOWN: 3}


class Activity(Word):
    """The activity of a rank."""

    COLLECTIVE = "collective"
    STARTING = "starting"  # rendezvous, the store, a process group that is being made
    SAVE = "save"
    LOAD = "load"
    EVALUATION = "evaluation"
    DATA_LOADING = "data_loading"
    COMPILING = "compiling"
    IMPORTING = "importing"
    FILE_LOCK = "file_lock"
    LOCK = "lock"  # of Python: a lock, a queue, another thread
    GIL = "gil"
    FILE_IO = "file_io"
    NETWORK_IO = "network_io"
    SUBPROCESS = "subprocess"
    SLEEPING = "sleeping"
    BACKWARD = "backward"
    GPU_WORK = "gpu_work"  # waits for its own GPU
    IDLE = "idle"  # a server's worker that waits for the next request
    RING = "ring"  # a serving engine's processes wait for each other at their shared-memory ring
    PYTHON = "python"
    ENDING = "ending"
    STOPPED = "stopped"
    DEAD = "dead"
    MISSING = "missing"  # no process carries its number
    UNSEEN = "unseen"  # no stack could be read, and the kernel's state of its threads shows nothing


# What precedes a call: "rank 2 is writing a checkpoint: torch.save".
IN_WORDS = {
    Activity.COLLECTIVE: "in", Activity.STARTING: "starting:", Activity.SAVE: "writing a checkpoint:",
    Activity.LOAD: "loading:",
    Activity.EVALUATION: "in evaluation:", Activity.DATA_LOADING: "waiting for data:", Activity.COMPILING: "compiling:",
    Activity.IMPORTING: "importing:", Activity.FILE_LOCK: "waiting for a file lock:",
    Activity.LOCK: "waiting for a lock:",
    Activity.GIL: "holding or waiting for the GIL:", Activity.FILE_IO: "in a file operation:",
    Activity.NETWORK_IO: "waiting for the network:", Activity.SUBPROCESS: "waiting for a child process:",
    Activity.SLEEPING: "sleeping:", Activity.BACKWARD: "computing in", Activity.GPU_WORK: "waiting for",
    Activity.IDLE: "idle in", Activity.RING: "waiting for",
    Activity.PYTHON: "in Python code:", Activity.ENDING: "ending:", Activity.STOPPED: "stopped:",
    Activity.DEAD: "dead:", Activity.MISSING: "missing:", Activity.UNSEEN: "unseen:",
}  # fmt: skip


class Reason(Word):
    """The reason why a job makes no progress."""

    DEAD_RANK = "dead_rank"
    STOPPED_PROCESS = "stopped_process"
    STORAGE = "storage"
    GPU_LOST = "gpu_lost"
    NEVER_CAME = "never_came"
    RANK_ELSEWHERE = "rank_elsewhere"  # in something else while the others wait in a collective
    OTHER_COLLECTIVE = "other_collective"
    PATH_BROKEN = "path_broken"
    NOTHING_MOVES = "nothing_moves"  # all ranks wait in the same collective, and no path is known to be broken
    ALL_WAIT = "all_wait"  # no rank is in a collective: each waits for something of its own


@dataclass(frozen=True, slots=True)
class RankPlace:
    """What a rank did while preflight watched the job, and whether the rank made progress."""

    rank: int | Gap
    host: str
    pid: int  # 0 where there is no process
    activity: Activity
    doing: str  # the call: all_reduce, torch.save, flock
    at: str  # the line of the job's own code: `train.py:212, train_step`; "" if it is not known
    within: str  # the activity that surrounds it: a collective in a save; "" for none
    waits_for_others: bool
    stands: bool  # blocked: it slept during the whole watch, or polls in one place
    spins: bool  # ran during the whole watch in one place: long work, or polling
    for_s: float | Gap  # how long it has slept
    detail: str  # from the kernel: the file, the lock's holder, the data worker
    works: str = ""  # the sign that it makes progress while others wait for it; "" if there is none
    name: str = ""  # as a serving engine calls it: Worker_TP1

    @classmethod
    def gone(cls, rank: int | Gap, host: str, pid: int, activity: Activity, doing: str, why: str) -> RankPlace:
        """Return the record of a rank without a live process: the activity is DEAD or MISSING."""
        return cls(rank, host, pid, activity, doing, "", "", False, True, False, Gap(why), "")

    @property
    def is_gone(self) -> bool:
        """Return whether the rank has no live process."""
        return self.activity in (Activity.DEAD, Activity.MISSING)

    @property
    def wait(self) -> str:
        """The rank's wait as text: `in all_reduce`, or `for the GPU` if the rank waits for its GPU."""
        return f"for {self.doing}" if self.activity in (Activity.GPU_WORK, Activity.RING) else f"in {self.doing}"

    @property
    def surroundings(self) -> str:
        """The activity that surrounds the call, such as `, within evaluation`, or "" if there is no such activity."""
        return f", within {self.within.replace('_', ' ')}" if self.within else ""

    @property
    def whereabouts(self) -> str:
        """What the rank does, as text: `writing a checkpoint: torch.save (train.py:52, save), for 40 s`."""
        at = f" ({self.at.removesuffix(f', {self.doing}')})" if self.at else ""  # a function is named once
        time = f", for {duration_text(self.for_s)}" if self.stands and isinstance(self.for_s, float) else ""
        detail = f", {self.detail}" if self.detail else ""
        return f"{IN_WORDS[self.activity]} {self.doing}{at}{self.surroundings}{detail}{time}"

    @property
    def rest(self) -> str:
        """Whether the rank's process sleeps or runs, as text: `rank 2 (pid 102) has slept for 40 s`."""
        if self.spins:
            rest = "runs without a pause, in one place"
        elif self.stands and isinstance(self.for_s, float):
            rest = f"has slept for {duration_text(self.for_s)}"
        else:
            rest = "did not run during the watch" if self.stands else "runs, or wakes now and then"
        who = f"rank {self.rank} (pid {self.pid})" if isinstance(self.rank, int) else f"pid {self.pid}"
        return f"{who} {rest}"


def ranks_of(places: Sequence[RankPlace]) -> tuple[int, ...]:
    """Return the known rank numbers in `places`, sorted."""
    return tuple(sorted(place.rank for place in places if isinstance(place.rank, int)))


def rank_names(places: Sequence[RankPlace]) -> str:
    """Return the names of the ranks in `places`, such as `rank 3`, `ranks 1, 2` or `ranks 0-3`.

    At most MOST_RANKS numbers or names are listed.
    """
    # If a rank number is unknown, the name has the process ID. Processes of a serving engine have the engine's names.
    if places and all(place.name for place in places):
        names = [place.name for place in places]
        more = f" and {len(names) - MOST_RANKS} more" if names[MOST_RANKS:] else ""
        return f"{', '.join(names[:MOST_RANKS])}{more}"
    numbers = ranks_of(places)
    unknown = [f"process {place.pid}" for place in places if not isinstance(place.rank, int)]
    more = f" and {len(numbers) - MOST_RANKS} more" if numbers[MOST_RANKS:] else ""
    head = f"{ranks_text(numbers[:MOST_RANKS])}{more}" if numbers else ""
    return ", ".join(filter(None, [head, *unknown]))


@dataclass(frozen=True, slots=True)
class Culprit:
    """The ranks that block the job, the reason, and the steps to take. A step is a sentence or a command."""

    reason: Reason
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    host: str
    what: str
    evidence: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownHang:
    """A known bug of the job's software that may explain the hang."""

    bug: str  # its id in known_bugs.toml
    version: str  # "NCCL 2.28.9"; only the component's name if its version is not known
    says: str
    do: str
    how_sure: str
    address: str
    where: str  # a condition that was not read
    is_shown: bool  # a frame of the bug is on a stack; False: only the pattern of waiting ranks fits
    not_known: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """A sentence that names the known bug as a likely or possible cause."""
        condition = f", if {self.where}" if self.where else ""
        lacks = f"; {', '.join(self.not_known)} is not known" if self.not_known else ""
        word = "This is likely" if self.is_shown else "This may be"
        return f"{word} a known bug of {self.version}{condition}: {self.says}{lacks}."


@dataclass(frozen=True, slots=True, repr=False)
class StuckReport(Printable):
    """The result of `preflight stuck`: why the job hangs now."""

    schema_version: int
    verdict: StuckVerdict
    exit_code: int
    summary: str
    culprits: tuple[Culprit, ...]
    places: tuple[RankPlace, ...]
    hints: tuple[str, ...]  # signs that suggest a cause and prove none
    not_seen: tuple[str, ...]
    nodes: tuple[NodeEvidence, ...]
    known_bugs: tuple[KnownHang, ...] = ()  # that fit versions, machine and size, the surest first

    @property
    def in_short(self) -> str:
        """Return the verdict and the summary in one sentence."""
        return f"{self.verdict}: {self.summary}"
