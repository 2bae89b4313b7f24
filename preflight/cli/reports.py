"""`preflight render`, `preflight checks` and `preflight schema`: convert a saved report, and describe its content."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps

from preflight.cli import commands
from preflight.cli.extras import must_have_html
from preflight.cli.output import STDOUT, check_outputs, print_result, style, write_or_print
from preflight.judge.check import all_checks
from preflight.model.finding import CheckDescription, CheckList
from preflight.model.input_limits import REPORT
from preflight.model.parsing import no_such
from preflight.model.saved_report import load_report
from preflight.model.schema import report_schema, stuck_schema
from preflight.show.checks_and_findings import list_checks, render_checks
from preflight.show.formats import Format, of_suffix
from preflight.show.json_document import render_json
from preflight.show.render import render_as
from preflight.show.text import Style
from preflight.system.inputs import STDIN, read_input
from preflight.system.streams import to_stdout


def render(asked: commands.RenderOptions) -> None:
    """Run `preflight render`: write or print a saved report in another format."""
    check_outputs(asked.output)
    wanted = asked.form or of_suffix(asked.output)
    if wanted is Format.HTML:
        must_have_html("--format html")
    saved = load_report(read_input(asked.report, REPORT), "stdin" if asked.report == STDIN else asked.report)
    form = render_as(wanted, saved, style() if asked.output == STDOUT else Style(width=100))
    write_or_print(asked.output, form)


def checks(asked: commands.ChecksOptions) -> None:
    """Run `preflight checks`: list all checks, or explain the named checks."""
    check_outputs(asked.json)
    known = {check.name: check for check in all_checks()}
    listed = [_named(name, known) for name in asked.names] if asked.names else list(known.values())
    print_result(
        asked.json,
        lambda: render_json(CheckList(tuple(map(_description, listed)))),
        lambda: (
            render_checks(listed, style(), is_list=not asked.names)
            if asked.names or asked.verbose
            else list_checks(listed, style())
        ),
    )


def _description(check: CheckDescription) -> CheckDescription:
    """Return the fields of a check, except the Python function that runs the check."""
    return CheckDescription(check.name, check.promise, check.blame, check.reads, check.blind_to, check.unseen)


def _named(name: str, known: Mapping[str, CheckDescription]) -> CheckDescription:
    """Return the check with the name `name`, ignoring case.

    Raise UsageError if no check has this name. The error message suggests similar names.
    """
    if name.lower() in known:
        return known[name.lower()]
    raise no_such(name, "check", name, known)


def schema(asked: commands.SchemaOptions) -> None:
    """Run `preflight schema`: print the JSON Schema of the report, or of the output of `stuck`."""
    made = report_schema() if asked.document is commands.DocumentKind.REPORT else stuck_schema()
    to_stdout(dumps(made, indent=2) + "\n")
