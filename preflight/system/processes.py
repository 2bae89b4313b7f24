"""End processes with their parent, kill all descendants, and read what /proc shows about a process.

preflight sends signals only to its own processes.
"""
# A pid is not enough to identify a process, because another process may have reused the pid. preflight therefore opens
# a pidfd and compares the start time of the process. If /proc belongs to another PID namespace (`unshare -pf`, `docker
# run -v /proc:/proc`), the numbers in /proc are not the pids that kill() takes. The file /proc/PID/status has both
# numbers.

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
F_SETSIG = 10  # of fcntl(2); Python has no name for it before 3.13
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
QUIET_LOOKS = 4  # at /proc in a row that find nothing, where spared children keep the kernel from telling
GONE = ("", "Z", "X")  # states of a process that needs no killing
# In /proc/PID/stat, counted behind the name (proc_pid_stat(5) has them 3, 4, 5, 22).
STATE, PARENT, GROUP, START_TIME = 0, 1, 2, 19

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessStat(NamedTuple):
    """A process in /proc. Its number and its start time together identify the process."""

    number: int  # of its directory in /proc
    state: str
    parent: int
    start_time: int  # ticks since boot
    group: int  # process group


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies.

    If the parent is dead already, exit now.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`, for a process that cleans up after its parent dies.

    The process notices the parent's death when its standard input ends.
    """
    _libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)


def stop_with_parent(parent_pid: int, lifeline: str) -> None:
    """Have the kernel stop this process if its parent dies, and kill this process if the launcher dies.

    `lifeline` is a FIFO that the launcher holds open for writing.
    """
    # If the FIFO can't be opened, this process dies with its parent.
    try:
        fd = os.open(lifeline, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    except OSError:
        die_with_parent(parent_pid)
        return
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 1)  # nothing is ever written: the end of the file means that no process holds it
        os._exit(1)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGSTOP, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show for this process, at most 15 bytes."""
    _libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def stop_as_by_ctrl_z() -> None:
    """Stop this process as Ctrl-Z does, and return when the process is continued.

    The process blocks SIGTSTP before and after this call.
    """
    blocked = sum(1 << (number - 1) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    mask = (blocked & ~(1 << (signal.SIGTSTP - 1))).to_bytes(128, sys.byteorder)
    os.kill(os.getpid(), signal.SIGTSTP)
    _libc.ppoll(None, ctypes.c_ulong(0), bytes(16), mask)  # no files, no time


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that this process can reap all descendants."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def state(pid: int) -> str:
    """Return the one-letter state (R S D T Z ...) of a preflight process, or "" if the process does not exist."""
    process = _read_stat(number_of(pid))
    return process.state if process else ""


def number_of(pid: int) -> int:
    """Return the number that the descendant `pid` has in /proc, or 0 if the descendant does not exist."""
    # The number differs from `pid` only if /proc belongs to another PID namespace.
    if _level() == 0:
        return pid
    found = _descendants(os.getpid()).get(pid)
    return found.number if found else 0


def waits_for_cpu_s(pid: int) -> dict[int, float]:
    """Return how many seconds each thread of process `pid` has waited for a CPU since its start, by thread id.

    The result is empty if the kernel does not report these times.
    """
    found: dict[int, float] = {}
    threads = f"/proc/{number_of(pid)}/task"
    with contextlib.suppress(OSError):
        for thread in filter(str.isdigit, os.listdir(threads)):
            path = f"{threads}/{thread}/schedstat"
            with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
                found[int(thread)] = int(file.read().split()[1]) / 1e9
    return found


def thread_count() -> int:
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def descendants_of(pid: int) -> frozenset[int]:
    """Return every living descendant of `pid`, without `pid` itself.

    `pid` is the pid of this process. If /proc belongs to this process's PID namespace, `pid` may be any process.
    """
    return frozenset(_descendants(pid))


def all_processes() -> dict[int, ProcessStat]:
    """Return every process in /proc, by its number in /proc."""
    found = (_read_stat(int(entry)) for entry in filter(str.isdigit, os.listdir("/proc")))
    return {process.number: process for process in found if process}


def below(number: int, table: Mapping[int, ProcessStat]) -> list[ProcessStat]:
    """Return the processes in `table` that are descendants of process `number`."""
    children: dict[int, list[ProcessStat]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    waiting, found = [number], {}
    while waiting:
        for process in children.get(waiting.pop(), ()):
            if process.number not in found:
                found[process.number] = process
                waiting.append(process.number)
    return list(found.values())


def kill_descendants(spared: frozenset[int], wait_s: float) -> tuple[int, ...]:
    """Kill and reap every descendant of this process except those in `spared`, and return the pids still alive.

    Call adopt_orphans() first, or orphaned descendants are missed.
    """
    # The function gives up after `wait_s` seconds.
    until = time.monotonic() + wait_s
    quiet = 0
    while quiet < QUIET_LOOKS:
        alive = {pid: process for pid, process in _descendants(os.getpid()).items() if pid not in spared}
        for pid, process in alive.items():
            _kill(pid, process)
        _reap(spared)
        if not alive and not has_children():
            return ()
        quiet = 0 if alive else quiet + 1
        if time.monotonic() > until:
            return tuple(sorted(descendants_of(os.getpid()) - spared))
        time.sleep(0.005)
    return ()


def stop_descendants(spared: frozenset[int]) -> None:
    """Stop every descendant of this process except those in `spared`, so that no descendant creates more files."""
    for pid, process in _descendants(os.getpid()).items():
        if pid not in spared:
            _kill(pid, process, signal.SIGSTOP)


def _level() -> int | None:
    """Return how many levels of PID namespaces lie between /proc's namespace and this process's namespace.

    The result is 0 if both namespaces are the same, and None if /proc does not show this process.
    """
    numbers = _numbers("self")
    return len(numbers) - 1 if numbers and numbers[-1] == os.getpid() else None


def _numbers(entry: int | str) -> list[int]:
    """Return a process's number in each PID namespace, or [] if there is no such process.

    The first number is the number in /proc's namespace, which is the outermost one.
    """
    try:
        with open(f"/proc/{entry}/status", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    listed = next((line for line in lines if line.startswith("NSpid:")), "")
    plain = next((line for line in lines if line.startswith("Pid:")), "")  # a kernel without PID namespaces
    return [int(number) for number in (listed or plain).split()[1:]]


def _read_stat(number: int) -> ProcessStat | None:
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return ProcessStat(number, fields[STATE], int(fields[PARENT]), int(fields[START_TIME]), int(fields[GROUP]))
    except (OSError, ValueError, IndexError):
        return None


def _descendants(pid: int) -> dict[int, ProcessStat]:
    """Return every living descendant of `pid` as {pid: process}, from one pass over /proc.

    The keys are the pids that kill() takes.
    """
    level = _level()
    if level is None:
        return {}
    found = below(pid if level == 0 else _numbers("self")[0], all_processes())
    alive = {process.number: process for process in found if process.state not in GONE}
    if level == 0:
        return alive
    numbers = {number: _numbers(number) for number in alive}
    return {numbers[number][level]: process for number, process in alive.items() if len(numbers[number]) > level}


def _kill(pid: int, process: ProcessStat, number: int = signal.SIGKILL) -> None:
    """Send signal `number` to `process`, unless another process has taken over its `pid`."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # no descriptor left, or a kernel before 5.3
        fd = -1
    try:
        now = _read_stat(process.number)
        if now is not None and now.start_time == process.start_time:
            if fd >= 0:
                signal.pidfd_send_signal(fd, number)
            else:
                os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        if fd >= 0:
            os.close(fd)


def _reap(spared: frozenset[int]) -> None:
    """Reap every child of this process that has ended, except the children in `spared`.

    Other code reaps the children in `spared`.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in spared:
            os.waitpid(ended.si_pid, os.WNOHANG)


def has_children() -> bool:
    """Return whether this process has any child, living or not yet reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class _Area(ctypes.Structure):
    """The C structure struct iovec, which describes an area of memory."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def may_read_memory(pid: int) -> bool:
    """Return whether the kernel lets this process inspect the memory of process `pid`.

    The request names an unmapped address, so the kernel checks the permission but reads no memory.
    """
    own = ctypes.create_string_buffer(1)
    local, remote = _Area(ctypes.addressof(own), 1), _Area(None, 1)
    call = _libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    arguments = (
        pid,
        ctypes.byref(local),
        ctypes.c_ulong(1),
        ctypes.byref(remote),
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )
    return call(*arguments) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS)
