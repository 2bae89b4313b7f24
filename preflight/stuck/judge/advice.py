"""The advice for each kind of hang; a step that begins with four spaces is a command."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.stuck import Activity, Reason

ALONE = (
    "On every rank, call the code that contains collectives. "
    "If one rank alone calls it (`if rank == 0:`), the others wait until they time out."
)
# By the reason, unless a rank is in something else than the others: then by what it is in.
STEPS: dict[Reason, tuple[str, ...]] = {
    Reason.DEAD_RANK: (
        "End the job: a dead rank does not come back. Its own last lines and the kernel log say why it died.",
        "    sudo dmesg -T | grep -i -e 'killed process' -e xid -e segfault",
        "Kill what it left behind too: data workers keep its connections open, so the others do not notice.",
    ),
    Reason.STOPPED_PROCESS: (
        "Let it go on, if it was not stopped on purpose (a debugger, Ctrl-Z, a scheduler that suspends):",
        "    kill -CONT PID",
    ),
    Reason.STORAGE: (
        "See whether the file system answers: `timeout 5 stat PATH` on this node and another. Waiting may help; "
        "killing does not help while the kernel holds the process.",
    ),
    Reason.GPU_LOST: ("End the job, drain the node and reset the GPU or reboot; dmesg has the Xid.",),
    Reason.NEVER_CAME: (
        "Look why it was not started or died before it could join the others: its launcher's output, on its node.",
        "Its node may not reach MASTER_ADDR:MASTER_PORT, or the number of nodes given to the launcher is wrong.",
    ),
    Reason.OTHER_COLLECTIVE: (
        "End the job: no timeout helps if ranks call different collectives. Compare the lines above.",
        ALONE,
        "A rank that is behind and blocked in this very call hangs in NCCL or the driver; its C frames say where:",
        "    py-spy dump --native --pid PID",
    ),
    Reason.PATH_BROKEN: (
        "No data arrives on this path: check link, firewall, MTU and routes between the two addresses.",
        "    preflight check",
    ),
    Reason.NOTHING_MOVES: (
        "All ranks are in the same collective, so the path between them is suspect. End the job and try the paths:",
        "    preflight check",
        "Next time NCCL's RAS (2.24 and newer) and the flight recorder say more: TORCH_NCCL_TRACE_BUFFER_SIZE=2000.",
    ),
}  # fmt: skip
ELSEWHERE: dict[Activity, tuple[str, ...]] = {
    Activity.SAVE: (
        "See whether the checkpoint's file grows. If so, wait: the others continue after it, unless the group's "
        "timeout comes first.",
        "    preflight timeout --params N --checkpoint-dir DIR",
        ALONE,
    ),
    Activity.EVALUATION: (
        "Wait if it makes progress; else evaluate on all ranks, each its share. " + ALONE,
    ),
    Activity.DATA_LOADING: (
        "See what its data worker reads: the storage may not answer, or the data set is at its end on this rank only.",
    ),
    Activity.COMPILING: (
        "Wait: the first compilation takes minutes, and a warm cache (TORCHINDUCTOR_CACHE_DIR on a local disk) none.",
    ),
    Activity.IMPORTING: ("Its packages lie on slow storage: see whether that answers, or copy them to a local disk.",),
    Activity.FILE_LOCK: (
        "End the process that holds the lock, and its children, if they are leftovers: a child has the lock too. "
        "On NFS a lock may outlive its process.",
    ),
    Activity.LOCK: ("A thread of this rank holds what its main thread waits for: see all its stacks.",
                    "    py-spy dump --pid PID"),
    Activity.GIL: ("A native call keeps Python's lock, so no other thread of the process runs; its author has to "
                   "release it around what waits.",),
    Activity.FILE_IO: ("Find out which process should be at the other end, or whether the storage answers.",),
    Activity.NETWORK_IO: ("See whether the other side answers; give such calls a timeout of their own.",),
    Activity.SUBPROCESS: ("See what the child does, and give it a timeout.",),
    Activity.SLEEPING: (
        "It waits on purpose, apart from the others. If it is done with its data, give all ranks as many batches; else "
        "remove the wait. Its stack (-v) says how it got there.",
    ),
    Activity.STARTING: ("It has not joined the group yet: see its own output.",),
}  # fmt: skip
OTHERWISE = (
    "Wait if this line is a long step; else look at it: it runs for ever, and the other ranks wait.",
    "    py-spy dump --pid PID",
)


def steps_for(reason: Reason, activity: Activity, pids: Sequence[int]) -> tuple[str, ...]:
    """Return the steps for ranks in this activity; a command names the first of their pids."""
    is_elsewhere = reason in (Reason.RANK_ELSEWHERE, Reason.ALL_WAIT)
    steps = ELSEWHERE.get(activity, OTHERWISE) if is_elsewhere else STEPS[reason]
    return tuple(step.replace("PID", str(pids[0])) if pids and step.startswith("    ") else step for step in steps)
