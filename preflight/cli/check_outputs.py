"""Write the outputs of `preflight check`: the report, its other formats, the settings file, and the screen text."""
# An output file of an earlier run is replaced or renamed, so that a reader does not take the file for an output of this
# run.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import typer

from preflight.check import app as application
from preflight.check.request import Request
from preflight.cli.extras import must_have_html
from preflight.cli.output import (
    PROGRAM,
    STDOUT,
    check_outputs,
    detail_of,
    print_result,
    refuse_stdout,
    say_where,
    style,
)
from preflight.errors import Interrupted, OutputError, UsageError
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.show.check_page import NO_JOB, JobToStart, Written, check_page
from preflight.show.env_file import render_env
from preflight.show.formats import ALSO, Format
from preflight.show.json_document import render_json
from preflight.show.render import render_as
from preflight.show.text import Detail
from preflight.system.files import is_replaceable, same_file, set_aside, write_atomically
from preflight.system.signals import ignore_signals, raise_dropped
from preflight.system.streams import to_stderr


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files for the results of a check."""

    json_path: str | None
    env_path: str
    report_path: str
    also: tuple[tuple[Format, str], ...] = ()
    detail: Detail = Detail.SCREEN
    job: JobToStart = NO_JOB

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the option and the path of each output file."""
        yield "--env-out", self.env_path
        yield "--report", self.report_path
        if self.json_path not in (None, STDOUT):
            yield "--json", str(self.json_path)
        yield from ((f"--also {form.value}=", path) for form, path in self.also)


def open_outputs(request: Request) -> Outputs:
    """Return the outputs that `request` names.

    Raise UsageError if a file can't be written, or if two outputs name the same file.
    """
    outputs = Outputs(
        request.json, request.env_out, request.report, tuple(map(_parse_also, request.also or ())),
        detail_of(request.verbose, request.quiet),
        JobToStart(request.starts, request.starts_if_unknown, request.for_),
    )  # fmt: skip
    files = list(outputs.files())
    for option, path in files:
        refuse_stdout(option, path)
    check_outputs(*(path for _, path in files))
    for place, (option, path) in enumerate(files):
        for other, taken in files[:place]:
            if same_file(path, taken):
                raise UsageError(f"{option} {path}: another result goes to {taken} already ({other.rstrip('=')})")
    return outputs


def _parse_also(option: str) -> tuple[Format, str]:
    name, equals, path = option.partition("=")
    form = next((form for form in Format if form.value == name), None)
    if form is not None and form.own_option:
        raise UsageError(f"--also {option}: {name} has an option of its own, {form.own_option}")
    if form is None or not equals:
        known = ", ".join(form.value for form in ALSO)
        raise UsageError(f"--also {option}: give FORMAT=FILE, with one of {known}")
    if path in ("", STDOUT):
        raise UsageError(f"--also {option}: give a file; stdout is for the page")
    if form is Format.HTML:
        must_have_html(f"--also {option}")
    return form, path


def save_interim(report: Report, outputs: Outputs) -> None:
    """Write an interim report to the output files that can be replaced later.

    If this process is killed, the interim report remains in the files.
    """
    # A FIFO does not get the report, because the reader of a FIFO gets only one document.
    _save(report, outputs, is_replaceable)


def save(report: Report, outputs: Outputs) -> None:
    """Write the report in all its formats.

    If a format can't be written, the other formats are still written. OutputError for the first failed format is then
    raised.
    """
    # A file that can't be written is renamed, because an earlier run wrote it.
    _save(report, outputs, lambda _: True)


def _save(report: Report, outputs: Outputs, is_wanted: Callable[[str], bool]) -> None:
    failures = []
    writes: list[tuple[str, Callable[[], str]]] = [(outputs.report_path, lambda: render_json(report))]
    writes += [(path, partial(_render_also, form, report)) for form, path in outputs.also]
    if outputs.json_path not in (None, STDOUT):
        writes.append((str(outputs.json_path), lambda: render_json(report)))
    for path, render in writes:
        if not is_wanted(path):
            continue
        try:
            write_atomically(path, render())
        except OutputError as error:
            failures.append(error)
            with contextlib.suppress(OutputError):
                retire(path)
    if failures:
        raise failures[0]


def _render_also(form: Format, report: Report) -> str:
    try:
        return render_as(form, report)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise OutputError(
            f"the {form.value} form could not be made because of a defect in preflight: {reason}"
        ) from error


def write_and_print(checked: application.Checked, outputs: Outputs) -> None:
    """Write the files in `outputs`, print the result, and exit.

    The exit code is the report's exit code, or 3 if a write fails.
    """
    # The files are written before the result is printed, so that a closed pipe can't lose the files.
    report, failure = checked.report, None
    try:
        save(report, outputs)
        if report.exit_code == 0:
            write_atomically(outputs.env_path, render_env(report))
        elif report.exit_code in (1, 3):
            retire(outputs.env_path, is_quiet=outputs.detail is Detail.VERDICT)
    except (OutputError, Interrupted) as error:
        failure = error
        report = _amend(report, error, outputs)
    json_path = STDOUT if outputs.json_path == STDOUT else None
    try:
        print_result(json_path, lambda: render_json(report), lambda: _page(report, outputs))
        say_where(checked.run_dir)
        raise_dropped()
        ignore_signals()  # the answer is out
    except (OutputError, Interrupted) as error:
        if checked.interrupted is None:  # a terminal that was closed has sent SIGHUP, and that is the reason
            failure = failure or error
            report = _amend(report, error, outputs)
            with contextlib.suppress(OutputError):
                set_aside(outputs.env_path)  # it is this run's own, whose exit code is 3 now
    if failure is not None:
        raise failure
    if checked.interrupted is not None:
        raise checked.interrupted
    raise typer.Exit(report.exit_code)


def _page(report: Report, outputs: Outputs) -> str:
    env = outputs.env_path if report.exit_code == 0 else ""
    others = (*(path for _, path in outputs.also), *([outputs.json_path] if outputs.json_path else []))
    page = check_page(report, Written(env, outputs.report_path, others), outputs.job)
    return page.shown(outputs.detail, style())


def _amend(report: Report, error: OutputError | Interrupted, outputs: Outputs) -> Report:
    """Add a failed write or a signal to the report as a problem, save the report, and return the report.

    The report is saved only where a write is possible. A failed write makes the verdict unknown, because a verdict that
    was not stored must have no effect.
    """
    if isinstance(error, OutputError):
        node = NodeVerdict.UNKNOWN if isinstance(report.node_verdict, NodeVerdict) else report.node_verdict
        word = "node unknown" if isinstance(node, NodeVerdict) else "unknown"
        headline = f"{word}: {error}; else: {report.headline}"
        report = replace(report, verdict=Verdict.UNKNOWN, node_verdict=node, headline=headline)
    report = replace(report, exit_code=error.exit_code, problems=(*report.problems, str(error)))
    with contextlib.suppress(OutputError):
        save_interim(report, outputs)
    return report


def give_up(report: Report, outputs: Outputs) -> None:
    """Write the report of an inconclusive run, and rename the settings file of an earlier run."""
    with contextlib.suppress(Exception):  # the first failure is the reason, and it is about to be told
        save(report, outputs)
    with contextlib.suppress(OutputError):
        retire(outputs.env_path)


def retire(path: str, *, is_quiet: bool = False) -> None:
    """Rename the file `path` of an earlier run, and print its new name unless `is_quiet` is true."""
    stale = set_aside(path)
    if stale and not is_quiet:
        to_stderr(f"{PROGRAM}: {path} is from an earlier run and was renamed to {stale}\n")
