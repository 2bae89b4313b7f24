"""A crew: any number of child processes that may stall.

A child that dies, is late or writes invalid messages is ended with its process group and reported once.
"""
# Only this module waits for the children, limits the children and ends the children. The time limits do not count the
# time in which this process was stopped.

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from preflight.system.child import REAP_POLL_S, REAP_S, ChildProcess, Json, Parent, fork_child, start_program
from preflight.system.signals import held_back
from preflight.system.waiting import wait_for
from preflight.system.wakeups import OwnTime

K = TypeVar("K", bound=Hashable)
LOOK_S = 0.25  # interval of the checks whether this process was stopped; less than wakeups.GAP_S
MOST_LINE_BYTES = 64 << 20


class Lost(Enum):
    """The reason why a child left the crew: it died, it was late, or it sent a message that is not JSON."""

    DIED = "died"
    LATE = "late"
    GARBLED = "garbled"


@dataclass(slots=True)
class Crew(Generic[K]):
    """A group of child processes, each with a key. Use a crew as a context manager.

    A crew forks, so the calling process must have a single thread.
    """

    leave_s: float = 0.0  # the time for a child to end after its questions were closed
    reap_s: float = REAP_S  # the time for all children that are killed together to be gone
    children: dict[K, ChildProcess] = field(default_factory=dict)  # to be read only
    _answer_by: dict[K, float] = field(default_factory=dict)  # on the clock of now()
    _own_time: OwnTime = field(default_factory=OwnTime)

    def fork(self, key: K, main: Callable[[Parent], object], limit_s: float = math.inf, is_asked: bool = False) -> None:
        """Fork the child `key`, which runs `main` and must send a message within `limit_s` seconds.

        If `is_asked` is true, the child also gets a pipe with questions from this process.
        """

        def lead(parent: Parent) -> None:
            os.setpgid(0, 0)
            for other in self.children.values():  # whose questions end where this process closes them
                other.close()
            main(parent)

        with held_back():  # a Ctrl-C between the fork and the crew would leave a child behind
            self._take_on(key, fork_child(lead, is_asked=is_asked), limit_s)

    def start(
        self, key: K, command: Sequence[str], environ: Mapping[str, str], limit_s: float = math.inf,
        errors: int | None = None,
    ) -> None:  # fmt: skip
        """Start `command` as the child `key`. The program reads questions on stdin and answers on stdout.

        Raise OSError if the program can't start.
        """
        # The program's stderr goes to the descriptor `errors`.
        with held_back():
            self._take_on(key, start_program(command, environ, errors=errors), limit_s)

    def _take_on(self, key: K, child: ChildProcess, limit_s: float) -> None:
        self.children[key] = child
        self.expect(key, limit_s)
        if child.questions_fd >= 0:
            os.set_blocking(child.questions_fd, False)

    def ask(self, key: K, question: Json, limit_s: float = math.inf) -> None:
        """Send the child `key` a question, to be answered within `limit_s` seconds.

        Raise OSError if the child has closed its end.
        """
        # This call does not wait for the child to read the question.
        self.expect(key, limit_s)
        self.children[key].send(question)

    def expect(self, key: K, limit_s: float = math.inf) -> None:
        """Require the child `key` to answer within `limit_s` seconds from now.

        Without `limit_s`, the child has no time limit.
        """
        if key in self.children:
            self._answer_by[key] = self.now() + limit_s

    def now(self) -> float:
        """Return the time in seconds on this crew's own clock, which stops while this process is stopped."""
        self._own_time.look()
        return self._own_time.now()

    @property
    def paused_s(self) -> float:
        """The total seconds in which this process was stopped."""
        return self._own_time.lost_s

    def listen(self, timeout_s: float = math.inf) -> list[tuple[K, Json, Lost | None]]:
        """Return the next messages of the children, as a list of (key, message, None).

        For a child that has left the crew, the entry is (key, None, reason). The list is empty if the crew has no
        children, or if no child writes within `timeout_s` seconds.
        """
        until = self.now() + timeout_s
        heard: list[tuple[K, Json, Lost | None]] = []
        while self.children and not heard:
            heard = self._look(until)
            if self.now() >= until:
                break
        return heard

    def _look(self, until: float) -> list[tuple[K, Json, Lost | None]]:
        have_ended = {key for key, child in self.children.items() if child.has_ended()}
        left_s = 0.0 if have_ended else min(until, *self._answer_by.values()) - self.now()
        unsent = {child.questions_fd: child for child in self.children.values() if child.unsent}
        ready = wait_for([child.fd for child in self.children.values()], unsent, max(0.0, min(left_s, LOOK_S)))
        for fd in unsent.keys() & ready:
            with contextlib.suppress(OSError):  # it has closed its end: what else it does is heard
                unsent[fd].send()
        now = self.now()
        heard: list[tuple[K, Json, Lost | None]] = []
        lost: dict[K, Lost] = {}
        for key, child in self.children.items():
            is_readable = child.fd in ready
            try:
                messages = child.receive() if is_readable else []
            except ValueError:
                lost[key] = Lost.GARBLED
                continue
            heard += [(key, message, None) for message in messages]
            if child.fd < 0 or (key in have_ended and not is_readable):  # what it forked may hold its pipe open
                lost[key] = Lost.DIED
            elif len(child.unread) > MOST_LINE_BYTES:
                lost[key] = Lost.GARBLED
            elif messages and -math.inf < self._answer_by[key] <= now:
                self._answer_by[key] = -math.inf  # the answer may have waited for us; one look more, or another limit
            elif self._answer_by[key] <= now:
                lost[key] = Lost.LATE
        self.end(*lost)
        return [*heard, *((key, None, why) for key, why in lost.items())]

    def end(self, *keys: K) -> None:
        """End the children `keys` and all processes in their process groups."""
        with held_back():
            ending = [self.children.pop(key) for key in keys if key in self.children]
            self._answer_by = {key: by for key, by in self._answer_by.items() if key in self.children}
            for child in ending:
                child.close()
            leave_by = time.monotonic() + self.leave_s
            while time.monotonic() < leave_by and not all(child.has_ended() for child in ending):
                time.sleep(REAP_POLL_S)
            for child in ending:
                child.kill_group()  # before it is reaped: its number is the group's
            reap_by = time.monotonic() + self.reap_s
            for child in ending:
                child.reap_group(reap_by)

    def __enter__(self) -> Crew[K]:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(*self.children)
