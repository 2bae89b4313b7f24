"""`preflight baseline`: what known-good nodes reach, for `check --baseline`."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight.cli.output import STDOUT, check_outputs, style
from preflight.cli.program import app
from preflight.system.files import write_atomically
from preflight.system.streams import to_stdout

Reports = Annotated[list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports of known-good, equal nodes.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where the bounds go; - is stdout.")]


@app.command()
def baseline(reports: Reports, output: Output) -> None:
    """Learn from reports of known-good nodes what such a node reaches; several reports of a host are repetitions.

    Exit codes: 0 learnt, 2 usage (mixed hardware, too few good nodes), 3 it could not be written.
    """
    from preflight.fleet.known_good import learn_from  # noqa: PLC0415
    from preflight.render.baseline import render_baseline  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415
    from preflight.system.report_files import read_reports, report_paths  # noqa: PLC0415

    check_outputs(output)
    learnt = learn_from(read_reports(report_paths(reports)))
    if output == STDOUT:
        to_stdout(render_json(learnt.baseline))
        return
    write_atomically(output, render_json(learnt.baseline))
    to_stdout(render_baseline(learnt, style(), output))
