"""Where a rank stands: its Python stack where that could be read, and what the kernel says of its threads."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from preflight.model.gap import Gap
from preflight.model.stuck import Activity, RankPlace
from preflight.model.stuck_evidence import (
    HeldLock,
    NodeEvidence,
    Process,
    RankProcess,
    Stack,
    ThreadState,
    python_frames,
)  # fmt: skip
from preflight.stuck.judge.kernel_place import KernelWait, kernel_wait, main_thread, moved_bytes_path
from preflight.stuck.judge.python_place import PythonPlace, place_of

GROUP_THREADS = ("gloo", "pt_gloo", "pt_nccl", "nccl")  # how the threads of a process group are named
COMPILERS = ("cc1", "cc1plus", "c++", "g++", "gcc", "clang", "clang++", "nvcc", "ptxas", "cicc", "ninja", "ld", "as")
IDLE_WORKER = ("_worker_loop", "get", "poll", "_poll", "wait", "select")
BUSY_SHARE = 0.5
TELLING = frozenset((
    KernelWait.FIFO, KernelWait.PIPE, KernelWait.STORAGE, KernelWait.CHILD, KernelWait.SOCKET, KernelWait.FILE_LOCK,
))  # fmt: skip
# What a rank is in by the kernel's word alone.
BY_KERNEL = {
    KernelWait.FIFO: Activity.FILE_IO, KernelWait.PIPE: Activity.FILE_IO, KernelWait.STORAGE: Activity.FILE_IO,
    KernelWait.FILE_LOCK: Activity.FILE_LOCK, KernelWait.TIMER: Activity.SLEEPING,
    KernelWait.CHILD: Activity.SUBPROCESS,
    KernelWait.SOCKET: Activity.NETWORK_IO, KernelWait.RUNS: Activity.PYTHON, KernelWait.STOPPED: Activity.STOPPED,
    KernelWait.GONE: Activity.DEAD,
}  # fmt: skip
DOING = {
    KernelWait.FIFO: "opens a FIFO", KernelWait.PIPE: "reads or writes a pipe", KernelWait.STORAGE: "waits for storage",
    KernelWait.FILE_LOCK: "a file lock", KernelWait.TIMER: "sleeps", KernelWait.CHILD: "a child process",
    KernelWait.SOCKET: "a socket", KernelWait.RUNS: "computes", KernelWait.STOPPED: "stopped", KernelWait.GONE: "ended",
}  # fmt: skip


def place_rank(node: NodeEvidence, rank: RankProcess) -> RankPlace:
    """Return where a rank stands."""
    process, main = rank.process, main_thread(rank.process)
    if main is None or process.state in "ZX":
        return _place(node, rank, Activity.DEAD, PythonPlace(Activity.DEAD, "ended", "", None), "", True)
    wait = kernel_wait(main)
    stack = main_stack(process)
    stack_place = place_of(stack.frames) if stack else None
    activity, place = _both(stack_place, wait, rank, stack, main)
    detail = _detail(node, rank, activity, wait)
    waits = activity in (Activity.COLLECTIVE, Activity.STARTING) or (activity is Activity.UNSEEN and _in_group(process))
    waits = waits or (activity is Activity.GPU_WORK and uses_nccl(process))
    stands = wait in (KernelWait.STOPPED, KernelWait.STORAGE) or rests(main, node.rest_s)
    if wait is KernelWait.RUNS and activity in (Activity.COLLECTIVE, Activity.GPU_WORK):
        stands = _same_stack(process)  # NCCL's waiting is busy
    return _place(node, rank, activity, place, detail, stands, waits, main, _spins(process, wait, main))


def _place(
    node: NodeEvidence, rank: RankProcess, activity: Activity, place: PythonPlace, detail: str, stands: bool,
    waits: bool = False, main: ThreadState | None = None, spins: bool = False,
) -> RankPlace:  # fmt: skip
    for_s = main.asleep_s if main is not None else Gap("it has ended")
    if stands and main is not None and main.state == "R":
        for_s = Gap("it waits busily, so the kernel does not tell since when")
    within = place.within.value if place.within and place.within is not activity else ""
    return RankPlace(
        rank.rank, node.host, rank.process.pid, activity, place.doing, place.at, within, waits, stands, spins, for_s,
        detail,
    )  # fmt: skip


def main_stack(process: Process) -> Stack | None:
    """Return the main thread's stack, None where it was not read."""
    stacks = process.stacks if isinstance(process.stacks, tuple) else ()
    by_tid = next((stack for stack in stacks if stack.tid == process.pid), None)
    return by_tid or next((stack for stack in stacks if stack.thread == "MainThread"), None)


