"""One child after the other in this very process group, and signals: a child has every signal once, as without us.

What the terminal sends (Ctrl-C) goes to the whole foreground group, and so does `kill -- -GROUP`: the child has it
already. What was sent to this process alone is passed on. The kernel marks what is from a terminal; for the rest a
witness, a child in the same group that only listens, tells the two apart. A second SIGTERM would have torchrun break
off its own cleaning up.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from preflight.system.processes import die_with_parent, name_process

Process = subprocess.Popen[bytes]
# What can't be caught, what says that this very process is broken or must not use the terminal, and what is our own.
NOT_PASSED_ON = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
}  # fmt: skip
PASSED_ON = signal.valid_signals() - NOT_PASSED_ON
ENDS_NOTHING = {signal.SIGCONT, signal.SIGTSTP, signal.SIGURG, signal.SIGWINCH}  # where nobody handles them
QUESTION = signal.SIGCHLD  # to the witness
ANSWER_S = 5.0  # a witness that is stopped does not answer
FROM_KERNEL = 0x80  # si_code, sigaction(2): the terminal's driver, a limit of this process


class Children:
    """Starts children, waits for them, and passes signals on to one of them, the main one."""

    def __init__(self) -> None:
        # While SIGCHLD is ignored the kernel reaps children itself, and nobody learns how they ended.
        self._ignored_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL) is signal.SIG_IGN
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._heard = {*PASSED_ON, signal.SIGCHLD}  # Linux queues what is blocked, ignored or not
        signal.pthread_sigmask(signal.SIG_BLOCK, self._heard)
        self._witness, self._answers = _start_witness()
        self._witnessed = bytearray()
        self._main: Process | None = None
        self._may_stop = False
        self.last_signal = 0  # the last that was sent to us, or to all, and that ends who does not handle it
        self.on_resize: Callable[[], None] = lambda: None

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None, stdin: int | None, stdout: int, stderr: int,
        *, is_main: bool = False, is_job: bool = False,
    ) -> Process:  # fmt: skip
        """Start a child with the signals and descriptors that we were started with; OSError where it can't start.

        That SIGCHLD is ignored, only the job inherits: our own programs want to know how their children end.
        """
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            if is_job and self._ignored_children:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        child = subprocess.Popen(
            argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False,
            preexec_fn=prepare,  # noqa: PLW1509  whatever threads there are write output and hold no lock
        )  # fmt: skip
        if is_main:
            self._main = child
        return child

    def output_of(
        self, argv: Sequence[str], env: Mapping[str, str], descriptor: int
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a short program of our own, which inherits a descriptor, to its end; signals wait until then."""
        return subprocess.run(
            argv, env=env, pass_fds=[descriptor], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )  # fmt: skip

    def wait(self, child: Process, until: float = float("inf")) -> int | None:
        """Return how a child ended, minus a signal; None where it still runs at a monotonic time."""
        while child.poll() is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            self._hear(min(left_s, 3600.0))
        return child.returncode

    def take_up_pending(self) -> None:
        """Take up what has come so far; a child may have ended of it before we woke."""
        while self._hear(0.0):
            pass

    def is_asked_to_end(self) -> bool:
        """Take up a signal if one has come; return whether it is one that ends a process."""
        number = self._hear(0.0)
        return number in PASSED_ON and number not in ENDS_NOTHING

    def end(self, code: int) -> NoReturn:
        """Exit as a child did: with its code, or by its signal."""
        os.kill(self._witness, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._witness, 0)  # nothing of us outlives us
        if code < 0:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's core is the one that tells something
            with contextlib.suppress(OSError):  # SIGKILL has no other
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)

    def _hear(self, for_s: float) -> int:
        """Take up one signal, waited for as long; return its number, SIGCHLD for what is our own affair, 0 for none."""
        info = signal.sigtimedwait(self._heard, for_s)
        if info is None:
            return 0
        is_ours = info.si_signo == signal.SIGCHLD or info.si_pid == os.getpid()  # SIGPIPE of what we wrote
        if not is_ours:
            self._take(info)
        if self._may_stop:
            self._stop_with_main()
        return signal.SIGCHLD if is_ours else info.si_signo

    def _take(self, info: signal.struct_siginfo) -> None:
        number = info.si_signo
        if number == signal.SIGWINCH:
            self.on_resize()
        if number not in ENDS_NOTHING:
            self.last_signal = number
        if number in (signal.SIGTSTP, signal.SIGCONT):
            self._may_stop = number == signal.SIGTSTP
        had_it = self._was_sent_to_all(number) or info.si_code == FROM_KERNEL
        if not had_it and self._main is not None:
            with contextlib.suppress(OSError):  # another user's by now (sudo): its sender may not signal it either
                self._main.send_signal(number)

    def _was_sent_to_all(self, number: int) -> bool:
        """Return whether the witness has had a signal as well; it is asked, so that no time need be guessed."""
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
        if had_it:
            self._witnessed.remove(number)
        if number not in signal.sigpending():  # two that came at once are one for us, and may be two for the witness
            self._witnessed = self._witnessed.replace(bytes([number]), b"")
        return had_it

    def _stop_with_main(self) -> None:
        """Stop where the main child was stopped by Ctrl-Z, for the shell sees only us; return when we go on.

        A child that handles SIGTSTP may not stop, or later.
        """
        which = (os.P_ALL, 0) if self._main is None or self._main.poll() is not None else (os.P_PID, self._main.pid)
        with contextlib.suppress(ChildProcessError):
            stopped = os.waitid(*which, os.WSTOPPED | os.WNOHANG)
            if stopped is not None and stopped.si_status == signal.SIGTSTP:
                self._may_stop = False
                os.kill(os.getpid(), signal.SIGTSTP)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])  # here we stand
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])


def _start_witness() -> tuple[int, int]:
    """Return a process that hears what is sent to our group, and the pipe of its answers.

    It writes the number of each signal, and a zero when it was asked and has written all that came before.
    """
    parent, (reading, writing) = os.getpid(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    die_with_parent(parent)
    name_process("preflight-hears")
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
