"""`preflight diff`: show what changed on a node since the node worked."""

from __future__ import annotations

import typer

from preflight.check.survey import Survey, survey_capture, survey_machine
from preflight.cli.commands import DiffOptions
from preflight.cli.extras import must_have_linux
from preflight.cli.output import check_outputs, detail_of, print_result, style
from preflight.fleet.changes import Snapshot, compare
from preflight.model.input_limits import REPORT, parse_json
from preflight.model.saved_report import VERSION, as_report
from preflight.show.changes import changes_page
from preflight.show.json_document import render_json
from preflight.system.inputs import STDIN, read_input
from preflight.system.kernel_queries import live_machine


def diff(asked: DiffOptions) -> None:
    """Run `preflight diff`: compare two states of a node, print the changes, and exit with the result's exit code.

    The first state is a report. The second state is another report or the current state of this machine.
    """
    check_outputs(asked.json)
    before = _snapshot(asked.good)
    if asked.now is None:
        must_have_linux("preflight diff with one report")
        now = _of_facts(survey_machine(live_machine()))
    else:
        now = _snapshot(asked.now)
    difference = compare(before, now)
    shown = changes_page(difference).shown(detail_of(asked.verbose, asked.quiet), style())
    print_result(asked.json, lambda: render_json(difference), lambda: shown)
    raise typer.Exit(difference.exit_code)


def _snapshot(path: str) -> Snapshot:
    """Return the facts of the nodes in a report or a capture. Raise MalformedInput for any other file."""
    name, text = "stdin" if path == STDIN else path, read_input(path, REPORT)
    document = parse_json(text, REPORT, name)
    if isinstance(document, dict) and "preflight_capture" in document and VERSION not in document:
        return _of_facts(survey_capture(text))
    return Snapshot.of(as_report(document, name))


def _of_facts(survey: Survey) -> Snapshot:
    return Snapshot((survey.node,), survey.checked.findings)