def rests(thread: ThreadState, rest_s: float) -> bool:
    """Tell whether a thread has slept for long, or through the whole watch where the kernel does not tell how long."""
    if thread.state == "R":
        return False
    if isinstance(thread.asleep_s, float):
        return thread.asleep_s >= rest_s
    return thread.wakes == 0 and thread.cpu_s == 0


def _same_stack(process: Process) -> bool:
    """Tell whether the job's own part of the main stack is the same at both ends of the watch."""
    pair = []
    for stacks in (process.earlier_stacks, process.stacks):
        read = stacks if isinstance(stacks, tuple) else ()
        pair.append(next((python_frames(stack) for stack in read if stack.tid == process.pid), ()))
    return bool(pair[0]) and pair[0] == pair[1]


def _in_group(process: Process) -> bool:
    return any(thread.name.startswith(GROUP_THREADS) for thread in process.threads)


def uses_nccl(process: Process) -> bool:
    """Tell whether the process has a group of NCCL's, whose collectives run on the GPU: to wait for it is to wait."""
    return any(thread.name.startswith("pt_nccl") for thread in process.threads)


def _spins(process: Process, wait: KernelWait, main: ThreadState) -> bool:
    return wait is KernelWait.RUNS and main.wakes == 0 and _same_stack(process)


def _waits_for_gpu(process: Process, wait: KernelWait, main: ThreadState) -> bool:
    """Tell whether a line of the job's own waits for a GPU, as loss.item() does: in a native call, busily or not."""
    return uses_nccl(process) and (wait is KernelWait.LOCK or _spins(process, wait, main))


def _both(
    stack_place: PythonPlace | None, wait: KernelWait, rank: RankProcess, stack: Stack | None, main: ThreadState
) -> tuple[Activity, PythonPlace]:
    """Return what both witnesses together tell."""
    if wait is KernelWait.STOPPED:
        return Activity.STOPPED, stack_place or PythonPlace(Activity.STOPPED, "stopped", "", None)
    if stack_place is None or stack is None:
        return _by_kernel_alone(wait, rank)
    activity = stack_place.activity
    if stack.has_gil and wait not in (KernelWait.RUNS, KernelWait.STORAGE, KernelWait.FILE_LOCK) and _is_own(activity):
        activity = Activity.GIL
    elif activity is Activity.BACKWARD and wait is KernelWait.LOCK:
        return Activity.COLLECTIVE, PythonPlace(activity, "all_reduce in backward", stack_place.at, stack_place.within)
    elif wait is KernelWait.FILE_LOCK:
        activity = Activity.FILE_LOCK
    elif activity is Activity.PYTHON and _waits_for_gpu(rank.process, wait, main):
        return Activity.GPU_WORK, PythonPlace(Activity.GPU_WORK, "the GPU", stack_place.at, stack_place.within)
    elif activity is Activity.PYTHON:
        activity = Activity.LOCK if wait is KernelWait.LOCK else BY_KERNEL.get(wait, Activity.PYTHON)
        if wait is KernelWait.LOCK and (holder := _gil_holder(rank.process, main.tid)):
            return Activity.GIL, PythonPlace(
                Activity.GIL, f"the GIL, which {holder} holds", stack_place.at, stack_place.within
            )
    return activity, stack_place


def _is_own(activity: Activity) -> bool:
    return activity in (Activity.PYTHON, Activity.SAVE, Activity.LOAD, Activity.IMPORTING)


