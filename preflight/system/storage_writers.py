"""Processes that each write and read one file. A process that misses its deadline is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from preflight.errors import UnreadableFact, UsageError
from preflight.model.units import size_text
from preflight.system.child import Parent
from preflight.system.crew import Crew, Lost
from preflight.system.isolate import run_isolated
from preflight.system.machine import Json
from preflight.system.storage_file import StorageFile, look_at, reason

POLL_S = 0.1
SWEEP_S = 0.3
REAP_S = 0.5  # a process that waits for a disk to flush can't end at once
LOOK, WRITE, READ = "look", "write", "read"
DOING = {LOOK: "looking at the directory", WRITE: "writing", READ: "reading"}


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a writer process. The writer must stop at `stop_at`, and preflight kills the process at `kill_at`."""

    what: str
    stop_at: float  # CLOCK_MONOTONIC
    kill_at: float
    size_bytes: int = 0


@dataclass(slots=True)
class WriterOutcome:
    """A writer's result, or the reason why there is no result."""

    value: Json = None
    failure: str = ""
    is_usage: bool = False  # the directory is none
    done_bytes: int = 0  # so far
    is_over: bool = False

    def take(self, answer: Json, lost: Lost | None, task: Task) -> None:
        """Record the writer's message `answer` about `task`.

        If `lost` is not None, record that the writer was lost, with the reason.
        """
        if lost is Lost.LATE:
            done = f" after at least {size_text(self.done_bytes)}" if self.done_bytes else ""
            self.failure = f"{DOING[task.what]} stood still{done} and was given up at its deadline"
        elif lost:
            self.failure = f"the process died while {DOING[task.what]}"
        elif "done_bytes" in answer:
            self.done_bytes = answer["done_bytes"]
            return
        else:
            self.value, self.failure = answer.get("value"), answer.get("failure", "")
            self.is_usage = answer.get("is_usage", False)
        self.is_over = True


@dataclass(slots=True)
class Writers:
    """Processes that write and read one file each, numbered from 0."""

    crew: Crew[int]
    paths: tuple[str, ...]
    cut_short: set[int] = field(default_factory=set)  # writers in a task, or ended in one: their files may have names

    def carry_out(self, task: Task, count: int, watch: Callable[[int], None]) -> list[WriterOutcome]:
        """Have the first `count` writers run a task in parallel, and return their outcomes in order.

        `watch` is called often with the number of bytes that these writers have completed together.
        """
        outcomes = [self._asked(number, task) for number in range(count)]
        while not all(outcome.is_over for outcome in outcomes):
            for number, answer, lost in self.crew.listen(POLL_S):
                if number >= count or outcomes[number].is_over:  # one that is at no task has died
                    continue
                outcomes[number].take(answer, lost, task)
                if outcomes[number].is_over and not lost:
                    self.crew.expect(number)
                    self.cut_short.discard(number)
            watch(sum(outcome.done_bytes for outcome in outcomes))
        return outcomes

    def _asked(self, number: int, task: Task) -> WriterOutcome:
        if number in self.cut_short:
            return WriterOutcome(failure="not tried: its process was ended before", is_over=True)
        self.cut_short.add(number)
        asked = {"what": task.what, "stop_at": task.stop_at, "size_bytes": task.size_bytes}
        try:
            self.crew.ask(number, asked, task.kill_at - time.monotonic())
        except (OSError, KeyError):
            self.crew.end(number)
            return WriterOutcome(failure="its process died", is_over=True)
        return WriterOutcome()


@contextmanager
def start_writers(directory: str, count: int) -> Iterator[Writers]:
    """Start `count` writer processes, each with its own file in `directory`, and yield the processes.

    Call this function from a process with a single thread, because the function forks.
    """
    # The end of the block ends the processes and removes their files, even after an exception.
    token = os.urandom(6).hex()
    files = [StorageFile(directory, f".preflight-{token}-{number}") for number in range(count)]
    with Crew[int](reap_s=REAP_S) as crew:
        writers = Writers(crew, tuple(os.path.join(directory, file.name) for file in files))
        try:
            for number, file in enumerate(files):
                _start(crew, number, file)
            yield writers
        finally:
            crew.end(*crew.children)
            if paths := [writers.paths[number] for number in writers.cut_short]:
                run_isolated({"sweep": lambda: _sweep(paths)}, {"sweep": SWEEP_S})  # isolated: it may stall


def _start(crew: Crew[int], number: int, file: StorageFile) -> None:
    try:
        crew.fork(number, partial(_serve, file), is_asked=True)
    except OSError as error:
        raise UnreadableFact(f"the processes that write could not be started: {reason(error)}") from None


def _sweep(paths: Sequence[str]) -> Json:
    """Remove the files at `paths`.

    Such a file is left over if a writer is killed while its file has a name.
    """
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
    return None


def _serve(file: StorageFile, parent: Parent) -> None:
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
