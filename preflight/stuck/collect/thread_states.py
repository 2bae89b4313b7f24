"""Threads as the kernel sees them, looked at several times: what they wait in, and whether they ran in between."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.errors import UnreadableFact
from preflight.model.codec import encode_value
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import ThreadState
from preflight.system.machine import Json, Machine

MOST_THREADS = 128  # of a process; a rank has dozens, of which the first is its main thread
EXEC_START = re.compile(r"^se\.exec_start\s*:\s*(\d{1,18}\.\d{1,9})", re.MULTILINE)
SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d{1,18})", re.MULTILINE)
UNREADABLE = (UnreadableFact, ValueError, IndexError, OSError)


@dataclass(frozen=True, slots=True)
class Look:
    """A thread at one moment; times in seconds."""

    name: str
    state: str
    wait_channel: str
    cpu_s: float
    switches: int | None
    last_ran_s: float | None  # on the scheduler's clock


def look_at(machine: Machine, pid: int) -> dict[int, Look]:
    """Return the threads of a process; none where it has ended."""
    found = {}
    for tid in sorted(machine.names(f"proc/{pid}/task"), key=int)[:MOST_THREADS]:
        with contextlib.suppress(*UNREADABLE):
            found[int(tid)] = _look(machine, f"proc/{pid}/task/{tid}")
    return found


def _look(machine: Machine, path: str) -> Look:
    head, _, rest = machine.text(f"{path}/stat").rpartition(")")
    fields = rest.split()
    ticks = int(fields[11]) + int(fields[12])
    switches = SWITCHES.search(_text(machine, f"{path}/status"))
    ran = EXEC_START.search(_text(machine, f"{path}/sched"))
    channel = _text(machine, f"{path}/wchan")
    return Look(
        head.partition("(")[2], fields[0], "" if channel == "0" else channel, ticks / os.sysconf("SC_CLK_TCK"),
        int(switches[1]) if switches else None, float(ran[1]) / 1000 if ran else None,
    )  # fmt: skip


def _text(machine: Machine, path: str) -> str:
    try:
        return machine.text(path)
    except UnreadableFact:
        return ""


def scheduler_clock_s(machine: Machine) -> float | None:
    """Return the scheduler's clock: when this very thread last began to run."""
    ran = EXEC_START.search(_text(machine, "proc/self/sched"))
    return float(ran[1]) / 1000 if ran else None


def compare(first: Mapping[int, Look], last: Mapping[int, Look], now_s: float | None) -> tuple[ThreadState, ...]:
    """Return the threads that are there at last, with what they did since the first look."""
    states = []
    for tid, look in last.items():
        before = first.get(tid, look)
        wakes: int | Gap = Gap("the kernel does not count this thread's switches")
        if look.switches is not None and before.switches is not None:
            wakes = look.switches - before.switches
        asleep_s: float | Gap = Gap("the kernel does not tell when the thread last ran")
        if look.last_ran_s is not None and now_s is not None:
            asleep_s = max(0.0, now_s - look.last_ran_s) if look.state != "R" else 0.0
        cpu_s = max(0.0, look.cpu_s - before.cpu_s)
        states.append(ThreadState(tid, look.name, look.state, look.wait_channel, round(cpu_s, 2), wakes, asleep_s))
    return tuple(states)


def glance(pids: Sequence[int], look: Callable[[int], dict[int, Look]], clock: Callable[[], float | None]) -> Json:
    """Return what one look tells, in the form of `watch`: where the watch was stopped or failed."""
    threads = {}
    for pid in pids:
        once = {tid: replace(each, switches=None) for tid, each in look(pid).items()}
        threads[pid] = encode_value(compare(once, once, clock()))
    return {"watched_s": 0.0, "threads": threads}


def watch(
    pids: Sequence[int],
    look: Callable[[int], dict[int, Look]],
    clock: Callable[[], float | None],
    least_s: float,
    most_s: float,
    rest_s: float,
) -> Json:
    """Look at processes until those that sleep have slept for `rest_s`, at least and at most for as long as told.

    One that fell asleep meanwhile is given that time too. The answer holds, as JSON, the threads by pid and how long it
    took; a job that only goes slowly is seen to move.
    """  # fmt: skip
    start = time.monotonic()
    first = {pid: look(pid) for pid in pids}
    while True:
        time.sleep(0.25 if len(pids) < 64 else 1.0)
        watched_s = time.monotonic() - start
        if watched_s < least_s:
            continue
        last = {pid: look(pid) for pid in pids}
        states = {pid: compare(first[pid], last[pid], clock()) for pid in pids}
        open_ = [pid for pid, each in states.items() if not _is_settled(each, watched_s, rest_s)]
        is_up = watched_s >= most_s and not any(_is_falling_asleep(states[pid], rest_s) for pid in open_)
        if not open_ or is_up or watched_s >= most_s + rest_s:
            return {"watched_s": watched_s, "threads": {pid: encode_value(each) for pid, each in states.items()}}


def _is_falling_asleep(threads: Sequence[ThreadState], rest_s: float) -> bool:
    """Tell whether the main thread sleeps, and for longer than one that goes on."""
    return isinstance(threads[0].asleep_s, float) and threads[0].asleep_s > rest_s / 3


def _is_settled(threads: Sequence[ThreadState], watched_s: float, rest_s: float) -> bool:
    """Tell whether more watching would not change what the main thread is taken for: it rests for long, or runs."""
    if not threads or threads[0].state in "TtZX":
        return True
    main = threads[0]
    if main.state == "R":
        return main.wakes != 0  # one that never slept may wait busily, as for a GPU
    rested_s = main.asleep_s if isinstance(main.asleep_s, float) else watched_s if main.wakes == 0 else 0.0
    return rested_s >= rest_s
