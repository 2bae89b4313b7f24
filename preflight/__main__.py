"""The entry point of the `preflight` command and of `python -m preflight`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes classes: a Ctrl-C meanwhile would be an error of theirs
import gc
import os
import sys

TYPE_CHECKING = False  # as type checkers know it; nothing large is loaded before Ctrl-C is arranged
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

STOPPING = {_signal.SIGHUP: b"SIGHUP", _signal.SIGINT: b"SIGINT", _signal.SIGTERM: b"SIGTERM"}
ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000  # loading makes many objects and no garbage: looking for it takes 80 ms
gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)  # before anything large is loaded


def main() -> NoReturn:
    """Run the command line.

    The exit code is 3 if preflight's modules can't be loaded, because this failure says nothing about the node.
    """
    for number in STOPPING:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _end_at_once)
    try:
        from preflight.cli import main as run  # noqa: PLC0415  a dependency may be missing
    except BaseException as error:  # noqa: BLE001  Python's own exit code for it, 1, would reject a good node
        os._exit(_cannot_load(error))
    run()


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """End the process at once with exit code 128 + signal.

    The run has not begun yet. An exception would not be enough, because the modules that are being loaded may replace
    or drop the exception.
    """
    try:
        os.write(2, b"preflight: stopped by %s\n" % STOPPING[number])
    finally:
        os._exit(128 + number)


def _cannot_load(error: BaseException) -> int:
    why = " ".join(f"{type(error).__name__}: {error}".split())
    try:
        said = f"preflight: this installation can't be loaded: {why}{_limit_behind(error)}\n"
        os.write(2, said.encode(errors="backslashreplace"))
        from preflight.system.last_resort import retire_outputs  # noqa: PLC0415

        retire_outputs(sys.argv[1:])
    except Exception:  # noqa: BLE001  without memory or descriptors nothing more can be done, or told
        return 3
    return 3


def _limit_behind(error: BaseException) -> str:
    try:
        from preflight.system.last_resort import limit_behind  # noqa: PLC0415  this too takes memory
    except Exception:  # noqa: BLE001
        return ""
    return limit_behind(error)


def _leave_out_where_the_user_stands() -> None:
    """Remove the working directory from sys.path.

    `python -m preflight` then imports no file of the user, such as a typer.py in the working directory.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        if sys.path and sys.path[0] == os.getcwd() != home:
            del sys.path[0]
    except OSError:  # it was deleted
        return


if __name__ == "__main__":
    _leave_out_where_the_user_stands()
    main()
