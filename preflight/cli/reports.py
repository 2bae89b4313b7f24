"""`preflight render`: a saved report in another form; `checks` and `schema`: what a report can say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from json import dumps
from typing import Annotated

import typer

from preflight.cli.options import JsonPath, Output, choice, no_such
from preflight.cli.output import STDOUT, check_outputs, print_result, style, write_or_print
from preflight.judge.check import all_checks
from preflight.model.finding import CheckDescription, CheckList
from preflight.model.input_limits import REPORT
from preflight.model.saved_report import load_report
from preflight.model.schema import report_schema, stuck_schema
from preflight.render.checks_and_findings import render_checks
from preflight.render.formats import Format, render_as
from preflight.render.json_document import render_json
from preflight.render.text import Style
from preflight.system.inputs import STDIN, read_input
from preflight.system.streams import to_stdout


class DocumentKind(str, Enum):
    """Which document a schema describes."""

    REPORT = "report"
    STUCK = "stuck"


Document = Annotated[DocumentKind, typer.Argument(help="The document: what check writes, or stuck --json.")]
ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="What `preflight check` wrote; - is stdin.")]
CheckNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Checks, as findings name them.")]
FormatOption = Annotated[Format, choice("The form that is wanted.", "--format", "-f")]


def render(report: ReportFile, form: FormatOption = Format.CONSOLE, output: Output = STDOUT) -> None:
    """Render a saved report, of this release or an older one, in another form. Looks at nothing else.

    Exit codes: 0 rendered, 2 no report or none that has this form, 3 it could not be written.
    """
    check_outputs(output)
    saved = load_report(read_input(report, REPORT), "stdin" if report == STDIN else report)
    write_or_print(output, render_as(form, saved, style() if output == STDOUT else Style(width=100)))


def checks(names: CheckNames = None, json: JsonPath = None) -> None:
    """List the checks, or explain those that are named: what each promises, whom it blames, what it can't see.

    Exit codes: 0 listed, 2 there is no such check.
    """
    check_outputs(json)
    known = {check.name: check for check in all_checks()}
    asked = [_named(name, known) for name in names] if names else list(known.values())
    print_result(
        json,
        lambda: render_json(CheckList(tuple(map(_description, asked)))),
        lambda: render_checks(asked, style(), is_list=not names),
    )


def _description(check: CheckDescription) -> CheckDescription:
    """Return what a check says of itself, without its code."""
    return CheckDescription(check.name, check.promise, check.blame, check.reads, check.blind_to, check.unseen)


def _named(name: str, known: Mapping[str, CheckDescription]) -> CheckDescription:
    """Return a check by its name, in any case; UsageError names those that are spelled alike."""
    if name.lower() in known:
        return known[name.lower()]
    raise no_such(name, "check", name, known)


def schema(document: Document = DocumentKind.REPORT) -> None:
    """Print the JSON Schema (2020-12) of the report that `preflight check` writes, or of another document."""
    made = report_schema() if document is DocumentKind.REPORT else stuck_schema()
    to_stdout(dumps(made, indent=2) + "\n")
