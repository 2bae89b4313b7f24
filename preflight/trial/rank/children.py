"""Start, read, kill and reap the child processes that do the test runs for a per-rank agent (supervisor)."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from preflight.model.codec import encode
from preflight.model.run_spec import PIDS, Assignment, StageLimits
from preflight.model.trial import RankEnd
from preflight.system import processes
from preflight.system.child import ChildProcess, Parent, fork_child, pid_of
from preflight.system.shm_segments import SEGMENTS_SUFFIX, has_segments, remove_segments, segments_of
from preflight.system.waiting import wait_for
from preflight.system.wakeups import DirectoryWatch
from preflight.trial.rank import trial

UNKILLABLE_AFTER_S = 30.0  # the driver may take so long to tear down eight large contexts
CONNECTING = ("init", "first")
ASKED = "asked"  # the stage of a child that has done what it was asked, and was asked the next
WATCHDOG = "watchdog thread terminated with exception: "  # ProcessGroupNCCL.cpp, torch 2.1 to 2.10; then it aborts
LOG_BYTES = 1 << 16  # of a process that died, from the end
SEGMENTS_EVERY_S = 0.03  # what is mapped later than that before a SIGKILL of the supervisor is not known
# How a child ends that is not the cause: it timed out waiting, or lost a peer. Gloo closes all of a rank's connections
# when that rank's wait times out, so a lost connection may be no more than another's timeout; whoever died is reported
# by its own supervisor.
CONSEQUENCES = ("timeout", "connection")


@dataclass(slots=True, kw_only=True)
class Child(ChildProcess):
    """A child process that does a test run for its per-rank agent, and leads its own process group."""

    assignment: Assignment
    started_by: str  # fork | exec
    stage: str = "spawned"
    moved_at: float = field(default_factory=time.monotonic)
    waited_for_cpu: dict[int, float] = field(default_factory=dict)  # by thread, in seconds, when it moved
    expected_s: float = 0.0  # how long the step that it is in should take
    log_path: str = os.devnull
    segments: frozenset[str] = frozenset()  # its files in /dev/shm, as far as they are known
    segments_noted_at: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    end: RankEnd | None = None
    log_looked_at: float = 0.0  # when NCCL's log was searched for transfers that it gave up
    log_read: dict[str, int] = field(default_factory=dict)
    gave_up_at: float = math.inf

    @property
    def error(self) -> dict[str, Any] | None:
        """Return the event in which the child reported an error, or None if there was no error."""
        return next((event for event in self.events if "error" in event), None)

    @property
    def is_done(self) -> bool:
        """Return whether the child has completed all of its stages."""
        return self.stage == "done"

    def silent_s(self) -> float:
        """Return the seconds since the child last reached a new stage."""
        return time.monotonic() - self.moved_at

    def starved_s(self) -> float:
        """Return for how many seconds since its last stage the child was ready to run but had no CPU.

        For a child that has ended, the result is 0.
        """
        # If the child has several threads, the longest wait counts.
        if self.end is not None:
            return 0.0
        now = processes.waits_for_cpu_s(self.pid)
        since = max((waits - self.waited_for_cpu.get(thread, 0.0) for thread, waits in now.items()), default=0.0)
        return min(max(since, 0.0), self.silent_s())

    def is_silent_for(self, limit_s: float) -> bool:
        """Return whether the child made no progress for `limit_s` seconds although it had a CPU.

        A process that waits for a CPU on a busy host is not hung.
        """
        return self.silent_s() > limit_s and self.silent_s() - self.starved_s() > limit_s

    def ended(self, how: str, detail: str) -> None:
        """Record how the child ended. Only the first call counts."""
        self.end = self.end or RankEnd(self.assignment.rank, how, self.stage, detail)


def start(assignment: Assignment, log_path: str, by_exec: bool) -> Child:
    """Start a child process that does the test run `assignment` and writes its output to the file `log_path`."""
    # The child is started by exec if `by_exec` is true or if this process has several threads, and otherwise by a fork.
    sound = processes.thread_count() == 1 and not by_exec
    process = _fork(assignment, log_path) if sound else _exec(assignment, log_path)
    os.set_blocking(process.fd, False)
    # The driver's log names killed pids; this file says which are preflight's own. A full disk is no error.
    with contextlib.suppress(OSError), open(os.path.join(os.path.dirname(log_path), PIDS), "a", encoding="ascii") as f:
        f.write(f"{process.pid}\n")
    started_by = "fork" if sound else "exec"
    return Child(
        process.pid, process.fd, process.questions_fd, assignment=assignment, started_by=started_by, log_path=log_path
    )  # fmt: skip


def _fork(assignment: Assignment, log_path: str) -> ChildProcess:
    supervisor_pid = os.getpid()

    def be_trial(supervisor: Parent) -> None:
        processes.stop_with_parent(supervisor_pid, os.environ.get("PREFLIGHT_LIFELINE", ""))
        try:
            log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if assignment.tests_gpus:
                os.dup2(supervisor.questions_fd, 0)
            trial.main(assignment, supervisor.fd)
        except OSError as error:
            supervisor.send({"error": "error", "detail": f"{log_path}: {error.strerror}"})
            raise

    return fork_child(be_trial, is_asked=assignment.tests_gpus, keeps_signals=True)


def _exec(assignment: Assignment, log_path: str) -> ChildProcess:
    path = f"{log_path}.assignment.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(encode(assignment), file)
    environ = os.environ | {"PREFLIGHT_SUPERVISOR_PID": str(os.getpid())}
    reader, writer = os.pipe()
    questions_reader, questions_fd = os.pipe() if assignment.tests_gpus else (os.open(os.devnull, os.O_RDONLY), -1)
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "preflight.trial.rank.trial", path, str(writer)],
            env=environ, pass_fds=(writer,), stdin=questions_reader, stdout=log, stderr=log,
        )  # fmt: skip
    os.close(writer)
    os.close(questions_reader)
    return ChildProcess(pid_of(process), reader, questions_fd)


def ask(child: Child, question: dict[str, Any]) -> None:
    """Send `question` to a child that answers questions.

    The answer is in `child.events` once the child's stage is `done`.
    """
    child.events = []
    if child.is_done:
        _move(child, ASKED)
    with contextlib.suppress(OSError):  # it has gone meanwhile: listening tells
        child.send(question)


@cache
def shm_watch() -> DirectoryWatch:
    """Return this per-rank agent's watch on /dev/shm, which reports new files."""
    return DirectoryWatch("/dev/shm")


