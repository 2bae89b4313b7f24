"""What `preflight check` leaves behind: the report, its other forms (`--also`) and the settings, then the page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import typer

from preflight import app as application
from preflight.cli.output import PROGRAM, Detail, print_result, say_where, style
from preflight.errors import OutputError, UsageError
from preflight.model.report import Report
from preflight.render.check_page import render_check
from preflight.render.env_file import render_env
from preflight.render.first_screen import Written, render_first_screen, render_verdict
from preflight.render.formats import Format, render_as
from preflight.render.json_document import render_json
from preflight.system.files import set_aside, write_atomically
from preflight.system.streams import to_stderr

OWN_OPTION = {"env": "--env-out", "json": "--report"}


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results of a check go."""

    json_path: str | None
    env_path: str
    report_path: str
    also: tuple[tuple[Format, str], ...] = ()
    detail: Detail = Detail.SCREEN


def parse_also(options: Sequence[str], taken: Sequence[str]) -> tuple[tuple[Format, str], ...]:
    """Return the forms and their files; UsageError where one is unknown, or where two results go to one file."""
    taken_paths = {os.path.realpath(path) for path in taken}
    forms = []
    for option in options:
        name, equals, path = option.partition("=")
        if name in OWN_OPTION:
            raise UsageError(f"--also {option}: {name} has an option of its own, {OWN_OPTION[name]}")
        if not equals or name not in [form.value for form in Format]:
            known = ", ".join(form.value for form in Format if form.value not in OWN_OPTION)
            raise UsageError(f"--also {option}: give FORMAT=FILE, with one of {known}")
        if path in ("", "-"):
            raise UsageError(f"--also {option}: give a file; stdout is for the page")
        if os.path.realpath(path) in taken_paths:
            raise UsageError(f"--also {option}: another result goes to {path} already")
        taken_paths.add(os.path.realpath(path))
        forms.append((Format(name), path))
    return tuple(forms)


def save(report: Report, outputs: Outputs) -> None:
    """Write the report and its other forms, every one that can be; OutputError names the first that can't."""
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
    try:
        return render_as(form, report)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise OutputError(f"the {form.value} form could not be made, a defect in preflight: {reason}") from error


def write_and_print(checked: application.Checked, outputs: Outputs) -> None:
    """Write the files first, so that a closed pipe can't lose them, then print; a failed write is exit code 3."""
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
    print_result(outputs.json_path, lambda: render_json(report), lambda: _page(report, outputs))
    say_where(checked.run_dir)
    if failure is not None:
        raise failure
    if checked.interrupted is not None:
        raise checked.interrupted
    raise typer.Exit(report.exit_code)


def _page(report: Report, outputs: Outputs) -> str:
    match outputs.detail:
        case Detail.VERDICT:
            return render_verdict(report, style())
        case Detail.SCREEN:
            env = outputs.env_path if report.exit_code == 0 else ""
            others = (*(path for _, path in outputs.also), *([outputs.json_path] if outputs.json_path else []))
            return render_first_screen(report, style(), Written(env, outputs.report_path, others))
        case Detail.ALL:
            return render_check(report, style(), outputs.env_path)


def retire_env(env_path: str) -> None:
    """Rename the settings of an earlier run, so that nobody sources them."""
    stale = set_aside(env_path)
    if stale:
        to_stderr(f"{PROGRAM}: {env_path} is from an earlier run and was renamed to {stale}\n")
