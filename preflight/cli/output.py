"""What a command leaves behind: files first, then the page or the document, and an exit code."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from preflight.errors import OutputError
from preflight.render.text import Style
from preflight.system.files import check_writable, set_aside, write_atomically
from preflight.system.streams import knows_unicode, to_stderr, to_stdout

if TYPE_CHECKING:
    from preflight import app as application
    from preflight.model.report import Report
    from preflight.render.formats import Format

PROGRAM = "preflight"
STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results of a check go."""

    json_path: str | None
    env_path: str
    report_path: str
    also: tuple[tuple[Format, str], ...] = ()


def save(report: Report, outputs: Outputs) -> None:
    """Write the report and its other forms, every one that can be; OutputError names the first that can't."""
    from preflight.render.json_document import render_json  # noqa: PLC0415

    failures = []
    writes: list[tuple[str, Callable[[], str]]] = [(outputs.report_path, lambda: render_json(report))]
    writes += [(path, partial(_render_also, form, report)) for form, path in outputs.also]
    for path, render in writes:
        try:
            write_atomically(path, render())
        except OutputError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _render_also(form: Format, report: Report) -> str:
    from preflight.render.formats import render_as  # noqa: PLC0415

    try:
        return render_as(form, report)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise OutputError(f"the {form.value} form could not be made, a defect in preflight: {told}") from error


def write_and_print(checked: application.Checked, outputs: Outputs) -> None:
    """Write the files first, so that a closed pipe can't lose them, then print; a failed write is exit code 3."""
    from preflight.render.console import render_check  # noqa: PLC0415
    from preflight.render.env_file import render_env  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    report, env_path = checked.report, outputs.env_path
    failure: OutputError | None = None
    try:
        save(report, outputs)
        if report.exit_code == 0:
            write_atomically(env_path, render_env(report))
        elif report.exit_code in (1, 3):
            retire_env(env_path)
    except OutputError as error:
        failure = error
        report = replace(report, exit_code=error.exit_code, problems=(*report.problems, str(error)))
        with contextlib.suppress(OutputError):
            save(report, outputs)
    print_result(outputs.json_path, lambda: render_json(report), lambda: render_check(report, style(), env_path))
    say_where(checked.run_dir)
    if failure is not None:
        raise failure
    if checked.interrupted is not None:
        raise checked.interrupted
    raise typer.Exit(report.exit_code)


def retire_env(env_path: str) -> None:
    stale = set_aside(env_path)
    if stale:
        to_stderr(f"{PROGRAM}: {env_path} is from an earlier run and was renamed to {stale}\n")


def print_result(json_path: str | None, as_json: Callable[[], str], as_page: Callable[[], str]) -> None:
    """Print the page; with --json - print the document instead, with --json PATH write it as well."""
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


def check_outputs(*paths: str | None) -> None:
    for path in paths:
        if path not in (None, STDOUT):
            check_writable(str(path))
