"""The program itself: the commands register with `app`, `main` turns their outcome into an exit code.

Only the files of this package print and exit.
"""

from __future__ import annotations

import os
import time
from typing import Annotated, NoReturn

import typer

from preflight import __version__
from preflight.cli.output import PROGRAM
from preflight.errors import PreflightError
from preflight.render.text import clean
from preflight.system.signals import raise_on_signals
from preflight.system.streams import open_missing_streams, to_stderr, to_stdout

STARTED_AT = time.monotonic()

app = typer.Typer(
    name=PROGRAM,
    help="Find out why a multi-GPU job will fail before it does, and which NCCL settings it needs, by trying them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _global(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        to_stdout(f"{PROGRAM} {__version__}\n")
        raise typer.Exit(0)


def main() -> NoReturn:
    """Run the command line and exit: never with a traceback, and never with 1 for what is not a verdict."""
    open_missing_streams()
    try:
        raise_on_signals()
        code = app(standalone_mode=False)
        code = code if isinstance(code, int) else 0
    except typer.TyperException as error:
        code = _fail(2, f"{_first_line(error)} (see {PROGRAM} --help)")
    except PreflightError as error:
        code = _fail(error.exit_code, str(error))
    except SystemExit:
        code = 0  # typer's answer to a reader of --help that went away: its 1 would be a verdict
    except Exception as error:  # noqa: BLE001  Python's own exit code for it, 1, would reject a good node
        code = _fail(3, f"a defect in preflight: {type(error).__name__}: {error}")
    # Nothing is left to clean up, and a closed stdout must not have the last word through the interpreter's exit.
    os._exit(code)


def _fail(code: int, message: str) -> int:
    to_stderr(f"{PROGRAM}: {clean(' '.join(message.split()))}\n")
    return code


def _first_line(error: Exception) -> str:
    text = getattr(error, "format_message", lambda: str(error))()
    return str(text).strip().splitlines()[0] if str(text).strip() else type(error).__name__
