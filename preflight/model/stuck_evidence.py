"""What one node tells about a job that hangs: its ranks, what each stands in, and what could not be seen.

`watch` is the time during which the processes were looked at several times; amounts are those of that time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.model.gap import Gap

SCHEMA_VERSION = 1
NO_PTRACE = "ptrace is forbidden"  # how the reason begins where stacks can't be read for want of a permission
OF_C = re.compile(r"(?i)^$|\.(?:so(?:\.[\d.]+)?|c|cc|cpp|cxx|cu|h|hpp|inc|pyx|s)$")  # libraries and sources


@dataclass(frozen=True, slots=True)
class Frame:
    """A call on a Python stack; with `--native` also one of C or C++."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of a thread, innermost call first."""

    tid: int
    thread: str
    has_gil: bool
    frames: tuple[Frame, ...]


def python_frames(stack: Stack) -> tuple[Frame, ...]:
    """Return the frames of Python: those of C are there only where they were asked for."""
    return tuple(each for each in stack.frames if not OF_C.search(each.file))


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread as the kernel sees it: the one-letter state and the kernel function in which it waits ("" = runs)."""

    tid: int
    name: str
    state: str
    wait_channel: str
    cpu_s: float  # user and system, during the watch
    wakes: int | Gap  # voluntary context switches during the watch
    asleep_s: float | Gap  # since it last ran


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file of a file system that a process has open."""

    fd: int
    path: str
    file_system: str  # its type: nfs4, ext4, fifo, ...; "" where the mount was not found
    is_written: bool
    moved_bytes: int  # by how much its offset moved during the watch


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection of a process, as /proc/net/tcp has it."""

    local: str
    remote: str
    state: str
    send_queue_bytes: int  # not acknowledged or not yet sent, at both ends of the watch
    receive_queue_bytes: int  # arrived and not yet read
    retransmits: int  # of the segment that is not acknowledged


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job."""

    pid: int
    parent_pid: int
    name: str
    command: str  # values that look like secrets are replaced
    state: str
    age_s: float
    threads: tuple[ThreadState, ...]
    stacks: tuple[Stack, ...] | Gap
    earlier_stacks: tuple[Stack, ...] | Gap  # at the beginning of the watch
    files: tuple[OpenFile, ...] | Gap
    connections: tuple[Connection, ...] | Gap
    is_data_worker: bool = False


@dataclass(frozen=True, slots=True)
class OutputTail:
    """The last lines that a rank wrote, where that is a file."""

    path: str
    lines: tuple[str, ...]
    silent_s: float


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank and the processes that it started."""

    rank: int | Gap
    rank_source: str  # the variable that says so, or how it was concluded
    world_size: int | Gap
    local_world_size: int | Gap
    process: Process
    helpers: tuple[Process, ...]
    output: OutputTail | Gap


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that a rank started and that outlived it."""

    rank: int
    process: Process


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A file lock for which a process of the job waits, and who holds it."""

    waiting_pid: int
    holding_pid: int
    holder: str  # its command line, "" where it can't be seen
    path: str  # "" where it can't be told


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as NVML sees it."""

    nvml_index: int
    uuid: str | Gap
    utilization_percent: float | Gap
    power_w: float | Gap
    power_limit_w: float | Gap
    sm_clock_mhz: float | Gap


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank that NCCL's RAS names, and where it runs ("" and 0 where it does not say)."""

    rank: int
    pid: int
    node: str
    what: str  # what sets it apart: "has launched 9 AllReduce operations, others 10"


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """What NCCL's RAS says of the job: its words, the ranks that it misses, those that it shows behind."""

    address: str
    nccl_version: str
    text: str
    missing: tuple[RasRank, ...]
    behind: tuple[RasRank, ...]
    is_level: bool  # it heard of every rank, and all have launched the same


@dataclass(frozen=True, slots=True)
class RecordedLag:
    """Ranks that the flight recorder's dumps show behind, or in another collective under the same number."""

    ranks: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What one node tells."""

    schema_version: int
    host: str
    taken_at: str  # RFC 3339, UTC
    watched_s: float
    rest_s: float  # who has slept for so long at the end of the watch stands
    job: str  # what its ranks have in common: a Slurm job, a run id, the meeting point, or a launcher's pid
    ranks: tuple[RankProcess, ...]
    orphans: tuple[Orphan, ...]
    locks: tuple[HeldLock, ...]
    gpus: tuple[GpuState, ...] | Gap
    ras: RasAnswer | Gap
    recorded: RecordedLag | Gap
    xid_lines: tuple[str, ...] | Gap  # of the kernel log, which does not tell here how old they are
    not_seen: tuple[str, ...]  # what could not be looked at, with what would allow it
