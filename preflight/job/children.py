"""Run child processes one after another, and pass each signal on to the child exactly once."""
# A Ctrl-C in the terminal reaches all processes of the foreground group, and so does `kill -- -GROUP`. The child has a
# signal of this kind already. A signal to this process alone must be passed on. The kernel marks signals from a
# terminal. For every other signal, preflight uses a helper process in the same group that only listens for signals. If
# the helper got the signal too, the signal went to all processes of the group. No child may get a signal twice, because
# a second SIGTERM makes torchrun abort its own cleanup.

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import NoReturn

from preflight.system.processes import die_with_parent, name_process, stop_as_by_ctrl_z

Process = subprocess.Popen[bytes]
# What can't be caught, what says that this very process is broken or must not use the terminal, and what is our own.
NOT_PASSED_ON = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
}  # fmt: skip
PASSED_ON = signal.valid_signals() - NOT_PASSED_ON
ENDS_NOTHING = {signal.SIGCONT, signal.SIGTSTP, signal.SIGURG, signal.SIGWINCH}  # if no handler is set
UNDONE_BY: dict[int, signal.Signals] = {signal.SIGTSTP: signal.SIGCONT, signal.SIGCONT: signal.SIGTSTP}
QUESTION = signal.SIGCHLD  # to the witness
ANSWER_S = 5.0  # a witness that is stopped does not answer
FROM_KERNEL = 0x80  # si_code, sigaction(2): the terminal's driver, a limit of this process
TRIES = 3  # of a system call whose failure would change how the job ends
MOST_FILES = 1 << 20  # descriptors that a process may have
FIRST_OF_ALL = b"1000"  # /proc/PID/oom_score_adj of what the kernel kills first, for lack of memory


