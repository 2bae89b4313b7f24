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
        "End the job, because a dead rank does not come back. Its log and the kernel log show why it died.",
        "    sudo dmesg -T | grep -i -e 'killed process' -e xid -e segfault",
        "Kill its data workers too: they keep its connections open, so the other ranks do not notice its death.",
    ),
    Reason.STOPPED_PROCESS: (
        "Resume it, unless a debugger, Ctrl-Z or a suspending scheduler stopped it on purpose:",
        "    kill -CONT PID",
    ),
    Reason.STORAGE: (
        "Run `timeout 5 stat PATH` on this node and another to see whether the file system answers. Waiting may "
        "help. Killing does not help while the kernel blocks the process.",
    ),
    Reason.GPU_LOST: ("End the job, drain the node and reset the GPU or reboot; dmesg has the Xid.",),
    Reason.NEVER_CAME: (
        "Read its launcher's output on its node: it was not started, or it died before it could join the others.",
        "Its node may not reach MASTER_ADDR:MASTER_PORT, or the number of nodes given to the launcher is wrong.",
    ),
    Reason.OTHER_COLLECTIVE: (
        "End the job: no timeout helps if ranks call different collectives. Compare the lines above.",
        ALONE,
        "If a rank is behind and blocked in this call, it hangs in NCCL or the driver. Its C frames show where:",
        "    py-spy dump --native --pid PID",
    ),
    Reason.PATH_BROKEN: (
        "No data arrives on this path: check link, firewall, MTU and routes between the two addresses.",
        "    preflight check",
    ),
    Reason.NOTHING_MOVES: (
        "All ranks are in the same collective, so the path between them may be at fault. End the job and test the "
        "paths:",
        "    preflight check",
        "For more evidence next time, use NCCL 2.24 or newer (RAS) and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 (recorder).",
    ),
}  # fmt: skip
ELSEWHERE: dict[Activity, tuple[str, ...]] = {
    Activity.SAVE: (
        "Check whether the checkpoint file grows. If so, wait: the other ranks continue after the checkpoint, unless "
        "the group's timeout expires first. If not, the storage may not answer: run `timeout 5 stat PATH`.",
        "Compute a timeout that covers the checkpoint:",
        "    preflight timeout --params N --checkpoint-dir DIR",
        ALONE,
    ),
    Activity.EVALUATION: (
        "If it makes progress, wait. If not, let each rank evaluate its share. " + ALONE,
    ),
    Activity.DATA_LOADING: (
        "Check what its data worker reads: the storage may not answer, or only this rank has no data left.",
    ),
    Activity.COMPILING: (
        "Wait: the first compilation takes minutes. A cache on a local disk (TORCHINDUCTOR_CACHE_DIR) saves this "
        "time later.",
    ),
    Activity.IMPORTING: ("It imports from slow storage: check whether the storage answers, or copy the packages to "
    "a local disk.",),
    Activity.FILE_LOCK: (
        "If the process that holds the lock is a leftover, end it and its children, which hold the lock too. On NFS "
        "a lock may outlive its process.",
    ),
    Activity.LOCK: ("Another thread of this rank holds the lock that its main thread waits for: read all its stacks.",
                    "    py-spy dump --pid PID"),
    Activity.GIL: ("A native call holds Python's lock, so no other thread of the process runs. Its code must "
    "release the lock before it waits.",),
    Activity.FILE_IO: ("Find the process that should be at the other end, or check whether the storage answers.",),
    Activity.NETWORK_IO: ("Check whether the other side answers, and give such calls a timeout.",),
    Activity.SUBPROCESS: ("Check what the child does, and give it a timeout.",),
    Activity.SLEEPING: (
        "Its program makes it wait, apart from the others. If it has no data left, give all ranks as many batches. "
        "If not, remove the wait. Its stack (-v) shows the call.",
    ),
    Activity.STARTING: ("It has not joined the group yet: read its output.",),
}  # fmt: skip
OTHERWISE = (
    "If this line is a long step, wait. If not, find out why it does not end: the other ranks wait for it.",
    "    py-spy dump --pid PID",
)


def steps_for(reason: Reason, activity: Activity, pids: Sequence[int]) -> tuple[str, ...]:
    """Return the steps for ranks in this activity; a command names the first of their pids."""
    is_elsewhere = reason in (Reason.RANK_ELSEWHERE, Reason.ALL_WAIT)
    steps = ELSEWHERE.get(activity, OTHERWISE) if is_elsewhere else STEPS[reason]
    return tuple(step.replace("PID", str(pids[0])) if pids and step.startswith("    ") else step for step in steps)
