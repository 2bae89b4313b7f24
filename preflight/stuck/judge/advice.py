"""The advice for each kind of hang. A step that begins with four spaces is a command."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.stuck import Activity, Reason

ALONE = (
    "On every rank, call the code that contains collectives. "
    "If only one rank calls this code (`if rank == 0:`), the others wait until they time out."
)
# By the reason, unless a rank is in something else than the others: then by what it is in.
STEPS: dict[Reason, tuple[str, ...]] = {
    Reason.DEAD_RANK: (
        "End the job, because a dead rank does not come back. The rank's log and the kernel log show why it died.",
        "    sudo dmesg -T | grep -i -e 'killed process' -e xid -e segfault",
        "Kill the data workers of the dead rank too, because they keep its connections open and the other ranks do "
        "not notice its death.",
    ),
    Reason.STOPPED_PROCESS: (
        "Resume the process, unless a debugger, Ctrl-Z or a suspending scheduler stopped it on purpose:",
        "    kill -CONT PID",
    ),
    Reason.STORAGE: (
        "Run `timeout 5 stat PATH` on this node and another to see whether the file system answers. Waiting may "
        "help. Killing the process does not help while the kernel blocks the process.",
    ),
    Reason.GPU_LOST: ("End the job, drain the node, and reset the GPU or reboot. The Xid is in dmesg.",),
    Reason.NEVER_CAME: (
        "Read the launcher's output on the node of the missing rank. The rank was not started, or it died before it "
        "could join the others.",
        "Check whether the node reaches MASTER_ADDR:MASTER_PORT, and whether the launcher has the right number of "
        "nodes.",
    ),
    Reason.OTHER_COLLECTIVE: (
        "End the job, because no timeout helps if ranks call different collectives. Compare the lines above.",
        ALONE,
        "If a rank is behind and blocked in this call, the rank hangs in NCCL or the driver. Print its C "
        "frames:",
        "    py-spy dump --native --pid PID",
    ),
    Reason.PATH_BROKEN: (
        "Check the link, firewall, MTU and routes between the two addresses, because no data arrives on this path.",
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
        "Check whether the checkpoint file grows. If it grows, wait: the other ranks continue after the checkpoint, "
        "unless the group's timeout expires first. If it does not grow, test the storage: `timeout 5 stat PATH`.",
        "Compute a timeout that covers the checkpoint:",
        "    preflight timeout --params N --checkpoint-dir DIR",
        ALONE,
    ),
    Activity.EVALUATION: (
        "If the evaluation makes progress, wait. If not, let each rank evaluate its share. " + ALONE,
    ),
    Activity.DATA_LOADING: (
        "Check what the rank's data worker reads. The storage may not answer, or this rank may have no data left.",
    ),
    Activity.COMPILING: (
        "Wait, because the first compilation takes minutes. A cache on a local disk (TORCHINDUCTOR_CACHE_DIR) saves "
        "this time later.",
    ),
    Activity.IMPORTING: ("Check whether the storage of the Python packages answers, or copy the packages to a local "
    "disk.",),
    Activity.FILE_LOCK: (
        "If the process that holds the lock is left from an earlier job, end this process and its children, which "
        "hold the lock too. On NFS, a lock may outlive its process.",
    ),
    Activity.LOCK: ("Read all stacks of this rank, because another of its threads holds the lock that the main thread "
    "waits for.",
                    "    py-spy dump --pid PID"),
    Activity.GIL: ("A native call holds Python's lock, so no other thread of the process runs. The native code must "
    "release the lock before it waits.",),
    Activity.FILE_IO: ("Find the process that should be at the other end of the pipe, or check whether the storage "
    "answers.",),
    Activity.NETWORK_IO: ("Check whether the other side of the connection answers, and give such calls a timeout.",),
    Activity.SUBPROCESS: ("Check what the child process does, and give it a timeout.",),
    Activity.SLEEPING: (
        "The rank's own program makes it sleep. If the rank has no data left, give all ranks the same number of "
        "batches. If not, remove the sleep. The rank's stack (-v) shows the call.",
    ),
    Activity.STARTING: ("Read the output of this rank, because it has not joined the group yet.",),
}  # fmt: skip
OTHERWISE = (
    "If this line is a long step, wait. If not, find out why the line does not end, because the other ranks wait for "
    "it.",
    "    py-spy dump --pid PID",
)


def steps_for(reason: Reason, activity: Activity, pids: Sequence[int]) -> tuple[str, ...]:
    """Return the steps to take if ranks block the job for `reason`.

    The commands contain the first pid of `pids`.
    """
    is_elsewhere = reason in (Reason.RANK_ELSEWHERE, Reason.ALL_WAIT)
    steps = ELSEWHERE.get(activity, OTHERWISE) if is_elsewhere else STEPS[reason]
    return tuple(step.replace("PID", str(pids[0])) if pids and step.startswith("    ") else step for step in steps)
