"""Child processes that may hang.

The parent sends questions as lines of JSON, and kills a child at its time limit.
"""
# There is no error if a child has already ended or was reaped elsewhere.

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from preflight.system.processes import die_with_parent
from preflight.system.signals import STOPPING

REAP_S = 0.2
REAP_POLL_S = 0.001
PIECE_BYTES = 1 << 18

Json = Any


@dataclass(slots=True)
class ChildProcess:
    """A child process with a pipe for its messages and an optional pipe for questions."""

    pid: int
    fd: int = -1  # what it writes; -1 once that is closed
    questions_fd: int = -1
    unread: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)  # of questions; only where their pipe was made not to block
    is_reaped: bool = False
    exitcode: int | None = None  # -N if signal N ended it; None also if another process reaped it

    def send(self, *messages: Json) -> None:
        """Write `messages` to the child. Data that the pipe does not accept now are kept for the next call.

        Raise OSError if the child has closed its end.
        """
        self.unsent += _lines(messages)
        try:
            while self.unsent:
                del self.unsent[: os.write(self.questions_fd, self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()
            raise

    def receive(self) -> list[Json]:
        """Return the messages that have arrived, in order. After the child's last message, `fd` is -1.

        Raise ValueError if a message is not JSON.
        """
        # The method is called when `fd` is readable, because the method may wait for data.
        try:
            data = os.read(self.fd, PIECE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            os.close(self.fd)
            self.fd = -1
            return []
        self.unread += data
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self.unread).split(b"\n")
        self.unread = bytearray(rest)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close both pipes. This ends a child that reads questions."""
        for fd in {self.fd, self.questions_fd} - {-1}:
            os.close(fd)
        self.fd = self.questions_fd = -1

    def signal(self, number: int) -> None:
        """Send signal `number` to the child, unless the child was already reaped."""
        if self._is_ours():
            os.kill(self.pid, number)

    def kill_group(self) -> None:
        """Send SIGKILL to the child, and to the child's process group if the child leads the group."""
        if self._is_ours():
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def reap(self, until: float = 0.0) -> bool:
        """Reap the child if it ends before `until`. Return whether the child is gone.

        `until` is in seconds of the monotonic clock.
        """
        while not self.is_reaped:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # another process did
                self.is_reaped = True
                break
            if ended:
                self.is_reaped, self.exitcode = True, os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                return False
            else:
                time.sleep(REAP_POLL_S)
        return True

    def reap_group(self, until: float) -> None:
        """Wait for the child's end at most until `until`, and reap the child.

        `until` is in seconds of the monotonic clock.
        """
        # If this process adopts orphans, the method also reaps the child's process group.
        self.reap(until)
        with contextlib.suppress(ChildProcessError):  # there is no process left
            while os.waitpid(-self.pid, os.WNOHANG) != (0, 0) or time.monotonic() < until:
                time.sleep(REAP_POLL_S)

    def has_ended(self) -> bool:
        """Return whether the child has ended, without reaping the child."""
        if not self.is_reaped:
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:  # another process reaped it
                self.is_reaped = True
        return True

    def _is_ours(self) -> bool:
        """Return whether the child still exists, possibly as a zombie.

        While the child exists, no other process can have its pid.
        """
        self.has_ended()
        return not self.is_reaped


@dataclass(frozen=True, slots=True)
class Parent:
    """A forked child's connection to its parent process."""

    fd: int  # what the child writes to
    questions_fd: int

    def send(self, *messages: Json) -> None:
        """Write all messages to the parent at once."""
        view = memoryview(_lines(messages))
        while view:
            view = view[os.write(self.fd, view) :]

    def questions(self) -> Iterator[Json]:
        """Yield the parent's questions until the parent closes the pipe."""
        with open(self.questions_fd, "rb") as file:
            yield from map(json.loads, file)


def fork_child(
    main: Callable[[Parent], object], *, is_heard: bool = True, is_asked: bool = False, keeps_signals: bool = False
) -> ChildProcess:
    """Fork a child that runs `main` and dies with this process.

    Call this function from a process with a single thread.
    """
    # The child exits with 0, or with 1 if `main` raises. With `is_heard`, there is a pipe for the child's messages.
    # With `is_asked`, there is also a pipe for questions. Unless `keeps_signals` is set, the child ignores Ctrl-C.
    parent_pid = os.getpid()
    with _pipes(is_heard, is_asked) as (reader, writer, questions_reader, questions_writer):
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(parent_pid)
            if not keeps_signals:
                _leave_signals_to_the_parent()
            _close((reader, questions_writer))
            _leave_stdout_to_the_parent()
            main(Parent(writer, questions_reader))
            code = 0
        finally:
            os._exit(code)
    _close((writer, questions_reader))
    return ChildProcess(pid, reader, questions_writer)


def start_program(
    command: Sequence[str], environ: Mapping[str, str], log: int | None = None, *, is_asked: bool = True,
    errors: int | None = None,
) -> ChildProcess:  # fmt: skip
    """Start `command` in its own session, as a program that dies with this process.

    Call this function from a process with a single thread. Raise OSError if the program can't be started.
    """
    # With `is_asked`, the program reads questions from standard input. With `log` (a descriptor), all output of the
    # program goes to `log`. Otherwise, standard error goes to the descriptor `errors`.
    parent_pid, is_heard = os.getpid(), log is None
    errors = subprocess.DEVNULL if errors is None else errors

    def prepare() -> None:
        die_with_parent(parent_pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # held back at most until the child is noted

    with _pipes(is_heard, is_asked) as (reader, writer, questions_reader, questions_writer):
        process = subprocess.Popen(
            command, env=environ, stdin=questions_reader if is_asked else subprocess.DEVNULL,
            stdout=writer if is_heard else log, stderr=errors if is_heard else log,
            start_new_session=True, preexec_fn=prepare,  # noqa: PLW1509  there is one thread
        )  # fmt: skip
    _close((writer, questions_reader))
    return ChildProcess(pid_of(process), reader, questions_writer)


def run_program(command: Sequence[str], environ: Mapping[str, str], fds: Sequence[int] = ()) -> tuple[int, str, str]:
    """Run `command` to its end, and return the exit code (-N for signal N), standard output and standard error.

    Call this function from a process with a single thread. Raise OSError if the program can't be started.
    """
    # The program dies with this process, and inherits the descriptors `fds`.
    with open(os.memfd_create("stdout"), "w+b") as out, open(os.memfd_create("stderr"), "w+b") as err:
        code = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False,
            pass_fds=fds, preexec_fn=partial(die_with_parent, os.getpid()),
        ).returncode  # fmt: skip
        for file in (out, err):
            file.seek(0)
        stdout, stderr = (file.read().decode("utf-8", "backslashreplace") for file in (out, err))
    return code, stdout, stderr


def answer_questions(answers: Mapping[str, Callable[[Json], Json]]) -> None:
    """Answer the parent's questions from stdin until stdin ends.

    The answer on stdout is {"value": ...} or {"failure": reason}.
    """
    # The value of `what` in a question is the name of a function in `answers`.
    parent = Parent(sys.stdout.fileno(), sys.stdin.fileno())
    for asked in parent.questions():
        try:
            answer = {"value": answers[asked["what"]](asked)}
        except Exception as error:  # noqa: BLE001  a defect here is a gap in what is known, never the end of the run
            answer = {"failure": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):
            parent.send(answer)


def pid_of(process: subprocess.Popen[bytes]) -> int:
    """Return the pid of `process`, a child that preflight itself will reap.

    The Popen object is marked as finished, so that Popen does not reap the child.
    """
    process.returncode = 0
    return process.pid


def _lines(messages: Iterable[Json]) -> bytes:
    return "".join(f"{json.dumps(message)}\n" for message in messages).encode()


@contextlib.contextmanager
def _pipes(*wanted: bool) -> Iterator[list[int]]:
    """Yield the descriptors of both ends of each pipe.

    The descriptors of an unwanted pipe are -1. If the block raises OSError, all pipes are closed.
    """
    fds: list[int] = []
    try:
        for is_wanted in wanted:
            fds += os.pipe() if is_wanted else (-1, -1)
        yield fds
    except OSError:
        _close(fds)
        raise


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def _leave_stdout_to_the_parent() -> None:
    """Redirect the stdout of this child process to /dev/null.

    The parent's stdout may be one JSON document, which the output of libraries would damage.
    """
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _leave_signals_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