def _gil_holder(process: Process, tid: int) -> str:
    stacks = process.stacks if isinstance(process.stacks, tuple) else ()
    holder = next((stack for stack in stacks if stack.has_gil and stack.tid != tid), None)
    return f"{holder.thread} in {place_of(holder.frames).at}" if holder else ""


def _by_kernel_alone(wait: KernelWait, rank: RankProcess) -> tuple[Activity, PythonPlace]:
    compiler = next((helper for helper in rank.helpers if posixpath.basename(helper.name) in COMPILERS), None)
    if compiler is not None:
        activity, doing = Activity.COMPILING, compiler.name
    elif wait is KernelWait.POLL and any(map(is_data_worker, rank.helpers)):
        activity, doing = Activity.DATA_LOADING, "polls, as for a data worker"
    elif wait is KernelWait.POLL and not _in_group(rank.process):
        activity, doing = Activity.STARTING, "polls, and has no process group yet"
    else:
        activity, doing = BY_KERNEL.get(wait, Activity.UNSEEN), DOING.get(wait, wait.value)
    return activity, PythonPlace(activity, doing, "", None)


def is_data_worker(process: Process) -> bool:
    """Tell whether a process is a DataLoader's worker: by torch's name for it (2.6), or by its stack."""
    stack = main_stack(process)
    return process.is_data_worker or (
        stack is not None and any(frame.function.endswith("_worker_loop") for frame in stack.frames)
    )


def _detail(node: NodeEvidence, rank: RankProcess, activity: Activity, wait: KernelWait) -> str:
    """Return what the kernel adds, as a clause that follows the place."""
    if lock := next((each for each in node.locks if each.waiting_pid == rank.process.pid), None):
        return f"held by {holder_of(lock)}"
    if activity is Activity.DATA_LOADING and (worker := stuck_worker(rank.helpers, node.watched_s)):
        return f"its data worker {worker}"
    if activity in (Activity.COMPILING, Activity.SUBPROCESS):
        children = [each for each in rank.helpers if not is_data_worker(each)]
        return f"its child {children[-1].name} (pid {children[-1].pid}) runs" if children else ""
    if activity in (Activity.SAVE, Activity.FILE_IO) and (moving := moved_bytes_path(rank.process)):
        path, kind, moved_bytes = moving
        rate = moved_bytes / max(node.watched_s, 0.1) / 1e6
        return f"writing to {path} ({kind or 'file system unknown'}) at {rate:.1f} MB/s"
    return f"waits for {wait.value}" if wait in TELLING else ""


def holder_of(lock: HeldLock) -> str:
    """Return who holds a lock, for people."""
    return f"process {lock.holding_pid}" + (f" ({lock.holder})" if lock.holder else "")


def stuck_worker(helpers: Sequence[Process], watched_s: float) -> str:
    """Return the data worker that does not deliver, and where it stands; "" where all are idle or none is seen."""
    for worker in filter(is_data_worker, helpers):
        main, stack = main_thread(worker), main_stack(worker)
        if main is None:
            return f"(pid {worker.pid}) is dead"
        wait = kernel_wait(main)
        if wait is KernelWait.STOPPED:
            return f"(pid {worker.pid}) is stopped"
        place = place_of(stack.frames) if stack else None
        is_idle = wait in (KernelWait.POLL, KernelWait.LOCK) and (place is None or not _own_work(stack))
        if is_idle or (wait is KernelWait.RUNS and not main.cpu_s > BUSY_SHARE * watched_s):
            continue
        at = f" in {place.at}" if place and place.at else ""
        return (
            f"(pid {worker.pid}) stands{at}, waits for {wait.value}"
            if wait is not KernelWait.RUNS
            else (f"(pid {worker.pid}) computes{at}")
        )
    return ""


def _own_work(stack: Stack | None) -> bool:
    """Tell whether a worker is in the data set's code and not in the loop that waits for the next index."""
    return stack is not None and any("/_utils/fetch.py" in frame.file for frame in stack.frames)
