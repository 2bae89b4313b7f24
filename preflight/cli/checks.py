"""`preflight checks`: what preflight looks for."""

from __future__ import annotations

from preflight.cli.output import style
from preflight.cli.program import app
from preflight.system.streams import to_stdout


@app.command()
def checks() -> None:
    """List every check: what it promises, whom it blames, and what it can't see."""
    from preflight.judge.check import all_checks, describe  # noqa: PLC0415
    from preflight.render.checks import render_checks  # noqa: PLC0415

    to_stdout(render_checks([describe(check) for check in all_checks()], style()))
