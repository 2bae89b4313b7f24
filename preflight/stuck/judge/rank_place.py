"""The state of each rank of a job, from its Python stack and the kernel's data about its threads."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.model.gap import Gap, known_or
from preflight.model.stuck import Activity, RankPlace
from preflight.model.stuck_evidence import NodeEvidence, Process, RankProcess, RasAnswer, Stack, ThreadState
from preflight.stuck.judge.kernel_wait import KernelWait
from preflight.stuck.judge.python_stack import FULL_RING, StackPlace

COMPILERS = ("cc1", "cc1plus", "c++", "g++", "gcc", "clang", "clang++", "nvcc", "ptxas", "cicc", "ninja", "ld", "as")
BUSY_SHARE = 0.5  # of the watch that a data worker computes: one that computes less waits for work
JUST_BEGUN_S = 1.0  # a child that was younger when the watch began says nothing by its end
WORKING_SHARE = 0.1  # of the watch: who shares its CPU with others gets no more, and who only polls takes less
LOOP_WAKES_PER_S = 20  # a thread that is woken this often and also computes goes round in a loop
WORKING_BYTES_PER_S = 16 << 10  # heartbeats and logs are less
# What a rank is in by the kernel's word alone, and how its call is named then.
BY_KERNEL = {
    KernelWait.FIFO: (Activity.FILE_IO, "opens a FIFO"),
    KernelWait.PIPE: (Activity.FILE_IO, "reads or writes a pipe"),
    KernelWait.STORAGE: (Activity.FILE_IO, "waits for storage"),
    KernelWait.FILE_LOCK: (Activity.FILE_LOCK, "a file lock"),
    KernelWait.TIMER: (Activity.SLEEPING, "sleeps"),
    KernelWait.CHILD: (Activity.SUBPROCESS, "a child process"),
    KernelWait.SOCKET: (Activity.NETWORK_IO, "a socket"),
    KernelWait.RUNS: (Activity.PYTHON, "computes"),
    KernelWait.GONE: (Activity.DEAD, "ended"),
}
TELLING = frozenset((
    KernelWait.FIFO, KernelWait.PIPE, KernelWait.STORAGE, KernelWait.CHILD, KernelWait.SOCKET, KernelWait.FILE_LOCK,
))  # fmt: skip


# What it waits for may be a process that it started.
FOR_HELPERS = frozenset((
    KernelWait.LOCK, KernelWait.PIPE, KernelWait.POLL, KernelWait.CHILD, KernelWait.SOCKET,
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobState:
    """The states of all ranks of a job, and the evidence.

    `servers` has the states of the processes that give work to the ranks of a serving engine.
    """

    nodes: tuple[NodeEvidence, ...]
    places: tuple[RankPlace, ...]
    servers: tuple[RankPlace, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[NodeEvidence]) -> JobState:
        """Return the state of the job from the evidence of `nodes`.

        Ranks without a process are included.
        """
        places = [place_rank(node, rank) for node in nodes for rank in node.ranks]
        places += [
            RankPlace.gone(rank, node.host, 0, Activity.MISSING, "no process", "no process has its rank number")
            for node in nodes
            for rank in node.missing_ranks
        ]
        places.sort(key=lambda p: (p.rank if isinstance(p.rank, int) else 1 << 30, p.host, p.pid))
        return cls(
            tuple(nodes), tuple(places), tuple(place_rank(node, each) for node in nodes for each in node.servers)
        )

    @property
    def alive(self) -> list[RankPlace]:
        """Return the states of the ranks that have a live process."""
        return [place for place in self.places if not place.is_gone]

    @property
    def waiting(self) -> list[RankPlace]:
        """Return the states of the ranks that wait for other ranks."""
        return [place for place in self.places if place.waits_for_others]

    @property
    def is_idle(self) -> bool:
        """Return whether every rank is a server's worker that waits for the next request."""
        return bool(self.places) and all(place.activity is Activity.IDLE for place in self.places)

    @property
    def before_full_rings(self) -> list[RankPlace]:
        """Return the states of the serving engine's processes that wait because a message ring is full."""
        return [place for place in self.servers if place.doing == FULL_RING and place.stands]

    @property
    def world_size(self) -> int:
        """Return the number of ranks in the job, or 0 if no variable gives the number."""
        sizes = (rank.world_size for node in self.nodes for rank in node.ranks)
        return max((size for size in sizes if isinstance(size, int)), default=0)

    @property
    def ras_answers(self) -> list[RasAnswer]:
        """Return the replies of NCCL's RAS, from the nodes on which RAS replied."""
        return [node.ras for node in self.nodes if not isinstance(node.ras, Gap)]


