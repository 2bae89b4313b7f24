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
from preflight.render.baseline import render_baseline
from preflight.render.fleet import failing_hosts, render_fleet, render_host_list
from preflight.render.fleet_html import render_fleet_html
from preflight.render.json_document import render_json
from preflight.system.files import write_atomically
from preflight.system.report_files import read_reports, report_paths

PASSING, FAILING, PAGE = "passing_nodes.txt", "failing_nodes.txt", "fleet.html"
Reports = Annotated[list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports, or directories of *.json.")]
OutDir = Annotated[str | None, valued("DIR", f"Write {PAGE} and the lists of hosts there.", "--out")]
GoodReports = Annotated[
    list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports of known-good, equal nodes.")
]
BoundsOutput = Annotated[str, valued("FILE", "Where the bounds go; - is stdout.", "--output", "-o")]


def fleet(reports: Reports, json: JsonPath = None, out: OutDir = None) -> None:
    """Compare the reports of many nodes: group equal hardware, name the odd ones out, show what differs.

    Exit codes: 0 all alike, 1 outliers or failing nodes, 2 usage, 3 no report could be read.
    """
    if out is not None and not os.path.isdir(out):
        raise UsageError(f"--out {out}: not a directory")
    check_outputs(json)
    compared = overview(read_reports(report_paths(reports)))
    if out is not None:
        write_atomically(os.path.join(out, PASSING), render_host_list(compared.passing))
        write_atomically(os.path.join(out, FAILING), render_host_list(failing_hosts(compared)))
        write_atomically(os.path.join(out, PAGE), render_fleet_html(compared))
    print_result(json, lambda: render_json(compared), lambda: render_fleet(compared, style()))
    raise typer.Exit(compared.exit_code)


def baseline(reports: GoodReports, output: BoundsOutput) -> None:
    """Learn from reports of known-good nodes what such a node reaches; several reports of a host are repetitions.

    Exit codes: 0 learnt, 2 usage (mixed hardware, too few good nodes), 3 it could not be written.
    """
    check_outputs(output)
    learnt = learn_from(read_reports(report_paths(reports)))
    print_result(output, lambda: render_json(learnt.baseline), lambda: render_baseline(learnt, style(), output))
