"""Processes that write and read one file each, which do what they are told or are ended at its deadline."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from preflight.errors import UnreadableFact, UsageError
from preflight.model.units import size_text
from preflight.system.isolate import run_isolated
from preflight.system.machine import Json
from preflight.system.processes import die_with_parent
from preflight.system.signals import STOPPING
from preflight.system.storage_file import StorageFile, look_at, reason

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

    def line(self) -> bytes:
        """Return it as a writer reads it."""
        return json.dumps({"what": self.what, "stop_at": self.stop_at, "size_bytes": self.size_bytes}).encode() + b"\n"


@dataclass(slots=True)
class Outcome:
    """What a writer answered, or why it did not."""

    value: Json = None
    failure: str = ""
    is_usage: bool = False  # the directory is none
    done_bytes: int = 0  # so far
    is_over: bool = False


@dataclass(slots=True)
class Writer:
    """One process with one file."""

    pid: int
    file_name: str
    tasks_fd: int
    answers_fd: int
    outcome: Outcome = field(default_factory=Outcome)
    received: bytes = b""
    is_gone: bool = False


@contextmanager
def start_writers(directory: str, count: int) -> Iterator[list[Writer]]:
    """Start writers, which live until the block is left in whatever way; their files go with them.

    Must be called from a process with a single thread, since it forks.
    """
    crew: list[Writer] = []
    token = secrets.token_hex(6)
    try:
        for number in range(count):
            _start(crew, directory, f".preflight-{token}-{number}")
        yield crew
    finally:
        cut_short = [writer for writer in crew if writer.is_gone or not writer.outcome.is_over]
        for writer in crew:
            _kill(writer)
        until = time.monotonic() + REAP_S
        for writer in crew:
            _reap(writer, until)
        if cut_short:
            names = [os.path.join(directory, writer.file_name) for writer in cut_short]
            run_isolated({"sweep": lambda: _sweep(names)}, {"sweep": SWEEP_S})  # isolated: the directory may stall


def _sweep(paths: Sequence[str]) -> Json:
    """Remove files that had a name just when their writer was killed."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
    return None


def carry_out(crew: Sequence[Writer], task: Task, watch: Callable[[int], None]) -> list[Outcome]:
    """Have these writers do a task side by side and return their outcomes; `watch` is told the bytes done so far."""
    for writer in crew:
        writer.outcome = Outcome()
        _tell(writer, task.line())
    while any(not writer.outcome.is_over for writer in crew):
        _listen([writer for writer in crew if not writer.outcome.is_over], task)
        watch(sum(writer.outcome.done_bytes for writer in crew))
    return [writer.outcome for writer in crew]


def _listen(waiting: Sequence[Writer], task: Task) -> None:
    left_s = max(0.0, task.kill_at - time.monotonic())
    poll = select.poll()  # select() knows no descriptor above 1023
    for writer in waiting:
        poll.register(writer.answers_fd, select.POLLIN)
    readable = {fd for fd, _ in poll.poll(1000 * min(POLL_S, left_s))}
    for writer in waiting:
        if writer.answers_fd in readable:
            _take_in(writer, os.read(writer.answers_fd, 1 << 16), task)
        elif time.monotonic() >= task.kill_at:
            done = f" after at least {size_text(writer.outcome.done_bytes)}" if writer.outcome.done_bytes else ""
            _fail(writer, f"{DOING[task.what]} stood still{done} and was given up at its deadline")
            _end(writer)


def _take_in(writer: Writer, data: bytes, task: Task) -> None:
    if not data:
        _fail(writer, f"the process died while {DOING[task.what]}")
        _end(writer)
        return
    *lines, writer.received = (writer.received + data).split(b"\n")
    for line in map(json.loads, lines):
        if "done_bytes" in line:
            writer.outcome.done_bytes = line["done_bytes"]
        else:
            writer.outcome.value = line.get("value")
            writer.outcome.failure = line.get("failure", "")
            writer.outcome.is_usage = line.get("is_usage", False)
            writer.outcome.is_over = True


def _fail(writer: Writer, failure: str) -> None:
    writer.outcome.failure, writer.outcome.is_over = failure, True


def _tell(writer: Writer, line: bytes) -> None:
    if writer.is_gone:
        _fail(writer, "not tried: its process was ended before")
        return
    try:
        os.write(writer.tasks_fd, line)
    except BrokenPipeError:
        _fail(writer, "its process died")
        _end(writer)


def _start(crew: list[Writer], directory: str, file_name: str) -> None:
    """Fork a writer; signals wait until it stands in the crew, so that a Ctrl-C in between leaves none behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        tasks_read, tasks_write, answers_read, answers_write = fds
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _serve(parent, StorageFile(directory, file_name), tasks_read, answers_write, (tasks_write, answers_read))
        crew.append(Writer(pid, file_name, tasks_write, answers_read))
        fds = [tasks_read, answers_write]
    except OSError as error:
        raise UnreadableFact(f"the processes that write could not be started: {reason(error)}") from None
    finally:
        for fd in fds:
            os.close(fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(parent: int, file: StorageFile, tasks_fd: int, answers_fd: int, foreign: tuple[int, ...]) -> None:
    """Be a writer: never returns."""
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        for fd in foreign:
            os.close(fd)
        with open(tasks_fd, "rb") as tasks:
            for line in tasks:
                _answer(answers_fd, _done(file, json.loads(line), answers_fd))
    finally:
        os._exit(0)


def _done(file: StorageFile, task: Json, answers_fd: int) -> dict[str, Json]:
    def report(done_bytes: int) -> None:
        _answer(answers_fd, {"done_bytes": done_bytes})

    try:
        if task["what"] == LOOK:
            return {"value": look_at(file.directory)}
        if task["what"] == WRITE:
            return {"value": file.write(task["size_bytes"], task["stop_at"], report)}
        value = file.read(task["stop_at"], report)
        file.close()
        return {"value": value}
    except OSError as error:
        file.close()
        return {"failure": f"{DOING[task['what']]}: {reason(error)}"}
    except (UnreadableFact, UsageError) as error:
        file.close()
        return {"failure": str(error), "is_usage": isinstance(error, UsageError)}


def _answer(answers_fd: int, answer: dict[str, Json]) -> None:
    os.write(answers_fd, json.dumps(answer).encode() + b"\n")  # shorter than a pipe takes at once


def _end(writer: Writer) -> None:
    _kill(writer)
    _reap(writer, time.monotonic() + REAP_S)


def _kill(writer: Writer) -> None:
    if writer.is_gone:
        return
    writer.is_gone = True
    os.close(writer.tasks_fd)
    os.close(writer.answers_fd)
    with suppress(ProcessLookupError):
        os.kill(writer.pid, signal.SIGKILL)


def _reap(writer: Writer, until: float) -> None:
    """Wait for a killed process; one in uninterruptible sleep is left to the kernel, and its file with it."""
    with suppress(ChildProcessError):
        while os.waitpid(writer.pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)
