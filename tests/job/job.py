"""A job that writes down what it is given: signals, descriptors, terminal; `python job.py WAY FILE`.

WAY is `describe`, `SIGNAME` to count a few signals until that one comes, or `all` to count all that can be caught.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

PATIENCE_S = 20.0


def note(text: str) -> None:
    """Add a line to the file."""
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{text}\n")


NOT_CAUGHT = {  # and those that mean a broken process, a terminal in use, an ended child
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
}  # fmt: skip
ALL = signal.valid_signals() - NOT_CAUGHT


def name_of(number: int) -> str:
    """Return SIGTERM or 35: not every real-time signal has a name."""
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)


def count_all_signals() -> None:
    """Note every signal as often as the kernel has it, and end with code 7 a moment after SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)  # a handler in Python is called once for several
    note("ready")
    until, code = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < until:
        info = signal.sigtimedwait(ALL, 0.1)
        if info is not None:
            note(name_of(info.si_signo))
            if info.si_signo == signal.SIGTERM:
                until, code = time.monotonic() + 0.4, 7
    sys.exit(code)


def count_signals(last: str) -> None:
    """Note every signal, and end with code 7 a moment after the last that is waited for."""
    ends: list[str] = []

    def take(number: int, _frame: FrameType | None) -> None:
        note(signal.Signals(number).name)
        ends.append(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, take)
    note("ready")
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        time.sleep(0.02)
        if ends and ends[-1] == last:
            time.sleep(0.4)  # what comes twice comes within that
            sys.exit(7)


def describe() -> None:
    """Note what a process has from whoever started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    for line in status:
        if line.startswith(("SigBlk", "SigIgn", "Umask")):
            note(line)
    note(f"group {os.getpgrp() == os.getpgid(os.getppid())} session {os.getsid(0)}")
    note(f"terminals {[os.isatty(each) for each in range(3)]} cwd {Path.cwd()} arguments {sys.argv[3:]}")
    if os.isatty(1):
        note(f"size {os.get_terminal_size(1)} foreground {os.tcgetpgrp(0) == os.getpgrp()}")
        sys.stdout.write("one line\n")


if __name__ == "__main__":
    if sys.argv[1] == "describe":
        describe()
    elif sys.argv[1] == "all":
        count_all_signals()
    else:
        count_signals(sys.argv[1])
