"""`preflight doctor`: whether this installation is sound."""

from __future__ import annotations

import typer

from preflight.check.installation import read_installation
from preflight.cli.commands import DoctorOptions
from preflight.cli.extras import is_linux
from preflight.cli.output import check_outputs, detail_of, print_result, style
from preflight.show.installation import installation_page
from preflight.show.json_document import render_json
from preflight.system.kernel_queries import live_machine


def doctor(asked: DoctorOptions) -> None:
    """Carry out `preflight doctor`: print the state of this installation, and exit with 0, or 3 if it is not sound."""
    check_outputs(asked.json)
    installation = read_installation(live_machine(), is_linux())
    shown = installation_page(installation).shown(detail_of(False, asked.quiet), style())
    print_result(asked.json, lambda: render_json(installation), lambda: shown)
    raise typer.Exit(installation.exit_code)
