"""Run functions side by side, each in a process of its own with a deadline.

A thread that is stuck in the kernel (a driver's ioctl, a dead NFS mount, a name server that drops packets) can't be
ended; a process can be left behind.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from preflight.model.gap import NO_ANSWER
from preflight.system.machine import Json
from preflight.system.processes import die_with_parent
from preflight.system.waiting import wait_for

REAP_S = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function returned, or why it did not."""

    value: Json
    failure: str  # empty when it returned
    duration_s: float
    is_late: bool = False  # its limit came first


@dataclass(slots=True)
class _Child:
    pid: int
    fd: int
    deadline_s: float
    received: bytearray


def run_isolated(
    functions: Mapping[str, Callable[[], Json]], limits_s: Mapping[str, float], meanwhile: Callable[[], object] = tuple
) -> dict[str, Answer]:
    """Return an Answer per function. A function that raises, dies or takes longer than its limit has a `failure`.

    `meanwhile` is called once they run. Must be called from a process with a single thread, since it forks.
    """
    start = time.monotonic()
    children = {name: _spawn(function, limits_s[name]) for name, function in functions.items()}
    answers: dict[str, Answer] = {}
    try:
        meanwhile()
        while len(answers) < len(children):
            _collect(children, answers, start)
    finally:
        for name, child in children.items():
            if name not in answers:
                _end(child)
    return {name: answers[name] for name in functions}


def _spawn(function: Callable[[], Json], limit_s: float) -> _Child:
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
            os.close(reader)
            _write_all(writer, json.dumps(_outcome(function)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.set_blocking(reader, False)
    return _Child(pid, reader, time.monotonic() + limit_s, bytearray())


def _outcome(function: Callable[[], Json]) -> dict[str, Json]:
    try:
        return {"value": function()}
    except Exception as error:  # noqa: BLE001  a probe's defect becomes that fact's gap, never the end of the run
        return {"failure": f"{type(error).__name__}: {error}"}


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _collect(children: Mapping[str, _Child], answers: dict[str, Answer], start: float) -> None:
    waiting = {child.fd: name for name, child in children.items() if name not in answers}
    timeout_s = max(0.0, min(children[name].deadline_s for name in waiting.values()) - time.monotonic())
    readable = wait_for(waiting, (), timeout_s)
    for fd in readable:
        child = children[waiting[fd]]
        data = os.read(fd, 1 << 16)
        child.received.extend(data)
        if not data:
            answers[waiting[fd]] = _answer(child, time.monotonic() - start)
            _end(child)
    for name in waiting.values():
        if name not in answers and time.monotonic() >= children[name].deadline_s:
            elapsed_s = time.monotonic() - start
            answers[name] = Answer(None, f"{NO_ANSWER} {elapsed_s:.1f} s; the call is stuck", elapsed_s, True)
            _end(children[name])


def _answer(child: _Child, duration_s: float) -> Answer:
    try:
        outcome = json.loads(child.received)
    except ValueError:
        return Answer(None, "the process that read it died", duration_s)
    return Answer(outcome.get("value"), outcome.get("failure", ""), duration_s)


def _end(child: _Child) -> None:
    """Kill and reap; a process in uninterruptible sleep is left to the kernel."""
    os.close(child.fd)
    os.kill(child.pid, signal.SIGKILL)
    until = time.monotonic() + REAP_S
    while os.waitpid(child.pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.001)
