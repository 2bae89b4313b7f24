"""Short programs side by side, a few at a time, each with its limit and all with one; none is left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from preflight.system.child import ChildProcess, pid_of
from preflight.system.wakeups import wait_for

MOST_OUTPUT_BYTES = 8 << 20
CANNOT_START = 127  # as a shell has it
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended; `code` is None where its limit came first."""

    code: int | None
    stdout: str
    stderr: str


@dataclass(slots=True)
class _Running(Generic[K]):
    key: K
    child: ChildProcess
    until: float
    pipes: dict[int, bytearray] = field(default_factory=dict)  # standard output first, then standard error
    open_fds: set[int] = field(default_factory=set)


def run_side_by_side(
    commands: Mapping[K, Sequence[str]], environ: Mapping[str, str], each_s: float, all_s: float, most_at_once: int
) -> dict[K, Ended]:
    """Run the commands, `most_at_once` at a time; those whose turn never came are not in the answer."""
    end_at = time.monotonic() + all_s
    waiting, running, ended = list(commands), list[_Running[K]](), dict[K, Ended]()
    try:
        while (waiting and time.monotonic() < end_at) or running:
            while waiting and len(running) < most_at_once and time.monotonic() < end_at:
                key = waiting.pop(0)
                try:
                    running.append(_start(key, commands[key], environ, min(end_at, time.monotonic() + each_s)))
                except OSError as error:
                    ended[key] = Ended(CANNOT_START, "", str(error))
            _take_in(running)
            for each in [r for r in running if not r.open_fds or time.monotonic() >= r.until]:
                running.remove(each)
                ended[each.key] = _finish(each)
    finally:
        for each in running:
            _finish(each)
    return ended


def _start(key: K, command: Sequence[str], environ: Mapping[str, str], until: float) -> _Running[K]:
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out_end, stderr=err_end)
    except OSError:
        os.close(out)
        os.close(err)
        raise
    finally:
        os.close(out_end)
        os.close(err_end)
    return _Running(key, ChildProcess(pid_of(process)), until, {out: bytearray(), err: bytearray()}, {out, err})


def _take_in(running: Sequence[_Running[K]]) -> None:
    if not running:
        return
    left_s = max(0.0, min(each.until for each in running) - time.monotonic())
    for fd in wait_for([fd for each in running for fd in each.open_fds], (), left_s):
        each = next(r for r in running if fd in r.open_fds)
        data = os.read(fd, 1 << 16)
        if not data or len(each.pipes[fd]) > MOST_OUTPUT_BYTES:
            each.open_fds.discard(fd)
        each.pipes[fd] += data


def _finish(each: _Running[K]) -> Ended:
    in_time = not each.open_fds and each.child.reap(each.until)
    if not in_time:
        each.child.kill()
    for fd in each.pipes:
        os.close(fd)
    out, err = (bytes(data).decode("utf-8", "backslashreplace") for data in each.pipes.values())
    return Ended(each.child.exitcode if in_time else None, out, err)
