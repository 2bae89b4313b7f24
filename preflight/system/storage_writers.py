"""Processes that write and read one file each, which do what they are asked or are ended at its deadline."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from preflight.errors import UnreadableFact, UsageError
from preflight.model.units import size_text
from preflight.system.child import ChildProcess, Parent, fork_child
from preflight.system.isolate import run_isolated
from preflight.system.machine import Json
from preflight.system.signals import held_back
from preflight.system.storage_file import StorageFile, look_at, reason
from preflight.system.wakeups import wait_for

POLL_S = 0.1
SWEEP_S = 0.3
REAP_S = 0.5  # a disk that is flushing lets nobody go at once
LOOK, WRITE, READ = "look", "write", "read"
DOING = {LOOK: "looking at the directory", WRITE: "writing", READ: "reading"}


@dataclass(frozen=True, slots=True)
class Task:
    """What a writer is to do: by itself it stops at `stop_at`, at `kill_at` its process is ended."""

    what: str
    stop_at: float  # CLOCK_MONOTONIC
    kill_at: float
    size_bytes: int = 0


@dataclass(slots=True)
class WriterOutcome:
    """What a writer answered, or why it did not."""

    value: Json = None
    failure: str = ""
    is_usage: bool = False  # the directory is none
    done_bytes: int = 0  # so far
    is_over: bool = False


@dataclass(slots=True)
class Writer:
    """One process with one file."""

    child: ChildProcess
    path: str
    outcome: WriterOutcome = field(default_factory=WriterOutcome)

    @property
    def is_gone(self) -> bool:
        """Whether its process was ended."""
        return self.child.questions_fd < 0


@contextmanager
def start_writers(directory: str, count: int) -> Iterator[list[Writer]]:
    """Start writers, which live until the block is left in whatever way; their files go with them.

    Must be called from a process with a single thread, since it forks.
    """
    crew: list[Writer] = []
    token = os.urandom(6).hex()
    try:
        for number in range(count):
            _start(crew, StorageFile(directory, f".preflight-{token}-{number}"))
        yield crew
    finally:
        cut_short = [writer.path for writer in crew if writer.is_gone or not writer.outcome.is_over]
        for writer in crew:
            writer.child.close()
            writer.child.signal(signal.SIGKILL)
        until = time.monotonic() + REAP_S
        for writer in crew:
            writer.child.reap(until)
        if cut_short:
            run_isolated({"sweep": lambda: _sweep(cut_short)}, {"sweep": SWEEP_S})  # isolated: it may stall


def _start(crew: list[Writer], file: StorageFile) -> None:
    try:
        with held_back():  # a Ctrl-C between the fork and the crew would leave a writer behind
            child = fork_child(lambda parent: _serve(parent, file), is_asked=True)
            crew.append(Writer(child, os.path.join(file.directory, file.name)))
    except OSError as error:
        raise UnreadableFact(f"the processes that write could not be started: {reason(error)}") from None


def _sweep(paths: Sequence[str]) -> Json:
    """Remove files that had a name just when their writer was killed."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
    return None


def carry_out(crew: Sequence[Writer], task: Task, watch: Callable[[int], None]) -> list[WriterOutcome]:
    """Have these writers do a task side by side and return their outcomes; `watch` is given the bytes done so far."""
    for writer in crew:
        writer.outcome = WriterOutcome()
        try:
            writer.child.send({"what": task.what, "stop_at": task.stop_at, "size_bytes": task.size_bytes})
        except OSError:
            _give_up(writer, "not tried: its process was ended before" if writer.is_gone else "its process died")
    while waiting := [writer for writer in crew if not writer.outcome.is_over]:
        _listen(waiting, task)
        watch(sum(writer.outcome.done_bytes for writer in crew))
    return [writer.outcome for writer in crew]


def _listen(waiting: Sequence[Writer], task: Task) -> None:
    left_s = max(0.0, task.kill_at - time.monotonic())
    readable = wait_for([writer.child.fd for writer in waiting], (), min(POLL_S, left_s))
    for writer in waiting:
        outcome = writer.outcome
        if writer.child.fd in readable:
            for answer in writer.child.receive():
                outcome.done_bytes = answer.get("done_bytes", outcome.done_bytes)
                if "done_bytes" not in answer:
                    outcome.value, outcome.failure = answer.get("value"), answer.get("failure", "")
                    outcome.is_usage, outcome.is_over = answer.get("is_usage", False), True
            if writer.child.fd < 0:
                _give_up(writer, f"the process died while {DOING[task.what]}")
        elif time.monotonic() >= task.kill_at:
            done = f" after at least {size_text(outcome.done_bytes)}" if outcome.done_bytes else ""
            _give_up(writer, f"{DOING[task.what]} stood still{done} and was given up at its deadline")


def _give_up(writer: Writer, failure: str) -> None:
    writer.outcome.failure, writer.outcome.is_over = failure, True
    writer.child.kill(REAP_S)


def _serve(parent: Parent, file: StorageFile) -> None:
    for task in parent.questions():
        parent.send(_done(file, task, lambda done_bytes: parent.send({"done_bytes": done_bytes})))


def _done(file: StorageFile, task: Json, report: Callable[[int], None]) -> dict[str, Json]:
    try:
        if task["what"] == LOOK:
            return {"value": look_at(file.directory)}
        if task["what"] == WRITE:
            return {"value": file.write(task["size_bytes"], task["stop_at"], report)}
        answer = {"value": file.read(task["stop_at"], report)}
    except OSError as error:
        answer = {"failure": f"{DOING[task['what']]}: {reason(error)}"}
    except (UnreadableFact, UsageError) as error:
        answer = {"failure": str(error), "is_usage": isinstance(error, UsageError)}
    file.close()  # what was read, or failed, is not read again
    return answer
