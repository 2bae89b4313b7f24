"""Rendering of a report in any format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from preflight.errors import UsageError
from preflight.model.report import Report
from preflight.show.formats import Format
from preflight.show.text import Style


def render_as(form: Format, report: Report, style: Style | None = None) -> str:
    """Return `report` in the format `form`.

    Raise UsageError for the `.env` format if the report's exit code is not 0. `style` describes the terminal.
    """
    if form is Format.ENV and report.exit_code != 0:
        why = f"its exit code was {report.exit_code} ({report.verdict.value})"
        raise UsageError(f"the report has no .env to source: {why}, but only exit code 0 gives one")
    module, name = form.function.split(".")
    # A form is imported when it is wanted: plots and templates must not slow the others.
    render: Callable[..., str] = getattr(import_module(f"preflight.show.{module}"), name)
    return render(report, style or Style(width=100)) if form is Format.CONSOLE else render(report)
