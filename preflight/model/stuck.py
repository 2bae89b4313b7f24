"""What `preflight stuck` answers: which ranks are where, which of them hold up the others, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import NodeEvidence


class StuckVerdict(str, Enum):
    """How the question can end."""

    STUCK = "stuck"
    NOT_STUCK = "not_stuck"
    UNKNOWN = "unknown"


EXIT_CODES = {StuckVerdict.NOT_STUCK: 0, StuckVerdict.STUCK: 1, StuckVerdict.UNKNOWN: 3}


class Activity(str, Enum):
    """What a rank stands in."""

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
    PYTHON = "python"
    ENDING = "ending"
    STOPPED = "stopped"
    DEAD = "dead"
    MISSING = "missing"  # no process carries its number
    UNSEEN = "unseen"  # neither its stack nor a telling state of the kernel could be read


class Reason(str, Enum):
    """Why a job stands still."""

    DEAD_RANK = "dead_rank"
    STOPPED_PROCESS = "stopped_process"
    STORAGE = "storage"
    GPU_LOST = "gpu_lost"
    NEVER_CAME = "never_came"
    RANK_ELSEWHERE = "rank_elsewhere"  # in something else while the others wait in a collective
    OTHER_COLLECTIVE = "other_collective"
    PATH_BROKEN = "path_broken"
    NOTHING_MOVES = "nothing_moves"  # the same collective on all ranks, and no sign of which path
    ALL_WAIT = "all_wait"  # nobody is in a collective: each waits for something of its own


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank stands."""

    rank: int | Gap
    host: str
    pid: int  # 0 where there is no process
    activity: Activity
    doing: str  # the call: all_reduce, torch.save, flock
    at: str  # the job's own line: `train.py:212, train_step`; "" where it was not seen
    within: str  # the activity that surrounds it: a collective in a save; "" for none
    waits_for_others: bool
    stands: bool  # slept through the watch, or waits busily in one place
    spins: bool  # ran through the watch in one place: works for long, or waits busily
    for_s: float | Gap  # how long it has slept
    detail: str  # what the kernel adds: the file, the lock's holder, the data worker


@dataclass(frozen=True, slots=True)
class Culprit:
    """Ranks that hold up the job, why, and what to do; each step is a sentence, or four spaces and a command."""

    reason: Reason
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    host: str
    what: str
    evidence: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StuckReport:
    """The answer to "my job hangs, now"."""

    schema_version: int
    verdict: StuckVerdict
    exit_code: int
    summary: str
    culprits: tuple[Culprit, ...]
    places: tuple[RankPlace, ...]
    hints: tuple[str, ...]  # what points somewhere and proves nothing
    not_seen: tuple[str, ...]
    nodes: tuple[NodeEvidence, ...]
