"""What the kernel says of a thread that sleeps: in which of its functions, which tells what it waits for."""

from __future__ import annotations

import re
from enum import Enum

from preflight.model.stuck_evidence import Process, ThreadState


class KernelWait(str, Enum):
    """What a thread waits for."""

    RUNS = "runs"
    LOCK = "a lock or another thread"  # also a collective: both are futexes
    PIPE = "a pipe"
    FIFO = "somebody at the other end of a FIFO"
    FILE_LOCK = "a file lock"
    TIMER = "a timer"
    POLL = "descriptors"
    SOCKET = "a socket"
    CHILD = "a child process"
    STORAGE = "a file system"
    STOPPED = "a signal to go on"
    GONE = "nothing: it has ended"
    OTHER = "the kernel"
    HIDDEN = "what the kernel hides"


# Names of kernel functions, 3.10 to 6.18; some changed their name on the way.
CHANNELS = (
    (KernelWait.LOCK, re.compile(r"futex")),
    (KernelWait.FIFO, re.compile(r"^(?:fifo_open|wait_for_partner)$")),
    (KernelWait.PIPE, re.compile(r"pipe_(?:read|write|wait)|^anon_pipe_")),
    (KernelWait.FILE_LOCK, re.compile(r"locks?_lock|flock|posix_lock|fcntl_setlk|nlmclnt|nfs4?_proc_lock|nfs4_retry")),
    (KernelWait.STORAGE, re.compile(r"nfs|^rpc_|fuse|lustre|^cl_|^ll_|ptlrpc|ceph|gpfs|cxi|beegfs|io_schedule|"
                                    r"folio_wait|wait_on_page|^ext4_|^xfs_|jbd2|balance_dirty|submit_bio|blk_|"
                                    r"rwsem_down")),
    (KernelWait.TIMER, re.compile(r"nanosleep|hrtimer|schedule_timeout_(?:un)?interruptible$")),
    (KernelWait.SOCKET, re.compile(r"sk_wait|tcp_|unix_|inet_|sock_|wait_woken|skb_")),
    (KernelWait.POLL, re.compile(r"poll|select|eventfd")),
    (KernelWait.CHILD, re.compile(r"^(?:do_wait|kernel_wait4|kernel_waitid|wait_consider|do_wait4|__do_sys_wait)")),
)  # fmt: skip


def kernel_wait(thread: ThreadState) -> KernelWait:
    """Return what a thread waits for."""
    if thread.state in "Tt":
        return KernelWait.STOPPED
    if thread.state in "ZX":
        return KernelWait.GONE
    if thread.state == "R":
        return KernelWait.RUNS
    found = next((wait for wait, pattern in CHANNELS if pattern.search(thread.wait_channel)), None)
    if thread.state == "D":
        return found if found is KernelWait.FILE_LOCK else KernelWait.STORAGE
    if found is not None:
        return found
    return KernelWait.OTHER if thread.wait_channel else KernelWait.HIDDEN


def main_thread(process: Process) -> ThreadState | None:
    """Return the first thread, None where the process has ended."""
    return next((thread for thread in process.threads if thread.tid == process.pid), None)


def moved_bytes_path(process: Process) -> tuple[str, str, int] | None:
    """Return path, file system and bytes of the file that the process writes fastest; None where it writes none."""
    files = process.files if isinstance(process.files, tuple) else ()
    moving = [each for each in files if each.is_written and each.moved_bytes > 0]
    best = max(moving, key=lambda each: each.moved_bytes, default=None)
    return (best.path, best.file_system, best.moved_bytes) if best else None
