"""`preflight` as a process of its own: whoever starts it may have threads, a CUDA context or signal handlers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from preflight.errors import LaunchError, UsageError

FIRST_SIGNAL_CODE = 128
# This very preflight, wherever the user stands: a folder `preflight` in the working directory must not be imported.
START = (
    "import sys; '' in sys.path and sys.path.remove(''); root, module = sys.argv.pop(1), sys.argv.pop(1); "
    "root in sys.path or sys.path.append(root); __import__(module, fromlist=['main']).main()"
)


def own_argv(*arguments: str, module: str = "preflight.__main__", options: Sequence[str] = ()) -> list[str]:
    """Return the command line of another process of this installation, with this Python: a module's `main`.

    `options` are the interpreter's.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable, *options, "-c", START, root, module, *arguments]


def run_own(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run `preflight` with these arguments and return how it ended, with what it printed.

    UsageError: it called the arguments wrong. LaunchError: it can't start, or a signal ended it.
    """
    try:
        ran = subprocess.run(own_argv(*arguments), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise LaunchError(f"{sys.executable or 'Python'} could not be started: {error.strerror}") from error
    if ran.returncode == UsageError.exit_code:
        raise UsageError(last_line(ran))
    if ran.returncode > FIRST_SIGNAL_CODE or ran.returncode < 0:
        number = abs(ran.returncode) % FIRST_SIGNAL_CODE
        raise LaunchError(f"preflight was stopped by signal {number}")
    return ran


def last_line(ran: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last that it said on stderr."""
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("preflight: ") if lines else "it said nothing"
