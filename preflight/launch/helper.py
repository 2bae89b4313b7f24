"""The launcher's children that do what may stall, one question at a time: the loop never waits for them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
# Which child answers which question.
MODULES = {
    "listen": "preflight.launch.path_probe",
    "reach": "preflight.launch.path_probe",
    "write": "preflight.launch.storage_probe",
    "read": "preflight.launch.storage_probe",
    "sweep": "preflight.launch.storage_probe",
}
MOST_ANSWER_BYTES = 8 << 20
LEAVE_S = 0.3


@dataclass(slots=True)
class Helper:
    """One child, which ends when its standard input does: a question goes in as a line, an answer comes out as one."""

    process: subprocess.Popen[bytes]
    answer_by: float = 0.0  # monotonic; 0 while nothing is asked
    number: int = 0
    unread: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Helpers:
    """This node's children by module, started when they are first needed."""

    environ: Mapping[str, str]
    _running: dict[str, Helper] = field(default_factory=dict)
    _failed: list[tuple[int, Json]] = field(default_factory=list)

    @property
    def fds(self) -> list[int]:
        """The descriptors to wait for."""
        return [_stdout(helper) for helper in self._running.values() if helper.answer_by]

    def start(self, module: str) -> Helper:
        """Start a child before it is asked anything, so that it has imported what it needs by then."""
        if module not in self._running:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(os.getpid())],
                env=dict(self.environ) | {"PYTHONSAFEPATH": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._running[module] = Helper(process)
            os.set_blocking(_stdout(self._running[module]), False)
        return self._running[module]

    def ask(self, number: int, what: str, question: Json, limit_s: float) -> None:
        """Put a question; its answer, or that there is none, is found by `answers` within the limit."""
        if what not in MODULES:
            self._failed.append((number, {"failure": f"no such question: {what[:20]}"}))
            return
        try:
            helper = self.start(MODULES[what])
            assert helper.process.stdin is not None
            helper.process.stdin.write(json.dumps(dict(question) | {"what": what}).encode() + b"\n")
            helper.process.stdin.flush()
        except (OSError, TypeError, ValueError) as error:
            self._failed.append((number, {"failure": f"it could not be asked: {error}"}))
            return
        helper.number, helper.answer_by = number, time.monotonic() + limit_s

    def answers(self) -> list[tuple[int, Json]]:
        """Return what has been answered since, with the numbers of the questions; a child that is late is ended."""
        found, self._failed = self._failed, []
        for module, helper in list(self._running.items()):
            if not helper.answer_by:
                continue
            answer = _read(helper)
            if answer is None and time.monotonic() > helper.answer_by:
                answer = {"failure": "no answer in time: the call is stuck"}
                _end(self._running.pop(module))
            if answer is not None:
                helper.answer_by = 0.0
                found.append((helper.number, answer))
        return found

    def close(self) -> None:
        """End all of them; what listens stops listening."""
        for helper in self._running.values():
            _end(helper)
        self._running.clear()


def _stdout(helper: Helper) -> int:
    assert helper.process.stdout is not None
    return helper.process.stdout.fileno()


def _read(helper: Helper) -> Json:
    """Return the answer once its line is whole, None before."""
    with contextlib.suppress(BlockingIOError):
        while True:
            data = os.read(_stdout(helper), 1 << 18)
            helper.unread += data
            if not data or len(helper.unread) > MOST_ANSWER_BYTES:
                return {"failure": "the process that was asked died"}
    line, newline, rest = bytes(helper.unread).partition(b"\n")
    if not newline:
        return None
    helper.unread = bytearray(rest)
    try:
        return json.loads(line)
    except ValueError:
        return {"failure": "the process that was asked garbled its answer"}


def _end(helper: Helper) -> None:
    """Have it go, or kill and reap it; one that is stuck in the kernel is left to it."""
    for pipe in (helper.process.stdin, helper.process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    for _ in range(2):  # the end of its input tells it to clean up and go
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            helper.process.wait(timeout=LEAVE_S)
            return
        helper.process.kill()
