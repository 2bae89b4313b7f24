"""Children of the launcher for work that may stall. A child answers one question at a time.

The launcher's loop never waits for a child.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.system.crew import Crew, Lost

Json = Any
# Which child answers which question.
PATHS, STORAGE = "preflight.trial.nodes.path_probe", "preflight.trial.nodes.storage_probe"
MODULES = {"listen": PATHS, "reach": PATHS, "write": STORAGE, "read": STORAGE, "sweep": STORAGE}
LEAVE_S = 0.3
FAILURES = {
    Lost.DIED: "the process that was asked died",
    Lost.LATE: "no answer in time: the call is stuck",
    Lost.GARBLED: "the process that was asked garbled its answer",
}


@dataclass(slots=True)
class ProbeProcesses:
    """This node's child processes, by module. A child starts at its first use."""

    environ: Mapping[str, str]
    _crew: Crew[str] = field(default_factory=lambda: Crew(leave_s=LEAVE_S, reap_s=LEAVE_S))
    _asked: dict[str, int] = field(default_factory=dict)  # the number of the question that each is at
    _failed: list[tuple[int, Json]] = field(default_factory=list)

    @property
    def fds(self) -> list[int]:
        """Return the descriptors of the children that have an open question."""
        return [self._crew.children[module].fd for module in self._asked]

    def start(self, module: str) -> None:
        """Start the child process of `module` early, so that its imports are complete before its first question."""
        if module not in self._crew.children:
            command = [sys.executable, "-m", module]
            self._crew.start(module, command, dict(self.environ) | {"PYTHONSAFEPATH": "1"})

    def ask(self, number: int, what: str, question: Json, limit_s: float) -> None:
        """Send the question `question` of the kind `what` to the child process for this kind, without waiting.

        The method `answers` returns the answer later, or a failure after `limit_s` seconds.
        """
        # `number` identifies the question in `answers`.
        if what not in MODULES:
            self._failed.append((number, {"failure": f"no such question: {what[:20]}"}))
            return
        try:
            self.start(MODULES[what])
            self._crew.ask(MODULES[what], dict(question) | {"what": what}, limit_s)
        except (OSError, TypeError, ValueError) as error:
            self._failed.append((number, {"failure": f"it could not be asked: {error}"}))
            return
        self._asked[MODULES[what]] = number

    def answers(self) -> list[tuple[int, Json]]:
        """Return (question number, answer or failure) for each question that has ended since the last call.

        A child process that answers too late is killed.
        """
        found, self._failed = self._failed, []
        for module, answer, lost in self._crew.listen(0.0):
            if not lost:
                self._crew.expect(module)
            if module in self._asked:
                found.append((self._asked.pop(module), {"failure": FAILURES[lost]} if lost else answer))
        return found

    def close(self) -> None:
        """End all child processes, which closes their listening sockets."""
        self._crew.end(*self._crew.children)
        self._asked.clear()
