"""The launcher's children that do what may stall, one question at a time: the loop never waits for them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.system.child import ChildProcess, start_program

Json = Any
# Which child answers which question.
PATHS, STORAGE = "preflight.launch.nodes.path_probe", "preflight.launch.nodes.storage_probe"
MODULES = {"listen": PATHS, "reach": PATHS, "write": STORAGE, "read": STORAGE, "sweep": STORAGE}
MOST_ANSWER_BYTES = 8 << 20
LEAVE_S = 0.3


@dataclass(slots=True)
class ProbeProcess:
    """One child, which ends when its standard input does: a question goes in as a line, an answer comes out as one."""

    child: ChildProcess
    answer_by: float = 0.0  # monotonic; 0 while nothing is asked
    number: int = 0


@dataclass(slots=True)
class ProbeProcesses:
    """This node's children by module, started when they are first needed."""

    environ: Mapping[str, str]
    _running: dict[str, ProbeProcess] = field(default_factory=dict)
    _failed: list[tuple[int, Json]] = field(default_factory=list)

    @property
    def fds(self) -> list[int]:
        """The descriptors to wait for."""
        return [helper.child.fd for helper in self._running.values() if helper.answer_by and helper.child.fd >= 0]

    def start(self, module: str) -> ProbeProcess:
        """Start a child before it is asked anything, so that it has imported what it needs by then."""
        if module not in self._running:
            command = [sys.executable, "-m", module, str(os.getpid())]
            child = start_program(command, dict(self.environ) | {"PYTHONSAFEPATH": "1"})
            os.set_blocking(child.fd, False)
            self._running[module] = ProbeProcess(child)
        return self._running[module]

    def ask(self, number: int, what: str, question: Json, limit_s: float) -> None:
        """Put a question; its answer, or that there is none, is found by `answers` within the limit."""
        if what not in MODULES:
            self._failed.append((number, {"failure": f"no such question: {what[:20]}"}))
            return
        try:
            helper = self.start(MODULES[what])
            helper.child.send(dict(question) | {"what": what})
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
            answer = _answer(helper.child)
            if answer is None and time.monotonic() > helper.answer_by:
                answer = {"failure": "no answer in time: the call is stuck"}
                _end(self._running.pop(module).child)
            if answer is not None:
                helper.answer_by = 0.0
                found.append((helper.number, answer))
        return found

    def close(self) -> None:
        """End all of them; what listens stops listening."""
        for helper in self._running.values():
            _end(helper.child)
        self._running.clear()


def _answer(child: ChildProcess) -> Json:
    """Return the answer once its line is whole, None before."""
    try:
        answers = child.receive() if child.fd >= 0 else []
    except ValueError:
        return {"failure": "the process that was asked garbled its answer"}
    if not answers and (child.fd < 0 or len(child.unread) > MOST_ANSWER_BYTES):
        return {"failure": "the process that was asked died"}
    return answers[0] if answers else None


def _end(child: ChildProcess) -> None:
    """Have it go, or kill and reap it; the end of its input tells it to clean up and go."""
    child.close()
    if not child.reap(time.monotonic() + LEAVE_S):
        child.kill(LEAVE_S)
