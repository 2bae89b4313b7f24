"""`preflight fleet` and `preflight baseline`: many reports side by side, and what known-good nodes reach."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from preflight.cli.options import JsonPath, valued
from preflight.cli.output import check_outputs, print_result, style
from preflight.errors import UsageError
from preflight.fleet.known_good import learn_from
from preflight.fleet.overview import overview
from preflight.model.fleet import Fleet
from preflight.render.baseline import render_baseline
from preflight.render.fleet import (
    failing_hosts,
    odd_hosts,
    odd_reasons,
    render_fleet,
    render_host_list,
    state_reasons,
)
from preflight.render.fleet_html import render_fleet_html
from preflight.render.json_document import render_json
from preflight.system.files import write_atomically
from preflight.system.report_files import read_reports, report_paths

PASSING, FAILING, ODD, UNKNOWN = "passing_nodes.txt", "failing_nodes.txt", "odd_nodes.txt", "unknown_nodes.txt"
WOULD_DRAIN, PAGE = "would_drain_nodes.txt", "fleet.html"
Reports = Annotated[list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports, or directories of *.json.")]
OutDir = Annotated[str | None, valued("DIR", f"Write {PAGE} and the lists of hosts there.", "--out")]
GoodReports = Annotated[
    list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports of known-good, equal nodes.")
]
BoundsOutput = Annotated[str, valued("FILE", "Where the bounds go; - is stdout.", "--output", "-o")]


def fleet(reports: Reports, json: JsonPath = None, out: OutDir = None) -> None:
    """Compare the reports of many nodes: group equal hardware, name the odd ones out, show what differs.

    Exit codes: 0 all alike, 1 outliers or failing nodes, 2 usage, 3 a node is unknown or no report could be read.
    """
    if out is not None:
        _make_dir(out)
    check_outputs(json)
    compared = overview(read_reports(report_paths(reports)))
    if out is not None:
        for name, text in _host_lists(compared).items():
            write_atomically(os.path.join(out, name), text)
        write_atomically(os.path.join(out, PAGE), render_fleet_html(compared))
    print_result(json, lambda: render_json(compared), lambda: render_fleet(compared, style()))
    raise typer.Exit(compared.exit_code)


def _make_dir(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        why = "not a directory" if isinstance(error, FileExistsError) else str(error.strerror).lower()
        raise UsageError(f"--out {path}: {why}") from None


def _host_lists(compared: Fleet) -> dict[str, str]:
    """Return each list of hosts by its file, every host that is not well with its reason in words."""
    states = {UNKNOWN: compared.unknown, WOULD_DRAIN: compared.would_drain}
    lists = {name: render_host_list([each.host for each in of], state_reasons(of)) for name, of in states.items()}
    lists[PASSING] = render_host_list(compared.passing)
    lists[FAILING] = render_host_list(failing_hosts(compared), state_reasons(compared.failing))
    lists[ODD] = render_host_list(sorted(odd_hosts(compared)), odd_reasons(compared))
    return lists


def baseline(reports: GoodReports, output: BoundsOutput) -> None:
    """Learn from reports of known-good nodes what such a node reaches; several reports of a host are repetitions.

    Exit codes: 0 learnt, 2 usage (mixed hardware, too few good nodes), 3 it could not be written.
    """
    check_outputs(output)
    learnt = learn_from(read_reports(report_paths(reports)))
    print_result(output, lambda: render_json(learnt.baseline), lambda: render_baseline(learnt, style(), output))