def listen(children: Sequence[Child], timeout_s: float) -> None:
    """Read what `children` report and record which children have ended. Return after at most `timeout_s` seconds."""
    open_fds = {child.fd: child for child in children if child.fd >= 0}
    has_new_segment = False
    for fd in wait_for([*open_fds, *shm_watch().fds], (), timeout_s):
        if fd in open_fds:
            _read(open_fds[fd])
        else:  # whoever made it has it open now; a moment later it may have died
            has_new_segment = shm_watch().drain() != []
    for child in children:
        if child.end is None:
            _note_segments(child, has_new_segment)
            _note_exit(child)


def _note_segments(child: Child, at_once: bool) -> None:
    """Record the files in /dev/shm that the child maps while it connects.

    After a crash, nothing shows which process owned these files.
    """
    now = time.monotonic()
    is_time = at_once or now - child.segments_noted_at > SEGMENTS_EVERY_S
    if child.stage in CONNECTING and is_time and has_segments():
        child.segments_noted_at = now
        found = segments_of(child.pid) - child.segments
        child.segments |= found
        if found:  # in a file too, for the launcher: this supervisor may be killed as well
            with open(f"{child.log_path}{SEGMENTS_SUFFIX}", "a", encoding="utf-8", errors="surrogateescape") as file:
                file.writelines(f"{path}\n" for path in found)


def _read(child: Child) -> None:
    for event in child.receive():
        child.events.append(event)
        if "stage" in event:
            _move(child, event["stage"], event.get("expected_s", 0.0))


