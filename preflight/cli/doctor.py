"""`preflight doctor`: check whether this installation works."""

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
    """Run `preflight doctor`: print the state of this installation, and exit.

    The exit code is 0, or 3 if the installation has a fault.
    """
    check_outputs(asked.json)
    installation = read_installation(live_machine(), is_linux())
    shown = installation_page(installation).shown(detail_of(False, asked.quiet), style())
    print_result(asked.json, lambda: render_json(installation), lambda: shown)
    raise typer.Exit(installation.exit_code)