def place_rank(node: NodeEvidence, rank: RankProcess) -> RankPlace:
    """Return the state of `rank`: its activity, whether it waits for other ranks, and whether it makes progress."""
    process, main, stack = rank.process, rank.process.main_thread, rank.process.main_stack
    if main is None or process.state in "ZX":
        return RankPlace.gone(rank.rank, node.host, process.pid, Activity.DEAD, "ended", "it has ended")
    wait = KernelWait.of(main)
    spins = wait is KernelWait.RUNS and main.wakes == 0 and (process.keeps_its_stack or process.was_read_once)
    place = _by_kernel_alone(rank, wait) if stack is None else _by_stack_and_kernel(rank, wait, stack, spins)
    activity = place.activity
    stands = wait in (KernelWait.STOPPED, KernelWait.STORAGE) or main.rests(node.rest_s)
    if wait is KernelWait.RUNS and activity in (Activity.COLLECTIVE, Activity.GPU_WORK):
        stands = process.keeps_its_stack and not _is_in_loop(node, main)  # NCCL's waiting is busy
    elif wait is KernelWait.RUNS and activity is Activity.RING:  # vLLM's too, in several lines
        is_full = place.doing == FULL_RING and not _is_in_loop(node, main)
        stands = _was_in(process, place.doing) and (is_full or main.wakes == 0)  # who gets answers is woken by them
    for_s = main.asleep_s
    if stands and main.state == "R":
        for_s = Gap("it waits busily, so the start of the wait is unknown")
    waits_for_others = (
        activity in (Activity.COLLECTIVE, Activity.STARTING, Activity.RING)
        or (activity is Activity.UNSEEN and process.is_in_group)
        or (activity is Activity.GPU_WORK and process.uses_nccl)
    )
    return RankPlace(
        rank=rank.rank,
        host=node.host,
        pid=process.pid,
        activity=activity,
        doing=place.doing,
        at=place.at,
        within=place.within.value if place.within and place.within is not activity else "",
        waits_for_others=waits_for_others,
        stands=stands,
        spins=spins,
        for_s=for_s,
        detail=_detail(node, rank, activity, wait),
        works="" if waits_for_others else _works(node, rank, activity, wait),
        name=rank.name,
    )


def _is_in_loop(node: NodeEvidence, main: ThreadState) -> bool:
    """Return whether a thread uses much CPU time and wakes often, as in a loop of short collectives."""
    watched_s = max(node.watched_s, 0.1)
    is_woken = isinstance(main.wakes, int) and main.wakes >= LOOP_WAKES_PER_S * watched_s
    return is_woken and main.cpu_s >= WORKING_SHARE * watched_s


def _was_in(process: Process, doing: str) -> bool:
    """Return whether the main thread was already in the call `doing` at the start of the watch.

    If the stack was read only at the end, return whether the thread has not slept since the start.
    """
    if process.was_read_once and process.main_thread is not None:
        return process.main_thread.wakes == 0
    stacks = known_or(process.earlier_stacks, ())
    return any(each.tid == process.pid and StackPlace.of(each.frames).doing == doing for each in stacks)


def _by_kernel_alone(rank: RankProcess, wait: KernelWait) -> StackPlace:
    """Return the activity of a rank whose stack could not be read, from the kernel's data."""
    if wait is KernelWait.STOPPED:
        return StackPlace(Activity.STOPPED, "stopped")
    compiler = next((each for each in rank.helpers if posixpath.basename(each.name) in COMPILERS), None)
    if compiler is not None:
        return StackPlace(Activity.COMPILING, compiler.name)
    if wait is KernelWait.POLL and any(each.serves_a_data_loader for each in rank.helpers):
        return StackPlace(Activity.DATA_LOADING, "polls, as for a data worker")
    if wait is KernelWait.POLL and not rank.process.is_in_group:
        return StackPlace(Activity.STARTING, "polls, and has no process group yet")
    return StackPlace(*BY_KERNEL.get(wait, (Activity.UNSEEN, wait.value)))


