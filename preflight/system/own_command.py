"""Run `preflight` in a separate process.

The caller may have threads, a CUDA context or signal handlers, which would disturb a run in the same process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from preflight.errors import LaunchError, UsageError

FIRST_SIGNAL_CODE = 128
ENDS_S = 15.0  # for what was asked to end, and cleans up
# This preflight, in any working directory: a folder `preflight` in the working directory must not be imported.
START = (
    "import sys; '' in sys.path and sys.path.remove(''); root, module = sys.argv.pop(1), sys.argv.pop(1); "
    "root in sys.path or sys.path.append(root); __import__(module, fromlist=['main']).main()"
)


def own_argv(*arguments: str, module: str = "preflight.__main__", options: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs `main` of `module` with this Python interpreter.

    `arguments` go to `main`, and `options` go to the interpreter.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable, *options, "-c", START, root, module, *arguments]


def run_own(arguments: Sequence[str], folder: str | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run `preflight` in a separate process, and return its exit status and output.

    Raise UsageError for wrong arguments, and LaunchError if the process can't start or a signal ended the process.
    """
    # If `folder` is given, the process uses `folder` as TMPDIR.
    argv = own_argv(*arguments)
    environ = None if folder is None else os.environ | {"TMPDIR": folder}
    try:
        own = subprocess.Popen(
            argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise LaunchError(f"{sys.executable or 'Python'} could not be started: {error.strerror}") from error
    with own:
        try:
            ran = subprocess.CompletedProcess(argv, 0, *own.communicate())
        except BaseException:  # Ctrl-C: it has to clean up
            own.terminate()
            try:
                own.communicate(timeout=ENDS_S)
            finally:
                own.kill()
            raise
    ran.returncode = own.returncode
    if ran.returncode == UsageError.exit_code:
        raise UsageError(last_line(ran))
    if ran.returncode > FIRST_SIGNAL_CODE or ran.returncode < 0:
        number = abs(ran.returncode) % FIRST_SIGNAL_CODE
        raise LaunchError(f"preflight was stopped by signal {number}")
    return ran


def last_line(ran: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line that the finished process `ran` wrote to stderr."""
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("preflight: ") if lines else "it said nothing"
