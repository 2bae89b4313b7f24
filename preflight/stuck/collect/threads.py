"""Samples of the kernel's data on threads, which show where a thread waits and whether the thread ran."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.errors import UnreadableFact
from preflight.model.codec import encode_value
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import ThreadState
from preflight.system.machine import Json, Machine

LEAST_WATCH_S = 2.0
MOST_THREADS = 128  # of a process; a rank has dozens, of which the first is its main thread
FEW_PROCESSES = 64  # of which a look is cheap
EXEC_START = re.compile(r"^se\.exec_start\s*:\s*(\d{1,18}\.\d{1,9})", re.MULTILINE)
SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d{1,18})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ThreadSample:
    """The state of a thread at one moment. Times are in seconds."""

    name: str
    state: str
    wait_channel: str
    cpu_s: float
    switches: int | None
    last_ran_s: float | None  # on the scheduler's clock


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """The threads of a process at one moment, by thread id.

    `now_s` is the time on the scheduler's clock in seconds, or None if the kernel does not show the time.
    """

    threads: dict[int, ThreadSample]
    now_s: float | None

    @classmethod
    def read(cls, machine: Machine, pid: int) -> ProcessSample:
        """Return the threads of process `pid`. The result is empty if the process has ended."""
        threads = {}
        for tid in sorted(machine.names(f"proc/{pid}/task"), key=int)[:MOST_THREADS]:
            path = f"proc/{pid}/task/{tid}"
            with contextlib.suppress(UnreadableFact, ValueError, IndexError, OSError):
                head, _, rest = machine.text(f"{path}/stat").rpartition(")")
                fields, name, channel = rest.split(), head.partition("(")[2], _text(machine, f"{path}/wchan")
                cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                switches = SWITCHES.search(_text(machine, f"{path}/status"))
                ran = EXEC_START.search(_text(machine, f"{path}/sched"))
                threads[int(tid)] = ThreadSample(
                    name, fields[0], "" if channel == "0" else channel, cpu_s, int(switches[1]) if switches else None,
                    float(ran[1]) / 1000 if ran else None,
                )  # fmt: skip
        began = EXEC_START.search(_text(machine, "proc/self/sched"))  # when this very thread last began to run
        return cls(threads, float(began[1]) / 1000 if began else None)

    def moved_since(self, earlier: ProcessSample) -> list[int]:
        """Return the ids of the threads that have run since an earlier sample."""
        return [
            tid
            for tid, each in self.threads.items()
            if (before := earlier.threads.get(tid)) is None
            or (each.switches, each.last_ran_s, each.cpu_s) != (before.switches, before.last_ran_s, before.cpu_s)
        ]

    def since(self, first: ProcessSample | None) -> tuple[ThreadState, ...]:
        """Return the threads with their activity since the sample `first`.

        If `first` is None, the activity is unknown.
        """
        states = []
        for tid, last in self.threads.items():
            before = first.threads.get(tid, last) if first else replace(last, switches=None)
            wakes: int | Gap = Gap("the kernel does not count this thread's switches")
            if last.switches is not None and before.switches is not None:
                wakes = last.switches - before.switches
            asleep_s: float | Gap = Gap("the kernel does not report when the thread last ran")
            if last.last_ran_s is not None and self.now_s is not None:
                asleep_s = max(0.0, self.now_s - last.last_ran_s) if last.state != "R" else 0.0
            cpu_s = round(max(0.0, last.cpu_s - before.cpu_s), 2)
            states.append(ThreadState(tid, last.name, last.state, last.wait_channel, cpu_s, wakes, asleep_s))
        return tuple(states)


def _text(machine: Machine, path: str) -> str:
    """Return the text of a file, or "" if the file is missing or can't be read."""
    try:
        return machine.text(path)
    except UnreadableFact:
        return ""


def glance_at_threads(machine: Machine, pids: Sequence[int]) -> Json:
    """Return a single sample of the processes `pids`, in the form of the result of `watch_threads`."""
    threads = {pid: encode_value(ProcessSample.read(machine, pid).since(None)) for pid in pids}
    return {"watched_s": 0.0, "threads": threads}


def watch_threads(machine: Machine, pids: Sequence[int], most_s: float, rest_s: float) -> Json:
    """Watch the threads of processes for at most `most_s` seconds, and return `{watched_s, threads}`.

    The watch ends when the sleeping threads have slept for `rest_s` seconds.
    """
    # A process that falls asleep near the end gets `rest_s` more seconds. `watched_s` is the duration, and `threads`
    # has the thread states by pid.
    start = time.monotonic()
    first = {pid: ProcessSample.read(machine, pid) for pid in pids}
    last, moved_at_s = first, dict[int, float]()  # by thread: when the watch first found that it had run
    while True:
        time.sleep(0.25 if len(pids) < FEW_PROCESSES else 1.0)
        watched_s = time.monotonic() - start
        now = {pid: ProcessSample.read(machine, pid) for pid in pids}
        moved_at_s |= {tid: watched_s for pid in pids for tid in now[pid].moved_since(last[pid])}
        last = now
        if watched_s < min(LEAST_WATCH_S, most_s):
            continue
        states = {
            pid: tuple(_as_watched(each, watched_s, moved_at_s.get(each.tid)) for each in now[pid].since(first[pid]))
            for pid in pids
        }
        mains = [threads[0] for threads in states.values() if threads]
        waiting = [main for main in mains if not _is_settled(main, watched_s, rest_s)]
        # It sleeps for longer than one that goes on. In a short watch, reading its stack may have woken it just now.
        least_s = rest_s / 3 if most_s > rest_s else 0.0
        asleep = (main.asleep_s for main in waiting if main.state != "R")
        is_falling_asleep = any(isinstance(each, float) and each >= least_s for each in asleep)
        if not waiting or watched_s >= (most_s + rest_s if is_falling_asleep else most_s):
            return {"watched_s": watched_s, "threads": {pid: encode_value(each) for pid, each in states.items()}}


def _as_watched(thread: ThreadState, watched_s: float, moved_at_s: float | None) -> ThreadState:
    """Return `thread` with the sleep time that the watch measured.

    This time replaces the sleep time from the scheduler's clock. Each CPU has its own scheduler clock, which leaves out
    the time of interrupts and of other virtual machines. The clocks of two CPUs may therefore differ by seconds.
    """
    if thread.state == "R" or isinstance(thread.asleep_s, Gap):
        return thread
    asleep_s = max(thread.asleep_s, watched_s) if moved_at_s is None else watched_s - moved_at_s
    return replace(thread, asleep_s=asleep_s)


def _is_settled(main: ThreadState, watched_s: float, rest_s: float) -> bool:
    """Return whether a main thread's state is certain without more samples.

    The state is certain if the thread has slept for `rest_s` seconds, is stopped, or has ended. The state of a running
    thread is certain unless the thread never slept during the watch.
    """
    if main.state in "TtZX":
        return main.state in "ZX" or main.is_held
    if main.state == "R":
        return main.wakes != 0  # one that never slept may wait busily, as for a GPU
    rested_s = main.asleep_s if isinstance(main.asleep_s, float) else watched_s if main.wakes == 0 else 0.0
    return rested_s >= rest_s