class Children:
    """A starter of child processes. It waits for the children and passes signals on to the main child."""

    def __init__(self) -> None:
        # While SIGCHLD is ignored, the kernel reaps children itself, and their exit codes are lost.
        self._ignored_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL) is signal.SIG_IGN
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._heard = {*PASSED_ON, signal.SIGCHLD}  # Linux queues what is blocked, ignored or not
        signal.pthread_sigmask(signal.SIG_BLOCK, self._heard)
        self._witness, self._answers = _start_witness()
        self._witnessed = bytearray()
        self._main: Process | None = None
        self._may_stop = False
        self.stops_with_us = 0  # a helper that is stopped when the shell stops us: it measures time
        self.last_signal = 0  # the last signal that was sent to us, or to all, and that ends a process by default
        self.on_resize: Callable[[], None] = lambda: None

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None, stdin: int | None, stdout: int | None,
        stderr: int | None, *, is_job: bool = False,
    ) -> Process:  # fmt: skip
        """Start `argv` as the main child, and return the child.

        The child gets the signal mask that preflight inherited. Raise OSError if the child can't start.
        """
        # Only the job (`is_job`) inherits an ignored SIGCHLD, because preflight's own programs must learn how their
        # children end.
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            if is_job and self._ignored_children:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

        self._main = subprocess.Popen(
            argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False,
            preexec_fn=prepare,  # noqa: PLW1509  this process has one thread
        )  # fmt: skip
        return self._main

    def fork(self, name: str, run: Callable[[], None], holds: Sequence[int]) -> int:
        """Start a helper process that runs `run`, and return the pid of the helper.

        The helper ignores every signal except SIGKILL and SIGSTOP. Raise OSError if the helper can't start.
        """
        # The helper may die at any time and ends with preflight. The helper exits with 0 after `run` returns. `name` is
        # the helper's name in `ps`. The helper has preflight's stdin, stdout and stderr and the descriptors in `holds`.
        parent, pid = os.getpid(), os.fork()
        if pid:
            return pid
        try:
            die_with_parent(parent)
            name_process(name)
            _close_all_but({0, 1, 2, *holds})
            be_killed_first()
            run()
            os._exit(0)
        finally:
            os._exit(1)

    def output_of(
        self, argv: Sequence[str], env: Mapping[str, str], descriptor: int
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `argv`, a short program of preflight, and return its exit code and stdout.

        The program inherits `descriptor`. Signals to preflight wait until the program has ended.
        """
        with_mask = partial(signal.pthread_sigmask, signal.SIG_SETMASK, self.mask)
        return subprocess.run(
            argv, env=env, pass_fds=[descriptor], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
            preexec_fn=with_mask,
        )  # fmt: skip

    def wait(self) -> int:
        """Wait for the main child. Return its exit code, or -N if signal N ended the child."""
        assert self._main is not None
        while (code := how_it_ended(self._main.pid)) is None:
            self.hear(3600.0)
        self.has_ended(code)
        return code

    def has_ended(self, code: int) -> None:
        """Record that the main child was reaped with exit code `code`.

        The child's PID may already belong to another process.
        """
        if self._main is not None:
            self._main.returncode = code
        self._main = None

    def hear(self, for_s: float) -> int:
        """Wait at most `for_s` seconds for one signal. If the signal concerns the main child, pass the signal on.

        Return the number of the signal, or 0 if no signal came. If the signal concerns only preflight, return SIGCHLD.
        """
        info = signal.sigtimedwait(self._heard, for_s)
        if info is None:
            return 0
        is_ours = info.si_signo == signal.SIGCHLD or info.si_pid == os.getpid()  # SIGPIPE of what we wrote
        if not is_ours:
            self._take(info)
        if self._may_stop:
            self._stop_with_main()
        return signal.SIGCHLD if is_ours else info.si_signo

    def take_up_pending(self) -> None:
        """Handle all signals that have arrived. A signal may end the main child."""
        while self.hear(0.0):
            pass

    def is_asked_to_end(self, for_s: float) -> bool:
        """Wait at most `for_s` seconds for a signal, and handle the signal.

        Return whether the signal asks a process to end.
        """
        # SIGTERM asks a process to end, and SIGWINCH does not.
        number = self.hear(for_s)
        return number in PASSED_ON and number not in ENDS_NOTHING

    def end(self, code: int) -> NoReturn:
        """End preflight in the same way as the child ended.

        The exit code is `code`. If `code` is negative, preflight ends by the signal `-code`.
        """
        try:
            end_helper(self._witness)  # nothing of us outlives us
        finally:
            _end_as(code)

    def _take(self, info: signal.struct_siginfo) -> None:
        number = info.si_signo
        if number == signal.SIGWINCH:
            self.on_resize()
        if number not in ENDS_NOTHING:
            self.last_signal = number
        if number in (signal.SIGTSTP, signal.SIGCONT):
            self._may_stop = number == signal.SIGTSTP
        was_sent_to_all = self._was_sent_to_all(number)  # asked of the terminal's as well: it must not keep its record
        if info.si_code == FROM_KERNEL or was_sent_to_all or self._main is None:
            return
        if number in UNDONE_BY and {number, UNDONE_BY[number]} & signal.sigpending():
            return  # the kernel drops it for that one, at the witness as well; the last that came is passed on
        for _ in range(TRIES):
            with contextlib.suppress(OSError):  # another user's by now (sudo): its sender may not signal it either
                os.kill(self._main.pid, number)
                return

    def _was_sent_to_all(self, number: int) -> bool:
        """Return whether signal `number` was sent to the whole process group.

        The witness is a helper process in the same process group. If the witness got the signal too, the signal was
        sent to the group. The witness answers at once, so that no waiting time has to be guessed.

        A dead witness is replaced. A signal that the dead witness may have missed is passed on.
        """
        try:
            had_it = self._ask_witness(number)
            if how_it_ended(self._witness) is not None:
                os.close(self._answers)
                self._witnessed.clear()
                self._witness, self._answers = _start_witness()
        except OSError:
            return False
        return had_it

    def _ask_witness(self, number: int) -> bool:
        while select.select([self._answers], [], [], 0)[0] and (data := os.read(self._answers, 4096)):
            self._witnessed += data
        self._witnessed = self._witnessed.replace(b"\0", b"")
        os.kill(self._witness, QUESTION)
        while b"\0" not in self._witnessed and select.select([self._answers], [], [], ANSWER_S)[0]:
            data = os.read(self._answers, 4096)
            if not data:
                break
            self._witnessed += data
        had_it = number in self._witnessed
        if number not in signal.sigpending():  # two that came at once are one for us, and may be two for the witness
            self._witnessed = self._witnessed.replace(bytes([number]), b"")
        elif had_it and number >= signal.SIGRTMIN:  # the kernel counts these; of others, two may be one for the witness
            self._witnessed.remove(number)
        undone = UNDONE_BY.get(number)
        if undone is not None and undone not in signal.sigpending():  # the kernel dropped ours for this one
            self._witnessed = self._witnessed.replace(bytes([undone]), b"")
        return had_it

    def _stop_with_main(self) -> None:
        """Stop this process if Ctrl-Z stopped the main child. Return when this process continues.

        The shell watches only this process.

        A child that handles SIGTSTP may stop later, or not at all.
        """
        which = (os.P_ALL, 0) if self._main is None else (os.P_PID, self._main.pid)
        with contextlib.suppress(ChildProcessError):
            stopped = os.waitid(*which, os.WSTOPPED | os.WNOHANG)
            if stopped is not None and stopped.si_status == signal.SIGTSTP:
                self._may_stop = False
                self._signal_helper(signal.SIGSTOP)
                stop_as_by_ctrl_z()
                self._signal_helper(signal.SIGCONT)

    def _signal_helper(self, number: signal.Signals) -> None:
        if self.stops_with_us:
            with contextlib.suppress(OSError):
                os.kill(self.stops_with_us, number)


def start_beside(argv: Sequence[str], output: int, mask: Set[signal.Signals | int], most_bytes: int) -> Process:
    """Start `argv`, a program of preflight that accompanies a job. Its output goes to the descriptor `output`.

    This process must have one thread. Raise OSError if the program can't start.
    """
    # The program starts with the signal mask `mask` and may use at most `most_bytes` of address space. The program ends
    # with this process. If memory is short, the kernel kills the program first.
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(parent)
        be_killed_first()
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        preexec_fn=prepare,  # noqa: PLW1509  one thread
    )  # fmt: skip


def how_it_ended(pid: int) -> int | None:
    """Return the exit code of the child `pid`, or None while the child runs.

    If signal N ended the child, return -N. After a result other than None, the PID may belong to another process.
    """
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if ended else None
    return None


def end_helper(pid: int) -> None:
    """Kill and reap a helper process that was not reaped before. Do nothing if `pid` is 0."""
    for _ in range(TRIES if pid else 0):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return


def _close_all_but(kept: set[int]) -> None:
    """Close all descriptors of a helper except `kept`.

    A helper that held an end of the job's output would keep that output open.
    """
    ends = sorted(each for each in kept if each >= 0)
    for one, other in zip(ends, [*ends[1:], MOST_FILES], strict=True):
        if one + 1 < other:  # os.closerange(0, 0) closes all
            os.closerange(one + 1, other)


def be_killed_first() -> None:
    """Let the kernel's out-of-memory killer choose this process before the other processes of the job's cgroup."""
    with contextlib.suppress(OSError):
        adjust = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(adjust, FIRST_OF_ALL)
        os.close(adjust)


def _end_as(code: int) -> NoReturn:
    """End this process in the same way as a child ended.

    If `code` is negative, this process ends by the signal `-code`. Otherwise, the exit code is `code`.
    """
    try:
        if code < 0:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's core is the one that tells something
            with contextlib.suppress(OSError):  # SIGKILL has no other
                signal.signal(-code, signal.SIG_DFL)
            for _ in range(TRIES):
                with contextlib.suppress(OSError):
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
                    os.kill(os.getpid(), -code)
    finally:
        os._exit(code if code >= 0 else 128 - code)


def _start_witness() -> tuple[int, int]:
    """Start the witness, and return its PID and the pipe that it writes to.

    The witness is a helper process that gets the signals to our process group. The witness writes the number of each
    signal to the pipe. When preflight asks, the witness writes the signals that it has got by then, followed by a zero.
    """
    parent, (reading, writing) = os.getpid(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    die_with_parent(parent)
    name_process("preflight-hears")
    _close_all_but({0, 1, 2, writing})
    be_killed_first()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    while True:
        number = signal.sigwait({*PASSED_ON, QUESTION})
        if number != QUESTION:
            os.write(writing, bytes([number]))
            continue
        while info := signal.sigtimedwait(PASSED_ON, 0):
            os.write(writing, bytes([info.si_signo]))
        os.write(writing, b"\0")
