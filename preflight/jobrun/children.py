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
from typing import NoReturn

from preflight.system.processes import die_with_parent, name_process

PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
)  # fmt: skip
WITNESS_S = 0.1  # so much later may the witness have what was sent to all
FROM_KERNEL = 0x80  # si_code, sigaction(2): the terminal's driver


class Children:
    """Starts children, waits for them, and passes signals on to one of them, the main one."""

    def __init__(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._heard = {*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH}  # Linux queues what is blocked, ignored or not
        signal.pthread_sigmask(signal.SIG_BLOCK, self._heard)
        self._witness, self._witnessed = _start_witness(set(PASSED_ON))
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._main: subprocess.Popen[bytes] | None = None
        self.last_signal = 0  # the last that was sent to us, or to all
        self.on_resize: Callable[[], None] = lambda: None

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None, stdin: int | None, stdout: int, stderr: int,
        is_main: bool = False,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """Start a child with the signals and descriptors that we were started with; OSError where it can't start."""
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        child = subprocess.Popen(
            argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False,
            preexec_fn=prepare,  # noqa: PLW1509  whatever threads there are write output and hold no lock
        )  # fmt: skip
        if is_main:
            self._main = child
        return child

    def wait(self, child: subprocess.Popen[bytes], until: float = float("inf")) -> int | None:
        """Return how a child ended, minus a signal; None where it still runs at a monotonic time."""
        while child.poll() is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            info = signal.sigtimedwait(self._heard, min(left_s, 3600.0))
            if info is not None:
                self._take(info)
        return child.returncode

    def end(self, code: int) -> NoReturn:
        """Exit as a child did: with its code, or by its signal."""
        os.kill(self._witness, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._witness, 0)  # nothing of us outlives us
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's core is the one that tells something
            with contextlib.suppress(OSError):  # SIGKILL has no other
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)

    def _take(self, info: signal.struct_siginfo) -> None:
        if info.si_signo == signal.SIGWINCH:
            self.on_resize()
        elif info.si_signo != signal.SIGCHLD:
            self.last_signal = info.si_signo
            had_it = info.si_code == FROM_KERNEL or self._was_sent_to_all(info.si_signo)
            if not had_it and self._main is not None and self._main.poll() is None:
                self._main.send_signal(info.si_signo)

    def _was_sent_to_all(self, number: int) -> bool:
        until = time.monotonic() + WITNESS_S
        while select.select([self._witnessed], [], [], max(0.0, until - time.monotonic()))[0]:
            if number in os.read(self._witnessed, 1):
                return True
        return False


def _start_witness(numbers: set[signal.Signals]) -> tuple[int, int]:
    """Return a process that hears what is sent to our group, and the pipe into which it writes their numbers."""
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
        os.write(writing, bytes([signal.sigwait(numbers)]))
