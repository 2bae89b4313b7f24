"""What the tests of `preflight run` beside a hanging job share: waiting for what it says, and letting it go on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from preflight.system.processes import descendants_of
from tests.netns import Netns
from tests.stuck.hanging_jobs import HangingJob


class Process(Protocol):
    """What is known of a started program."""

    pid: int


class Node(Protocol):
    """A node with its `preflight run`, and what that has printed so far."""

    netns: Netns

    @property
    def run(self) -> Process:
        """The program."""

    @property
    def said(self) -> str:
        """What it has printed, in one line."""


def wait_until(holds: Callable[[], bool], limit_s: float, nodes: Sequence[Node]) -> None:
    """Wait for something, and fail with what the nodes have said."""
    end_at = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_at, "\n\n".join(node.said for node in nodes)
        time.sleep(0.2)


def let_go_on(job: HangingJob, nodes: Sequence[Node]) -> None:
    """Remove the cause of the hang: the cut cable, what is waited for, the signal that stopped a rank."""
    if job.way == "path":
        nodes[1].netns.ip("link", "set", "eth0", "up")
    job.go_on()
    for pid in descendants_of(nodes[0].run.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