def _by_stack_and_kernel(rank: RankProcess, wait: KernelWait, stack: Stack, spins: bool) -> StackPlace:
    """Return the activity of a rank from its stack.

    If the kernel's data show more, the activity comes from these data.
    """
    place, process = StackPlace.of(stack.frames), rank.process
    activity, doing = place.activity, place.doing
    gil_holder = next((each for each in known_or(process.stacks, ()) if each.has_gil and each.tid != process.pid), None)
    is_own = activity in (Activity.PYTHON, Activity.SAVE, Activity.LOAD, Activity.IMPORTING)
    if wait is KernelWait.STOPPED:
        activity = Activity.STOPPED
    elif stack.has_gil and is_own and wait not in (KernelWait.RUNS, KernelWait.STORAGE, KernelWait.FILE_LOCK):
        activity = Activity.GIL
    elif activity is Activity.BACKWARD and wait is KernelWait.LOCK:
        activity, doing = Activity.COLLECTIVE, "all_reduce in backward"
    elif wait is KernelWait.FILE_LOCK:
        activity = Activity.FILE_LOCK
    elif activity is Activity.PYTHON and process.uses_nccl and (wait is KernelWait.LOCK or spins):
        activity, doing = Activity.GPU_WORK, "the GPU"  # loss.item() waits in a native call, which leaves no frame
    elif activity is Activity.PYTHON and wait is KernelWait.LOCK and gil_holder is not None:
        at = StackPlace.of(gil_holder.frames).at
        activity, doing = Activity.GIL, f"the GIL, which {gil_holder.thread} in {at} holds"
    elif activity is Activity.PYTHON and wait is KernelWait.LOCK:
        activity = Activity.LOCK
    elif activity is Activity.PYTHON:
        activity, _ = BY_KERNEL.get(wait, (Activity.PYTHON, ""))
    return replace(place, activity=activity, doing=doing)


def _detail(node: NodeEvidence, rank: RankProcess, activity: Activity, wait: KernelWait) -> str:
    """Return a clause with more data on what a rank does, such as a lock's holder or a file's path.

    The result is "" if there are no such data.
    """
    if lock := next((each for each in node.locks if each.waiting_pid == rank.process.pid), None):
        path = f"{lock.path}, " if lock.path else ""
        return f"{path}held by process {lock.holding_pid}" + (f" ({lock.holder})" if lock.holder else "")
    if activity is Activity.DATA_LOADING and (worker := _blocked_worker(rank, node.watched_s)):
        return f"its data worker {worker}"
    if activity in (Activity.COMPILING, Activity.SUBPROCESS):
        children = [each for each in rank.helpers if not each.serves_a_data_loader]
        return f"its child {children[-1].name} (pid {children[-1].pid}) runs" if children else ""
    if activity in (Activity.SAVE, Activity.FILE_IO) and (file := rank.process.fastest_written_file):
        rate_mb_s = file.moved_bytes / max(node.watched_s, 0.1) / 1e6
        return f"writing to {file.path} ({file.file_system or 'file system unknown'}) at {rate_mb_s:.1f} MB/s"
    return f"waits for {wait.value}" if wait in TELLING else ""


