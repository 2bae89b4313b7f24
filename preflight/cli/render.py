"""`preflight render`: a saved report in another form, on any machine."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight.cli.output import STDOUT, check_outputs, style
from preflight.cli.program import app
from preflight.render.formats import Format
from preflight.render.text import Style
from preflight.system.files import STDIN, read_input, write_atomically
from preflight.system.streams import to_stdout

ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="What `preflight check` wrote; - is stdin.")]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="The form that is wanted.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where it goes; - is stdout.")]


@app.command()
def render(report: ReportFile, form: FormatOption = Format.CONSOLE, output: Output = STDOUT) -> None:
    """Render a saved report, of this release or an older one, in another form. Looks at nothing else.

    Exit codes: 0 rendered, 2 no report or none that has this form, 3 it could not be written.
    """
    from preflight.model.saved import load_report  # noqa: PLC0415
    from preflight.render.formats import render_as  # noqa: PLC0415

    check_outputs(output)
    saved = load_report(read_input(report), "stdin" if report == STDIN else report)
    text = render_as(form, saved, style() if output == STDOUT else Style(width=100))
    if output == STDOUT:
        to_stdout(text)
    else:
        write_atomically(output, text)
