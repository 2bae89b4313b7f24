"""`preflight fleet`: many reports side by side."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from preflight.cli.options import JsonPath
from preflight.cli.output import STDOUT, check_outputs, print_result, style
from preflight.cli.program import app
from preflight.errors import UsageError
from preflight.system.files import write_atomically

PASSING, FAILING, PAGE = "passing_nodes.txt", "failing_nodes.txt", "fleet.html"
Reports = Annotated[list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports, or directories of *.json.")]
OutDir = Annotated[str | None, typer.Option("--out", metavar="DIR", help=f"Write {PAGE} and the lists of hosts there.")]


@app.command()
def fleet(reports: Reports, json: JsonPath = None, out: OutDir = None) -> None:
    """Compare the reports of many nodes: group equal hardware, name the odd ones out, show what differs.

    Exit codes: 0 all alike, 1 outliers or failing nodes, 2 usage, 3 no report could be read.
    """
    from preflight.fleet.overview import overview  # noqa: PLC0415
    from preflight.render.fleet import failing_hosts, render_fleet, render_host_list  # noqa: PLC0415
    from preflight.render.fleet_html import render_fleet_html  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415
    from preflight.system.report_files import read_reports, report_paths  # noqa: PLC0415

    if out is not None and not os.path.isdir(out):
        raise UsageError(f"--out {out}: not a directory")
    check_outputs(*([json] if json not in (None, STDOUT) else []))
    seen = overview(read_reports(report_paths(reports)))
    if out is not None:
        write_atomically(os.path.join(out, PASSING), render_host_list(seen.passing))
        write_atomically(os.path.join(out, FAILING), render_host_list(failing_hosts(seen)))
        write_atomically(os.path.join(out, PAGE), render_fleet_html(seen))
    print_result(json, lambda: render_json(seen), lambda: render_fleet(seen, style()))
    raise typer.Exit(seen.exit_code)
