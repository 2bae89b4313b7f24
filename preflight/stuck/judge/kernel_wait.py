"""The object that a sleeping thread waits for, according to the kernel function in which the thread sleeps."""

from __future__ import annotations

import re
from enum import Enum

from preflight.model.stuck_evidence import ThreadState


class KernelWait(str, Enum):
    """The kind of object that a thread waits for, such as "a pipe"."""

    RUNS = "runs"
    LOCK = "a lock or another thread"  # also a collective: both are futexes
    PIPE = "a pipe"
    FIFO = "a process at the other end of a FIFO"
    FILE_LOCK = "a file lock"
    TIMER = "a timer"
    POLL = "descriptors"
    SOCKET = "a socket"
    CHILD = "a child process"
    STORAGE = "a file system"
    STOPPED = "a signal to go on"
    GONE = "nothing: it has ended"
    OTHER = "the kernel"
    HIDDEN = "something that the kernel hides"

    @classmethod
    def of(cls, thread: ThreadState) -> KernelWait:
        """Return the kind of object that a thread waits for, or RUNS if the thread can run."""
        found = next((wait for wait, pattern in CHANNELS if pattern.search(thread.wait_channel)), None)
        match thread.state:
            case "T" | "t":
                return cls.STOPPED if thread.is_held else cls.RUNS
            case "Z" | "X":
                return cls.GONE
            case "R":
                return cls.RUNS
            case "D":
                return cls.FILE_LOCK if found is cls.FILE_LOCK else cls.STORAGE
            case _:
                return found or (cls.OTHER if thread.wait_channel else cls.HIDDEN)


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