def _works(node: NodeEvidence, rank: RankProcess, activity: Activity, wait: KernelWait) -> str:
    """Return how a rank makes progress, as a phrase such as "reads or writes 90 kB/s".

    The result is "" if the rank sleeps, or computes but stays in the same line of code.
    """
    process, main, watched_s = rank.process, rank.process.main_thread, max(node.watched_s, 0.1)
    if main is None or wait is KernelWait.STOPPED:
        return ""
    thread, native_cpu_s = process.busiest_changing_thread, process.native_cpu_s
    cpu_s, where = (thread.cpu_s, "changing lines") if thread else (0.0, "")
    if thread is None and process.was_read_once and process.main_stack is not None and process.main_stack.frames:
        cpu_s, where = main.cpu_s, "lines that were read only once"
    if cpu_s < WORKING_SHARE * watched_s:
        cpu_s, where = native_cpu_s, "native threads"
    if cpu_s >= WORKING_SHARE * watched_s:
        return f"computes in {where} ({_percent(cpu_s, watched_s)} of a CPU)"
    waits_for_helpers = activity in (Activity.SUBPROCESS, Activity.COMPILING, Activity.DATA_LOADING)
    if waits_for_helpers or wait in FOR_HELPERS:
        for each in rank.helpers:
            if works := _helper_works(each, watched_s, is_noticed=main.wakes != 0):
                return f"waits for its child {each.name} (pid {each.pid}), which {works}"
    file = process.fastest_written_file
    moved_bytes = max(process.moved_bytes, file.moved_bytes if file else 0)
    if moved_bytes >= WORKING_BYTES_PER_S * watched_s:
        return f"reads or writes {moved_bytes / watched_s / 1e3:.0f} kB/s"
    # A thread in the kernel's read or write wakes only if something came or went; a poll also if its time is up.
    is_served = wait in (KernelWait.PIPE, KernelWait.SOCKET) or (
        wait is KernelWait.POLL and activity is Activity.NETWORK_IO
    )
    if is_served and not main.rests(node.rest_s) and isinstance(main.wakes, int) and main.wakes > 1:
        return f"gets or sends data, {main.wakes} times in {watched_s:.0f} s"
    return ""


def _helper_works(helper: Process, watched_s: float, *, is_noticed: bool) -> str:
    """Return how a rank's child process makes progress, as a phrase such as "reads or writes 90 kB/s".

    The result is "" if the child sleeps, or computes in the same line of Python all the time.

    The end of the child during the watch is progress if the rank was also woken during the watch (`is_noticed`). The
    end of a data worker is no progress. The end of a child that had just begun, as in a polling loop, is no progress
    either.
    """
    is_old = helper.age_s > watched_s + JUST_BEGUN_S
    if helper.state == "X" and is_old and is_noticed and not helper.serves_a_data_loader:
        return "has ended since"
    cpu_s = sum(each.cpu_s for each in helper.threads)
    if cpu_s >= WORKING_SHARE * watched_s and not helper.keeps_its_stack:
        return f"computes ({_percent(cpu_s, watched_s)} of a CPU)"
    if helper.moved_bytes >= WORKING_BYTES_PER_S * watched_s:
        return f"reads or writes {helper.moved_bytes / watched_s / 1e3:.0f} kB/s"
    return ""


def _percent(cpu_s: float, watched_s: float) -> str:
    return f"{100 * cpu_s / watched_s:.0f}%"


def _blocked_worker(rank: RankProcess, watched_s: float) -> str:
    """Return a text on the data worker that delivers no data, and on what this worker does.

    The result is "" if the rank has no data worker, or if all data workers are idle.
    """
    for worker in rank.helpers:
        if not worker.serves_a_data_loader:
            continue
        main, stack = worker.main_thread, worker.main_stack
        if main is None:
            return f"(pid {worker.pid}) is dead"
        wait = KernelWait.of(main)
        if wait is KernelWait.STOPPED:
            return f"(pid {worker.pid}) is stopped"
        # In the data set's code, or in the loop that waits for the next index.
        fetches = stack is not None and any("/_utils/fetch.py" in frame.file for frame in stack.frames)
        at = StackPlace.of(stack.frames).at if stack else ""
        in_line = f" in {at}" if at else ""
        if wait is KernelWait.RUNS and main.cpu_s > BUSY_SHARE * watched_s:
            return f"(pid {worker.pid}) computes{in_line}"
        if wait is not KernelWait.RUNS and (fetches or wait not in (KernelWait.POLL, KernelWait.LOCK)):
            return f"(pid {worker.pid}) is blocked{in_line}, waits for {wait.value}"
    return ""
