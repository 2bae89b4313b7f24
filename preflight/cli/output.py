"""Print the result of a command on stdout, or write the result into a file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

from preflight.errors import UsageError
from preflight.show.text import Detail, Style
from preflight.system.files import check_writable, write_atomically
from preflight.system.streams import knows_unicode, to_stderr, to_stdout

PROGRAM = "preflight"
STDOUT = "-"


def detail_of(verbose: bool, quiet: bool) -> Detail:
    """Return how much of the result to print: one line (-q), one screen, or everything (-v or PREFLIGHT_VERBOSE).

    If both options are given, -q counts.
    """
    if quiet:
        return Detail.VERDICT
    return Detail.ALL if verbose else Detail.SCREEN


def write_or_print(path: str, text: str) -> None:
    """Write `text` to the file `path`, or to stdout if `path` is `-`."""
    if path == STDOUT:
        to_stdout(text)
    else:
        write_atomically(path, text)


def print_result(json_path: str | None, as_json: Callable[[], str], as_page: Callable[[], str]) -> None:
    """Print the result of a command as text, or as JSON if `json_path` is `-`.

    If `json_path` is a file, the JSON is also written to this file.
    """
    if json_path == STDOUT:
        to_stdout(as_json())
        return
    if json_path is not None:
        write_atomically(json_path, as_json())
    to_stdout(as_page())


def style() -> Style:
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((80, 24)).columns if is_terminal or "COLUMNS" in os.environ else 80
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(width=max(40, min(width, 120)), colour=colour, unicode=knows_unicode())


def say_where(run_dir: str) -> None:
    if run_dir:
        to_stderr(f"{PROGRAM}: the logs of this run are kept in {run_dir}\n")


def refuse_stdout(option: str, path: str | None) -> None:
    """Raise UsageError if `path` is `-` or empty, because the output of `option` can't go to stdout."""
    if path in ("", STDOUT):
        raise UsageError(f"{option} {path}: give a path; stdout is for the page")


def check_outputs(*paths: str | None) -> None:
    for path in paths:
        if path not in (None, STDOUT):
            check_writable(str(path))