def _move(child: Child, stage: str, expected_s: float = 0.0) -> None:
    child.stage, child.expected_s, child.moved_at = stage, expected_s, time.monotonic()
    child.waited_for_cpu = processes.waits_for_cpu_s(child.pid)


def _note_exit(child: Child) -> None:
    """If the child has exited on its own, record how the child ended.

    The child's remaining output is read first.
    """
    if child.fd >= 0 and processes.state(child.pid) not in processes.GONE:
        return
    while child.fd >= 0 and wait_for([child.fd], (), 0.0):
        _read(child)
    if processes.state(child.pid) == "Z":
        child.kill_group()  # what the child started may hold its GPU; as a zombie it still keeps its number
    if not child.reap():
        return
    child.close()
    error = child.error
    if child.is_done:
        child.ended("done", "")
    elif error is not None:
        child.ended(error["error"], error["detail"])
    elif child.exitcode == -signal.SIGABRT and (what := _last_of_watchdog(child.log_path)):
        child.ended(trial.kind_of(RuntimeError(what)), trial.line_of(RuntimeError(what)))
    elif child.exitcode is not None and child.exitcode < 0:
        child.ended("signal", f"died by {_signal_name(-child.exitcode)}")
    else:
        child.ended("error", f"exited with code {child.exitcode or 0} without a word")


def _last_of_watchdog(log_path: str) -> str:
    """Return the error with which torch's watchdog ended the process, or "" if the watchdog did not end it.

    The error comes from NCCL, and may be the consequence of another rank's death.
    """
    try:
        with open(log_path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
            _, found, words = log.read().decode("utf-8", "backslashreplace").rpartition(WATCHDOG)
    except OSError:
        return ""
    return words.partition("Exception raised from")[0].strip() if found else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def limit_s(child: Child, limits: StageLimits) -> float:
    """Return how many seconds `child` may stay in its current stage."""
    return limits.for_stage(child.stage.split()[0], child.expected_s)


def forgive(children: Sequence[Child], gap_s: float) -> None:
    """Do not count `gap_s` seconds toward the time limits of `children`.

    This agent and its children were suspended for this time.
    """
    for child in children:
        child.moved_at += gap_s


def is_overdue(child: Child, limits: StageLimits) -> bool:
    """Return whether the child made no progress within the time limit of its stage.

    A child that ended with a timeout or a connection error also counts.
    """
    # A child that ended in another way does not count.
    gave_up = child.end is not None and child.end.ended in CONSEQUENCES
    return (child.end is None or gave_up) and child.is_silent_for(limit_s(child, limits))


def kill(children: Sequence[Child], hung: bool, limits: StageLimits) -> None:
    """Kill and reap all remaining children, and remove the files of all children in /dev/shm.

    If `hung` is true, a child that was silent for its time limit counts as stuck.
    """
    # The kill includes each child's process group. The state of a child before the kill shows whether the child was
    # stuck or waiting.
    left = [child for child in children if child.end is None]
    states = [_state(child, hung, limits) for child in left]
    for child in left:
        child.segments |= segments_of(child.pid)
        child.kill_group()
    until = time.monotonic() + UNKILLABLE_AFTER_S  # for all together: the conductor waits for this supervisor's answer
    for child, (how, detail) in zip(left, states, strict=True):
        if child.reap(until):
            child.ended(how, detail)
        else:
            child.ended("unkillable", f"pid {child.pid} survived SIGKILL for {UNKILLABLE_AFTER_S:.0f} s")
    for child in children:
        child.close()
    remove_segments({path for child in children for path in child.segments})


def _state(child: Child, hung: bool, limits: StageLimits) -> tuple[str, str]:
    state = processes.state(child.pid)
    silent = hung and child.is_silent_for(0.8 * limit_s(child, limits))
    how = "stopped" if state in ("T", "t") else "stuck" if silent else "killed"
    return how, f"process state {state}, silent for {child.silent_s():.1f} s"
