"""`preflight render`: a saved report in another form; `checks` and `schema`: what a report can say."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from preflight.cli.options import Output
from preflight.cli.output import STDOUT, check_outputs, style, write_or_print
from preflight.judge.check import all_checks
from preflight.model.input_limits import REPORT
from preflight.model.saved_report import load_report
from preflight.model.schema import report_schema
from preflight.render.checks_and_findings import render_checks
from preflight.render.formats import Format, render_as
from preflight.render.text import Style
from preflight.system.inputs import STDIN, read_input
from preflight.system.streams import to_stdout

ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="What `preflight check` wrote; - is stdin.")]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="The form that is wanted.")]


def render(report: ReportFile, form: FormatOption = Format.CONSOLE, output: Output = STDOUT) -> None:
    """Render a saved report, of this release or an older one, in another form. Looks at nothing else.

    Exit codes: 0 rendered, 2 no report or none that has this form, 3 it could not be written.
    """
    check_outputs(output)
    saved = load_report(read_input(report, REPORT), "stdin" if report == STDIN else report)
    write_or_print(output, render_as(form, saved, style() if output == STDOUT else Style(width=100)))


def checks() -> None:
    """List every check: what it promises, whom it blames, and what it can't see."""
    to_stdout(render_checks(all_checks(), style()))


def schema() -> None:
    """Print the JSON Schema (2020-12) of the report that `preflight check` writes."""
    to_stdout(json.dumps(report_schema(), indent=2) + "\n")
